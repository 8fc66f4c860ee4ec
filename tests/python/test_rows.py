"""Operators on the rows of an epoch, against plain Python loops."""

import json
from itertools import takewhile

import numpy as np
import pytest

import cachew
from cachew import Dataset, col


def pairs(ds, name="index", **options):
    return [(int(v), int(i)) for b in ds.batch(7).iterator(**options) for v, i in zip(b["value"], b[name])]


def numbered(values, start=0):
    return [(v, k) for k, v in enumerate(values, start)]


THIRDS = [v for v in range(1000) if v % 3 == 1]
SOURCE = Dataset.range(1000)
FILTERED = SOURCE.filter(col("value") % 3 == 1)


@pytest.mark.parametrize("threads", [1, 3])
def test_enumerate_numbers_what_arrives(threads):
    def run(ds, **options):
        return pairs(ds, threads=threads, seed=5, **options)

    assert run(SOURCE.enumerate(start=-4)) == numbered(range(1000), -4)
    shuffled = run(SOURCE.enumerate().shuffle())
    assert shuffled != numbered(range(1000)) and sorted(shuffled) == numbered(range(1000))
    order = [v for v, _ in run(SOURCE.shuffle().enumerate())]
    assert run(SOURCE.shuffle().enumerate()) == numbered(order)
    assert run(FILTERED.enumerate(start=9)) == numbered(THIRDS, 9)
    assert run(FILTERED.enumerate().repeat(3)) == numbered(THIRDS) * 3
    assert run(FILTERED.repeat(3).enumerate()) == numbered(THIRDS * 3)
    assert run(SOURCE.repeat(2).enumerate().skip(998).take(4)) == [
        (998, 998), (999, 999), (0, 1000), (1, 1001)
    ]  # fmt: skip
    assert run(FILTERED.skip(5).enumerate().take(50)) == numbered(THIRDS[5:55])
    assert run(FILTERED.enumerate().filter(col("index") % 2 == 0)) == numbered(THIRDS)[::2]
    of_each = Dataset.concat([SOURCE.take(5).enumerate(), FILTERED.enumerate(start=7)])
    assert run(of_each) == [*numbered(range(5)), *numbered(THIRDS, 7)]
    assert run(Dataset.mix([SOURCE.take(5), SOURCE.skip(995)], [1, 1]).enumerate()) == numbered(
        [v for k in range(5) for v in (k, 995 + k)]
    )


def test_enumerate_of_a_stream_and_of_rows_of_a_record():
    stream = Dataset.iterable(lambda: ({"value": v} for v in range(300)), outputs={"value": "int64"})
    assert pairs(stream.enumerate()) == numbered(range(300))

    def twice(element):
        return [{"value": element["value"]}] * (int(element["value"]) % 3)

    doubled = SOURCE.flat_map(twice, outputs={"value": "int64"})
    assert pairs(doubled.enumerate()) == numbered([v for v in range(1000) for _ in range(v % 3)])


def test_enumerate_counts_failed_elements_that_keep_their_place():
    ds = SOURCE._for_tests("fail", "value % 5 == 2").enumerate().on_error("skip")
    assert pairs(ds) == [p for p in numbered(range(1000)) if p[0] % 5 != 2]
    ds = FILTERED._for_tests("fail", "value % 5 == 2").enumerate().on_error("skip")
    assert pairs(ds) == [p for p in numbered(THIRDS) if p[0] % 5 != 2]


@pytest.mark.parametrize(
    "chain",
    [SOURCE.shuffle().enumerate(), FILTERED.enumerate(), FILTERED.enumerate().repeat(2)],
    ids=["shuffled", "filtered", "repeated"],
)
def test_enumerate_resumes(chain):
    ds = chain.batch(16)
    whole = [b["index"].tolist() for b in ds.iterator(seed=3)]
    for n in (1, 5, len(whole) - 1):
        first = ds.iterator(seed=3)
        assert [next(first)["index"].tolist() for _ in range(n)] == whole[:n]
        state = first.state_dict()
        assert len(json.dumps(state)) < 1024
        rest = ds.iterator(seed=3, threads=1)
        rest.load_state_dict(state)
        assert [b["index"].tolist() for b in rest] == whole[n:]


