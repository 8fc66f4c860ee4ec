#!/usr/bin/env python3
"""How fast kept elements are read, beside plain reads of the same bytes from the page cache; and what keeping them costs the first epoch.

    bench/cache_read.py [--cachew build/cachew] [--photos build/photos] [--threads N] [--rounds N]

Elements are photographs, decoded and resized to 224x224x3 uint8 with their label. Raw reads are preads of the entries' size from the segments, in the same
number of threads, round a buffer as large as a batch. Runs alternate, and the best of each kind counts, for a machine is only ever slowed down.
"""

import argparse
import json
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

BATCH = 64
ROW = 224 * 224 * 3 + 8


def pipeline(directory, photos, markers):
    chain = [{"op": "tfrecord", "files": f"{photos}/photos-*.tfrecord"}, {"op": "parse_example", "features": {"image": "bytes", "label": "int64"}},
             {"op": "decode_image", "component": "image"}, {"op": "resize", "component": "image", "size": [224, 224]}, *markers, {"op": "shuffle"},
             {"op": "batch", "size": BATCH}]
    path = directory / f"p{len(markers)}.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return path


def run(cachew, path, threads, *words):
    done = subprocess.run([cachew, "run", path, "--json", "--threads", str(threads), *map(str, words)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def raw_reads(files, threads):
    """Bytes per second of reading all files in pieces of an entry, each thread its share."""
    total = sum(f.stat().st_size for f in files)

    def read(mine):
        slab = memoryview(bytearray(BATCH * ROW))
        slot = 0
        for path in mine:
            fd = os.open(path, os.O_RDONLY)
            size, at = os.fstat(fd).st_size, 0
            while at < size:
                at += os.preadv(fd, [slab[slot * ROW : (slot + 1) * ROW]], at)
                slot = (slot + 1) % BATCH
            os.close(fd)

    workers = [threading.Thread(target=read, args=(files[k::threads],)) for k in range(threads)]
    begin = time.perf_counter()
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return total / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cachew", default="build/cachew")
    parser.add_argument("--photos", type=Path, default=Path("build/photos"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="measure the first epoch too: with and without a cache")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as temporary:
        directory = Path(temporary)
        path = pipeline(directory, arguments.photos.resolve(), [{"op": "autocache"}])
        cache = directory / "cache"
        subprocess.run([arguments.cachew, "cache", "warm", path, "--cache-dir", cache], check=True, stdout=subprocess.DEVNULL)
        files = sorted(cache.glob("*/*.cws"))
        cached, raw = [], []
        for _ in range(arguments.rounds):
            raw.append(raw_reads(files, arguments.threads))
            ran = run(arguments.cachew, path, arguments.threads, "--epochs", 16, "--cache-dir", cache, "--cache", 0)
            assert ran["cache"]["misses"] == 0
            cached.append(ran["bytes"] / ran["seconds"])
        print(f"read: {max(cached) / 1e9:.2f} GB/s from the cache, {max(raw) / 1e9:.2f} GB/s raw: {max(cached) / max(raw):.2f}")
        if arguments.write:
            plain, first = [], []
            for k in range(arguments.rounds):
                plain.append(run(arguments.cachew, path, arguments.threads)["seconds"])
                first.append(run(arguments.cachew, path, arguments.threads, "--cache-dir", directory / f"first{k}", "--cache", 0)["seconds"])
            print(f"first epoch: {min(plain):.2f} s without a cache, {min(first):.2f} s keeping everything: {100 * (min(first) / min(plain) - 1):+.1f} %")


if __name__ == "__main__":
    main()
