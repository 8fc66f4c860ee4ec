#!/bin/sh
# Installs missing packages on Debian and Ubuntu, as root or with sudo. Elsewhere it lists what is missing.
#
# usage: tools/deps.sh [--list | --no-install] GROUP...
# groups: build, demo, test, test-all, lint, python, coverage
#   --list        print each package and whether it is missing; install nothing
#   --no-install  install nothing; if a required package is missing, list the missing ones and exit with 1
#
# A need is met by its package, or by anything else that does the same: a program on PATH, a library that
# pkg-config finds. Package names differ between releases: the first of a need's packages that apt-get knows
# is installed. An optional need that cannot be met is reported and is no failure: the tests that need it are
# not run.
set -eu
export LC_ALL=C

# A need is a line: groups (with a ? if it is optional)|what is needed|arguments for `found`|packages, the
# best first. NN stands for the version of the package clang.
needs() {
    cat <<'END'
build|gcc 10 or later|program gcc|gcc
build|the headers of the C library|header stdio.h|libc6-dev
build|bash|program bash|bash
build|Meson 0.56 or later|meson 0.56|meson
build|Ninja|program ninja|ninja-build
build|pkg-config|program pkg-config|pkg-config pkgconf
build|Python 3.9 or later|python 3.9|python3
build|jansson 2.13|library jansson 2.13|libjansson-dev
build|xxHash 0.8|library libxxhash 0.8|libxxhash-dev
build|zlib|library zlib 1.2.11|zlib1g-dev
build|libjpeg-turbo 2.0|library libjpeg 2.0|libjpeg-dev
build|libpng 1.6|library libpng 1.6|libpng-dev
build|libwebp 0.6|library libwebp 0.6|libwebp-dev
build|libuv 1.40|library libuv 1.40|libuv1-dev
build|protobuf-c 1.3|library libprotobuf-c 1.3|libprotobuf-c-dev
build|protoc-c|program protoc-c|protobuf-c-compiler
build|SQLite 3.34|library sqlite3 3.34|libsqlite3-dev
build|OpenSSL 1.1.1|library openssl 1.1.1|libssl-dev
build|libmicrohttpd 0.9.72|library libmicrohttpd 0.9.72|libmicrohttpd-dev
build|zstd 1.4|library libzstd 1.4|libzstd-dev
build|xz 5.2|library liblzma 5.2|liblzma-dev
build|bzip2|header bzlib.h|libbz2-dev
build?|audio files (libsndfile)|library sndfile 1.0.28|libsndfile1-dev
build?|sample rates of audio (libsoxr)|library soxr 0.1.3|libsoxr-dev
build?|spectrograms of audio (kissfft)|library kissfft-float 131|libkissfft-dev
build?|LZ4 in Arrow and Parquet files|library liblz4 1.9|liblz4-dev
build?|files of servers (libcurl 7.74)|library libcurl 7.74|libcurl4-openssl-dev
build?|files of servers (expat)|library expat 2.2|libexpat1-dev
demo|12 photographs below /usr/share/backgrounds|photographs 12|mate-backgrounds
demo?|more photographs|photographs 30|ukui-wallpapers
demo?|more photographs|photographs 30|lomiri-wallpapers-16.04
test|cmocka 1.1.5|library cmocka 1.1.5|libcmocka-dev
test-all|clang 11 or later|program clang|clang
test-all|the sanitizers of clang|sanitizers|libclang-rt-NN-dev libclang-common-NN-dev
test lint python|venv and ensurepip for Python|modules venv ensurepip|python3-venv
test lint python|certificates of authorities|certificates|ca-certificates
test|make|program make|make
test|the command openssl|program openssl|openssl
test?|the dashboard in a browser|program chromium-headless-shell chromium|chromium-headless-shell chromium
test?|what is synced to disk|program strace|strace
test?|networks that fail|program ip|iproute2
test?|networks that lose packets|program nft|nftables
test-all?|names in the sanitizers' reports|program llvm-symbolizer|llvm
test-all?|the header as C++|program g++|g++
lint|groff|program groff|groff-base
python|the headers of Python|modules sysconfig:Python.h|python3-dev
coverage|gcovr|program gcovr|gcovr
END
}

all_groups='build demo test test-all lint python coverage'
mode=install groups=
for word in "$@"; do
    case $word in
    --list) mode=list ;;
    --no-install) mode=no-install ;;
    *)
        case " $all_groups " in
        *" $word "*) groups="$groups $word" ;;
        *)
            echo "deps: unknown group $word: expected one of $all_groups" >&2
            exit 2
            ;;
        esac
        ;;
    esac
