#!/usr/bin/env python3
"""Plays random schedules of faults against the service and lets the delivery oracle judge each. Prints the
report: what happened, by kind, role and phase, and what failed, with the seeds.

    tests/service/soak.py --n 1000 --seed 1 --jobs 2     seeds 1 to 1000
    tests/service/soak.py --only 17                      one of them, with everything that it leaves in
    --keep tests/service/soak.py --plan plan.json               one as it was printed or kept
    tests/service/soak.py --only 17 --print              the schedule as JSON

CACHEW names the command (default build/cachew); of a test build the named points are used too. A build with
ThreadSanitizer ends at its first report, which fails the schedule."""

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import schedules  # noqa: E402
from cluster import CACHEW  # noqa: E402
from deadlines import HANG_S  # noqa: E402
from play import Player  # noqa: E402

TRIES = 3  # at a schedule, until enough of its faults took place


def crash_points(command):
    """The named points of a test build; none in another."""
    ran = subprocess.run(
        [command, "doctor", "--crash-points", "--json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    if ran.returncode != 0:
        return []
    return [
        p
        for p in json.loads(ran.stdout.splitlines()[-1])["crash_points"]
        if p["role"] in schedules.PROCESS_KINDS
    ]


def make_data(directory):
    subprocess.run(
        [sys.executable, HERE.parent / "make_data.py", directory, "--records", "120"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return directory


def play(plan, command, keep):
    """Again, if too little happened to it: a point may not be passed so often on another day."""
    for _ in range(TRIES):
        work = Path(tempfile.mkdtemp(prefix="cachew-soak-"))
        try:
            result = Player(plan, command, work, keep).play()
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if not result["ok"] or len(result["faults"]) >= min(schedules.MIN_FAULTS, len(plan["faults"])):
            break
    return result


def play_all(plans, jobs, keep=None, stop_after=0):
    """Their results, as they come; after so many failures those that began are the last."""
    n_failed = 0
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(play, plan, CACHEW, keep) for plan in plans]
        for future in as_completed(futures):
            if future.cancelled():
                continue
            r = future.result()
            n_failed += not r["ok"]
            yield r
            if stop_after and n_failed >= stop_after:
                for f in futures:
                    f.cancel()


def table(results):
    """Faults that happened: a line per role and kind, a column per phase."""
    counts = collections.Counter((f["role"], f["kind"], f["phase"]) for r in results for f in r["faults"])
    phases = [p for p in [*schedules.PHASES, schedules.INSTANT] if any(k[2] == p for k in counts)]
    lines = ["%-34s" % "faults" + "".join("%12s" % p for p in phases) + "%12s" % "all"]
    for role, kind in sorted({k[:2] for k in counts}):
        row = [counts[role, kind, p] for p in phases]
        lines.append("%-34s" % f"{role} {kind}" + "".join("%12d" % n for n in row) + "%12d" % sum(row))
    lines.append(
        "%-34s" % "all"
        + "".join("%12d" % sum(n for k, n in counts.items() if k[2] == p) for p in phases)
        + "%12d" % sum(counts.values())
    )
    return lines


def report(results, seconds):
    failed = sorted((r for r in results if not r["ok"]), key=lambda r: r["seed"])
    few = [r["seed"] for r in results if len(r["faults"]) < schedules.MIN_FAULTS]
    out = table(results) if results else []
    came = {(f["role"], f["kind"], f["phase"]) for r in results for f in r["faults"]}
    out.append(
        f"{sum(c in came for c in schedules.CELLS)} of {len(schedules.CELLS)} kinds of fault in a "
        f"phase came"
        + "".join(
            f"; none: {role} {kind}, {phase}"
            for role, kind, phase in sorted(set(schedules.CELLS) - came)[:10]
        )
    )
    out.append(
        f"{len(results)} schedules in {seconds:.0f} s, {len(failed)} failed; {len(few)} with fewer "
        f"than {schedules.MIN_FAULTS} faults before the job's end"
        f"; {sum(r['unreached'] for r in results)} faults never came to it"
    )
    if results:
        taken = sorted(r["seconds"] for r in results)
        out.append(f"a schedule takes {taken[len(taken) // 2]:.1f} s (median), {taken[-1]:.1f} s at most")
    for r in failed:
        out.append(f"seed {r['seed']}: {r['problems'][0][:300]}")
    return out


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--only", type=int, nargs="*", help="these seeds")
    parser.add_argument("--plan", type=Path, help="a schedule as JSON")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1)))
    parser.add_argument("--keep", type=Path, help="what failed schedules leave goes here")
    parser.add_argument("--json", type=Path, help="all results go here")
    parser.add_argument("--print", action="store_true", help="the schedules instead of playing them")
    parser.add_argument("--stop-after", type=int, default=0, help="end after so many failures")
    arguments = parser.parse_args()
    os.environ.setdefault("TSAN_OPTIONS", "halt_on_error=1:exitcode=66:second_deadlock_stack=1")
    data = make_data(Path(tempfile.mkdtemp(prefix="cachew-soak-data-")))
    try:
        if arguments.plan:
            plans = [json.loads(arguments.plan.read_text().replace("@DATA@", str(data)))]
        else:
            points = crash_points(CACHEW)
            plans = [
                schedules.make(seed, data, points)
                for seed in arguments.only or range(arguments.seed, arguments.seed + arguments.n)
            ]
        if arguments.print:
            print("\n".join(json.dumps(plan, indent=1).replace(str(data), "@DATA@") for plan in plans))
            return 0
        results, began = [], time.monotonic()
        for r in play_all(plans, arguments.jobs, arguments.keep, arguments.stop_after):
            results.append(r)
            if not r["ok"]:
                print(
                    f"seed {r['seed']} failed after {r['seconds']} s:\n  "
                    + "\n  ".join(r["problems"])[:6000],
                    flush=True,
                )
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))
        print("\n".join(report(results, time.monotonic() - began)))
        return 0 if all(r["ok"] for r in results) else 1
    finally:
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
