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
    "random_zoom_out": {"fill": 0, "side_range": [1, 4], "p": 0.5},
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


MapOf = Callable[[int, int, Draw], "tuple[list[float], int, int] | None"]


def rotate(attrs: dict) -> MapOf:
    def map_of(height: int, width: int, _draw: Draw):
        return warps.rotation(height, width, attrs["angle"], attrs["expand"], attrs["center"])

    return map_of


def random_rotation(attrs: dict) -> MapOf:
    def map_of(height: int, width: int, draw: Draw):
        angle = uniform_in(bounds_of(attrs["degrees"]), draw.word(0))
        return warps.rotation(height, width, angle, attrs["expand"], attrs["center"])

    return map_of


def affine(attrs: dict) -> MapOf:
    shear = (listed(attrs["shear"]) + [0])[:2]

    def map_of(height: int, width: int, _draw: Draw):
        given = (attrs["angle"], attrs["translate"], attrs["scale"], shear, attrs["center"])
        return warps.affine(height, width, *given), height, width

    return map_of


def random_affine(attrs: dict) -> MapOf:
    shear = listed(attrs["shear"])
    shears = [shear[:2], shear[2:]] if len(shear) == 4 else [bounds_of(attrs["shear"]), [0, 0]]

    def map_of(height: int, width: int, draw: Draw):
        angle = uniform_in(bounds_of(attrs["degrees"]), draw.word(0))
        most = [fraction * size for fraction, size in zip(attrs["translate"], (width, height))]
        translate = [round(uniform_in([-m, m], draw.word(1 + i))) for i, m in enumerate(most)]
        scale = uniform_in(attrs["scale"], draw.word(3))
        by = [uniform_in(bounds, draw.word(4 + i)) for i, bounds in enumerate(shears)]
        return warps.affine(height, width, angle, translate, scale, by, attrs["center"]), height, width

    return map_of


def random_perspective(attrs: dict) -> MapOf:
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

    return map_of


MAPS: dict[str, Callable[[dict], MapOf]] = {
    "rotate": rotate,
    "random_rotation": random_rotation,
    "affine": affine,
    "random_affine": random_affine,
    "random_perspective": random_perspective,
}


def warp(name: str) -> Callable[[dict, Type], Made]:
    return lambda attrs, type_: warped(attrs, type_, MAPS[name](attrs), attrs.get("expand", False))


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


def pad_sides(attrs: dict, _height: int, _width: int, _draw: Draw) -> tuple[int, int, int, int]:
    """left, top, right, bottom"""
    given = listed(attrs["padding"])
    left, top, right, bottom = given if len(given) == 4 else (given * 4)[:4]
    return left, top, right, bottom


def zoom_out_sides(attrs: dict, height: int, width: int, draw: Draw) -> tuple[int, int, int, int]:
    if uniform(draw.word(0)) >= attrs["p"]:
        return 0, 0, 0, 0
    side = uniform_in(attrs["side_range"], draw.word(1))
    more_x, more_y = int(width * side) - width, int(height * side) - height
    left, top = int(more_x * uniform(draw.word(2))), int(more_y * uniform(draw.word(3)))
    return left, top, more_x - left, more_y - top


PADDINGS = {"pad_image": pad_sides, "random_zoom_out": zoom_out_sides}


def padded(name: str) -> Callable[[dict, Type], Made]:
    def make(attrs: dict, type_: Type) -> Made:
        def apply(value: Value, draw: Draw) -> Value:
            if 0 in value.shape:
                raise RecordError("an image without pixels")
            data = value.data
            left, top, right, bottom = PADDINGS[name](attrs, *data.shape[:2], draw)
            fill = filled(attrs["fill"], data.shape[2] if data.ndim == 3 else 1)
            around = [(top, bottom), (left, right), (0, 0)][: data.ndim]
            if attrs.get("padding_mode", "constant") != "constant":
                return Value(value.dtype, np.pad(data, around, attrs["padding_mode"]))
            values = [cast(array("float64", v), value.dtype).data for v in fill]
            result = np.pad(data, around)
            outside = np.pad(np.ones(data.shape[:2], bool), around[:2]) == 0
            result[outside] = np.array(values) if data.ndim == 3 else values[0]
            return Value(value.dtype, result)

        added: tuple = (None, None)
        if name == "pad_image":
            left, top, right, bottom = pad_sides(attrs, 0, 0, None)
            added = (top + bottom, left + right)
        dims = type_.dims and (
            *(None if n is None or more is None else n + more for n, more in zip(type_.dims, added)),
            *type_.dims[2:],
        )
        return Type(type_.dtype, dims), apply

    return make


# ---- cuts: y, x, h, w of the part of an image that an operator keeps ----


def whole(_attrs: dict, height: int, width: int, _draw: Draw) -> tuple[int, int, int, int]:
    return 0, 0, height, width


def fitting(attrs: dict, height: int, width: int) -> tuple[int, int]:
    h, w = attrs["size"]
    if h > height or w > width:
        raise RecordError("the crop is larger than the image")
    return h, w


def center_cut(attrs: dict, height: int, width: int, _draw: Draw) -> tuple[int, int, int, int]:
    h, w = fitting(attrs, height, width)
    return (height - h) // 2, (width - w) // 2, h, w


def random_cut(attrs: dict, height: int, width: int, draw: Draw) -> tuple[int, int, int, int]:
    h, w = fitting(attrs, height, width)
    return integer(draw.word(0), height - h + 1), integer(draw.word(1), width - w + 1), h, w


def resized_cut(attrs: dict, height: int, width: int, draw: Draw) -> tuple[int, int, int, int]:
    """docs/randomness.md"""
    scale, (low, high) = attrs["scale"], attrs["ratio"]
    for a in range(10):
        words = draw.block(a)
        area = (scale[0] + (scale[1] - scale[0]) * uniform(words[0])) * (height * width)
        log_low = mathfn.log(float(low))
        r = mathfn.exp(log_low + (mathfn.log(float(high)) - log_low) * uniform(words[1]))
        w = math.floor(math.sqrt(area * r) + 0.5)
        h = math.floor(math.sqrt(area / r) + 0.5)
        if 0 < w <= width and 0 < h <= height:
            return integer(words[2], height - h + 1), integer(words[3], width - w + 1), h, w
    in_ratio = width / height
    h, w = height, width
    if in_ratio < low:
        h = math.floor(w / low + 0.5)
    elif in_ratio > high:
        w = math.floor(h * high + 0.5)
    h, w = min(max(h, 1), height), min(max(w, 1), width)
    return (height - h) // 2, (width - w) // 2, h, w


CUTS = {
    "resize": whole,
    "center_crop": center_cut,
    "random_crop": random_cut,
    "random_resized_crop": resized_cut,
}


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
    "gaussian_blur": gaussian_blur,
    **{name: padded(name) for name in PADDINGS},
    **{name: warp(name) for name in MAPS},
}
