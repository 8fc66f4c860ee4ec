"""Operators that change colours, for random pipelines."""

from __future__ import annotations

import random

from . import augment, colours
from .dtypes import Type

NAMES = (*colours.NAMES, *augment.NAMES)


def of(rng: random.Random, kind: str, types: dict[str, Type]) -> dict | None:
    """Attributes of an operator; None where no component fits it."""
    dtypes = ("uint8",) if kind in ("posterize", "equalize", *augment.NAMES) else ("uint8", "float32")
    fitting = [
        name
        for name, t in types.items()
        if t.dtype in dtypes and t.dims and len(t.dims) == 3 and t.dims[2] in (None, 1, 3)
    ]
    if not fitting:
        return None
    name = rng.choice(fitting)
    given: dict = {"component": name}
    if kind == "rand_augment":
        bins = rng.choice([2, 11, 31])
        given |= {"num_magnitude_bins": bins, "magnitude": rng.randrange(bins)}
        return given | ({"num_ops": rng.randint(0, 4)} if rng.random() < 0.5 else {})
    if kind == "augmix":
        drawn = {
            "severity": rng.randint(1, 10),
            "mixture_width": rng.randint(1, 4),
            "chain_depth": rng.choice([-1, 1, 4]),
            "alpha": rng.choice([0.1, 1, 5]),
            "all_ops": rng.random() < 0.5,
        }
        return given | {name: value for name, value in drawn.items() if rng.random() < 0.4}
    if kind in augment.NAMES:
        return given
    if kind == "posterize":
        given["bits"] = rng.randint(0, 8)
    elif kind == "solarize":
        given["threshold"] = rng.uniform(0, 1 if types[name].dtype == "float32" else 256)
    elif kind == "adjust_sharpness":
        given["sharpness_factor"] = rng.choice([0, 1, 2, rng.uniform(0, 3)])
    elif kind == "grayscale":
        return given | ({"num_output_channels": 3} if rng.random() < 0.5 else {})
    elif kind == "color_jitter":
        given |= {
            change: rng.choice([0.4, [0.8], [0.5, 1.5], 2])
            for change in ("brightness", "contrast", "saturation")
            if rng.random() < 0.6
        }
        return given | ({"hue": rng.choice([0.5, 0.1, [-0.2, 0.4]])} if rng.random() < 0.6 else {})
    return given | ({"p": rng.choice([0, 0.5, 0.9])} if rng.random() < 0.5 else {})
