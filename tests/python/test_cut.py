"""Where the operators of a distributed dataset run: `distribute(cut=)`."""

import numpy as np
import pytest

import cachew
from cachew import Dataset


def jittered(element: dict, rng: np.random.Generator) -> dict:
    return {"value": element["value"], "noise": rng.integers(1000)}


def scaled(batch: dict) -> dict:
    return {"value": batch["value"] * 2.5, "noise": batch["noise"]}


DATASET = (
    Dataset.range(90)
    .shuffle()
    .map(jittered, outputs={"value": "int64", "noise": "int64"})
    .batch(8)
    .map_batches(scaled, outputs={"value": "float64", "noise": "int64"})
)


@pytest.mark.parametrize("cut", ["client", np.int64(2), "auto"])
def test_python_functions_run_in_this_process(cut: str | np.int64) -> None:
    here = [batch.hash() for batch in DATASET.iterator(epochs=2)]
    with DATASET.distribute("local", epochs=2, cut=cut) as there:
        assert [batch.hash() for batch in there] == here
        assert there.profile()["cut"] == {"client": 1, 2: 3, "auto": 4}[cut]


@pytest.mark.parametrize("cut", [-1, 5000, 1.5, "", True, "nothing", 5])
def test_places_that_are_none(cut: object) -> None:
    with pytest.raises(cachew.OptionError, match="cut is") as raised:
        DATASET.distribute("local", cut=cut)  # type: ignore[arg-type]
    assert raised.value.attribute == "cut"
