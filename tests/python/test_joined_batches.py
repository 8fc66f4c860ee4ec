"""map_batches behind a filter: batches are made ahead of who takes them, and are the same whoever makes
them. A service's worker makes those whose elements are of one range, the client those that it joins of
several ranges."""

import json
import os
import threading
import time
import urllib.request

import numpy as np
import pytest

import cachew
from cachew import Dataset

from conftest import Up
from deadlines import HANG_S, wait_for
from waiting import in_use

SIZE = 8


def numbers():
    """Many batches, which take twelve positions each."""
    return Dataset.range(4096).filter("value % 3 != 0").batch(SIZE)


def called(log):
    """The first element of each batch that the function was called with."""
    return {int(line) for line in log.read_text().split()} if log.exists() else set()


def note(log, batch):
    with open(log, "a") as file:
        file.write(f"{int(batch['value'][0])}\n")


def test_a_batch_behind_a_filter_is_made_before_it_is_asked_for(tmp_path):
    log = tmp_path / "calls"

    def function(batch):
        note(log, batch)
        return batch

    want = [b["value"].tolist() for b in numbers()]
    with numbers().map_batches(function, outputs={"value": "int64"}).iterator(threads=1) as it:
        for values in want[:-1]:
            wait_for(lambda first=values[0]: first in called(log))  # and nobody is in next()
            assert next(it)["value"].tolist() == values
        assert [b["value"].tolist() for b in it] == want[-1:]  # what is left over
    assert sorted(called(log)) == sorted(values[0] for values in want)


def slow_from(value, log, go_on):
    def function(batch):
        note(log, batch)
        while batch["value"][0] >= value and not os.path.exists(go_on):
            time.sleep(0.01)
        return batch

    return function


def up_to_a_batch_that_is_made(it, want, first, log):
    """Takes all batches before the first-th. The function is called with that one by then, and nobody is in
    next().
    """
    assert [next(it)["value"].tolist() for _ in range(first)] == want[:first]

    def is_made():
        with pytest.raises(cachew.DeadlineError):
            it.next(timeout_s=0.1)
        return want[first][0] in called(log)

    wait_for(is_made)


@pytest.mark.large
def test_waiting_for_a_batch_behind_a_filter_may_end_and_go_on(tmp_path):
    log, go_on, first = tmp_path / "calls", tmp_path / "go_on", 21
    want = [b["value"].tolist() for b in numbers()]
    with (
        numbers()
        .map_batches(slow_from(want[first][0], log, go_on), outputs={"value": "int64"})
        .iterator(threads=2) as it
    ):
        up_to_a_batch_that_is_made(it, want, first, log)
        go_on.touch()
        assert [b["value"].tolist() for b in it] == want[first:]


@pytest.mark.large
@pytest.mark.parametrize("where", ["between", "inside"])
def test_closing_while_batches_behind_a_filter_are_made(tmp_path, where):
    log, threads, first = tmp_path / "calls", len(os.listdir("/proc/self/task")), 21
    want = [b["value"].tolist() for b in numbers()]
    it = (
        numbers()
        .map_batches(slow_from(want[first][0], log, tmp_path / "never"), outputs={"value": "int64"})
        .iterator(threads=2)
    )
    up_to_a_batch_that_is_made(it, want, first, log)
    if where == "inside":
        inside = threading.Thread(target=lambda: pytest.raises(cachew.UsageError, next, it))
        inside.start()
        wait_for(lambda: in_use(it))
    it.close()
    if where == "inside":
        inside.join()
    wait_for(lambda: len(os.listdir("/proc/self/task")) == threads)


def doubled(batch):
    return {"value": batch["value"], "twice": batch["value"] * 2}


def shuffled(batch, rng):
    return {"value": batch["value"][rng.permutation(len(batch["value"]))]}


PIPELINES = {
    "filter": Dataset.range(3000).shuffle().filter("value % 7 != 2").batch(16),
    "half": Dataset.range(3000).shuffle().filter("value % 2 == 0").batch(11),
    "strings": Dataset.range(700)
    .map(lambda e: {"value": e["value"], "text": "x" * int(e["value"] % 90)})
    .shuffle()
    .filter("value % 5 != 0")
    .batch(9),
    "remainder": Dataset.range(1000).filter("value % 3 == 0").batch(32, drop_remainder=True),
    "buckets": Dataset.range(2000)
    .map(
        lambda e: {"value": e["value"], "t": np.arange(e["value"] % 13)},
        outputs={"value": "int64", "t": ("int64", (None,))},
    )
    .shuffle()
    .bucket_by_length("length(t)", [4, 8], [16, 8, 8]),
    "skipped": Dataset.range(900)
    .assign(x="10 // (value % 50 - 7)")
    .shuffle()
    .filter("value % 3 != 1")
    .batch(16)
    .on_error("skip"),
    "skip and take": Dataset.range(900).shuffle().filter("value % 3 != 1").batch(8).skip(5).take(30),
    "few": Dataset.range(40).filter("value % 3 != 1").batch(64),
}


