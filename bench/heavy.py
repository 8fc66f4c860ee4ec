#!/usr/bin/env python3
"""
Measures how the service scales with the cost of an element: at least ten million elements of 1 us to 100 ms,
in exact order, with one worker and with eight workers of one thread each. Elements sleep for their cost, so
that a small machine can run eight workers; the service's own work adds to that. Rates count what the client
received from 5 s after its first batch on, or from its second batch on where one worker takes longer for a
batch. Further cases: lognormal costs (sigma 1.5), a worker that is stopped for 20 s (SIGSTOP), workers that
are killed, and the first batch of a pipeline whose batches take one worker 26 s.

Prints a line per case, with the required value in the last column. Fails only where batches are lost.

usage: heavy.py [--cachew FILE] [--seconds S] [--workers N] [--kills N] [--only WORD] [--full] [--json]
"""

import argparse
import contextlib
import json
import math
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
N = 10_000_000  # elements at least: as many as many workers give in MOST_S
MOST_S = 60
COSTS_US = (1, 30, 3_000, 100_000)
BATCHES = (64, 1024)
WARM_S = 5
STOPPED_S = 20
# a sleep takes some 60 us longer than was asked for: short costs are slept for by several elements together
SLEEP_US = 2_000
CLASSES = 16  # of lognormal costs: their quantiles
LONG_BATCH_S = 10
TOGETHER_S = 0.001  # batches of cheap elements come by the million
DEMANDS, PHASE_S, SETTLES_S, WAITED = (4, 8), 60, 30, 0.02
SCALES, SCALES_LOGNORMAL, STOP_COSTS_S, KILL_COSTS_S, FIRST_BATCH = 7.2 / 8, 6.5 / 8, 1.5, 2.0, 1.5


def delays(cost_us, lognormal):
    """Operators that sleep for cost_us on average."""
    each = max(1, math.ceil(SLEEP_US / cost_us))
    if not lognormal:
        return [{"op": "delay", "us": cost_us * each, "where": f"value % {each} == 0"}]
    normal = statistics.NormalDist(0, 1.5)
    costs = [math.exp(normal.inv_cdf((k + 0.5) / CLASSES)) for k in range(CLASSES)]
    mean = sum(costs) / CLASSES
    return [
        {"op": "delay", "us": cost_us * each * c / mean, "where": f"value % {CLASSES * each} == {k * each}"}
        for k, c in enumerate(costs)
    ]


class World:
    def __init__(self, cost_us, batch, keep=None, lognormal=False, buckets=0):
        self.cost_us, self.batch, self.keep, self.lognormal, self.buckets = (
            cost_us,
            batch,
            keep,
            lognormal,
            buckets,
        )

    def __str__(self):
        words = [f"{self.cost_us:,} us", f"batches of {self.batch}"]
        words += ["a filter keeps a half"] if self.keep else []
        words += ["lognormal"] if self.lognormal else []
        words += [f"{self.buckets} buckets, one of them rare"] if self.buckets else []
        return ", ".join(words)

    def pipeline(self):
        chain = [
            {"op": "range", "stop": max(N, int(MOST_S * 8e6 / self.cost_us))},
            {"op": "shuffle"},
            *delays(self.cost_us, self.lognormal),
        ]
        if self.keep:
            chain.append({"op": "filter", "where": "value // 7 % 2 == 0"})
        batch = {"op": "batch", "size": self.batch}
        if self.buckets:  # the last one gets an element in a million
            length = f"where(value % 1000000 == 0, {self.buckets - 1}, value % {self.buckets - 1})"
            batch = {
                "op": "bucket_by_length",
                "length": length,
                "boundaries": list(range(1, self.buckets)),
                "sizes": [self.batch] * self.buckets,
            }
        return {"cachew": 1, "pipeline": [*chain, batch]}

    def batch_s(self):
        """What a batch takes one worker."""
        return self.cost_us * 1e-6 * self.batch * (2 if self.keep else 1)


@contextlib.contextmanager
def service(args, workers, *words):
    """A service of workers with one thread; its `ready`."""
    command = [
        args.cachew,
        "up",
        "--workers",
        workers,
        "--threads",
        1,
        "--memory",
        "512M",
        "--listen",
        "127.0.0.1:0",
        *words,
    ]
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        line = process.stdout.readline()
        if not line:
            sys.exit("heavy: cachew up ended before it was ready")
        yield json.loads(line)["ready"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)
        process.stdout.close()


