#!/bin/bash
# Installs the Debian packages that are missing. usage: tools/deps.sh GROUP...   (build, demo, test, lint, python, coverage)
set -euo pipefail

declare -A groups=(
    # libc6-dev comes with gcc as a recommendation only, which is not installed here
    [build]='gcc libc6-dev meson ninja-build pkg-config python3 libjansson-dev libxxhash-dev zlib1g-dev libjpeg62-turbo-dev libspng-dev libwebp-dev
        libuv1-dev libprotobuf-c-dev protobuf-c-compiler libsqlite3-dev libssl-dev libmicrohttpd-dev libzstd-dev'
    # the photographs
    [demo]='mate-backgrounds ukui-wallpapers lomiri-wallpapers-16.04'
    # llvm: the sanitizers' reports with names instead of addresses; g++: the header is compiled as C++; strace, iproute2, nftables: what is synced, networks that fail
    # chromium-headless-shell, fonts-dejavu-core: the dashboard is looked at
    [test]='libcmocka-dev clang g++ libclang-rt-14-dev llvm python3-venv ca-certificates strace iproute2 nftables chromium-headless-shell fonts-dejavu-core'
    [lint]='groff-base python3-venv ca-certificates'
    [python]='python3-dev python3-venv ca-certificates'
    [coverage]='gcovr'
)

wanted=()
for group in "$@"; do
    [ -n "${groups[$group]:-}" ] || { echo "deps: there is no group $group (${!groups[*]})" >&2; exit 2; }
    wanted+=(${groups[$group]})
done

if ! command -v dpkg-query >/dev/null; then
    echo "deps: not a Debian system; expected to be there: ${wanted[*]}" >&2
    exit 0
fi

installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' | sed -n 's/ installed$//p')
missing=()
for package in "${wanted[@]}"; do
    grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "deps: installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "deps: neither root nor sudo: apt-get install ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@"; }
# Lists that are absent, or too old to know where the packages are now, are fetched, and then it is tried once more.
if ! apt install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
    echo "deps: apt-get update"
    apt update
    apt install -y --no-install-recommends "${missing[@]}" >/dev/null
fi
