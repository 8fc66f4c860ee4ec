"""rand_augment, trivial_augment, auto_augment and augmix for uint8 images [height, width, channels], as
docs/pixels.md and docs/randomness.md define them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from . import colours, mathfn, warps
from .mixup import log_gamma
from .philox import Draw, integer, uniform

NAMES = ("rand_augment", "trivial_augment", "auto_augment", "augmix")
KINDS = (
    "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
    "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize",
)  # fmt: skip
MIXED = (
    "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Posterize", "Solarize", "AutoContrast",
    "Equalize", "Brightness", "Color", "Contrast", "Sharpness",
)  # fmt: skip
# the change, its probability, its magnitude of ten; twice
POLICIES = {
    "imagenet": """
        Posterize 0.4 8 Rotate 0.6 9
        Solarize 0.6 5 AutoContrast 0.6 0
        Equalize 0.8 0 Equalize 0.6 0
        Posterize 0.6 7 Posterize 0.6 6
        Equalize 0.4 0 Solarize 0.2 4
        Equalize 0.4 0 Rotate 0.8 8
        Solarize 0.6 3 Equalize 0.6 0
        Posterize 0.8 5 Equalize 1 0
        Rotate 0.2 3 Solarize 0.6 8
        Equalize 0.6 0 Posterize 0.4 6
        Rotate 0.8 8 Color 0.4 0
        Rotate 0.4 9 Equalize 0.6 0
        Equalize 0 0 Equalize 0.8 0
        Invert 0.6 0 Equalize 1 0
        Color 0.6 4 Contrast 1 8
        Rotate 0.8 8 Color 1 2
        Color 0.8 8 Solarize 0.8 7
        Sharpness 0.4 7 Invert 0.6 0
        ShearX 0.6 5 Equalize 1 0
        Color 0.4 0 Equalize 0.6 0
        Equalize 0.4 0 Solarize 0.2 4
        Solarize 0.6 5 AutoContrast 0.6 0
        Invert 0.6 0 Equalize 1 0
        Color 0.6 4 Contrast 1 8
        Equalize 0.8 0 Equalize 0.6 0
    """,
    "cifar10": """
        Invert 0.1 0 Contrast 0.2 6
        Rotate 0.7 2 TranslateX 0.3 9
        Sharpness 0.8 1 Sharpness 0.9 3
        ShearY 0.5 8 TranslateY 0.7 9
        AutoContrast 0.5 0 Equalize 0.9 0
        ShearY 0.2 7 Posterize 0.3 7
        Color 0.4 3 Brightness 0.6 7
        Sharpness 0.3 9 Brightness 0.7 9
        Equalize 0.6 0 Equalize 0.5 0
        Contrast 0.6 7 Sharpness 0.6 5
        Color 0.7 7 TranslateX 0.5 8
        Equalize 0.3 0 AutoContrast 0.4 0
        TranslateY 0.4 3 Sharpness 0.2 6
        Brightness 0.9 6 Color 0.2 8
        Solarize 0.5 2 Invert 0 0
        Equalize 0.2 0 AutoContrast 0.6 0
        Equalize 0.2 0 Equalize 0.6 0
        Color 0.9 9 Equalize 0.6 0
        AutoContrast 0.8 0 Solarize 0.2 8
        Brightness 0.1 3 Color 0.7 0
        Solarize 0.4 5 AutoContrast 0.9 0
        TranslateY 0.9 9 TranslateY 0.7 9
        AutoContrast 0.9 0 Solarize 0.8 3
        Equalize 0.8 0 Invert 0.1 0
        TranslateY 0.7 9 AutoContrast 0.9 0
    """,
    "svhn": """
        ShearX 0.9 4 Invert 0.2 0
        ShearY 0.9 8 Invert 0.7 0
        Equalize 0.6 0 Solarize 0.6 6
        Invert 0.9 0 Equalize 0.6 0
        Equalize 0.6 0 Rotate 0.9 3
        ShearX 0.9 4 AutoContrast 0.8 0
        ShearY 0.9 8 Invert 0.4 0
        ShearY 0.9 5 Solarize 0.2 6
        Invert 0.9 0 AutoContrast 0.8 0
        Equalize 0.6 0 Rotate 0.9 3
        ShearX 0.9 4 Solarize 0.3 3
        ShearY 0.8 8 Invert 0.7 0
        Equalize 0.9 0 TranslateY 0.6 6
        Invert 0.9 0 Equalize 0.6 0
        Contrast 0.3 3 Rotate 0.8 4
        Invert 0.8 0 TranslateY 0 2
        ShearY 0.7 6 Solarize 0.4 8
        Invert 0.6 0 Rotate 0.8 4
        ShearY 0.3 7 TranslateX 0.9 3
        ShearX 0.1 6 Invert 0.6 0
        Solarize 0.7 2 TranslateY 0.6 7
        ShearY 0.8 4 Invert 0.8 0
        ShearX 0.7 9 TranslateY 0.8 3
        ShearY 0.8 5 AutoContrast 0.7 0
        ShearX 0.7 2 Invert 0.1 0
    """,
}
Step = tuple[str, float]  # a change, and its magnitude


def magnitude(kind: str, bin_: int, bins: int, negative: bool, size: tuple[int, int], wide: bool) -> float:
    if kind == "Posterize":
        return 8 - round((6.0 if wide else 4.0) * bin_ / (bins - 1))
    if kind == "Solarize":
        return float(np.float32(255 - 255.0 * bin_ / (bins - 1)))
    if kind in ("ShearX", "ShearY"):
        most = 0.99 if wide else 0.3
    elif kind in ("TranslateX", "TranslateY"):
        most = 32 if wide else 150.0 / 331.0 * size[kind == "TranslateX"]
    elif kind == "Rotate":
        most = 135 if wide else 30
    elif kind in ("Brightness", "Color", "Contrast", "Sharpness"):
        most = 0.99 if wide else 0.9
    else:
        return 0.0
    value = float(np.float32(most * bin_ / (bins - 1)))
    return -value if negative else value


def rand_steps(attrs: dict, size: tuple[int, int], draw: Draw) -> list[Step]:
    steps = []
    for i in range(attrs["num_ops"]):
        kind, negative = KINDS[integer(draw.word(2 * i), len(KINDS))], integer(draw.word(2 * i + 1), 2) == 1
        bin_, bins = attrs["magnitude"], attrs["num_magnitude_bins"]
        steps.append((kind, magnitude(kind, bin_, bins, negative, size, False)))
    return steps


def trivial_steps(_attrs: dict, size: tuple[int, int], draw: Draw) -> list[Step]:
    kind, bin_ = KINDS[integer(draw.word(0), len(KINDS))], integer(draw.word(1), 31)
    return [(kind, magnitude(kind, bin_, 31, integer(draw.word(2), 2) == 1, size, True))]


def auto_steps(attrs: dict, size: tuple[int, int], draw: Draw) -> list[Step]:
    pairs = POLICIES[attrs["policy"]].split("\n")[1:-1]
    words = pairs[integer(draw.word(0), len(pairs))].split()
    steps = []
    for i in range(2):
        kind, p, bin_ = words[3 * i], float(words[3 * i + 1]), int(words[3 * i + 2])
        if uniform(draw.word(1 + i)) <= p:
            negative = integer(draw.word(3 + i), 2) == 0
            steps.append((kind, magnitude(kind, bin_, 10, negative, size, False)))
    return steps


STEPS: dict[str, Callable[[dict, tuple[int, int], Draw], list[Step]]] = {
    "rand_augment": rand_steps,
    "trivial_augment": trivial_steps,
    "auto_augment": auto_steps,
}


def place(pixels: np.ndarray, kind: str, amount: float) -> np.ndarray:
    height, width, channels = pixels.shape
    m = {
        "ShearX": [1.0, amount, 0.0, 0.0, 1.0, 0.0],
        "ShearY": [1.0, 0.0, 0.0, amount, 1.0, 0.0],
        "TranslateX": [1.0, 0.0, -float(math.trunc(amount)), 0.0, 1.0, 0.0],
        "TranslateY": [1.0, 0.0, 0.0, 0.0, 1.0, -float(math.trunc(amount))],
    }.get(kind)
    if m is None:
        m, height, width = warps.rotation(height, width, amount, False, [])
    return warps.warp(pixels, m, height, width, "nearest", [0] * channels)


def change(pixels: np.ndarray, kind: str, amount: float) -> np.ndarray:
    if kind in ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"):
        return place(pixels, kind, amount)
    blends = {
        "Brightness": colours.brightness,
        "Color": colours.saturation,
        "Contrast": colours.contrast,
        "Sharpness": colours.adjust_sharpness,
    }
    if kind in blends:
        return blends[kind](pixels, 1 + amount)
    if kind == "Posterize":
        return colours.posterize(pixels, int(amount))
    if kind == "Solarize":
        return colours.solarize(pixels, amount)
    plain = {"AutoContrast": colours.autocontrast, "Equalize": colours.equalize, "Invert": colours.invert}
    return plain[kind](pixels) if kind in plain else pixels


def mixed_magnitude(kind: str, bin_: int, negative: bool, size: tuple[int, int]) -> float:
    """A magnitude of augmix: those of rand_augment with ten bins, but for these kinds."""
    if kind == "Posterize":
        return 4 - round(4.0 * bin_ / 9)
    if kind in ("TranslateX", "TranslateY"):
        value = float(np.float32(size[kind == "TranslateX"] * (1.0 / 3.0) * bin_ / 9))
        return -value if negative else value
    return magnitude(kind, bin_, 10, negative, size, False)


def mixture(attrs: dict, size: tuple[int, int], draw: Draw) -> tuple[float, list[tuple[float, list[Step]]]]:
    """The share of the image, and the share and the changes of each chain of augmix."""
    width, block, numbers = attrs["mixture_width"], 1, []
    for _ in range(2 + width):
        value, block = log_gamma(draw, block, attrs["alpha"])
        numbers.append(value)
    image = 1.0 / (1.0 + mathfn.exp(numbers[1] - numbers[0]))
    parts = [mathfn.exp(value - max(numbers[2:])) for value in numbers[2:]]
    total = 0.0  # added up in order, unlike sum() of newer Pythons
    for part in parts:
        total += part
    chains = []
    for part in parts:
        depth = attrs["chain_depth"]
        if depth < 0:
            depth = 1 + integer(draw.block(block)[0], 3)
        steps = []
        for t in range(depth):
            words = draw.block(block + 1 + t)
            kind = MIXED[integer(words[0], 13 if attrs["all_ops"] else 9)]
            bin_, negative = integer(words[1], attrs["severity"]), integer(words[2], 2) == 1
            steps.append((kind, mixed_magnitude(kind, bin_, negative, size)))
        block += 1 + depth
        chains.append(((1.0 - image) * (part / total), steps))
    return image, chains


def augmix(pixels: np.ndarray, attrs: dict, draw: Draw) -> np.ndarray:
    share, chains = mixture(attrs, pixels.shape[:2], draw)
    result = np.float32(share) * pixels.astype(np.float32)
    for share, steps in chains:
        changed = pixels
        for kind, amount in steps:
            changed = change(changed, kind, amount)
        result += np.float32(share) * changed.astype(np.float32)
    return np.minimum(result, 255).astype(np.uint8)


def augment(name: str, pixels: np.ndarray, attrs: dict, draw: Draw) -> np.ndarray:
    if name == "augmix":
        return augmix(pixels, attrs, draw)
    for kind, amount in STEPS[name](attrs, pixels.shape[:2], draw):
        pixels = change(pixels, kind, amount)
    return pixels
