"""Fixtures of tests of the service."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
pytest.register_assert_rewrite("workbench", "oracle")  # a failed assertion there has its values, as in tests
import soak  # noqa: E402
from deadlines import SILENCE_S  # noqa: E402
from workbench import Bench  # noqa: E402


@pytest.fixture(autouse=True)
def patient(patience):
    """Of all tests here."""


@pytest.fixture
def bench(tmp_path):
    b = Bench(tmp_path)
    yield b
    b.cluster.close()


@pytest.fixture
def impatient(tmp_path):
    """Who is silent is given up soon, as a service does by itself: what is only slow may be, too."""
    b = Bench(tmp_path, silence_s=SILENCE_S)
    yield b
    b.cluster.close()


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return soak.make_data(tmp_path_factory.mktemp("records") / "data")
