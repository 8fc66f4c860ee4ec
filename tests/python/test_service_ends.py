"""Batches from a service: what is left when jobs and processes end, and services that end with their process
("local").
"""

import gc
import os
import subprocess
import sys

import cachew
import pytest
from cachew import Dataset
from conftest import COMMAND
from deadlines import HANG_S, wait_for
from service_runs import error_of, runs


# ---- ends ----


def test_nothing_is_left_of_jobs(service):
    def counts():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def job(k):
        it = Dataset.range(200).shuffle().batch(5).distribute(service.address, job=f"short {k}")
        held = [next(it) for _ in range(5 + k)]
        if k % 3 == 0:
            it.close()
        elif k % 3 == 1:
            list(it)
        return len(held)

    job(0)
    before = counts()
    for k in range(20):
        assert job(k) == 5 + k
    wait_for(lambda: counts() <= before)


def test_iterators_end_with_the_process(service, script):
    ran = script(
        """
import sys, cachew
it = cachew.Dataset.range(1000).batch(5).distribute(sys.argv[1], open_timeout_s=None, job="forgotten")
keep = [next(it), next(it)["value"]]
""",
        service.address,
    )
    assert ran.returncode == 0 and ran.stderr == "", ran.stderr
    wait_for(lambda: not service.job("forgotten")["ranks"][0]["attached"])


def test_a_forked_child(service, script):
    ran = script(
        """
import os, sys, cachew
ds = cachew.Dataset.range(100).batch(10)
it = ds.distribute(sys.argv[1], open_timeout_s=None)
first = next(it)
pid = os.fork()
if pid == 0:
    try:
        next(it)
    except cachew.UsageError as error:
        code = 0 if "forked child" in str(error) and list(first["value"]) == list(range(10)) else 2
    it.close()
    del it, first
    if sum(b["value"].sum() for b in ds.distribute(sys.argv[1], open_timeout_s=None)) != 4950:
        code = 4
    sys.exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), [b.g for b in it])
""",
        service.address,
    )
    assert ran.stdout.strip() == f"0 {list(range(1, 10))}", (ran.stdout, ran.stderr)


def test_lent_batches_of_a_forked_child_stay_as_they_were(service, script):
    """A worker lent their memory: the parent gives them back and it is used again, and what the child wrote
    there the parent saw. The child has copies.
    """
    ran = script(
        """
import os, sys
import cachew
it = cachew.Dataset.range(1_000_000).batch(1000).distribute(sys.argv[1], open_timeout_s=None, transport="shm")
held = [next(it), next(it)]
begin, go = os.pipe()
back, done = os.pipe()
pid = os.fork()
if pid == 0:
    held[1]["value"][0] += 1
    os.write(done, b"x")
    os.read(begin, 1)
    good = (
        held[0]["value"].tolist() == list(range(1000))
        and held[1]["value"].tolist() == [1001, *range(1001, 2000)]
    )
    second = os.fork()  # a child's child has them too
    if second == 0:
        os._exit(0 if good and held[0]["value"].tolist() == list(range(1000)) else 1)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]))
os.read(back, 1)
kept = held.pop()
held.clear()
rest = sum(1 for batch in it)
os.write(go, b"x")
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(code, rest, kept["value"][0], {link["transport"] for link in it.profile()["links"]})
""",
        service.address,
    )
    assert ran.stdout == "0 998 1000 {'shm'}\n", (ran.stdout, ran.stderr)


@pytest.mark.large
def test_forks_while_other_threads_take_and_drop_lent_batches(service, script):
    """Each child sees the batches that are held when it is made, whole."""
    ran = script(
        """
import os, sys, threading
import numpy as np
import cachew
it = cachew.Dataset.range(4_000_000).batch(1000).distribute(sys.argv[1], open_timeout_s=None, transport="shm")
held, over = [next(it)], False
def take():
    global over
    for batch in it:
        held.append(batch)
        if len(held) > 3:
            del held[0]
    over = True
thread = threading.Thread(target=take)
thread.start()
codes, n = set(), 0
while not over or n == 0:
    n += 1
    pid = os.fork()
    if pid == 0:
        good = all(
            (b["value"] == np.arange(b["value"][0], b["value"][0] + 1000)).all()
            and b["value"][0] == 1000 * b.g
            for b in held
        )
        os._exit(0 if good else 1)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
thread.join()
print(codes)
""",
        service.address,
    )
    assert ran.stdout == "{0}\n", (ran.stdout, ran.stderr)


# ---- "local" ----