@pytest.mark.parametrize(
    ("ds", "message"),
    [
        (lambda: SOURCE.batch(2).enumerate(), "enumerate: can't come after batch"),
        (lambda: SOURCE.enumerate().on_error("replace"), 'enumerate: can\'t be used with on_error "replace"'),
        (lambda: SOURCE.enumerate().window(2), "window: comes after enumerate: write enumerate after window"),
        (lambda: Dataset.zip([SOURCE.enumerate()]), "zip: input 0 has an enumerate"),
        (lambda: FILTERED.enumerate().shuffle(), "shuffle: comes after take_while, or after a take, skip or"),
        (lambda: SOURCE.enumerate(start=2.5), "enumerate: start is 2.5: expected an integer"),
    ],
)  # fmt: skip
def test_enumerate_is_refused(ds, message):
    with pytest.raises(cachew.Error) as caught:
        list(ds())
    assert message in str(caught.value)


# ---- unbatch, rebatch ----


def ragged(seed, n=60):
    """Elements with a varying number of rows, some without any."""
    rng = np.random.default_rng(seed)
    return [
        {"x": rng.integers(0, 99, (k, 2)).astype(np.int16), "y": rng.random(k).astype(np.float32)}
        for k in rng.integers(0, 9, n)
    ]


def of_elements(elements, path):
    """A file of elements: of components with any number of rows."""
    path.write_text(
        "".join(json.dumps({k: np.asarray(v).tolist() for k, v in e.items()}) + "\n" for e in elements)
    )
    x = {"dtype": "int16", "shape": [2], "variable": True}
    return Dataset.jsonl(str(path), {"x": x, "y": {"dtype": "float32", "variable": True}})


def rows_of(batches):
    return [(x.tolist(), float(y)) for b in batches for x, y in zip(b["x"], b["y"])]


