#!/bin/sh
# Seals the candidate NAME and queues its validation: validate.sh NAME [--item ITEM]... [--wait]
set -eu
exec "$(dirname -- "$0")/airlock-harness" validate "$@"
