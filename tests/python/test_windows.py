"""`window`: against a plain loop over the elements."""

import numpy as np
import pytest

import cachew
from cachew import Dataset


def values(n, size, shift=0, stride=1, drop_remainder=True):
    """The definition: the positions of the elements of each window."""
    shift = shift or size
    windows = [[w + i * stride for i in range(size) if w + i * stride < n] for w in range(0, n, shift)]
    return [w for w in windows if len(w) == size or not drop_remainder]


@pytest.mark.parametrize("n", [0, 1, 7, 10, 103])
@pytest.mark.parametrize(
    ("size", "more"),
    [
        (1, {}),
        (5, {}),
        (5, {"shift": 1}),
        (4, {"shift": 7, "stride": 3}),
        (3, {"shift": 2, "stride": 4, "drop_remainder": False}),
        (10, {"drop_remainder": False}),
    ],
)
def test_windows_of_a_range(n, size, more):
    ds = Dataset.range(n).window(size, **more)
    expected = values(n, size, **more)
    assert [e["value"].tolist() for e in ds] == expected
    assert len(ds) == len(expected)
    batches = ds.batch(4, pad="longest")
    assert [len(row) for b in batches for row in b["value"]] == [
        max(map(len, expected[k // 4 * 4 : k // 4 * 4 + 4])) for k in range(len(expected))
    ]


def test_windows_are_elements_that_can_be_shuffled():
    ds = Dataset.range(60).assign(y="float32(value) / 4").window(6, shift=2).shuffle()
    windows = [e["value"].tolist() for e in ds.iterator(seed=1)]
    assert sorted(windows) == values(60, 6, 2) != windows
    assert [e["value"].tolist() for e in ds.iterator(seed=1)] == windows
    some = ds.filter("min(value) % 4 == 0").skip(2).take(5).batch(2)
    assert [r for b in some.iterator(seed=1) for r in b["value"].tolist()] == [
        w for w in windows if w[0] % 4 == 0
    ][2:7]


def test_windows_of_shuffled_and_repeated_elements():
    before = Dataset.range(10).shuffle()
    ds = before.repeat(2).window(5).repeat(2)
    with ds.iterator(seed=3) as elements:
        windows = [e["value"].tolist() for e in elements]
    assert len(windows) == 8
    for k in range(0, 8, 2):
        assert sorted(windows[k] + windows[k + 1]) == list(range(10))
    assert len({tuple(w) for w in windows}) == 8


def test_components_that_are_not_covered_are_those_of_the_first_element():
    names = [b"n%d" % i for i in range(9)]
    ds = Dataset.arrays({"x": np.arange(18).reshape(9, 2), "y": np.arange(9), "name": names})
    for w, element in enumerate(ds.window(3, components=["x"])):
        assert element["x"].tolist() == [[2 * i, 2 * i + 1] for i in range(3 * w, 3 * w + 3)]
        assert element["y"] == 3 * w and bytes(element["name"]) == names[3 * w]
    assert ds.window(3, components="x").schema["x"] != ds.schema["x"]


def test_draws_depend_on_window_and_element():
    images = Dataset.synthetic(12, shape=[8, 8, 3], dtype="uint8").random_crop("data", size=[3, 3])
    ds = images.window(4, shift=2)
    first, again = ([e["data"].copy() for e in ds.iterator(seed=s)] for s in (5, 5))
    assert len(first) == 5 and all((a == b).all() for a, b in zip(first, again, strict=True))
    one = [e["data"].copy() for e in ds.skip(2).take(1).iterator(seed=5)]
    assert (one[0] == first[2]).all()


def test_windows_of_zip_and_of_an_image_chain(records):
    both = Dataset.zip([Dataset.range(20), Dataset.range(140, start=100).rename({"value": "other"})])
    found = [(e["value"].tolist(), e["other"].tolist()) for e in both.assign(value="value + 1").window(2)]
    assert found == [([i + 1, i + 2], [i + 100, i + 101]) for i in range(0, 20, 2)]
    lines = Dataset.tfrecord(records / "plain-*.tfrecord").parse_example({"id": "int64"})
    ids = [int(e["id"]) for e in lines]
    assert [e["id"].tolist() for e in lines.window(3, shift=1)] == [
        ids[i : i + 3] for i in range(len(ids) - 2)
    ]


def test_a_window_with_a_failed_element_fails():
    numbers = Dataset.range(12).assign(x="10 // (value - 4)")
    with numbers.window(4, shift=2).batch(2).on_error("skip").iterator() as batches:
        assert [[w[0] for w in b["value"].tolist()] for b in batches] == [[0], [6], [8]]
        assert [r["operator"] for r in batches.quarantine()] == ["assign"] * 2
    with pytest.raises(
        cachew.RecordError, match=r"assign: integer division by zero .*\(record [0-9a-f]*:1\)"
    ):
        list(numbers.window(4))


def test_elements_of_different_shapes_fail():
    ragged = Dataset.range(9).map(
        lambda e: {"t": np.arange(int(e["value"]) % 3)}, outputs={"t": ("int64", [None])}
    )
    with pytest.raises(cachew.Error, match='component "t" differs in shape: element 1 of the window'):
        list(ragged.window(2))
    assert len(list(ragged.window(3, stride=3, shift=1, drop_remainder=True))) == 3


def test_any_number_of_threads_and_a_service_give_the_same(service, divided):
    ds = Dataset.range(3000).shuffle().assign(y="value * 2").window(7, shift=3).shuffle().batch(16)
    with ds.iterator(seed=2, epochs=2, threads=1) as batches:
        expected = [(b.epoch, b.g, b.hash()) for b in batches]
    with ds.iterator(seed=2, epochs=2, threads=3) as batches:
        assert [(b.epoch, b.g, b.hash()) for b in batches] == expected
    for up in (service, divided):
        with ds.distribute(up.address, seed=2, epochs=2) as batches:
            assert [(b.epoch, b.g, b.hash()) for b in batches] == expected
    with ds.iterator(seed=2, epochs=2) as batches:
        for _ in range(41):
            next(batches)
        state = batches.state_dict()
    with ds.iterator(seed=2, epochs=2, state=state) as batches:
        assert [(b.epoch, b.g, b.hash()) for b in batches] == expected[41:]


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: Dataset.range(9).filter("value > 1").window(2), ["window", "filter"]),
        (lambda: Dataset.range(9).window(2).window(2), ["comes after another window"]),
        (lambda: Dataset.range(9).batch(2).window(2), ["window", "batch"]),
        (lambda: Dataset.range(9).autocache().window(2), ["comes after a cache point"]),
        (lambda: Dataset.range(9).window(2).on_error("replace"), ["window", "replace"]),
        (lambda: Dataset.concat([Dataset.range(3)] * 2).window(2), ["several sources", "before concat"]),
        (lambda: Dataset.zip([Dataset.range(3).window(2)]), ["input 0 has a window"]),
        (lambda: Dataset.range(9).window(2, components=["valeu"]), ["valeu", "value"]),
        (lambda: Dataset.arrays({"b": [b"x"]}).window(1), ["components", '"b" has dtype bytes']),
        (lambda: Dataset.range(9).window(0), ["size is 0", "from 1 to"]),
    ],
)
def test_what_a_window_refuses(make, parts):
    with pytest.raises(cachew.PipelineError) as error:
        len(make())
    for part in parts:
        assert part in str(error.value)
