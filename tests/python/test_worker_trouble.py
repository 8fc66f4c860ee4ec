"""What is a worker's own: memory for what it hands out, failures that other workers do not have, and its
directory.
"""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from conftest import COMMAND
from deadlines import HANG_S, wait_for

import cachew
from cachew import Dataset

MIB = 1 << 20


class Service:
    """A dispatcher, and workers that are each started with words, an environment and limits of their own."""

    def __init__(self, directory):
        self.directory, self.processes = directory, []
        self.address = self.start("dispatcher", "--listen", "127.0.0.1:0")["address"]

    def start(self, verb, *words, env=None, limit=None):
        with open(self.directory / f"{len(self.processes)}.err", "w") as err:
            process = subprocess.Popen(
                [COMMAND, verb, *map(str, words)],
                stdout=subprocess.PIPE,
                stderr=err,
                env={**os.environ, **(env or {})},
                preexec_fn=limit,
            )
        self.processes.append(process)
        return json.loads(process.stdout.readline())["ready"]

    def worker(self, name, *words, **options):
        """Its process."""
        self.start(
            "worker",
            "--dispatcher",
            self.address,
            "--name",
            name,
            "--allow-python",
            "--drain-timeout",
            "1",
            *words,
            **options,
        )
        return self.processes[-1]

    def said(self, process):
        return (self.directory / f"{self.processes.index(process)}.err").read_text()

    def workers(self):
        words = [COMMAND, "workers", "--service", self.address, "--wait", str(HANG_S), "--json"]
        return json.loads(subprocess.run(words, check=True, capture_output=True, timeout=HANG_S).stdout)

    def end(self):
        while self.processes:
            process = self.processes.pop()
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(HANG_S)
            process.stdout.close()


@pytest.fixture
def service(tmp_path):
    started = Service(tmp_path)
    yield started
    started.end()


def hashes(batches):
    return [batch.hash() for batch in batches]


# ---- memory of what is handed out ----


class Cgroup:
    """A container as far as its memory goes. Where none can be made, the test is skipped."""

    def __init__(self, limit_bytes):
        self.path = None
        v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
        for parent, limit in ((v1, "memory.limit_in_bytes"), (v2, "memory.max")):
            path = parent / f"cachew-test-{os.getpid()}"
            if not (parent / "cgroup.procs").exists():
                continue
            with contextlib.suppress(OSError):
                path.mkdir()
                self.path = path
                (path / limit).write_text(str(limit_bytes))
                return
        self.end()
        pytest.skip("no memory cgroup can be made here: it takes root, and a hierarchy with this controller")

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def end(self):
        if self.path:
            wait_for(self.is_removed)

    def is_removed(self):
        with contextlib.suppress(OSError):
            self.path.rmdir()
        return not self.path.exists()


