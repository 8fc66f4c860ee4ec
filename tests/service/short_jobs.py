#!/usr/bin/env python3
"""Short jobs in a row, thousands of them, and what is left of them in each role: descriptors, threads,
mappings, memory, files, rows of the journal.

    tests/service/short_jobs.py --jobs 10000

Three clients that live as long as the service (over shared memory, a Unix socket, TCP) have one job after
the other: pipelines counted and not, of files, with a Python function; every fourth job is left before its
end, under one of a few names that come again. Each job's digest must be that of a local run. What each
process has is looked at when everything that is kept for later jobs is there, and at the end: more of
something than before, or memory that grew by more than a few bytes per job, is a leak. When the jobs are
over, and the time is that streams are kept ready for, the worker has what it had at first.

CACHEW names the command (default build/cachew); jobs_tool is built beside it (ninja tests/jobs_tool)."""

import argparse
import base64
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from cluster import CACHEW, Cluster, Deadline, Missed  # noqa: E402
from deadlines import HANG_S  # noqa: E402
from soak import make_data  # noqa: E402

TOOL = Path(CACHEW).parent / "tests" / "jobs_tool"
TRANSPORTS = ["shm", "unix", "tcp"]
SEEDS = 7  # so many for each pipeline: some jobs find the stream of an earlier one, most do not
LEFT_EVERY = 4  # such jobs are left after two batches
LEFT_NAMES = 40  # of theirs: a job that was left is kept for an hour
WARM_JOBS = 250  # until then all is there that is kept: streams that are ready, memory of threads, hosts
IDLE_S = HANG_S  # streams are kept for 30 s without a client; what is not given up then never is

# What may be more than before without being a leak: what comes and goes with the kinds of streams that are
# ready, in counts; memory in bytes per job, and what an allocator may take once.
MAY_DIFFER = {"fds": 20, "threads": 16, "memfds": 8, "maps": 80, "files": 4}
BYTES_PER_JOB = 150
BYTES_ONCE = 6 << 20
# of a worker that has nothing to do any more
AT_REST = {"fds": 0, "threads": 0, "memfds": 0, "maps": 80, "files": 0}
BYTES_AT_REST = 12 << 20  # its allocator's


def function(kind):
    """One that needs nothing but Python: an element as it is; each element is kept."""
    made = {"map": dict, "filter_function": bool}[kind]
    return {
        "name": made.__name__,
        "identity": f"short-jobs-{made.__name__}",
        "payload": base64.b64encode(pickle.dumps(made)).decode(),
    }


def pipelines(data):
    values = {"op": "range", "stop": 240}
    parse = {
        "op": "parse_example",
        "features": {"id": "int64", "name": "bytes", "tokens": {"dtype": "int64", "variable": True}},
    }
    shuffle, batch = {"op": "shuffle"}, {"op": "batch", "size": 8}
    return {
        "counted": [values, shuffle, batch],
        "filtered": [
            {"op": "range", "stop": 900},
            {"op": "filter", "where": "value % 3 != 1"},
            shuffle,
            {"op": "batch", "size": 7},
        ],
        "bucketed": [
            {"op": "range", "stop": 500},
            shuffle,
            {
                "op": "bucket_by_length",
                "length": "value * 7 % 23",
                "boundaries": [4, 9, 17],
                "sizes": [4, 5, 6, 7],
            },
        ],
        "records": [
            {"op": "tfrecord", "files": f"{data}/plain-*.tfrecord"},
            parse,
            shuffle,
            {
                "op": "bucket_by_length",
                "length": "length(tokens)",
                "boundaries": [2, 4, 6],
                "sizes": [9, 8, 6, 5],
                "pad": {"tokens": -1},
            },
        ],
        "gzip": [
            {"op": "tfrecord", "files": f"{data}/gzip-*.tfrecord.gz"},
            parse,
            {"op": "drop", "components": ["tokens"]},
            batch,
        ],
        "arrays": [{"op": "synthetic", "count": 40, "shape": [64, 80], "dtype": "float32"}, shuffle, batch],
        "function": [
            values,
            {"op": "map", "function": function("map"), "outputs": {"value": {"dtype": "int64", "shape": []}}},
            shuffle,
            batch,
        ],
        "functions": [
            values,
            {"op": "filter", "where": "value % 4 != 2"},
            {"op": "filter_function", "function": function("filter_function")},
            shuffle,
            batch,
        ],
    }


