"""`group` of `bucket_by_length`: batches of one bucket for ranks that step together."""

import json
from pathlib import Path

import numpy as np
import pytest

import cachew
from cachew import Dataset

BOUNDARIES, SIZES = [5, 12, 30], [9, 7, 4, 3]


def sentences():
    docs = Path(__file__).parents[2] / "docs"
    texts = " ".join(page.read_text() for page in sorted(docs.glob("[a-h]*.md"))).split(". ")
    return np.array([len(text.split()) for text in texts], np.int32)


def dataset(**attributes):
    lengths = sentences()
    arrays = {"n": lengths, "i": np.arange(len(lengths))}
    return Dataset.arrays(arrays).bucket_by_length("n", BOUNDARIES, SIZES, **attributes)


def bucket(lengths):
    return int(np.searchsorted(BOUNDARIES, max(lengths), side="right"))


def plain(group, remainder, drop_remainder=False):
    """The batches of a plain loop: the bucket and the elements of each."""
    lengths, waiting, batches = sentences(), [[] for _ in SIZES], []

    def give(k, sizes):
        for size in sizes:
            batches.append((k, waiting[k][:size]))
            del waiting[k][:size]

    for i, n in enumerate(lengths):
        k = sum(n >= b for b in BOUNDARIES)
        waiting[k].append(i)
        if len(waiting[k]) == group * SIZES[k]:
            give(k, [SIZES[k]] * group)
    for k in range(len(SIZES)) if remainder != "drop" else []:
        while len(waiting[k]) >= group * SIZES[k]:
            give(k, [SIZES[k]] * group)
        last, n = k + 1 == len(SIZES), len(waiting[k])
        if not drop_remainder and n and (last or (remainder == "pad" and n >= group)):
            give(k, [len(part) for part in np.array_split(range(n), min(n, group))])
        elif not last:
            waiting[k + 1] += waiting[k]
    return batches


@pytest.mark.parametrize("group", [2, 8])
@pytest.mark.parametrize("remainder", ["next", "pad", "drop"])
def test_batches_are_those_of_a_plain_loop(group, remainder):
    found = [b["i"].tolist() for b in dataset(group=group, remainder=remainder)]
    assert found == [elements for _, elements in plain(group, remainder)]
    if remainder != "drop":
        assert sorted(sum(found, [])) == list(range(len(sentences())))


def test_only_full_batches():
    found = [b["i"].tolist() for b in dataset(group=4, drop_remainder=True)]
    assert found == [elements for _, elements in plain(4, "next", True)]
    assert len(found) % 4 == 0


def test_a_group_of_one_changes_nothing():
    plain_batches = [b["i"].tolist() for b in dataset()]
    for remainder in ("next", "pad"):
        assert [b["i"].tolist() for b in dataset(group=1, remainder=remainder)] == plain_batches
    dropped = [b["i"].tolist() for b in dataset(drop_remainder=True)]
    assert [b["i"].tolist() for b in dataset(remainder="drop")] == dropped != plain_batches


@pytest.mark.parametrize("world_size", [4, 2])
def test_the_batches_of_a_step_have_one_bucket(world_size):
    ds = dataset(group=4, remainder="drop")
    ranks = [list(ds.iterator(rank=r, world_size=world_size)) for r in range(world_size)]
    steps = list(zip(*ranks))
    assert all(len(rank) == len(steps) for rank in ranks)
    for step in steps:
        assert len({bucket(batch["n"]) for batch in step}) == 1
    assert len({bucket(step[0]["n"]) for step in steps}) > 2


@pytest.mark.parametrize("remainder", ["next", "pad"])
def test_resumes_in_a_group_and_at_the_end(remainder):
    ds = dataset(group=3, remainder=remainder)
    everything = [b["i"].tolist() for b in ds]
    n = len(everything)
    for stop in sorted({1, 2, 3, n // 2, n // 2 + 1, n // 2 + 2, n - 5, n - 4, n - 3, n - 2, n - 1}):
        first = ds.iterator()
        found = [next(first)["i"].tolist() for _ in range(stop)]
        state = json.loads(json.dumps(first.state_dict()))
        assert ("group" in state) == (stop % 3 != 0)
        second = ds.iterator(threads=3)
        second.load_state_dict(state)
        assert found + [b["i"].tolist() for b in second] == everything, stop


def test_moved_elements_are_padded_to_their_new_bucket():
    tokens = lambda e: {"t": np.full(e["n"], 7, np.int32)}  # noqa: E731
    ds = Dataset.arrays({"n": np.array([1, 2, 3, 8, 8], np.int32)})
    ds = ds.map(tokens, outputs={"t": ("int32", [None])})
    ds = ds.bucket_by_length("length(t)", [5, 20], [2, 2, 2], group=2, pad="boundary")
    # 1, 2 and 3 go to the bucket up to 19, where the 8s come first, and fill a group; the 3 goes on
    assert [(b["t"].shape, (b["t"] == 7).sum(axis=1).tolist()) for b in ds] == [
        ((2, 19), [8, 8]),
        ((2, 19), [1, 2]),
        ((1, 3), [3]),
    ]


@pytest.mark.parametrize("remainder", ["next", "pad"])
def test_a_service_gives_the_same_batches(remainder):
    ds = Dataset.range(4000).shuffle().assign(n="value * 7919 % 37").filter("n % 5 > 0")
    ds = ds.bucket_by_length("n", BOUNDARIES, SIZES, group=4, remainder=remainder)
    expected = [b["value"].tolist() for b in ds.iterator(seed=2)]
    with ds.distribute("local", seed=2) as batches:
        assert [b["value"].tolist() for b in batches] == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dataset(group=0), "group is 0: expected an integer, from 1 to 1024"),
        (lambda: dataset(group=2, remainder="wrap"), 'remainder is "wrap"'),
        (
            lambda: dataset(group=2, remainder="pad", drop_remainder=True),
            'remainder is "pad": expected "next" or "drop", because drop_remainder',
        ),
        (lambda: dataset(group=4).skip(2), "count is 2: expected a multiple of 4, the group of bucket_by_"),
    ],
)
def test_wrong_attributes(make, message):
    with pytest.raises(cachew.PipelineError, match=message):
        list(make())


def test_ranks_that_do_not_divide_the_group():
    with pytest.raises(cachew.Error, match="world size 3: expected a divisor of 4, the group of bucket"):
        next(dataset(group=4).iterator(rank=0, world_size=3))


def test_a_damaged_state():
    ds = dataset(group=3)
    first = ds.iterator()
    next(first)
    for group in ("9:1", "0:3", "x"):
        with pytest.raises(cachew.Error, match=f'state: group is "{group}", so the state is damaged'):
            ds.iterator().load_state_dict(first.state_dict() | {"group": group})
