"""What Python functions are known by, and states of runs with them."""

import collections
import collections.abc
import dataclasses
import json
import os
import pickle
import random
import re

import cloudpickle
import pytest

import cachew
from cachew import Dataset
from cachew._identity import identity_of
from function_runs import numbers, run_python, values


def test_state_goes_on_with_functions():
    ds = (
        Dataset.range(900)
        .shuffle()
        .map(lambda e, rng: {"value": e["value"], "x": rng.random()})
        .flat_map(lambda e: [e] * (int(e["value"]) % 3), outputs={"value": "int64", "x": "float64"})
        .batch(16)
    )
    batches = [b.hash() for b in ds.iterator(epochs=2)]
    dice = random.Random(1)
    for _ in range(10):
        k = dice.randrange(len(batches) + 1)
        with ds.iterator(epochs=2, threads=dice.choice([1, 2, 4])) as it:
            head = [next(it).hash() for _ in range(k)]
            state = it.state_dict()
        assert len(json.dumps(state)) <= 1024
        with ds.iterator(epochs=2, threads=dice.choice([1, 3]), state=state) as it:
            assert head + [b.hash() for b in it] == batches


@pytest.mark.large
@pytest.mark.parametrize("after", [71, 130, 1000])
def test_what_an_iterable_raises_behind_a_full_take_is_not_seen(after):
    def breaks():
        yield from ({"value": i} for i in range(after))
        raise OSError("dry")

    ds = Dataset.iterable(breaks).take(70)
    for threads in (1, 3):
        assert values(ds.batch(10), threads=threads) == values(ds, threads=threads) == list(range(70))
    with pytest.raises(cachew.DataError, match="dry"):
        list(Dataset.iterable(breaks).take(after + 1).batch(10))


@pytest.mark.large
def test_iterable_state_goes_on():
    ds = Dataset.iterable(numbers).shuffle(window=100).batch(30)
    batches = [b.hash() for b in ds]
    for k in (0, 1, 17, 33):
        with ds.iterator() as it:
            head = [next(it).hash() for _ in range(k)]
            state = it.state_dict()
        assert head + [b.hash() for b in ds.iterator(state=state)] == batches


def test_a_dataset_with_functions_pickles():
    ds = Dataset.range(50).map(lambda e: {"value": e["value"] * 2}).batch(8)
    assert values(pickle.loads(pickle.dumps(ds))) == values(ds)
    assert repr(pickle.loads(pickle.dumps(ds))) == repr(ds)


SPAWNED = """
import json, multiprocessing, sys
import numpy as np
from cachew import Dataset

K = 7

class Plus:
    def __init__(self, n): self.n = n
    def __call__(self, e): return {"value": e["value"] + self.n + K}

def double(e): return {"value": e["value"] * 2 + K}

def dataset(): return Dataset.range(10).map(double).map(Plus(1)).batch(5)

def child(state):
    first = next(dataset().iterator())["value"].tolist()
    print(first, next(dataset().iterator(state=state))["value"].tolist(), flush=True)

if __name__ == "__main__":
    with dataset().iterator() as it:
        next(it)
        state = it.state_dict()
    process = multiprocessing.get_context(sys.argv[1]).Process(target=child, args=(state,))
    process.start()
    process.join()
    print(process.exitcode)
"""


@pytest.mark.large
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_functions_of_the_script_work_in_processes_that_it_spawned(script, method):
    ran = script(SPAWNED, method)
    assert ran.stdout.split("\n") == ["[15, 17, 19, 21, 23] [25, 27, 29, 31, 33]", "0", ""], ran.stderr


IDENTITY = """
import numpy as np
from cachew._identity import identity_of
TABLE = {"b": 2, "a": 1}
WORDS = {"some", "words", "in", "a", "set", "of", "texts"}
def helper(x): return x in {"alpha", "beta", "gamma", "delta"} and TABLE["a"]
class Thing:
    def __init__(self, n): self.n = n; self.rng = np.random.default_rng()
    def __call__(self, e): return helper(e) + self.n
def outer(k):
    a = np.arange(k)
    return lambda e, w=("x", 1.5): (helper(e), a, WORDS, [y for y in {"p", "q", "r"}], w)
print(identity_of(outer(4)), identity_of(Thing(3)), identity_of(np.sqrt), identity_of(str.upper))
"""


