"""The service in order any, black box: each rank gets the batches of exact order once, as they are ready."""

import collections
import json

import pytest
from workbench import BATCH, FILTER, PIPELINES, SHUFFLE, SLOW, hangs, numbers, slow, with_more_time

ANY = ["--order", "any"]
ANY_PIPELINES = {
    "counted": PIPELINES["counted"],
    "filtered": PIPELINES["filtered"],
    "bucketed": PIPELINES["bucketed"],
    "repeated": [*numbers(300, SHUFFLE, {"op": "repeat", "count": 4}), BATCH],
    "concatenated": [
        {"op": "concat", "inputs": [numbers(300), [{"op": "range", "start": 5000, "stop": 5600}, FILTER]]},
        SHUFFLE,
        BATCH,
    ],
    "nearly empty": numbers(
        3320, {"op": "filter", "where": "value % 37 == 5"}, SHUFFLE, {"op": "batch", "size": 3}
    ),
}


@pytest.mark.large
@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("kind", ANY_PIPELINES)
def test_ranks_in_any_order_get_all_elements_once(bench, kind, transport):
    bench.cluster.start(2)
    for world in (1, 2, 3, 4):
        ranks = bench.ranks(
            ANY_PIPELINES[kind],
            world=world,
            job=f"of{world}",
            words=[*ANY, "--epochs", "2", "--transport", transport],
            dump=True,
        )
        results = [r.finish() for r in ranks]
        bench.judge_any(ANY_PIPELINES[kind], ranks, words=["--epochs", "2"])
        assert len({r["batches"] for r in results}) == 1
    bench.cluster.until("jobs", lambda jobs: all(j["state"] == "done" for j in jobs), "the jobs to be done")


@pytest.mark.parametrize("kind", ["counted", "filtered"])
def test_the_digest_of_order_any_is_that_of_exact_order(bench, kind):
    bench.cluster.start(2)
    local = bench.local(PIPELINES[kind])
    ranks = bench.ranks(PIPELINES[kind], world=2, words=ANY)
    assert sum(int(r.finish()["digest"], 16) for r in ranks) % 2**128 == local.digest


def test_a_batch_that_never_comes_does_not_hold_up_order_any(bench):
    """One thread hangs in it: 63 batches more are handed out, and no others."""
    chain = numbers(2000, *hangs("value == 100"), BATCH)
    bench.cluster.start(2)
    exact = bench.ranks(chain, job="exact", with_state=False)[0]
    bench.cluster.wait_lines(exact, 12)

    def attempt(wait_s):
        r = bench.ranks(chain, words=[*ANY, "--wait", wait_s], job=f"any{wait_s}")[0]
        error = r.finish(code=4)["error"]
        assert error["kind"] == "deadline" and "position 96 " in error["message"]
        came = [line.g for line in r.parts()[0].lines]
        assert set(range(12)) <= set(came) <= set(range(12 + 64)) - {12} and len(came) > 13

    with_more_time(attempt, 3)
    assert exact.lines() == 12
    exact.process.kill9()


def test_a_stopped_worker_does_not_hold_up_order_any(bench):
    """Before anybody noticed that it stands still, the others' batches come, of a later number than its
    first.
    """
    bench.cluster.start(2)
    r = bench.ranks(SLOW, words=ANY, held=10)[0]
    bench.cluster.wait_lines(r, 10)
    stopped = bench.cluster.workers["w0"]

    def has_leases(workers):
        return any(w["pid"] == stopped.pid and w["state"] == "ready" and w["leases"] > 0 for w in workers)

    bench.cluster.until("workers", has_leases, "leases of the worker")
    stopped.stop()
    r.hold(40)
    bench.cluster.wait_lines(r, 40)
    stopped.cont()
    r.finish()
    bench.judge_any(SLOW, [r])


@pytest.mark.large
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_workers_and_clients_are_killed_in_any_order(bench, transport):
    bench.cluster.start(3)
    ranks = bench.ranks(
        SLOW, world=3, words=[*ANY, "--transport", transport], dump=True, state_every=3, held=10
    )
    bench.cluster.wait_lines(ranks[0], 10)
    bench.cluster.workers["w0"].kill9()
    ranks[1].process.kill9()
    ranks[1].start()
    for r in ranks:
        r.hold(20)
    for r in ranks:
        bench.cluster.wait_lines(r, 20)
    bench.cluster.dispatcher.kill9()
    bench.cluster.start_dispatcher()
    for r in ranks:
        r.finish()
    bench.judge_any(SLOW, ranks)


