"""Workers with little memory for what they compute: all batches come, exactly once and in order, and no
worker takes more than its --memory and what its code takes.

CACHEW names the command (default build/cachew)."""

import re
from pathlib import Path

import pytest
from command import SANITIZED
from workbench import SHUFFLE, numbers

MIB = 1 << 20
LEAST = "16M"  # that a worker accepts
BESIDE = 30 * MIB  # a worker's code and threads (docs/running-a-service.md)
KEY = "int64(min(data) * 1e9)"  # of an element of wide(): as good as random


def wide(n, kib):
    return {"op": "synthetic", "count": n, "shape": [kib * 256], "dtype": "float32"}


def where(expression):
    return {"op": "filter", "where": expression}


def batch(size):
    return {"op": "batch", "size": size}


def buckets(length, boundaries, sizes):
    return {"op": "bucket_by_length", "length": length, "boundaries": boundaries, "sizes": sizes}


def rare(n, kib, every, of_all, of_rare):
    """One element in `every` has a key of its own."""
    return [wide(n, kib), buckets(f"int64({KEY} % {every} == 0)", [1], [of_all, of_rare])]


def hundred(n, kib):
    return [wide(n, kib), buckets(f"{KEY} % 100", [*range(1, 100)], [1 + k % 4 for k in range(100)])]


def lines(directory):
    """28 MB, the longest line last."""
    (directory / "lines.txt").write_text("".join("x" * (20 * i) + "\n" for i in range(1700)))
    return {"op": "text", "files": str(directory / "lines.txt")}


LENGTHS = buckets("length(text)", [1000, 6000, 15000, 25000], [16, 12, 8, 6, 4])
PIPELINES = {
    "sorted by length": [lines, LENGTHS],
    "a key that fills once": numbers(100_000, buckets("int64(value % 25000 == 0)", [1], [2048, 4])),
    "a key that never fills": numbers(60_000, buckets("int64(value % 25000 == 0)", [1], [2048, 4])),
    "a rare key among 64 KiB": rare(600, 64, 50, 8, 4),
    "a rare key among 256 KiB": rare(160, 256, 20, 8, 4),
    "100 keys": hundred(2000, 16),
    "100 keys, one after the other": numbers(
        60_000, buckets("value // 600", [*range(1, 100)], [40 + k % 9 for k in range(100)])
    ),
    "nothing at the beginning": numbers(300_000, where("value > 298000"), batch(32)),
    "nothing in the middle": numbers(300_000, where("value < 2000 or value > 298000"), batch(32)),
    "nothing at the end": numbers(300_000, where("value < 2000"), batch(32)),
    "nothing but one": numbers(300_000, where("value == 150000"), batch(32)),
    "nothing": numbers(300_000, where("value < 0"), batch(32)),
}
FULL = {  # ranges of more than a worker's memory
    "counted": [wide(3000, 16), SHUFFLE, batch(8)],
    "filtered": [wide(3000, 16), where(f"{KEY} % 3 != 0"), batch(5)],
    "a rare key": rare(1000, 64, 100, 8, 4),
    "100 keys": hundred(3000, 16),
}


def start(bench, n, memory=LEAST, threads=2):
    bench.cluster.start_dispatcher()
    for i in range(n):
        bench.cluster.start_worker(f"w{i}", "--memory", memory, "--threads", threads)


def finish(bench, chain, ranks, memory, words=()):
    """Waits for the ranks and judges what came, and what workers took for it."""
    for r in ranks:
        r.finish()
    bench.judge(chain, (len(ranks), None, ranks), words=words)
    for worker in bench.cluster.workers.values():
        if worker.running and not SANITIZED:
            status = Path(f"/proc/{worker.pid}/status").read_text()
            assert int(status.split("VmHWM:")[1].split()[0]) << 10 < memory + BESIDE, worker.name


@pytest.mark.parametrize("name", PIPELINES)
def test_all_batches_come(bench, tmp_path, name):
    chain = [op(tmp_path) if callable(op) else op for op in PIPELINES[name]]
    words = ["--epochs", "2"]
    start(bench, 3)
    for world in (1, 2):
        ranks = bench.ranks(chain, world=world, job=f"of{world}", words=words, with_state=False)
        finish(bench, chain, ranks, 16 * MIB, words)