def most_resident(process):
    """Bytes, shared ones too."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def large(count):
    """Batches of 128 KiB."""
    return Dataset.synthetic(count=2 * count, shape=(64, 1024), dtype="uint8").shuffle().batch(2)


def test_a_worker_with_32m_lives_in_a_container_of_64_mb(service):
    """As docs/running-a-service.md has it. Four clients take little and keep that; one keeps all of 1,000
    batches.
    """
    container = Cgroup(64 * MIB)
    try:
        worker = service.worker("small", "--memory", "32M", "--threads", 2, limit=container.enter)
        slow = [large(1000).distribute(service.address, job=f"slow {i}", seed=i) for i in range(4)]
        held = [[next(it) for _ in range(20)] for it in slow]
        kept = list(large(1000).distribute(service.address, job="all", seed=9))
        assert hashes(kept) == hashes(large(1000).iterator(seed=9))
        for i, (it, some) in enumerate(zip(slow, held)):
            assert hashes(some) + hashes(it) == hashes(large(1000).iterator(seed=i))
            it.close()
        assert worker.poll() is None
    finally:
        service.end()
        container.end()


@pytest.mark.large
@pytest.mark.parametrize("transport", ["shm", "unix", "tcp"])
def test_the_memory_of_a_worker_with_16_clients(service, transport):
    """Some keep all that they get, some are slow, some stand still: resident is --memory and 30 MiB at
    most.
    """
    worker = service.worker("small", "--memory", "128M", "--threads", 2)
    pipeline = service.directory / "pipeline.json"
    large(100000).save(pipeline)
    words = [
        COMMAND,
        "run",
        pipeline,
        "--service",
        service.address,
        "--transport",
        transport,
        "--wait",
        str(HANG_S),
    ]
    stopped = [
        subprocess.Popen([*words, "--job", f"stopped {i}"], stdout=subprocess.DEVNULL) for i in range(4)
    ]

    def client(job, count, seed):
        return large(count).distribute(service.address, job=f"{job} {seed}", seed=seed, transport=transport)

    try:
        wait_for(lambda: sum(w["batches"] for w in service.workers()) > 100)
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        slow = [client("slow", 2000, i) for i in range(4)]
        held = [next(it) for it in slow]
        kept = [list(client("keeps", 500, i)) for i in range(8)]
        assert [hashes(k) for k in kept] == [hashes(large(500).iterator(seed=i)) for i in range(8)]
        assert [b.hash() for b in held] == [next(large(2000).iterator(seed=i)).hash() for i in range(4)]
        assert most_resident(worker) < (128 + 30) * MIB
        for it in slow:
            it.close()
    finally:
        for process in stopped:
            process.kill()
            process.wait(HANG_S)


def test_a_client_keeps_a_whole_epoch(service):
    """More batches than any worker lends to one client."""
    service.worker("one", "--memory", "64M")
    ds = Dataset.range(5000).shuffle().batch(1)
    assert hashes(list(ds.distribute(service.address, seed=1))) == hashes(ds.iterator(seed=1))


# ---- failures that are a worker's own ----


def lines(directory):
    """Short ones, and in each 256 one of 12 MB."""
    path = directory / "lines.txt"
    path.write_text("".join(f"{'x' * (12 << 20) if i % 256 == 255 else i}\n" for i in range(1024)))
    return Dataset.text(str(path)).batch(1)


def test_a_worker_short_of_memory_hands_on(service, tmp_path):
    ds = lines(tmp_path)
    want = hashes(ds.iterator(seed=1))
    short = service.worker("short", "--memory", "16M")
    service.worker("rich", "--memory", "256M")

    def failed():  # in one epoch the other one may have been given all long lines
        assert hashes(ds.distribute(service.address, seed=1)) == want
        return "can't go on" in service.said(short)

    wait_for(failed)
    assert re.search(
        r"\(short\) can't .*: --memory 16777216 is too small: .*; expected at least",
        service.said(service.processes[0]),
    )


def test_when_every_worker_fails_each_says_why(service, tmp_path):
    ds = lines(tmp_path)
    service.worker("first", "--memory", "16M")
    service.worker("second", "--memory", "17M")
    with pytest.raises(cachew.Error, match="no worker can run the pipeline: worker 1") as raised:
        list(ds.distribute(service.address, seed=1))
    assert "(first): --memory 16777216 is too small" in str(raised.value)
    assert "(second): --memory 17825792 is too small" in str(raised.value)
    assert raised.value.kind == "budget" and raised.value.attribute == "--memory"


def test_the_memory_that_a_worker_asks_for_is_enough(service):
    """Who can't even begin says whose memory is too small, and how much would do."""
    ds = Dataset.synthetic(count=8, shape=(24 << 20,), dtype="uint8").batch(1)
    service.worker("first", "--memory", "16M")
    with pytest.raises(cachew.Error, match=r"worker 1 \(first\): --memory 16777216 is too small") as raised:
        ds.distribute(service.address, seed=1)
    service.worker("second", "--memory", re.search(r"expected at least (\d+)", str(raised.value)).group(1))
    assert hashes(ds.distribute(service.address, seed=1)) == hashes(ds.iterator(seed=1))


def few_descriptors():
    """Of the data, 25 files stay open then."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))


def test_a_worker_without_descriptors_hands_on(service, tmp_path):
    """It has some to begin with, and then no more."""
    for i in range(64):
        (tmp_path / f"part{i:02}.txt").write_text("".join(f"{i} {k}\n" for k in range(20)))
    ds = Dataset.text(str(tmp_path / "part*.txt")).shuffle().batch(8)
    short = service.worker("short", "--memory", "64M", limit=few_descriptors)
    service.worker("rich", "--memory", "64M")
    there = ds.distribute(service.address, seed=1, epochs=40)
    begin = hashes(next(there) for _ in range(1000))
    resource.prlimit(short.pid, resource.RLIMIT_NOFILE, (3, 3))
    assert begin + hashes(there) == hashes(ds.iterator(seed=1, epochs=40))
    assert "can't go on: " in service.said(short) and "Too many open files" in service.said(short)


def lives(e):
    if "KILLED" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    while not os.path.exists(os.environ.get("GO", "/")):
        time.sleep(0.01)
    return {"value": e["value"] + 1}


@pytest.mark.large
def test_a_worker_whose_hosts_are_killed_hands_on(service, tmp_path):
    """As the kernel does where memory is short. Nothing is skipped, though records that fail are."""
    ds = Dataset.range(100).map(lives).batch(8).on_error("skip")
    bad = service.worker("bad", "--memory", "64M", env={"KILLED": "1"})
    service.worker("good", "--memory", "64M", env={"GO": str(tmp_path / "go")})
    there = ds.distribute(service.address, seed=1)
    wait_for(lambda: "was killed by signal 9" in service.said(bad))
    (tmp_path / "go").touch()
    assert hashes(there) == hashes(ds.iterator(seed=1))


# ---- what a killed worker leaves ----


@pytest.fixture
def runtime():
    """A directory with a short path, as those of sockets have to be."""
    with tempfile.TemporaryDirectory(prefix="cw-", dir="/tmp") as path:
        yield Path(path)


def test_the_directory_of_a_killed_worker_is_reaped(service, runtime):
    """By the next one to start; those of workers that live stay."""
    env = {"XDG_RUNTIME_DIR": str(runtime)}
    lives, killed = service.worker("lives", env=env), service.worker("killed", env=env)
    before = set(runtime.iterdir())
    assert len(before) == 2
    killed.kill()
    killed.wait(HANG_S)
    assert set(runtime.iterdir()) == before
    service.worker("next", env=env)
    after = set(runtime.iterdir())
    assert len(after) == 2 and len(after & before) == 1
    assert lives.poll() is None and all((path / "socket").exists() for path in after)
    service.end()
    assert not any(runtime.iterdir())
