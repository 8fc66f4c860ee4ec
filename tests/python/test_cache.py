"""cache_dir of iterators and loaders: the same batches, from where they were kept."""

import itertools

import cachew
import numpy as np
import pyarrow as pa
import pytest
from deadlines import wait_for

DATA = cachew.Dataset.range(200).assign(square="value * value").cache().shuffle().batch(10)


def digest(**given):
    with DATA.iterator(seed=2, epochs=2, **given) as batches:
        return sum(b.hash() for b in batches) % 2**128, batches.profile().get("cache")


def test_iterators_read_what_others_kept(tmp_path):
    wanted, none = digest()
    assert none is None

    def hits():
        found, facts = digest(cache_dir=tmp_path)
        assert found == wanted
        assert facts["bad"] == 0
        return facts["hits"]

    hits()
    wait_for(lambda: hits() >= 400)  # a run goes on without a cache that takes long to open or to write
    found, facts = digest(cache_dir=tmp_path, cache="off")
    assert (found, facts) == (wanted, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cache": 3}, "auto, off, or the number of a cache point: 0 to 0"),
        ({"cache": -1}, "the number of a cache point, from 0"),
        ({"cache_bytes": "lots"}, "bytes, at least 1, such as"),
        ({"cache": "first"}, '"auto", "off"'),
    ],
)
def test_wrong_options(tmp_path, given, message):
    with pytest.raises(cachew.OptionError, match=message):
        DATA.iterator(cache_dir=tmp_path, **given)


def test_a_loader_keeps_what_its_first_epoch_computes(tmp_path):
    torch_loader = pytest.importorskip("cachew.torch").loader
    plain, cached = torch_loader(DATA, seed=2), torch_loader(DATA, seed=2, cache_dir=tmp_path)
    for _ in range(3):
        assert [b["square"].tolist() for b in plain] == [b["square"].tolist() for b in cached]
    wait_for(lambda: list(tmp_path.glob("*/meta.json")))


def test_clients_of_a_service_have_no_cache(tmp_path):
    loader = pytest.importorskip("cachew.torch").loader(DATA, service="127.0.0.1:1", cache_dir=tmp_path)
    with pytest.raises(cachew.OptionError, match="workers have caches"):
        next(iter(loader))


def test_a_cache_point_that_can_not_be_used_is_said(tmp_path, caplog):
    ds = cachew.Dataset.synthetic(20, shape=[6, 6, 3], dtype="uint8").random_flip("data").autocache().batch(5)
    with ds.iterator(cache_dir=tmp_path / "cache") as batches:
        assert sum(len(b["data"]) for b in batches) == 20
    wanted = (
        "autocache (operator 2) is not used: the cache point comes after an operator that draws new random "
        "numbers in each epoch; write it before that operator, or set freeze"
    )
    assert [r.getMessage() for r in caplog.records] == [wanted]


def test_what_was_decided_stands_in_the_profile(tmp_path):
    """Nobody asks for anything of a `cache`; an `autocache` is decided about."""
    ds = cachew.Dataset.range(3000).assign(x="value * 2")
    for marked, decided in ((ds.cache(), False), (ds.autocache(), True)):
        with marked.batch(10).iterator(cache_dir=tmp_path / "cache", epochs=2) as batches:
            values = [v for b in batches for v in b["x"].tolist()]
            cache = batches.profile()["cache"]
        assert values == [2 * v for v in range(3000)] * 2
        assert ("decisions" in cache) == decided
        assert not decided or [c["cache_point"] for c in cache["choices"]] == [None, 0]


# ---- arrays that are written to ----

N = 20_000
WIDE = 400


def binary(data):
    """Strings of WIDE bytes, where they lie in the memory of an array."""
    offsets = pa.py_buffer(np.arange(0, len(data) * WIDE + 1, WIDE, dtype=np.int64))
    return pa.table(
        {"x": pa.Array.from_buffers(pa.large_binary(), len(data), [None, offsets, pa.py_buffer(data)])}
    )


@pytest.fixture(params=["arrays", "arrow"])
def memory(request):
    """(a dataset over the memory of an array, and what it gives of a batch)"""
    if request.param == "arrays":
        return lambda data: cachew.Dataset.arrays({"y": np.zeros(len(data)), "x": data}), lambda batch: batch[
            "x"
        ]
    return lambda data: cachew.Dataset.arrow(binary(data)), lambda batch: np.frombuffer(
        batch["x"].data, np.uint8
    ).reshape(-1, WIDE)


def test_a_cache_over_arrays_that_were_written_to_says_so(memory, tmp_path):
    """What was computed of the new values was kept for the old ones, for good."""
    make, _ = memory
    data = np.ones((100, WIDE), np.uint8)
    ds = make(data).cache().batch(10)
    data[7, 3] = 2
    with pytest.raises(cachew.DataError, match='changed the array "x" since it made .*make a new data set'):
        ds.iterator(cache_dir=tmp_path / "cache")
    assert sum(len(b["x"]) for b in ds) == 100  # without a cache values are those that are there
    assert sum(len(b["x"]) for b in ds.iterator(cache_dir=tmp_path / "cache", cache="off")) == 100
    assert (
        sum(len(b["x"]) for b in make(data).cache().batch(10).iterator(cache_dir=tmp_path / "cache")) == 100
    )


def test_arrays_that_are_written_to_while_they_are_kept(memory, tmp_path):
    """Nothing of the new values is kept, whenever they come; and who would get them learns of it."""
    make, values = memory
    number = itertools.count()

    def learns_of_it():
        """Whether a run fails before a new value comes: not while it goes on without a cache that takes long
        to open.
        """
        directory, data, fails, new = tmp_path / str(next(number)), np.ones((N, WIDE), np.uint8), False, False
        with make(data).cache().batch(100).iterator(cache_dir=directory, memory="2MiB", threads=2) as batches:
            try:
                for batch in batches:  # not many are computed ahead: there is no memory for more
                    new |= bool(values(batch).max() != 1)
                    data[:] = 2
            except cachew.DataError as error:
                assert 'has changed the array "x"' in str(error)
                fails = True
        found = [
            values(b)
            for b in make(np.ones((N, WIDE), np.uint8)).cache().batch(100).iterator(cache_dir=directory)
        ]
        assert len(found) == N // 100
        assert all(x.min() == x.max() == 1 for x in found)
        return fails and not new

    wait_for(learns_of_it)


def test_arrays_that_are_written_to_without_a_place_to_keep_them(tmp_path):
    """A cache directory alone is no reason to look."""
    data = np.arange(100)
    ds = cachew.Dataset.arrays({"x": data}).batch(100)
    data += 1
    assert next(iter(ds.iterator(cache_dir=tmp_path)))["x"].tolist() == list(range(1, 101))
