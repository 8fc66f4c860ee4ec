"""tools/deps.sh on machines that are made up: PATH has nothing but the tools it uses, and an apt-get that
knows a release's package names.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from deadlines import HANG_S

ROOT = Path(__file__).resolve().parents[1]
GROUPS = ("build", "demo", "test", "test-all", "lint", "python", "coverage")
TOOLS = ("sh", "awk", "cat", "cut", "date", "env", "find", "grep", "head", "paste", "sed", "sort", "tr", "wc")

# What all of the releases have under the same name.
EVERYWHERE = """gcc libc6-dev bash make meson ninja-build pkg-config python3 libjansson-dev
    libxxhash-dev zlib1g-dev libjpeg-dev libwebp-dev libuv1-dev libprotobuf-c-dev
    protobuf-c-compiler libsqlite3-dev libssl-dev libmicrohttpd-dev libzstd-dev
    liblzma-dev libbz2-dev libsndfile1-dev libsoxr-dev libkissfft-dev
    liblz4-dev libcurl4-openssl-dev libexpat1-dev mate-backgrounds
    ukui-wallpapers libcmocka-dev clang python3-venv ca-certificates openssl strace iproute2
    nftables llvm g++ groff-base python3-dev gcovr libpng-dev""".split()


@dataclass
class Release:
    codename: str
    clang: int
    also: str  # names that not all releases have
    browser: str
    sanitizers: str
    lomiri: bool = True


RELEASES = {
    "Debian 11": Release(
        "bullseye",
        11,
        "chromium libclang-common-11-dev",
        "chromium",
        "libclang-common-11-dev",
        lomiri=False,
    ),
    "Debian 12": Release(
        "bookworm",
        14,
        "chromium chromium-headless-shell libclang-common-14-dev libclang-rt-14-dev lomiri-wallpapers-16.04",
        "chromium-headless-shell",
        "libclang-rt-14-dev",
    ),
    "Debian 13": Release(
        "trixie",
        19,
        "chromium chromium-headless-shell libclang-common-19-dev libclang-rt-19-dev lomiri-wallpapers-16.04",
        "chromium-headless-shell",
        "libclang-rt-19-dev",
    ),
    "Ubuntu 22.04": Release(
        "jammy",
        14,
        "libclang-common-14-dev lomiri-wallpapers-16.04",
        "",
        "libclang-common-14-dev",
    ),
    "Ubuntu 24.04": Release(
        "noble",
        18,
        "libclang-common-18-dev libclang-rt-18-dev lomiri-wallpapers-16.04",
        "",
        "libclang-rt-18-dev",
    ),
}

DPKG_QUERY = """while read -r name; do echo "$name installed"; done <"$MACHINE/installed"
echo "removed-one config-files"
"""
APT_CACHE = """case $1 in
policy)
    shift
    for name in "$@"; do
        if grep -qxF -e "$name" "$MACHINE/lists"; then
            printf '%s:\\n  Installed: (none)\\n  Candidate: 1.0-1\\n  Version table:\\n     1.0-1 500\\n' \\
                "$name"
        elif [ "$name" = chromium ]; then # other packages name it
            printf '%s:\\n  Installed: (none)\\n  Candidate: (none)\\n  Version table:\\n' "$name"
        fi
    done
    ;;
depends)
    grep -qxF "$2" "$MACHINE/lists" &&
        printf '%s\\n  Depends: clang-%s\\n  Breaks: <clang-3.2>\\n' "$2" "$(cat "$MACHINE/clang")"
    ;;
esac
"""
APT_GET = """echo "$@" >>"$MACHINE/log"
if [ -e "$MACHINE/broken" ]; then # it names the package that cannot be fetched; * is all
    case " $* " in *" "$(cat "$MACHINE/broken")" "*) echo "E: nothing can be fetched" >&2 && exit 100 ;; esac
