#!/bin/bash
# The fast full suite. usage: tools/test.sh [STEP...]   (all steps: build plain asan tsan model cli service python)
#
#   build   gcc plain, clang with ASan+UBSan, clang with TSan: all with warnings as errors
#   plain   unit tests, installed tree
#   asan    unit tests, random pipelines against the reference model, and the command line, under ASan+UBSan
#   tsan    unit tests of what several threads run, and random pipelines, under ThreadSanitizer
#   model   the reference model's own tests; random pipelines, expressions and images against it, NumPy and Pillow
#   cli     the command, black box; the dashboard in a browser; the simulator and the policies in it
#   service dispatcher, workers and clients as processes, with faults, judged by the delivery oracle; the oracle's and the fault proxy's own tests
#   python  the Python package, installed into an environment of its own; random pipelines with Python functions through it, against the model
#
# Tests that wait much have more processes than there are CPUs. A step's output is shown when it fails, or all of it with VERBOSE=1. BUILD names the
# prefix of the build directories.
set -euo pipefail
cd "$(dirname "$0")/.."

meson=${MESON:-meson}
build=${BUILD:-build}
plain=$build-gcc asan=$build-asan tsan=$build-tsan
jobs=${JOBS:-$(nproc)}
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(build plain asan tsan model cli service python)

# Reports end the program; what libraries keep until the end is not a leak of ours.
export ASAN_OPTIONS=abort_on_error=1:detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CACHEW_INDEX_DIR=$work/index
mkdir "$work/bin" # scripts that call meson get the one that made the build directories
ln -s "$(command -v "$meson")" "$work/bin/meson"
PATH=$work/bin:$PATH

passed=0 started=$SECONDS
counts=()

# What a long output failed of, in a few lines, and last: where output is cut short, it is cut at the front.
digest() {
    grep -aE -A 8 '(ERROR: (Address|Leak|Thread|Undefined)|WARNING: Thread|runtime error:|SUMMARY: )' "$1" | grep -avE 'Shadow|^--$|^(  |=>)0x' | head -n 30 || true
    grep -aE '(^\[  (ERROR|FAILED) |  LINE   \]|^(FAILED|ERROR) |^E   )' "$1" | head -n 30 || true
}

# One thing to run: its output is kept, its time and its line of counts are shown.
run() {
    local name=$1 from=$SECONDS
    shift
    printf '%-28s' "$name"
    if "$@" >"$work/out" 2>&1; then
        local line
        line=$(grep -aE '(passed|failed|equal|agree)|^Ok:|test_install' "$work/out" | tail -1 | sed 's/^=* *//; s/ *=*$//; s/^Ok: *\([0-9]*\)/\1 programs/' || true)
        [ -z "${VERBOSE:-}" ] || cat "$work/out"
        printf 'ok %4d s  %s\n' $((SECONDS - from)) "$line"
        passed=$((passed + 1))
        counts+=("$line")
    else
        printf 'FAILED after %d s: %s\n' $((SECONDS - from)) "$*"
        tail -n "${LINES_SHOWN:-200}" "$work/out"
        digest "$work/out"
        echo "test: $passed things passed, then $name failed"
        exit 1
    fi
}

compile() { "$meson" compile -C "$1" && "$meson" compile -C "$1" tests; }
unit() { # DIR [meson test arguments]: with the number of checks that the programs counted
    local dir=$1
    shift
    "$meson" test -C "$dir" --no-rebuild --num-processes "$jobs" --print-errorlogs "$@" || { digest "$dir/meson-logs/testlog.txt"; return 1; }
    local n
    n=$(grep -aoE '^\[  PASSED  \] [0-9]+' "$dir/meson-logs/testlog.txt" | awk '{ n += $NF } END { print n + 0 }')
    echo "$n tests passed in $(grep -acE '^=+ [0-9]+/[0-9]+ =+$' "$dir/meson-logs/testlog.txt") programs"
}
python() { "$venv/bin/python" "$@"; }
sanitized() { CC=clang tools/setup.sh "$1" --werror -Dcrash_points=true -Db_lundef=false -Db_sanitize="$2" -Dbuildtype=debugoptimized; }

