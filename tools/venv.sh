#!/bin/bash
# Makes a Python environment, once, and prints its directory. Made again when its requirements change.
# usage: tools/venv.sh [NAME REQUIREMENTS]     (default: the environment of the tests)
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=${2:-tests/requirements.txt}
venv=build/venv${1:+-$1}
stamp=$venv/requirements.stamp
if ! cmp -s "$requirements" "$stamp"; then
    echo "venv: installing $(grep -c '==' "$requirements") Python packages into $venv" >&2
    [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
    cp "$requirements" "$stamp"
fi
echo "$venv"
