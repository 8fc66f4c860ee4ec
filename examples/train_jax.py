"""Trains a small network on the photographs of `./demo`: from which photograph was this picture cut?
train_torch.py does the same with PyTorch.

    python examples/train_jax.py --photos build/photos
    python examples/train_jax.py --photos build/photos --stop-after 200    # ends in the middle, as an
    interrupted job does python examples/train_jax.py --photos build/photos --resume            # goes on
    from the last checkpoint

A checkpoint holds the network, the optimizer's moments and the loader's position, so that the resumed
training sees the batches that it would have seen, and ends with the same weights, bit for bit.
"""

# JAX does not say all of its types:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import cachew
from cachew.jax import loader

SIZE = 48
RATE = 3e-3
Weights: TypeAlias = dict[str, jax.Array]


class Training(NamedTuple):
    """What a step changes: the weights, and Adam's moments of their gradients."""

    weights: Weights
    mean: Weights
    square: Weights
    step: jax.Array


def pictures(photos: Path, shards: str) -> cachew.Dataset:
    """The pictures of some shards, decoded on demand, with the number of the photograph as label."""
    return (
        cachew.Dataset.tfrecord(photos / f"photos-{shards}.tfrecord")
        .parse_example({"image": "bytes", "label": "int64"})
        .decode_image("image")
    )


def training(photos: Path, batch_size: int) -> cachew.Dataset:
    """All shards but the last, another crop of each picture in each epoch."""
    return (
        pictures(photos, "0000[0-6]-*")
        .random_resized_crop("image", size=(SIZE, SIZE), scale=(0.3, 1.0))
        .random_flip("image")
        .shuffle()
        .batch(batch_size, drop_remainder=True)
    )


def held_out(photos: Path) -> cachew.Dataset:
    """The last shard, the same in each epoch."""
    return pictures(photos, "00007-*").resize("image", size=(SIZE, SIZE)).batch(64)


def count_labels(photos: Path) -> int:
    labels = (
        cachew.Dataset.tfrecord(photos / "photos-*.tfrecord").parse_example({"label": "int64"}).batch(4096)
    )
    return 1 + max(int(batch["label"].max()) for batch in labels)


def begin(seed: int, n_labels: int) -> Training:
    """Four convolutions, each halving the picture, and a layer over the mean of what they find."""
    weights: Weights = {}
    key = jax.random.key(seed)
    for i, (before, after) in enumerate(((3, 16), (16, 32), (32, 64), (64, 128))):
        key, mine = jax.random.split(key)
        weights[f"filters {i}"] = jax.random.normal(mine, (3, 3, before, after)) * (2 / (9 * before)) ** 0.5
        weights[f"offsets {i}"] = jnp.zeros(after)
    weights["classify"] = jax.random.normal(key, (128, n_labels)) * 0.1
    zeros = {name: jnp.zeros_like(value) for name, value in weights.items()}
    return Training(weights, zeros, zeros, jnp.zeros((), jnp.int32))


def network(weights: Weights, image: jax.Array) -> jax.Array:
    x = image.astype(jnp.float32) / 128 - 1
    for i in range(4):
        x = jax.lax.conv_general_dilated(
            x, weights[f"filters {i}"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + weights[f"offsets {i}"])
    return x.mean(axis=(1, 2)) @ weights["classify"]


def mean_loss(weights: Weights, image: jax.Array, label: jax.Array) -> jax.Array:
    logits = jax.nn.log_softmax(network(weights, image))
    return -jnp.take_along_axis(logits, label[:, None], axis=1).mean()


@jax.jit
def train_step(t: Training, image: jax.Array, label: jax.Array) -> tuple[Training, jax.Array]:
    loss, gradient = jax.value_and_grad(mean_loss)(t.weights, image, label)
    step = t.step + 1
    rate = RATE * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    mean = {name: 0.9 * t.mean[name] + 0.1 * g for name, g in gradient.items()}
    square = {name: 0.999 * t.square[name] + 0.001 * g * g for name, g in gradient.items()}
    weights = {name: w - rate * mean[name] / (jnp.sqrt(square[name]) + 1e-8) for name, w in t.weights.items()}
    return Training(weights, mean, square, step), loss


def accuracy(weights: Weights, ds: cachew.Dataset) -> float:
    right = total = 0
    for batch in ds:  # batches of NumPy arrays: jit takes them too, also the last one, which is shorter
        right += int((np.asarray(classify(weights, batch["image"])) == batch["label"]).sum())
        total += len(batch["label"])
    return right / total


@jax.jit
def classify(weights: Weights, image: jax.Array) -> jax.Array:
    return network(weights, image).argmax(axis=1)


def save(path: Path, t: Training, position: dict[str, Any]) -> None:
    parts = {"weights": t.weights, "mean": t.mean, "square": t.square}
    arrays: dict[str, Any] = {
        f"{part}/{name}": np.asarray(value)
        for part, values in parts.items()
        for name, value in values.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        np.savez(file, step=np.asarray(t.step), loader=np.array(json.dumps(position)), **arrays)
    os.replace(partial, path)  # a job killed here still has a whole one


def load(path: Path) -> tuple[Training, dict[str, Any]]:
    with np.load(path) as saved:

        def part(of: str) -> Weights:
            return {
                name.partition("/")[2]: jnp.asarray(saved[name])
                for name in saved
                if name.startswith(f"{of}/")
            }

        position: dict[str, Any] = json.loads(str(saved["loader"]))
        return Training(part("weights"), part("mean"), part("square"), jnp.asarray(saved["step"])), position


def fingerprint(weights: Weights) -> str:
    """A hash of the weights, to compare two trainings."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(np.asarray(weights[name]).tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--photos",
        type=Path,
        default=Path("build/photos"),
        help="directory of photographs, default %(default)s",
    )
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, help="of the input pipeline; the result does not depend on it")
    parser.add_argument("--checkpoint", type=Path, default=Path("build/train_jax.npz"))
    parser.add_argument("--checkpoint-every", type=int, default=25, metavar="STEPS")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument(
        "--stop-after",
        type=int,
        metavar="STEPS",
        help="end after so many steps, in the middle of whatever it is",
    )
    args = parser.parse_args()

    t = begin(args.seed, count_labels(args.photos))
    train = loader(training(args.photos, args.batch_size), seed=args.seed, threads=args.threads)
    if args.resume:
        t, position = load(args.checkpoint)
        train.load_state_dict(position)
        print(f"resumed at step {t.step}")

    started, loss, step = time.monotonic(), jnp.zeros(()), int(t.step)
    while train.epoch < args.epochs - 1 or step % len(train):  # an epoch is begun, or under way
        for batch in train:
            t, loss = train_step(t, batch["image"], batch["label"])
            step += 1
            if step % args.checkpoint_every == 0:
                save(args.checkpoint, t, train.state_dict())
            if step == args.stop_after:
                print(f"stopped at step {step}")
                return
        print(f"epoch {train.epoch}: loss {float(loss):.3f}, {time.monotonic() - started:.1f} s")
    print(f"accuracy {accuracy(t.weights, held_out(args.photos)):.3f}")
    print(f"weights {fingerprint(t.weights)}")


if __name__ == "__main__":
    main()
