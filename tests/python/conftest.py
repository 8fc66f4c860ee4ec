"""The installed package `cachew`, and the command that came with it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# What starts this in the background may have it ignore SIGINT, and so its children, which are to be
# interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(Path(__file__).parent))
from deadlines import HANG_S, PATIENT  # noqa: E402
from waiting import open_patiently  # noqa: E402

COMMAND = str(Path(sys.executable).parent / "cachew")


class Up:
    """`cachew up` with two workers."""

    def __init__(self, *options, env=None):
        self.process = subprocess.Popen(
            [
                COMMAND,
                "up",
                "--workers",
                "2",
                "--listen",
                "127.0.0.1:0",
                "--end-with-stdin",
                "--drain-timeout",
                "5",
                *options,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        self.ready = json.loads(self.process.stdout.readline())["ready"]
        self.address = self.ready["address"]

    def pids(self):
        return [self.ready["up"], self.ready["pid"], *(w["pid"] for w in self.ready["workers"])]

    def ask(self, what):
        words = [COMMAND, what, "--service", self.address, "--wait", str(HANG_S), "--json"]
        return json.loads(subprocess.run(words, check=True, capture_output=True, timeout=HANG_S).stdout)

    def job(self, name):
        return next((j for j in self.ask("jobs") if j["name"] == name), None)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(HANG_S)


@pytest.fixture(scope="session", autouse=True)
def own_index_dir(tmp_path_factory):
    os.environ["CACHEW_INDEX_DIR"] = str(tmp_path_factory.mktemp("index"))


@pytest.fixture(scope="session", autouse=True)
def patient():
    os.environ.update(PATIENT)
    open_patiently()


@pytest.fixture
def script(tmp_path):
    """Runs Python code in a process of its own; a run that hangs is killed and fails."""

    def run(code, *arguments, timeout=HANG_S, **options):
        file = tmp_path / "script.py"
        file.write_text(code)
        return subprocess.run(
            [sys.executable, file, *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout,
            **options,
        )

    return run


@pytest.fixture(scope="session")
def command():
    assert shutil.which(COMMAND), f"{COMMAND} is not there: the package is not installed"
    return COMMAND


@pytest.fixture(scope="module")
def service():
    up = Up()
    yield up
    assert up.end() == 0


@pytest.fixture(scope="module")
def divided():
    """Whose ranges end anywhere, so that batches lie in several; of a build without crash points, as
    elsewhere.
    """
    up = Up(env={"CACHEW_MUTATE": "cut"})
    yield up
    assert up.end() == 0


@pytest.fixture(scope="module")
def one_worker():
    up = Up("--workers", "1")
    yield up
    assert up.end() == 0


@pytest.fixture
def own_service():
    """One that may be broken."""
    up = Up()
    yield up
    if up.process.poll() is None:
        up.end()


@pytest.fixture
def impatient_service():
    """One that soon takes for dead what stands still."""
    up = Up(env={"CACHEW_SILENCE_S": "3"})
    yield up
    up.end()