done
if [ -z "$groups" ]; then
    echo "usage: tools/deps.sh [--list | --no-install] GROUP...   ($all_groups)" >&2
    exit 2
fi

# has WORD LIST...: whether LIST contains WORD.
has() {
    word=$1
    shift
    case " $* " in *" $word "*) return 0 ;; esac
    return 1
}

meson=${MESON:-meson} python=${PYTHON:-python3}
there() { command -v "$1" >/dev/null 2>&1; }
not_older() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; } # HAVE WANTED
compiler() { for compiler in gcc cc clang; do there $compiler && return; done; return 1; }

# found KIND [ARGUMENT...]: whether this machine has what is needed, wherever it comes from.
found() {
    kind=$1
    shift
    case $kind in
    program)
        for program in "$@"; do
            if there "$program"; then return 0; fi
        done
        return 1
        ;;
    library) there pkg-config && pkg-config --exists "$1 >= $2" ;;
    header) compiler && echo "#include <$1>" | "$compiler" -E -x c - >/dev/null 2>&1 ;;
    meson) there "$meson" && not_older "$("$meson" --version 2>/dev/null)" "$1" ;;
    python)
        there "$python" &&
            not_older "$("$python" -c 'import platform; print(platform.python_version())')" "$1"
        ;;
    modules)
        there "$python" && "$python" - "$@" <<'END' 2>/dev/null
import importlib, os, sys
for name in sys.argv[1:]:
    module, _, header = name.partition(":")
    module = importlib.import_module(module)
    if header and not os.path.exists(os.path.join(module.get_paths()["include"], header)):
        sys.exit(1)
END
        ;;
    sanitizers)
        there clang || return 1
        for library in "$(clang -print-resource-dir)"/lib/*/libclang_rt.asan*; do
            if [ -e "$library" ]; then return 0; fi
        done
        return 1
        ;;
    certificates)
        [ -e "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" ] ||
            [ -e /etc/pki/tls/certs/ca-bundle.crt ] ||
            [ -e /etc/ssl/cert.pem ]
        ;;
    photographs)
        photographs=$(find "${BACKGROUNDS:-/usr/share/backgrounds}" -type f \
            \( -name '*.jpg' -o -name '*.jpeg' -o -name '*.png' \) 2>/dev/null | wc -l)
        [ "$photographs" -ge "$1" ]
        ;;
    esac
}

release=$(sed -n 's/^VERSION_CODENAME=//p' "${OS_RELEASE:-/etc/os-release}" 2>/dev/null || true)

# Prints the version of the installed clang, else that of the package clang; without package lists, the
# release's.
clang_version() {
    version=
    if there clang; then
        version=$(clang -dumpversion | cut -d . -f 1)
    elif there apt-cache; then
        version=$(apt-cache depends clang 2>/dev/null |
            sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
    fi
    if [ -z "$version" ]; then
        case $release in
        bullseye) version=11 ;;
        bookworm | jammy) version=14 ;;
        noble) version=18 ;;
        *) version=19 ;;
        esac
    fi
    echo "$version"
}

# guess PACKAGES: prints the package to name where there are no package lists. The oldest releases have the
# last one.
guess() {
    case $release in
    bullseye | jammy) echo "${1##* }" ;;
    *) echo "${1%% *}" ;;
    esac
}

installed=
if there dpkg-query; then
    installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null |
        sed -n 's/ installed$//p' | tr '\n' ' ')
fi

# Prints a line for each need of the groups: STATE|WHAT|PACKAGES.
# STATE is = (met), ! (missing) or ? (missing, optional).
collect() {
    version=
    needs | while IFS='|' read -r need_groups what how packages; do
        state='!' wanted=
        case $need_groups in *\?) state='?' need_groups=${need_groups%\?} ;; esac
        for group in $need_groups; do
            if has "$group" $groups; then wanted=yes; fi
        done
        [ -n "$wanted" ] || continue
        case $packages in
        *NN*)
            [ -n "$version" ] || version=$(clang_version)
            packages=$(echo "$packages" | sed "s/NN/$version/g")
            ;;
        esac
        # Only the first package is known to contain what is needed; another one may be installed without it.
        if has "${packages%% *}" $installed || found $how; then state='='; fi
        echo "$state|$what|$packages"
    done
}

# candidates LINES: prints the packages in lines of `collect` that apt-get can install.
candidates() {
    there apt-cache || return 0
    apt-cache policy $(echo "$1" | cut -d '|' -f 3) 2>/dev/null |
        awk '/^[^ ]/ { name = $1; sub(/:$/, "", name) }
             $1 == "Candidate:" && $2 != "(none)" { print name }' | tr '\n' ' '
}

# choose PACKAGES LIST: prints the first of the packages that LIST contains; nothing if there is none.
choose() {
    for package in $1; do
        if has "$package" $2; then
            echo "$package"
            return
        fi
    done
}

joined() { sort -u | paste -s -d , - | sed 's/,/, /g'; }

collected=$(collect)
if [ "$mode" = list ]; then
    known=$(candidates "$collected")
    echo "$collected" | while IFS='|' read -r state what packages; do
        chosen=$(choose "$packages" "$installed $known")
        case $state in
        =) status=present ;;
        !) status=missing ;;
        *) status='missing, optional' ;;
        esac
        printf '%-28s %s (%s)\n' "${chosen:-$(guess "$packages")}" "$status" "$what"
    done
    exit 0
fi
lacking=$(echo "$collected" | grep -v '^=' || true)
required=$(echo "$lacking" | grep '^!' || true)
[ -n "$lacking" ] || exit 0

# Sets `packages` to the packages to install for required needs and `extra` to those for optional needs;
# `unknown` to the required packages that apt-get does not know, and `absent` to the optional needs without a
# known package.
resolve() {
    packages='' extra='' unknown='' absent=''
    known=$(candidates "$lacking")
    while IFS='|' read -r state what names; do
        chosen=$(choose "$names" "$known")
        case $state$chosen in
        !) unknown="$unknown $(guess "$names")" ;;
        !*) has "$chosen" $packages || packages="$packages $chosen" ;;
        \?) absent="$absent$what
" ;;
        *) extra="$extra $chosen" ;;
        esac
    done <<END
$lacking
END
}
tell_absent() { [ -z "$1" ] || echo "deps: optional and missing: $(printf %s "$1" | joined)" >&2; }

# stop REASON: ends without installing. That is a failure only where something required is missing.
stop() {
    tell_absent "$(echo "$lacking" | sed -n 's/^?|\([^|]*\)|.*/\1/p')"
    [ -n "$required" ] || exit 0
    if there apt-get; then
        echo "deps: packages are missing, and $1. Install them as root:" >&2
        echo "    apt-get update && apt-get install --no-install-recommends$packages$unknown" >&2
    else
        echo "deps: $1. Install what is missing: $(echo "$required" | cut -d '|' -f 2 | joined)" >&2
    fi
    exit 1
}

