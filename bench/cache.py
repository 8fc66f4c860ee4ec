#!/usr/bin/env python3
"""
Measures cache entries: how fast they are read, and what keeping them costs the first epoch. Prints a line of
JSON.

    bench/cache.py read

Reads entries, beside plain reads of the same bytes from the page cache (raw_read.c).

    bench/cache.py write

Runs an epoch that keeps everything it computes, beside one that computes the same and keeps nothing.

Elements are photographs, decoded and resized to 224x224x3 uint8, with their label; the cache point stands
behind that. Each run stands between two runs of the other kind and is compared with their mean; the median
over the rounds counts. The cache lies below --dir.

Plain reads fill memory for as many batches as a run has under way, one after the other and again from the
start. They read in the order of a job: of one that shuffles (ratio), and of one that does not (ratio_stored).
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

BATCH = 64
ROW = 224 * 224 * 3 + 8
IN_FLIGHT = 5  # batches: being filled, complete, and held by the consumer
# of reading: some seconds, so that what the first one takes besides (pages of batches that are touched for
# the first time) does not count
EPOCHS = 96


def pipeline(directory, photos, shuffled=True):
    chain = [
        {"op": "tfrecord", "files": f"{photos}/photos-*.tfrecord"},
        {"op": "parse_example", "features": {"image": "bytes", "label": "int64"}},
        {"op": "decode_image", "component": "image"},
        {"op": "resize", "component": "image", "size": [224, 224]},
        {"op": "autocache"},
        *[{"op": "shuffle"}] * shuffled,
        {"op": "batch", "size": BATCH},
    ]
    path = directory / ("shuffled.json" if shuffled else "stored.json")
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return path


def said(*words):
    done = subprocess.run([*map(str, words)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def run(arguments, path, *words):
    return said(arguments.cachew, "run", path, "--json", "--threads", arguments.threads, *words)


def between(rounds, other, one):
    """Medians of what `one` gives by the mean of `other` before and after it, of `one`, and of `other`."""
    others, ones = [other()], []
    for _ in range(rounds):
        ones.append(one())
        others.append(other())
    ratios = [x / statistics.mean(o) for x, o in zip(ones, zip(others, others[1:]))]
    return statistics.median(ratios), statistics.median(ones), statistics.median(others)


def read(arguments, directory, photos):
    paths = {"shuffled": pipeline(directory, photos), "stored": pipeline(directory, photos, shuffled=False)}
    # each as its own job leaves it: elements lie in the order in which they were computed
    for order, path in paths.items():
        said(arguments.cachew, "cache", "warm", path, "--cache-dir", directory / order, "--json")

    def raw(order):
        ring = max(BATCH * IN_FLIGHT // arguments.threads, 1)
        files = sorted((directory / order).glob("*/*.cws"))
        return said(
            arguments.build / "bench" / "raw_read", arguments.threads, EPOCHS, ROW, ring, order, *files
        )["bytes_per_s"]

    def cached(order):
        ran = run(arguments, paths[order], "--epochs", EPOCHS, "--cache-dir", directory / order, "--cache", 0)
        assert ran["cache"]["misses"] == 0
        return ran["bytes"] / ran["seconds"]

    found = {}
    for order, suffix in (("shuffled", ""), ("stored", "_stored")):
        names = (f"{name}{suffix}" for name in ("ratio", "bytes_per_s", "raw_bytes_per_s"))
        found |= zip(
            names,
            between(arguments.rounds, lambda order=order: raw(order), lambda order=order: cached(order)),
        )
    return found


def write(arguments, directory, photos):
    path = pipeline(directory, photos)
    kept = []

    def first():
        ran = run(arguments, path, "--cache-dir", directory / "first", "--cache", 0)
        shutil.rmtree(directory / "first")
        kept.append(ran["cache"]["kept"] / ran["cache"]["misses"])
        return ran["seconds"]

    ratio, seconds, plain = between(arguments.rounds, lambda: run(arguments, path)["seconds"], first)
    return {"percent": 100 * (ratio - 1), "seconds": seconds, "plain_seconds": plain, "kept": min(kept)}


MEASUREMENTS = {"read": read, "write": write}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=MEASUREMENTS)
    parser.add_argument("--cachew", type=Path, default=Path("build/cachew"))
    parser.add_argument("--photos", type=Path, default=Path("build/photos"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))
    arguments = parser.parse_args()
    arguments.build = arguments.cachew.parent
    with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
        found = MEASUREMENTS[arguments.what](arguments, Path(directory), arguments.photos.resolve())
    print(json.dumps({**found, "threads": arguments.threads, "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
