#!/usr/bin/env python3
"""kill -9 of `cachew materialize` at named points and at instants, each time followed by the same command: at
the end the files are those of an uninterrupted run, each shard was written once, and nothing else is in
the directory. With --service, the workers and the dispatcher of a service are killed too.

    tests/materialize_kills.py --n 200 --seed 1 [--service]

Each kill, and the format and size of the shards, follow from the seed. CACHEW names the command (default
build/cachew), a test build."""

import argparse
import functools
import json
import random
import select
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "service")]
from cluster import Cluster, Process  # noqa: E402
from command import cachew, write  # noqa: E402
from deadlines import HANG_S, PATIENT  # noqa: E402
from example_data import CACHEW  # noqa: E402

KILLED = -9
FORMATS = ("cachew", "tfrecord", "tar")
BYTES = {"cachew": 46, "tfrecord": 90, "tar": 2048}  # of an element, roughly


def chain(draw):
    """Elements with and without batches; a batch may lie in two shards."""
    first = [
        {"op": "range", "stop": draw.randint(200, 600)},
        {"op": "assign", "set": {"x": "value * 3 % 7", "y": "value * 0.25"}},
        {"op": "cast", "component": "y", "dtype": "float32"},
        {"op": "filter", "where": "value % 5 != 1"},
        {"op": "shuffle"},
    ]
    return [*first, *draw.choice([[], [{"op": "batch", "size": 32}], [{"op": "batch", "size": 7}]])]


@functools.cache
def points(*phases):
    known = cachew("doctor", "--crash-points", "--json").json["crash_points"]
    return [p["name"] for p in known if p["phase"] in phases]


def files(directory):
    return {p.name: p.read_bytes() for p in directory.iterdir()}


class Directory:
    """What a command writes, and what one without kills writes."""

    def __init__(self, root, seed):
        self.draw, self.out, self.killed = random.Random(seed), root / "out", 0
        form = self.draw.choice(FORMATS)
        size = self.draw.choice([3, 40, 150]) * BYTES[form]
        pipeline = write(root / "p.json", chain(self.draw))
        self.words = ["materialize", pipeline, "--format", form, "--shard-bytes", size]
        self.words += ["--seed", seed, "--json"]

    def once_each(self, before):
        """The shards that were finished before a kill are not written again."""
        for name, (inode, changed) in before.items():
            now = (self.out / name).stat()
            assert (now.st_ino, now.st_mtime_ns) == (inode, changed), f"{name} was written twice"

    def finished(self):
        journal = self.out / "journal.jsonl"
        lines = journal.read_bytes().split(b"\n")[1:-1] if journal.exists() else []
        names = [json.loads(line)["shard"]["name"] for line in lines]
        assert len(set(names)) == len(names)
        return {n: ((s := (self.out / n).stat()).st_ino, s.st_mtime_ns) for n in names}


