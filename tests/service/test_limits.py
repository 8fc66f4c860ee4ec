"""A take behind a filter, in a service: ranges are shared out among workers, and the epoch ends where the
take is full.

CACHEW names the command (default build/cachew)."""

import json

import pytest
from command import run
from workbench import BATCH, FILTER, numbers, slow

TAKE = {"op": "take", "count": 250}
TWICE = ["--epochs", "2"]
LIMITED = {
    "take": numbers(2000, slow(300), FILTER, TAKE, BATCH),
    "map behind it": numbers(2000, FILTER, TAKE, slow(300), BATCH),
    "more than there is": numbers(300, slow(300), FILTER, TAKE, BATCH),
    "two": numbers(2000, FILTER, TAKE, slow(300), {"op": "take", "count": 120}, BATCH),
    "nothing": numbers(300, FILTER, {"op": "take", "count": 0}, BATCH),
    "no batches": numbers(600, slow(300), FILTER, {"op": "take", "count": 55}),
    "no short batch": numbers(
        2000, slow(300), FILTER, TAKE, {"op": "batch", "size": 64, "drop_remainder": True}
    ),
    "endless": numbers(50, {"op": "repeat", "count": -1}, FILTER, slow(300), TAKE, BATCH),
    "of batches": numbers(2000, slow(300), FILTER, BATCH, {"op": "take", "count": 13}),
    "batches skipped": numbers(
        1000, slow(300), FILTER, BATCH, {"op": "skip", "count": 7}, {"op": "take", "count": 11}
    ),
    "of buckets": [
        *numbers(
            900,
            slow(300),
            {
                "op": "bucket_by_length",
                "length": "value * 7 % 23",
                "boundaries": [4, 9, 17],
                "sizes": [7, 5, 8, 3],
            },
        ),
        {"op": "skip", "count": 5},
        {"op": "take", "count": 31},
    ],
    "errors behind it": numbers(
        2000, {"op": "fail", "where": "value == 1500"}, slow(300), FILTER, TAKE, BATCH
    ),
}


@pytest.mark.parametrize("kind", LIMITED)
def test_ranks_get_what_they_get_without_a_service(bench, kind):
    bench.cluster.start(3)
    for world in (1, 3):
        ranks = bench.ranks(LIMITED[kind], world=world, job=f"of{world}", words=TWICE)
        for r in ranks:
            r.finish()
        bench.judge(LIMITED[kind], (world, None, ranks), words=TWICE)


def test_a_range_fails_behind_the_take(bench):
    """The range with the last elements never reports, and one rank has no batch of it."""
    chain = numbers(
        600,
        {"op": "fail", "where": "value == 190"},
        FILTER,
        {"op": "take", "count": 118},
        {"op": "batch", "size": 8},
    )
    bench.cluster.start(1)
    for world in (1, 2, 3, 4):
        ranks = bench.ranks(chain, world=world, job=f"of{world}", words=TWICE)
        for r in ranks:
            r.finish()
        bench.judge(chain, (world, None, ranks), words=TWICE)


def test_all_workers_take_part(bench):
    chain = numbers(4000, slow(1000), FILTER, {"op": "take", "count": 2000}, BATCH)
    bench.cluster.start(3)
    r = bench.ranks(chain, dump=False)[0]
    result = r.finish()
    bench.judge(chain, (1, None, [r]))
    assert len(result["links"]) == 3 and all(link["batches"] > 0 for link in result["links"])


@pytest.mark.parametrize("ended", [False, True])
def test_a_worker_is_killed(bench, ended):
    if ended:
        bench.cluster.env["CACHEW_RANGE_S"] = "0.001"
    chain = numbers(4000, slow(1000), FILTER, {"op": "take", "count": 1500}, BATCH)
    bench.cluster.start(3)
    ranks = bench.ranks(chain, world=2, words=TWICE)
    bench.cluster.wait_lines(ranks[0], 10)
    bench.cluster.workers["w0"].kill9()
    for r in ranks:
        r.finish()
    bench.judge(chain, (2, None, ranks), words=TWICE)


@pytest.mark.parametrize("served", [True, False])
def test_a_state_is_good_with_and_without_a_service(bench, served):
    """From the middle of the first epoch, and of the second."""
    chain = numbers(2000, slow(300), FILTER, TAKE, BATCH)
    bench.cluster.start(2)
    service = ["--service", bench.cluster.dispatcher.address]
    whole = bench.local(chain, *TWICE)
    for n in (7, len(whole.lines) // 2 + 5):
        state = bench.cluster.directory / f"at{n}.state"
        path = bench.pipeline(chain)
        first = run(path, *TWICE, "--digest", "--batches", n, "--state", state, *(service if served else []))
        rest = run(path, *TWICE, "--digest", "--state", state, *([] if served else service))
        assert (int(first["digest"], 16) + int(rest["digest"], 16)) % 2**128 == whole.digest
        assert first["batches"] + rest["batches"] == len(whole.lines)
        assert json.loads(state.read_text())["epoch"] == 2


def test_several_ranks_at_most_once_are_refused(bench):
    bench.cluster.start_dispatcher()
    error = bench.ranks(LIMITED["take"], world=2, words=["--order", "any", "--guarantee", "at-most-once"])[
        1
    ].finish(code=2)["error"]
    assert error["attribute"] == "guarantee" and "and a `take` after a filter" in error["message"]
