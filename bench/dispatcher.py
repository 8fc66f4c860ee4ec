#!/usr/bin/env python3
"""
Measures how many requests a dispatcher answers. Simulated workers (`load/`), each with a connection of its
own, complete the ranges of an endless job. Ranges are leased, written down, acknowledged, reported to
clients, passed, revoked and deleted as in a real job, but nothing is computed. Every completion is a request
of its own. Then `--heartbeats` workers report once a second that they are alive, and an admin client requests
the status.

The dispatcher runs on one CPU, the load on the others. With `--state-dir` the dispatcher keeps its journal
there, so that an acknowledgement means that the data is on the disk.

Prints a line of JSON: `completions_per_s`; `p50_s`, `p99_s` and `max_s` of the time until the
acknowledgement; `heartbeats_per_s`; `question_p50_s` and `question_p99_s`; `completions_cpu_s` and
`heartbeats_cpu_s` of the dispatcher. With `--scaling N` it measures instead what deciding costs: N workers of
one job report each second what they computed, and the dispatcher has a policy. It prints `heartbeats_per_s`,
and `cpu`, as a part of a core, from the first connection on (bench/overhead.py measures without the
beginning).
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from service import cpu_ns, daemon


def load(args, dispatcher, what, workers, *options):
    """The result of one measurement, and the dispatcher's CPU time in it, in seconds."""
    program = args.cachew.parent / "bench" / "dispatcher_load"
    words = [
        program,
        what,
        dispatcher.ready["address"],
        "--workers",
        workers,
        "--seconds",
        args.seconds,
        *options,
    ]
    before = cpu_ns(dispatcher.pid)
    with subprocess.Popen(
        [str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if line == "measuring\n":  # before that the load came up, and ran in
                before = cpu_ns(dispatcher.pid)
            else:
                sys.stderr.write(line)
        said = process.stdout.read()
    if process.returncode:
        sys.exit(f"dispatcher: {what} failed ({process.returncode})")
    return json.loads(said), (cpu_ns(dispatcher.pid) - before) / 1e9


def measure(args, dispatcher):
    if args.scaling:
        result, cpu_s = load(args, dispatcher, "scaling", args.scaling)
        return {"workers": args.scaling, "policy": args.policy, **result, "cpu": cpu_s / result["seconds"]}
    words = [
        "--in-flight",
        args.in_flight,
        "--ranks",
        args.ranks,
        "--keys",
        args.keys,
        "--ranges-per-s",
        args.ranges_per_s,
    ]
    result, cpu_s = load(args, dispatcher, "completions", args.connections, *words)
    facts = {
        "connections": args.connections,
        "ranks": args.ranks,
        "keys": args.keys,
        "in_flight": args.in_flight,
        "durable": bool(args.state_dir),
    }
    result = {**facts, **result, "completions_cpu_s": cpu_s}
    if args.heartbeats:
        beats, cpu_s = load(args, dispatcher, "heartbeats", args.heartbeats)
        result |= {
            "workers": args.heartbeats,
            **beats,
            "heartbeats_cpu_s": cpu_s,
            "seconds": result["seconds"],
        }
    return result


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        help="keep the dispatcher's journal in DIR, which is made if need be (default: nothing is durable)",
    )
    parser.add_argument("--connections", type=int, default=128, help="number of workers that complete ranges")
    parser.add_argument("--in-flight", type=int, default=8, help="unacknowledged completions per worker")
    parser.add_argument("--ranks", type=int, default=1, help="ranks of the job")
    parser.add_argument(
        "--keys", type=int, default=1, help="keys of the job's elements (0: batches follow from positions)"
    )
    parser.add_argument(
        "--ranges-per-s",
        type=float,
        default=0,
        help="completions per second of each worker (0: as many as are acknowledged)",
    )
    parser.add_argument(
        "--heartbeats",
        type=int,
        default=10000,
        help="workers that report once a second that they are alive (0: none)",
    )
    parser.add_argument(
        "--scaling",
        type=int,
        default=0,
        help="instead: workers of a job that report each "
        "second what they computed, and a policy "
        "that decides",
    )
    parser.add_argument("--policy", default="auto", help="with --scaling (fixed:N: all serve the job)")
    parser.add_argument("--seconds", type=float, default=5, help="duration of each measurement")
    parser.add_argument(
        "--cachew", type=Path, default=Path(__file__).resolve().parents[1] / "build" / "cachew"
    )
    args = parser.parse_args()
    words = ["--policy", args.policy] if args.scaling else []
    if args.state_dir:
        args.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        words += ["--state-dir", args.state_dir]
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) > 1:
        os.sched_setaffinity(0, cpus[:1])  # the dispatcher inherits it
    with daemon(args.cachew, "dispatcher", "--listen", "127.0.0.1:0", *words) as dispatcher:
        os.sched_setaffinity(0, cpus[1:] or cpus)
        print(json.dumps(measure(args, dispatcher)))


if __name__ == "__main__":
    main()
