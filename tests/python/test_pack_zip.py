"""`pack` and `zip` on examples worked out by hand."""

import numpy as np
import pytest

import cachew
from cachew import Dataset

SEQUENCES = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


def documents():
    tokens = lambda element: {"t": np.array(SEQUENCES[element["value"]], np.int32)}  # noqa: E731
    return Dataset.range(3).map(tokens, outputs={"t": ("int32", [None])})


def rows(dataset):
    return [tuple(e[name].tolist() for name in ("t", "segment_ids", "positions")) for e in dataset]


def test_pack_splits_sequences():
    assert rows(documents().pack("t", 4)) == [
        ([1, 2, 3, 4], [1, 1, 1, 2], [0, 1, 2, 0]),
        ([5, 6, 7, 8], [1, 2, 2, 2], [0, 0, 1, 2]),
        ([9, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]),
    ]


def test_pack_moves_whole_sequences():
    assert rows(documents().pack("t", 6, split=False, separator=99, pad=-1)) == [
        ([1, 2, 3, 99, -1, -1], [1, 1, 1, 1, 0, 0], [0, 1, 2, 3, 0, 0]),
        ([4, 5, 99, -1, -1, -1], [1, 1, 1, 0, 0, 0], [0, 1, 2, 0, 0, 0]),
        ([6, 7, 8, 9, 99, -1], [1, 1, 1, 1, 1, 0], [0, 1, 2, 3, 4, 0]),
    ]


def test_pack_begins_anew_in_each_window():
    assert rows(documents().pack("t", 8, window=2)) == [
        ([1, 2, 3, 4, 5, 0, 0, 0], [1, 1, 1, 2, 2, 0, 0, 0], [0, 1, 2, 0, 1, 0, 0, 0]),
        ([6, 7, 8, 9, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0], [0, 1, 2, 3, 0, 0, 0, 0]),
    ]


def test_zip_stops_at_the_shortest():
    both = Dataset.zip([Dataset.range(5), Dataset.range(9, start=6).rename({"value": "other"})])
    assert [(int(e["value"]), int(e["other"])) for e in both] == [(0, 6), (1, 7), (2, 8)]
    assert both.schema.keys() == {"value", "other"}


def test_zip_of_shuffled_and_repeated_inputs():
    both = Dataset.zip([Dataset.range(6).shuffle(), Dataset.range(2).rename({"value": "b"}).repeat(-1)])
    for epoch in range(2):
        with both.iterator(seed=3, epochs=2) as elements:
            found = [(int(e["value"]), int(e["b"])) for e in elements]
        assert [b for _, b in found] == [0, 1] * 6
        assert sorted(a for a, _ in found[:6]) == sorted(a for a, _ in found[6:]) == list(range(6))
        assert found[:6] != found[6:], epoch


def test_zip_refuses_one_name_twice():
    with pytest.raises(cachew.PipelineError, match='"value" is in two inputs'):
        list(Dataset.zip([Dataset.range(5), Dataset.range(5)]))
