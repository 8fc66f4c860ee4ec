"""Clients that have to wait: for a dispatcher that is not there yet, for a worker that has room, for another rank, for somebody who paused the job. They wait as long as they may,
and say what for; and what was not delivered is said at the end."""

import os
import re
import select
import socket
import subprocess

import pytest
from cluster import CACHEW, Cluster, Deadline, Growth
from workbench import BATCH, SHUFFLE, numbers, slow

ANY = ["--order", "any"]
FAST = numbers(200000, SHUFFLE, BATCH)
SLOW = numbers(2000, slow(2000), SHUFFLE, BATCH)


def until_said(process, text, seconds=30):
    """Until a process has said this on stderr."""
    growth, deadline = Growth(process.err_path.parent), Deadline(seconds)
    try:
        while text not in process.said(100000):
            assert process.running or text in process.said(100000), f"{process.name} ended with {process.code}: {process.said()}"
            select.select([growth.fd], [], [], min(deadline.left(f"{process.name} to say {text!r}; it said {process.said()}"), 1))
            growth.seen()
    finally:
        growth.close()


def free_address():
    """Of this machine, where nobody else listens: not 127.0.0.1, of which others take any port."""
    pid = os.getpid()
    with socket.create_server((f"127.{1 + pid // 250 % 250}.{1 + pid % 250}.1", 0)) as free:
        return "%s:%d" % free.getsockname()


def test_a_dispatcher_that_comes_late_is_waited_for(bench):
    bench.cluster.direct = free_address()
    r = bench.cluster.rank(bench.pipeline(SLOW), "job", words=["--wait", "30"]).start()
    until_said(r.process, f"the dispatcher at {bench.cluster.direct} is not there (")
    bench.cluster.start(1)
    r.finish()
    bench.judge(SLOW, (1, None, [r]))


def test_a_paused_job_is_not_late(bench):
    bench.cluster.start(1)
    r = bench.ranks(SLOW, words=["--wait", "1"])[0]
    bench.cluster.wait_lines(r, 3)
    assert bench.cluster.ask("jobs", "--pause", "job")[0] == 0
    assert bench.cluster.ask("jobs")[1][0]["held"].startswith("the job is paused")
    until_said(r.process, "the job is paused")  # after 5 s
    assert bench.cluster.ask("jobs", "--resume", "job")[0] == 0
    r.finish()
    bench.judge(SLOW, (1, None, [r]))


def test_a_job_that_is_paused_before_there_is_a_worker_is_not_late(bench):
    bench.cluster.start_dispatcher()
    r = bench.cluster.rank(bench.pipeline(SLOW), "job", words=["--wait", "4"]).start()
    bench.cluster.until("jobs", lambda jobs: jobs, "the job to be there")
    assert bench.cluster.ask("jobs", "--pause", "job")[0] == 0
    until_said(r.process, "the job is paused")  # after 5 s, when it would have been too late
    bench.cluster.start_worker()
    assert bench.cluster.ask("jobs", "--resume", "job")[0] == 0
    r.finish()
    bench.judge(SLOW, (1, None, [r]))


def test_a_pause_is_over_with_its_dispatcher(bench):
    bench.cluster.start(1)
    r = bench.ranks(SLOW, words=["--wait", "1"])[0]
    bench.cluster.wait_lines(r, 3)
    assert bench.cluster.ask("jobs", "--pause", "job")[0] == 0
    until_said(r.process, "the job is paused")
    bench.cluster.dispatcher.kill9()
    assert f"the dispatcher at {bench.cluster.direct} is not there" in r.finish(code=4)["error"]["message"]


def test_a_pause_that_the_next_dispatcher_does_not_know_is_over(bench):
    """It has nothing to say: the worker computes."""
    bench.cluster.start_dispatcher(state_dir=False)
    bench.cluster.start_worker()
    r = bench.ranks(numbers(100, slow(5000000), BATCH), words=["--wait", "6"])[0]
    bench.cluster.until("jobs", lambda jobs: jobs and jobs[0]["ranks"], "the job to be there")
    assert bench.cluster.ask("jobs", "--pause", "job")[0] == 0
    until_said(r.process, "the job is paused")
    bench.cluster.dispatcher.kill9()
    bench.cluster.start_dispatcher(state_dir=False)
    assert "computes it" in r.finish(code=4)["error"]["message"]


def test_a_rank_that_never_comes_is_named_early_and_at_the_end(bench):
    bench.cluster.start(1)
    r = bench.cluster.rank(bench.pipeline(FAST), "job", world_size=2, words=["--wait", "8"], with_state=False).start()
    missing = "rank 1 of 2 is behind, at split 0 of epoch 0, and not attached"
    until_said(r.process, missing)
    assert r.process.running  # long before the deadline
    assert missing in r.finish(code=4)["error"]["message"]


