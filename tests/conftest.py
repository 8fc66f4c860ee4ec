"""Data that several test files use, made once for all processes of a run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from daemons import Daemons  # noqa: E402
from example_data import ROOT, make_photos, once  # noqa: E402


@pytest.fixture(scope="session")
def shared_dir(tmp_path_factory):
    """One directory for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    return base.parent / "shared" if "PYTEST_XDIST_WORKER" in os.environ else base / "shared"


@pytest.fixture(scope="session")
def examples(shared_dir):
    """examples/pipelines with small data where they look for it."""
    tree = once(shared_dir, "tree", lambda path: (path.mkdir(), make_photos(path / "build"),
                                                  shutil.copytree(ROOT / "examples" / "pipelines", path / "examples" / "pipelines")))
    return tree / "examples" / "pipelines"


@pytest.fixture(scope="session")
def records(shared_dir):
    """The standard TFRecord files of make_data.py, the damaged ones too."""
    return once(shared_dir, "records", lambda path: subprocess.run(
        [sys.executable, HERE / "make_data.py", path, "--records", "120"], check=True))


@pytest.fixture
def own_index_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHEW_INDEX_DIR", str(tmp_path / "index"))


@pytest.fixture
def daemons(tmp_path):
    started = Daemons(tmp_path)
    yield started
    started.end()