def deliveries(args, world, workers, seconds, disturb=None):
    """[seconds since the client was started, elements] of each batch, or of those within TOGETHER_S;
    `disturb(ready)` is called while the client runs.
    """
    with tempfile.TemporaryDirectory(prefix="cachew-heavy-") as name, service(args, workers) as ready:
        folder = Path(name)
        pipeline, log = folder / "pipeline.json", folder / "log"
        pipeline.write_text(json.dumps(world.pipeline()))
        command = [
            args.cachew,
            "run",
            pipeline,
            "--service",
            ready["address"],
            "--job",
            "heavy",
            "--wait",
            600,
            "--log",
            log,
        ]
        began = time.time()
        client = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        until = time.monotonic() + seconds
        if disturb:
            disturb(ready)
        try:
            client.wait(max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            client.send_signal(signal.SIGINT)
        said = client.communicate()[1]
        if client.returncode not in (0, 130):
            sys.exit(f"heavy: {world}: the client ended with {client.returncode}: {said.strip()}")
        came = []
        with log.open() as lines:
            for g, line in enumerate(map(json.loads, lines)):
                if line["g"] != g:
                    sys.exit(f"heavy: {world}: batch {line['g']} came in the place of batch {g}")
                at = line["t"] - began if line["t"] > 1e9 else line["t"]
                if came and at - came[-1][0] < TOGETHER_S:
                    came[-1][1] += line["n"]
                else:
                    came.append([at, line["n"]])
        return came


def rate(came, world):
    """Elements per second from WARM_S after the first batch on."""
    if len(came) < 3:
        return math.nan
    start = came[0][0] + WARM_S if world.batch_s() < WARM_S else came[1][0]
    counted = [(t, n) for t, n in came if t > start]
    return sum(n for _, n in counted) / (counted[-1][0] - start) if counted else math.nan


def longest_pause(came):
    return max((b[0] - a[0] for a, b in zip(came, came[1:])), default=math.nan)


def seconds_for(args, world, workers):
    """Long enough for some batches of each worker."""
    return max(args.seconds, WARM_S + 4 * world.batch_s() * (1 if workers > 1 else 1.5) + 2)


def scaling(args, world):
    one = deliveries(args, world, 1, seconds_for(args, world, 1))
    many = deliveries(args, world, args.workers, seconds_for(args, world, args.workers))
    ratio = rate(many, world) / rate(one, world)
    asked = (SCALES_LOGNORMAL if world.lognormal else SCALES) * args.workers
    return {
        "world": str(world),
        "one_per_s": rate(one, world),
        "many_per_s": rate(many, world),
        "times": ratio,
        "asked": asked,
        "first_batch_s": many[0][0] if many else math.nan,
        "batch_on_one_s": world.batch_s(),
    }


def stopped(args, world):
    """What a worker that stands still for 20 s costs, in seconds of delivery."""

    def stop(ready):
        time.sleep(10)
        pid = ready["workers"][-1]["pid"]
        subprocess.run(["kill", "-STOP", str(pid)], check=True)
        time.sleep(STOPPED_S)
        subprocess.run(["kill", "-CONT", str(pid)], check=True)

    seconds = 10 + STOPPED_S + max(10, 4 * world.batch_s())
    calm = rate(deliveries(args, world, args.workers, args.seconds + 10), world)
    came = deliveries(args, world, args.workers, seconds, stop)
    # While it stands still one worker in `workers` is missing: that much is no fault of the service.
    expected = calm * (came[-1][0] - came[0][0] - STOPPED_S / args.workers)
    return {
        "world": f"{world}, one stopped for {STOPPED_S} s",
        "cost_s": (expected - sum(n for _, n in came[1:])) / calm,
        "longest_pause_s": longest_pause(came),
        "asked": STOP_COSTS_S,
    }


def killed(args, world):
    """The longest pause while workers are killed at random; `up` starts others."""
    rng = random.Random(7)

    def kill(ready):
        time.sleep(5)
        for _ in range(args.kills):
            done = subprocess.run(
                [args.cachew, "workers", "--service", ready["address"], "--json"],
                stdout=subprocess.PIPE,
                text=True,
            )
            workers = [w for w in json.loads(done.stdout or "[]") if w["state"] == "ready"]
            if workers:
                subprocess.run(["kill", "-KILL", str(rng.choice(workers)["pid"])])
            time.sleep(3 + rng.random())

    came = deliveries(args, world, args.workers, 5 + 4 * args.kills + 5, kill)
    return {
        "world": f"{world}, {args.kills} killed",
        "longest_pause_s": longest_pause(came),
        "asked": KILL_COSTS_S + world.batch_s(),
    }


def autoscaled(args, world):
    """The part of its time that a training job waits, whose demand is that of 4 workers and then that of 8,
    from SETTLES_S after each change on.
    """
    trainer = args.cachew.parent / "bench" / "trainer"
    phases = [f"{world.batch_s() / workers}:{PHASE_S}" for workers in DEMANDS]
    with (
        tempfile.TemporaryDirectory(prefix="cachew-heavy-") as name,
        service(args, 2 * args.workers, "--autoscale") as ready,
    ):
        pipeline = Path(name) / "pipeline.json"
        pipeline.write_text(json.dumps(world.pipeline()))
        ran = subprocess.run(
            list(map(str, [trainer, ready["address"], pipeline, "heavy", *phases])),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    waits, seconds, phase, began = [0.0] * len(phases), [0.0] * len(phases), -1, None
    for line in map(json.loads, ran.stdout.splitlines()):
        if "phase" in line:
            phase, began = phase + 1, None
            continue
        began = line["t"] - line["seconds"] if began is None else began
        if line["t"] - line["seconds"] >= began + SETTLES_S:
            waits[phase] += line["waited_s"]
            seconds[phase] += line["seconds"]
    return {
        "world": f"{world}, autoscale, demands of {' and '.join(map(str, DEMANDS))} workers",
        "waited": [w / s for w, s in zip(waits, seconds)],
        "asked": WAITED,
    }


def first_batch(args, world):
    """A batch that one worker alone takes long for: when the first one comes, and how much later than if all
    workers shared it evenly.
    """
    came = deliveries(args, world, args.workers, 3 * world.batch_s() / args.workers + 5)
    first_s = came[0][0] if came else math.nan
    return {
        "world": f"{world}: the first batch",
        "first_batch_s": first_s,
        "batch_on_one_s": world.batch_s(),
        "ratio": first_s / (world.batch_s() / args.workers),
        "asked": FIRST_BATCH,
    }


def number(value):
    return "-" if value is None or math.isnan(value) else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cachew", type=Path, default=ROOT / "build" / "cachew")
    parser.add_argument("--seconds", type=float, default=20, help="least duration of each run")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--only", default="", help="run only cases whose description has this word")
    parser.add_argument(
        "--full",
        action="store_true",
        help=f"all worlds: also those of which one worker "
        f"computes a batch in more than {LONG_BATCH_S} "
        f"s, and kills in each",
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.cachew = args.cachew.resolve()
    worlds = [World(cost, batch, keep) for cost in COSTS_US for batch in BATCHES for keep in (None, 0.5)]
    jobs = [(scaling, world) for world in worlds]
    jobs.append((autoscaled, World(3_000, 64)))
    jobs += [(scaling, World(cost, 64, None, True)) for cost in (30, 3_000, 100_000)]
    jobs += [(stopped, World(3_000, 64)), (stopped, World(3_000, 64, 0.5))]
    jobs += [
        (killed, world) for world in worlds if args.full or (world.cost_us == 3_000 and world.batch == 64)
    ]
    jobs += [(killed, World(cost, 64, buckets=100)) for cost in COSTS_US if args.full or cost == 3_000]
    jobs += [(first_batch, World(100_000, 256))]
    for measure, world in jobs:
        if args.only not in f"{measure.__name__}: {world}" or (
            world.batch_s() > LONG_BATCH_S and not args.full and measure is not first_batch
        ):
            continue
        found = measure(args, world)
        if args.json:
            print(json.dumps(found), flush=True)
        elif measure is scaling:
            print(
                f"{found['world']}: one worker {number(found['one_per_s'])}/s, {args.workers} workers "
                f"{number(found['many_per_s'])}/s: {number(found['times'])} times "
                f"(asked {number(found['asked'])}); first batch after {number(found['first_batch_s'])} "
                f"s, on one worker a batch takes {number(found['batch_on_one_s'])} s",
                flush=True,
            )
        elif measure is autoscaled:
            parts = " and ".join(f"{part:.2%}" for part in found["waited"])
            print(
                f"{found['world']}: waited {parts} of the time from {SETTLES_S} s on (asked "
                f"{found['asked']:.0%})",
                flush=True,
            )
        elif measure is first_batch:
            print(
                f"{found['world']} after {number(found['first_batch_s'])} s, {number(found['ratio'])} "
                f"times what it takes {args.workers} workers (asked "
                f"{number(found['asked'])}); one worker {number(found['batch_on_one_s'])} s",
                flush=True,
            )
        else:
            cost = f"cost {number(found['cost_s'])} s, " if "cost_s" in found else ""
            print(
                f"{found['world']}: {cost}longest pause {number(found['longest_pause_s'])} s (asked "
                f"{number(found['asked'])})",
                flush=True,
            )


if __name__ == "__main__":
    main()
