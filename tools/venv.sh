#!/bin/bash
# Makes the Python environment of the tests, once, and prints its directory. Made again when the requirements change.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/venv
stamp=$venv/requirements.stamp
if ! cmp -s tests/requirements.txt "$stamp"; then
    echo "venv: installing $(grep -c '==' tests/requirements.txt) Python packages into $venv" >&2
    [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/requirements.txt >&2
    cp tests/requirements.txt "$stamp"
fi
echo "$venv"
