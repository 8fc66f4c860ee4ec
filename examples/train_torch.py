"""Trains a small network on the photographs of `./demo`: from which photograph was this picture cut?
train_jax.py does the same with JAX.

    python examples/train_torch.py --photos build/photos
    python examples/train_torch.py --photos build/photos --stop-after 200    # ends in the middle, as an
    interrupted job does python examples/train_torch.py --photos build/photos --resume            # goes on
    from the last checkpoint

A checkpoint holds the network, the optimizer and the loader's position, so that the resumed training sees
the batches that it would have seen, and ends with the same weights, bit for bit.
"""

# pyright: reportUnknownMemberType=false
# PyTorch does not say all of its types.

from __future__ import annotations

import argparse
import hashlib
import os
import time
from pathlib import Path

import torch
from torch import nn

import cachew
from cachew.torch import loader

SIZE = 48


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
        .transpose_image("image")
        .shuffle()
        .batch(batch_size, drop_remainder=True)
    )


def held_out(photos: Path) -> cachew.Dataset:
    """The last shard, the same in each epoch."""
    return pictures(photos, "00007-*").resize("image", size=(SIZE, SIZE)).transpose_image("image").batch(256)


def count_labels(photos: Path) -> int:
    labels = (
        cachew.Dataset.tfrecord(photos / "photos-*.tfrecord").parse_example({"label": "int64"}).batch(4096)
    )
    return 1 + max(int(batch["label"].max()) for batch in labels)


class Network(nn.Module):
    """Four convolutions, each halving the picture, and the mean of what they find."""

    def __init__(self, n_labels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((3, 16), (16, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.classify = nn.Linear(128, n_labels)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.features(image.float() / 128 - 1)
        logits: torch.Tensor = self.classify(found.mean(dim=(2, 3)))
        return logits


def accuracy(network: Network, ds: cachew.Dataset) -> float:
    network.eval()
    right = total = 0
    with torch.no_grad():
        for batch in loader(ds):
            right += int((network(batch["image"]).argmax(dim=1) == batch["label"]).sum())
            total += len(batch["label"])
    network.train()
    return right / total


def fingerprint(network: Network) -> str:
    """A hash of the weights, to compare two trainings."""
    digest = hashlib.sha256()
    for value in network.state_dict().values():
        digest.update(value.numpy().tobytes())
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
    parser.add_argument("--checkpoint", type=Path, default=Path("build/train_torch.pt"))
    parser.add_argument("--checkpoint-every", type=int, default=25, metavar="STEPS")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument(
        "--stop-after",
        type=int,
        metavar="STEPS",
        help="end after so many steps, in the middle of whatever it is",
    )
    args = parser.parse_args()

    torch.set_num_threads(1)  # so small a network gains nothing from more; the other cores are the pipeline's
    torch.manual_seed(args.seed)
    network = Network(count_labels(args.photos))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    train = loader(training(args.photos, args.batch_size), seed=args.seed, threads=args.threads)
    step = 0
    if args.resume:
        saved = torch.load(args.checkpoint, weights_only=True)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        train.load_state_dict(saved["loader"])
        step = saved["step"]
        print(f"resumed at step {step}")

    started, loss = time.monotonic(), torch.zeros(())
    while train.epoch < args.epochs - 1 or step % len(train):  # an epoch is begun, or under way
        for batch in train:
            loss = nn.functional.cross_entropy(network(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            step += 1
            if step % args.checkpoint_every == 0:
                args.checkpoint.parent.mkdir(parents=True, exist_ok=True)
                partial = args.checkpoint.with_suffix(".partial")
                parts = {
                    "network": network.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": train.state_dict(),
                    "step": step,
                }
                torch.save(parts, partial)
                os.replace(partial, args.checkpoint)  # a job killed here still has a whole one
            if step == args.stop_after:
                print(f"stopped at step {step}")
                return
        print(f"epoch {train.epoch}: loss {float(loss.detach()):.3f}, {time.monotonic() - started:.1f} s")
    print(f"accuracy {accuracy(network, held_out(args.photos)):.3f}")
    print(f"weights {fingerprint(network)}")


if __name__ == "__main__":
    main()
