"""Streams without a known end, from services: what follows the source is shared out in ranges, and gives
what this process would.
"""

import itertools
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import cachew
import numpy as np
import pytest
from cachew import Dataset
from deadlines import HANG_S
from service_runs import all_of, doubled


def numbers(n=700):
    for i in range(n):
        yield {"value": i, "text": b"z" * (i % 7)}


def endless():
    i = 0
    while True:
        yield {"value": i}
        i += 1


def half_broken():
    yield from numbers(300)
    raise ValueError("the stream broke")


def several(element):
    for i in range(int(element["value"]) % 4):
        yield {"value": element["value"] * 10 + i}


def pipelines():
    stream = Dataset.iterable(numbers)
    return {
        "plain": stream.batch(16),
        "elements": Dataset.iterable([{"value": i} for i in range(90)]),
        "drop": stream.batch(16, drop_remainder=True),
        "window": stream.shuffle(window=50).batch(16),
        "filter": stream.filter("value % 3 != 0").batch(16),
        "buckets": stream.bucket_by_length("length(text)", [2, 5], [4, 8, 8]),
        "window_buckets": stream.shuffle(window=130)
        .filter("value % 5 != 0")
        .bucket_by_length("length(text)", [2, 5], [4, 8, 8]),
        "map": stream.map(doubled).batch(16),
        "flat_map": stream.map(doubled).flat_map(several).batch(16),
        "take": Dataset.iterable(endless).filter("value % 2 == 0").batch(16).take(20),
        "take_more": stream.batch(16).take(100),
        "skip": stream.skip(100).batch(16),
        "nothing_left": stream.filter("value < 20").batch(16),
        "skipped": stream.assign(x="10 // (value - 7)").on_error("skip").batch(8),
    }


NAMES = [
    "plain",
    "elements",
    "drop",
    "window",
    "filter",
    "buckets",
    "window_buckets",
    "map",
    "flat_map",
    "take",
    "take_more",
    "skip",
    "nothing_left",
    "skipped",
]


@pytest.mark.large
@pytest.mark.parametrize(
    "ranges, name",
    [("divided", name) for name in NAMES]
    + [("service", name) for name in ("elements", "buckets", "flat_map")],
)
def test_batches_are_those_of_this_process(request, name, ranges):
    service = request.getfixturevalue(ranges)
    ds = pipelines()[name]
    it, local = ds.distribute(service.address, seed=7, epochs=3), ds.iterator(seed=7, epochs=3)
    assert all_of(it) == all_of(local)
    assert it.quarantine() == local.quarantine()


@pytest.mark.parametrize("name", ["plain", "window_buckets", "take"])
def test_ranks(divided, name):
    ds = pipelines()[name]
    with ThreadPoolExecutor(3) as pool:
        parts = list(
            pool.map(
                lambda r: all_of(
                    ds.distribute(
                        divided.address, job=f"stream-{name}", rank=r, world_size=3, seed=3, epochs=2
                    )
                ),
                range(3),
            )
        )
    assert parts == [all_of(ds.iterator(rank=r, world_size=3, seed=3, epochs=2)) for r in range(3)]


@pytest.mark.parametrize("name", ["plain", "window_buckets", "filter", "flat_map"])
def test_states_go_from_here_to_there_and_back(divided, name):
    ds = pipelines()[name]
    want, got, state = all_of(ds.iterator(seed=5, epochs=2)), [], None
    while len(got) < len(want):
        it = (
            ds.iterator(state=state, seed=5, epochs=2)
            if len(got) % 2
            else ds.distribute(divided.address, state=state, seed=5, epochs=2)
        )
        got += all_of([it.next(timeout_s=HANG_S) for _ in range(min(17, len(want) - len(got)))])
        state = it.state_dict()
        it.close()
    assert got == want


def test_a_stream_that_raises_gives_what_was_before(divided):
    got = []
    with pytest.raises(
        cachew.DataError,
        match=r"half_broken: ValueError: the stream broke .*after 300 "
        r"elements",
    ):
        for batch in (
            Dataset.iterable(half_broken).filter("value % 2 == 0").batch(10).distribute(divided.address)
        ):
            got += batch["value"].tolist()
    assert got == list(range(0, 300, 2))


def test_any_order_gives_each_element_once(divided):
    ds = pipelines()["filter"]
    got = [int(v) for batch in ds.distribute(divided.address, order="any") for v in batch["value"]]
    assert sorted(got) == [v for v in range(700) if v % 3]


# ---- where it runs ----


class Counted:
    """Numbers, each of which is written down when it is given."""

    def __init__(self, path, n):
        self.path, self.n = path, n

    def __iter__(self):
        for i in range(self.n):
            with open(self.path, "a") as file:
                file.write(f"{os.getpid()} {i}\n")
            yield {"value": i}


