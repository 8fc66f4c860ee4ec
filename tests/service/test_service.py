"""The service, black box: dispatcher, workers and clients as processes, killed, stopped, drained and cut
off, and every batch exactly once in the same order.

CACHEW names the command (default build/cachew). Schedules of random faults are in test_schedules.py."""

import json
import random
import time
from pathlib import Path

import oracle
import pytest
from deadlines import HANG_S
from workbench import (
    BATCH,
    FILTER,
    PIPELINES,
    SHUFFLE,
    SLOW,
    Bench,
    numbers,
    slow,
    until_said,
    with_more_time,
)

# ---- without faults ----


@pytest.mark.parametrize("kind", PIPELINES)
def test_ranks_get_what_they_get_without_a_service(bench, kind):
    """The last round too, whose batches may be made from what several ranges leave."""
    bench.cluster.start(2)
    ranks = bench.ranks(PIPELINES[kind], world=4, words=["--epochs", "2"], state_every=10)
    for r in ranks:
        r.finish()
    bench.judge(PIPELINES[kind], (4, None, ranks), words=["--epochs", "2"])
    assert bench.cluster.drain() == []


def test_filling_up_the_last_round_plans_nothing_before_it_is_asked_to(bench):
    """The client's other thread once planned batches of a range that was not reported yet without end, until
    no memory was left.
    """
    bench.cluster.env["CACHEW_MUTATE"] = "late"
    bench.cluster.start(2)
    # 134 batches: the last round is filled up
    chain = [*numbers(1000, slow(500), FILTER), {"op": "batch", "size": 5}]
    ranks = bench.ranks(chain, world=3)
    for r in ranks:
        r.finish()
    bench.judge(chain, (3, None, ranks))


def test_more_ranks_than_ranges_are_leased_at_a_time(bench):
    """One worker, one batch per range: no rank gets its second batch before all have their first."""
    chain = numbers(400, SHUFFLE, BATCH)
    bench.cluster.start_dispatcher()
    bench.cluster.start_worker("w0", "--threads", "1")
    ranks = bench.ranks(chain, world=6)
    for r in ranks:
        r.finish()
    bench.judge(chain, (6, None, ranks))


@pytest.mark.parametrize("transport", ["auto", "shm", "unix", "tcp"])
def test_transports_give_the_same(bench, records, transport):
    chain = [
        {"op": "tfrecord", "files": f"{records}/plain-*.tfrecord"},
        {"op": "parse_example", "features": {"id": "int64", "blob": "bytes"}},
        SHUFFLE,
        BATCH,
    ]
    bench.cluster.start(2)
    ranks = bench.ranks(chain, world=2, words=["--transport", transport])
    for r in ranks:
        r.finish()
    bench.judge(chain, (2, None, ranks))


def test_two_jobs_on_one_stream(bench):
    chain = numbers(1500, slow(500), FILTER, SHUFFLE, BATCH)
    bench.cluster.start(2)
    first, second = bench.ranks(chain, job="one")[0], bench.ranks(chain, job="two", world=2)
    for r in (first, *second):
        r.finish()
    bench.judge(chain, (1, None, [first]))
    bench.judge(chain, (2, None, second))


def test_a_slow_rank_stops_no_other_job(bench):
    """One client is stopped while it has batches; the other job runs to its end."""
    chain, other = numbers(4000, SHUFFLE, BATCH), numbers(900, FILTER, SHUFFLE, BATCH)
    bench.cluster.start(1)
    slow_one = bench.ranks(chain, job="slow", held=3)[0]
    bench.cluster.wait_lines(slow_one, 3)
    slow_one.process.stop()
    quick = bench.ranks(other, job="quick")[0]
    quick.finish()
    bench.judge(other, (1, None, [quick]))
    slow_one.process.cont()
    slow_one.finish()
    bench.judge(chain, (1, None, [slow_one]))


def test_a_record_that_fails_ends_the_run_as_it_does_locally(bench):
    chain = numbers(200, {"op": "fail", "where": "value == 77"}, BATCH)
    bench.cluster.start(1)
    got = bench.ranks(chain)[0].finish(code=1)["error"]
    assert got["kind"] == "record" and got["operator"] == "fail" and ":77" in got["record"]


# ---- workers ----


def test_a_worker_is_killed_on_the_way(bench):
    bench.cluster.start(3)
    r = bench.ranks(SLOW, held=20)[0]
    bench.cluster.wait_lines(r, 20)
    bench.cluster.workers["w0"].kill9()
    r.finish()
    bench.judge(SLOW, (1, None, [r]))


