#!/bin/bash
# Checks the sources without running them. (Warnings of compilers are errors in tools/test.py.)
set -euo pipefail
CDPATH= cd "$(dirname "$0")/.."
venv=${VENV:-$(tools/venv.sh)}
failed=0
step() {
    local name=$1
    shift
    "$@" || { echo "lint: $name failed"; failed=1; }
}

scripts() { # each by the shell that its first line names: ./demo and ./test must not need bash
    local bad=0 n=0 script
    while IFS= read -r script; do
        n=$((n + 1))
        case $(head -n 1 "$script") in
        '#!/bin/sh') sh -n "$script" || bad=1 ;;
        *) bash -n "$script" || bad=1 ;;
        esac
    done < <(find . \( -name .git -o -name 'build*' -o -name shared \) -prune -o -type f \
        -exec grep -lE '^#!/bin/(ba)?sh' {} +)
    bash -n data/cachew.bash || bad=1
    [ $n -gt 0 ] || { echo "no script was found"; bad=1; }
    echo "scripts: $n parsed"
    return $bad
}

man_page() { # groff says on stderr what it does not like
    local said
    said=$(LC_ALL=C.UTF-8 MANROFFSEQ= MANWIDTH=80 groff -man -Tutf8 -ww -z man/cachew.1 2>&1) || true
    [ -z "$said" ] || { echo "$said"; return 1; }
    echo "man page: ok"
}

# Pipelines and workloads are JSON.
json() {
    local f n=0
    for f in examples/{pipelines,workloads,plugin}/*.json bench/pipelines/*.json monitoring/*.json; do
        "$venv/bin/python" -m json.tool "$f" >/dev/null || return 1
        n=$((n + 1))
    done
    echo "json: $n files"
}

structure() { # circles among linked files, if the library has been built
    local build
    for build in $(dirname "${CACHEW:-build/cachew}") build-gcc; do
        [ -d "$build/src" ] || continue
        python3 tools/check_structure.py --objects "$build"
        return
    done
    python3 tools/check_structure.py
}

exports() { # if the library has been built
    local library
    for library in build/src/api/libcachew.so build-gcc/src/api/libcachew.so; do
        [ ! -f "$library" ] || sh src/api/check_exports.sh "$library" || return 1
    done
}

tables() { # pages and stubs that the operator table gives, and the man page, if the command has been built
    local command
    for command in ${CACHEW:-build/cachew build-gcc/cachew}; do
        [ -x "$command" ] || { [ -z "${CACHEW:-}" ] && continue; }
        "$venv/bin/python" tools/make_operator_pages.py --check --cachew "$command" &&
            "$venv/bin/python" tools/make_stubs.py --check --cachew "$command" &&
            "$venv/bin/python" tools/check_man.py "$command" || return 1
        echo "operator pages and stubs: ok"
        return 0
    done
}

step layers python3 tools/check_layers.py
step notebook python3 tools/make_notebook.py --check
step structure structure
step words python3 tools/check_words.py
step limits python3 tools/make_limits.py --check
step ruff "$venv/bin/ruff" check --quiet --no-cache --config tools/ruff.toml tests tools bench python examples
step format tools/format.sh --check
step scripts scripts
step json json
step 'man page' man_page
step exports exports
step tables tables
[ $failed -eq 0 ] && echo "lint: ok"
exit $failed
