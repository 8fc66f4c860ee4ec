#!/bin/bash
# What a compiler does not see: layers, banned functions, white space, Python, man page, scripts, generated pages.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
check() { # NAME COMMAND...
    local out
    if out=$("${@:2}" 2>&1); then
        printf '%-24s ok\n' "$1"
    else
        printf '%-24s FAILED\n%s\n' "$1" "$out"
        failed=1
    fi
}
none() { ! grep "$@"; } # fails where grep finds something

mapfile -t c_files < <(git ls-files '*.c' '*.h')
mapfile -t text < <(git ls-files '*.c' '*.h' '*.py' '*.sh' '*.md' '*.build' '*.json' Makefile)
mapfile -t scripts < <(git ls-files '*.sh' .ci/run data/cachew.bash)
banned=$(paste -sd'|' tools/banned.txt)

check 'layers' tools/check_layers.py
check 'banned functions' none -nE "(^|[^A-Za-z0-9_>.])($banned)\(" "${c_files[@]}"
check 'setjmp only in decoders' none -nE '\bsetjmp\(' $(git ls-files 'src/*.c' 'tools/*.c' 'bench/*.c' | grep -v '^src/formats/image_jpeg.c$' | grep -vE '^(tools|bench)/')
check 'trailing white space' none -nE '[[:space:]]+$' "${text[@]}"
check 'tabs in C' none -nP '\t' "${c_files[@]}"
check 'scripts' bash -n "${scripts[@]}"
check 'man page' env LC_ALL=C.UTF-8 MANROFFSEQ='' bash -c '! man --warnings -E UTF-8 -l -Tutf8 -Z man/cachew.1 2>&1 >/dev/null | grep .'
venv=$(tools/venv.sh)
check 'Python' "$venv/bin/ruff" check --quiet --line-length 140 --no-cache tests tools bench
[ ! -x build/cachew ] || check 'operator pages' tools/make_operator_pages.py --check
exit $failed
