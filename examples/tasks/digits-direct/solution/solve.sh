#!/bin/sh
# Train for longer.
set -eu
workspace="${1:-/workspace}"
cp "$(dirname "$0")/train.py" "$workspace/train.py"
python3 "$workspace/train.py"
