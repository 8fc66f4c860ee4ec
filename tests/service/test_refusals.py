"""The service, black box: what can't be is said, with a code and a reason; and what it shows of itself."""

import os
import re
import signal
import socket

import oracle
import pytest
from deadlines import HANG_S
from workbench import BATCH, SLOW, free_address, hangs, numbers, with_more_time


# ---- what can't be ----


def test_a_service_that_never_comes_is_not_waited_for_until_the_deadline(bench):
    address = free_address()
    r = bench.cluster.rank(bench.pipeline(SLOW), "job", words=["--wait", "100000"])  # not that
    r.service = address
    error = r.start(env={"CACHEW_START_S": "2"}).finish(code=3)["error"]
    assert error["kind"] == "service" and f"{address} can't be reached" in error["message"]


def test_no_service_is_code_3_at_the_deadline(bench):
    address = free_address()
    r = bench.cluster.rank(bench.pipeline(SLOW), "job", words=["--wait", "1"])
    r.service = address
    error = r.start().finish(code=3)["error"]
    assert error["kind"] == "service" and address in error["message"]
    bench.cluster.direct = address
    code, _, err = bench.cluster.ask("jobs")
    assert code == 3 and address in err


def test_no_worker_is_a_deadline_that_says_so(bench):
    bench.cluster.start_dispatcher()

    def attempt(wait_s):
        error = bench.cluster.run(bench.pipeline(SLOW), f"job{wait_s}", words=["--wait", wait_s]).finish(
            code=4
        )["error"]
        assert error["kind"] == "deadline" and "worker" in error["message"]

    with_more_time(attempt, 0.5)


def test_a_batch_that_does_not_come_is_a_deadline_that_says_where_it_is(bench):
    bench.cluster.start(1)

    def attempt(wait_s):
        if not bench.cluster.workers["w0"].running:
            bench.cluster.start_worker("w0")
        r = bench.cluster.run(bench.pipeline(SLOW), f"job{wait_s}", words=["--wait", wait_s], held=5)
        bench.cluster.wait_lines(r, 5)
        bench.cluster.workers["w0"].kill9()
        error = r.finish(code=4)["error"]
        assert (
            error["kind"] == "deadline"
            and re.search(r"position \d+ of epoch 0", error["message"])
            and "worker" in error["message"]
        )

    with_more_time(attempt, 1.5)


def test_the_last_range_is_lost(bench):
    """at-most-once: who waits for it is told, though nothing else comes."""
    chain = numbers(104, *hangs("value == 103"), BATCH)
    bench.cluster.start_dispatcher()
    bench.cluster.start_worker("w0", "--threads", "1")
    r = bench.ranks(chain, words=["--guarantee", "at-most-once", "--order", "any"], dump=True)[0]
    bench.cluster.wait_lines(r, 11)
    bench.cluster.workers["w0"].kill9()
    r.finish()
    job = oracle.Job("any", "at-most-once", [oracle.Generation(1, None, [r.parts()])])
    assert oracle.check(job, bench.local(chain)) == [] and r.lines() < 13


def test_at_most_once_needs_any_order(bench):
    bench.cluster.start_dispatcher()
    for world in (1, 3):
        error = bench.ranks(SLOW, world=world, words=["--guarantee", "at-most-once", "--order", "exact"])[
            0
        ].finish(code=2)["error"]
        assert (
            "at-most-once" in error["message"]
            and error["attribute"] == "order"
            and error["expected"] == "any"
        )


GREETINGS = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"SSH-2.0-OpenSSH_9.2\r\n",
    bytes(64),
    b"CWF1" + b"\xff" * 60,
    b"\r\n",
    b"CWF1" + bytes(28),
    b"",
]


@pytest.mark.parametrize("role", ["dispatcher", "worker"])
def test_a_port_scanner_is_cut_off_and_nobody_notices(bench, role):
    bench.cluster.start(1)
    r = bench.ranks(SLOW, held=3)[0]
    bench.cluster.wait_lines(r, 3)
    address = bench.cluster.direct if role == "dispatcher" else bench.cluster.workers["w0"].address
    host, port = address.split(":")
    for greeting in GREETINGS:
        with socket.create_connection((host, int(port)), HANG_S) as s:
            s.sendall(greeting)
            if len(greeting) < 32 and not greeting.startswith(b"SSH"):
                s.shutdown(socket.SHUT_WR)
            s.settimeout(HANG_S)
            try:
                while s.recv(4096):
                    pass
            except ConnectionError:
                pass
    r.finish()
    bench.judge(SLOW, (1, None, [r]))


# ---- what is shown ----


def test_jobs_and_workers(bench):
    bench.cluster.start(2)
    ranks = bench.ranks(SLOW, world=2, held=5)
    for r in ranks:
        bench.cluster.wait_lines(r, 5)
    jobs = bench.cluster.until(
        "jobs",
        lambda jobs: jobs and jobs[0]["workers"] == 2 and all(x["g"] > 0 for x in jobs[0]["ranks"]),
        "progress of both ranks",
    )
    assert len(jobs) == 1 and {
        "name",
        "stream",
        "state",
        "epoch",
        "ranks",
        "workers",
        "digest_so_far",
    } <= set(jobs[0])
    assert (
        jobs[0]["name"] == "job"
        and jobs[0]["state"] == "running"
        and jobs[0]["workers"] == 2
        and re.fullmatch("[0-9a-f]{32}", jobs[0]["stream"])
    )
    assert [(x["rank"], x["attached"]) for x in jobs[0]["ranks"]] == [(0, True), (1, True)]
    _, workers, _ = bench.cluster.ask("workers")
    assert sorted(w["pid"] for w in workers) == sorted(w.pid for w in bench.cluster.workers.values())
    for w in workers:
        assert {"id", "pid", "host", "address", "state", "leases", "cpu_budget"} <= set(w) and w[
            "state"
        ] == "ready"
    for r in ranks:
        r.finish()
    jobs = bench.cluster.until("jobs", lambda jobs: jobs[0]["state"] == "done", "the job to be done")
    digests = [int(part.result["digest"], 16) for r in ranks for part in r.parts()]
    assert jobs[0]["digest_so_far"] == f"{sum(digests) % 2**128:032x}"


def test_ready_lines(bench):
    bench.cluster.start(1)
    for daemon, role in ((bench.cluster.dispatcher, "dispatcher"), (bench.cluster.workers["w0"], "worker")):
        assert {"role", "pid", "address", "id"} <= set(daemon.ready)
        assert (
            daemon.ready["role"] == role
            and daemon.ready["pid"] == daemon.pid
            and re.fullmatch(r"127\.0\.0\.1:\d+", daemon.address)
        )
    for daemon in (bench.cluster.workers["w0"], bench.cluster.dispatcher):
        daemon.terminate()
        assert daemon.wait() == 0 and daemon.popen.stdout.read() == b""


def test_up_is_a_service_in_one_command(bench, tmp_path):
    from cluster import Daemon

    up = Daemon(bench.cluster, "up", ["up", "--workers", "2", "--listen", "127.0.0.1:0"])
    assert len(up.ready["workers"]) == 2
    bench.cluster.direct = up.address
    r = bench.ranks(SLOW, held=10)[0]
    bench.cluster.wait_lines(r, 10)
    os.kill(up.ready["workers"][0]["pid"], signal.SIGKILL)
    r.finish()
    bench.judge(SLOW, (1, None, [r]))
    up.terminate()
    assert up.wait() == 0
