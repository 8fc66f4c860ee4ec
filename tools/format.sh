#!/bin/bash
# Formats the C sources by .clang-format and the Python sources by tools/ruff.toml.
# usage: tools/format.sh [--check]
set -euo pipefail
CDPATH= cd "$(dirname "$0")/.."
venv=${VENV:-$(tools/venv.sh)}
files() {
    git ls-files "$@" 2>/dev/null ||
        find . \( -name 'build*' -o -name shared -o -name .git \) -prune -o -type f \
            \( -name "${1}" ${2:+-o -name "$2"} \) -print
}
clang_format() { files '*.c' '*.h' | xargs -P "$(nproc)" -n 40 "$venv/bin/clang-format" "$@"; }
ruff_format() {
    files '*.py' '*.pyi' | xargs "$venv/bin/ruff" format --quiet --no-cache --config tools/ruff.toml "$@"
}
case ${1:-} in
--check)
    bad=0
    said=$(clang_format --dry-run -Werror 2>&1 | grep 'error:') || true
    [ -z "$said" ] || { head -n 20 <<<"$said"; bad=1; }
    ruff_format --check || bad=1
    [ $bad -eq 0 ] || { echo "format: run tools/format.sh"; exit 1; }
    echo "format: ok"
    ;;
'')
    clang_format -i
    ruff_format
    ;;
*)
    echo "usage: tools/format.sh [--check]" >&2
    exit 2
    ;;
esac
