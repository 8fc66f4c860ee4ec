#!/bin/bash
# Makes dist/cachew-*.whl, which contains the native libraries and the command, and tries it in an environment
# without other packages.
set -euo pipefail
CDPATH= cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=$PWD/$(tools/venv.sh wheel tools/wheel-requirements.txt)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# In a build directory of its own: nothing that was built before gets in.
PATH=$venv/bin:$PATH "$venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation -w "$work/linux" . >&2
rm -f dist/cachew-*.whl
PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair --wheel-dir dist "$work"/linux/*.whl >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
wheel=$(echo dist/cachew-*.whl)
case $wheel in
*-cp311-abi3-manylinux*) ;;
*) echo "wheel: $wheel is not for all Python versions from 3.11" >&2; exit 1 ;;
esac

"$python" -m venv "$work/bare"
"$work/bare/bin/pip" install --quiet --disable-pip-version-check "$wheel" >&2
cp tests/python/wheel_check.py "$work"
cd "$work" # away from the sources
env -u PYTHONPATH -u LD_LIBRARY_PATH CACHEW_INDEX_DIR="$work/index" "$work/bare/bin/python" -I wheel_check.py
echo "wheel: $wheel, $(stat -c %s "$OLDPWD/$wheel") bytes: ok"
