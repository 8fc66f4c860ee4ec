"""Functions that wait: more threads for them, and `async def` functions, many elements at a time."""

import asyncio
import itertools
import os
import time

import numpy as np
import pytest
from deadlines import HANG_S

import cachew
from cachew import Dataset

N = 300


async def doubled(e):
    await asyncio.sleep(0.001 * (e["value"] % 3))  # later elements are done before earlier ones
    return {"y": e["value"] * 2}


async def is_even(e):
    await asyncio.sleep(0.001 * (e["value"] % 3))
    return e["value"] % 2 == 0


async def listed(e):
    await asyncio.sleep(0)
    return [{"y": e["value"] * 10 + i} for i in range(e["value"] % 3)]


async def generated(e):
    for i in range(e["value"] % 3):
        await asyncio.sleep(0)
        yield {"y": e["value"] * 10 + i}


def values(ds, component="y", **options):
    return np.concatenate([b[component] for b in ds.batch(7).iterator(**options)]).tolist()


def seen_in_time(iterator, there):
    """Whether a batch comes of which there(batch) is true."""
    ends = time.monotonic() + HANG_S
    with iterator as it:
        return any(map(there, itertools.takewhile(lambda _: time.monotonic() < ends, it)))


MANY = [v * 10 + i for v in range(N) for i in range(v % 3)]


@pytest.mark.large
@pytest.mark.parametrize("concurrency", [None, 1, 5, 4096])
def test_async_functions_give_what_others_give_in_the_same_order(concurrency):
    numbers, outputs, one = Dataset.range(stop=N), {"y": "int64"}, {"threads": 1}
    how = {"concurrency": concurrency}
    assert values(numbers.map(doubled, **how), **one) == [2 * v for v in range(N)]
    assert values(numbers.filter(is_even, **how), "value", **one) == list(range(0, N, 2))
    assert values(numbers.flat_map(listed, outputs=outputs, **how), **one) == MANY
    assert values(numbers.flat_map(generated, outputs=outputs, **how), **one) == MANY


def test_an_async_function_of_batches():
    async def added(batch):
        await asyncio.sleep(0.001)
        return {"y": batch["value"] + 1}

    batches = list(Dataset.range(stop=N).batch(7).map_batches(added))
    assert np.concatenate([b["y"] for b in batches]).tolist() == list(range(1, N + 1))


def test_an_async_function_of_batches_that_forks():
    async def forks(batch):
        if 70 in batch["value"] and os.fork() == 0:
            time.sleep(0.01)
            raise ValueError("in the copy, which must not answer")
        return {"y": batch["value"]}

    ds = Dataset.range(stop=N).batch(7).map_batches(forks, outputs={"y": "int64"})
    assert np.concatenate([b["y"] for b in ds.iterator(threads=1)]).tolist() == list(range(N))


def test_an_async_function_in_a_service():
    ds = Dataset.range(stop=N).map(doubled).batch(7)
    assert np.concatenate([b["y"] for b in ds.distribute("local")]).tolist() == [2 * v for v in range(N)]


def test_draws_of_an_async_function_do_not_depend_on_what_runs_beside():
    async def drawn(e, rng):
        await asyncio.sleep(0.001 * (e["value"] % 3))
        return {"y": rng.integers(1 << 62)}

    def plain(e, rng):
        return {"y": rng.integers(1 << 62)}

    numbers = Dataset.range(stop=N)
    assert values(numbers.map(drawn), seed=3) == values(numbers.map(plain, outputs={"y": "int64"}), seed=3)


def counting(wait_s):
    """An async function that waits, and returns how many of its calls run in its host at the same time."""
    running = 0

    async def counted(e):
        nonlocal running
        running += 1
        seen = running
        await asyncio.sleep(wait_s)
        running -= 1
        return {"y": seen}

    return counted


def test_at_most_so_many_elements_of_a_host_run_at_the_same_time():
    seen = values(Dataset.range(stop=N).map(counting(0.002), concurrency=6, deterministic=False), threads=1)
    assert max(seen) == 6


def test_an_event_loop_goes_on_between_calls():
    opened = []

    async def shared(e):
        if not opened:
            opened.append((asyncio.get_running_loop(), asyncio.Lock()))
        loop, lock = opened[0]
        async with lock:
            await asyncio.sleep(0)
        return {"y": loop is asyncio.get_running_loop()}

    assert all(values(Dataset.range(stop=2000).map(shared, concurrency=10), threads=1))


def test_an_element_that_fails_beside_others_is_the_only_one():
    async def fails(e):
        await asyncio.sleep(0.001)
        if e["value"] % 50 == 7:
            raise ValueError(f"element {e['value']}")
        return {"y": e["value"]}

    ds = Dataset.range(stop=N).map(fails, outputs={"y": "int64"})
    with pytest.raises(cachew.RecordError, match="fails: ValueError: element 7"):
        values(ds)
    assert values(ds.on_error("skip")) == [v for v in range(N) if v % 50 != 7]


