#!/bin/bash
# Which lines the unit tests and the comparison with the reference model reach: build/coverage/index.html
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$(tools/venv.sh)
CC=gcc tools/setup.sh build-coverage -Db_coverage=true -Dbuildtype=debug
"${MESON:-meson}" compile -C build-coverage
"${MESON:-meson}" compile -C build-coverage tests
"${MESON:-meson}" test -C build-coverage --no-rebuild --suite unit
"$venv/bin/python" tests/model/compare.py --n 100 --binary build-coverage/cachew
mkdir -p build/coverage
gcovr -r . --filter src/ --object-directory build-coverage --html-details build/coverage/index.html --print-summary
