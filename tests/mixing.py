#!/usr/bin/env python3
"""Measures how well `shuffle` mixes, beside a perfect permutation, and prints the table of docs/shuffling.md.

Runs `cachew run --log` and looks at the record ids alone. The TFRecord files are sparse: records of zeros that take no room on
disk, of the size of photographs, so that chunks and windows are those of a real data set.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from make_data import masked

CHUNK_BYTES, CHUNK_RECORDS = 4 << 20, 1024
CLASSES = 1000


class Case:
    """A data set: the pipeline's source, its chunks' sizes in order, and where each file's records start."""

    def __init__(self, name, source, chunks, keys=None):
        self.name, self.source, self.keys = name, source, keys
        self.ends = np.cumsum(chunks)
        self.n = int(self.ends[-1])


def counted(n):
    sizes = [CHUNK_RECORDS] * (n // CHUNK_RECORDS) + ([n % CHUNK_RECORDS] if n % CHUNK_RECORDS else [])
    return Case(f"`range`, {n:,} records", {"op": "range", "stop": n}, sizes)


def write_sparse(path, records, size):
    header = struct.pack("<Q", size)
    header += struct.pack("<I", masked(header))
    tail = struct.pack("<I", 0)  # not checked: the pipeline says verify: false
    with open(path, "wb") as f:
        for _ in range(records):
            f.write(header)
            f.seek(size, 1)
            f.write(tail)


def run(cachew, directory, pipeline, seed):
    """[(file key, row)] in the order of delivery."""
    file, log = directory / "pipeline.json", directory / "log"
    file.write_text(json.dumps({"cachew": 1, "pipeline": pipeline}))
    log.unlink(missing_ok=True)
    subprocess.run([cachew, "run", file, "--seed", str(seed), "--log", log, "--index-dir", directory / "index", "--wait", "3600"],
                   check=True, stdout=subprocess.DEVNULL)
    with open(log) as lines:
        return [record.split(":") for line in lines for record in json.loads(line)["records"]]


def tfrecord(cachew, directory, n, size, files):
    per_file, keys = n // files, {}
    for k in range(files):
        name = f"part-{k:03d}.tfrecord"
        write_sparse(directory / name, per_file, size)
        first = run(cachew, directory, [{"op": "tfrecord", "files": name, "verify": False}, {"op": "take", "count": 1}], 0)
        keys[first[0][0]] = k * per_file
    each = min(CHUNK_BYTES // size, CHUNK_RECORDS)
    chunks = ([each] * (per_file // each) + ([per_file % each] if per_file % each else [])) * files
    source = {"op": "tfrecord", "files": "part-*.tfrecord", "verify": False}
    return Case(f"`tfrecord`, {n:,} records of {size // 1000} kB", source, chunks, keys)


def per_batch(values, batch):
    """Mean number of distinct values in a batch."""
    rows = np.sort(values[: len(values) // batch * batch].reshape(-1, batch), axis=1)
    return float((np.diff(rows, axis=1) != 0).sum(axis=1).mean() + 1)


def figures(order, case, batch):
    place = np.arange(case.n)
    chunk = np.searchsorted(case.ends, order, side="right")
    return [f"{np.abs(order - place).mean() / case.n:.3f}", f"{np.corrcoef(order, place)[0, 1]:+.4f}",
            f"{100 * (chunk[1:] == chunk[:-1]).mean():.2f} %", f"{per_batch(chunk, batch):.1f}",
            f"{per_batch(order * CLASSES // case.n, batch):.1f}"]


def measure(cachew, directory, case, shuffles, batch, seed):
    pipeline = [case.source, *[{"op": "shuffle"}] * shuffles, {"op": "batch", "size": batch}]
    ids = run(cachew, directory, pipeline, seed)
    first = case.keys or {}
    order = np.array([first.get(key, 0) + int(row) for key, row in ids])
    if not np.array_equal(np.sort(order), np.arange(case.n)):
        raise SystemExit(f"{case.name}: not every record came exactly once")
    return figures(order, case, batch)


def row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cachew", default="build/cachew")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    row("data set", "order", "mean displacement / N", "correlation", "neighbours of one chunk", "chunks per batch", f"classes per batch, of {CLASSES}")
    row(*["---"] * 7)
    with tempfile.TemporaryDirectory(prefix="cachew-mixing-") as name:
        directory = Path(name)
        cachew = str(Path(args.cachew).resolve())
        for case in (counted(60_000), counted(1_000_000), tfrecord(cachew, directory, 100_000, 110_000, 16)):
            row(case.name, "as stored", *figures(np.arange(case.n), case, args.batch))
            for shuffles, label in ((1, "`shuffle`"), (2, "`shuffle` twice")):
                row("", label, *measure(cachew, directory, case, shuffles, args.batch, args.seed))
            row("", "perfect permutation", *figures(np.random.default_rng(args.seed).permutation(case.n), case, args.batch))


if __name__ == "__main__":
    main()
