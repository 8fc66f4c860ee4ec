"""Clients that have to wait: for a dispatcher that is not there yet, for a worker that has room, for another
rank, for somebody who paused the job. They wait as long as they may, and say what for; and what was not
delivered is said at the end."""

import re
import select
import subprocess

import pytest
from cluster import CACHEW, Cluster, Deadline
from deadlines import HANG_S, SILENCE_S
from workbench import BATCH, SHUFFLE, free_address, hangs, numbers, slow, until_said, with_more_time

ANY = ["--order", "any"]
FAST = numbers(200000, SHUFFLE, BATCH)
SLOW = numbers(2000, slow(2000), SHUFFLE, BATCH)


def until_noted(process, text, seconds):
    """Until a client has said that it waits for longer than so many seconds, because of this."""

    def noted():
        return any(
            int(since) > seconds
            for since in re.findall(rf"waited (\d+) s for [^:]*: {re.escape(text)}", process.said(100000))
        )

    deadline = Deadline(HANG_S)
    while not noted():
        assert process.running, f"{process.name} ended with {process.code}: {process.said()}"
        select.select(
            [],
            [],
            [],
            min(
                deadline.left(
                    f"{process.name} to wait for more than {seconds} s: {text}; it said {process.said()}"
                ),
                0.1,
            ),
        )


def paused(bench, job):
    code, _, err = bench.cluster.ask("jobs", "--pause", job)
    assert code == 0, err


def resumed(bench, job):
    code, _, err = bench.cluster.ask("jobs", "--resume", job)
    assert code == 0, err


def test_a_dispatcher_that_comes_late_is_waited_for(bench):
    bench.cluster.direct = free_address()
    r = bench.cluster.rank(bench.pipeline(SLOW), "job").start()
    until_said(r.process, f"the dispatcher at {bench.cluster.direct} can't be reached (")
    bench.cluster.start(1)
    r.finish()
    bench.judge(SLOW, (1, None, [r]))


@pytest.mark.large
def test_a_paused_job_is_not_late(bench):
    bench.cluster.start(1)

    def attempt(wait_s):
        job = f"job{wait_s}"
        r = bench.ranks(SLOW, job=job, words=["--wait", wait_s], held=3)[0]
        bench.cluster.wait_lines(r, 3)
        paused(bench, job)
        assert [j["held"] for j in bench.cluster.ask("jobs")[1] if j["name"] == job][0].startswith(
            "the job is paused"
        )
        r.go()
        until_noted(r.process, "the job is paused", wait_s)
        resumed(bench, job)
        r.finish()
        return r

    bench.judge(SLOW, (1, None, [with_more_time(attempt)]))


def test_a_job_that_is_paused_before_there_is_a_worker_is_not_late(bench):
    bench.cluster.start_dispatcher()

    def attempt(wait_s):
        job = f"job{wait_s}"
        r = bench.ranks(SLOW, job=job, words=["--wait", wait_s])[0]
        bench.cluster.wait_job(r, lambda jobs: jobs)
        paused(bench, job)
        until_noted(r.process, "the job is paused", wait_s)  # when it would have been too late
        if not bench.cluster.workers:
            bench.cluster.start_worker()
        resumed(bench, job)
        r.finish()
        return r

    bench.judge(SLOW, (1, None, [with_more_time(attempt, 4)]))


@pytest.mark.large
def test_a_pause_is_over_with_its_dispatcher(bench):
    bench.cluster.start(1)

    def attempt(wait_s):
        job = f"job{wait_s}"
        if not bench.cluster.dispatcher.running:
            bench.cluster.start_dispatcher()
        r = bench.ranks(SLOW, job=job, words=["--wait", wait_s], held=3)[0]
        bench.cluster.wait_lines(r, 3)
        paused(bench, job)
        r.go()
        until_noted(r.process, "the job is paused", wait_s)
        bench.cluster.dispatcher.kill9()
        assert (
            f"the dispatcher at {bench.cluster.direct} can't be reached"
            in r.finish(code=4)["error"]["message"]
        )

    with_more_time(attempt)


@pytest.mark.large
def test_a_pause_that_the_next_dispatcher_does_not_know_is_over(bench):
    """It has nothing to say: the worker computes."""
    bench.cluster.start_dispatcher(state_dir=False)
    bench.cluster.start_worker()

    def attempt(wait_s):
        job = f"job{wait_s}"
        r = bench.ranks(numbers(100, *hangs("true"), BATCH), job=job, words=["--wait", wait_s])[0]
        bench.cluster.wait_job(r, lambda jobs: jobs and jobs[0]["ranks"])
        paused(bench, job)
        until_noted(r.process, "the job is paused", wait_s)
        bench.cluster.dispatcher.kill9()
        bench.cluster.start_dispatcher(state_dir=False)
        assert "is computing that position" in r.finish(code=4)["error"]["message"]

    with_more_time(attempt, 6)


@pytest.mark.large
def test_a_rank_that_never_comes_is_named_early_and_at_the_end(bench):
    bench.cluster.start(1)
    missing = "rank 1 of 2 is behind: it is at position 0 of epoch 0, and not connected"

    def attempt(wait_s):
        words = ["--wait", wait_s, "--epochs", "100"]  # more ranges than a worker is leased
        r = bench.cluster.rank(
            bench.pipeline(numbers(64, SHUFFLE, BATCH)),
            f"job{wait_s}",
            world_size=2,
            words=words,
            with_state=False,
        ).start()
        until_said(r.process, missing)  # before it ends
        assert missing in r.finish(code=4)["error"]["message"]

    with_more_time(attempt, 8)


