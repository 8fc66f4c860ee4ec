"""Where the components of batches lie: each at a multiple of 64 bytes, whoever computed, joined or sent the
batch.
"""

import json
import subprocess

import pytest
from conftest import COMMAND, Up
from service_runs import doubled

from cachew import Bytes, Dataset

ODD = Dataset.synthetic(count=1500, shape=(7,), dtype="uint8").assign(
    n="int32(min(data))", half="float16(max(data)) / 2"
)
PIPELINES = {
    "counted": ODD.shuffle().batch(37),
    "elements": ODD.shuffle().take(150),
    "filter": ODD.filter("n % 3 != 0").shuffle().batch(101),
    "buckets": ODD.shuffle().bucket_by_length("n", [10, 40], [13, 17, 101]),
    "wide": Dataset.synthetic(count=600, shape=(1001,), dtype="uint8").cast("data", "float64").batch(16),
    "bytes": Dataset.range(1500).map(doubled).filter("value % 3 != 0").batch(101),
}


@pytest.fixture(scope="module")
def packed():
    """Whose payloads are compressed where they become smaller; of a build without crash points, as
    elsewhere.
    """
    up = Up(env={"CACHEW_MUTATE": "packed"})
    yield up
    assert up.end() == 0


def has_crash_points():
    told = subprocess.run(
        [COMMAND, "doctor", "--crash-points", "--json"], check=True, capture_output=True, text=True
    ).stdout
    return bool(json.loads(told)["crash_points"])


MANY = 100  # epochs: the iterator is closed before they are over, and has its links until then


def check(it, ds):
    """Of the first epoch."""
    for batch, same in zip(it, ds.iterator(seed=3)):
        assert batch.hash() == same.hash()
        for name, component in batch.items():
            array = component.data if isinstance(component, Bytes) else component
            assert array.__array_interface__["data"][0] % 64 == 0, (batch, name)


@pytest.mark.parametrize("name", PIPELINES)
def test_here(name):
    ds = PIPELINES[name]
    check(ds.iterator(seed=3, threads=4), ds)


@pytest.mark.parametrize("transport", ["shm", "unix", "tcp"])
@pytest.mark.parametrize("name", PIPELINES)
def test_of_a_service(service, name, transport):
    """The first ranges have 64 positions, so that the client joins batches of 101 from parts."""
    ds = PIPELINES[name]
    with ds.distribute(service.address, seed=3, epochs=MANY, transport=transport) as it:
        check(it, ds)
        assert {link["transport"] for link in it.profile()["links"]} == {transport}


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_of_batches_that_several_workers_compute(divided, transport):
    check(PIPELINES["counted"].distribute(divided.address, seed=3, transport=transport), PIPELINES["counted"])


@pytest.mark.parametrize("name", PIPELINES)
def test_of_compressed_batches(packed, name):
    ds = PIPELINES[name]
    with ds.distribute(packed.address, seed=3, epochs=MANY, transport="tcp") as it:
        check(it, ds)
        sent, wire = (sum(link[of] for link in it.profile()["links"]) for of in ("bytes", "wire_bytes"))
    assert name != "wide" or not has_crash_points() or wire < 0.8 * sent
