"""mixup and cutmix, from their documentation: operators on whole batches, as hosted.BatchMap is one."""

from __future__ import annotations

import math

import numpy as np

from . import mathfn
from .dtypes import INTEGERS, PlanError, RunError, Type
from .philox import Draw, hash64, integer

DEFAULTS: dict[str, dict] = {"mixup": {"alpha": 0.2}, "cutmix": {"alpha": 1.0, "layout": "hwc"}}


def unit(word: int) -> float:
    return (word + 0.5) * 2.0**-32


def log_gamma(draw: Draw, block: int, alpha: float) -> tuple[float, int]:
    """The logarithm of a number of Gamma(alpha), and the next block of words."""
    d = (alpha + 1.0) - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        words = [unit(word) for word in draw.block(block)]
        block += 1
        u, v = 2.0 * words[0] - 1.0, 2.0 * words[1] - 1.0
        s = u * u + v * v
        if not 0 < s < 1:
            continue
        x = u * math.sqrt(-2.0 * mathfn.log(s) / s)
        t = 1.0 + c * x
        if t <= 0:
            continue
        t = t * t * t
        if mathfn.log(words[2]) < 0.5 * (x * x) + d - d * t + d * mathfn.log(t):
            return mathfn.log(d * t) + mathfn.log(words[3]) / alpha, block


def beta(draw: Draw, alpha: float) -> float:
    a, block = log_gamma(draw, 1, alpha)
    b, _ = log_gamma(draw, block, alpha)
    return 1.0 / (1.0 + mathfn.exp(b - a))


def box(draw: Draw, share: float, height: int, width: int) -> tuple[slice, slice]:
    x, y = integer(draw.word(0), width), integer(draw.word(1), height)
    r = 0.5 * math.sqrt(1.0 - share)
    half_w, half_h = int(r * width), int(r * height)
    return (
        slice(max(y - half_h, 0), min(y + half_h, height)),
        slice(max(x - half_w, 0), min(x + half_w, width)),
    )


class Mix:
    def __init__(self, name: str, attrs: dict, types: dict[str, Type], salt: str):
        self.name, self.attrs, self.salt = name, attrs, salt
        image, label = types[attrs["component"]], types[attrs["label"]]
        if attrs["component"] == attrs["label"]:
            raise PlanError(f"{name}: the label is the image")
        if name == "mixup" and image.dtype not in ("uint8", "float32"):
            raise PlanError("mixup: neither uint8 nor float32")
        if name == "cutmix" and (image.dtype == "bytes" or not image.dims or len(image.dims) != 3):
            raise PlanError("cutmix: no image")
        one = label.dims == () and label.dtype in INTEGERS
        if not one and not (label.dtype == "float32" and label.dims == (attrs["classes"],)):
            raise PlanError(f"{name}: no label")
        self.types = {**types, attrs["label"]: Type("float32", (attrs["classes"],))}
        self.types = dict(sorted(self.types.items(), key=lambda item: item[0].encode()))

    def apply(self, batch: dict, key: int, eids: list[int]) -> dict:
        draw = Draw(key, hash64(*(e.to_bytes(8, "little") for e in eids)))
        share = beta(draw, self.attrs["alpha"])
        images, labels = batch[self.attrs["component"]], batch[self.attrs["label"]]
        before = np.roll(images, 1, axis=0)
        if self.name == "mixup":
            mixed = np.float32(share) * images.astype("f4") + np.float32(1.0 - share) * before.astype("f4")
            images = np.rint(mixed).astype("u1") if images.dtype == np.uint8 else mixed
        else:
            chw = self.attrs["layout"] == "chw"
            height, width = images.shape[2:] if chw else images.shape[1:3]
            share, images = 1.0 if 0 in (height, width) else share, images.copy()
            if height and width:
                y, x = box(draw, share, height, width)
                at = (slice(None), slice(None), y, x) if chw else (slice(None), y, x)
                images[at] = before[at]
                share = 1.0 - (x.stop - x.start) * (y.stop - y.start) / (height * width)
        shares = labels
        if labels.ndim == 1:
            if ((labels < 0) | (labels >= self.attrs["classes"])).any():
                raise RunError(f"{self.name}: no class")
            shares = np.eye(self.attrs["classes"], dtype=np.float32)[labels.astype(np.int64)]
        other = np.float32(1.0 - share) * np.roll(shares, 1, axis=0)
        mixed_labels = other + np.float32(share) * shares
        results = {**batch, self.attrs["component"]: images, self.attrs["label"]: mixed_labels}
        return {name: results[name] for name in self.types}
