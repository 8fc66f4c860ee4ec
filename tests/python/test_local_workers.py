"""Workers that a process starts on its host for a service: `distribute(local_workers=)`."""

import subprocess
import sys

import pytest

import cachew
from cachew import Dataset

DATASET = Dataset.range(90).shuffle().batch(8)

PROGRAM = """
import sys, cachew
ds = cachew.Dataset.range(90).shuffle().batch(8)
with ds.distribute(sys.argv[1], local_workers=1, cut="auto") as there:
    assert [b.hash() for b in there] == [b.hash() for b in ds.iterator()]
try:
    ds.distribute(sys.argv[1], local_workers=2)
except cachew.OptionError as error:
    assert "expected 1, with which this process already started" in str(error), error
else:
    raise AssertionError
"""


def test_a_process_brings_workers(daemons) -> None:
    """They end with it: the dispatcher then has none."""
    dispatcher, _ = daemons.service(workers=0)
    subprocess.run([sys.executable, "-c", PROGRAM, dispatcher.address], check=True, timeout=600)
    with pytest.raises(cachew.DeadlineError, match="no worker is connected"):
        DATASET.distribute(dispatcher.address, open_timeout_s=1, local_workers=0)


@pytest.mark.parametrize("number", [-1, 257, "all", 1.5, True])
def test_wrong_numbers(number: object) -> None:
    with pytest.raises(cachew.OptionError, match="local_workers is") as raised:
        DATASET.distribute("127.0.0.1:9", local_workers=number)  # type: ignore[arg-type]
    assert raised.value.attribute == "local_workers"


def test_the_local_service_has_no_others() -> None:
    with pytest.raises(cachew.OptionError, match="workers="):
        DATASET.distribute("local", local_workers=1)


def test_a_service_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHEW_START_S", "0.1")
    with pytest.raises(cachew.ServiceError, match="local workers could not be started"):
        DATASET.distribute("unix:/nowhere/socket", local_workers=1)
