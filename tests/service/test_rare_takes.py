"""A take behind a filter that keeps one element in a million: it ends the epoch soon after the last element
that it takes.

CACHEW names the command (default build/cachew)."""

import re

import pytest
from command import range_chain, run, write

EVERY, TAKEN = 1_000_000, 10
NEEDED = EVERY * TAKEN  # positions
CHAIN = range_chain(
    1_000_000_000,
    {"op": "filter", "where": f"value % {EVERY} == {EVERY - 1}"},
    {"op": "take", "count": TAKEN},
    {"op": "batch", "size": 4},
)
BLOCKS = 5 * 4096  # positions that a thread has under way (src/engine/carve.c), and a block more
RANGE = 1 << 20  # the largest placed range (src/engine/range_rows.c)
LEASES = 64  # that a worker holds (src/service/worker/streams.c)


def computed(operators):
    return next(op["elements"] for op in operators if op.get("op") == "range")


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_one_process_computes_no_more_than_its_threads_have_under_way(tmp_path, threads):
    ran = run(write(tmp_path / "p.json", CHAIN), "--threads", threads)
    assert ran["elements"] == TAKEN
    assert NEEDED <= computed(ran["operators"]) <= NEEDED + threads * BLOCKS


def test_workers_compute_no_more_than_their_leases(daemons, tmp_path):
    """It is known that a range is behind the end when the ranges before it are computed."""
    path = write(tmp_path / "p.json", CHAIN)
    dispatcher, workers = daemons.service(workers=2, http=True)
    assert run(path, "--service", dispatcher.address, "--digest")["digest"] == run(path, "--digest")["digest"]
    found = [
        re.search(
            r'^cachew_worker_operator_elements_total\{operator="range"\} (\S+)',
            worker.get("/metrics")[1],
            re.M,
        )
        for worker in workers
    ]
    assert NEEDED <= sum(float(f[1]) for f in found if f) <= NEEDED + len(workers) * LEASES * RANGE
