#!/usr/bin/env python3
"""
Measures how long a training step waits for its batch when a part of the service dies: one job over three
workers, with one fault after the other while it runs.

    bench/pauses.py worker --faults 30

Kills a worker (kill -9), which another one replaces.

    bench/pauses.py dispatcher --faults 30

Kills the dispatcher (kill -9), which is started again at once or half a second later.

    bench/pauses.py drain --faults 30

Drains a worker (`cachew workers --drain`).

A pause is the longest time between two lines of the client's log, from the fault until the service has
recovered. The result is how much longer that is than the longest pause before the first fault. Prints a line
of JSON. Elements cost sleep, not CPU time, so that three workers of a small machine work at the same time.
"""

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "service"))
from cluster import Cluster  # noqa: E402

WORKERS, THREADS = 3, 2
ELEMENT_US = 2000
PIPELINES = {
    "counted": [
        {"op": "range", "stop": 32768},
        {"op": "delay", "us": ELEMENT_US},
        {"op": "shuffle"},
        {"op": "batch", "size": 8},
    ],
    "filtered": [
        {"op": "range", "stop": 32768},
        {"op": "delay", "us": ELEMENT_US},
        {"op": "filter", "where": "value % 3 != 1"},
        {"op": "shuffle"},
        {"op": "batch", "size": 8},
    ],
}
BEFORE = 1500  # batches without a fault
AFTER = 250  # batches after a fault until the next one
HOLDS_S = [0, 0.5]


class Faults:
    """A job that goes on, and what is done to the service under it. Times as the log has them, in s of the
    wall clock.
    """

    def __init__(self, cluster, rank, draw):
        self.cluster, self.rank, self.draw = cluster, rank, draw
        self.spans = []  # of each fault: when it began, and when all was as before
        self.meanwhile = []  # batches that came while a part of the service was away

    def fault(self, what, i):
        lines, began = self.rank.lines(), time.time()
        what(i)
        self.meanwhile.append(self.rank.lines() - lines)
        self.cluster.wait_lines(self.rank, self.rank.lines() + AFTER)
        self.spans.append((began, time.time()))

    def replace(self, key, i):
        w = self.cluster.workers.pop(key)
        self.cluster.start_worker(f"v{i}", "--threads", THREADS, "--memory", "256M")
        return w

    def worker(self, i):
        key = self.draw.choice(sorted(self.cluster.workers))
        self.cluster.workers[key].kill9()
        self.replace(key, i)

    def dispatcher(self, i):
        self.cluster.dispatcher.kill9()
        time.sleep(HOLDS_S[i % len(HOLDS_S)])
        self.cluster.start_dispatcher()

    def drain(self, i):
        key = self.draw.choice(sorted(self.cluster.workers))
        code, _, err = self.cluster.ask("workers", "--drain", self.cluster.workers[key].ready["id"])
        if code != 0:
            sys.exit(f"pauses: a worker can't be drained: {err}")
        w = self.replace(key, i)
        w.terminate()
        if w.wait() != 0:
            sys.exit(f"pauses: a drained worker ended with {w.code}: {w.said()}")


def gaps(times, begin, end):
    """The largest time without a line, in a span: also one that began before it, or goes on behind it."""
    first = max((i for i, t in enumerate(times) if t <= begin), default=0)
    last = min((i for i, t in enumerate(times) if t >= end), default=len(times) - 1)
    return max(b - a for a, b in zip(times[first:last], times[first + 1 : last + 1]))


def measure(kind, n, name, transport, command):
    with Cluster(command, tag="pauses") as cluster:
        cluster.start_dispatcher()
        for i in range(WORKERS):
            cluster.start_worker(f"w{i}", "--threads", THREADS, "--memory", "256M")
        pipeline = cluster.directory / "pipeline.json"
        pipeline.write_text(json.dumps({"cachew": 1, "pipeline": PIPELINES[name]}))
        rank = cluster.run(
            pipeline, words=["--epochs", 1 << 30, "--transport", transport, "--wait", 60], state_every=1 << 30
        )
        cluster.wait_lines(rank, BEFORE)
        quiet = time.time()
        faults = Faults(cluster, rank, random.Random(n))
        for i in range(n):
            faults.fault(getattr(faults, kind), i)
        rank.process.terminate()
        rank.process.wait()
        times = [line.t for line in rank.parts()[0].lines]
        deaths = cluster.deaths()
        if deaths:
            sys.exit(f"pauses: {deaths[0]}")
    # Without what it begins with: the first batches come when the first ranges have.
    free = gaps(times[BEFORE // 5 :], times[BEFORE // 5], quiet)
    beyond = sorted(max(0, gaps(times, *span) - free) for span in faults.spans)
    return {
        "pipeline": name,
        "faults": n,
        "fault_free_s": round(free, 4),
        "beyond_s": round(beyond[-1], 4),
        "median_beyond_s": round(median(beyond), 4),
        "fewest_meanwhile": min(faults.meanwhile),
        "median_meanwhile": median(faults.meanwhile),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["worker", "dispatcher", "drain"])
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--pipeline", choices=PIPELINES, nargs="*", default=list(PIPELINES))
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--cachew", type=Path, help="default: $CACHEW, or build/cachew")
    args = parser.parse_args()
    command = os.path.abspath(args.cachew) if args.cachew else None
    runs = [measure(args.kind, args.faults, name, args.transport, command) for name in args.pipeline]
    print(
        json.dumps(
            {"seconds": max(r["beyond_s"] for r in runs), "one_batch_s": 8 * ELEMENT_US / 1e6, "runs": runs}
        )
    )


if __name__ == "__main__":
    main()
