#!/bin/sh
# Ends research without a candidate: no_candidate.sh REASON
set -eu
exec "$(dirname -- "$0")/airlock-harness" no-candidate "$@"
