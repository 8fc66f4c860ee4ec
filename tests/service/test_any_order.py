"""The service in order any, black box: each rank gets the elements of its splits once, in whatever order they come."""

import pytest
from workbench import BATCH, FILTER, PIPELINES, SHUFFLE, SLOW, hangs, numbers, with_more_time

ANY = ["--order", "any"]
ANY_PIPELINES = {
    "counted": PIPELINES["counted"],
    "filtered": PIPELINES["filtered"],
    "bucketed": PIPELINES["bucketed"],
    "repeated": [*numbers(300, SHUFFLE, {"op": "repeat", "count": 4}), BATCH],
    "concatenated": [{"op": "concat", "inputs": [numbers(300), [{"op": "range", "start": 5000, "stop": 5600}, FILTER]]}, SHUFFLE, BATCH],
    "nearly empty": numbers(3320, {"op": "filter", "where": "value % 37 == 5"}, SHUFFLE, {"op": "batch", "size": 3}),
}


@pytest.mark.large
@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("kind", ANY_PIPELINES)
def test_ranks_in_any_order_get_all_elements_once(bench, kind, transport):
    bench.cluster.start(2)
    for world in (1, 2, 3, 4):
        ranks = bench.ranks(ANY_PIPELINES[kind], world=world, job=f"of{world}", words=[*ANY, "--epochs", "2", "--transport", transport], dump=True)
        results = [r.finish() for r in ranks]
        bench.judge_set(ANY_PIPELINES[kind], ranks, words=["--epochs", "2"])
        if kind in ("counted", "repeated"):
            assert len({r["batches"] for r in results}) == 1
    bench.cluster.until("jobs", lambda jobs: all(j["state"] == "done" for j in jobs), "the jobs to be done")


def test_a_split_that_never_comes_does_not_hold_up_order_any(bench):
    """One thread hangs in it: 63 splits more of a batch each are handed out, and no others."""
    chain = numbers(2000, {"op": "fail", "where": "value == 100", "kind": "hang"}, BATCH)
    bench.cluster.start(2)
    exact = bench.ranks(chain, job="exact", with_state=False)[0]
    bench.cluster.wait_lines(exact, 12)

    def attempt(wait_s):
        r = bench.ranks(chain, words=[*ANY, "--wait", wait_s], job=f"any{wait_s}")[0]
        error = r.finish(code=4)["error"]
        assert error["kind"] == "deadline" and "position 96 " in error["message"]
        assert sorted(int(line.records[0].split(":")[1]) // 8 for line in r.parts()[0].lines) == [s for s in range(12 + 64) if s != 12]
    with_more_time(attempt, 3)
    assert exact.lines() == 12
    exact.process.kill9()


def test_a_stopped_worker_does_not_hold_up_order_any(bench):
    """Before anybody noticed that it stands still, the others' batches go on coming."""
    bench.cluster.start(2)
    r = bench.ranks(SLOW, words=ANY, dump=True, held=10)[0]
    bench.cluster.wait_lines(r, 10)
    stopped = bench.cluster.workers["w0"]

    def has_leases(workers):
        return any(w["pid"] == stopped.pid and w["state"] == "ready" and w["leases"] > 0 for w in workers)
    bench.cluster.until("workers", has_leases, "leases of the worker")
    stopped.stop()
    r.hold(40)
    bench.cluster.wait_lines(r, 40)
    assert has_leases(bench.cluster.ask("workers")[1])
    stopped.cont()
    r.finish()
    bench.judge_set(SLOW, [r])


@pytest.mark.large
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_workers_and_clients_are_killed_in_any_order(bench, transport):
    bench.cluster.start(3)
    ranks = bench.ranks(SLOW, world=3, words=[*ANY, "--transport", transport], dump=True, state_every=3, held=10)
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
    bench.judge_set(SLOW, ranks)


@pytest.mark.large
@pytest.mark.parametrize("kind", ["counted", "bucketed"])
def test_any_order_goes_on_after_any_batch(bench, kind):
    chain = numbers(150, *PIPELINES[kind][1:])
    bench.cluster.start(1)
    path, whole = bench.pipeline(chain), bench.local(chain)
    ranks = [bench.cluster.rank(path, "job", rank=rank, world_size=2, words=[*ANY, "--batches", "1"], dump=True) for rank in range(2)]
    for r in ranks:
        while not r.runs or r.runs[-1].lines():
            r.start().finish()
    assert sum(r.lines() for r in ranks) >= len(whole.lines)
    bench.judge_set(chain, ranks)


def test_at_most_once_with_ranks_loses_what_a_worker_had_and_repeats_nothing(bench):
    words = [*ANY, "--guarantee", "at-most-once"]
    chain = numbers(2400, hangs("value == 300"), BATCH)
    bench.cluster.start_dispatcher()
    bench.cluster.start_worker("w0", "--threads", "2")
    ranks = bench.ranks(chain, world=3, words=words, dump=True, held=15)
    for r in ranks:  # 45 splits came: the one that hangs, number 37, was begun
        bench.cluster.wait_lines(r, 15)
    bench.cluster.start_worker("w1")
    bench.cluster.workers["w0"].kill9()
    for r in ranks:
        r.finish()
    bench.judge_set(chain, ranks, "at-most-once")
    assert sum(line.n for r in ranks for line in r.parts()[0].lines if not line.padding) < sum(line.n for line in bench.local(chain).lines)


def test_in_any_order_each_rank_drops_its_last_short_batch(bench):
    chain = numbers(1000, FILTER, SHUFFLE, {**BATCH, "drop_remainder": True})
    bench.cluster.start(1)
    ranks = bench.ranks(chain, world=3, words=ANY, dump=True)
    for r in ranks:
        r.finish()
    assert all(line.n == 8 for r in ranks for line in r.parts()[0].lines)
    bench.judge_set(numbers(1000, FILTER, SHUFFLE, BATCH), ranks, dropped=3 * 7)


def test_sharding_off_gives_each_rank_all_of_it(bench):
    chain = PIPELINES["filtered"]
    bench.cluster.start(1)
    ranks = bench.ranks(chain, world=2, words=["--sharding", "off"], with_state=False)
    for r in ranks:
        r.finish()
    local = bench.local(chain)
    assert all([line.hash for line in r.parts()[0].lines] == [line.hash for line in local.lines] for r in ranks)
    error = bench.ranks(chain, words=["--sharding", "static"], with_state=False)[0].finish(code=2)["error"]
    assert error["attribute"] == "sharding" and "dynamic or off" in error["expected"]


def test_any_order_of_an_epoch_that_is_one_split_is_refused_for_ranks(bench):
    bench.cluster.start_dispatcher()
    error = bench.ranks(PIPELINES["one split"], world=2, words=ANY)[1].finish(code=2)["error"]
    assert error["attribute"] == "world_size" and "one worker runs each epoch" in error["message"]
