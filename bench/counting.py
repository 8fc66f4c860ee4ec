#!/usr/bin/env python3
"""
Measures what timing and counting cost a run: the same runs with and without them.

    bench/counting.py [--cachew build/cachew] [--photos build/photos] [--threads N] [--rounds N] [--only
    cheap|photos]

Needs a test build (-Dcrash_points=true), which can leave counting out (CACHEW_MUTATE=uncounted,
src/base/crash.h). Counting is: the times and rows of operators, their sums, and the one run in 256 that is
not fused, to tell how the time of fused operators divides. A round has four short runs, with, without,
without, with, so that a drift of the machine cancels out. It gives one ratio of CPU time for an element, and
one of rates. Printed are the median over the rounds and its 95 % confidence interval (order statistics). CPU
time hardly depends on other load of the machine; rates do.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BATCHES = {"cheap": 12000, "photos": 24}  # of a run: about half a second
COUNTED, UNCOUNTED = "counted", "uncounted"  # the former is the name of no mutation


def run(arguments, pipeline, batches, what):
    words = [
        "run",
        pipeline,
        "--json",
        "--threads",
        arguments.threads,
        "--epochs",
        1000,
        "--batches",
        batches,
    ]
    done = subprocess.run(
        [arguments.cachew, *map(str, words)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "CACHEW_MUTATE": what},
    )
    told = json.loads(done.stdout.splitlines()[-1])
    return told["cpu_s"] / told["elements"], told["elements_per_s"]


def interval(values):
    """That of the median, by how many of n values lie below it: binomial, nearly normal."""
    ordered, n = sorted(values), len(values)
    away = math.ceil(1.96 * math.sqrt(n) / 2)
    return ordered[max(n // 2 - away, 0)], ordered[min((n - 1) // 2 + away, n - 1)]


def measure(arguments, pipeline, batches):
    cpu, rate = [], []
    for _ in range(arguments.rounds):
        runs = {COUNTED: [], UNCOUNTED: []}
        for what in (COUNTED, UNCOUNTED, UNCOUNTED, COUNTED):
            runs[what].append(run(arguments, pipeline, batches, what))
        sums = {what: [sum(column) for column in zip(*rows)] for what, rows in runs.items()}
        cpu.append(sums[COUNTED][0] / sums[UNCOUNTED][0] - 1)
        rate.append(1 - sums[COUNTED][1] / sums[UNCOUNTED][1])
    return cpu, rate


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cachew", default="build/cachew")
    parser.add_argument("--photos", type=Path, default=Path("build/photos"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=BATCHES)
    arguments = parser.parse_args()
    told = subprocess.run(
        [arguments.cachew, "doctor", "--crash-points", "--json"], check=True, capture_output=True, text=True
    )
    if not json.loads(told.stdout.splitlines()[-1])["crash_points"]:
        parser.error(f"{arguments.cachew} is no test build: expected one with -Dcrash_points=true")
    print(
        f"load {os.getloadavg()[0]:.1f}; {arguments.rounds} rounds of four runs, {arguments.threads} "
        f"threads\n"
    )
    print("| pipeline | more CPU time | 95 % | lower rate | 95 % |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for name, batches in BATCHES.items():
            if arguments.only not in (None, name):
                continue
            path = Path(directory) / f"{name}.json"
            path.write_text(
                (HERE / "pipelines" / f"{name}.json")
                .read_text()
                .replace("photos-*", f"{arguments.photos.resolve()}/photos-*")
            )
            cpu, rate = measure(arguments, path, batches)
            cells = [
                f"{100 * statistics.median(v):+.2f} % | {100 * interval(v)[0]:+.2f} to "
                f"{100 * interval(v)[1]:+.2f} %"
                for v in (cpu, rate)
            ]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
