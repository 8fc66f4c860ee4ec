#!/bin/bash
# Every fuzz target under libFuzzer, ASan and UBSan, FUZZ_RUNS executions each, from the seeds that tests/make_data.py writes.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${FUZZ_RUNS:-1000000}
venv=$(tools/venv.sh)
CC=clang tools/setup.sh build-fuzz -Dfuzz=true -Db_lundef=false -Db_sanitize=address,undefined -Dbuildtype=debugoptimized
"${MESON:-meson}" compile -C build-fuzz
"$venv/bin/python" tests/make_data.py --seeds build-fuzz/seeds
for target in build-fuzz/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=${target##*/fuzz_}
    corpus=build-fuzz/corpus/$name
    mkdir -p "$corpus" "build-fuzz/seeds/$name"
    printf '%-12s' "$name"
    if ! "$target" -runs="$runs" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 "$corpus" "build-fuzz/seeds/$name" >"build-fuzz/$name.log" 2>&1; then
        echo "FAILED: build-fuzz/$name.log"
        tail -n 40 "build-fuzz/$name.log"
        exit 1
    fi
    awk '/number_of_executed_units/ { print $2, "executions" }' "build-fuzz/$name.log"
done