for step in "${steps[@]}"; do
    case $step in
    plain) ;;
    python) venv=${PYTHON_VENV:-$PWD/$(tools/venv.sh python tests/requirements-python.txt)} ;;
    *) venv=${VENV:-$(tools/venv.sh)} ;;
    esac
    case $step in
    build)
        run 'configure' eval 'CC=gcc tools/setup.sh $plain --werror -Dpython=true -Dcrash_points=true && sanitized $asan address,undefined && sanitized $tsan thread'
        run 'compile gcc' compile "$plain"
        run 'compile clang, ASan+UBSan' compile "$asan"
        run 'compile clang, TSan' compile "$tsan"
        ;;
    plain)
        run 'unit tests' unit "$plain"
        run 'installed tree' sh tests/test_install.sh "$plain"
        ;;
    asan)
        run 'unit tests, ASan+UBSan' unit "$asan" --suite unit --timeout-multiplier 4
        run 'model, ASan+UBSan' python tests/model/compare.py --n 200 --seed 100001 --jobs "$jobs" --binary "$asan/cachew"
        run 'command line, ASan+UBSan' env CACHEW="$(realpath "$asan")/cachew" MAKE_PHOTOS="$(realpath "$plain")/tools/make_photos" CACHEW_SANITIZED=1 \
            "$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$jobs" tests/test_cli*.py tests/test_plugins.py tests/test_sources.py \
            tests/test_daemons.py tests/test_cache.py tests/sim \
            -k 'not example and not parts_add_up'
        ;;
    tsan)
        run 'unit tests, TSan' unit "$tsan" --suite threads --timeout-multiplier 4
        run 'model, TSan' python tests/model/compare.py --n 100 --seed 200001 --jobs "$jobs" --binary "$tsan/cachew"
        ;;
    model)
        run 'model itself' python -m pytest -q -p no:cacheprovider tests/model
        run 'model, random pipelines' python tests/model/compare.py --n 500 --jobs "$jobs" --binary "$plain/cachew"
        run 'expressions against NumPy' python tests/expr_numpy.py "$plain/tests/expr_tool" --count 6000
        run 'pixels against Pillow' env CACHEW_PIXEL_TOOL="$(realpath "$plain")/tests/pixel_tool" "$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$jobs" tests/test_pixels.py
        ;;
    cli)
        mapfile -t files < <(printf '%s\n' tests/test_*.py | grep -vE 'dashboard|decisions|monitoring|autoscale|pixels') # all but those that have lines of their own
        run 'command line' env CACHEW="$(realpath "$plain")/cachew" MAKE_PHOTOS="$(realpath "$plain")/tools/make_photos" \
            "$venv/bin/python" -m pytest -q -p no:cacheprovider -n $((jobs + 1)) --dist worksteal "${files[@]}"
        run 'dashboard, monitoring' env CACHEW="$(realpath "$plain")/cachew" "$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$jobs" tests/test_dashboard.py \
            tests/test_decisions.py tests/test_monitoring.py
        run 'simulator, policies' env CACHEW="$(realpath "$plain")/cachew" "$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$jobs" tests/sim
        ;;
    service)
        run 'autoscaling' env CACHEW="$(realpath "$plain")/cachew" "$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$jobs" tests/test_autoscale.py
        run 'service' env CACHEW="$(realpath "$plain")/cachew" "$venv/bin/python" -m pytest -q -p no:cacheprovider -n $((2 * jobs)) --dist worksteal tests/service
        ;;
    python)
        run 'install the package' env PATH="$venv/bin:$PATH" "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
            --config-settings=build-dir="$build-python" .
        run 'Python package' env CACHEW="$(realpath "$plain")/cachew" MAKE_PHOTOS="$(realpath "$plain")/tools/make_photos" \
            "$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$jobs" tests/python
        run 'model, functions, package' python tests/model/compare.py --functions --package --n 300 --seed 300001 --jobs "$jobs" --binary "$plain/cachew"
        ;;
    *)
        echo "test: there is no step $step" >&2
        exit 2
        ;;
    esac
done
total=$(printf '%s\n' "${counts[@]}" | { grep -oE '[0-9]+ ((tests )?passed|expressions)' || true; } | awk '{ n += $1 } END { print n + 0 }')
echo "test: all $passed steps passed, $total tests and comparisons, in $((SECONDS - started)) s"
