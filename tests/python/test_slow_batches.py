"""A function of a batch that takes long, where nobody but who asks for the batch can have it called: the
wait may end at any time, and be begun again.
"""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import cachew
from cachew import Dataset

from deadlines import HANG_S, wait_for
from service_runs import runs
from waiting import in_use

WHERE = ["here", "service"]

INTERRUPTED = """
import os, sys, time
import cachew

log, where, caught = sys.argv[1:]

def slow(batch):
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\\n")
    while True:
        time.sleep(60)

ds = cachew.Dataset.range(10).filter("value % 2 == 0").batch(8).map_batches(slow, outputs={"value": "int64"})
it = ds.distribute("local", workers=1, open_timeout_s=None) if where == "service" else ds.iterator()
try:
    next(it)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    if caught != "caught":
        raise
"""


def calls(log):
    """The processes that the function was called in, one for each time."""
    return [int(pid) for pid in log.read_text().split()] if log.exists() else []


@pytest.mark.large
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("caught", ["caught", "raised"])
def test_ctrl_c_ends_a_wait_for_a_function_of_the_only_batch(tmp_path, where, caught):
    script, log = tmp_path / "script.py", tmp_path / "calls"
    script.write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, script, log, where, caught],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: calls(log))
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"  # though the function never returns
    _, said = process.communicate(timeout=HANG_S)
    assert process.returncode == (0 if caught == "caught" else -signal.SIGINT)
    assert said == "" if caught == "caught" else said.endswith("KeyboardInterrupt\n")
    [host] = calls(log)
    wait_for(lambda: not runs(host))


def slow(log, go_on):
    """Slow where a batch is short."""

    def function(batch):
        short = len(batch["value"]) < 8
        for path in [log, log.with_name("slow_calls")] if short else [log]:
            with open(path, "a") as file:
                file.write(f"{os.getpid()}\n")
        while short and not os.path.exists(go_on):
            time.sleep(0.01)
        return {"value": batch["value"] + 1}

    return function


def numbers(count):
    """Ranges leave something over, so that batches are joined."""
    return Dataset.range(count).filter("value % 3 != 0").batch(8)


@pytest.fixture
def opened(request, tmp_path):
    """An iterator over some of so many numbers, batches of 8, and the files where its function notes its
    calls and which it waits for.
    """
    its = []

    def make(where, count=10, **options):
        function = slow(tmp_path / "calls", tmp_path / "go_on")
        # else some batches are computed twice, to compare
        ds = numbers(count).map_batches(function, outputs={"value": "int64"}, deterministic=False)
        its.append(
            ds.distribute(request.getfixturevalue("service").address, **options)
            if where == "service"
            else ds.iterator(threads=2, **options)
        )
        return its[-1], tmp_path / "calls", tmp_path / "go_on"

    yield make
    for it in its:
        it.close()


def times_out(it):
    with pytest.raises(cachew.DeadlineError):
        it.next(timeout_s=0.05)
    return True


@pytest.mark.parametrize("where,options", [("here", {}), ("service", {}), ("service", {"order": "any"})])
def test_a_wait_for_a_function_may_end_and_go_on(opened, where, options):
    it, log, go_on = opened(where, **options)
    state = it.state_dict()
    wait_for(lambda: times_out(it) and calls(log))
    for _ in range(3):
        with pytest.raises(
            cachew.DeadlineError,
            match="the next batch from map_batches did not come before the deadline",
        ):
            it.next(timeout_s=0.05)
    assert it.state_dict() == state
    go_on.touch()
    assert next(it)["value"].tolist() == [2, 3, 5, 6, 8, 9]
    assert next(it, None) is None
    assert len(calls(log)) == 1


@pytest.mark.large
@pytest.mark.parametrize("where", WHERE)
def test_every_batch_is_waited_for_in_little_pieces(opened, where):
    it, log, go_on = opened(where, 4100)
    found = []
    while True:
        try:
            batch = it.next(timeout_s=0.001)
        except cachew.DeadlineError:
            if calls(log):
                go_on.touch()
            continue
        if batch is None:
            break
        found.append(batch["value"].tolist())
    want = [b["value"].tolist() for b in numbers(4100)]
    assert found == [[v + 1 for v in values] for values in want]
    if where == "here":
        assert len(calls(log)) == len(want)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("how", ["between", "inside", "holding a batch"])
def test_closing_while_a_function_is_waited_for(opened, where, how):
    it, log, _ = opened(where, 10 if how != "holding a batch" else 20)
    held = [next(it) for _ in range(how == "holding a batch")]
    wait_for(lambda: times_out(it) and calls(log.with_name("slow_calls")))
    if how == "inside":
        asked = []
        waiter = threading.Thread(target=lambda: asked.append(pytest.raises(cachew.UsageError, it.next)))
        waiter.start()
        wait_for(lambda: in_use(it))
    it.close()
    if how == "inside":
        waiter.join()
        assert asked[0].match("closed by another thread")
    hosts = calls(log.with_name("slow_calls"))  # the full batch may be called for at the same time, and later
    wait_for(lambda: not any(map(runs, hosts)))
    assert [b["value"].tolist() for b in held] == [[2, 3, 5, 6, 8, 9, 11, 12]] * len(held)