def test_the_only_worker_is_killed_and_another_comes(bench):
    bench.cluster.start(1)
    r = bench.ranks(SLOW, held=20)[0]
    bench.cluster.wait_lines(r, 20)
    bench.cluster.workers["w0"].kill9()
    bench.cluster.start_worker("w1")
    r.finish()
    bench.judge(SLOW, (1, None, [r]))


def test_a_worker_joins_late(bench):
    """The client is there before any worker, and the second worker gets work."""
    bench.cluster.start_dispatcher()
    # more than a worker computes until another one is there
    chain = numbers(8000, {"op": "delay", "us": 2000}, FILTER, SHUFFLE, BATCH)
    r = bench.ranks(chain, held=10)[0]
    bench.cluster.until("jobs", lambda jobs: len(jobs) == 1, "the job")
    bench.cluster.start_worker("w0")
    bench.cluster.wait_lines(r, 10)
    late = bench.cluster.start_worker("w1")
    bench.cluster.until(
        "workers",
        lambda ws: any(w["id"] == late.ready["id"] and w["leases"] > 0 for w in ws),
        "leases of the late worker",
    )
    r.finish()
    bench.cluster.until(
        "workers",
        lambda ws: any(w["id"] == late.ready["id"] and w["batches"] > 0 for w in ws),
        "a heartbeat behind the late worker's batches",
    )
    bench.judge(chain, (1, None, [r]))


def test_a_worker_is_drained(bench):
    bench.cluster.start(2)
    r = bench.ranks(SLOW, held=20)[0]
    bench.cluster.wait_lines(r, 20)
    number = bench.cluster.workers["w0"].ready["id"]
    assert bench.cluster.ask("workers", "--drain", number)[0] == 0
    r.go()  # what it has is still fetched
    bench.cluster.until(
        "workers",
        lambda ws: all(w["leases"] == 0 for w in ws if w["id"] == number),
        "a worker without leases",
    )
    bench.cluster.workers["w0"].terminate()
    assert bench.cluster.workers["w0"].wait() == 0
    r.finish()
    bench.judge(SLOW, (1, None, [r]))


def test_sigterm_drains_a_worker(bench):
    bench.cluster.start(2)
    r = bench.ranks(SLOW, held=20)[0]
    bench.cluster.wait_lines(r, 20)
    bench.cluster.workers["w0"].terminate()
    r.go()
    assert bench.cluster.workers["w0"].wait() == 0
    r.finish()
    bench.judge(SLOW, (1, None, [r]))
    assert bench.cluster.drain() == []


def test_a_worker_is_stopped_for_longer_than_the_timeout(impatient):
    """What it had goes to the other; when it goes on, nobody takes what it still says."""
    impatient.cluster.start(2)
    r = impatient.ranks(SLOW, words=["--transport", "tcp"], held=10)[0]
    impatient.cluster.wait_lines(r, 10)
    stopped = impatient.cluster.workers["w0"]
    stopped.stop()
    r.finish()
    stopped.cont()
    impatient.judge(SLOW, (1, None, [r]))
    impatient.cluster.until(
        "workers",
        lambda ws: any(w["pid"] == stopped.pid and w["state"] == "ready" for w in ws),
        "the worker to come back",
    )


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_batches_of_a_worker_that_loses_the_dispatcher_stay_what_they_are(tmp_path, transport):
    """The dispatcher calls it gone; but it lives, and would use the memory that it lent again if the client
    gave its connection up.
    """
    bench = Bench(tmp_path, proxies=True)
    try:
        chain = numbers(3000, slow(300), SHUFFLE, BATCH)
        bench.cluster.start(2)
        r = bench.ranks(chain, words=["--transport", transport], state_every=0, held=10)[0]
        for n in range(10, 200, 10):
            bench.cluster.wait_lines(r, n)
            bench.cluster.links[f"w{n // 10 % 2}-dispatcher"].drop()
            r.hold(n + 10)
        r.finish()
        bench.judge(chain, (1, None, [r]))
    finally:
        bench.cluster.close()


# ---- the dispatcher ----


@pytest.mark.parametrize("state_dir", [True, False])
def test_the_dispatcher_is_killed_and_restarted(bench, state_dir):
    """Without a journal too: clients and workers know the rest. Its workers get other numbers then."""
    bench.cluster.start(3, state_dir=state_dir)
    ranks = bench.ranks(SLOW, world=2, held=10)
    bench.cluster.wait_lines(ranks[0], 10)
    bench.cluster.dispatcher.kill9()
    bench.cluster.start_dispatcher(state_dir=state_dir)
    for r in ranks:
        r.finish()
    bench.judge(SLOW, (2, None, ranks))


