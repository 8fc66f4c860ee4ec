#!/bin/bash
# Makes a Python environment and prints its directory. It is kept until its requirements change, or its Python
# no longer exists.
# usage: tools/venv.sh [NAME REQUIREMENTS]     (default: the environment of the tests)
set -euo pipefail
CDPATH= cd "$(dirname "$0")/.."
requirements=${2:-tests/requirements.txt}
venv=build/venv${1:+-$1}
stamp=$venv/requirements.stamp
# A file of requirements may begin with another one.
included=$(sed -n "s,^-r ,$(dirname "$requirements")/,p" "$requirements")
wanted=$(cat $included "$requirements")
# An environment no longer works after an upgrade of the system to another Python.
works() { "$venv/bin/python" -c 'import pip' 2>/dev/null; }
if [ "$wanted" != "$(cat "$stamp" 2>/dev/null)" ] || ! works; then
    n=$(grep '==' <<<"$wanted" | cut -d = -f 1 | sort -u | wc -l)
    echo "venv: installing $n Python packages into $venv" >&2
    works || "${PYTHON:-python3}" -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile -r "$requirements" >&2 || {
        echo "venv: pip could not install these packages, for the reason above:" \
            "it needs a network, or an index of its own (pip config)" >&2
        exit 1
    }
    # On all CPUs. A package may have files for other versions of Python.
    "$venv/bin/python" -m compileall -q -j 0 "$venv/lib" >&2 || true
    echo "$wanted" >"$stamp"
fi
echo "$venv"