def test_an_element_that_kills_its_host_beside_others_is_the_only_one():
    async def dies(e):
        await asyncio.sleep(0)
        if e["value"] == 150:
            os._exit(3)
        return {"y": e["value"]}

    ds = Dataset.range(stop=N).map(dies, outputs={"y": "int64"}).on_error("skip")
    assert values(ds, threads=2) == [v for v in range(N) if v != 150]


@pytest.mark.large
def test_an_element_that_hangs_beside_others_is_the_only_one():
    async def hangs(e):
        await asyncio.sleep(1000 if e["value"] == 20 else 0)
        return {"y": e["value"]}

    ds = Dataset.range(stop=40).map(hangs, outputs={"y": "int64"}, timeout_s=2).on_error("skip")
    assert values(ds, threads=1) == [v for v in range(40) if v != 20]


@pytest.mark.large
def test_an_element_that_keeps_the_event_loop_beside_others_is_the_only_one():
    async def hangs(e):
        if e["value"] == 5:
            time.sleep(1000)
        await asyncio.sleep(0)
        return {"y": e["value"]}

    ds = Dataset.range(stop=20).map(hangs, outputs={"y": "int64"}, timeout_s=1).on_error("skip").batch(20)
    with ds.iterator(threads=1) as it:
        assert [v for b in it for v in b["y"].tolist()] == [v for v in range(20) if v != 5]


def test_each_of_two_calls_for_an_element_has_the_time_limit():
    async def slow(e):
        await asyncio.sleep(1.5 if e["value"] == 229 else 0)  # it is called twice, to compare the results
        return {"y": time.monotonic_ns() if e["value"] == 229 else e["value"]}

    ds = Dataset.range(stop=300).map(slow, outputs={"y": "int64"}, timeout_s=2).batch(100)
    with pytest.warns(RuntimeWarning, match="two different results.*:229"), ds.iterator(threads=1) as it:
        assert len([v for b in it for v in b["y"]]) == 300


@pytest.mark.large
def test_each_of_two_calls_for_a_batch_has_the_time_limit():
    def slow(b):
        it_is = b["value"][0] == 607  # this batch is computed twice
        time.sleep(1.5 if it_is else 0)
        return {"y": b["value"] * 0 + time.monotonic_ns() if it_is else b["value"]}

    ds = Dataset.range(stop=620).batch(1).map_batches(slow, outputs={"y": "int64"}, timeout_s=2)
    with pytest.warns(RuntimeWarning, match="two different results.*:607"), ds.iterator(threads=1) as it:
        assert len(list(it)) == 620


@pytest.mark.large
def test_a_different_second_result_of_an_async_function_is_noted():
    async def differs(e):
        await asyncio.sleep(0)
        return {"y": time.monotonic_ns()}

    ds = Dataset.range(stop=5000).map(differs, outputs={"y": "int64"}).batch(100)
    with pytest.warns(RuntimeWarning, match="two different results"), ds.iterator() as it:
        for _ in it:
            pass
        assert "gave two different results" in it.quarantine()[0]["reason"]


def test_concurrency_is_for_async_functions():
    with pytest.raises(cachew.PipelineError, match="concurrency is 4, but .*<lambda> is not `async def`"):
        Dataset.range(stop=2).map(lambda e: {"y": 1}, concurrency=4)
    with pytest.raises(cachew.PipelineError, match="concurrency is 0: expected 1 to 4096, or None"):
        Dataset.range(stop=2).map(doubled, concurrency=0)


def test_concurrency_is_no_part_of_what_is_computed():
    ds, other = (Dataset.range(stop=20).map(doubled, concurrency=n).batch(2) for n in (3, None))
    with ds.iterator() as it:
        first = [next(it)["y"].tolist() for _ in range(4)]
        state = it.state_dict()
    with other.iterator(state=state) as it:
        assert first + [b["y"].tolist() for b in it] == [[4 * i, 4 * i + 2] for i in range(10)]


@pytest.mark.parametrize("threads", [1, None])
def test_elements_at_the_same_time_become_more(threads):
    """With a given number of threads, too, and where blocks wait for their turn after the call."""
    ds = Dataset.range(stop=1_000_000).map(counting(0.02), outputs={"y": "int64"}, deterministic=False)
    assert seen_in_time(ds.filter("y > 0").batch(8).iterator(threads=threads), lambda b: max(b["y"]) >= 64)


def test_more_calls_than_cpus_run_where_functions_wait(tmp_path):
    """The number of calls at a time, seen by the calls themselves, goes above that of the CPUs."""
    enough = 2 * len(os.sched_getaffinity(0)) + 1

    def waits(e):
        mine = tmp_path / str(e["value"])
        mine.touch()
        time.sleep(0.05)
        n = len(os.listdir(tmp_path))
        mine.unlink()
        return {"y": n}

    ds = Dataset.range(stop=100_000).map(waits, outputs={"y": "int64"}, deterministic=False).batch(4)
    assert seen_in_time(ds.iterator(), lambda b: max(b["y"]) >= enough)
    for left in tmp_path.iterdir():  # by calls that the end of the iterator cancelled
        left.unlink()
    with ds.iterator(threads=3) as it:
        assert all(max(next(it)["y"]) <= 3 for _ in range(20))
