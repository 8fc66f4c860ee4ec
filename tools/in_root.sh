#!/bin/bash
# Runs a command in a copy of this checkout, on a fresh minimal root of a Debian or Ubuntu release.
#
# usage: tools/in_root.sh RELEASE COMMAND [ARGUMENT...]
#   RELEASE   bullseye, bookworm, trixie (Debian 11, 12, 13), jammy, noble (Ubuntu 22.04, 24.04) ...
#
# The copy has the files that git tracks, with their present content; its directory dist is that of the
# checkout. The root has a Python and pip, and this machine's settings for the network. It is removed at the
# end. Must be run as root; needs debootstrap and git. MIRROR in the environment names a package mirror other
# than the one that debootstrap knows for the release.
set -euo pipefail
CDPATH= cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { echo "usage: tools/in_root.sh RELEASE COMMAND [ARGUMENT...]" >&2; exit 2; }
release=$1
shift
[ "$(id -u)" -eq 0 ] || {
    echo "in_root: this user is not root, which debootstrap and chroot need" >&2
    exit 1
}
for program in debootstrap git; do
    command -v $program >/dev/null || {
        echo "in_root: $program is missing: install its package" >&2
        exit 1
    }
done
[ -e "/usr/share/debootstrap/scripts/$release" ] || {
    echo "in_root: RELEASE is $release: expected a release that debootstrap knows, such as bookworm" >&2
    exit 2
}

# The command sees the mounts, this script does not: they are in a namespace that ends with the command.
if [ -z "${IN_ROOT:-}" ]; then
    IN_ROOT=$(mktemp -d --suffix=".$release")
    export IN_ROOT
    trap 'rm -rf --one-file-system "$IN_ROOT"' EXIT # after Ctrl-C, too
    unshare --mount --propagation private tools/in_root.sh "$release" "$@"
    exit
fi

root=$IN_ROOT
chmod 755 "$root"
components=main
case $release in
jammy | noble) components=main,universe ;; # where Ubuntu has python3-venv
esac
echo "in_root: a root of $release"
debootstrap --variant=minbase --components=$components --include=ca-certificates,python3-venv \
    "$release" "$root" ${MIRROR:+"$MIRROR"} >"$root.log" 2>&1 || {
    tail -n 20 "$root.log" >&2
    echo "in_root: debootstrap $release failed" >&2
    rm -f "$root.log"
    exit 1
}
rm -f "$root.log"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root/etc/ssl/certs/ca-certificates.crt"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir -p dist "$root/root/cachew/dist"
git ls-files -z | tar -c --null --ignore-failed-read --files-from=- |
    tar -x --no-same-owner -C "$root/root/cachew"
mount --bind dist "$root/root/cachew/dist"
env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    TERM="${TERM:-dumb}" PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_ROOT_USER_ACTION=ignore \
    $(env | grep -E '^(PIP_INDEX_URL|https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY)=' || true) \
    chroot "$root" /bin/bash -c 'cd /root/cachew && exec "$@"' -- "$@"
