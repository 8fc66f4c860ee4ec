"""Unit tests of the reference model by itself: known vectors and examples worked out by hand."""

import math
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model import example, images, mathfn, philox
from model.dtypes import RecordError, Type, Value, array, cast
from model.elements import MISSING, Elements, Way
from model.expressions import Expression
from model.fixed import PIPELINES
from model.plan import Plan
from model.run import Run, deliver


def test_philox_known_vectors():
    """Random123's kat_vectors for philox4x32-10."""
    full = 0xFFFFFFFF
    assert philox.philox(0, (0, 0, 0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox.philox(full << 32 | full, (full,) * 4) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    counter = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert philox.philox(0x299F31D0 << 32 | 0xA4093822, counter) == (
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    )


def test_permutation_is_one():
    for n in (0, 1, 2, 5, 64, 1000):
        assert sorted(philox.permutation(7, n)) == list(range(n))
    first = {philox.permutation(key, 6)[0] for key in range(60)}
    assert first == set(range(6))


def values(chain: list[dict], seed: int = 1, epoch_count: int = 1, **pipeline) -> list[list[int]]:
    """Rows of each batch of a pipeline on a range."""
    result = deliver({"cachew": 1, "pipeline": chain, **pipeline}, Path("."), seed, epoch_count)
    assert result.error is None, result.error
    return [[int(r.split(":")[1].split(".")[0]) for r in line["records"]] for line in result.lines]


def test_batches_of_a_known_count():
    chain = [{"op": "range", "stop": 7}, {"op": "batch", "size": 3}]
    assert values(chain) == [[0, 1, 2], [3, 4, 5], [6]]
    chain[1]["drop_remainder"] = True
    assert values(chain) == [[0, 1, 2], [3, 4, 5]]
    assert values([*chain, {"op": "repeat", "count": 2}]) == [[0, 1, 2], [3, 4, 5]] * 2


def test_take_and_skip_of_batches():
    chain = [{"op": "range", "stop": 10}, {"op": "batch", "size": 4}]
    assert values([*chain, {"op": "skip", "count": 1}]) == [[4, 5, 6, 7], [8, 9]]
    assert values([*chain, {"op": "take", "count": 2}]) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_window_of_a_shuffle_by_chunk():
    """64 MiB of what is read, in whole batches; at most 2^20 positions."""
    source = {"op": "synthetic", "count": 300, "shape": [256, 1024], "dtype": "uint8", "fill": "none"}
    chain = [
        source,
        {"op": "filter", "where": "true"},
        {"op": "batch", "size": 40},
        {"op": "cast", "component": "data", "dtype": "float64"},
    ]
    assert Plan({"pipeline": chain}, Path(".")).window_size == 240
    assert Plan({"pipeline": [source, {"op": "batch", "size": 300}]}, Path(".")).window_size == 300
    assert (
        Plan(
            {"pipeline": [{"op": "range", "stop": 10}, {"op": "batch", "size": 1000}]}, Path(".")
        ).window_size
        == 1048000
    )


def test_batches_behind_a_filter_are_formed_along_the_epoch():
    chain = [
        {"op": "range", "stop": 2000},
        {"op": "filter", "where": "value % 3 == 0"},
        {"op": "batch", "size": 4},
    ]
    kept = [v for v in range(2000) if v % 3 == 0]
    assert values(chain) == [kept[at : at + 4] for at in range(0, len(kept), 4)]
    chain[2]["drop_remainder"] = True
    assert values(chain) == [kept[at : at + 4] for at in range(0, len(kept) - 3, 4)]


def test_leftovers_come_by_key():
    chain = [
        {"op": "range", "stop": 7},
        {"op": "bucket_by_length", "length": "6 - value", "boundaries": [2, 5], "sizes": [9, 2, 9]},
    ]
    assert values(chain) == [[2, 3], [5, 6], [4], [0, 1]]


def test_take_counts_what_arrives():
    chain = [
        {"op": "range", "stop": 100},
        {"op": "filter", "where": "value % 2 == 1"},
        {"op": "take", "count": 3},
    ]
    assert values(chain) == [[1], [3], [5]]
    endless = [*chain[:2], {"op": "repeat", "count": -1}, {"op": "take", "count": 52}]
    assert values(endless)[-2:] == [[1], [3]]
    anew = [*chain, {"op": "repeat", "count": 2}]
    assert values(anew) == [[1], [3], [5]] * 2


def test_failed_records():
    chain = [
        {"op": "range", "stop": 6},
        {"op": "fail", "where": "value % 3 == 1"},
        {"op": "batch", "size": 2},
    ]
    assert values(chain, on_error="skip") == [[0], [2, 3], [5]]
    filtered = [*chain[:2], {"op": "filter", "where": "value >= 0"}, chain[2]]
    assert values(filtered, on_error="skip") == [[0, 2], [3, 5]]
    replaced = values(chain, on_error="replace")
    assert [len(batch) for batch in replaced] == [2, 2, 2]
    assert all(v in (0, 2, 3, 5) for batch in replaced for v in batch)
    result = deliver({"pipeline": chain}, Path("."), 0)
    assert result.error and [line["records"] for line in result.lines] == []


def test_empty_batch():
    chain = [{"op": "range", "stop": 3}, {"op": "fail", "where": "value == 1"}]
    assert values(chain, on_error="skip") == [[0], [], [2]]


def test_shuffle_is_a_permutation_by_epoch_and_pass():
    chain = [{"op": "range", "stop": 50}, {"op": "shuffle"}, {"op": "repeat", "count": 2}]
    rows = [v for batch in values(chain, epoch_count=2) for v in batch]
    passes = [rows[at : at + 50] for at in range(0, 200, 50)]
    assert all(sorted(p) == list(range(50)) for p in passes)
    assert len({tuple(p) for p in passes}) == 4
    assert values(chain) == values(chain)


def test_a_shuffle_of_an_endless_sequence_stands_before_the_repeat():
    endless = {"op": "repeat", "count": -1}
    take = {"op": "take", "count": 30}
    source, shuffle = {"op": "range", "stop": 12}, {"op": "shuffle"}
    assert values([source, endless, shuffle, take]) == values([source, shuffle, endless, take])
    assert values([source, endless, take, shuffle]) != values([source, shuffle, endless, take])


def test_buckets():
    chain = [
        {"op": "range", "stop": 8},
        {"op": "bucket_by_length", "length": "value % 4", "boundaries": [2], "sizes": [3, 2]},
    ]
    assert values(chain) == [[2, 3], [0, 1, 4], [6, 7], [5]]


def test_ranks_fill_the_last_round():
    pipeline = {"pipeline": [{"op": "range", "stop": 5}, {"op": "batch", "size": 2}]}
    whole = deliver(pipeline, Path("."), 0)
    parts = [deliver(pipeline, Path("."), 0, rank=r, ranks=2) for r in range(2)]
    assert [[line["g"] for line in p.lines] for p in parts] == [[0, 2], [1, 3]]
    assert parts[1].lines[1]["records"] == whole.lines[0]["records"] and parts[1].lines[1]["flags"] == [2, 2]
    assert sum(p.digest for p in parts) % 2**128 == whole.digest
    assert sum(p.set_digest for p in parts) % 2**128 == whole.set_digest


def test_example_round_trip():
    features = {"a": ("int64", [-1, 2**62]), "b": ("float32", [1.5]), "c": ("bytes", [b"x", b""])}
    for packed in (True, False):
        data = example.write(features, packed)
        assert example.parse(data) == {k.encode(): v for k, v in features.items()}
        with pytest.raises(RecordError):
            example.parse(data[:-1])


def test_casts():
    floats = array("float32", [2.5, -0.5, 300, -300, np.nan, np.inf])
    assert cast(floats, "int8").data.tolist() == [2, 0, 127, -128, 0, 127]
    assert cast(floats, "uint8").data.tolist() == [2, 0, 255, 0, 0, 255]
    assert cast(array("float64", 1e30), "int64").data.item() == 2**63 - 1
    halfway = 1 + 2**-8 + 2**-40  # just above the middle of two bfloat16: two roundings would go down
    assert cast(array("float64", halfway), "bfloat16").data.item() == 0x3F81


def scalar(text: str, **components) -> Value:
    given = {name: array(*value) for name, value in components.items()}
    expression = Expression(text, {name: Type(v.dtype, v.shape) for name, v in given.items()})
    result = expression.evaluate(given)
    assert result.dtype == expression.type.dtype
    return result


@pytest.mark.parametrize(
    "text, dtype, expected",
    [
        ("a + 1", "uint8", 0),
        ("-a // 2", "uint8", 0),
        ("b // 2", "int64", -4),
        ("b % 4", "int64", 1),
        ("-2 ** 2 + b", "int64", -11),
        ("a / 2", "float64", 127.5),
        ("f * 2", "float32", 3.0),
        ("a > b and not f == 0", "bool", True),
        ("0 < f < 1", "bool", False),
        ("where(f > 1, a, 0)", "uint8", 255),
        ("max(a, b)", "int64", 255),
        ("max(v)", "int32", 5),
        ("length(v)", "int64", 3),
        ("int64(f) + 0", "int64", 2),
        ("u >> uint8(0)", "uint64", 2**63 + 1),
        ("u >> a", "uint64", 0),
        ("b >> uint8(200)", "int64", -1),
    ],
)
def test_expressions(text, dtype, expected):
    result = scalar(
        text,
        a=("uint8", 255),
        b=("int64", -7),
        u=("uint64", 2**63 + 1),
        f=("float32", 1.5),
        v=("int32", [1, 5, -2]),
    )
    assert (result.dtype, result.data.item()) == (dtype, expected)


def test_division_by_zero_fails_the_record():
    with pytest.raises(RecordError):
        scalar("a // (a - a)", a=("int32", 4))


def test_exp_log_and_power_are_close():
    rng = random.Random(1)
    for _ in range(300):
        x, y = math.exp(rng.uniform(-20, 20)), rng.uniform(-15, 15)
        for ours, theirs in (
            (mathfn.exp(y), math.exp(y)),
            (mathfn.log(x), math.log(x)),
            (mathfn.power(x, y), x**y),
        ):
            assert abs(ours - theirs) <= math.ulp(theirs)
    assert [mathfn.exp(v) for v in (0.0, -math.inf, 1000.0)] == [1.0, 0.0, math.inf]
    assert mathfn.log(1.0) == 0 and mathfn.log(0.0) == -math.inf and math.isnan(mathfn.log(-1.0))
    assert (
        mathfn.power(-2.0, 3.0) == -8
        and mathfn.power(0.0, -1.0) == math.inf
        and math.isnan(mathfn.power(-2.0, 0.5))
    )


def test_resize_is_pillows():
    rng = np.random.default_rng(1)
    for _ in range(20):
        pixels = rng.integers(0, 256, (int(rng.integers(1, 30)), int(rng.integers(1, 30)), 3), dtype=np.uint8)
        height, width = (int(v) for v in rng.integers(1, 30, 2))
        wide = Image.fromarray(pixels).resize((width, pixels.shape[0]), Image.Resampling.BICUBIC)
        theirs = np.asarray(wide.resize((width, height), Image.Resampling.BICUBIC))
        assert np.array_equal(images.resize(pixels, (height, width), "bicubic", True), theirs)


def test_orientation():
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)  # H = 2, W = 3
    shown = {k: images.orient(pixels, k)[:, :, 0].tolist() for k in range(1, 9)}
    assert shown[2] == [[2, 1, 0], [5, 4, 3]] and shown[4] == [[3, 4, 5], [0, 1, 2]]
    assert shown[6] == [[3, 0], [4, 1], [5, 2]] and shown[8] == [[2, 5], [1, 4], [0, 3]]
    assert shown[5] == [[0, 3], [1, 4], [2, 5]] and shown[7] == [[5, 2], [4, 1], [3, 0]]


def test_a_dropped_remainder_is_not_computed_to_its_end():
    chain = [
        {"op": "range", "stop": 10},
        {"op": "fail", "where": "value == 9"},
        {"op": "batch", "size": 4, "drop_remainder": True},
    ]
    assert values(chain) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    sieved = [*chain[:2], {"op": "filter", "where": "True"}, chain[2]]
    assert deliver({"pipeline": sieved}, Path("."), 0).error


def mistaken_take(monkeypatch):
    arrive = Way.arrive

    def one_more(self, node, passes):
        return (
            arrive(self, node, passes)
            or node.name == "take"
            and self.counts[node, passes] == node.attrs["count"] + 1
        )

    monkeypatch.setattr(Way, "arrive", one_more)
    monkeypatch.setattr(Way, "beyond", lambda self, start: False)
    monkeypatch.setattr(Run, "finished", lambda self, counts: False)


def lost_batch(monkeypatch):
    complete = Run.complete
    monkeypatch.setattr(
        Run, "complete", lambda self, epoch: (rows for i, rows in enumerate(complete(self, epoch)) if i != 20)
    )


def failed_twice(monkeypatch):
    of = Elements.of
    monkeypatch.setattr(
        Elements,
        "of",
        lambda self, *a: (e for found in of(self, *a) for e in [found] * (1 + (found is MISSING))),
    )


def failed_counts_twice(monkeypatch):
    arrive, elements = Way.arrive, Way.elements

    def counted(self, node, passes):
        if self.run.failed > self.before:
            arrive(self, node, passes)
        return arrive(self, node, passes)

    def noted(self):
        self.before = self.run.failed
        return elements(self)

    monkeypatch.setattr(Way, "elements", noted)
    monkeypatch.setattr(Way, "arrive", counted)


@pytest.mark.parametrize(
    "mistake, names",
    [
        (mistaken_take, ["take", "failed-and-counted"]),
        (lost_batch, ["every-third", "take", "gaps", "failed-and-counted"]),
        (failed_twice, ["gaps", "failed-and-counted"]),
        (failed_counts_twice, ["failed-and-counted"]),
    ],
)
def test_the_fixed_pipelines_notice(mistake, names, monkeypatch):
    right = {
        name: deliver(PIPELINES[name], Path("."), 0).lines
        for name in ("every-third", "take", "gaps", "failed-and-counted")
    }
    mistake(monkeypatch)
    assert [
        name for name, lines in right.items() if deliver(PIPELINES[name], Path("."), 0).lines != lines
    ] == names
