"""Attributes of geometric operators on images, drawn for a component of a random pipeline."""

from __future__ import annotations

import random

from .dtypes import INTEGERS, Type

KINDS = ("rotate", "random_rotation", "affine", "random_affine", "random_perspective")
KINDS += ("random_erasing", "pad_image", "gaussian_blur")


def fill(rng: random.Random, type_: Type) -> dict:
    channels = type_.dims[2] if type_.dims and len(type_.dims) == 3 else 1
    if rng.random() < 0.6:
        return {}
    value = rng.choice([7, 255])
    return {
        "fill": [rng.randint(0, 255) for _ in range(channels)] if channels and rng.random() < 0.5 else value
    }


def some(rng: random.Random, given: dict) -> dict:
    return {name: value for name, value in given.items() if rng.random() < 0.4}


def of(rng: random.Random, kind: str, images: dict[str, Type]) -> dict | None:
    """Attributes for one of the images that the operator can take."""
    any_dtype = kind in ("random_erasing", "pad_image", "random_zoom_out")
    fitting = [n for n, t in images.items() if t.dtype in ("uint8", "float32") or any_dtype]
    if not fitting:
        return None
    name = rng.choice(fitting)
    filled = fill(rng, images[name]) if images[name].dtype in ("uint8", "float32") else {}
    if kind == "random_erasing":
        value = {"value": filled["fill"]} if filled else {}
        shape = {"p": rng.choice([0, 1]), "scale": [0.1, rng.uniform(0.1, 0.8)], "ratio": [0.2, 1.3]}
        return {"component": name} | value | some(rng, shape)
    if kind == "random_zoom_out":
        return {"component": name} | filled | some(rng, {"p": rng.choice([0, 1]), "side_range": [1, 1.8]})
    if kind == "pad_image":
        padding = rng.choice([2, [0, 3], [rng.randint(0, 5) for _ in range(4)]])
        return {"component": name, "padding": padding} | filled
    if kind == "gaussian_blur":
        sigma = {"sigma": rng.choice([0.8, [0.5, 3]])} if rng.random() < 0.5 else {}
        return {"component": name, "kernel_size": rng.choice([1, 3, [5, 3]])} | sigma
    given = {"component": name} | filled
    angle, low = rng.choice([0, 90, 180, 45, rng.uniform(-360, 360)]), rng.uniform(-50, 10)
    shear = [rng.uniform(-40, 0), rng.uniform(0, 40)]
    center = {"center": [rng.uniform(0, 9), 2]} if rng.random() < 0.2 else {}
    if kind == "rotate":
        return given | center | {"angle": angle}
    if kind == "random_rotation":
        return given | center | {"degrees": rng.choice([0, rng.uniform(0, 180), [low, low + 30]])}
    if kind == "affine":
        move = {"angle": angle, "translate": [rng.randint(-4, 4), rng.uniform(-4, 4)]}
        size = {"scale": rng.uniform(0.5, 2), "shear": rng.choice([shear[0], shear])}
        return given | center | some(rng, move | size)
    if kind == "random_affine":
        shears = rng.choice([shear[1], shear, [*shear, -10, 20]])
        move = {"translate": [rng.random(), rng.random()], "scale": [0.7, 1.5], "shear": shears}
        return given | center | {"degrees": rng.choice([0, 20, [low, low + 30]])} | some(rng, move)
    return given | some(rng, {"distortion_scale": rng.random(), "p": rng.choice([0, 1])})


def mixing(rng: random.Random, kind: str, types: dict[str, Type]) -> dict | None:
    """Attributes of mixup or cutmix. Few components are certain to be classes."""
    three = [n for n, t in types.items() if t.dims and len(t.dims) == 3 and t.dtype != "bytes"]
    mixed = [n for n, t in types.items() if t.dtype in ("uint8", "float32")] if kind == "mixup" else three
    labels = [n for n, t in types.items() if t.dims == () and t.dtype in INTEGERS]
    shares = [
        n for n, t in types.items() if t.dtype == "float32" and t.dims and len(t.dims) == 1 and t.dims[0]
    ]
    label = rng.choice([*labels, *shares, None])
    images = [n for n in mixed if n != label]
    if label is None or not images:
        return None
    classes = types[label].dims[0] if label in shares else rng.choice([40, 1000])
    return {"component": rng.choice(images), "label": label, "classes": classes} | some(
        rng, {"alpha": rng.choice([0.1, 0.5, 3])}
    )
