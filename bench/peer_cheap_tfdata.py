"""
tf.data on work that costs next to nothing per element: range, x = value * 3 + 1, keep even x, shuffle, batch
1024.

--form natural writes it as the guide does, element by element. --form vectorised writes it as an expert
would: whole chunks are made, computed, masked and permuted at once, in random order, and cut into batches
again.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf  # noqa: E402
from common import Meter  # noqa: E402

AUTOTUNE = tf.data.AUTOTUNE


def natural(stop, batch):
    dataset = tf.data.Dataset.range(stop)
    dataset = dataset.map(
        lambda v: {"value": v, "x": v * 3 + 1}, num_parallel_calls=AUTOTUNE, deterministic=False
    )
    dataset = dataset.filter(lambda e: e["x"] % 2 == 0)
    return dataset.shuffle(16 * batch).batch(batch)


def vectorised(stop, batch, chunk):
    def compute(i):
        value = tf.random.shuffle(tf.range(i * chunk, tf.minimum((i + 1) * chunk, stop)))
        x = value * 3 + 1
        keep = tf.where(x % 2 == 0)[:, 0]
        return {"value": tf.gather(value, keep), "x": tf.gather(x, keep)}

    chunks = -(-stop // chunk)
    dataset = tf.data.Dataset.range(chunks).shuffle(chunks)
    return dataset.map(compute, num_parallel_calls=AUTOTUNE, deterministic=False).rebatch(batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", choices=["natural", "vectorised"], default="natural")
    parser.add_argument("--stop", type=int, default=20_000_000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--chunk", type=int, default=16384)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = args.threads
    options.threading.max_intra_op_parallelism = 1
    if args.form == "natural":
        dataset = natural(args.stop, args.batch)
    else:
        dataset = vectorised(args.stop, args.batch, args.chunk)
    meter = Meter(f"tf.data {args.form}")
    for batch in dataset.prefetch(AUTOTUNE).with_options(options):
        meter.batch(int(batch["x"].shape[0]))
    # elements are those delivered; source_elements also those that the filter drops.
    meter.report(
        elements=meter.images,
        elements_per_s=round(meter.images / meter.seconds(), 1),
        source_elements_per_s=round(args.stop / meter.seconds(), 1),
    )


if __name__ == "__main__":
    main()
