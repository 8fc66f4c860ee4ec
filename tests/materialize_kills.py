#!/usr/bin/env python3
"""kill -9 of `cachew materialize` at named points and at instants, each time followed by the same command: at
the end the files are those of an uninterrupted run, each shard was written once, and nothing else is in
the directory.

    tests/materialize_kills.py --n 200 --seed 1

Each kill, and the format and size of the shards, follow from the seed. CACHEW names the command (default
build/cachew), a test build."""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
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


def points():
    known = cachew("doctor", "--crash-points", "--json").json["crash_points"]
    return [p["name"] for p in known if p["phase"] == "materialize"]


def files(directory):
    return {p.name: p.read_bytes() for p in directory.iterdir()}


class Life:
    """A directory, its kills, and what a run without kills writes."""

    def __init__(self, root, seed):
        self.draw, self.out, self.killed = random.Random(seed), root / "out", 0
        self.points = points()
        form = self.draw.choice(FORMATS)
        size = self.draw.choice([3, 40, 150]) * BYTES[form]
        pipeline = write(root / "p.json", chain(self.draw))
        self.words = [
            "materialize",
            pipeline,
            "--format",
            form,
            "--shard-bytes",
            size,
            "--seed",
            seed,
            "--json",
        ]
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


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=200, help="number of kills")
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    killed, seed = 0, words.seed
    while killed < words.n:
        with tempfile.TemporaryDirectory() as directory:
            try:
                killed += Life(Path(directory), seed).play(min(10, words.n - killed), instants=True)
            except AssertionError as error:
                sys.exit(f"seed {seed}: {error}")
        seed += 1
    print(f"{killed} kills in {seed - words.seed} directories: all data complete")


if __name__ == "__main__":
    main()