@pytest.mark.parametrize("window", [0, 100])
def test_the_source_runs_once(divided, tmp_path, window):
    """One process runs through it in each epoch, whoever computes what follows."""
    ds = Dataset.iterable(Counted(tmp_path / "given", 600), outputs={"value": "int64"})
    ds = (
        (ds.shuffle(window=window) if window else ds)
        ._for_tests("delay", us=500)
        .filter("value % 3 != 0")
        .batch(8)
    )
    it = ds.distribute(divided.address, seed=2, epochs=2)
    got = all_of(it)
    given = [int(line.split()[1]) for line in (tmp_path / "given").read_text().splitlines()]
    assert sorted(given) == sorted([*range(600)] * 2)
    assert got == all_of(ds.iterator(seed=2, epochs=2))


@pytest.mark.parametrize("threads", [1, 3])
def test_padding_runs_the_source_once_more(tmp_path, threads):
    """One batch for two ranks: while the second one gets the first one's as padding, the source runs for the
    next epoch already.
    """
    starts = tmp_path / "starts"

    def slow():
        with starts.open("a") as f:
            f.write("*")
        for i in range(2000):
            if i % 40 == 0:
                time.sleep(0.002)
            yield {"value": i}

    ds = Dataset.iterable(slow, outputs={"value": "int64"}).filter("value % 997 == 5").batch(8)
    batches = list(ds.iterator(rank=1, world_size=2, epochs=4, threads=threads))
    assert [(b.epoch, b["value"].tolist(), b.is_padding) for b in batches] == [
        (e, [5, 1002, 1999], True) for e in range(4)
    ]
    assert len(starts.read_text()) <= 4 * 2


@pytest.mark.parametrize("killed", [0, 1])
def test_a_worker_is_killed(own_service, tmp_path, killed):
    """Also the one that runs the source: another one runs it anew."""
    ds = Dataset.iterable(numbers).map(doubled)._for_tests("delay", us=2000).shuffle(window=64).batch(8)
    want = all_of(ds.iterator(seed=1))
    it = ds.distribute(own_service.address, seed=1, timeout_s=HANG_S)
    got = all_of(next(it) for _ in range(10))
    os.kill(own_service.ready["workers"][killed]["pid"], signal.SIGKILL)
    got += all_of(it)
    assert got == want


def test_an_iterable_that_hangs_is_given_up_once(one_worker, tmp_path):
    """Each range that was pulled from it had two attempts of its own, one after the other."""
    starts = tmp_path / "starts"

    def hangs():
        with starts.open("a") as f:
            f.write("*")
        yield from numbers(100)
        threading.Event().wait()

    ds = Dataset.iterable(hangs, outputs={"value": "int64", "text": "bytes"}, timeout_s=1).batch(8)
    with pytest.raises(
        cachew.DataError,
        match=r"hangs: its host process took longer than its limit timeout_s of 1 s "
        r"\(2 attempts\)",
    ):
        list(ds.distribute(one_worker.address, timeout_s=HANG_S))
    assert starts.read_text() == "**"


@pytest.mark.parametrize("of_batches", [False, True])
def test_an_epoch_that_a_take_ends_has_ended_its_iterable(tmp_path, of_batches):
    """Which was left standing while the next one began, with what it held open."""

    def exclusive():
        with (tmp_path / "lock").open("x"):
            try:
                yield from ({"value": i} for i in itertools.count())
            finally:
                (tmp_path / "lock").unlink()

    ds = Dataset.iterable(exclusive, outputs={"value": "int64"})
    ds = ds.batch(10).take(10) if of_batches else ds.take(100).batch(10)
    assert [len(b["value"]) for b in ds.iterator(epochs=3, threads=2)] == [10] * 30


def large(n=600):
    for i in range(n):
        yield {"value": i, "data": bytes([i % 256]) * 1_000_000}


@pytest.mark.parametrize("memory", ["36M", "40M"])
@pytest.mark.parametrize("threads", [1, 3])
def test_memory_that_was_enough_stays_enough(memory, threads):
    """As many elements as a range has positions were read at a time, unless the source was slow: 32 MB,
    which left too little for a batch.
    """

    def half_megabytes():
        for i in itertools.count():
            yield {"value": i, "data": np.full(500_000, i % 256, np.uint8)}

    ds = (
        Dataset.iterable(half_megabytes, outputs={"value": "int64", "data": ("uint8", (500_000,))})
        .filter("value % 3 != 0")
        .batch(4)
        .take(60)
    )
    got = [
        v for b in ds.iterator(memory=memory, threads=threads, timeout_s=HANG_S) for v in b["value"].tolist()
    ]
    assert got == [i for i in range(360) if i % 3][:240]


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer keeps what was freed")
@pytest.mark.parametrize("skip", [False, True])
def test_a_host_that_may_not_keep_all_goes_on(divided, skip):
    """It died again and again of the elements that it kept, until the job did. Behind a skip, which one
    worker runs, it need not keep any.
    """
    ds = Dataset.iterable(large, host_memory="400M")
    ds = (ds.skip(10) if skip else ds).batch(4)
    got = []
    for batch in ds.distribute(divided.address, timeout_s=HANG_S):
        got += batch["value"].tolist()
        assert all(len(d) == 1_000_000 and d[0] == v % 256 for d, v in zip(batch["data"], batch["value"]))
    assert got == list(range(10 if skip else 0, 600))