class Life(Directory):
    """The kills of a command that computes and writes."""

    def __init__(self, root, seed):
        super().__init__(root, seed)
        self.points = points("materialize")
        whole = cachew(*self.words, "--out", root / "whole")
        assert whole.code == 0, whole.err
        self.wanted, self.result = files(root / "whole"), whole.json
        self.shards = whole.json["shards"]

    def kill(self, instants):
        """Returns whether the run was killed; else it ended before."""
        if instants and self.draw.random() < 0.4:
            started = subprocess.Popen(
                [CACHEW, *map(str, self.words), "--out", str(self.out)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=PATIENT | {"PATH": "/usr/bin:/bin", "HOME": str(self.out.parent)},
            )
            try:
                started.wait(timeout=self.draw.uniform(0, 0.05))
            except subprocess.TimeoutExpired:
                started.kill()
            return started.wait(HANG_S) == KILLED
        left = max(1, self.shards // 3)
        crash = f"{self.draw.choice(self.points)}:{self.draw.randint(1, left)}"
        ended = cachew(*self.words, "--out", self.out, env={"CACHEW_CRASH": crash})
        assert ended.code in (0, KILLED), (crash, ended.err)
        return ended.code == KILLED

    def play(self, most, instants=False):
        """Kills the run up to `most` times, then lets it end. Returns the number of kills."""
        before = {}
        while self.killed < most and self.kill(instants):
            self.killed += 1
            self.once_each(before)
            before = self.finished()
        ended = cachew(*self.words, "--out", self.out)
        assert ended.code == 0, ended.err
        assert ended.json == self.result
        self.once_each(before)
        assert files(self.out) == self.wanted
        return self.killed


def shards_of(directory):
    """The files, and the manifest without the name of the run."""
    found = files(directory)
    manifest = json.loads(found.pop("manifest.json"))
    del manifest["lineage"]["run"]
    return found, manifest


class ServiceLife(Directory):
    """The kills of a command whose elements a service computes, and of its processes. Each process that is
    killed is started again."""

    POINTS = {
        "client": ["client-batch", "client-progress", "materialize-rename", "materialize-renamed"]
        + ["materialize-journal", "materialize-published"],
        "dispatcher": [
            "dispatcher-lease",
            "dispatcher-completed",
            "dispatcher-commit",
            "dispatcher-committed",
        ],
        "worker": ["worker-lease", "worker-batch", "worker-completed", "worker-shard", "materialize-write"],
    }

    def __init__(self, root, seed):
        super().__init__(root, seed)
        self.cluster = Cluster(tag="materialize")
        self.cluster.start(2)
        self.words += ["--service", self.cluster.address, "--wait", HANG_S]
        whole = cachew(*self.words, "--out", root / "whole")
        assert whole.code == 0, whole.err
        self.wanted, self.result = shards_of(root / "whole"), whole.json
        for role in [*self.cluster.workers.values(), self.cluster.dispatcher]:
            role.kill9()

    def crash(self, role):
        """The environment of a process that is to be killed; that of another one is empty."""
        if self.killed + len(self.waiting) >= self.most or self.draw.random() < 0.3:
            return {}
        crash = f"{self.draw.choice(self.POINTS[role.partition('-')[0]])}:{self.draw.randint(1, 6)}"
        return {"CACHEW_CRASH": crash}

    def begin(self, role):
        env, c = self.crash(role), self.cluster
        if role == "client":
            words = [*self.words, "--out", self.out]
            started = Process(c, f"materialize-{c.number()}", words, env)
        elif role == "dispatcher":
            started = c.start_dispatcher(env=env, wait=False)
        else:
            started = c.start_worker(role, env=env, wait=False)
        self.roles[role] = started
        self.waiting -= {role}
        self.waiting |= {role} if env else set()

    def play(self, most):
        """Kills up to `most` processes. Returns the number of kills."""
        self.most, self.roles, self.waiting, before = most, {}, set(), {}
        for role in ("dispatcher", "worker-0", "worker-1", "client"):
            self.begin(role)
        while (client := self.roles["client"]).code != 0:
            ends = select.poll()
            for process in self.roles.values():
                ends.register(process.pidfd, select.POLLIN)
            assert ends.poll(HANG_S * 1000), f"the command does not end; it says {client.said()}"
            for role, process in [*self.roles.items()]:
                if process.running or (role == "client" and process.code == 0):
                    continue
                assert process.code == KILLED, f"{process.name} ended with {process.code}: {process.said()}"
                self.killed += 1
                if role == "client":
                    self.once_each(before)
                    before = self.finished()
                self.begin(role)
        self.once_each(before)
        assert json.loads(client.popen.stdout.read()) == self.result
        assert shards_of(self.out) == self.wanted
        return self.killed

    def close(self):
        self.cluster.close()


def service_life(root, seed, most):
    """Returns the number of kills."""
    life = ServiceLife(root, seed)
    try:
        return life.play(most)
    finally:
        life.close()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=200, help="number of kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--service", action="store_true", help="kill the processes of a service too")
    words = parser.parse_args()
    killed, seed = 0, words.seed
    while killed < words.n:
        with tempfile.TemporaryDirectory() as directory:
            try:
                if words.service:
                    killed += service_life(Path(directory), seed, min(10, words.n - killed))
                else:
                    killed += Life(Path(directory), seed).play(min(10, words.n - killed), instants=True)
            except AssertionError as error:
                sys.exit(f"seed {seed}: {error}")
        seed += 1
    print(f"{killed} kills in {seed - words.seed} directories: all data complete")


if __name__ == "__main__":
    main()
