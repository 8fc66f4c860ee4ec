"""State: a run that is stopped after any batch, and goes on elsewhere, gives what it would have given."""

import io
import json
import pickle
import random
import subprocess
import sys
import tarfile

import cachew
import numpy as np
import pytest
from cachew import Dataset
from deadlines import HANG_S

EPOCHS = 2
STOPS = 40  # of each of the five pipelines
IN_FRESH_PROCESSES = 5  # of them
SEED = 11


def noisy(element, rng):
    return {**element, "noise": rng.random(2)}


def pieces(element):
    return [{**element, "piece": np.int64(i)} for i in range(int(element["value"]) % 3)]


def lucky(element, rng):
    return rng.random() < 0.8


def ranked(batch, rng):
    return {**batch, "rank": rng.permutation(len(batch["value"]))}


def shuffled(_directory):
    """More records than are permuted one by one: chunks and windows."""
    return Dataset.range(70_000).shuffle().assign(square="value * value").batch(700)


def filtered(_directory):
    """Batches straddle ranges."""
    return Dataset.range(6_000).shuffle().filter("value % 7 < 3").batch(24)


def of_tar(directory):
    for k, mode in enumerate(["w", "w:gz"]):
        with tarfile.open(directory / f"part-{k}.tar{mode[1:].replace(':', '.')}", mode) as tar:
            for i in range(300):
                for name, data in ((f"{i:04}.txt", b"t" * (i % 13)), (f"{i:04}.id", b"%d" % (1000 * k + i))):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    components = {"txt": "bytes", "id": "int64"}
    return Dataset.tar(str(directory / "part-*"), components).shuffle().batch(10)


def of_functions(_directory):
    return (
        Dataset.range(1_200).shuffle().map(noisy).flat_map(pieces).filter(lucky).batch(16).map_batches(ranked)
    )


def concatenated(_directory):
    parts = [
        Dataset.range(700).shuffle(),
        Dataset.range(2_000).filter("value % 5 != 1"),
        Dataset.range(300).take(222),
    ]
    return Dataset.concat(parts).shuffle().repeat(2).batch(48)


def zipped(_directory):
    values, keys = Dataset.range(3_000).shuffle(), Dataset.range(900).rename({"value": "key"}).repeat(-1)
    return Dataset.zip([values, keys]).shuffle().batch(16)


def packed(_directory):
    sequences = Dataset.synthetic(4_000, shape=[7], dtype="int32").filter("max(data) % 5 != 0")
    return sequences.shuffle().pack("data", 30, separator=1, window=50).batch(8)


def lines(iterator, most=None):
    """(epoch, g, hash) of the next batches."""
    found = []
    for batch in iterator:
        found.append((batch.epoch, batch.g, batch.hash()))
        if len(found) == most:
            break
    return found


def digest(batches):
    return sum(h for _, _, h in batches) % 2**128


IN_A_FRESH_PROCESS = """
import pickle, sys
ds, options, state = pickle.loads(sys.stdin.buffer.read())
with ds.iterator(**options, state=state) as batches:
    print([(b.epoch, b.g, b.hash()) for b in batches])
"""


def rest_in_a_fresh_process(ds, options, state):
    given = pickle.dumps((ds, options, state))
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_FRESH_PROCESS],
        input=given,
        capture_output=True,
        check=False,
        timeout=HANG_S,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return [tuple(line) for line in json.loads(ran.stdout.replace(b"(", b"[").replace(b")", b"]"))]


@pytest.mark.large
@pytest.mark.parametrize("make", [shuffled, filtered, of_tar, of_functions, concatenated, zipped, packed])
def test_continued_is_uninterrupted(make, tmp_path):
    rng = random.Random(make.__name__)
    ds = make(tmp_path)
    options = {"seed": SEED, "epochs": EPOCHS}
    with ds.iterator(**options, threads=2) as iterator:
        whole = lines(iterator)
    assert len(whole) > 2 * STOPS and {epoch for epoch, _, _ in whole} == set(range(EPOCHS))
    stops = sorted(rng.sample(range(len(whole) + 1), STOPS))
    fresh = set(rng.sample(stops, IN_FRESH_PROCESSES))
    with ds.iterator(**options, threads=2) as iterator:
        head = []
        for stop in stops:
            head += lines(iterator, stop - len(head)) if stop > len(head) else []
            state = json.dumps(iterator.state_dict())
            assert len(state) <= 1024
            threads = rng.choice([1, 3, 5])
            if stop in fresh:
                rest = rest_in_a_fresh_process(ds, {**options, "threads": threads}, state)
            else:
                rest = rest_with_another_stop(ds, {**options, "threads": threads}, state, rng.randint(0, 20))
            assert head + rest == whole, (stop, threads, state)
            assert (digest(head) + digest(rest)) % 2**128 == digest(whole)


def rest_with_another_stop(ds, options, state, most):
    """What is left, with one more stop on the way: the state of a continued run is as good as any."""
    with ds.iterator(**options, state=state) as iterator:
        found = lines(iterator, most) if most else []
        state = iterator.state_dict()
    with ds.iterator(**{**options, "threads": 2}) as iterator:
        iterator.load_state_dict(state)
        return found + lines(iterator)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"g": 10**9}, "g is 1000000000: expected at most 10, "),
        ({"position": 10**9}, "position is 1000000000: expected at most 100, "),
        ({"epoch": 2**70}, "epoch is 1.1805916207174113e[+]21: expected an integer"),
    ],
)
def test_a_number_that_can_not_be_is_named(change, message):
    """A g behind the data was taken as it is, and an epoch of more than 64 bits was "not valid JSON"."""
    ds = Dataset.range(100).batch(10)
    with ds.iterator() as iterator:
        next(iterator)
        state = iterator.state_dict()
    with pytest.raises(cachew.StateError, match=message):
        ds.iterator(state={**state, **change})


def test_states_at_the_ends():
    ds = Dataset.range(100).shuffle().batch(10)
    with ds.iterator(seed=1) as iterator:
        begin = iterator.state_dict()
        whole = lines(iterator)
        end = iterator.state_dict()
    assert lines(ds.iterator(seed=1, state=begin)) == whole
    assert lines(ds.iterator(seed=1, state=end)) == []
    assert [epoch for epoch, _, _ in lines(ds.iterator(seed=1, state=end, epochs=2))] == [1] * 10
    with pytest.raises(cachew.StateError):
        ds.iterator(seed=2, state=begin)
