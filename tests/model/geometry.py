"""Geometric operators on images: each maps attributes and the component's type to the result's type, and a
function of a value and its draw.
"""

from __future__ import annotations

from collections.abc import Callable

import math

import numpy as np

from . import mathfn, warps
from .dtypes import RecordError, Type, Value, array, cast
from .philox import Draw, integer, uniform

Made = tuple[Type, Callable[[Value, Draw], Value]]

NO_CENTER = {"interpolation": "nearest", "fill": 0}
DEFAULTS: dict[str, dict] = {
    "rotate": {"expand": False, "center": [], **NO_CENTER},
    "random_rotation": {"expand": False, "center": [], **NO_CENTER},
    "affine": {"angle": 0, "translate": [0, 0], "scale": 1, "shear": 0, "center": [], **NO_CENTER},
    "random_affine": {"translate": [0, 0], "scale": [1, 1], "shear": 0, "center": [], **NO_CENTER},
    "random_perspective": {"distortion_scale": 0.5, "p": 0.5, "interpolation": "bilinear", "fill": 0},
    "random_erasing": {"p": 0.5, "scale": [0.02, 0.33], "ratio": [0.3, 3.3], "value": 0},
    "pad_image": {"fill": 0, "padding_mode": "constant"},
    "gaussian_blur": {"sigma": [0.1, 2.0]},
}


def listed(given: float | list) -> list:
    return given if isinstance(given, list) else [given]


def bounds_of(given: float | list) -> list:
    """A range, or x for [-x, x]."""
    given = listed(given)
    return given if len(given) == 2 else [-given[0], given[0]]


def uniform_in(bounds: list, word: int) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * uniform(word)


def on_pixels(function) -> Callable[[Value, Draw], Value]:
    """function(pixels, draw), pixels [height, width, channels], as a function of a value."""

    def apply(value: Value, draw: Draw) -> Value:
        if 0 in value.data.shape:
            raise RecordError("an image without pixels")
        two_d = value.data.ndim == 2
        pixels = function(value.data[:, :, None] if two_d else value.data, draw)
        return Value(value.dtype, pixels[:, :, 0] if two_d else pixels)

    return apply


def filled(given: float | list, channels: int) -> list:
    if isinstance(given, list) and len(given) != channels:
        raise RecordError("fill: another number of channels")
    return listed(given)


def warped(attrs: dict, type_: Type, map_of, varies: bool = False) -> Made:
    """map_of(height, width, draw) gives the map and the size of the result; None: the image stays."""

    def apply(pixels, draw: Draw):
        fill = filled(attrs["fill"], pixels.shape[2])
        found = map_of(*pixels.shape[:2], draw)
        return warps.warp(pixels, *found, attrs["interpolation"], fill) if found else pixels

    dims = type_.dims and (None, None, *type_.dims[2:]) if varies else type_.dims
    return Type(type_.dtype, dims), on_pixels(apply)


def rotate(attrs: dict, type_: Type) -> Made:
    def map_of(height: int, width: int, _draw: Draw):
        return warps.rotation(height, width, attrs["angle"], attrs["expand"], attrs["center"])

    return warped(attrs, type_, map_of, attrs["expand"])


def random_rotation(attrs: dict, type_: Type) -> Made:
    def map_of(height: int, width: int, draw: Draw):
        angle = uniform_in(bounds_of(attrs["degrees"]), draw.word(0))
        return warps.rotation(height, width, angle, attrs["expand"], attrs["center"])

    return warped(attrs, type_, map_of, attrs["expand"])


def affine(attrs: dict, type_: Type) -> Made:
    shear = (listed(attrs["shear"]) + [0])[:2]

    def map_of(height: int, width: int, _draw: Draw):
        given = (attrs["angle"], attrs["translate"], attrs["scale"], shear, attrs["center"])
        return warps.affine(height, width, *given), height, width

    return warped(attrs, type_, map_of)


def random_affine(attrs: dict, type_: Type) -> Made:
    shear = listed(attrs["shear"])
    shears = [shear[:2], shear[2:]] if len(shear) == 4 else [bounds_of(attrs["shear"]), [0, 0]]

    def map_of(height: int, width: int, draw: Draw):
        angle = uniform_in(bounds_of(attrs["degrees"]), draw.word(0))
        most = [fraction * size for fraction, size in zip(attrs["translate"], (width, height))]
        translate = [round(uniform_in([-m, m], draw.word(1 + i))) for i, m in enumerate(most)]
        scale = uniform_in(attrs["scale"], draw.word(3))
        by = [uniform_in(bounds, draw.word(4 + i)) for i, bounds in enumerate(shears)]
        return warps.affine(height, width, angle, translate, scale, by, attrs["center"]), height, width

    return warped(attrs, type_, map_of)


