"""Local workers: those that a client starts on its host, and that end with it; and `cachew up --dispatcher`.

CACHEW names the command (default build/cachew)."""

import os
import re
import subprocess

import pytest
from deadlines import HANG_S
from example_data import CACHEW
from workbench import FILTER, SHUFFLE, numbers, slow

CHAIN = numbers(300, SHUFFLE, FILTER, {"op": "batch", "size": 8})
GONE = (lambda workers: workers and all(w["state"] == "gone" for w in workers), "the workers to end")


def failed(*words):
    ran = subprocess.run([CACHEW, *words], check=False, capture_output=True, text=True, timeout=HANG_S)
    return ran.returncode, ran.stderr


@pytest.mark.large
@pytest.mark.parametrize("number", ["2", "auto"])
def test_a_client_brings_workers(bench, number):
    bench.cluster.start_dispatcher()
    rank = bench.ranks(CHAIN, words=["--local-workers", number, "--cut", "client"])[0]
    rank.finish()
    bench.judge(CHAIN, (1, None, [rank]))
    workers = bench.cluster.until("workers", *GONE)
    most = len(os.sched_getaffinity(0)) if number == "auto" else 2
    assert 1 <= len(workers) <= most and {w["cpu_budget"] for w in workers} == {1}
    if number != "auto":
        assert len(workers) == 2


def test_workers_end_with_a_killed_client_and_serve_others_before(bench):
    """Another client, without workers of its own, gets its batches from them."""
    chain = numbers(4000, slow(500), SHUFFLE, {"op": "batch", "size": 8})
    bench.cluster.start_dispatcher()
    first = bench.ranks(chain, job="first", words=["--local-workers", "1"], held=5)[0]
    bench.cluster.wait_lines(first, 5)
    second = bench.ranks(CHAIN, job="second")[0]
    second.finish()
    bench.judge(CHAIN, (1, None, [second]))
    first.process.kill9()
    bench.cluster.until("workers", *GONE)


@pytest.mark.parametrize("number", ["x", "-1", "257", "", "1.5"])
def test_wrong_numbers(bench, number):
    code, said = failed("run", bench.pipeline(CHAIN), "--service", "127.0.0.1:9", f"--local-workers={number}")
    assert (code, f"--local-workers {number}: expected an integer from 0 to 256" in said) == (2, True), said


def test_local_workers_need_a_service(bench):
    code, said = failed("run", bench.pipeline(CHAIN), "--local-workers", "2")
    assert code == 2 and "--local-workers 2 needs --service" in said


def test_local_workers_of_no_dispatcher(bench, monkeypatch):
    """The workers say what is wrong."""
    monkeypatch.setenv("CACHEW_START_S", "0.1")
    words = ["--service", "unix:/nowhere/socket", "--local-workers", "1"]
    code, said = failed("run", bench.pipeline(CHAIN), *words)
    assert code == 3 and "/nowhere/socket" in said


@pytest.mark.parametrize(
    "words, says",
    [
        (["--autoscale"], "--autoscale is an option of a dispatcher"),
        (["--http", "127.0.0.1:0"], "--http is an option of a dispatcher"),
        (["--state-dir", "/tmp"], "--state-dir is an option of a dispatcher"),
        (["--workers", "0"], "--workers 0: expected an integer from 1 to 256, or auto"),
        (["--workers", "two"], "--workers two: expected an integer from 1 to 256, or auto"),
        (["--nice", "20"], r"--nice 20: expected .* 19"),
    ],
)
def test_wrong_options_of_up(words, says):
    code, said = failed("up", "--dispatcher", "127.0.0.1:9", *words)
    assert code == 2 and re.search(says, said), said