@pytest.mark.parametrize("seed", range(3))
def test_unbatch_and_rebatch_are_a_loop_over_rows(seed, tmp_path):
    elements = ragged(seed)
    expected = [(x.tolist(), float(y)) for e in elements for x, y in zip(e["x"], e["y"])]
    ds = of_elements(elements, tmp_path / "rows.jsonl")
    assert rows_of(ds.unbatch().batch(8)) == expected
    batches = [rows_of([b]) for b in ds.rebatch(8)]
    assert batches == [expected[i : i + 8] for i in range(0, len(expected), 8)]
    assert rows_of(ds.rebatch(8, drop_remainder=True)) == expected[: len(expected) // 8 * 8]
    odd = ds.unbatch().filter("y > 0.5").take(40).batch(3)
    assert rows_of(odd) == [row for row in expected if row[1] > 0.5][:40]


def test_rows_of_equal_elements_and_of_windows():
    arrays = {"a": np.arange(24).reshape(4, 3, 2), "b": np.arange(12.0).reshape(4, 3)}
    batches = list(Dataset.arrays(arrays).unbatch().batch(5))
    assert np.array_equal(np.concatenate([b["a"] for b in batches]), np.arange(24).reshape(12, 2))
    assert np.array_equal(np.concatenate([b["b"] for b in batches]), np.arange(12.0))
    windows = Dataset.range(50).window(6, shift=4, drop_remainder=False)
    expected = [v for w in range(0, 50, 4) for v in range(w, min(w + 6, 50))]
    assert [v for b in windows.rebatch(7) for v in b["value"].tolist()] == expected
    ids = [b.records for b in windows.take(2).rebatch(4)]
    assert [r.split(".")[1] for batch in ids for r in batch] == [*"012345"] * 2


def test_a_batch_before_is_left_out():
    def values(ds):
        return [b["value"].tolist() for b in ds]

    plain = Dataset.range(50).assign(y="value * 2")
    assert Dataset.range(50).batch(7).unbatch().batch(4).n_batches() == 13
    assert values(Dataset.range(50).batch(7).assign(y="value * 2").unbatch().take(9).batch(4)) == values(
        plain.take(9).batch(4)
    )
    assert values(plain.batch(7).rebatch(4).take(3)) == values(plain.batch(4).take(3))
    assert values(plain.batch(7).rebatch(9).rebatch(4)) == values(plain.batch(4))


def test_rebatch_resumes(tmp_path):
    ds = of_elements(ragged(5), tmp_path / "rows.jsonl").rebatch(8)
    whole = [b.hash() for b in ds]
    for n in (1, 7, len(whole) - 1):
        first = ds.iterator()
        assert [next(first).hash() for _ in range(n)] == whole[:n]
        rest = ds.iterator(threads=1)
        rest.load_state_dict(first.state_dict())
        assert [b.hash() for b in rest] == whole[n:]


@pytest.mark.parametrize(
    ("ds", "message"),
    [
        (lambda: SOURCE.unbatch(), 'unbatch: component "value" is int64: expected a first dimension'),
        (lambda: SOURCE.rebatch(2), 'rebatch: component "value" is int64: expected a first dimension'),
        (
            lambda: Dataset.arrays({"x": np.ones((3, 2))}).unbatch().on_error("replace"),
            "unbatch: can't be used",
        ),
        (
            lambda: SOURCE.batch(2, drop_remainder=True).unbatch(),
            "unbatch: comes after batch, which leaves out",
        ),
        (lambda: SOURCE.batch(2, pad="longest").rebatch(3), "rebatch: comes after batch, which pads"),
        (lambda: SOURCE.batch(2).take(3).unbatch(), "unbatch: comes after batch and take: expected only"),
        (
            lambda: SOURCE.bucket_by_length("value", [3], [1, 2]).unbatch(),
            "unbatch: comes after bucket_by_length, which changes the order",
        ),
    ],
)
def test_unbatch_is_refused(ds, message):
    with pytest.raises(cachew.Error) as caught:
        list(ds())
    assert message in str(caught.value)


def test_elements_with_unequal_components_fail(tmp_path):
    rows = [{"x": [[1, 2]], "y": [3]}, {"x": [[1, 2], [3, 4]], "y": [5]}, {"x": [], "y": []}]
    ds = of_elements(rows, tmp_path / "rows.jsonl")
    for op, failed in [("unbatch", ds.unbatch()), ("rebatch", ds.rebatch(4))]:
        with pytest.raises(cachew.Error, match=f"{op}: y has 1 rows, but x has 2: expected equally many"):
            list(failed)
    assert rows_of(ds.on_error("skip").rebatch(4)) == [([1, 2], 3)]


# ---- take_while ----


def values(ds, **options):
    return [v for b in ds.batch(16).iterator(**options) for v in b["value"].tolist()]


@pytest.mark.parametrize("threads", [1, 3])
def test_take_while_ends_an_epoch(threads):
    def run(ds):
        return values(ds, threads=threads, seed=4)

    below = col("value") < 700
    assert run(SOURCE.take_while(below)) == [*range(700)]
    assert run(SOURCE.take_while("value >= 0")) == [*range(1000)]
    assert run(SOURCE.take_while("value > 0")) == []
    assert run(SOURCE.shuffle().take_while(below)) == [*takewhile(lambda v: v < 700, run(SOURCE.shuffle()))]
    assert run(FILTERED.take_while(below).filter("value % 2 == 0")) == [
        v for v in THIRDS if v < 700 and v % 2 == 0
    ]
    assert run(SOURCE.take_while(below).repeat(3)) == [*range(700)] * 3
    assert run(SOURCE.repeat(-1).take_while("value < 999")) == [*range(999)]
    assert run(Dataset.concat([SOURCE.take_while("value < 5"), SOURCE.take_while("value < 3")])) == [
        *range(5), *range(3)
    ]  # fmt: skip
    assert run(SOURCE.take_while("value < 50").enumerate().take_while("index < 20")) == [*range(20)]
    both = SOURCE.take_while(below).iterator(epochs=2)
    assert [int(e["value"]) for e in both] == [*range(700)] * 2


def test_after_the_end_no_element_can_fail():
    ds = SOURCE._for_tests("fail", "value > 10")
    assert values(ds.take_while("value < 10")) == [*range(10)]
    failing = SOURCE._for_tests("fail", "value % 3 == 0 or value > 10")
    assert values(failing.on_error("skip").take_while("value < 10")) == [1, 2, 4, 5, 7, 8]


def test_take_while_resumes():
    ds = FILTERED.take_while("value < 700").repeat(2).batch(16)
    whole = [b["value"].tolist() for b in ds]
    for n in (1, 12, len(whole) - 1, len(whole)):
        first = ds.iterator()
        assert [next(first)["value"].tolist() for _ in range(n)] == whole[:n]
        rest = ds.iterator(threads=1)
        rest.load_state_dict(first.state_dict())
        assert [b["value"].tolist() for b in rest] == whole[n:]


# ---- group_by ----


@pytest.mark.parametrize(("keys", "size"), [(1, 3), (7, 4), (100, 2), (1024, 1)])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_group_by_is_a_loop_with_a_list_for_each_key(keys, size, drop_remainder):
    expected, waiting = [], {}
    for v in THIRDS:
        mine = waiting.setdefault(v * 31 % 1009 % keys, [])
        mine.append(v)
        if len(mine) == size:
            expected.append(mine[:])
            mine.clear()
    if not drop_remainder:
        expected += [waiting[k] for k in sorted(waiting) if waiting[k]]
    ds = FILTERED.group_by(f"value * 31 % 1009 % {keys}", keys, size, drop_remainder=drop_remainder)
    assert [b["value"].tolist() for b in ds] == expected
    half = len(expected) // 2
    first = ds.iterator()
    assert [next(first)["value"].tolist() for _ in range(half)] == expected[:half]
    rest = ds.iterator(threads=1)
    rest.load_state_dict(first.state_dict())
    assert [b["value"].tolist() for b in rest] == expected[half:]


# ---- resample ----


@pytest.mark.parametrize(
    ("target", "initial"), [([1, 1, 1], [6, 3, 1]), ([0.5, 0, 0.5], [1, 1, 2]), ([1, 2, 3], [1, 2, 3])]
)
def test_resample_gives_the_shares_of_the_target(target, initial):
    """The number of elements kept of a class is binomial: it is within 5 standard deviations."""
    n = 40_000
    whole = np.repeat(np.arange(3), np.array(initial) * n // sum(initial)).astype(np.int8)
    ds = Dataset.arrays({"class": whole}).resample("class", target, initial)
    kept = np.concatenate([b["class"] for b in ds.batch(512).iterator(seed=7)])
    quotients = np.array(target) / initial
    p = quotients / quotients.max()
    arrived, came = np.bincount(whole, minlength=3), np.bincount(kept, minlength=3)
    assert (np.abs(came - arrived * p) <= 5 * np.sqrt(arrived * p * (1 - p))).all()
    assert all(c == a for c, a, q in zip(came, arrived, p) if q == 1)


def test_resample_draws_by_element_and_epoch():
    ds = SOURCE.assign(k="value % 2").resample("k", [1, 1], [3, 1])

    def kept(**options):
        return [int(e["value"]) for e in ds.iterator(**options)]

    once = kept(seed=1)
    assert once == kept(seed=1, threads=1) != kept(seed=2)
    assert kept(seed=1, epochs=2)[: len(once)] == once != kept(seed=1, epochs=2)[len(once) :]
    shuffled = SOURCE.shuffle().assign(k="value % 2").resample("k", [1, 1], [3, 1])
    assert sorted(int(e["value"]) for e in shuffled.iterator(seed=1)) == once


@pytest.mark.parametrize(
    ("ds", "message"),
    [
        (lambda: SOURCE.take_while("value").shuffle(), "shuffle: comes after take_while"),
        (lambda: SOURCE.take_while("value").on_error("replace"), "take_while: can't be used with on_error"),
        (lambda: SOURCE.batch(2).take_while("value"), "take_while: comes after batch"),
        (lambda: SOURCE.take_while("nothing"), 'there is no component "nothing"'),
        (lambda: SOURCE.group_by("value", 10, 3), "group_by: the key is 10: expected an integer from 0 to 9"),
        (lambda: SOURCE.group_by("value - 1", 1000, 3), "group_by: the key is -1: expected an integer"),
        (lambda: SOURCE.group_by("value", 1025, 3), "group_by: keys is 1025: expected"),
        (
            lambda: SOURCE.group_by("value / 2", 9, 3),
            "group_by: key: the result is float64: expected an integer",
        ),
        (
            lambda: SOURCE.resample("value", [1, 1], [1, 1]),
            "resample: value is 2: expected a class from 0 to 1",
        ),
        (lambda: SOURCE.resample("value", [1, 1], [1]), "expected as many values as target has: 2"),
        (lambda: SOURCE.resample("value", [1, 1], [1, 0]), "expected a share above 0 of class 1"),
        (lambda: SOURCE.resample("value", [0, 0], [1, 1]), "expected at least one value above 0"),
        (
            lambda: SOURCE.resample("value", [1, -1], [1, 1]),
            "resample: target is [1,-1]: expected a list of numbers",
        ),
        (lambda: SOURCE.assign(x="value / 3").resample("x", [1], [1]), "expected one integer per element"),
    ],
)
def test_other_operators_are_refused(ds, message):
    with pytest.raises(cachew.Error) as caught:
        list(ds())
    assert message in str(caught.value)


# ---- interleave ----


def in_turn(lists, block_length):
    lists, found = [list(x) for x in lists], []
    while any(lists):
        for x in lists:
            found += x[:block_length]
            del x[:block_length]
    return found


@pytest.mark.parametrize("block_length", [1, 3, 50])
@pytest.mark.parametrize("lengths", [[5], [3, 0, 7], [0, 0], [1, 100, 30, 64], [20] * 7])
def test_interleave_is_a_loop_over_the_inputs(lengths, block_length):
    lists = [[1000 * i + k for k in range(n)] for i, n in enumerate(lengths)]
    inputs = [Dataset.range(1000 * i + n, start=1000 * i) for i, n in enumerate(lengths)]
    ds = Dataset.interleave(inputs, block_length=block_length)
    expected = in_turn(lists, block_length)
    assert values(ds) == expected and len(ds) == len(expected)
    assert values(ds.skip(9).take(20)) == expected[9:29]
    if expected:
        assert sorted(values(ds.shuffle(), seed=2)) == sorted(expected)
        assert values(ds.repeat(2)) == expected * 2
    shuffled = [ds.shuffle(seed=7) for ds in inputs if len(ds)]
    each = [values(x) for x in shuffled]
    assert not each or values(Dataset.interleave(shuffled, block_length=block_length)) == in_turn(
        each, block_length
    )


def test_interleave_of_endless_inputs_and_in_any_order():
    ds = Dataset.interleave([SOURCE.repeat(-1), SOURCE.take(2)])
    assert values(ds.take(7)) == [0, 0, 1, 1, 2, 3, 4]
    ds = Dataset.interleave([SOURCE, SOURCE.take(100).filter("value % 2 == 0"), SOURCE.take(300)])
    plain = in_turn([range(1000), range(100), range(300)], 1)
    of_input = in_turn([[0] * 1000, [1] * 100, [2] * 300], 1)
    assert values(ds) == [v for v, i in zip(plain, of_input) if i != 1 or v % 2 == 0]
    batches = [b["value"].tolist() for b in ds.shuffle().batch(32).iterator(seed=1)]
    for n in (0, 7, 40):
        first = ds.shuffle().batch(32).iterator(seed=1)
        assert [next(first)["value"].tolist() for _ in range(n)] == batches[:n]
        rest = ds.shuffle().batch(32).iterator(seed=1, threads=1)
        rest.load_state_dict(first.state_dict())
        assert [b["value"].tolist() for b in rest] == batches[n:]


def test_interleave_is_refused():
    with pytest.raises(cachew.Error, match="interleave: block_length is 0: expected"):
        Dataset.interleave([SOURCE], block_length=0)
    with pytest.raises(cachew.Error, match='interleave: component "x" is not in all inputs'):
        Dataset.interleave([SOURCE, SOURCE.assign(x="1")])
    with pytest.raises(cachew.Error, match="interleave: input 1 is a stream"):
        list(Dataset.interleave([SOURCE, Dataset.iterable(lambda: [], outputs={"value": "int64"})]))
