#!/bin/bash
# Installs a wheel into a Python environment without other packages, and tries it there: the package, the
# command, and the program with which README.md begins.
# usage: tools/try_wheel.sh [WHEEL]     (default: dist/cachew-*.whl)
set -euo pipefail
CDPATH= cd "$(dirname "$0")/.."
wheel=$(realpath -e "${1:-$(echo dist/cachew-*.whl)}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp tests/python/wheel_check.py "$work"
sed -n '/^```python$/,/^```$/p' README.md | sed '1d; /^```$/,$d' >"$work/quickstart.py"
grep -q 'cachew.demo' "$work/quickstart.py" || { echo "try_wheel: README.md has no quickstart" >&2; exit 1; }

seconds() { date +%s.%N; }
began=$(seconds)
"${PYTHON:-python3}" -m venv "$work/bare"
"$work/bare/bin/pip" install --quiet --disable-pip-version-check "$wheel"
installed=$(seconds)
cd "$work" # away from the sources
export XDG_CACHE_HOME=$work/cache
bare() { env -u PYTHONPATH -u LD_LIBRARY_PATH "$work/bare/bin/python" -I "$@"; }
bare quickstart.py
awk -v began="$began" -v installed="$installed" -v ended="$(seconds)" 'BEGIN {
    printf "try_wheel: installed in %.0f s, ", installed - began
    printf "the quickstart took %.0f s\n", ended - installed }'
bare wheel_check.py
echo "try_wheel: $(basename "$wheel"): ok"
