#!/usr/bin/env python3
"""Kept elements: how fast they are read, and what keeping them costs the first epoch. Prints a line of JSON.

    bench/cache.py read    reading them, beside plain reads of the same bytes from the page cache (raw_read.c)
    bench/cache.py write   an epoch that keeps all it computes, beside one that computes the same and keeps nothing

Elements are photographs, decoded and resized to 224x224x3 uint8 with their label; the marker stands behind that. The two kinds of runs alternate, and the best of each counts, for
a machine is only ever slowed down. The cache lies below --dir."""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

BATCH = 64
ROW = 224 * 224 * 3 + 8
EPOCHS = 8  # of reading: all of them are the same, and a second is enough to measure


def pipeline(directory, photos):
    chain = [{"op": "tfrecord", "files": f"{photos}/photos-*.tfrecord"}, {"op": "parse_example", "features": {"image": "bytes", "label": "int64"}},
             {"op": "decode_image", "component": "image"}, {"op": "resize", "component": "image", "size": [224, 224]}, {"op": "autocache"}, {"op": "shuffle"},
             {"op": "batch", "size": BATCH}]
    path = directory / "photos.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return path


def said(*words):
    done = subprocess.run([*map(str, words)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def run(arguments, path, *words):
    return said(arguments.cachew, "run", path, "--json", "--threads", arguments.threads, *words)


def read(arguments, directory, path):
    cache = directory / "cache"
    said(arguments.cachew, "cache", "warm", path, "--cache-dir", cache, "--json")
    files = sorted(cache.glob("*/*.cws"))
    cached, raw = [], []
    for _ in range(arguments.rounds):
        raw.append(said(arguments.build / "bench" / "raw_read", arguments.threads, EPOCHS, ROW, BATCH, *files)["bytes_per_s"])
        ran = run(arguments, path, "--epochs", EPOCHS, "--cache-dir", cache, "--cache", 0)
        assert ran["cache"]["misses"] == 0
        cached.append(ran["bytes"] / ran["seconds"])
    return {"ratio": max(cached) / max(raw), "bytes_per_s": max(cached), "raw_bytes_per_s": max(raw)}


def write(arguments, directory, path):
    plain, first, kept = [], [], []
    for _ in range(arguments.rounds):
        plain.append(run(arguments, path)["seconds"])
        ran = run(arguments, path, "--cache-dir", directory / "first", "--cache", 0)
        first.append(ran["seconds"])
        kept.append(ran["cache"]["kept"] / ran["cache"]["misses"])
        shutil.rmtree(directory / "first")
    return {"percent": 100 * (min(first) / min(plain) - 1), "seconds": min(first), "plain_seconds": min(plain), "kept": min(kept)}


MEASUREMENTS = {"read": read, "write": write}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MEASUREMENTS)
    parser.add_argument("--cachew", type=Path, default=Path("build/cachew"))
    parser.add_argument("--photos", type=Path, default=Path("build/photos"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))
    arguments = parser.parse_args()
    arguments.build = arguments.cachew.parent
    with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
        found = MEASUREMENTS[arguments.what](arguments, Path(directory), pipeline(Path(directory), arguments.photos.resolve()))
    print(json.dumps({**found, "threads": arguments.threads, "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