@pytest.mark.parametrize("name", FULL)
def test_a_client_that_asks_for_one_batch_at_a_time(bench, name):
    """Its worker's memory is full of elements before the client asks for them."""
    start(bench, 1)
    ranks = bench.ranks(FULL[name], words=["--credits", "1", "--transport", "tcp"], with_state=False)
    finish(bench, FULL[name], ranks, 16 * MIB)


@pytest.mark.parametrize("name", FULL)
def test_ranks_go_on_while_another_stands_still(bench, name):
    """What it has not taken is kept, or computed again for it."""
    start(bench, 2)
    ranks = bench.ranks(FULL[name], world=3, words=["--credits", "3"], held=2, with_state=False)
    for r in (ranks[0], ranks[2]):
        r.go()
        bench.cluster.wait_lines(r, 20)
    assert ranks[1].lines() <= 2
    finish(bench, FULL[name], ranks, 16 * MIB)


@pytest.mark.parametrize("name", FULL)
def test_a_range_is_lost_whose_turn_it_is_while_the_other_workers_are_full(bench, name):
    """They hold elements of later ranges, for which no client can ask yet."""
    start(bench, 1)
    ranks = bench.ranks(FULL[name], words=["--credits", "1"], held=1, with_state=False)
    bench.cluster.wait_lines(ranks[0], 1)
    others = [
        bench.cluster.start_worker(f"w{i}", "--memory", LEAST, "--threads", 2).ready["id"] for i in (1, 2)
    ]
    bench.cluster.until(
        "workers",
        lambda ws: all(w["memory_in_use"] > 5 * MIB for w in ws if w["id"] in others),
        "workers that are full",
    )
    bench.cluster.workers["w0"].kill9()
    finish(bench, FULL[name], ranks, 16 * MIB)


# A batch of each is larger than the memory that every worker has, whatever is computed beside it.
LARGE = {
    "counted": [wide(60, 1536), SHUFFLE, batch(12)],
    "filtered": [wide(60, 2304), where(f"{KEY} % 3 != 0"), batch(8)],
    "buckets": [wide(36, 6144), buckets(f"{KEY} % 4", [1, 2, 3], [2, 3, 2, 3])],
    "a take": [wide(60, 1536), where(f"{KEY} % 3 != 0"), {"op": "take", "count": 30}, batch(12)],
    "growing": [lines, buckets("length(text)", [20000], [256, 640])],
}


@pytest.mark.parametrize(("workers", "world", "threads"), [(1, 1, 1), (2, 3, 8)])
@pytest.mark.parametrize("name", LARGE)
def test_the_memory_that_is_named_is_enough(bench, tmp_path, name, workers, world, threads):
    """Workers with too little memory name how much would do, and larger elements that come later a larger
    number.
    """
    chain = [op(tmp_path) if callable(op) else op for op in LARGE[name]]
    memory = int(LEAST[:-1]) * MIB
    bench.cluster.start_dispatcher()
    for attempt in range(6):
        started = [
            bench.cluster.start_worker(f"w{attempt}-{i}", "--memory", memory, "--threads", threads)
            for i in range(workers)
        ]
        ranks = bench.ranks(chain, world=world, job=f"job{attempt}", with_state=False)
        ended = [r.process.wait() for r in ranks]
        if not any(ended):
            break
        assert set(ended) <= {0, 2}, "a rank may have all of its batches before memory is short"
        said = "".join(r.process.said() for r in ranks)
        named = [int(n) for n in re.findall(r"expected at least (\d+)", said)]
        assert named and max(named) > memory, said
        memory = max(named)
        for worker in started:
            worker.terminate()
            assert worker.wait() == 0
    # two workers can make small parts of the batches of small elements
    assert attempt > 0 or name == "growing", "a batch fits into what every worker has"
    finish(bench, chain, ranks, memory)
