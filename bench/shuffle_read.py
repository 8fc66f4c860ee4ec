#!/usr/bin/env python3
"""Rates of reading a shuffled data set, predicted before the first batch and measured.

    bench/shuffle_read.py [--cachew build-sample/cachew] [--records N] [--seconds S] [--only STORAGE] [--by]

Needs a test build (-Dcrash_points=true): storage is as slow as a file says (CACHEW_FILES,
src/storage/throttle.h). Storage is the page cache; a cold disk with 150 reads/s, 5 ms a read and 100 MB/s;
and storage with 5 ms a read, where reads overlap. Records have 200 bytes, and photographs' 100 kB. Three
rates are printed for each: `cachew explain` predicts by record and by chunk; runs measure both. By record
nothing stays in memory and nothing is read in (CACHEW_MUTATE=no_page_cache), as where the files are much
larger than memory; `read in` is the rate where they fit. A prediction is no more than the rate from the page
cache: there, reading is not the limit. Ratios are measured/predicted. Modelled storage costs the CPU some 5
us for each record, so that rates beyond 150,000 records/s are not reached.

With --by the two ways are asked for by the attribute `by` of `shuffle`. Without it they follow from the
number of records: fewer than 65,536 are shuffled by record, more by chunk, so that photographs are measured
by record alone.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

BATCH = 64
MOST_BYTES = 250_000_000  # of a data set
STORAGE = {  # bytes/s read, written, reads/s, seconds a read, whether the page cache keeps what was read
    "cold disk": "100e6 0 150 0.005 1",
    "slow disk": "4e6 0 150 0.005 1",
    "far away": "100e6 0 0 0.005 1",
}
SIZES = {"200 B": 200, "100 kB": 100_000}


def write_records(path, n, size):
    line = b"x" * (size - 12)
    with path.open("wb") as f:
        for i in range(n):
            f.write(line + b"%011d\n" % i)
    return path


def pipeline(path, lines, by):
    shuffle = {"op": "shuffle", **({"by": by} if by else {})}
    chain = [{"op": "text", "files": str(lines)}, shuffle, {"op": "batch", "size": BATCH}]
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return path


def told(arguments, speed, mutation, *words):
    env = {
        **os.environ,
        "CACHEW_MUTATE": mutation,
        "CACHEW_CLOCK": "",
        "CACHEW_INDEX_DIR": str(arguments.directory),
    }
    env.pop("CACHEW_FILES", None)
    if speed:
        arguments.speed.write_text(speed)
        env["CACHEW_FILES"] = str(arguments.speed)
    words = [arguments.cachew, *map(str, words), "--json"]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=env)
    return json.loads(done.stdout.splitlines()[-1])


def predict(arguments, speed, path):
    return told(arguments, speed, "no_page_cache", "explain", path, "--run", 0).get("reading")


def measure(arguments, speed, path, rate, mutation):
    """The rate of a run of about so many seconds, which `rate` predicts; 0: of one epoch."""
    batches = max(int(rate * arguments.seconds / BATCH), 4) if rate else 1000
    ran = told(arguments, speed, mutation, "run", path, "--batches", batches, "--epochs", 1)
    return ran["elements_per_s"]


def row(name, predicted, measured):
    if predicted is None:
        return f"| {name} | | {measured:.0f} | |"
    return f"| {name} | {predicted:.0f} | {measured:.0f} | {measured / predicted:.2f} |"


def measure_page_cache(arguments, size_name, by_record, by_chunk):
    """The rates by record and by chunk."""
    rates = []
    for way, path in (("record", by_record), ("chunk", by_chunk)):
        rates.append(path and max(measure(arguments, None, path, 0, "none") for _ in range(3)))
        if path:
            print(row(f"page cache, {size_name}, by {way}", None, rates[-1]), flush=True)
    return rates


def measure_storage(arguments, name, size_name, by_record, by_chunk, most):
    speed = STORAGE[name]
    reading = predict(arguments, speed, by_record)
    title = f"{name}, {size_name}"
    if not reading:
        print(f"| {title} | storage did not answer in time | | |", flush=True)
        return
    rate = min(reading["records_per_s"], most[0])
    keeps_nothing = f"{speed[:-1]}0"
    print(
        row(f"{title}, by record", rate, measure(arguments, keeps_nothing, by_record, rate, "no_page_cache")),
        flush=True,
    )
    print(
        row(f"{title}, by record, read in", None, measure(arguments, speed, by_record, 0, "none")), flush=True
    )
    if by_chunk:
        rate = min(reading["chunked_records_per_s"], most[1])
        print(row(f"{title}, by chunk", rate, measure(arguments, speed, by_chunk, rate, "none")), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cachew", default="build-sample/cachew")
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="records of the larger data set (default 1000000)"
    )
    parser.add_argument("--seconds", type=float, default=10, help="duration of each measurement (default 10)")
    parser.add_argument(
        "--by", action="store_true", help="choose record or chunk by the attribute `by` of shuffle"
    )
    parser.add_argument("--only", choices=STORAGE)
    arguments = parser.parse_args()
    doctor = subprocess.run(
        [arguments.cachew, "doctor", "--crash-points", "--json"], check=True, capture_output=True, text=True
    )
    if not json.loads(doctor.stdout.splitlines()[-1])["crash_points"]:
        parser.error(f"{arguments.cachew} is no test build: expected one with -Dcrash_points=true")
    print(
        f"load {os.getloadavg()[0]:.1f}\n\n| storage, records, shuffle | predicted/s | measured/s | ratio |"
    )
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        arguments.directory = Path(directory)
        arguments.speed = arguments.directory / "speed"
        for size_name, size in SIZES.items():
            n_small = min(60_000, MOST_BYTES // size)
            small = write_records(arguments.directory / f"small-{size}.txt", n_small, size)
            by_record = pipeline(
                arguments.directory / f"by-record-{size}.json", small, arguments.by and "record"
            )
            by_chunk = None
            if arguments.by or size * arguments.records <= MOST_BYTES:
                fits = size * arguments.records <= MOST_BYTES
                large = (
                    write_records(arguments.directory / f"large-{size}.txt", arguments.records, size)
                    if fits
                    else small
                )
                by_chunk = pipeline(
                    arguments.directory / f"by-chunk-{size}.json", large, arguments.by and "chunk"
                )
            most = measure_page_cache(arguments, size_name, by_record, by_chunk)
            for name in STORAGE if not arguments.only else [arguments.only]:
                measure_storage(arguments, name, size_name, by_record, by_chunk, most)


if __name__ == "__main__":
    main()