@pytest.mark.large
@pytest.mark.parametrize("kind", ["counted", "filtered", "bucketed"])
def test_any_order_goes_on_after_any_batch(bench, kind):
    chain = numbers(150, *PIPELINES[kind][1:])
    bench.cluster.start(1)
    path, whole = bench.pipeline(chain), bench.local(chain)
    ranks = [
        bench.cluster.rank(path, "job", rank=rank, world_size=2, words=[*ANY, "--batches", "1"], dump=True)
        for rank in range(2)
    ]
    for r in ranks:
        while not r.runs or r.runs[-1].lines():
            r.start().finish()
    assert sum(r.lines() for r in ranks) >= len(whole.lines)
    bench.judge_any(chain, ranks)


def test_at_most_once_with_ranks_loses_what_a_worker_had_and_repeats_nothing(bench):
    words = [*ANY, "--guarantee", "at-most-once"]
    chain = numbers(2400, *hangs("value == 300"), BATCH)
    bench.cluster.start_dispatcher()
    bench.cluster.start_worker("w0", "--threads", "2")
    ranks = bench.ranks(chain, world=3, words=words, dump=True, held=15)
    for r in ranks:  # 45 batches came: the one that hangs, number 37, was begun
        bench.cluster.wait_lines(r, 15)
    bench.cluster.start_worker("w1")
    bench.cluster.workers["w0"].kill9()
    for r in ranks:
        r.finish()
    bench.judge_any(chain, ranks, "at-most-once")
    assert sum(line.n for r in ranks for line in r.parts()[0].lines if not line.padding) < sum(
        line.n for line in bench.local(chain).lines
    )


def test_sharding_off_gives_each_rank_all_of_it(bench):
    chain = PIPELINES["filtered"]
    bench.cluster.start(1)
    ranks = bench.ranks(chain, world=2, words=["--sharding", "off"], with_state=False)
    for r in ranks:
        r.finish()
    local = bench.local(chain)
    assert all(
        [line.hash for line in r.parts()[0].lines] == [line.hash for line in local.lines] for r in ranks
    )
    error = bench.ranks(chain, words=["--sharding", "static"], with_state=False)[0].finish(code=2)["error"]
    assert error["attribute"] == "sharding" and "dynamic or off" in error["expected"]


def test_an_epoch_that_is_one_range_has_one_order(bench):
    bench.cluster.start(2)
    ranks = bench.ranks(PIPELINES["one range"], world=2, words=ANY)
    for r in ranks:
        r.finish()
        assert [line.g for line in r.parts()[0].lines] == sorted(line.g for line in r.parts()[0].lines)
    bench.judge_any(PIPELINES["one range"], ranks)


@pytest.mark.parametrize("world", [1, 2])
def test_batches_handed_out_before_their_turn_are_in_the_state(bench, world):
    """The first batch of rank 0 takes long. The state says which later ones were handed out: a run that goes
    on from it hands out the others.
    """
    chain = numbers(400, {**slow(5_000_000), "where": "value == 3"}, BATCH)
    bench.cluster.start(3)
    ranks = bench.ranks(chain, world=world, words=ANY, held=5)
    bench.cluster.wait_lines(ranks[0], 5)
    ranks[0].process.kill9()
    saved = json.loads(ranks[0].state.read_text())
    assert (saved["epoch"], saved["g"], saved["rank"], saved["world_size"]) == (0, 0, 0, world)
    assert 0 < int(saved["handed_out"], 16) < 2**64 and int(saved["handed_out"], 16) & 1 == 0
    for words, rank, world_size, attribute in (
        (ANY, 1, 4, "rank"),
        (ANY, 0, 3, "rank"),
        ([], 0, world, "order"),
    ):
        other = bench.cluster.rank(
            bench.pipeline(chain),
            "other",
            rank=rank,
            world_size=world_size,
            words=words,
            start=ranks[0].state,
        )
        error = other.start().finish(code=2)["error"]
        assert error["kind"] == "state" and error["attribute"] == attribute
    ranks[0].start()
    for r in ranks:
        r.finish()
    bench.judge_any(chain, ranks)


