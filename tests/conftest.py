"""What all test files share: the size of the run, and data that is made once for all processes of a run.

CACHEW_TEST_SIZE=sample keeps SAMPLE of the parameters of each test, drawn by CACHEW_TEST_SEED. Of a test
marked `large` it keeps one (`keep` says otherwise); if it has no parameters, none.
CACHEW_TEST_SIZE=all runs everything; a test that is skipped because a Python package is absent fails then."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from daemons import Daemons  # noqa: E402
from deadlines import PATIENT  # noqa: E402
from example_data import ROOT, make_photos, once  # noqa: E402

SIZE = os.environ.get("CACHEW_TEST_SIZE", "all")
SAMPLE = 2


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "large(keep=1): takes long; the sample has `keep` of its parameters, or none if it has none",
    )


def drawn(item):
    """A number that is as good as random, the same in all processes."""
    return hashlib.sha256(f"{os.environ.get('CACHEW_TEST_SEED', '1')} {item.nodeid}".encode()).digest()


def sample_of(group):
    """How many of a test's items the sample has."""
    mark = group[0].get_closest_marker("large")
    if mark:
        return mark.kwargs.get("keep", 1) if hasattr(group[0], "callspec") else 0
    return SAMPLE


def pytest_collection_modifyitems(config, items):
    if SIZE != "sample" or any("::" in argument for argument in config.args):  # a test that is named runs
        return
    of_function = {}
    for item in items:
        of_function.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for group in of_function.values() for item in sorted(group, key=drawn)[: sample_of(group)]}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if (
        os.environ.get("CACHEW_TEST_SIZE") == "all"
        and report.skipped
        and "could not import" in str(report.longrepr)
    ):
        report.outcome = "failed"


@pytest.fixture(scope="session")
def shared_dir(tmp_path_factory):
    """One directory for all processes of a test run, and for all steps of ./test."""
    if "CACHEW_TEST_DATA" in os.environ:
        return Path(os.environ["CACHEW_TEST_DATA"])
    base = tmp_path_factory.getbasetemp()
    return base.parent / "shared" if "PYTEST_XDIST_WORKER" in os.environ else base / "shared"


@pytest.fixture(scope="session")
def examples(shared_dir):
    """examples/pipelines with small data where they look for it."""
    tree = once(
        shared_dir,
        "tree",
        lambda path: (
            path.mkdir(),
            make_photos(path / "build"),
            shutil.copytree(ROOT / "examples" / "pipelines", path / "examples" / "pipelines"),
        ),
    )
    return tree / "examples" / "pipelines"


@pytest.fixture(scope="session")
def records(shared_dir):
    """The standard TFRecord files of make_data.py, the damaged ones too."""
    return once(
        shared_dir,
        "records",
        lambda path: subprocess.run(
            [sys.executable, HERE / "make_data.py", path, "--records", "120"], check=True
        ),
    )


@pytest.fixture
def own_index_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHEW_INDEX_DIR", str(tmp_path / "index"))


@pytest.fixture
def patience(monkeypatch):
    """Commands that a test runs by itself do not give a process up because it is slow."""
    for name, value in PATIENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def daemons(tmp_path):
    directory = tmp_path / "daemons"
    directory.mkdir()
    started = Daemons(directory)
    yield started
    started.end()


@pytest.fixture
def disk_size():
    """Of small_disk: a test file may have a fixture of its own."""
    return "1m"


@pytest.fixture
def small_disk(tmp_path, disk_size):
    """A file system of `disk_size`."""
    directory = tmp_path / "small"
    directory.mkdir()
    if (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={disk_size}", "none", directory],
            check=False,
            capture_output=True,
        ).returncode
        != 0
    ):
        pytest.skip("file systems can't be mounted here")
    yield directory
    subprocess.run(["umount", directory], check=True)