@pytest.mark.parametrize("seed", range(6))
def test_a_worker_that_has_longer_ranges_than_the_next_dispatcher_cuts(bench, seed):
    """A worker still has a longer range than the next dispatcher cuts, and sends elements behind its new end.
    They belong to the next range, and don't show that an operator is not deterministic.
    """
    draw = random.Random(seed)
    bench.cluster.start(3, state_dir=False)
    ranks = bench.ranks(SLOW, world=2, held=10)
    bench.cluster.wait_lines(ranks[0], 10)
    for n in (20, 30, 40):
        time.sleep(draw.uniform(0, 0.3))
        worker = bench.cluster.workers[f"w{draw.randrange(3)}"]
        worker.stop()
        bench.cluster.dispatcher.kill9()
        bench.cluster.start_dispatcher(state_dir=False)
        time.sleep(draw.uniform(0, 0.2))
        worker.cont()
        for r in ranks:
            r.hold(n)
    for r in ranks:
        r.finish()
    bench.judge(SLOW, (2, None, ranks))


def test_jobs_are_known_after_a_restart(bench):
    bench.cluster.start(1)
    r = bench.ranks(SLOW, held=5)[0]
    bench.cluster.wait_lines(r, 5)
    r.process.kill9()
    bench.cluster.dispatcher.kill9()
    bench.cluster.start_dispatcher()
    code, jobs, _ = bench.cluster.ask("jobs")
    assert (
        code == 0
        and [j["name"] for j in jobs] == ["job"]
        and not any(rank["attached"] for rank in jobs[0]["ranks"])
    )
    r.start().finish()
    bench.judge(SLOW, (1, None, [r]))


def test_a_dispatcher_that_knows_nothing_is_told_what_workers_gave(bench):
    """What the worker holds is finished for the most part, and was acknowledged: the next dispatcher, which
    the clients reach first, has no other way to learn of it.
    """
    chain = numbers(9000, FILTER, SHUFFLE, {"op": "batch", "size": 2})
    bench.cluster.start(1, state_dir=False)
    ranks = bench.ranks(chain, world=2, held=10)
    for r in ranks:
        bench.cluster.wait_lines(r, 10)
    bench.cluster.workers["w0"].stop()
    bench.cluster.dispatcher.kill9()
    bench.cluster.start_dispatcher(state_dir=False)
    bench.cluster.until(
        "jobs", lambda jobs: jobs and len(jobs[0]["ranks"]) == 2, "the ranks, before the worker"
    )
    bench.cluster.workers["w0"].cont()
    for r in ranks:
        r.finish()
    bench.judge(chain, (2, None, ranks))


def test_what_was_asked_for_is_not_asked_for_twice(tmp_path):
    """A worker that loses the dispatcher keeps its clients, and what they asked for: each batch is computed
    and sent once.
    """
    bench = Bench(tmp_path, proxies=True)
    try:
        chain = numbers(600, slow(2000), SHUFFLE, FILTER, {"op": "skip", "count": 20}, BATCH)
        bench.cluster.start(1)
        ranks = bench.ranks(chain, world=4, words=["--transport", "shm"], with_state=False, held=2)
        for n in (2, 4, 6):
            bench.cluster.wait_lines(ranks[0], n)
            bench.cluster.links["w0-dispatcher"].drop()
            for r in ranks:
                r.hold(n + 2)
        for r in ranks:
            r.finish()
        local = bench.judge(chain, (4, None, ranks))
        n = len(local.lines)
        sent = bench.cluster.until(
            "workers", lambda ws: ws and ws[0]["batches"] >= n - 1, "a heartbeat behind the last batch"
        )[0]["batches"]
        # the last batch is what was left over; a rank without one in the last round repeats another
        assert sent <= n + 4
    finally:
        bench.cluster.close()


# ---- clients ----