@pytest.mark.large(keep=0)
@pytest.mark.parametrize("name", PIPELINES)
def test_batches_behind_a_filter_are_the_same_whoever_makes_them(name):
    base = PIPELINES[name]
    for ds, function in ((base.map_batches(doubled), doubled), (base.map_batches(shuffled), None)):
        alone = [(b.epoch, b.g, b.records, b.hash()) for b in ds.iterator(epochs=3, threads=1, memory="3M")]
        for options in ({"threads": 4}, {"threads": 2, "memory": "8M"}, {"threads": 3, "memory": "2M"}):
            assert [(b.epoch, b.g, b.records, b.hash()) for b in ds.iterator(epochs=3, **options)] == alone
        ranks = [list(ds.iterator(epochs=3, rank=r, world_size=2)) for r in range(2)]
        both = sorted((b.epoch, b.g, b.records, b.hash()) for rank in ranks for b in rank if not b.is_padding)
        assert both == alone
        if function:
            for before, after in zip(base.iterator(epochs=3), ds.iterator(epochs=3)):
                assert (
                    after["twice"].tolist() == (before["value"] * 2).tolist()
                    and after.records == before.records
                )


@pytest.mark.large
@pytest.mark.parametrize("where", ["here", "service"])
def test_what_a_function_of_batches_takes_is_counted(where):
    """Whoever calls it: compute threads, or, with a service, workers for theirs and the client for those
    that it joins.
    """

    def slow(batch):
        time.sleep(0.002)
        return batch

    ds = numbers().map_batches(slow, outputs={"value": "int64"})
    with ds.distribute("local", workers=1) if where == "service" else ds.iterator(threads=2) as it:
        n = sum(len(b["value"]) for b in it)
        counted = next(e for e in it.profile()["operators"] if e["op"] == "map_batches")
    if where == "here":
        assert counted["elements"] == n
    else:
        # the first range is shorter than six batches, and no multiple of one
        assert SIZE <= counted["elements"] < n
    assert counted["seconds"] >= 0.002 * counted["elements"] / SIZE


def wide(batch):
    return {"value": batch["value"], "wide": np.repeat(batch["value"][:, None], 3000, 1)}


@pytest.mark.large
def test_who_lacks_memory_for_a_batch_is_not_kept_waiting_by_blocks_that_lack_it_too():
    """They were run alone in turn, again and again, so that something always ran, and the consumer never got
    what there was.
    """
    ds = PIPELINES["filter"].map_batches(wide)
    want = [b.hash() for b in ds.iterator()]
    for threads in (2, 2, 4):  # a little more than the least that is accepted, without the function
        with ds.iterator(threads=threads, memory=1_115_016) as it:
            try:
                got = []
                while (b := it.next(timeout_s=HANG_S)) is not None:
                    got.append(b.hash())
                assert got == want
            except cachew.MemoryBudgetError as error:
                assert "too small" in str(error)


def test_a_state_between_batches_behind_a_filter():
    ds = PIPELINES["half"].map_batches(doubled)
    it, states, hashes = ds.iterator(epochs=2), [], []
    for b in it:
        states.append(it.state_dict())
        hashes.append(b.hash())
    for i in range(0, len(states), 17):
        assert [b.hash() for b in ds.iterator(epochs=2, state=states[i], threads=2)] == hashes[i + 1 :]


@pytest.mark.large
def test_what_differs_is_listed_for_batches_behind_a_filter():
    def changing(batch):
        return {"value": batch["value"] + int.from_bytes(os.urandom(4), "little")}

    ds = (
        Dataset.range(60000)
        .filter("value % 2 == 0")
        .batch(2)
        .map_batches(changing, outputs={"value": "int64"})
    )
    with pytest.warns(RuntimeWarning, match="changing"):
        it = ds.iterator(threads=3)
        for _ in it:
            pass
    assert {entry["action"] for entry in it.quarantine()} == {"differs"}


# ---- of a service: the client joins some of them, and calls the function ----


