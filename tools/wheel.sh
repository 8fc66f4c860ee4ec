#!/bin/bash
# Makes dist/cachew-*.whl: the Python package, the command and the native libraries in one file, which pip
# installs without a compiler. It works with each Python from 3.10 on, on each Linux with this machine's C
# library or a later one. `make wheel` runs this script in a root of Debian 11, whose C library is old.
set -euo pipefail
CDPATH= cd "$(dirname "$0")/.."
export PYTHON=${PYTHON:-python3}
tools/deps.sh build
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Debian 11 has an older Python: builds the one of Debian 12 from its source.
build_python() {
    echo "wheel: $PYTHON is older than 3.10; building Python 3.11"
    sed -n 's/^deb \([^ ]*\) bullseye main.*/deb-src \1 bookworm main/p' /etc/apt/sources.list \
        >/etc/apt/sources.list.d/python-source.list
    apt-get -qq update
    apt-get -qq install --no-install-recommends -y make libffi-dev >/dev/null
    bash -e >"$work/python.log" 2>&1 <<END || { tail -n 30 "$work/python.log" >&2; exit 1; }
cd "$work"
apt-get -qq -o APT::Sandbox::User=root source --download-only python3.11
mkdir source
tar -x --strip-components=1 -C source -f python3.11_*.orig.tar.*
cd source
# OPT: it is built quickly; nothing of it gets into the wheel
./configure --prefix=/opt/python --with-ensurepip=install OPT="-DNDEBUG -O1"
make -j "$(nproc)"
make install
END
    PYTHON=/opt/python/bin/python3
}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || build_python
tools/deps.sh python
venv=$PWD/$(tools/venv.sh wheel tools/wheel-requirements.txt)

# In a build directory of its own: nothing that was built before gets in.
PATH=$venv/bin:$PATH "$venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation -w "$work/linux" . >&2
# Its tag names the Python that built it; the extension module uses the limited API of 3.10.
"$venv/bin/wheel" tags --remove --python-tag cp310 "$work"/linux/*.whl >/dev/null
rm -f dist/cachew-*.whl
PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair --wheel-dir dist "$work"/linux/*.whl >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
wheel=$(echo dist/cachew-*.whl)
case $wheel in
*-cp310-abi3-manylinux*) ;;
*) echo "wheel: $wheel: expected a file for all versions of Python from 3.10" >&2; exit 1 ;;
esac
echo "wheel: $wheel, $(stat -c %s "$wheel") bytes"
tools/try_wheel.sh "$wheel"
