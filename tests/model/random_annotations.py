"""Images with boxes, masks and keypoints for random pipelines, and attributes that name them."""

from __future__ import annotations

import random

from . import annotations
from .dtypes import Type

NAMES = {"boxes": "boxes", "masks": "masks", "keypoints": "points"}


def source(rng: random.Random) -> dict:
    """Images of 24 x 20 with annotations, some of which leave the image."""
    count = rng.choice([1, rng.randint(2, 60)])

    def part(name: str, shape: list[int], dtype: str) -> list[dict]:
        made = {"op": "synthetic", "count": count, "shape": shape, "dtype": dtype}
        scaled = {"op": "assign", "set": {"data": "data * 30 - 3"}}
        return [made, *([scaled] if dtype == "float32" else []), {"op": "rename", "names": {"data": name}}]

    image = part("image", [24, 20, rng.choice([1, 3])], rng.choice(["uint8", "float32"]))
    if image[0]["dtype"] == "float32":
        del image[1]
    inputs = [image, part("boxes", [rng.choice([1, 5]), 4], "float32")]
    inputs.append(part("masks", rng.choice([[24, 20], [2, 24, 20], [3, 20, 24]]), "uint8"))
    inputs.append(part("points", [rng.randint(1, 4), 2], "float32"))
    return {"op": "zip", "inputs": inputs}


def attributes(rng: random.Random, component: str, types: dict[str, Type]) -> dict:
    """Of an operator that moves pixels. No draw where nothing is an annotation."""
    given = {}
    for kind, name in NAMES.items():
        fits = name in types and name != component
        if fits and rng.random() < 0.7:
            given[kind] = name if rng.random() < 0.7 else [name]
    return given


def sanitizing(rng: random.Random, types: dict[str, Type]) -> dict | None:
    if "boxes" not in types:
        return None
    rows = [
        n for n, t in types.items() if n != "boxes" and t.dims and t.dims[0] in (None, types["boxes"].dims[0])
    ]
    given = {"component": "boxes"} | ({"labels": rng.sample(rows, 1)} if rows and rng.random() < 0.4 else {})
    return given | ({"min_size": rng.uniform(0, 9), "min_area": 20} if rng.random() < 0.6 else {})


def operator(rng: random.Random) -> str:
    return rng.choice([*annotations.MOVING, *annotations.REGIONS, "sanitize_boxes"])
