#!/bin/bash
# Measures which lines and branches of src/ the unit tests and random pipelines reach. Prints a summary, and
# writes build-coverage/report/index.html.
set -euo pipefail
CDPATH= cd "$(dirname "$0")/.."
build=${BUILD:-build}-coverage
meson=${MESON:-meson}
venv=${VENV:-$(tools/venv.sh)}
CC=gcc tools/setup.sh "$build" -Db_coverage=true -Dbuildtype=debug
"$meson" compile -C "$build" >/dev/null
"$meson" compile -C "$build" tests >/dev/null
find "$build" -name '*.gcda' -delete
"$meson" test -C "$build" --no-rebuild --suite unit --timeout-multiplier 4 >"$build/tests.log" 2>&1 || {
    tail -50 "$build/tests.log"
    exit 1
}
"$venv/bin/python" tests/model/compare.py --n "${PIPELINES:-200}" --jobs "$(nproc)" --binary "$build/cachew" |
    tail -1
CACHEW=$(realpath "$build")/cachew \
    "$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" tests/test_cli*.py | tail -1
mkdir -p "$build/report"
gcovr --root . --filter src/ --gcov-ignore-parse-errors --exclude-throw-branches --object-directory "$build" \
    --html-details "$build/report/index.html" --txt "$build/report/summary.txt" -j "$(nproc)"
tail -4 "$build/report/summary.txt"
echo "coverage: $build/report/index.html"
