"""Cachew from Python: a pipeline of C operators, a Pillow function of each photograph, x + 1 of each number,
or the import of a module."""

import argparse
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import cachew

SIZE = 224


def photo(element, rng):
    """What peer_torch.py does to a photograph."""
    import numpy as np
    from common import crop_box
    from PIL import Image

    image = Image.open(io.BytesIO(element["image"])).convert("RGB")
    x, y, w, h = crop_box(*image.size, rng.uniform)
    image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return {"image": np.asarray(image), "label": element["label"]}


def plus_one(element):
    return {"value": element["value"] + 1}


def dataset(args):
    if args.what == "pipeline":
        return cachew.Dataset.load(args.source)
    if args.what == "numbers":
        return cachew.Dataset.range(int(args.source)).map(plus_one).batch(1024)
    records = cachew.Dataset.tfrecord(args.source).parse_example({"image": "bytes", "label": "int64"})
    return (
        records.shuffle()
        .map(photo, outputs={"image": ("uint8", (SIZE, SIZE, 3)), "label": "int64"})
        .batch(args.batch)
    )


def import_seconds(module, times=5):
    """Returns the least time that an import takes in a fresh process, which has imported NumPy."""
    script = f"import numpy, time; start = time.monotonic(); import {module}; print(time.monotonic() - start)"
    words = [sys.executable, "-c", script]
    ran = [subprocess.run(words, check=True, capture_output=True) for _ in range(times)]
    return min(float(one.stdout) for one in ran)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["pipeline", "photographs", "numbers", "import"])
    what = "a pipeline file, a glob of TFRecord shards, how many numbers, or a module"
    parser.add_argument("source", help=what)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--batches", type=int, default=0, help="stop after this many batches (0: all)")
    args = parser.parse_args()
    if args.what == "import":
        print(json.dumps({"seconds": import_seconds(args.source)}))
        return
    if args.what == "pipeline" and not args.batches:  # as `cachew run` counts: from the first request
        batches = dataset(args).iterator(epochs=args.epochs, threads=args.threads)
        start = time.monotonic()
        elements = sum(len(batch["label"]) for batch in batches)
        seconds = time.monotonic() - start
        print(json.dumps({"elements": elements, "seconds": seconds, "elements_per_s": elements / seconds}))
        return
    if args.batches:
        next(iter(dataset(args).iterator(threads=args.threads)))
        start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf(
            "SC_CLK_TCK"
        )
        print(json.dumps({"first_batch_s": time.clock_gettime(time.CLOCK_BOOTTIME) - start}))
        return
    from common import Meter, drain  # counts as it does for the peers: from the first batch to the last

    drain(
        Meter("Cachew, Python"),
        dataset(args).iterator(epochs=args.epochs, threads=args.threads),
        0,
        lambda b: len(next(iter(b.values()))),
    )


if __name__ == "__main__":
    main()