def test_a_local_service(script):
    ran = script("""
import logging, os, cachew
from cachew import _service
logging.getLogger("cachew").addHandler(logging.NullHandler())  # who waits for long is told
ds = cachew.Dataset.range(100).shuffle().map(lambda e: {"value": e["value"] * 3}).batch(8)
want = [b.hash() for b in ds.iterator(seed=1)]
assert [b.hash() for b in ds.distribute("local", open_timeout_s=None, workers=2, seed=1)] == want
pid = _service._service._process.pid
assert [b.hash() for b in ds.take(2).distribute("local", open_timeout_s=None, seed=1)] == [
    b.hash() for b in ds.take(2).iterator(seed=1)
]
it = ds.distribute("local", open_timeout_s=None, seed=1)
next(it)
it.load_state_dict(it.state_dict())
assert [b.hash() for b in it] == want[1:] and _service._service._process.pid == pid
it.close()  # else it waits for the service, which ends first
try:
    ds.distribute("local", open_timeout_s=None, workers=3)
except cachew.OptionError as error:
    print(error.attribute, error.value)
print(pid)
""")
    assert ran.returncode == 0 and ran.stderr == "", ran.stderr
    said, pid = ran.stdout.splitlines()
    assert said == "workers 3" and not runs(pid)


def descendants(pid):
    found = [pid]
    for p in found:
        with open(f"/proc/{p}/task/{p}/children") as file:
            found += map(int, file.read().split())
    return found[1:]


def test_a_local_service_ends_with_a_process_that_is_killed(tmp_path):
    """Though it has a forked child that lives on."""
    file = tmp_path / "killed.py"
    file.write_text("""
import os, sys, cachew
it = cachew.Dataset.range(100).batch(5).distribute("local", open_timeout_s=None, workers=2)
next(it)
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
from cachew import _service
print(_service._service._process.pid, flush=True)
sys.stdin.read()
""")
    ran = subprocess.Popen([sys.executable, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    up = int(ran.stdout.readline())
    pids = [up, *descendants(up)]
    assert len(pids) == 4 and all(map(runs, pids))
    ran.kill()
    ran.wait()
    wait_for(lambda: not any(map(runs, pids)))
    ran.stdin.close()
    ran.stdout.close()


def test_a_forked_child_has_a_local_service_of_its_own(script):
    ran = script("""
import os, sys, cachew
from cachew import _service
ds = cachew.Dataset.range(100).batch(10)
it = ds.distribute("local", open_timeout_s=None)
next(it)
mine = _service._service._process.pid
pid = os.fork()
if pid == 0:
    good = (
        sum(b["value"].sum() for b in ds.distribute("local", open_timeout_s=None)) == 4950
        and _service._service._process.pid != mine
    )
    _service._end()
    os._exit(0 if good else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), [b.g for b in it], _service._service.runs())
it.close()
""")
    assert ran.stdout.strip() == f"0 {list(range(1, 10))} True", (ran.stdout, ran.stderr)


def test_a_local_service_that_ended_is_replaced(script):
    ran = script("""
import os, signal, cachew
from cachew import _service
ds = cachew.Dataset.range(100).batch(10)
list(ds.distribute("local", open_timeout_s=None))
process = _service._service._process
process.send_signal(signal.SIGTERM)
process.wait()
print(len(list(ds.distribute("local", open_timeout_s=None))), _service._service._process.pid != process.pid)
""")
    assert ran.stdout.strip() == "10 True", (ran.stdout, ran.stderr)


def test_a_local_service_that_does_not_start(tmp_path, monkeypatch, caplog):
    from cachew import _service

    def starts(text, ready_s=HANG_S, slow_s=HANG_S):
        monkeypatch.setattr(_service, "READY_S", ready_s)
        monkeypatch.setattr(_service, "SLOW_S", slow_s)
        fake = tmp_path / "fake"
        fake.write_text(f"#!/bin/sh\n{text}\n")
        fake.chmod(0o755)
        monkeypatch.setattr(_service, "find_command", lambda: str(fake))
        return error_of(lambda: Dataset.range(9).distribute("local"))

    monkeypatch.setattr(_service, "_service", None)  # another test's may be there
    assert "no place here" in str(starts("echo no place here >&2; exit 1")) and isinstance(
        starts("exit 1"), cachew.ServiceError
    )
    assert isinstance(starts("cat >/dev/null", 0.2), cachew.DeadlineError) and not caplog.records
    assert isinstance(starts("cat >/dev/null", 0.2, 0.1), cachew.DeadlineError)
    assert [(r.name, r.levelname) for r in caplog.records] == [("cachew", "WARNING")]
    assert "says this" in str(starts("echo says this; cat >/dev/null"))
    assert _service._service is None


def test_the_command_is_missing(tmp_path, monkeypatch):
    from cachew import _service

    monkeypatch.setattr(_service, "_service", None)
    monkeypatch.setattr(_service, "__file__", str(tmp_path / "_service.py"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(tmp_path) in str(error_of(lambda: Dataset.range(9).distribute("local")))
    (tmp_path / "cachew").symlink_to(COMMAND)
    assert _service.find_command() == str(tmp_path / "cachew")
