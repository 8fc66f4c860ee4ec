"""Batches from a service: waits that end, and errors, which are those of a run in this process."""

import json
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import cachew
import numpy as np
import pytest
from cachew import Dataset
from conftest import COMMAND, Up
from deadlines import HANG_S, wait_for
from service_runs import doubled, error_of, runs, stuck, values
from waiting import in_use, sleeps


def fails_at_seven(element):
    if element["value"] == 7:
        raise KeyError("seven")
    return {"value": element["value"]}


# ---- waits that end ----


def test_deadlines_say_what_was_waited_for(service):
    it = stuck().distribute(service.address, timeout_s=0.2)

    def says_who():
        """Whether the client knows by now that a worker is to compute it."""
        with pytest.raises(cachew.DeadlineError, match="within 0.2 s") as caught:
            next(it)
        assert caught.value.kind == "deadline"
        return re.search("within 0.2 s: a batch at position 0 of epoch 0 .*worker", str(caught.value))

    wait_for(says_who)
    with pytest.raises(cachew.DeadlineError, match="within 0.1 s"):
        it.next(timeout_s=0.1)


def change_job(service, what, job):
    """`cachew jobs --pause` or `--resume`."""
    words = [COMMAND, "jobs", "--service", service.address, "--wait", str(HANG_S), what, job]
    subprocess.run(words, check=True, timeout=HANG_S, stdout=subprocess.DEVNULL)


@pytest.mark.large
def test_a_paused_job_is_not_late_and_the_log_says_what_is_waited_for(service, caplog):
    """No deadline passes between the log entry about the pause and the resumption. Before and after that, a
    deadline may pass on a busy machine."""
    n = 10**12  # more than is made by the time of the pause: the client has to wait
    it = Dataset.range(n).batch(8).distribute(service.address, job="paused", seed=1, timeout_s=1)
    first = it.next(timeout_s=HANG_S)["value"]
    change_job(service, "--pause", "paused")
    resuming = threading.Event()

    def noted():
        return any("the job is paused" in r.getMessage() for r in caplog.records)

    def resume():
        wait_for(noted)
        time.sleep(3)  # more than the deadline of a batch
        resuming.set()
        change_job(service, "--resume", "paused")

    expected = np.arange(8)
    assert (first == expected).all()
    with ThreadPoolExecutor(1) as pool:
        resumed = pool.submit(resume)
        while not resumed.done():
            try:
                values = next(it)["value"]
                expected += 8
                assert (values == expected).all()
            except cachew.DeadlineError:
                assert resuming.is_set() or not noted()
        resumed.result()
    for _ in range(1000):
        expected += 8
        assert (it.next(timeout_s=HANG_S)["value"] == expected).all()
    it.close()
    assert {(r.name, r.levelname) for r in caplog.records} == {("cachew", "WARNING")}


INTERRUPTED_NOTE = """
import logging, os, signal, subprocess, sys
import cachew

class Slow(logging.Handler):
    def emit(self, record):
        print("noted", flush=True)
        os.kill(os.getpid(), signal.SIGINT)

address, command = sys.argv[1:]
logging.getLogger("cachew").addHandler(logging.NullHandler())
ds = cachew.Dataset.range(1000000)._for_tests("delay", us=1000).batch(8)
it = ds.distribute(address, job="noted", open_timeout_s=None)
next(it)
words = [command, "jobs", "--service", address, "--wait", "3600", "--pause", "noted"]
subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
logging.getLogger("cachew").addHandler(Slow())
try:
    for _ in it:
        pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.large
def test_an_interrupt_while_the_log_is_told_is_not_lost(service, script):
    said = script(INTERRUPTED_NOTE, service.address, COMMAND)
    assert said.stdout == "noted\ninterrupted\n" and not said.stderr


def test_profile_says_who_waits_for_whom(service):
    it = Dataset.range(20).batch(2).distribute(service.address)
    next(it)
    profile = it.profile()
    assert profile["bottleneck"] in ("the service", "the consumer") and profile["lost_ranges"] == 0
    assert [o["op"] for o in profile["operators"] if "op" in o] == ["range", "batch"]


def test_close_ends_a_wait(service):
    it = stuck().distribute(service.address)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, it)
        wait_for(lambda: in_use(it))
        it.close()
        with pytest.raises(cachew.UsageError, match="closed by another thread"):
            waiting.result(HANG_S)


INTERRUPTED = """
import sys
import cachew
ds = cachew.Dataset.range(8)._for_tests("fail", "true", kind="hang").batch(4)
try:
    it = ds.distribute(sys.argv[1], open_timeout_s=None) if sys.argv[2] == "next" else None
    print("waits", flush=True)
    next(it) if it else ds.distribute(sys.argv[1], open_timeout_s=None)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("where", ["next", "open"])
