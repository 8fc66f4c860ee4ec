#!/usr/bin/env python3
"""Rectangles and discs, drawn into images, after random chains of operators: are their boxes, keypoints and
masks where the shapes are in the pixels? Run as a script it does so for --n images.
"""

from __future__ import annotations

import argparse
import random
import sys

import cachew
import numpy as np

IMAGES = 10  # of a chain
STRAIGHT = ("resize", "random_resized_crop", "random_crop", "center_crop", "random_flip", "pad_image",
            "random_zoom_out")  # fmt: skip
WARPS = ("rotate", "random_rotation", "affine", "random_affine", "random_perspective")


def chain(rng: random.Random) -> list[tuple[str, dict]]:
    size = [rng.randint(40, 90), rng.randint(40, 90)]
    attributes = {
        "resize": {"size": size, "interpolation": "nearest"},
        "random_resized_crop": {"size": size, "scale": [0.3, 1], "interpolation": "nearest"},
        "random_crop": {"size": [rng.randint(20, 40), rng.randint(20, 40)]},
        "center_crop": {"size": [rng.randint(20, 40), rng.randint(20, 40)]},
        "random_flip": {"vertical": 0.5},
        "pad_image": {"padding": [rng.randint(0, 9) for _ in range(4)]},
        "random_zoom_out": {"side_range": [1, 1.6]},
        "rotate": {"angle": rng.uniform(-180, 180), "expand": rng.random() < 0.5},
        "random_rotation": {"degrees": 90},
        "affine": {
            "angle": rng.uniform(-90, 90),
            "scale": rng.uniform(0.7, 1.6),
            "shear": [10, rng.uniform(-9, 9)],
        },
        "random_affine": {"degrees": 40, "translate": [0.2, 0.2], "scale": [0.8, 1.4], "shear": 15},
        "random_perspective": {"distortion_scale": 0.5, "p": 1},
    }
    names = [rng.choice(STRAIGHT) for _ in range(rng.randint(0, 2))] + [rng.choice(STRAIGHT + WARPS)]
    kept = [n for i, n in enumerate(names) if n != "random_crop" and n != "center_crop" or i == 0]
    nearest = {"interpolation": "nearest"}
    return [(n, attributes[n] | (nearest if n in WARPS else {})) for n in kept]


def drawn(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Images with a rectangle (1) and a disc (2), which may cover it; a mask for each."""
    y, x = np.mgrid[0:60, 0:70] + 0.5
    masks = np.zeros((IMAGES, 2, 60, 70), np.uint8)
    boxes = np.zeros((IMAGES, 2, 4), np.float32)
    points = np.zeros((IMAGES, 1, 2), np.float32)
    for i in range(IMAGES):
        x0, y0 = rng.integers(0, 40, 2)
        w, h = rng.integers(5, 20, 2)
        radius, cx, cy = rng.uniform(4, 9), rng.uniform(10, 60), rng.uniform(10, 50)
        masks[i, 0, y0 : y0 + h, x0 : x0 + w] = 1
        masks[i, 1] = (x - cx) ** 2 + (y - cy) ** 2 <= radius**2
        boxes[i] = [x0, y0, x0 + w, y0 + h], [cx - radius, cy - radius, cx + radius, cy + radius]
        points[i] = cx, cy
    images = np.repeat(np.where(masks[:, 1], 2, masks[:, 0])[..., None], 3, axis=3).astype(np.uint8)
    return {"image": images, "boxes": boxes, "masks": masks, "points": points}


def extent(mask: np.ndarray) -> list[int] | None:
    """x0, y0, x1, y1 of the pixels that are set."""
    rows, columns = np.nonzero(mask.any(1))[0], np.nonzero(mask.any(0))[0]
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1] if len(rows) else None


def inside(found: list[int], height: int, width: int) -> bool:
    return min(found[:2]) > 0 and found[2] < width and found[3] < height


def check(steps: list[tuple[str, dict]], element: dict[str, np.ndarray]) -> int:
    """Returns the number of shapes that were found."""
    image, masks, boxes = element["image"], element["masks"], element["boxes"]
    height, width = image.shape[:2]
    assert masks.shape == (2, height, width)
    assert (np.where(masks[1], 2, masks[0]) == image[:, :, 0]).all(), steps
    # the sides of a pixel, enlarged by all operators
    grown = 2.5 if any(n in ("resize", "random_resized_crop") for n, _ in steps) else 1
    slack = 1.05 * grown * (1.6 if any(n in WARPS for n, _ in steps) else 1)
    straight = all(n in STRAIGHT for n, _ in steps)
    n_found = 0
    for k, (mask, box) in enumerate(zip(masks, boxes)):
        found = extent(mask)
        assert (box >= 0).all() and (box[[0, 2]] <= width).all() and (box[[1, 3]] <= height).all()
        if found is None:
            continue
        n_found += 1
        assert (np.array(found[:2]) >= box[:2] - slack).all(), (steps, found, box)
        assert (np.array(found[2:]) <= box[2:] + slack).all(), (steps, found, box)
        # a disc that was cut, or turned, is smaller than its box; so are a few pixels of a thin rest
        thin = min(found[2] - found[0], found[3] - found[1]) < 4
        whole = inside(found, height, width) and (k == 0 or straight and len(steps) == 1) and not thin
        if whole or straight and k == 0:
            assert np.abs(np.array(found) - box).max() <= slack, (steps, found, box)
        if k == 1 and len(steps) == 1 and inside(found, height, width) and "perspective" not in steps[0][0]:
            rows, columns = np.nonzero(mask)
            centre = np.array([columns.mean() + 0.5, rows.mean() + 0.5])
            assert np.abs(centre - element["points"][0]).max() <= slack, (steps, centre, element["points"])
    return n_found


def run(seed: int) -> int:
    """A chain on IMAGES images; returns the number of shapes that were found."""
    rng = random.Random(seed)
    steps = chain(rng)
    dataset = cachew.Dataset.arrays(drawn(np.random.default_rng(seed)))
    for name, attributes in steps:
        method = getattr(dataset, name)
        dataset = method("image", **attributes, boxes="boxes", masks="masks", keypoints="points")
    elements = list(dataset.iterator(seed=seed))
    assert len(elements) == IMAGES
    return sum(check(steps, element) for element in elements)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000, help="number of images")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found = sum(run(arguments.seed + k) for k in range(arguments.n // IMAGES))
    print(f"{arguments.n // IMAGES * IMAGES} images: {found} shapes found where their annotations are")
    return 0


if __name__ == "__main__":
    sys.exit(main())
