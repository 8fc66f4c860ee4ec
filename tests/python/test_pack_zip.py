"""`pack` and `zip` on examples worked out by hand."""

from pathlib import Path

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


def packed(lengths, length, **attributes):
    """The rows of pack, each the list of the numbers of the sequences in it."""
    tokens = lambda e: {"t": np.full(e["n"], e["i"], np.int32)}  # noqa: E731
    arrays = {"n": np.array(lengths), "i": np.arange(1, len(lengths) + 1)}
    dataset = Dataset.arrays(arrays).map(tokens, outputs={"t": ("int32", [None])})
    return [
        [int(row["t"][row["segment_ids"] == k][0]) for k in range(1, row["segment_ids"].max() + 1)]
        for row in dataset.pack("t", length, **attributes)
    ]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"algorithm": "next"}, [[1], [2, 3], [4, 5]]),
        ({"algorithm": "first_fit"}, [[1, 3, 5], [2], [4]]),
        ({"algorithm": "best_fit"}, [[1, 4, 5], [2, 3]]),
        ({"algorithm": "best_fit", "bins": 1}, [[1], [2, 3], [4, 5]]),
        ({"algorithm": "first_fit", "window": 3}, [[1, 3], [2], [4, 5]]),
    ],
)
def test_pack_chooses_a_row(attributes, expected):
    assert packed([5, 8, 2, 4, 1], 10, split=False, **attributes) == expected


def test_pack_first_fit_and_best_fit_differ():
    assert packed([5, 8, 2], 10, algorithm="first_fit") == [[1, 3], [2]]
    assert packed([5, 8, 2], 10, algorithm="best_fit") == [[1], [2, 3]]


def test_pack_closes_the_fullest_row():
    # the third row closes the second, whose room the last sequence would have fitted
    assert packed([5, 7, 9, 3, 5], 10, algorithm="first_fit", bins=2) == [[1, 4], [2], [3], [5]]


def test_pack_cuts_only_what_is_longer_than_a_row():
    # full rows take no bin: the first row stays open
    assert packed([3, 25, 7, 5], 10, algorithm="best_fit", bins=1) == [[1, 2], [2], [2], [3], [4]]


def paragraphs():
    docs = Path(__file__).parents[2] / "docs"
    return [len(p) for page in sorted(docs.glob("*.md")) for p in page.read_text().split("\n\n")]


@pytest.mark.parametrize("algorithm", ["first_fit", "best_fit"])
def test_pack_of_documents(algorithm):
    lengths, length, bins = [n for n in paragraphs() if 0 < n <= 1000][:1024], 1000, 16
    rows, opened = [], []  # a plain implementation: the numbers in each row; the open rows
    room = lambda row: length - sum(lengths[i - 1] for i in row)  # noqa: E731
    for i, n in enumerate(lengths, 1):
        fitting = [row for row in opened if room(row) >= n]
        if fitting:
            row = fitting[0] if algorithm == "first_fit" else min(fitting, key=room)
            row.append(i)
        else:
            rows.append([i])
            opened.append(rows[-1])
            if len(opened) > bins and room(rows[-1]):
                opened.remove(min(opened[:-1], key=room))
        opened = [row for row in opened if room(row)]
    assert packed(lengths, length, split=False, algorithm=algorithm) == rows
    assert len(rows) < len(packed(lengths, length, split=False))


def test_pack_checks_its_attributes():
    with pytest.raises(cachew.PipelineError, match='algorithm is "worst".*"next", "first_fit"'):
        list(documents().pack("t", 4, algorithm="worst"))
    with pytest.raises(cachew.PipelineError, match="bins is 0: expected an integer, from 1 to 1024"):
        list(documents().pack("t", 4, algorithm="first_fit", bins=0))
    with pytest.raises(cachew.RecordError, match="t has 4 tokens: expected at most length, 3"):
        list(documents().pack("t", 3, algorithm="best_fit", split=False))


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
