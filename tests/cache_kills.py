#!/usr/bin/env python3
"""kill -9 of runs, workers and dispatchers while caches are written, published and evicted: nothing wrong is
delivered, and after a restart the quota holds and no file is left lying about.

    tests/cache_kills.py --n 500 --seed 1 --jobs 2

A *life* is a cache directory and some kills in a row, from its seed. Each is at a named point of a test
build, or at an instant; of a run alone, or of a worker or the dispatcher of a service whose workers share
the directory. Each time elements are dearer than before, so that they push out those that are there. CACHEW
names the command (default build/cachew)."""

import argparse
import collections
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from caches import SLEEPING, cachew, environment, left_over, run, used_bytes, words, write  # noqa: E402
from daemons import Daemons  # noqa: E402
from deadlines import HANG_S  # noqa: E402

QUOTA = 2 << 20  # of the 4.9 MB that an epoch is
SMALL_FILES = 4 << 10  # a set's, that are not segments: they are written whether or not there is room
LIFE = 25  # kills
FIRST_US, MORE_US = 100, 40
MISSES = 3  # a run may be over before its point comes: so many times as many rounds as kills
COUNTED = "hits", "evicted"


def chain():
    """400 elements of 12 KiB that take a while."""
    return [
        {"op": "synthetic", "count": 400, "shape": [64, 64, 3], "dtype": "uint8"},
        {"op": "delay", "us": 0},
        {"op": "assign", "set": {"data": "255 - data"}},
        {"op": "cache"},
        {"op": "shuffle"},
        {"op": "random_flip", "component": "data"},
        {"op": "batch", "size": 8},
    ]


def first_end(processes, seconds):
    """Waits until one of them ends, or for so long."""
    poll, fds = select.poll(), [os.pidfd_open(p.pid) for p in processes if p.poll() is None]
    if len(fds) < len(processes):
        seconds = 0
    for fd in fds:
        poll.register(fd, select.POLLIN)
    poll.poll(seconds * 1000)
    for fd in fds:
        os.close(fd)


class Life:
    def __init__(self, directory, seed):
        self.directory, self.draw, self.cache = directory, random.Random(seed), directory / "c"
        self.pipeline = write(directory / "p.json", chain())
        self.wanted = run(self.pipeline)["digest"]
        self.points = collections.defaultdict(list)
        for p in cachew("doctor", "--crash-points")[0]["crash_points"]:
            self.points[p["phase"] if p["phase"] == "cache" else p["role"]].append(p["name"])
        self.killed, self.counts = collections.Counter(), collections.Counter()

    def caching(self):
        return "--cache-dir", self.cache, "--cache-bytes", QUOTA

    def play(self, n):
        for k in range(n * MISSES):
            setting = ("--set", f"1.us={FIRST_US + MORE_US * k}")
            who = self.draw.choice(["run", "run", "worker", "dispatcher"])
            point = (
                self.draw.choice(self.points["cache" if who != "dispatcher" else who])
                if self.draw.random() < 0.6
                else None
            )
            at = f"{point}:{self.draw.choice([1, 1, 2, 4])}" if point else self.draw.uniform(0, 0.5)
            died = self.a_run(at, setting) if who == "run" else self.a_service(who, at, setting)
            self.killed[f"{who}, {point or 'an instant'}"] += died
            self.check(setting)
            if self.killed.total() == n:
                break
        return self

    def check(self, setting):
        """As it is after a restart, with what was kept of the same elements."""
        ran = run(self.pipeline, *setting, *self.caching())
        assert ran["digest"] == self.wanted, ("after a restart", ran)
        for what in COUNTED:
            self.counts[what] += ran["cache"][what]
        assert not left_over(self.cache), left_over(self.cache)
        sets = len(list(self.cache.glob("*/used")))
        assert used_bytes(self.cache) <= QUOTA + sets * SMALL_FILES, [
            (p, p.stat().st_size) for p in self.cache.rglob("*")
        ]
        assert cachew("cache", "verify", self.cache)[0]["bad_segments"] == 0

    def start(self, *given, crash=None):
        return subprocess.Popen(
            words("run", self.pipeline, "--digest", "--json", *given),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(SLEEPING, {"CACHEW_CRASH": crash} if crash else {}),
        )

    def delivered(self, process):
        out, _ = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, (process.returncode, out[-2000:])
        assert json.loads(out.splitlines()[-1])["digest"] == self.wanted, out

    def a_run(self, at, setting):
        """Whether it died. At times another one has the directory, too: it goes on."""
        other = self.start(*setting, *self.caching()) if self.draw.random() < 0.3 else None
        one = self.start(*setting, *self.caching(), crash=at if isinstance(at, str) else None)
        first_end([one], HANG_S if isinstance(at, str) else at)
        one.kill()
        one.communicate()
        if other:
            self.delivered(other)
        return one.returncode == -signal.SIGKILL

    def a_service(self, who, at, setting):
        """Whether it died; another one takes its place, and the job has all its batches."""
        logs = Path(tempfile.mkdtemp(dir=self.directory))
        daemons = Daemons(logs)
        crash = {"CACHEW_CRASH": at} if isinstance(at, str) else {}

        def dispatcher(address, env=None):
            return daemons.start("dispatcher", "--listen", address, "--state-dir", logs, env=env)

        def worker(env=None):
            return daemons.start(
                "worker",
                "--dispatcher",
                address,
                "--memory",
                "256M",
                "--threads",
                1,
                *self.caching(),
                env={**SLEEPING, **(env or {})},
            )

        try:
            victim = dispatcher("127.0.0.1:0")
            address = victim.address
            workers = [worker(crash if who == "worker" else None), worker()]
            if who == "worker":
                victim = workers[0]
            elif crash:  # only now, for it has something to write as soon as there are workers
                victim.end()
                victim = dispatcher(address, crash)
            job = self.start(*setting, "--service", address, "--job", "one")
            first_end([victim.process, job], HANG_S if isinstance(at, str) else at)
            died = victim.process.poll() is not None or not isinstance(at, str)
            if died:
                victim.end(signal.SIGKILL)
                worker() if who == "worker" else dispatcher(address)
            self.delivered(job)
        finally:
            daemons.end()
        return died


def live(seed, n):
    with tempfile.TemporaryDirectory(prefix="cachew-kills-") as directory:
        try:
            life = Life(Path(directory), seed).play(n)
        except Exception:
            return seed, None, None, traceback.format_exc()
        return seed, life.killed, life.counts, None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=500, help="kills in all")
    parser.add_argument("--seed", type=int, default=1, help="of the first life")
    parser.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1))
    arguments = parser.parse_args()
    began, killed, counts, failed = time.monotonic(), collections.Counter(), collections.Counter(), 0
    lives = [min(LIFE, arguments.n - at) for at in range(0, arguments.n, LIFE)]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for seed, died, counted, problem in pool.map(
            live, range(arguments.seed, arguments.seed + len(lives)), lives
        ):
            if problem:
                failed += 1
                print(f"seed {seed}: {problem[-3000:]}", flush=True)
                continue
            killed += died
            counts += counted
    for where, n in sorted(killed.items()):
        print(f"{n:5d} {where}")
    print(
        f"{killed.total():5d} kills in {time.monotonic() - began:.0f} s, {failed} lives failed; "
        f"afterwards {counts['hits']} elements were read and {counts['evicted']} segments gave way"
    )
    return 1 if failed or killed.total() < arguments.n or not all(counts[what] for what in COUNTED) else 0


if __name__ == "__main__":
    sys.exit(main())