MOST_ONCE = [*ANY, "--guarantee", "at-most-once"]


def elements(ranks):
    """How often each record came."""
    return collections.Counter(
        record for r in ranks for part in r.parts() for line in part.lines for record in line.records
    )


@pytest.mark.parametrize("kind", ["filtered", "bucketed", "buckets with keys of two bytes"])
def test_ranks_share_out_ranges_where_nothing_may_come_twice(bench, kind):
    """Ranges end early all the time; every element comes, once, from one rank or another."""
    bench.cluster.env["CACHEW_RANGE_S"] = "0.001"
    chain = [PIPELINES[kind][0], {"op": "delay", "us": 300}, *PIPELINES[kind][1:]]
    bench.cluster.start(3)
    ranks = bench.ranks(chain, world=3, words=MOST_ONCE)
    for r in ranks:
        r.finish()
    bench.judge_any(chain, ranks, "at-most-once")
    came = elements(ranks)
    assert max(came.values()) == 1 and sum(came.values()) == sum(line.n for line in bench.local(chain).lines)
    assert all(r.parts()[-1].lines for r in ranks)


@pytest.mark.parametrize("kind", ["filtered", "bucketed"])
def test_ranks_share_out_ranges_while_workers_die(bench, kind):
    chain = [PIPELINES[kind][0], slow(2000), *PIPELINES[kind][1:]]
    bench.cluster.start(3)
    ranks = bench.ranks(chain, world=3, words=MOST_ONCE, dump=True, state_every=2)
    bench.cluster.wait_lines(ranks[0], 2)
    bench.cluster.workers["w0"].kill9()
    ranks[1].process.kill9()
    bench.cluster.workers["w1"].kill9()
    ranks[1].start()
    for r in ranks:
        r.finish()
    bench.judge_any(chain, ranks, "at-most-once")


def test_a_state_of_ranges_of_its_own_is_no_other_run_s(bench):
    chain = [PIPELINES["filtered"][0], slow(2000), *PIPELINES["filtered"][1:]]
    bench.cluster.start(2)
    ranks = bench.ranks(chain, world=2, words=MOST_ONCE, state_every=1, held=3)
    for r in ranks:
        bench.cluster.wait_lines(r, 3)
        r.process.kill9()
    saved = json.loads(ranks[1].state.read_text())
    assert saved["own_ranges"] and (saved["rank"], saved["world_size"]) == (1, 2)
    for words, rank, world, attribute in (
        (MOST_ONCE, 0, 2, "rank"),
        (MOST_ONCE, 1, 3, "rank"),
        (ANY, 1, 2, "guarantee"),
        (MOST_ONCE, 0, 1, "guarantee"),
    ):
        other = bench.cluster.rank(
            bench.pipeline(chain), "other", rank=rank, world_size=world, words=words, start=ranks[1].state
        )
        error = other.start().finish(code=2)["error"]
        assert error["kind"] == "state" and error["attribute"] == attribute
    for r in ranks:
        r.start()
        r.finish()
    bench.judge_any(chain, ranks, "at-most-once")


@pytest.mark.parametrize("kind", ["filtered", "bucketed", "one range"])
def test_at_most_once_where_batches_follow_from_what_ranges_leave(bench, kind):
    """Workers are killed while a client has part of what they had: it goes on with what is left, and repeats
    nothing.
    """
    chain = [PIPELINES[kind][0], slow(2000), *PIPELINES[kind][1:]]
    bench.cluster.start(3)
    r = bench.ranks(chain, words=[*ANY, "--guarantee", "at-most-once"], dump=True, held=5, state_every=2)[0]
    bench.cluster.wait_lines(r, 5)
    bench.cluster.workers["w0"].kill9()
    bench.cluster.workers["w1"].kill9()
    r.process.kill9()
    r.start()
    r.finish()
    bench.judge_any(chain, [r], "at-most-once")
