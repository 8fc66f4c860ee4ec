"""
Compares the batches of the fixed pipelines (tests/model/fixed.py) with those of the same pipelines in
tf.data: their number, and the records in each, in order.

Needs tensorflow-cpu, as bench/run.py installs it: build/bench-venv/bin/python bench/peer_batches.py. tf.data
has no records that fail and keep their place, so pipelines with such records are left out. The exit code is 1
if any batch differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import reduce
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import tensorflow as tf  # noqa: E402
from digest import batch_hash  # noqa: E402
from model.fixed import PIPELINES  # noqa: E402

REMOVES_FAILED = ("filter", "bucket_by_length")


def evaluate(text, element):
    return eval(text, {}, dict(element))


def add(dataset, op):
    """The dataset with one operator more."""
    name = op["op"]
    if name == "range":
        return tf.data.Dataset.range(op.get("start", 0), op["stop"], op.get("step", 1)).map(
            lambda value: {"value": value}
        )
    if name == "synthetic":
        return tf.data.Dataset.range(op["count"]).map(lambda _: {"data": tf.zeros(op["shape"])})
    if name == "concat":
        return reduce(lambda a, b: a.concatenate(b), [reduce(add, chain, None) for chain in op["inputs"]])
    if name == "filter":
        return dataset.filter(lambda element: evaluate(op["where"], element))
    if name == "assign":
        return dataset.map(
            lambda element: {**element, **{key: evaluate(text, element) for key, text in op["set"].items()}}
        )
    if name == "fail":

        def fails(element):
            with tf.control_dependencies([tf.debugging.Assert(not evaluate(op["where"], element), [0])]):
                return {key: tf.identity(value) for key, value in element.items()}

        return dataset.map(fails).ignore_errors()
    if name == "batch":
        return dataset.batch(op["size"], drop_remainder=op.get("drop_remainder", False))
    if name == "bucket_by_length":
        return dataset.bucket_by_sequence_length(
            lambda element: tf.cast(evaluate(op["length"], element), tf.int32), op["boundaries"], op["sizes"]
        )
    return getattr(dataset, name)(op["count"])  # take, skip, repeat


def has_peer(chain):
    """Whether each record that fails is removed by the next operator that can tell."""
    return all(op["op"] != "fail" or chain[at + 1]["op"] in REMOVES_FAILED for at, op in enumerate(chain))


def of_tfdata(chain):
    """(records, hash) of each batch."""
    batched = any(op["op"] in ("batch", "bucket_by_length") for op in chain)
    found = []
    for g, batch in enumerate(reduce(add, chain, None).as_numpy_iterator()):
        n = len(next(iter(batch.values()))) if batched else 1
        components = [(name, str(value.dtype), value.shape, value.tobytes()) for name, value in batch.items()]
        found.append((n, f"{batch_hash(0, g, n, components):032x}"))
    return found


def of_cachew(binary, pipeline):
    with tempfile.TemporaryDirectory() as directory:
        path, log = Path(directory, "pipeline.json"), Path(directory, "log")
        path.write_text(json.dumps(pipeline))
        subprocess.run([binary, "run", path, "--log", log], check=True, capture_output=True)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [(line["n"], line["hash"]) for line in lines]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cachew", type=Path, default=ROOT / "build" / "cachew")
    parser.add_argument("names", nargs="*", help="pipelines to compare (default: all)")
    args = parser.parse_args()
    n_batches = n_compared = n_wrong = 0
    for name in args.names or PIPELINES:
        chain = PIPELINES[name]["pipeline"]
        if not has_peer(chain):
            print(f"{name}: left out")
            continue
        theirs, ours = of_tfdata(chain), of_cachew(args.cachew, PIPELINES[name])
        n_compared += 1
        n_batches += len(theirs)
        if theirs != ours:
            n_wrong += 1
            at = next(
                (i for i, pair in enumerate(zip(theirs, ours)) if pair[0] != pair[1]),
                min(len(theirs), len(ours)),
            )
            same = sorted(n for n, _ in theirs) == sorted(n for n, _ in ours)
            print(
                f"{name}: batch {at} differs; tf.data has {len(theirs)} batches, Cachew {len(ours)}, "
                f"{'of the same' if same else 'of other'} sizes"
            )
    print(
        f"{n_compared - n_wrong} of {n_compared} pipelines agree with tf.data {tf.__version__} "
        f"({n_batches} batches)"
    )
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
