"""The physical limit of a Python function: as many processes that call it on photographs in memory, with
nothing before or after it: no batches, no order, no transfer. The function is that of python_cachew.py."""

import json
import os
import time

import numpy as np
from common import Records, arguments
from python_cachew import photo


def work(photos, epochs, first, step):
    """Calls it on every step-th photograph; returns calls a second."""
    start, calls = time.monotonic(), 0
    for epoch in range(epochs):
        for i in range(first, len(photos), step):
            data, label = photos[i]
            photo({"image": data, "label": label}, np.random.Generator(np.random.Philox(key=[epoch, i])))
            calls += 1
    return calls / (time.monotonic() - start)


def main():
    args = arguments(__doc__)
    records = Records(args.files)
    photos = [records[i] for i in range(len(records))]
    pipes = []
    for k in range(args.threads):
        ours, theirs = os.pipe()
        if os.fork() == 0:
            os.write(theirs, str(work(photos, args.epochs, k, args.threads)).encode())
            os._exit(0)
        os.close(theirs)
        pipes.append(ours)
    rates = [os.read(pipe, 64) for pipe in pipes]  # nothing: it raised, and printed that
    for _ in pipes:
        os.wait()
    if not all(rates):
        raise SystemExit("a process ended early")
    print(
        json.dumps(
            {
                "peer": "raw_function",
                "images": len(photos) * args.epochs,
                "images_per_s": round(sum(map(float, rates)), 1),
            }
        )
    )


if __name__ == "__main__":
    main()
