"""The installed package `cachew`, and the command that came with it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# What starts this in the background may have it ignore SIGINT, and so its children, which are to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(Path(__file__).parent))
COMMAND = str(Path(sys.executable).parent / "cachew")


@pytest.fixture(scope="session", autouse=True)
def own_index_dir(tmp_path_factory):
    os.environ["CACHEW_INDEX_DIR"] = str(tmp_path_factory.mktemp("index"))


@pytest.fixture
def script(tmp_path):
    """Runs Python code in a process of its own; a run that takes long is killed and fails."""

    def run(code, *arguments, timeout=60, **options):
        file = tmp_path / "script.py"
        file.write_text(code)
        return subprocess.run([sys.executable, file, *map(str, arguments)], check=False, capture_output=True, text=True, timeout=timeout, **options)

    return run


@pytest.fixture(scope="session")
def command():
    assert shutil.which(COMMAND), f"{COMMAND} is not there: the package is not installed"
    return COMMAND
