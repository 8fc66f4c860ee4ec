"""mix: elements of several inputs in proportion to weights; the order of each input is its own."""

import json
import random
from collections import Counter

import cachew
import numpy as np
import pytest
from cachew import Dataset

SECOND = 1_000_000  # of input i come the numbers from i * SECOND on


def inputs(lengths, seed=None):
    parts = [Dataset.range(k * SECOND + n, start=k * SECOND) for k, n in enumerate(lengths)]
    return parts if seed is None else [p.shuffle(seed=seed) for p in parts]


def values(ds, **options):
    return [int(v) for b in ds.batch(512).iterator(**options) for v in b["value"]]


def drawn(seed):
    """Weights and lengths: real, integer, of several orders of magnitude, decimal."""
    rng = random.Random(seed)
    n = rng.randint(1, 7)
    kind = [
        lambda: rng.uniform(0.01, 1),
        lambda: rng.randint(1, 9),
        lambda: 10 ** rng.uniform(-2, 1),
        lambda: rng.randint(1, 40) / 100,
    ][seed % 4]
    return [kind() for _ in range(n)], [rng.randint(1, 120) for _ in range(n)]


def check_prefixes(weights, sequence):
    """Of each prefix, the number of elements of each input is less than one from its share."""
    came = np.zeros((len(sequence), len(weights)))
    came[np.arange(len(sequence)), np.array(sequence) // SECOND] = 1
    shares = np.outer(np.arange(1, len(sequence) + 1), np.array(weights) / sum(weights))
    assert (np.abs(came.cumsum(axis=0) - shares) < 1 - 1e-9).all(), weights


@pytest.mark.parametrize("block", range(10))
def test_prefixes(block):
    for seed in range(25 * block, 25 * block + 25):
        weights, lengths = drawn(seed)
        for stop in ("first", "last"):
            sequence = values(Dataset.mix(inputs(lengths), weights, stop=stop))
            check_prefixes(weights, sequence)
            of = [[v - k * SECOND for v in sequence if v // SECOND == k] for k in range(len(lengths))]
            for n, mine in zip(lengths, of):  # in its own order, pass after pass
                assert mine == [i % n for i in range(len(mine))]
            if stop == "first":  # some input has no element left, and none gave one twice
                assert all(len(mine) <= n for n, mine in zip(lengths, of))
                assert any(len(mine) == n for n, mine in zip(lengths, of))
                more = values(Dataset.mix(inputs(lengths), weights, stop="never").take(len(sequence) + 1))
                assert more[:-1] == sequence
                k = more[-1] // SECOND
                assert more[-1] == k * SECOND and lengths[k] == len(of[k])  # its next pass begins
            else:  # all elements came, and the last one only now
                assert all(len(mine) >= n for n, mine in zip(lengths, of))
                k = sequence[-1] // SECOND
                assert len(of[k]) == lengths[k]


def test_two_equal_inputs_alternate():
    assert values(Dataset.mix(inputs([3, 3]), [1, 1])) == [0, SECOND, 1, SECOND + 1, 2, SECOND + 2]
    assert values(Dataset.mix(inputs([3, 5]), [0.5, 0.5])) == [0, SECOND, 1, SECOND + 1, 2, SECOND + 2]
    assert [v % SECOND for v in values(Dataset.mix(inputs([2, 5]), [1, 1], stop="last"))] == [
        *(0, 0, 1, 1),
        *(0, 2, 1, 3),
        *(0, 4),
    ]


@pytest.mark.parametrize("weights", [[7, 2, 1], [0.123, 0.456, 0.789]])
def test_each_input_keeps_its_own_order(weights):
    lengths = [50, 40, 30]
    for epoch in range(2):
        alone = [values(p, seed=5, epochs=2)[epoch * n :][:n] for p, n in zip(inputs(lengths, 3), lengths)]
        mixed = values(Dataset.mix(inputs(lengths, 3), weights), seed=5, epochs=2)
        half = mixed[epoch * len(mixed) // 2 :][: len(mixed) // 2]
        for k, n in enumerate(lengths):
            mine = [v for v in half if v // SECOND == k]
            assert mine == alone[k][: len(mine)] and len(mine) <= n


def test_an_input_that_begins_again_is_shuffled_anew():
    ds = Dataset.mix([p.shuffle() for p in inputs([10, 100])], [1, 1], stop="last")
    sequence = values(ds, seed=2)
    mine = [v for v in sequence if v < SECOND]
    passes = [mine[at : at + 10] for at in range(0, len(mine), 10)]
    assert len(mine) == 100 and all(sorted(p) == list(range(10)) for p in passes)
    assert len(set(map(tuple, passes))) == 10
    assert sorted(v for v in sequence if v >= SECOND) == list(range(SECOND, SECOND + 100))


def test_draws_differ_from_pass_to_pass():
    part = Dataset.range(4).map(lambda e, rng: {"value": rng.integers(1 << 40)}, outputs={"value": "int64"})
    other = Dataset.range(20)
    drawn = [v for v in values(Dataset.mix([part, other], [1, 1], stop="last")) if v >= 20]
    assert len(drawn) == len(set(drawn)) == 20


def test_a_shuffle_of_all():
    for stop in ("first", "last"):
        mixed = Dataset.mix(inputs([300, 200, 7], 1), [5, 3, 0.1], stop=stop)
        plain, shuffled = values(mixed, seed=1), values(mixed.shuffle(), seed=1)
        assert Counter(plain) == Counter(shuffled) and plain != shuffled
        late = sum(v // SECOND for v in shuffled[len(shuffled) // 2 :])
        assert 0.3 < late / sum(v // SECOND for v in shuffled) < 0.7


def test_a_filter_does_not_change_whose_turn_it_is():
    kept = inputs([100])[0].filter("value % 2 == 0")
    sequence = values(Dataset.mix([kept, inputs([1, 100])[1]], [1, 1]))
    assert [v for v in sequence if v < SECOND] == list(range(0, 100, 2))
    assert sum(v >= SECOND for v in sequence) == 100


def pipelines():
    parts = [p.shuffle() for p in inputs([200, 31, 90])]
    return {
        "first": Dataset.mix(parts, [6, 1, 3]).batch(7),
        "last": Dataset.mix(parts, [0.6, 0.17, 0.3], stop="last").batch(7),
        "shuffle": Dataset.mix(parts, [6, 1, 3], stop="last").shuffle().batch(7),
        "filter": Dataset.mix([parts[0].filter("value % 3 > 0"), *parts[1:]], [6, 1, 3]).batch(7),
        "nested": Dataset.mix([Dataset.concat(parts[:2]), Dataset.mix(parts, [1, 1, 1])], [2, 1]).batch(7),
    }


def batches(iterator):
    return [b["value"].tolist() for b in iterator]


@pytest.mark.parametrize("name", list(pipelines()))
@pytest.mark.parametrize("ranks", range(1, 8))
def test_ranks(name, ranks):
    ds = pipelines()[name]
    whole = batches(ds.iterator(seed=4, epochs=2))
    of = [batches(ds.iterator(seed=4, epochs=2, rank=r, world_size=ranks)) for r in range(ranks)]
    rounds = len(of[0])
    assert all(len(mine) == rounds for mine in of)
    delivered = [of[g % ranks][g // ranks] for g in range(rounds * ranks)]
    per_epoch = len(whole) // 2
    padded = -(-per_epoch // ranks) * ranks
    for epoch in range(2):
        assert delivered[epoch * padded :][:per_epoch] == whole[epoch * per_epoch :][:per_epoch]


@pytest.mark.parametrize("name", list(pipelines()))
def test_resume(name):
    ds = pipelines()[name]
    iterator = ds.iterator(seed=4, epochs=2)
    states, whole = [iterator.state_dict()], []
    for batch in iterator:
        whole.append(batch["value"].tolist())
        states.append(iterator.state_dict())
    points = range(0, len(states), max(1, len(states) // 20))
    for at in points:
        resumed = ds.iterator(seed=4, epochs=2, threads=1 + at % 2)
        resumed.load_state_dict(json.loads(json.dumps(states[at])))
        assert batches(resumed) == whole[at:]


def test_service():
    for ds in pipelines().values():
        with ds.distribute("local", seed=4, epochs=2) as loader:
            assert batches(loader) == batches(ds.iterator(seed=4, epochs=2))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1], "weights has 1 values: expected 2, one for each input"),
        ([1, 2, 3], "weights has 3 values: expected 2"),
        ([1, 0], "weights is [1,0]: expected a list of numbers, at least 1e-12"),
        ([1, -2.5], "weights is [1,-2.5]"),
        ([1, float("nan")], "weights"),
        ([1, float("inf")], "weights"),
        ([1e-9, 1], "the weight of input 0 is 1e-09, 1e-09 of the sum of all weights: expected at least"),
        (["a", 1], "weights"),
    ],
)
def test_wrong_weights(weights, message):
    with pytest.raises((cachew.Error, ValueError)) as caught:
        values(Dataset.mix(inputs([5, 5]), weights))
    assert message in str(caught.value)


A, B = inputs([5, 5])
LAST = Dataset.mix([A, B], [1, 1], stop="last")


def stream():
    yield {"value": 1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dataset.mix([A, B.take(0)], [1, 1], stop="last"), "mix: input 1 has no elements"),
        (lambda: LAST.repeat(2), "repeat: comes after a mix whose exhausted inputs begin again"),
        (lambda: Dataset.mix([A, LAST], [1, 1], stop="never"), "mix: comes after a mix whose exhausted"),
        (lambda: Dataset.mix([A, B], [1, 1], stop="never").shuffle(), "write shuffle inside each input"),
        (lambda: Dataset.mix([A, B.rename({"value": "x"})], [1, 1]), "mix: component"),
        (
            lambda: Dataset.mix([A, Dataset.iterable(stream, outputs={"value": "int64"})], [1, 1]),
            "mix: input 1 is a stream",
        ),
        (lambda: Dataset.mix([A, B], [1, 1], stop="third"), "stop"),
    ],
)
def test_refused(make, message):
    with pytest.raises(cachew.Error) as caught:
        next(iter(make().batch(2)))
    assert message in str(caught.value)


def test_inputs_without_elements_and_without_end():
    assert values(Dataset.mix([A, B.take(0)], [1, 1])) == [0]
    assert len(values(Dataset.mix([A.repeat(-1), B], [1, 1]))) == 11