fi
while [ $# -gt 0 ]; do
    case $1 in
    -o) shift ;;
    update) cat "$MACHINE/archive" >"$MACHINE/lists" ;;
    --print-uris) uris=yes ;;
    install | -*) ;;
    *)
        grep -qxF -e "$1" "$MACHINE/lists" || { echo "E: Unable to locate package $1" >&2; exit 100; }
        if [ -n "${uris-}" ]; then
            echo "'http://deb.example/$1.deb' $1.deb 2000000 SHA256:0"
        else
            [ "$(id -u)" = 0 ] || { echo "E: are you root?" >&2; exit 100; }
            echo "$1" >>"$MACHINE/installed"
        fi
        ;;
    esac
    shift
done
"""
ID = """cat "$MACHINE/uid"
"""
SUDO = """echo "sudo $1" >>"$MACHINE/log"
echo 0 >"$MACHINE/uid"
"$@"
status=$?
echo 1000 >"$MACHINE/uid"
exit $status
"""


class Machine:
    def __init__(self, directory, release=None, uid=0, lists=True, sudo=False):
        self.directory, self.bin = directory, directory / "bin"
        self.bin.mkdir(parents=True)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.program("id", ID)
        self.write("uid", f"{uid}\n")
        self.write("log", "")
        self.write("os-release", f"VERSION_CODENAME={release.codename if release else 'other'}\n")
        if release:
            names = "".join(f"{name}\n" for name in [*EVERYWHERE, *release.also.split()])
            self.write("archive", names)
            self.write("lists", names if lists else "")
            self.write("installed", "")
            self.write("clang", f"{release.clang}\n")
            self.program("dpkg-query", DPKG_QUERY)
            self.program("apt-cache", APT_CACHE)
            self.program("apt-get", APT_GET)
        if sudo:
            self.program("sudo", SUDO)

    def write(self, name, text):
        (self.directory / name).write_text(text)

    def read(self, name):
        return (self.directory / name).read_text().split("\n")[:-1]

    def program(self, name, text="exit 0\n"):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)

    def deps(self, *words):
        nowhere = str(self.directory / "nowhere")
        env = {
            "PATH": str(self.bin),
            "MACHINE": str(self.directory),
            "OS_RELEASE": str(self.directory / "os-release"),
            "SSL_CERT_FILE": nowhere,
            "BACKGROUNDS": nowhere,
            "TMPDIR": str(self.directory),
        }
        return subprocess.run(
            [shutil.which("dash") or "/bin/sh", ROOT / "tools" / "deps.sh", *words],
            env=env,
            check=False,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )


@pytest.fixture(params=RELEASES)
def release(request):
    return RELEASES[request.param]


def wanted(release):
    """What all groups together need on a release."""
    names = {*EVERYWHERE, "libpng-dev", release.sanitizers}
    names |= {release.browser} if release.browser else set()
    names |= {"lomiri-wallpapers-16.04"} if release.lomiri else set()
    return sorted(names)


def test_all_groups_are_installed(tmp_path, release):
    machine = Machine(tmp_path, release)
    done = machine.deps(*GROUPS)
    assert done.returncode == 0, done.stderr
    assert sorted(machine.read("installed")) == wanted(release)
    assert (
        f"({len(wanted(release))} packages with dependencies, {2 * len(wanted(release))} MB to fetch)"
        in done.stdout
    )
    assert not any("update" in line for line in machine.read("log"))


def test_the_second_run_has_nothing_to_do(tmp_path, release):
    machine = Machine(tmp_path, release)
    assert machine.deps(*GROUPS).returncode == 0
    # What programs and libraries these packages bring; pkg-config and python3 say yes to whatever they are
    # asked.
    for program in ("pkg-config", "python3", *release.browser.split()):
        machine.program(program)
    machine.program(
        "clang",
        f"if [ $1 = -dumpversion ]; then echo {release.clang}.0.1; else echo {tmp_path}/resources; fi\n",
    )
    (tmp_path / "resources" / "lib" / "linux").mkdir(parents=True)
    (tmp_path / "resources" / "lib" / "linux" / "libclang_rt.asan-x86_64.a").touch()
    machine.write("log", "")
    for words in ((), ("--no-install",)):
        done = machine.deps(*words, *GROUPS)
        assert (done.returncode, done.stdout) == (0, "")
        absent = [] if release.browser else ["the dashboard in a browser"]
        absent += [] if release.lomiri else ["more photographs"]
        assert done.stderr == (
            f"deps: optional and missing: {', '.join(sorted(absent))}\n" if absent else ""
        ), words
    assert machine.read("log") == []


def test_lists_are_fetched_where_there_are_none(tmp_path, release):
    machine = Machine(tmp_path, release, lists=False)
    done = machine.deps("build", "demo", "test", "test-all")
    assert done.returncode == 0, done.stderr
    assert [line.split()[-1] for line in machine.read("log")][0] == "update"
    assert {"libpng-dev", release.sanitizers} <= set(machine.read("installed"))


def test_names_without_lists_are_the_release_s(tmp_path, release):
    """Where nothing may be fetched, the list has names that can be typed."""
    done = Machine(tmp_path, release, lists=False).deps("--no-install", "build", "test", "test-all")
    assert done.returncode == 1
    assert {"libpng-dev", release.sanitizers, "libjpeg-dev"} <= set(done.stderr.split())


def test_old_lists_are_fetched_again(tmp_path):
    machine = Machine(tmp_path, RELEASES["Debian 12"])
    known = machine.read("lists")
    machine.write("lists", "".join(f"{name}\n" for name in known if name != "libuv1-dev"))
    assert machine.deps("build").returncode == 0
    assert "libuv1-dev" in machine.read("installed")


BY_HAND = "    apt-get update && apt-get install --no-install-recommends "


def test_what_apt_get_says_is_shown(tmp_path):
    machine = Machine(tmp_path, RELEASES["Debian 12"])
    machine.write("broken", "*")
    done = machine.deps("coverage")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-3:] == [
        "E: nothing can be fetched",
        "deps: packages are missing, and apt-get failed. Install them as root:",
        f"{BY_HAND}gcovr",
    ]


def test_an_optional_package_that_cannot_be_installed_is_no_failure(tmp_path):
    """The tests that need it are not run; what is required is installed nonetheless."""
    machine = Machine(tmp_path, RELEASES["Debian 12"])
    machine.write("broken", "chromium-headless-shell")
    done = machine.deps("test", "coverage")
    assert done.returncode == 0, done.stderr
    assert {"libcmocka-dev", "gcovr"} <= set(machine.read("installed"))
    assert "E: nothing can be fetched" in done.stderr and "the dashboard in a browser" in done.stderr


def test_nothing_is_missing_but_optional_packages_and_the_network(tmp_path):
    machine = Machine(tmp_path, RELEASES["Debian 12"])
    for name in ("pkg-config", "openssl", "python3", "make"):
        machine.program(name)
    machine.write("installed", "ca-certificates\n")
    machine.write("broken", "*")
    done = machine.deps("test")
    assert done.returncode == 0, done.stderr
    assert "E: nothing can be fetched" in done.stderr and "deps: optional and missing: " in done.stderr


def test_a_package_that_is_nowhere(tmp_path):
    machine = Machine(tmp_path, RELEASES["Ubuntu 22.04"])
    names = "".join(f"{name}\n" for name in machine.read("lists") if name != "meson")
    machine.write("lists", names)
    machine.write("archive", names)
    done = machine.deps("build")
    assert done.returncode == 1
    assert "apt-get does not know meson (" in done.stderr
    assert machine.read("installed") == []


def test_no_install(tmp_path, release):
    machine = Machine(tmp_path, release)
    done = machine.deps("--no-install", "build", "coverage")
    assert done.returncode == 1 and done.stdout == ""
    optional, why, line = done.stderr.splitlines()
    assert optional.startswith(
        "deps: optional and missing: LZ4 in Arrow and Parquet files, audio files (libsndfile), "
    )
    assert "files of servers (expat), files of servers (libcurl 7.74)" in optional
    assert (
        why == "deps: packages are missing, and --no-install forbids to install them. Install them as root:"
    )
    assert line.startswith(f"{BY_HAND}gcc libc6-dev bash ")
    assert line.endswith(" gcovr") and "libpng-dev" in line.split()
    assert machine.read("log") == [] and machine.read("installed") == []


def test_neither_root_nor_sudo(tmp_path):
    machine = Machine(tmp_path, RELEASES["Debian 12"], uid=1000)
    done = machine.deps("build")
    assert done.returncode == 1 and done.stdout == ""
    _, why, line = done.stderr.splitlines()
    assert "this user is not root, and there is no sudo" in why and line.startswith(f"{BY_HAND}gcc ")
    assert machine.read("log") == []


def test_with_sudo(tmp_path):
    machine = Machine(tmp_path, RELEASES["Debian 13"], uid=1000, sudo=True)
    assert machine.deps("coverage").returncode == 0
    assert machine.read("installed") == ["gcovr"]


def test_a_user_to_whom_sudo_says_no_is_asked_once(tmp_path):
    machine = Machine(tmp_path, RELEASES["Debian 12"], uid=1000)
    machine.program(
        "sudo", 'echo sudo >>"$MACHINE/log"\necho "user is not in the sudoers file" >&2\nexit 1\n'
    )
    done = machine.deps("coverage")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "user is not in the sudoers file",
        "deps: packages are missing, and sudo does not let this user install them. Install them as root:",
        f"{BY_HAND}gcovr",
    ]
    assert machine.read("log") == ["sudo"]


def test_what_is_there_without_packages_counts(tmp_path):
    """A user without sudo, and what is needed from elsewhere: nothing is said."""
    machine = Machine(tmp_path, RELEASES["Debian 12"], uid=1000)
    for program in ("gcc", "bash", "ninja", "pkg-config", "protoc-c"):
        machine.program(program)
    machine.program("python3", "echo 3.9.2\n")
    machine.program("meson", "echo 0.56.2\n")
    done = machine.deps("build")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    machine.program("meson", "echo 0.55.3\n")
    assert machine.deps("build").stderr.split()[-2:] == ["--no-install-recommends", "meson"]


def test_optional_needs_do_not_stop_a_user(tmp_path):
    machine = Machine(tmp_path, RELEASES["Debian 12"], uid=1000)
    for program in ("pkg-config", "clang", "openssl", "python3", "make"):
        machine.program(program)
    machine.write("installed", "libclang-rt-14-dev\nca-certificates\n")
    machine.program("clang", "echo 14.0.6\n")
    done = machine.deps("test", "test-all")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("deps: optional and missing: ") and "the dashboard in a browser" in line


def test_not_debian(tmp_path):
    machine = Machine(tmp_path)
    done = machine.deps("build", "test", "test-all")
    assert done.returncode == 1 and done.stdout == ""
    required = done.stderr.splitlines()[-1]
    assert required.startswith("deps: this system has no apt-get. Install what is missing: ")
    assert "Meson 0.56 or later" in required and "libuv 1.40" in required and "cmocka 1.1.5" in required
    for program in ("gcc", "bash", "ninja", "pkg-config", "protoc-c"):
        machine.program(program)
    machine.program("python3", "echo 3.13.1\n")
    machine.program("meson", "echo 1.10.0\n")
    done = machine.deps("build")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_list(tmp_path, release):
    machine = Machine(tmp_path, release, uid=1000)
    machine.write("installed", "libuv1-dev\n")
    done = machine.deps("--list", "build", "demo")
    assert done.returncode == 0 and done.stderr == ""
    said = {line.split()[0]: line.split(None, 1)[1] for line in done.stdout.splitlines()}
    assert said["libuv1-dev"] == "present (libuv 1.40)"
    assert said["libpng-dev"] == "missing (libpng 1.6)"
    assert said["ukui-wallpapers"] == "missing, optional (more photographs)"
    assert machine.read("log") == []


def test_wrong_words(tmp_path):
    machine = Machine(tmp_path, RELEASES["Debian 12"])
    assert "unknown group builds" in machine.deps("builds").stderr
    assert machine.deps("builds").returncode == 2 and machine.deps().returncode == 2


def test_this_script_is_for_any_shell():
    text = (ROOT / "tools" / "deps.sh").read_text()
    assert text.startswith("#!/bin/sh\n") and os.access(ROOT / "tools" / "deps.sh", os.X_OK)
