"""Geometric operators on images: each maps attributes and the component's type to the result's type, and a
function of a value and its draw.
"""

from __future__ import annotations

from collections.abc import Callable

from . import warps
from .dtypes import RecordError, Type, Value
from .philox import Draw, integer, uniform

Made = tuple[Type, Callable[[Value, Draw], Value]]

NO_CENTER = {"interpolation": "nearest", "fill": 0}
DEFAULTS: dict[str, dict] = {
    "rotate": {"expand": False, "center": [], **NO_CENTER},
    "random_rotation": {"expand": False, "center": [], **NO_CENTER},
    "affine": {"angle": 0, "translate": [0, 0], "scale": 1, "shear": 0, "center": [], **NO_CENTER},
    "random_affine": {"translate": [0, 0], "scale": [1, 1], "shear": 0, "center": [], **NO_CENTER},
    "random_perspective": {"distortion_scale": 0.5, "p": 0.5, "interpolation": "bilinear", "fill": 0},
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


OPERATORS = {
    "rotate": rotate,
    "random_rotation": random_rotation,
    "affine": affine,
    "random_affine": random_affine,
    "random_perspective": random_perspective,
}