@pytest.mark.parametrize("with_state", [True, False])
def test_a_client_is_killed_and_started_again(bench, with_state):
    bench.cluster.start(2)
    ranks = bench.ranks(SLOW, world=2, with_state=with_state, state_every=3, held=10)
    bench.cluster.wait_lines(ranks[1], 10)
    ranks[1].process.kill9()
    ranks[1].start()
    for r in ranks:
        r.finish()
    bench.judge(SLOW, (2, None, ranks))


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_roll_back_one_after_the_other(bench, world, tmp_path):
    """They go on from an older state, while one is still there and goes on from the newer one, until it is
    started again too.
    """
    bench.cluster.start(2)
    ranks = bench.ranks(SLOW, world=world, held=5)
    for r in ranks:
        bench.cluster.wait_lines(r, 5)
    old = tmp_path / "old.state"
    at = min((oracle.read_state(r.state), str(r.state)) for r in ranks)
    old.write_bytes(Path(at[1]).read_bytes())
    for r in ranks:
        r.hold(15)
    for r in ranks:
        bench.cluster.wait_lines(r, 15)
    for r in ranks[1:]:
        r.process.kill9()
    lines = ranks[0].lines()
    for r in [*ranks[1:], ranks[0]]:
        if r is ranks[0]:
            r.hold(lines + 3)
            bench.cluster.wait_lines(r, lines + 3)
            r.process.kill9()
        r.state.write_bytes(old.read_bytes())
        r.held = r.lines() + 3
        r.start()
        bench.cluster.wait(
            lambda r=r: r.runs[-1].lines() > 0, f"{r.name} to go on from its older state", HANG_S
        )
    for r in ranks:
        r.finish()
    bench.judge(SLOW, (world, None, ranks))


def test_a_rank_that_is_missing_is_named(bench):
    bench.cluster.start(1)
    chain, epochs = numbers(64, SHUFFLE, BATCH), ["--epochs", "100"]  # more ranges than a worker is leased
    path = bench.pipeline(chain)
    ranks = [bench.cluster.rank(path, "job", rank=rank, world_size=3) for rank in (0, 2)]

    def attempt(wait_s):
        for r in ranks:
            r.words = [*epochs, "--wait", wait_s]
            r.start()
        for error in [r.finish(code=4)["error"] for r in ranks]:
            assert (
                error["kind"] == "deadline"
                and "rank 1 of 3 is behind: it is at position 0 of epoch 0, and not connected"
                in error["message"]
            )

    with_more_time(attempt, 4)
    jobs = bench.cluster.until(
        "jobs", lambda jobs: jobs[0]["state"] == "unattended", "the job to be without clients"
    )
    assert [rank["rank"] for rank in jobs[0]["ranks"]] == [0, 2]
    for r in ranks:
        r.words = epochs
        r.start()
    ranks.append(bench.cluster.rank(path, "job", rank=1, world_size=3, words=epochs).start())
    for r in ranks:
        r.finish()
    bench.judge(chain, (3, None, [ranks[0], ranks[2], ranks[1]]), words=epochs)


def test_states_of_different_rounds_are_refused(bench, tmp_path):
    """Each rank would take what is another's."""
    bench.cluster.start(1)
    ranks = bench.ranks(SLOW, world=2, held=6)
    bench.cluster.wait_lines(ranks[0], 6)
    state = (
        json.loads(ranks[1].state.read_text())
        if ranks[1].state.exists()
        else json.loads(ranks[0].state.read_text())
    )
    ranks[1].process.kill9()
    state["g"] += 1
    ranks[1].state.write_text(json.dumps(state))
    error = ranks[1].start().finish(code=3)["error"]
    assert error["kind"] == "service" and "the first batch for all ranks" in error["message"]


def test_a_client_ends_though_a_worker_is_stopped(impatient):
    """Over a Unix socket a stopped worker is waited for, but not by who has nothing to do with it any
    more.
    """
    impatient.cluster.start(2)
    r = impatient.ranks(SLOW, words=["--transport", "unix"], held=10)[0]
    impatient.cluster.wait_lines(r, 10)
    impatient.cluster.workers["w0"].stop()
    r.finish()
    impatient.cluster.workers["w0"].cont()
    impatient.judge(SLOW, (1, None, [r]))


@pytest.mark.large
def test_nothing_is_said_before_an_attachment_is_answered(bench):
    """The only worker stands still, so that a dispatcher without a journal can't answer: the client waits,
    and is not cut off for what it says meanwhile.
    """
    bench.cluster.start(1, state_dir=False)
    r = bench.ranks(SLOW, held=10)[0]
    bench.cluster.wait_lines(r, 10)
    bench.cluster.workers["w0"].stop()
    bench.cluster.dispatcher.kill9()
    bench.cluster.start_dispatcher(state_dir=False)
    r.go()
    until_said(r.process, "job job has waited ")  # after 5 s, in which it could have said something
    assert "before Attached" not in bench.cluster.dispatcher.err_path.read_text()
    bench.cluster.workers["w0"].cont()
    r.finish()
    bench.judge(SLOW, (1, None, [r]))