def random_perspective(attrs: dict, type_: Type) -> Made:
    def map_of(height: int, width: int, draw: Draw):
        if uniform(draw.word(0)) >= attrs["p"]:
            return None
        across, down = (int(attrs["distortion_scale"] * (n // 2)) for n in (width, height))
        corners = []
        for k in range(4):
            x = integer(draw.word(1 + 2 * k), across + 1)
            y = integer(draw.word(2 + 2 * k), down + 1)
            corners.append(
                (width - 1 - across + x if k in (1, 2) else x, height - 1 - down + y if k >= 2 else y)
            )
        m = warps.perspective(height, width, corners)
        return m and (m, height, width)

    return warped(attrs, type_, map_of)


def random_erasing(attrs: dict, type_: Type) -> Made:
    def apply(value: Value, draw: Draw) -> Value:
        height, width = value.shape[:2]
        if 0 in value.shape:
            raise RecordError("an image without pixels")
        channels = value.shape[2] if len(value.shape) == 3 else 1
        fill = [cast(array("float64", v), value.dtype).data for v in filled(attrs["value"], channels)]
        if uniform(draw.word(0)) >= attrs["p"]:
            return value
        low, high = (mathfn.log(r) for r in attrs["ratio"])
        for words in (draw.block(a) for a in range(1, 11)):
            area = height * width * uniform_in(attrs["scale"], words[0])
            aspect = mathfn.exp(uniform_in([low, high], words[1]))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if h < height and w < width:
                y, x = integer(words[2], height - h + 1), integer(words[3], width - w + 1)
                data = value.data.copy()
                data[y : y + h, x : x + w] = np.array(fill) if len(value.shape) == 3 else fill[0]
                return Value(value.dtype, data)
        return value

    return type_, apply


def pad_image(attrs: dict, type_: Type) -> Made:
    given = listed(attrs["padding"])
    left, top, right, bottom = given if len(given) == 4 else (given * 4)[:4]
    added = (top + bottom, left + right)

    def apply(value: Value, _draw: Draw) -> Value:
        if 0 in value.shape:
            raise RecordError("an image without pixels")
        data = value.data
        fill = filled(attrs["fill"], data.shape[2] if data.ndim == 3 else 1)
        around = [(top, bottom), (left, right), (0, 0)][: data.ndim]
        if attrs["padding_mode"] != "constant":
            return Value(value.dtype, np.pad(data, around, attrs["padding_mode"]))
        values = [cast(array("float64", v), value.dtype).data for v in fill]
        padded = np.pad(data, around)
        outside = np.pad(np.ones(data.shape[:2], bool), around[:2]) == 0
        padded[outside] = np.array(values) if data.ndim == 3 else values[0]
        return Value(value.dtype, padded)

    dims = type_.dims and (
        *(n if n is None else n + more for n, more in zip(type_.dims, added)),
        *type_.dims[2:],
    )
    return Type(type_.dtype, dims), apply


def blur_axis(pixels: np.ndarray, taps: int, sigma: float) -> np.ndarray:
    """Along axis 0, in float32."""
    values = []
    for k in range(taps):
        x = (k - taps // 2) / sigma
        values.append(mathfn.exp(-0.5 * (x * x)))
    whole = 0.0
    for v in values:
        whole += v
    padded = np.pad(pixels, [(taps // 2, taps // 2), (0, 0), (0, 0)], "reflect")
    total = np.zeros_like(pixels)
    for k, v in enumerate(values):
        total = total + np.float32(v / whole) * padded[k : k + len(pixels)]
    return total


def gaussian_blur(attrs: dict, type_: Type) -> Made:
    taps = (listed(attrs["kernel_size"]) * 2)[:2]
    bounds = (listed(attrs["sigma"]) * 2)[:2]

    def apply(pixels, draw: Draw):
        if taps[0] // 2 >= pixels.shape[1] or taps[1] // 2 >= pixels.shape[0]:
            raise RecordError("too small for the kernel")
        sigma = uniform_in(bounds, draw.word(0))
        across = blur_axis(pixels.astype(np.float32).swapaxes(0, 1), taps[0], sigma)
        blurred = blur_axis(across.swapaxes(0, 1), taps[1], sigma)
        return np.clip(np.rint(blurred), 0, 255).astype(np.uint8) if type_.dtype == "uint8" else blurred

    return type_, on_pixels(apply)


OPERATORS = {
    "random_erasing": random_erasing,
    "pad_image": pad_image,
    "gaussian_blur": gaussian_blur,
    "rotate": rotate,
    "random_rotation": random_rotation,
    "affine": affine,
    "random_affine": random_affine,
    "random_perspective": random_perspective,
}
