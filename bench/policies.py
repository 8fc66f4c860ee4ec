#!/usr/bin/env python3
"""
Compares policies in the simulator, on published curves, modelled workloads and random ones: regret against
the oracle, and decisions.

usage: policies.py [--cachew COMMAND] [--random N] [--seed S] [--policies P,...] [--sets S,...] [--worst N]
[--json FILE]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "sim"))
import placements  # noqa: E402
import workloads  # noqa: E402


def simulate(command, folder, name, workload, policy):
    path = Path(folder) / f"{name.replace(' ', '_')}.json"
    path.write_text(json.dumps(workload))
    done = subprocess.run(
        [command, "simulate", str(path), "--policy", policy, "--json"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        sys.exit(f"{name}: {policy}: {done.stderr or done.stdout}")
    return json.loads(done.stdout.splitlines()[-1])


def turns(result):
    """How often the workers go back to what they were: A, B, A, B."""
    counts = [1] + [d["record"]["chosen"]["workers"] for d in result["decisions"]]
    counts = [n for i, n in enumerate(counts) if i == 0 or n != counts[i - 1]]
    return sum(counts[i] == counts[i + 2] and counts[i + 1] == counts[i + 3] for i in range(len(counts) - 3))


def judge(workload, result):
    """What the objective lost; the other measure beside it."""
    objective = workload["objective"]
    return {
        "objective": objective,
        "regret": result["regret"][objective],
        "time": result["regret"]["time"],
        "cost": result["regret"]["cost"],
        "decisions": len(result["decisions"]),
        "turns": turns(result),
        "settled_at_s": result["settled_at_s"],
        "time_s": result["time_s"],
        "path": " ".join(
            f"{'/'.join(str(n) for n in d['record']['chosen']['workers'].values())}"
            f"{'+' + d['cache'] if d['cache'] else ''}"
            for d in result["decisions"][:12]
        ),
    }


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def row(name, rows):
    regrets = [r["regret"] for r in rows]
    decisions = [r["decisions"] for r in rows]
    print(
        f"{name:34} {len(rows):5} {100 * quantile(regrets, 0.5):8.1f} "
        f"{100 * quantile(regrets, 0.9):8.1f} {100 * quantile(regrets, 0.99):8.1f} "
        f"{100 * max(regrets):8.1f} "
        f"{sum(r <= 0.15 for r in regrets) / len(rows):8.1%} "
        f"{sum(n <= 3 for n in decisions) / len(rows):6.1%} {max(decisions):5} "
        f"{sum(r['turns'] for r in rows):5}"
    )


def main():
    parser = argparse.ArgumentParser(description="Compare policies in the simulator.")
    parser.add_argument("--cachew", default=str(ROOT / "build" / "cachew"))
    parser.add_argument("--random", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1000000, help="seed of the first random workload")
    parser.add_argument("--policies", default="auto,cachew-atc22,cachew-atc22-code,hpa")
    parser.add_argument(
        "--sets",
        help="run only these sets: published, modelled, random, jobs, curves, pools, pecan, hosts, placed",
    )
    parser.add_argument("--worst", type=int, default=0, help="list the N worst workloads of each policy")
    parser.add_argument("--each", action="store_true", help="list all published and modelled workloads")
    parser.add_argument("--json", help="write all results to FILE")
    args = parser.parse_args()
    sets = {
        "published": workloads.published(),
        "modelled": workloads.modelled(),
        "random": {
            f"random {i}": workloads.random_workload(i) for i in range(args.seed, args.seed + args.random)
        },
        "jobs": {f"job {i}": workloads.random_job(i) for i in range(args.seed, args.seed + args.random)},
        "curves": {
            f"curve {i}": workloads.random_curve(i) for i in range(args.seed, args.seed + args.random)
        },
        "pools": {f"pools {i}": workloads.random_pools(i) for i in range(args.seed, args.seed + args.random)},
        "pecan": placements.published(),
        "hosts": placements.modelled(),
        "placed": {
            f"placed {i}": placements.random_placement(i) for i in range(args.seed, args.seed + args.random)
        },
    }
    if args.sets:
        sets = {kind: sets[kind] for kind in args.sets.split(",")}
    print(
        f"{'policy, workloads':34} {'n':>5} {'median %':>8} {'90 %':>8} {'99 %':>8} {'worst':>8} "
        f"{'<= 15 %':>8} {'<= 3':>6} {'most':>5} {'turns':>5}"
    )
    kept = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        for policy in args.policies.split(","):
            for kind, cases in sets.items():
                if not cases:
                    continue
                results = pool.map(
                    lambda c, p=policy: simulate(args.cachew, folder, c[0], c[1], p), cases.items()
                )
                rows = {name: judge(cases[name], result) for name, result in zip(cases, results)}
                kept.setdefault(policy, {}).update(rows)
                row(f"{policy}, {kind}", list(rows.values()))
                shown = sorted(rows.items(), key=lambda item: -item[1]["regret"])[: args.worst]
                if args.each and kind in ("published", "modelled"):
                    shown = rows.items()
                for name, r in shown:
                    print(
                        f"    {name:28} {r['objective']:4} {100 * r['regret']:7.1f} %  (time "
                        f"{100 * r['time']:6.1f}, cost {100 * r['cost']:6.1f})  "
                        f"{r['time_s']:9.0f} s: {r['path']}"
                    )
    if args.json:
        Path(args.json).write_text(json.dumps(kept, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
