#!/usr/bin/env python3
"""
Measures whether autocache picks the faster of computing and reading: a second job over photographs, with
stores of several speeds.

    bench/cache_policy.py [--cachew build/cachew] [--photos build/photos] [--threads N] [--epochs N]
    [--rounds N]

Elements are photographs, decoded and resized to 224x224x3 uint8, with their label; the cache point stands
behind that. The first job fills the cache. The second job takes its batches as fast as it can: without a
cache, always from the cache, and as the policy decides, with the first job's measurements and without them.
The store is throttled to a multiple of the speed of computing (test builds only: -Dcrash_points=true). Runs
of these kinds alternate. The best run of each kind counts, because other load only ever slows a run down.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BATCH = 64
STORES = {
    "fast": 0,
    "4 times computing": 4,
    "twice computing": 2,
    "half of computing": 0.5,
    "a tenth of computing": 0.1,
}


def pipeline(directory, photos):
    chain = [
        {"op": "tfrecord", "files": f"{photos}/photos-*.tfrecord"},
        {"op": "parse_example", "features": {"image": "bytes", "label": "int64"}},
        {"op": "decode_image", "component": "image"},
        {"op": "resize", "component": "image", "size": [224, 224]},
        {"op": "autocache"},
        {"op": "shuffle"},
        {"op": "random_flip", "component": "image"},
        {"op": "batch", "size": BATCH},
    ]
    path = directory / "photos.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return path


def run(arguments, path, speed, *words):
    words = ["--json", "--digest", "--threads", arguments.threads, "--epochs", arguments.epochs, *words]
    done = subprocess.run(
        [arguments.cachew, "run", path, *map(str, words)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **({"CACHEW_STORE": str(speed)} if speed else {})},
    )
    return json.loads(done.stdout.splitlines()[-1])


def forget(cache):
    for profile in cache.glob("*/profile.json"):
        profile.unlink()


def measure(arguments, path, cache, speed):
    """Returns the seconds of an epoch and the policy's last decision."""
    best, ended, digests = {}, None, set()
    for _ in range(arguments.rounds):
        for kind in ("none", "always", "policy", "policy, first job"):
            if kind == "policy, first job":
                forget(cache)
            words = {"none": ["--cache", "off"], "always": ["--cache-dir", cache, "--cache", 0]}.get(
                kind, ["--cache-dir", cache]
            )
            ran = run(arguments, path, speed, *words)
            digests.add(ran["digest"])
            best[kind] = min(best.get(kind, 1e9), ran["seconds"] / arguments.epochs)
            ended = ran["cache"]["cache_point"] if kind == "policy" else ended
    assert len(digests) == 1
    return best, ended


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cachew", default="build/cachew")
    parser.add_argument("--photos", type=Path, default=Path("build/photos"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    asked = subprocess.run(
        [arguments.cachew, "doctor", "--crash-points", "--json"], check=True, capture_output=True, text=True
    ).stdout
    if not json.loads(asked.splitlines()[-1])["crash_points"]:
        sys.exit(
            f"cache_policy: {arguments.cachew} can't throttle a store: expected a test build "
            f"(tools/setup.sh build-test -Dcrash_points=true)"
        )
    with tempfile.TemporaryDirectory(dir="/var/tmp") as temporary:
        directory = Path(temporary)
        path, cache, speed = (
            pipeline(directory, arguments.photos.resolve()),
            directory / "cache",
            directory / "speed",
        )
        subprocess.run(
            [arguments.cachew, "cache", "warm", path, "--cache-dir", cache],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        kept = sum(f.stat().st_size for f in cache.glob("*/*.cws"))
        computing = kept / (run(arguments, path, None, "--cache", "off")["seconds"] / arguments.epochs)
        print(
            f"{kept / 1e6:.0f} MB kept; computing gives {computing / 1e6:.0f} MB/s; seconds of an epoch, "
            f"{arguments.epochs} epochs:\n"
        )
        print(
            "| store | no cache | always | policy | policy, nothing known before | policy / better | "
            "ended with |"
        )
        print("|---|---|---|---|---|---|---|")
        for name, times in STORES.items():
            speed.write_text(f"{times * computing:.0f} 0")
            s, ended = measure(arguments, path, cache, speed if times else None)
            better = min(s["none"], s["always"])
            print(
                f"| {name} | {s['none']:.2f} | {s['always']:.2f} | {s['policy']:.2f} | "
                f"{s['policy, first job']:.2f} | {s['policy'] / better:.2f} | "
                f"{'no cache' if ended is None else 'cache'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
