#!/bin/sh
# Makes NAME, or the workspace, the final choice and ends research. The last action: submit.sh [NAME]
set -eu
exec "$(dirname -- "$0")/airlock-harness" submit "$@"