def test_interrupts_end_a_wait(service, tmp_path, where):
    address, dispatcher = service.address, None
    if where == "open":  # nobody is there who could look at the data
        dispatcher = subprocess.Popen(
            [COMMAND, "dispatcher", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE
        )
        address = json.loads(dispatcher.stdout.readline())["ready"]["address"]
    file = tmp_path / "interrupted.py"
    file.write_text(INTERRUPTED)
    ran = subprocess.Popen([sys.executable, file, address, where], stdout=subprocess.PIPE, text=True)
    try:
        assert ran.stdout.readline() == "waits\n"
        wait_for(lambda: sleeps(ran.pid))
        ran.send_signal(signal.SIGINT)
        assert ran.communicate(timeout=HANG_S)[0] == "interrupted\n"  # what is waited for never comes
    finally:
        ran.kill()
        ran.wait()
        if dispatcher:
            dispatcher.kill()
            dispatcher.wait()
            dispatcher.stdout.close()


# ---- errors ----


def facts(error):
    return (
        type(error),
        str(error),
        error.kind,
        error.operator,
        error.attribute,
        error.value,
        error.expected,
        error.file,
        error.record,
    )


def test_a_function_that_raises_is_named_as_here(service):
    ds = Dataset.range(20).map(fails_at_seven, outputs={"value": "int64"}).batch(4)
    here, there = error_of(lambda: list(ds)), error_of(lambda: list(ds.distribute(service.address)))
    assert facts(here) == facts(there)
    assert (
        isinstance(there, cachew.RecordError)
        and there.operator == "map"
        and there.record.endswith(":7")
        and "fails_at_seven: KeyError: 'seven'" in str(there)
    )


class Deadly:
    """A function that ends the process that loads it."""

    def __reduce__(self):
        return os._exit, (3,)

    def __call__(self, element):
        return element


@pytest.mark.large
def test_a_stream_that_can_not_go_on_costs_no_worker(service):
    ds = Dataset.range(20).map(Deadly(), outputs={"value": "int64"}, version="1").batch(4)
    here, there = error_of(lambda: list(ds)), error_of(lambda: list(ds.distribute(service.address)))
    assert type(here) is type(there) and "exited with status 3" in str(there)
    assert values(Dataset.range(100).batch(5).distribute(service.address)) == values(
        Dataset.range(100).batch(5)
    )
    assert all(runs(w["pid"]) for w in service.ready["workers"])
    ready = [(w["id"], "ready") for w in service.ready["workers"]]
    wait_for(lambda: [(w["id"], w["state"]) for w in service.ask("workers")] == ready)


def test_a_record_that_fails_is_named_as_here(service):
    ds = Dataset.range(20).assign(x="10 // (value - 7)").batch(5)
    here, there = error_of(lambda: list(ds)), error_of(lambda: list(ds.distribute(service.address)))
    assert facts(here) == facts(there) and there.operator == "assign"


def test_batches_before_one_that_fails(service):
    it = Dataset.range(2000).assign(x="10 // (value - 1700)").batch(10).distribute(service.address)
    got = 0
    with pytest.raises(cachew.RecordError):
        for _ in it:
            got += 1
    assert got == 170


def test_files_that_a_worker_does_not_have(service, tmp_path):
    error = error_of(lambda: Dataset.text(tmp_path / "none-*.txt").batch(4).distribute(service.address))
    assert (
        "none-*.txt" in str(error)
        and "on a worker of the service" in str(error)
        and error.file == str(tmp_path / "none-*.txt")
    )


@pytest.mark.large
def test_files_outside_the_roots_of_workers(records, tmp_path):
    up = Up("--data-root", str(tmp_path))
    try:
        error = error_of(
            lambda: Dataset.tfrecord(records / "plain-*.tfrecord").batch(4).distribute(up.address)
        )
        assert str(records) in str(error) and f"below {tmp_path}" in str(error)
    finally:
        up.end()


def test_functions_where_they_are_not_allowed():
    up = Up("--no-python")
    try:
        error = error_of(
            lambda: list(
                Dataset.range(9)
                .map(doubled, outputs={"value": "int64", "text": "bytes"})
                .batch(4)
                .distribute(up.address)
            )
        )
        assert "--allow-python" in str(error) and error.operator == "map"
    finally:
        up.end()


def test_arrays_in_memory_can_not_travel(service):
    # before anybody is asked
    error = error_of(lambda: Dataset.arrays({"x": np.arange(9)}).batch(4).distribute("127.0.0.1:1"))
    assert (
        error.kind == "pipeline"
        and error.operator == "arrays"
        and "in the memory of this process" in str(error)
    )
    joined = Dataset.concat(
        [Dataset.range(9).rename({"value": "x"}), Dataset.arrays({"x": np.arange(9)})]
    ).batch(4)
    assert error_of(lambda: joined.distribute(service.address)).operator == "arrays"


def test_nobody_at_the_address():
    for n in itertools.count():  # with more time, until it was tried within it
        limit = 0.5 * 2**n
        error = error_of(lambda limit=limit: Dataset.range(9).distribute("127.0.0.1:1", open_timeout_s=limit))
        if isinstance(error, cachew.ServiceError) or limit > HANG_S:
            break
    assert (
        isinstance(error, cachew.ServiceError)
        and isinstance(error, ConnectionError)
        and error.kind == "service"
        and "127.0.0.1:1" in str(error)
    )


def break_connections_to_workers():
    """Those of this process over Unix sockets. How many there were."""
    broken = 0
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if not os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(fd)) as s:
                if s.family == socket.AF_UNIX and s.getpeername().endswith("/socket"):
                    s.shutdown(socket.SHUT_RDWR)
                    broken += 1
        except OSError:  # it is closed by now, or has no peer
            continue
    return broken


