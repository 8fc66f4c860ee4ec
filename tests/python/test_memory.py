"""Data sets in memory: NumPy arrays and Arrow streams."""

import gc
import pickle
import random
import subprocess
import sys
import weakref

import numpy as np
import pyarrow as pa
import pytest

import cachew
from cachew import Dataset
from deadlines import HANG_S


def hashes(ds, **options):
    return [b.hash() for b in ds.iterator(**options)]


def test_arrays_come_as_they_are():
    dice = np.random.default_rng(1)
    components = {
        "a": dice.integers(0, 1 << 40, (100, 3, 2)),
        "b": dice.random(100) < 0.5,
        "h": dice.random(100).astype(np.float16),
        "t": [f"text {i}" for i in range(100)],
        "bytes": np.array([b"x" * i for i in range(100)], dtype=object),
        "empty": np.zeros((100, 1), np.uint8),
    }
    ds = Dataset.arrays(components).batch(100)
    batch = ds.peek()
    for name in "a", "b", "h", "empty":
        assert (
            batch[name].tobytes() == components[name].tobytes()
            and batch[name].dtype == components[name].dtype
        )
    assert batch["t"].tolist() == [t.encode() for t in components["t"]]
    assert batch["bytes"].tolist() == components["bytes"].tolist()
    assert len(ds) == 1 and ds.schema["a"] == ("int64", (3, 2))


def test_arrays_of_any_layout():
    base = np.arange(48, dtype=">i4").reshape(6, 8)
    for array in (base, base[::-2], base.T, np.asfortranarray(base), base[:, ::3]):
        array.flags.writeable = False
        assert Dataset.arrays({"a": array}).batch(100).peek()["a"].tolist() == array.tolist()


def test_bfloat16_arrays():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(10).astype(ml_dtypes.bfloat16)
    ds = Dataset.arrays({"a": array}).batch(10)
    assert ds.schema["a"].dtype == "bfloat16" and ds.peek()["a"].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("components", "error", "said"),
    [
        (
            {"a": np.zeros(3), "b": np.zeros((4, 2))},
            cachew.PipelineError,
            "differ in length: a has 3, b has 4",
        ),
        ({"a": np.zeros(3, complex)}, cachew.PipelineError, "a has dtype complex128"),
        ({"a": np.array(["2020-01-01"], "datetime64[D]")}, cachew.PipelineError, "a has dtype datetime64"),
        ({"a": np.array([object()])}, cachew.PipelineError, "a has dtype object"),
        ({"a": np.ma.array([1, 2], mask=[0, 1])}, cachew.PipelineError, "a is a masked array"),
        ({"a": 3}, cachew.PipelineError, "a is a single value"),
        ({"a": np.array([["x"]])}, cachew.PipelineError, "a is an array of strings with 2 dimensions"),
        ({}, TypeError, "at least one"),
        ([1, 2], TypeError, "a dict of arrays"),
        ({1: np.zeros(3)}, TypeError, "the name 1"),
    ],
)
def test_arrays_that_are_refused(components, error, said):
    with pytest.raises(error, match=said):
        Dataset.arrays(components)


def test_shuffled_arrays_and_their_state():
    ds = Dataset.arrays({"a": np.arange(5000), "s": ["x" * (i % 7) for i in range(5000)]}).shuffle().batch(13)
    whole = hashes(ds, threads=1)
    dice = random.Random(3)
    for _ in range(5):
        k = dice.randrange(len(whole))
        with ds.iterator(threads=2) as it:
            head = [next(it).hash() for _ in range(k)]
            state = it.state_dict()
        assert head + hashes(ds, state=state, threads=dice.choice([1, 4])) == whole
    with pytest.raises(cachew.StateError):
        Dataset.arrays({"a": np.arange(1, 5001), "s": [""] * 5000}).shuffle().batch(13).iterator(state=state)


def test_a_pickle_holds_the_arrays():
    ds = (
        Dataset.concat([Dataset.arrays({"a": np.arange(30)}), Dataset.arrow(pa.table({"a": list(range(9))}))])
        .shuffle()
        .batch(4)
    )
    assert hashes(pickle.loads(pickle.dumps(ds))) == hashes(ds)
    code = "import pickle, sys; print([b.hash() for b in pickle.load(sys.stdin.buffer)])"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(ds), capture_output=True, timeout=HANG_S, check=True
    )
    assert done.stdout.decode().strip() == str(hashes(ds))


def test_json_of_arrays_means_nothing_elsewhere():
    text = Dataset.arrays({"a": np.arange(1234)}).batch(4).to_json()
    gc.collect()
    with pytest.raises(cachew.Error, match="arrays"):
        Dataset.from_json(text).peek()


def test_arrays_are_freed_with_the_last_that_uses_them():
    array = np.arange(1000)
    gone = weakref.ref(array)
    ds = Dataset.arrays({"a": array}).batch(10)
    del array
    iterator = iter(ds)
    batch = next(iterator)
    del ds
    gc.collect()
    assert gone() is not None
    del iterator
    assert batch["a"].tolist() == list(range(10))
    del batch
    gc.collect()
    assert gone() is None


TABLE = pa.table(
    {
        "i": pa.chunked_array([pa.array([1, 2, 3], pa.int16()), pa.array([4], pa.int16())]),
        "s": ["", "b", "cc", "é"],
        "b": [True, False, True, True],
        "f": pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], pa.list_(pa.float32(), 2)),
        "v": pa.array([[1], [], [2, 3], [4]], pa.list_(pa.int64())),
    }
)


@pytest.mark.parametrize("source", [TABLE, TABLE.slice(1, 2), TABLE.to_batches()[0], TABLE.to_reader()])
def test_arrow_rows(source):
    table = (
        source
        if isinstance(source, pa.Table)
        else pa.Table.from_batches([source])
        if isinstance(source, pa.RecordBatch)
        else TABLE
    )
    rows = list(Dataset.arrow(source))
    assert len(rows) == table.num_rows
    for row, expected in zip(rows, table.to_pylist()):
        assert bytes(row["s"]).decode() == expected["s"]
        assert {k: row[k].tolist() for k in "ibfv"} == {k: expected[k] for k in "ibfv"}


def test_arrow_that_is_refused():
    with pytest.raises(cachew.Error, match='"s" has a null in row 1'):
        Dataset.arrow(pa.table({"s": ["x", None]}))
    with pytest.raises(cachew.Error, match='"when"'):
        Dataset.arrow(pa.table({"when": pa.array([0], pa.timestamp("s"))}))
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        Dataset.arrow([1, 2, 3])


def test_a_batch_goes_back_as_arrow():
    ds = Dataset.arrow(TABLE.select(["i", "s", "f"])).batch(4)
    again = list(Dataset.arrow(pa.table(pa.record_batch(ds.peek().arrow()))))
    assert [bytes(r["s"]).decode() for r in again] == TABLE["s"].to_pylist()