@pytest.mark.large
@pytest.mark.parametrize("name", PIPELINES)
def test_batches_of_a_service_behind_a_filter_are_the_same(service, name):
    for function in (doubled, shuffled):
        ds = PIPELINES[name].map_batches(function)
        alone = [(b.epoch, b.g, b.records, b.hash()) for b in ds.iterator(epochs=2, seed=5)]
        assert [
            (b.epoch, b.g, b.records, b.hash())
            for b in ds.distribute(service.address, epochs=2, seed=5, timeout_s=HANG_S)
        ] == alone
        it = ds.distribute(service.address, epochs=2, seed=5, timeout_s=HANG_S)
        part = [it.next() for _ in range(len(alone) // 3)]
        state = it.state_dict()
        it.close()
        rest = ds.distribute(service.address, epochs=2, seed=5, state=state, timeout_s=HANG_S)
        assert [(b.epoch, b.g, b.records, b.hash()) for b in [*part, *rest]] == alone


@pytest.fixture(scope="module")
def slow_service():
    """Each of two workers has one thread."""
    up = Up("--threads", "2")
    yield up
    assert up.end() == 0


def all_joined():
    """A range takes half a second, or 64 positions while no rate is known: with a thread a worker no range
    has the 120 positions of a batch.
    """
    return Dataset.range(720)._for_tests("delay", us=5000).filter("value % 8 == 0").batch(15)


@pytest.mark.parametrize(
    ("n_keys", "base"),
    [
        (1, Dataset.range(30000).filter("value % 3 != 0").shuffle().batch(32)),
        (3, Dataset.range(30000).shuffle().bucket_by_length("value % 7", [2, 5], [32, 64, 48])),
    ],
)
def test_a_client_calls_functions_of_batches_that_lie_in_several_ranges_and_of_no_others(
    tmp_path, n_keys, base
):
    """Between two ranges lies at most one batch of each key. All other batches are made where they are
    computed.
    """
    client, log = os.getpid(), tmp_path / "calls"

    def noted(batch):
        with open(log, "a") as file:
            file.write(f"{os.getppid()} {batch['value'][0]}\n")
        return batch

    up = Up("--http", "127.0.0.1:0")
    ds = base.map_batches(noted, outputs={"value": "int64"})
    got = [(b["value"][0], b.hash()) for b in ds.distribute(up.address, seed=1, timeout_s=HANG_S)]
    with urllib.request.urlopen(f"http://{up.ready['http']}/api/v1/status") as page:
        n_ranges = json.load(page)["completed"]
    assert up.end() == 0
    assert [h for _, h in got] == [b.hash() for b in base.iterator(seed=1)]
    calls = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    joined = {value for process, value in calls if process == client}
    assert {value for process, value in calls if process != client} >= {value for value, _ in got} - joined
    assert len(joined) <= n_keys * n_ranges < len(got)


def must_be_called_by(client):
    """For functions of batches: they run in host processes of who calls them."""
    if os.getppid() != client:
        raise RuntimeError(f"called by process {os.getppid()}: expected the client, {client}")


def test_several_joined_batches_of_a_service_are_under_way_at_a_time(slow_service, tmp_path):
    client = os.getpid()

    def meets_another(batch):
        """Only when one more is called while this one waits. The first may be called before it is known what
        others will be joined of.
        """
        import tempfile
        import time

        must_be_called_by(client)
        if batch["value"][0] == 0:
            return batch
        with tempfile.NamedTemporaryFile(dir=tmp_path, delete=False):
            end = time.monotonic() + HANG_S
            while len(os.listdir(tmp_path)) < 2:
                if time.monotonic() >= end:
                    raise RuntimeError("there was no other call")
                time.sleep(0.01)
        return batch

    want = [b["value"].tolist() for b in all_joined().iterator()]
    got = (
        all_joined()
        .map_batches(meets_another, outputs={"value": "int64"})
        .distribute(slow_service.address, timeout_s=HANG_S)
    )
    assert [b["value"].tolist() for b in got] == want


def test_what_a_joined_batch_of_a_service_fails_with_comes_in_its_place(slow_service):
    client = os.getpid()

    def fails(batch):
        must_be_called_by(client)
        if batch["value"][0] >= 360:
            raise ValueError("no more")
        return batch

    it = (
        all_joined()
        .map_batches(fails, outputs={"value": "int64"})
        .distribute(slow_service.address, timeout_s=HANG_S)
    )
    for _ in range(3):
        it.next()
    for _ in range(2):
        with pytest.raises(cachew.Error, match="no more"):
            it.next()


@pytest.mark.large
def test_who_leaves_a_service_leaves_no_call_behind(slow_service, tmp_path):
    client = os.getpid()

    def forever(batch):
        must_be_called_by(client)
        (tmp_path / str(int(batch["value"][0]))).touch()
        while True:
            time.sleep(60)

    threads = len(os.listdir("/proc/self/task"))
    it = all_joined().map_batches(forever, outputs={"value": "int64"}).distribute(slow_service.address)
    while len(os.listdir(tmp_path)) < 2:
        with pytest.raises(cachew.DeadlineError):
            it.next(timeout_s=0.2)
    it.close()
    wait_for(lambda: len(os.listdir("/proc/self/task")) <= threads)