def test_identity_is_the_same_in_every_process():
    seen = {
        run_python(IDENTITY, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2", "3", "random")
    }
    assert len(seen) == 1
    assert len(set(seen.pop().split())) == 4


LIMIT = 5


def uses_global(e):
    return e["value"] < LIMIT


def test_identity_sees_constants_defaults_closures_globals_and_callees(monkeypatch):
    def make(k, default=1):
        def inner(e, d=default):
            return e["value"] + k + d

        return inner

    assert identity_of(make(1)) == identity_of(make(1)) != identity_of(make(2))
    assert identity_of(make(1)) != identity_of(make(1, 2))
    assert identity_of(lambda e: e["value"] + 1) != identity_of(lambda e: e["value"] + 2)
    assert identity_of(lambda e: e["value"] in {1, 2}) != identity_of(lambda e: e["value"] in {1, 3})
    before = identity_of(uses_global)
    monkeypatch.setitem(globals(), "LIMIT", 6)
    assert identity_of(uses_global) != before
    recursive: list = []
    recursive.append(recursive)
    assert identity_of(lambda e: recursive) == identity_of(lambda e: recursive)


DIGITS = re.compile(r"\d+")


class Kept(collections.abc.Sequence):
    """What sequence() takes, of the user's own."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"value": i * 2}


def test_patterns_have_an_identity_and_work():
    assert identity_of(re.compile("a")) == identity_of(re.compile("a")) != identity_of(re.compile("b"))
    assert identity_of(re.compile("a")) != identity_of(re.compile("a", re.IGNORECASE))
    assert values(Dataset.range(3).map(lambda e: {"value": len(DIGITS.findall("a1" * e["value"]))})) == [
        0,
        1,
        2,
    ]


def test_abstract_classes_have_an_identity_and_work():
    assert identity_of(Kept(3)) == identity_of(Kept(3)) != identity_of(Kept(4))
    assert values(Dataset.sequence(Kept(4))) == [0, 2, 4, 6]


def test_views_have_the_identity_of_what_they_show():
    assert identity_of(memoryview(b"ab")) == identity_of(memoryview(b"ab")) != identity_of(memoryview(b"ac"))
    one, two = {"a": 1, "b": 2}, {"a": 1, "b": 3}
    assert identity_of(one.keys()) == identity_of(two.keys()) != identity_of({"b": 1, "a": 2}.keys())
    assert identity_of(one.values()) != identity_of(two.values()) and identity_of(one.items()) != identity_of(
        two.items()
    )
    shown = one.values()
    assert values(Dataset.range(2).map(lambda e: {"value": e["value"] + sum(shown)})) == [3, 4]


def test_identity_does_not_change_when_an_object_is_pickled():
    class Fresh:
        def __init__(self):
            self.n = 1

    before = identity_of(Fresh())
    cloudpickle.dumps(Fresh())
    assert "__slotnames__" in vars(Fresh) and identity_of(Fresh()) == before


@dataclasses.dataclass
class Annotated:
    """Classes carry their annotations with them."""

    size: tuple[int | None, ...] | None
    names: dict[str, list[int]] | None = None

    def __call__(self, e):
        return {"value": e["value"] + len(self.size or ())}


def test_annotations_have_an_identity():
    assert identity_of(Annotated((1,))) == identity_of(Annotated((1,))) != identity_of(Annotated(None))
    assert identity_of(list[int]) != identity_of(list[str]) != identity_of(tuple[str])
    assert identity_of(int | None) != identity_of(int | str)
    assert values(Dataset.range(3).map(Annotated((1,)))) == [1, 2, 3]


def test_a_state_of_another_function_is_refused():
    def state_of(function, **options):
        with Dataset.range(100).map(function, **options).batch(10).iterator() as it:
            next(it)
            return it.state_dict()

    state = state_of(lambda e: {"value": e["value"] + 1})
    with pytest.raises(cachew.StateError, match="another pipeline"):
        Dataset.range(100).map(lambda e: {"value": e["value"] + 2}).batch(10).iterator(state=state)
    Dataset.range(100).map(lambda e: {"value": e["value"] + 1}, timeout_s=5).batch(10).iterator(
        state=state
    ).close()
    named = state_of(lambda e: {"value": e["value"] + 1}, version="1")
    Dataset.range(100).map(lambda e: {"value": e["value"] + 3}, version="1").batch(10).iterator(
        state=named
    ).close()
