#!/bin/sh
# Prints the time that is left.
set -eu
exec "$(dirname -- "$0")/airlock-harness" timer "$@"
