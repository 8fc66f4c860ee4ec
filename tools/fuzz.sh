#!/bin/bash
# Runs every fuzz target FUZZ_RUNS times (default 1,000,000) under ASan and UBSan, one target per CPU at once.
# Inputs that reach new code are kept in build-fuzz/corpus, from which the next run starts.
# usage: tools/fuzz.sh [TARGET...]
set -euo pipefail
CDPATH= cd "$(dirname "$0")/.."
runs=${FUZZ_RUNS:-1000000}
build=${BUILD:-build}-fuzz
venv=${VENV:-$(tools/venv.sh)}
CC=clang tools/setup.sh "$build" -Dfuzz=true -Db_lundef=false -Db_sanitize=address,undefined \
    -Dbuildtype=debugoptimized '-Dc_args=-fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined'
"${MESON:-meson}" compile -C "$build" >"$build/compile.log" 2>&1 || { cat "$build/compile.log"; exit 1; }
build=$(cd "$build" && pwd)
corpus=$build/corpus
if [ ! -f "$corpus/done" ]; then
    "$venv/bin/python" tests/make_data.py --seeds "$corpus"
    "$venv/bin/python" fuzz/make_seeds.py "$corpus" "$build/cachew"
    touch "$corpus/done"
fi
[ $# -gt 0 ] || set -- arrow cache csv example expr frame host image index jsonl parquet pipeline \
    shard state tar tfrecord workload

one() {
    local target=$1 from=$SECONDS dict=() length=4096
    [ "$target" != tar ] || length=16384 # a member takes a kilobyte
    [[ "$target" != arrow && "$target" != shard ]] || length=8192 # metadata or a tar's file take a kilobyte
    [ "$target" != cache ] || length=8192 # entries begin behind 4 KiB
    mkdir -p "$corpus/$target" "$build/found"
    [ "$target" != pipeline ] || dict=("-dict=$corpus/pipeline.dict")
    local options=(-runs="$runs" -max_len="$length" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1
        -artifact_prefix="$build/found/$target-" "${dict[@]}")
    if (cd "$build/found" &&
        ASAN_OPTIONS=abort_on_error=0:detect_leaks=1 "$build/fuzz/fuzz_$target" "${options[@]}" \
            "$corpus/$target") >"$build/$target.log" 2>&1; then
        local n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")
        local kept=$(ls "$corpus/$target" | wc -l)
        echo "fuzz_$target: $n executions, $kept inputs kept, $((SECONDS - from)) s: nothing found"
    else
        tail -40 "$build/$target.log"
        echo "fuzz_$target: FAILED; the input is in $build/found"
        return 1
    fi
}
export -f one
export runs build corpus
printf '%s\n' "$@" | xargs -P "${JOBS:-$(nproc)}" -I{} bash -euo pipefail -c 'one {}'
