#!/bin/sh
# The installed tree is complete, and the example builds against it alone.
#
# usage: tests/test_install.sh BUILD_DIR   (a build directory that meson has set up)
set -eu
source=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:?usage: $0 BUILD_DIR}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_install: $*" >&2; exit 1; }

DESTDIR="$work/root" "${MESON:-meson}" install -C "$build" --quiet >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    fail "meson install failed"
}
prefix=$(find "$work/root" -path '*/include/cachew/cachew.h' | sed 's,/include/cachew/cachew.h$,,')
[ -n "$prefix" ] || fail "the header is not installed"
for file in include/cachew/plugin.h bin/cachew share/man/man1/cachew.1 \
    share/bash-completion/completions/cachew; do
    [ -e "$prefix/$file" ] || [ -e "$prefix/$file.gz" ] || fail "$file is not installed"
done
pc=$(find "$prefix" -name cachew.pc)
shared=$(find "$prefix" -name 'libcachew.so')
[ -n "$pc" ] && [ -n "$shared" ] && [ -n "$(find "$prefix" -name libcachew.a)" ] ||
    fail "the library is not installed"
libdir=$(dirname "$shared")
sh "$source/src/api/check_exports.sh" "$shared"
bash -n "$prefix/share/bash-completion/completions/cachew"

# The example, in a place that knows nothing of the source tree.
mkdir "$work/example"
cp "$source/examples/c/pull.c" "$source/examples/c/Makefile" "$work/example"
export PKG_CONFIG_PATH="$(dirname "$pc")" PKG_CONFIG_SYSROOT_DIR="$work/root"
export LD_LIBRARY_PATH="$libdir" CACHEW_INDEX_DIR="$work/index"
make --silent -C "$work/example" CFLAGS="-O1 -Wall -Wextra -Werror" LDFLAGS="-Wl,-rpath-link,$libdir" ||
    fail "the example does not build"
# A C++ compiler must accept the header too.
if command -v c++ >/dev/null; then
    echo '#include <cachew/plugin.h>' |
        c++ -x c++ -fsyntax-only -Wall -Wextra -Werror $(pkg-config --cflags cachew) - ||
        fail "the headers are not C++"
fi

cat >"$work/p.json" <<'JSON'
{"cachew": 1, "pipeline": [{"op": "range", "stop": 1000}, {"op": "assign", "set": {"half": "value * 0.5"}},
                           {"op": "shuffle"}, {"op": "batch", "size": 32}]}
JSON
want=$("$prefix/bin/cachew" run --wait 900 "$work/p.json" --digest | grep '^digest ')
for arguments in "" "$work/p.json 1" "$work/p.json 3"; do
    have=$("$work/example/pull" $arguments | grep '^digest ') || fail "the example fails"
    [ "$have" = "$want" ] || fail "the example gives $have, cachew run gives $want"
done
if "$work/example/pull" "$work/none.json" 2>"$work/err"; then fail "a missing file is no error"; fi
grep -q none.json "$work/err" || fail "the error does not name the file"

# The example of a plug-in, likewise: the command and a program with the library load it, and give what the
# same thing gives as an expression.
mkdir "$work/plugin"
cp "$source"/examples/plugin/* "$work/plugin"
make --silent -C "$work/plugin" CFLAGS="-O1 -Wall -Wextra -Werror" || fail "the plug-in does not build"
[ -z "$(readelf -d "$work/plugin/negative.so" | grep 'NEEDED.*cachew')" ] ||
    fail "the plug-in links the library"
plugin=$work/plugin/negative.so
sed 's/{"op": "negative".*/{"op": "assign", "set": {"data": "where(data < 100, data, 255 - data)"}},/' \
    "$work/plugin/negative.json" >"$work/plugin/assign.json"
grep -q assign "$work/plugin/assign.json" || fail "negative.json has no negative to replace"
expected=$("$prefix/bin/cachew" run --wait 900 "$work/plugin/assign.json" --digest | grep '^digest ')
have=$("$prefix/bin/cachew" run --wait 900 "$work/plugin/negative.json" --digest --plugin "$plugin" |
    grep '^digest ') || fail "cachew run fails with the plug-in"
[ "$have" = "$expected" ] || fail "the plug-in gives $have, the expression gives $expected"
have=$(CACHEW_PLUGIN="$plugin" "$work/example/pull" "$work/plugin/negative.json" | grep '^digest ') ||
    fail "the example fails with the plug-in"
[ "$have" = "$expected" ] || fail "with the library the plug-in gives $have, the expression gives $expected"
"$prefix/bin/cachew" ops random_negative --plugin "$plugin" | grep -q 'plug-in negative 1' ||
    fail "cachew ops does not know the plug-in"
echo "test_install: ok ($want)"
