"""Functions that carry much with them: a large closure is pickled once, and parsed when the pipeline runs."""

import pickle

import numpy as np
import pytest

import cachew
from cachew import Dataset

LARGE = np.arange(3_000_000, dtype=np.uint8)


def large_of(n=LARGE.size):
    table = LARGE[:n].copy()
    return Dataset.range(40).map(
        lambda e: {"value": e["value"] + int(table[int(e["value"])])}, outputs={"value": "int64"}
    )


@pytest.mark.large
def test_what_is_done_with_a_large_function_does_not_parse_it_again(monkeypatch):
    parsed = []
    made = cachew._core.Pipeline
    monkeypatch.setattr(
        cachew.dataset._core, "Pipeline", lambda text, *rest: parsed.append(len(text)) or made(text, *rest)
    )
    ds = large_of().shuffle().filter("value >= 0").batch(4)
    both = Dataset.concat([large_of(), Dataset.range(5)]).batch(3)
    assert (
        ds.schema["value"].dtype == "int64"
        and both.n_batches() == 15
        and "map" in ds.explain()
        and "map" in repr(ds)
    )
    assert max(parsed) < 100_000
    assert sorted(v for b in ds for v in b["value"].tolist()) == [2 * v for v in range(40)]
    assert sorted(v for b in both for v in b["value"].tolist()) == sorted(
        [2 * v for v in range(40)] + list(range(5))
    )
    list(ds)
    assert [n > 4_000_000 for n in parsed].count(True) == 2  # once for each of the two that ran


@pytest.mark.large
def test_a_dataset_with_a_large_function_is_the_same_elsewhere():
    ds = large_of().batch(4)
    digest = sum(b.hash() for b in ds)
    for other in (pickle.loads(pickle.dumps(ds)), Dataset.from_json(ds.to_json())):
        assert other == ds and sum(b.hash() for b in other) == digest
    state = ds.iterator().state_dict()
    assert len(list(large_of().batch(4).iterator(state=state))) == 10


@pytest.mark.large
def test_a_function_that_is_too_large_for_a_service_is_refused_with_a_way_out():
    table = np.zeros(30_000_000, dtype=np.uint8)
    ds = Dataset.range(4).map(
        lambda e: {"value": e["value"] + int(table[0])}, outputs={"value": "int64"}, version="1"
    )
    with pytest.raises(cachew.PipelineError, match=r"a service accepts at most 33554432; .* from a file"):
        ds.distribute("127.0.0.1:9")  # nobody is asked