@pytest.mark.parametrize("how", ["renamed", "longer", "gone"])
def test_a_job_sees_the_files_as_they_are_when_it_begins(bench, how):
    """Not as a job with the same pipeline saw them a moment ago."""
    data, other = bench.cluster.directory / "lines.txt", bench.cluster.directory / "other.txt"
    data.write_text("".join(f"old{i:05d}\n" for i in range(200)))
    chain = [{"op": "text", "files": str(data)}, BATCH]
    bench.cluster.start(1)
    bench.ranks(chain, job="one")[0].finish()
    if how == "renamed":
        other.write_text("".join(f"new{i:05d}\n" for i in range(200)))
        other.rename(data)
    elif how == "longer":
        data.write_text("".join(f"longer{i:05d}\n" for i in range(300)))
    else:
        data.unlink()
    r = bench.ranks(chain, job="two")[0]
    if how == "gone":
        assert "no file matches" in r.finish(code=2)["error"]["message"]
    else:
        r.finish()
        bench.judge(chain, (1, None, [r]))


@pytest.mark.large(keep=0)
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_the_largest_batches(bench, transport):
    """The ids of a batch of 2^20 elements are 32 MiB."""
    chain = numbers((1 << 20) + 5, {"op": "batch", "size": 1 << 20})
    bench.cluster.start(1)
    r = bench.ranks(chain, words=["--transport", transport])[0]
    r.finish()
    bench.judge(chain, (1, None, [r]))


@pytest.mark.parametrize("worlds", [(2, 3), (3, 1)])
def test_clients_go_on_in_another_world(bench, worlds, tmp_path):
    bench.cluster.start(2)
    ranks = bench.ranks(SLOW, world=worlds[0], held=8)
    for r in ranks:
        bench.cluster.wait_lines(r, 8)
    for r in ranks:
        r.process.kill9()
    at, state = min((oracle.read_state(r.state), str(r.state)) for r in ranks)
    after = bench.ranks(SLOW, world=worlds[1], job="again", start=state)
    for r in after:
        r.finish()
    bench.judge(SLOW, (worlds[0], None, ranks), (worlds[1], at, after))


def test_sigterm_ends_a_client_with_its_state(bench):
    bench.cluster.start(2)
    r = bench.ranks(SLOW, state_every=0, held=10)[0]
    bench.cluster.wait_lines(r, 10)
    r.process.terminate()
    assert r.process.wait() == 143
    r.start().finish()
    bench.judge(SLOW, (1, None, [r]))


def test_a_job_s_name_with_other_options_is_refused(bench):
    """Each refusal may take a second: whether the job's clients are gone is found out first."""
    bench.cluster.start(1)
    r = bench.ranks(SLOW, held=3)[0]
    bench.cluster.wait_lines(r, 3)
    for words, what in (
        (["--seed", "9"], "seed"),
        (["--epochs", "3"], "epochs"),
        (["--order", "any"], "order"),
        (["--set", "4.size=7"], "pipeline"),
    ):
        error = bench.ranks(SLOW, words=words, with_state=False)[0].finish(code=3, alone=True)["error"]
        assert error["kind"] == "service" and "job" in error["message"] and what in error["message"], error
    error = bench.ranks(SLOW, world=2, with_state=False)[1].finish(code=3, alone=True)["error"]
    assert "world_size" in error["message"]
    r.process.kill9()


def test_a_cancelled_job_ends_with_a_reason(bench):
    """And with a state: it may be run again."""
    bench.cluster.start(1)
    r = bench.ranks(SLOW, state_every=0, held=3)[0]
    bench.cluster.wait_lines(r, 3)
    assert bench.cluster.ask("jobs", "--cancel", "job")[0] == 0
    error = r.finish(code=3)["error"]
    assert error["kind"] == "service" and "cancel" in error["message"]
    assert oracle.read_state(r.state) == (0, r.lines())
    bench.cluster.until("jobs", lambda jobs: jobs[0]["state"] == "cancelled", "the job to be cancelled")


def test_a_paused_job_goes_on(bench):
    bench.cluster.start(1)
    r = bench.ranks(SLOW, held=3)[0]
    bench.cluster.wait_lines(r, 3)
    assert bench.cluster.ask("jobs", "--pause", "job")[0] == 0
    bench.cluster.until("jobs", lambda jobs: jobs[0]["state"] == "paused", "the job to be paused")
    assert bench.cluster.ask("jobs", "--resume", "job")[0] == 0
    r.finish()
    bench.judge(SLOW, (1, None, [r]))