def test_who_takes_the_place_of_another_client_is_told(bench):
    bench.cluster.start(1)
    first, second = (bench.cluster.rank(bench.pipeline(SLOW), "job") for _ in range(2))
    first.start()
    bench.cluster.wait_lines(first, 3)
    assert "held by" not in first.process.said()
    second.start()
    until_said(second.process, "rank 0 of job job was held by a client on ")
    assert "taken over by another client" in first.finish(code=3)["error"]["message"]
    second.finish()


def test_more_jobs_than_streams_have_their_turn(bench):
    bench.cluster.start_dispatcher()
    bench.cluster.start_worker("w0", "--max-streams", "2")
    path = bench.pipeline(SLOW)
    ranks = [bench.cluster.rank(path, f"job{i}", words=["--wait", "60", "--seed", i]).start() for i in range(6)]
    for r in ranks:
        r.finish(60)
    for i, r in enumerate(ranks):
        bench.judge(SLOW, (1, None, [r]), words=["--seed", str(i)])
    path = bench.pipeline(FAST)
    held = [bench.cluster.rank(path, f"held{i}", words=["--seed", i]).start() for i in range(2)]
    for r in held:
        bench.cluster.wait_lines(r, 1)
        r.process.stop()
    late = bench.cluster.rank(path, "late", words=["--wait", "0.5", "--seed", 9])
    assert "--max-streams" in late.start().finish(code=4)["error"]["message"]


def test_what_was_lost_is_said(bench):
    bench.cluster.start(2)
    ranks = bench.ranks(SLOW, world=2, words=[*ANY, "--guarantee", "at-most-once"], dump=True)
    for r in ranks:
        bench.cluster.wait_lines(r, 5)
    bench.cluster.workers["w0"].kill9()
    results = [r.finish() for r in ranks]
    lost = sum(result["lost_splits"] for result in results)
    assert lost > 0
    assert any(re.search(r"\d+ splits? w(as|ere) lost with workers", r.process.said()) for r in ranks)
    job = bench.cluster.until("jobs", lambda jobs: jobs[0]["state"] == "done", "the job to be done")[0]
    assert job["lost_splits"] == lost and job["lost_joined_elements"] == 0  # counted: there are no remnants to join
    until_said(bench.cluster.dispatcher, f'job "job" is done; {lost} splits were lost')
    assert [rank["batches"] for rank in job["ranks"]] == [result["batches"] for result in results]


def test_numbers_of_a_finished_job_are_its_last(bench):
    bench.cluster.start(1)
    r = bench.ranks(numbers(1000, SHUFFLE, BATCH))[0]
    assert r.finish()["lost_splits"] == 0
    rank = bench.cluster.until("jobs", lambda jobs: jobs[0]["state"] == "done", "the job to be done")[0]["ranks"][0]
    assert (rank["batches"], rank["g"], rank["finished"]) == (125, 0, True)  # g: of the epoch after the last
    shown = subprocess.run([CACHEW, "jobs", "--service", bench.cluster.direct], check=True, capture_output=True, text=True, timeout=30).stdout
    assert "(finished)" in shown and "(gone)" not in shown


@pytest.mark.parametrize("policy", ["FILE", "data", "FILE_OR_DATA", "HINT", "static"])
def test_fixed_shards_are_refused_with_the_reason(bench, policy):
    bench.cluster.start_dispatcher()
    error = bench.ranks(FAST, words=["--sharding", policy], with_state=False)[0].finish(code=2)["error"]
    assert error["attribute"] == "sharding" and error["value"] == policy and "nothing to be static" in error["message"]


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
    ran = subprocess.run([CACHEW, verb, *words, "--data-root", root], check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and str(root) in ran.stderr


def test_workers_of_up_are_told_apart_in_the_log(tmp_path):
    with Cluster() as c:
        process = subprocess.Popen([CACHEW, "up", "--workers", "2", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=c.env)
        process.stdout.readline()
        process.terminate()
        said = process.communicate(timeout=60)[1]
    assert re.search(r"cachew worker worker-0: ", said) and re.search(r"cachew worker worker-1: ", said), said


def test_a_client_that_stood_still_and_then_ends_is_known_to_be_finished(bench):
    """The dispatcher has given its connection up meanwhile: it comes back to say so."""
    bench.cluster.start(1)
    r = bench.ranks(numbers(3000, slow(300), BATCH))[0]
    bench.cluster.wait_lines(r, 2)
    r.process.stop()
    until_said(bench.cluster.dispatcher, "nothing was heard for")
    r.process.cont()
    r.finish()
    bench.cluster.until("jobs", lambda jobs: jobs[0]["state"] == "done", "the job to be done")
