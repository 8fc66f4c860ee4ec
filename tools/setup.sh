#!/bin/bash
# Configures a build directory, unless it is already configured with the same options.
# usage: [CC=...] tools/setup.sh DIR [meson options]
set -euo pipefail
dir=${1:-}
case $dir in
'' | -*)
    echo "usage: [CC=...] tools/setup.sh DIR [meson options]" >&2
    exit 2
    ;;
esac
shift
meson=${MESON:-meson}
options="CC=${CC:-} $*"
stamp="$dir/.options"
if [ -f "$dir/build.ninja" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$options" ]; then
    exit 0
fi
# A directory that somebody else configured is taken as it is, if nothing in particular is asked for.
if [ -f "$dir/build.ninja" ] && [ ! -f "$stamp" ] && [ -z "${CC:-}$*" ]; then
    exit 0
fi
# What was configured before is forgotten: it may name options that no longer exist.
rm -rf "$dir/meson-private" "$dir/build.ninja"
mkdir -p "$dir"
"$meson" setup "$dir" "$@" >"$dir.setup.log" 2>&1 || { cat "$dir.setup.log" >&2; exit 1; }
rm -f "$dir.setup.log"
echo "$options" >"$stamp"