def test_who_takes_the_place_of_another_client_is_told(bench):
    bench.cluster.start(1)
    first, second = (bench.cluster.rank(bench.pipeline(SLOW), "job", held=held) for held in (3, None))
    first.start()
    bench.cluster.wait_lines(first, 3)
    assert "took over" not in first.process.said()
    second.start()
    until_said(second.process, "this client took over rank 0 of job job from a client on ")
    assert "taken over by another client" in first.finish(code=3)["error"]["message"]
    second.finish()


@pytest.mark.large
def test_more_jobs_than_streams_have_their_turn(bench):
    bench.cluster.start_dispatcher()
    bench.cluster.start_worker("w0", "--max-streams", "2")
    path = bench.pipeline(SLOW)
    ranks = [bench.cluster.rank(path, f"job{i}", words=["--seed", i]).start() for i in range(6)]
    for r in ranks:
        r.finish()
    for i, r in enumerate(ranks):
        bench.judge(SLOW, (1, None, [r]), words=["--seed", str(i)])
    path = bench.pipeline(FAST)
    for r in [bench.cluster.rank(path, f"held{i}", words=["--seed", i], held=1).start() for i in range(2)]:
        bench.cluster.wait_lines(r, 1)

    def attempt(wait_s):
        late = bench.cluster.rank(path, f"late{wait_s}", words=["--wait", wait_s, "--seed", 9])
        assert "--max-streams" in late.start().finish(code=4)["error"]["message"]

    with_more_time(attempt)


def test_what_was_lost_is_said(bench):
    bench.cluster.start_dispatcher()
    bench.cluster.start_worker("w0", "--threads", "2")
    ranks = bench.ranks(
        numbers(2000, *hangs("value == 300"), BATCH),
        world=2,
        words=[*ANY, "--guarantee", "at-most-once"],
        dump=True,
        held=20,
    )
    for r in ranks:  # 40 batches came: the one that hangs, number 37, was begun
        bench.cluster.wait_lines(r, 20)
    bench.cluster.start_worker("w1")
    bench.cluster.workers["w0"].kill9()
    results = [r.finish() for r in ranks]
    lost = sum(result["lost_ranges"] for result in results)
    assert lost > 0
    assert any(re.search(r"\d+ ranges? w(as|ere) lost with workers", r.process.said()) for r in ranks)
    job = bench.cluster.until("jobs", lambda jobs: jobs[0]["state"] == "done", "the job to be done")[0]
    assert job["lost_ranges"] == lost
    until_said(bench.cluster.dispatcher, f'job "job" is done; {lost} ranges were lost')
    assert [rank["batches"] for rank in job["ranks"]] == [result["batches"] for result in results]


def test_numbers_of_a_finished_job_are_its_last(bench):
    bench.cluster.start(1)
    r = bench.ranks(numbers(1000, SHUFFLE, BATCH))[0]
    assert r.finish()["lost_ranges"] == 0
    rank = bench.cluster.until("jobs", lambda jobs: jobs[0]["state"] == "done", "the job to be done")[0][
        "ranks"
    ][0]
    assert (rank["batches"], rank["g"], rank["finished"]) == (125, 0, True)  # g: of the epoch after the last
    words = [CACHEW, "jobs", "--service", bench.cluster.direct, "--wait", str(HANG_S)]
    shown = subprocess.run(words, check=True, capture_output=True, text=True, timeout=HANG_S).stdout
    assert "(finished)" in shown and "(gone)" not in shown


@pytest.mark.parametrize("policy", ["FILE", "data", "FILE_OR_DATA", "HINT", "static"])
def test_fixed_shards_are_refused_with_the_reason(bench, policy):
    bench.cluster.start_dispatcher()
    error = bench.ranks(FAST, words=["--sharding", policy], with_state=False)[0].finish(code=2)["error"]
    assert (
        error["attribute"] == "sharding"
        and error["value"] == policy
        and "no fixed assignment of data" in error["message"]
    )


@pytest.mark.parametrize("policy", ["Dynamic", "OFF"])
def test_sharding_in_capitals(bench, policy):
    bench.cluster.start(1)
    bench.ranks(numbers(100, BATCH), words=["--sharding", policy], with_state=False)[0].finish()


@pytest.mark.parametrize("verb", ["worker", "up"])
@pytest.mark.parametrize("what", ["missing", "file"])
def test_roots_that_are_no_directories(tmp_path, verb, what):
    root = tmp_path / "root"
    if what == "file":
        root.touch()
    words = ["--dispatcher", free_address()] if verb == "worker" else ["--listen", "127.0.0.1:0"]
    ran = subprocess.run(
        [CACHEW, verb, *words, "--data-root", root],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert ran.returncode == 2 and str(root) in ran.stderr


def test_workers_of_up_are_told_apart_in_the_log(tmp_path):
    with Cluster() as c:
        process = subprocess.Popen(
            [CACHEW, "up", "--workers", "2", "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=c.env,
        )
        process.stdout.readline()
        process.terminate()
        said = process.communicate(timeout=HANG_S)[1]
    assert re.search(r"cachew worker worker-0: ", said) and re.search(r"cachew worker worker-1: ", said), said


def test_a_client_that_stood_still_and_then_ends_is_known_to_be_finished(bench):
    """The dispatcher has given its connection up meanwhile: it comes back to say so."""
    bench.cluster.start(1, env={"CACHEW_SILENCE_S": str(SILENCE_S)})
    r = bench.ranks(numbers(3000, slow(300), BATCH), held=2)[0]
    bench.cluster.wait_lines(r, 2)
    r.process.stop()
    bench.cluster.until("jobs", lambda jobs: not jobs[0]["ranks"][0]["attached"], "the rank to be given up")
    r.process.cont()
    r.finish()
    bench.cluster.until("jobs", lambda jobs: jobs[0]["state"] == "done", "the job to be done")