# ---- what a process has ----


def look(pid, directory=None):
    """Counts, and bytes of memory. directory: of its own, where it may leave files."""
    base = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (base / "status").read_text().splitlines())
    links = []
    for fd in (base / "fd").iterdir():
        try:
            links.append(os.readlink(fd))
        except FileNotFoundError:  # closed meanwhile
            pass
    maps = (base / "maps").read_text().splitlines()
    return {
        "fds": len(links),
        "threads": int(status["Threads"]),
        "memfds": sum("memfd:" in link for link in links),
        "maps": len(maps),
        "bytes": sum(int(status[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem")),
        "files": sum(1 for _ in Path(directory).rglob("*")) if directory else 0,
    }


class Jobs:
    """One service, its clients, and the jobs that they have."""

    def __init__(self, directory, python, command=CACHEW):
        self.directory = Path(directory)
        self.data = make_data(self.directory / "data")
        self.cluster = Cluster(command, tag="jobs", env={"CACHEW_PYTHON": str(python)})
        self.done, self.clients, self.expected, self.paths = 0, {}, {}, {}
        for name, chain in pipelines(self.data).items():
            self.paths[name] = self.cluster.directory / f"{name}.json"
            self.paths[name].write_text(json.dumps({"cachew": 1, "pipeline": chain}))

    def start(self):
        self.cluster.start_dispatcher()
        self.worker = self.cluster.start_worker("w0", "--allow-python", "--threads", 2, "--memory", "256M")
        self.at_first = look(self.worker.pid)
        for transport in TRANSPORTS:
            self.clients[transport] = subprocess.Popen(
                [TOOL, self.cluster.address, transport],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                env=self.cluster.env,
            )

    def local(self, name, seed):
        """(batches, digest) of all of it."""
        if (name, seed) not in self.expected:
            words = [
                self.cluster.command,
                "run",
                self.paths[name],
                "--seed",
                str(seed),
                "--digest",
                "--json",
                "--wait",
                str(HANG_S),
            ]
            ran = subprocess.run(
                words, check=True, capture_output=True, text=True, timeout=HANG_S, env=self.cluster.env
            )
            result = json.loads(ran.stdout.splitlines()[-1])
            self.expected[name, seed] = f"{result['batches']} {result['digest']}"
        return self.expected[name, seed]

    def play(self, n):
        """The next n jobs; what was wrong, in words."""
        names = list(self.paths)
        for i in range(self.done, self.done + n):
            name, seed, transport = (
                names[i % len(names)],
                i // len(names) % SEEDS,
                TRANSPORTS[i % len(TRANSPORTS)],
            )
            left = i // len(names) % LEFT_EVERY == LEFT_EVERY - 1
            client = self.clients[transport]
            job = f"left-{i % LEFT_NAMES}" if left else f"job-{i}"
            client.stdin.write(f"{job} {seed} {2 if left else 0} {self.paths[name]}\n")
            answer = client.stdout.readline().strip()
            expected = "2 " if left else self.local(name, seed)
            if not answer.startswith(expected):
                raise AssertionError(
                    f"job {i} ({name}, seed {seed}, {transport}, "
                    f"{'left' if left else 'whole'}): {answer or 'the client ended'}, "
                    f"expected {expected}; "
                    f"the worker says {self.worker.said()}"
                )
        self.done += n

    def look(self):
        """When what is more than the dispatcher keeps ready is given up: it looks after that four times a
        second.
        """
        time.sleep(1.5)
        run = self.cluster.directory / "run"
        found = {
            "dispatcher": look(self.cluster.dispatcher.pid, self.cluster.directory / "state"),
            "worker": look(self.worker.pid, run),
        }
        return found | {f"client {transport}": look(client.pid) for transport, client in self.clients.items()}

    def settled(self, before, n):
        """What grew and does not become less, in words."""
        deadline = Deadline(HANG_S)
        while problems := compare(before, self.look(), n):
            try:
                deadline.left("")
            except Missed:
                break
        return problems

    def idle(self, seconds=IDLE_S):
        """Until the worker has no more threads and descriptors than at first; what it has then."""
        deadline = Deadline(seconds)
        while True:
            now = look(self.worker.pid)
            if all(now[what] <= self.at_first[what] for what in ("fds", "threads", "memfds")):
                return now
            try:
                deadline.left("")
            except Missed:
                return now
            time.sleep(0.5)

    def rows(self):
        """Of the journal, when the dispatcher has ended."""
        path = self.cluster.directory / "state" / "journal.db"
        with sqlite3.connect(path) as db:
            return db.execute("SELECT count(*) FROM entries").fetchone()[0], path.stat().st_size

    def close(self):
        """Ends all of it; what went wrong, in words. Under LeakSanitizer that is also what each role
        still had.
        """
        problems = []
        for transport, client in self.clients.items():
            client.stdin.close()
            client.stdout.close()
            code = client.wait(HANG_S)
            if code != 0:
                problems.append(f"client {transport} ended with {code}")
        return problems + self.cluster.drain()


def compare(before, after, jobs, counts=MAY_DIFFER, memory=(BYTES_ONCE, BYTES_PER_JOB)):
    """What grew, in words. memory: bytes in any case, and for each job."""
    problems = []
    for role, now in after.items():
        for what, limit in counts.items():
            if now[what] > before[role][what] + limit:
                problems.append(
                    f"{role}: {now[what]} {what} after {jobs} jobs, {before[role][what]} before them"
                )
        grew = now["bytes"] - before[role]["bytes"]
        if grew > memory[0] + memory[1] * jobs:
            problems.append(f"{role}: {grew >> 10} KiB more after {jobs} jobs, {grew / jobs:.0f} bytes each")
    return problems


def host_program(directory):
    """An interpreter for Python functions that finds the program of hosts in this tree, without the
    package.
    """
    path = Path(directory) / "python"
    path.write_text(
        f'#!/bin/sh\nshift 2\nexec "{sys.executable}" '
        f'"{HERE.parents[1] / "python" / "cachew" / "_host.py"}" "$@"\n'
    )
    path.chmod(0o755)
    return path


def measure(n, warm=WARM_JOBS, command=CACHEW, idle=True, say=lambda text: None):
    """Plays n jobs after `warm` others; what leaked, in words."""
    with tempfile.TemporaryDirectory(prefix="cachew-jobs-") as directory:
        jobs = Jobs(directory, host_program(directory), command)
        try:
            jobs.start()
            jobs.play(warm)
            before = jobs.look()
            say(f"after {warm} jobs: {before}")
            began, played = time.monotonic(), 0
            while played < n:
                part = min(1000, n - played)
                jobs.play(part)
                played += part
                say(f"after {warm + played} jobs: {jobs.look()}")
            took = time.monotonic() - began
            problems = jobs.settled(before, n)
            if idle:
                now = jobs.idle()
                say(f"the worker at first: {jobs.at_first}; at rest: {now}")
                problems += compare(
                    {"worker at rest": jobs.at_first},
                    {"worker at rest": now},
                    jobs.done,
                    AT_REST,
                    (BYTES_AT_REST, 0),
                )
            problems += jobs.close()
            rows, size = jobs.rows()
            logs = sum(p.stat().st_size for p in jobs.cluster.directory.glob("*.err"))
            say(
                f"{n} jobs in {took:.0f} s; {rows} rows in the journal of {size >> 10} KiB; "
                f"{logs / jobs.done:.0f} bytes of logs per job"
            )
            return problems
        finally:
            for client in jobs.clients.values():
                client.kill()
            jobs.cluster.close()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10000)
    arguments = parser.parse_args()
    problems = measure(arguments.jobs, say=lambda text: print(text, flush=True))
    print("\n".join(problems) or f"{arguments.jobs} jobs: nothing leaked")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
