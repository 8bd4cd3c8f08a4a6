#!/bin/sh
# Runs the task's own proxy metric here, in the sandbox, without the grader: fast_eval.sh CHECKPOINT
set -eu
proxy=$(dirname -- "$0")/proxy
if [ ! -x "$proxy" ]; then
    echo "fast_eval.sh: this task has no proxy metric" >&2
    exit 1
fi
exec "$proxy" "$@"
