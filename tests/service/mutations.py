#!/usr/bin/env python3
"""Whether the oracle would notice: plays random schedules against a test build (-Dcrash_points=true) in
which something is left out that delivery rests on (src/base/crash.h lists what), until one fails. A mutation
that survives all of them is a hole in the tests.

    CACHEW=build-soak/cachew tests/service/mutations.py [--n 50] [--seed 1] [--jobs 2] [NAME...]"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import schedules  # noqa: E402
import soak  # noqa: E402
from cluster import CACHEW  # noqa: E402

MUTATIONS = ["dedup", "g", "part", "sync"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=MUTATIONS, metavar="NAME")
    parser.add_argument("--n", type=int, default=50, help="schedules that each may survive at most")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1)))
    arguments = parser.parse_args()
    points = soak.crash_points(CACHEW)
    if not points:
        parser.error(f"{CACHEW} is no test build: expected one with -Dcrash_points=true")
    survived = []
    with tempfile.TemporaryDirectory(prefix="cachew-mutations-") as data:
        soak.make_data(Path(data))
        for name in arguments.names:
            os.environ["CACHEW_MUTATE"] = name
            plans = [
                schedules.make(seed, data, points)
                for seed in range(arguments.seed, arguments.seed + arguments.n)
            ]
            results = list(soak.play_all(plans, arguments.jobs, stop_after=1))
            failed = next((r for r in results if not r["ok"]), None)
            if failed:
                print(
                    f"{name}: noticed in schedule {len(results)} (seed {failed['seed']}): "
                    f"{failed['problems'][0][:200].strip()}",
                    flush=True,
                )
            else:
                survived.append(name)
                print(f"{name}: not noticed in {len(results)} schedules", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