@pytest.mark.large
def test_batches_that_are_held_stay_as_they_are_when_their_connection_breaks():
    """The workers have memory for little more, and would use it again: they must know that it is in use, and
    learn later what no longer is.
    """
    ds = Dataset.synthetic(count=1600, shape=(64, 1024), dtype="uint8").shuffle().batch(2)
    here = [b.hash() for b in ds.iterator(seed=3)]
    up = Up("--memory", "96M")
    it = ds.distribute(up.address, seed=3, transport="shm")
    held, there = [], []
    for i, b in enumerate(it):
        there.append(b.hash())
        if i < 100:
            held.append((b, b["data"].copy()))
        if i in (50, 99, 400, 401):
            wait_for(break_connections_to_workers)  # the client connects again for the batches that it lacks
    assert there == here
    assert all(np.array_equal(b["data"], was) for b, was in held)
    assert {link["transport"] for link in it.profile()["links"]} == {"shm"}
    del b
    held.clear()
    it.close()
    assert up.end() == 0


def test_no_worker_in_time():
    dispatcher = subprocess.Popen([COMMAND, "dispatcher", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE)
    try:
        address = json.loads(dispatcher.stdout.readline())["ready"]["address"]
        for n in itertools.count():  # with more time, until the dispatcher has answered within it
            limit = 0.2 * 2**n
            error = error_of(
                lambda limit=limit: Dataset.range(9).distribute(address, job="early", open_timeout_s=limit)
            )
            if "workers" in str(error):
                break
        assert error.kind == "deadline" and "early" in str(error) and address in str(error)
    finally:
        dispatcher.terminate()
        dispatcher.wait(HANG_S)
        dispatcher.stdout.close()


@pytest.mark.parametrize(
    ("options", "attribute"),
    [
        ({"world_size": 2}, "job"),
        ({"transport": "pigeon"}, "transport"),
        ({"job": ""}, "job"),
        ({"workers": 2}, "workers"),
        ({"rank": 2, "world_size": 2, "job": "x"}, "rank"),
    ],
)
def test_options_that_are_wrong(service, options, attribute):
    error = error_of(lambda: Dataset.range(9).distribute(service.address, **options))
    assert isinstance(error, cachew.OptionError) and error.attribute == attribute


@pytest.mark.parametrize("address", ["nonsense", "localhost:port", "localhost:99999999", ""])
def test_addresses_that_are_none(address):
    error = error_of(lambda: Dataset.range(9).distribute(address))
    assert isinstance(error, cachew.OptionError) and error.attribute == "service"


def test_the_library_starts_no_service(service):
    """ "local" is the package's; whoever comes by the C interface is told so."""
    from cachew._options import make_options, with_service

    error = error_of(
        lambda: cachew._core.open(Dataset.range(9)._pipeline, with_service(make_options(), "local", job=None))
    )
    assert "HOST:PORT" in str(error) and error.attribute == "service"


@pytest.mark.large
def test_ranks_that_are_not_of_one_mind(service):
    ds = Dataset.range(100).batch(4)
    others = [
        lambda job: ds.distribute(service.address, job=job, rank=1, world_size=3),
        lambda job: ds.take(3).distribute(service.address, job=job, rank=1, world_size=2),
        lambda job: ds.distribute(service.address, job=job, rank=1, world_size=2, seed=9),
    ]

    def refused(other, job):
        """Whether the other rank is refused. On a busy machine the service may take the first rank for gone,
        and accept the other one."""
        with ds.distribute(service.address, job=job, rank=0, world_size=2):
            try:
                other(job).close()
            except cachew.Error as error:
                return job in str(error)
        return False

    for k, other in enumerate(others):
        tries = itertools.count()
        wait_for(lambda k=k, other=other, tries=tries: refused(other, f"mind {k} {next(tries)}"))
