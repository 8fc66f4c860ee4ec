"""Functions that carry much with them: a large closure is pickled once, and parsed when the pipeline runs."""

import contextlib
import gc
import os
import pickle

import numpy as np
import pytest
from deadlines import HANG_S, wait_for

import cachew
from cachew import Dataset, _functions, _payload

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
    assert max(parsed) < 100_000  # a run has the place of the memory with the function


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


def test_a_captured_array_is_stored_once_in_shared_memory():
    """Its bytes are neither in the JSON of a run in this process, nor copied by host processes."""
    table = np.arange(1 << 20)

    def look_up(element):
        return {"y": int(table[element["value"]]), "host": os.getpid()}

    ds = Dataset.range(2000).map(look_up, outputs={"y": "int64", "host": "int64"}).batch(10)
    function = ds._nodes[1]["function"]
    assert isinstance(function["payload"], _payload.Payload)
    assert table.nbytes < function["payload"].size < table.nbytes + 100_000
    assert len(ds.to_json()) > table.nbytes  # for other processes
    for other in (ds, Dataset.from_json(ds.to_json()), pickle.loads(pickle.dumps(ds))):
        batches = list(other.iterator(threads=4))
        assert [v for b in batches for v in b["y"].tolist()] == list(range(2000))
    fd = function["payload"].fd
    assert os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:cachew-function")
    del ds, other, function
    wait_for(lambda: not memory_of_functions(), HANG_S)


def memory_of_functions():
    """Descriptors of this process for memory of functions."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [link for link in links if link.startswith("/memfd:cachew-function")]


def test_an_iterator_keeps_the_memory_of_its_function():
    table = np.arange(1 << 17)
    it = (
        Dataset.range(100)
        .map(lambda e: {"y": int(table[e["value"]])}, outputs={"y": "int64"})
        .batch(10)
        .iterator(threads=1)
    )
    gc.collect()
    assert [v for b in it for v in b["y"].tolist()] == list(range(100))


def test_each_host_may_change_a_captured_array():
    table = np.zeros(1 << 17, np.int64)

    def count(element):
        table[0] += 1
        return {"y": int(table[1])}

    ds = Dataset.range(100).map(count, outputs={"y": "int64"}, deterministic=False).batch(10)
    assert sum(b["y"].sum() for b in ds) == 0 and table[0] == 0


@pytest.mark.parametrize("make", ["strided", "fortran", "object", "empty", "datetime", "readonly"])
def test_arrays_of_any_kind_are_captured(make):
    base = np.arange(1 << 18).reshape(512, 512)
    table = {
        "strided": lambda: base[::2, ::2],
        "fortran": lambda: np.asfortranarray(base),
        "object": lambda: np.array([[i] for i in range(300)] + [None], dtype=object),
        "empty": lambda: np.zeros((0, 3)),
        "datetime": lambda: base.astype("datetime64[s]"),
        "readonly": lambda: np.frombuffer(base.tobytes(), np.int64),
    }[make]()

    def describe(_):
        return {"y": f"{table.dtype} {table.shape} {table.flags.f_contiguous} {table.tolist()!r:.2000}"}

    ds = Dataset.range(3).map(describe, outputs={"y": "bytes"})
    want = describe(None)["y"].encode()
    assert {bytes(e["y"]) for e in ds} == {want}
    assert {bytes(e["y"]) for e in Dataset.from_json(ds.to_json())} == {want}


def test_a_forked_child_runs_a_function_with_a_captured_array():
    table = np.arange(1 << 17)
    ds = Dataset.range(100).map(lambda e: {"y": int(table[e["value"]])}, outputs={"y": "int64"}).batch(10)
    list(ds.iterator(threads=1))
    pid = os.fork()
    if pid == 0:
        same = [v for b in ds.iterator(threads=1) for v in b["y"].tolist()] == list(range(100))
        os._exit(0 if same else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_much_captured_data_is_told(monkeypatch):
    monkeypatch.setattr(_functions, "MUCH_CAPTURED", 1_000_000)
    table = np.arange(1 << 18)
    with pytest.warns(UserWarning, match=r"map: .*look_up captures 2\.\d MB of data \(table: 2\.\d MB\)"):

        def look_up(element):
            return {"y": int(table[element["value"]])}

        Dataset.range(100).map(look_up, outputs={"y": "int64"})