there apt-get || stop 'this system has no apt-get'
resolve
[ "$mode" = install ] || stop '--no-install forbids to install them'
as_root=
if [ "$(id -u)" -ne 0 ]; then
    as_root=sudo
    there sudo || stop 'this user is not root, and there is no sudo'
    [ -z "$packages$extra$unknown" ] || sudo true || stop 'sudo does not let this user install them'
fi

apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"
}
updated=
update() {
    echo "deps: apt-get update"
    apt update || echo "deps: apt-get update failed; the package lists stay as they are" >&2
    updated=yes
    resolve
}
install() { # prints what is installed and how long it took; sets `errors` to what apt-get wrote to stderr
    began=$(date +%s)
    (as_root= && apt install --no-install-recommends --print-uris $packages $extra) 2>/dev/null |
        awk -v names="$packages$extra" '/^\047/ { n++; bytes += $3 } END {
            printf "deps: installing%s (%d packages with dependencies, %.0f MB to fetch)\n",
                names, n, bytes / 1e6 }'
    errors=$(apt install -y --no-install-recommends $packages $extra 2>&1 >/dev/null) || return 1
    echo "deps: installed in $(($(date +%s) - began)) s"
}

# Fetches the package lists where a package is unknown, or could not be installed: it may have a new address.
[ -z "$unknown" ] || update
[ -z "$unknown" ] ||
    stop "apt-get does not know$unknown (the package sources may lack a component: universe on Ubuntu)"
tell_absent "$absent"
[ -n "$packages$extra" ] || exit 0
if install; then exit 0; fi
if [ -z "$updated" ]; then
    update
    if install; then exit 0; fi
fi
printf '%s\n' "$errors" >&2
if [ -n "$packages" ] && [ -n "$extra" ]; then # an optional package may be the one that fails
    extra=''
    if install; then required=''; fi
fi
stop 'apt-get failed'
