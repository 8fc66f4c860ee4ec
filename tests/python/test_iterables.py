"""Sources written in Python: iterables, sequences, generators."""

import os
import signal
import time

import pytest

import cachew
from cachew import Dataset
from deadlines import HANG_S
from function_runs import digest, hosts, numbers, values


def test_iterable_gives_its_elements_in_order():
    ds = Dataset.iterable(numbers).batch(64)
    assert values(ds, epochs=2) == [*range(1000), *range(1000)]
    assert digest(ds, threads=1) == digest(ds, threads=4, memory="4M")


def test_iterable_can_be_shuffled_filtered_and_limited():
    shuffled = values(Dataset.iterable(numbers).shuffle(window=64).batch(10))
    assert sorted(shuffled) == list(range(1000))
    assert shuffled != sorted(shuffled)
    assert values(Dataset.iterable(numbers).filter("value % 2 == 0").skip(5).take(7).batch(3)) == [
        10,
        12,
        14,
        16,
        18,
        20,
        22,
    ]


@pytest.mark.parametrize("left", [30, 27, 3])
def test_a_shuffled_iterable_resumes_in_its_last_window(tmp_path, left):
    """Its epoch never ended after a resume from the state at its end, which lies inside a window. An iterable
    that has fewer elements than before ends too.
    """
    length = tmp_path / "length"
    ds = Dataset.iterable(
        lambda: ({"value": i} for i in range(int(length.read_text()))), outputs={"value": "int64"}
    )
    ds = ds.shuffle(window=24).batch(4)
    length.write_text("30")
    whole = values(ds)
    assert sorted(whole) == [*range(30)]
    for batches in range(9):
        length.write_text("30")
        with ds.iterator() as it:
            got = [v for _ in range(min(batches, 8)) for v in it.next(timeout_s=HANG_S)["value"].tolist()]
            state = it.state_dict()
        length.write_text(str(left))
        with ds.iterator(state=state) as it:
            rest = [v for batch in it for v in batch["value"].tolist()]
        assert got + rest == whole or left < 30


def test_endless_iterables_end_with_take():
    def endless():
        i = 0
        while True:
            yield {"value": i}
            i += 1

    assert values(Dataset.iterable(endless).shuffle(window=70).take(500).batch(50), seed=3) == values(
        Dataset.iterable(endless).shuffle(window=70).batch(50).take(10), seed=3
    )


def test_iterable_of_an_object_that_can_be_iterated_again():
    assert values(Dataset.iterable([{"value": i} for i in range(10)]).batch(4), epochs=2) == [*range(10)] * 2
    with pytest.raises(TypeError, match="once"):
        Dataset.iterable(iter([{"value": 1}]))


def test_iterable_that_raises_says_after_how_many():
    def broken():
        yield from numbers()
        raise ValueError("the stream broke")

    got = []
    with pytest.raises(cachew.DataError, match=r"broken: ValueError: the stream broke .*after 1000 elements"):
        for batch in Dataset.iterable(broken).batch(10):
            got += batch["value"].tolist()
    assert got == list(range(1000))


def test_iterable_whose_host_is_killed_goes_on_where_it_was():
    def slow():
        for i in range(300):
            time.sleep(0.002)
            yield {"value": i}

    ds = Dataset.iterable(slow).batch(10)
    got = []
    for batch in ds:
        got += batch["value"].tolist()
        if len(got) in (50, 150):
            for pid in hosts():
                os.kill(pid, signal.SIGKILL)
    assert got == list(range(300))


def test_streams_refuse_what_needs_their_end():
    with pytest.raises(cachew.PipelineError, match="repeat.*stream"):
        values(Dataset.iterable(numbers).repeat(2).batch(4))
    with pytest.raises(cachew.PipelineError, match="concat.*stream"):
        values(Dataset.concat([Dataset.iterable(numbers), Dataset.iterable(numbers)]).batch(4))
    with pytest.raises(cachew.PipelineError, match='on_error "replace".*use "skip"'):
        values(Dataset.iterable(numbers).on_error("replace").batch(4))
    with pytest.raises(cachew.PipelineError, match='by is "chunk".*a stream has no chunks'):
        values(Dataset.iterable(numbers).shuffle(by="chunk", window=9).batch(4))
    with pytest.raises(
        cachew.PipelineError, match="window is 0: expected the number of consecutive elements to permute"
    ):
        values(Dataset.iterable(numbers).shuffle().batch(4))
    with pytest.raises(
        cachew.PipelineError, match="window is 9: expected 0, because the number of elements is known"
    ):
        values(Dataset.range(10).shuffle(window=9).batch(4))


def test_sequence_is_random_access():
    items = [{"value": i * i, "t": "abc"[: i % 4]} for i in range(100)]
    ds = Dataset.sequence(items).shuffle().batch(10)
    assert len(ds) == 10
    assert sorted(values(ds)) == [i * i for i in range(100)]


# ---- iterables that keep one waiting ----


class Held:
    """Ten elements, and ten more once a file is there; each time."""

    def __init__(self, file):
        self.file = str(file)

    def __call__(self):
        import os
        import time

        for i in range(20):
            while i == 10 and not os.path.exists(self.file):
                time.sleep(0.01)
            yield {"x": i}


def held(tmp_path):
    return Dataset.iterable(Held(tmp_path / "go"), outputs={"x": "int64"})


@pytest.mark.parametrize(
    ("make", "prompt"),
    [
        (lambda ds: ds.batch(2), 5),
        (lambda ds: ds.batch(3), 3),
        (lambda ds: ds.filter("x % 2 == 0").batch(2), 2),
        (lambda ds: ds.assign(y="x + 1"), 10),
        (lambda ds: ds.map(lambda e: {"x": e["x"]}, outputs={"x": "int64"}).batch(5), 2),
    ],
    ids=["two", "three", "filter", "elements", "map"],
)
@pytest.mark.parametrize("resumed", [False, True])
def test_what_an_iterable_gave_before_it_blocks_is_handed_out(tmp_path, make, prompt, resumed):
    """The rest of its range was waited for."""
    ds = make(held(tmp_path))
    it = ds.iterator()
    got = []
    for i in range(prompt):
        if resumed and i == 2:
            it = ds.iterator(state=it.state_dict())
        got.append(it.next(timeout_s=HANG_S))
    (tmp_path / "go").touch()
    got += it
    want = [b.hash() for b in ds.iterator()]
    assert [b.hash() for b in got] == want and len(want) > prompt


def test_a_host_that_dies_while_its_iterable_blocks_goes_on_behind_what_was_handed_out(tmp_path):
    it = held(tmp_path).batch(2).iterator()
    got = [it.next(timeout_s=HANG_S)["x"].tolist() for _ in range(5)]
    for pid in hosts():
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    got += [b["x"].tolist() for b in it]
    assert got == [[i, i + 1] for i in range(0, 20, 2)]


def test_a_shuffle_of_an_iterable_that_blocks_is_the_same(tmp_path):
    """It waits until a window is full, or the end."""
    ds = held(tmp_path).shuffle(window=64).batch(2)
    with pytest.raises(cachew.DeadlineError):
        ds.iterator().next(timeout_s=0.2)
    (tmp_path / "go").touch()
    assert [b["x"].tolist() for b in ds] == [
        b["x"].tolist()
        for b in Dataset.iterable(Held(tmp_path), outputs={"x": "int64"}).shuffle(window=64).batch(2)
    ]
