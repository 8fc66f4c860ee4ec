#!/bin/sh
# Checks that every symbol that a shared library exports begins with cachew_. Version names (type A) may
# differ.
set -eu
names=$(nm --dynamic --defined-only --format=posix "$1" | awk '$2 != "A" { sub(/@.*/, "", $1); print $1 }')
[ -n "$names" ] || { echo "$1 exports nothing" >&2; exit 1; }
bad=$(echo "$names" | grep -v '^cachew_' || true)
[ -z "$bad" ] || { echo "$1 exports names without the prefix cachew_:" $bad >&2; exit 1; }
