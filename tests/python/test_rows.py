"""Operators on the rows of an epoch, against plain Python loops: enumerate."""

import json

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
        (lambda: FILTERED.enumerate().shuffle(), "shuffle: comes after a take, skip or enumerate"),
        (lambda: SOURCE.enumerate(start=2.5), "enumerate: start is 2.5: expected an integer"),
    ],
)  # fmt: skip
def test_enumerate_is_refused(ds, message):
    with pytest.raises(cachew.Error) as caught:
        list(ds())
    assert message in str(caught.value)
