"""Boxes, masks and keypoints, which move with their image (docs/pixels.md, "Boxes, masks and keypoints")."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from . import geometry
from .dtypes import PlanError, RecordError, Type, Value
from .philox import Draw, uniform

KINDS = ("boxes", "masks", "keypoints")
REGIONS = ("resize", "center_crop", "random_crop", "random_resized_crop")
MOVING = (*REGIONS, "random_flip", *geometry.MAPS, "pad_image", "random_zoom_out")
NONE: dict[str, list] = {kind: [] for kind in KINDS}
MASK = {"interpolation": "nearest", "fill": 0}  # masks move as an image with these attributes would

Matrix = list[float]


def of(attrs: dict) -> Iterator[tuple[str, str]]:
    """(kind, name) of each annotation, in the order of the ports."""
    for kind in KINDS:
        given = attrs.get(kind, [])
        for name in [given] if isinstance(given, str) else given:
            yield kind, name


def type_of(kind: str, before: Type, image: Type) -> Type:
    dims, last = before.dims, {"boxes": 4, "keypoints": 2}.get(kind)
    if kind == "masks":
        if before.dtype != "uint8" or dims is None or len(dims) not in (2, 3):
            raise PlanError("no masks")
        return Type("uint8", (*dims[:-2], *image.dims[:2]))
    if before.dtype != "float32" or dims is None or len(dims) != 2 or dims[1] not in (last, None):
        raise PlanError(f"no {kind}")
    return Type("float32", (dims[0], last))


# ---- where places move ----


def region(y: int, x: int, h: int, w: int, after: tuple[int, int]) -> Matrix:
    across, down = after[1] / w, after[0] / h
    return [across, 0.0, -x * across, 0.0, down, -y * down, 0.0, 0.0, 1.0]


def adjugate(m: list[float]) -> Matrix:
    a, b, c, d, e, f, g, h = [*m, 0.0, 0.0][:8]
    return [e - f * h, c * h - b, b * f - c * e, f * g - d, a - c * g, c * d - a * f, d * h - e * g,
            b * g - a * h, a * e - b * d]  # fmt: skip


def matrix(name: str, attrs: dict, before: tuple[int, int], after: tuple[int, int], draw: Draw) -> Matrix:
    height, width = before
    if name == "random_flip":
        m = region(0, 0, height, width, after)
        if uniform(draw.word(0)) < attrs["horizontal"]:
            m[0], m[2] = -m[0], width - m[2]
        if uniform(draw.word(1)) < attrs["vertical"]:
            m[4], m[5] = -m[4], height - m[5]
        return m
    if name in geometry.MAPS:
        found = geometry.MAPS[name](attrs)(height, width, draw)
        return adjugate(found[0]) if found else region(0, 0, height, width, before)
    if name in geometry.PADDINGS:
        left, top, _, _ = geometry.PADDINGS[name](attrs, height, width, draw)
        return [1.0, 0.0, left, 0.0, 1.0, top, 0.0, 0.0, 1.0]
    return region(*geometry.CUTS[name](attrs, height, width, draw), after)


def moved(m: Matrix, x: float, y: float) -> tuple[float, float, float]:
    with np.errstate(all="ignore"):
        x, y = np.float64(x), np.float64(y)
        d = m[6] * x + m[7] * y + m[8]
        return (m[0] * x + m[1] * y + m[2]) / d, (m[3] * x + m[4] * y + m[5]) / d, d


def box(m: Matrix, given: np.ndarray, after: tuple[int, int]) -> list[float]:
    x0, y0, x1, y1 = given
    corners = [moved(m, x, y) for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))]
    if any(corners[0][2] * d <= 0 for _, _, d in corners):
        return [0, 0, after[1], after[0]]
    ends = []
    for axis, size in ((0, after[1]), (1, after[0])):
        low = high = corners[0][axis]
        for corner in corners[1:]:
            low = corner[axis] if corner[axis] < low else low
            high = corner[axis] if corner[axis] > high else high
        ends.append([0 if v < 0 else size if v > size else v for v in (low, high)])
    (left, right), (top, bottom) = ends
    return [left, top, right, bottom]


def points(kind: str, m: Matrix, value: Value, after: tuple[int, int]) -> Value:
    last = 4 if kind == "boxes" else 2
    if value.shape[1] != last:
        raise RecordError(f"no {kind}")
    rows = [box(m, row, after) if kind == "boxes" else moved(m, *row)[:2] for row in value.data]
    with np.errstate(all="ignore"):
        return Value("float32", np.array(rows, np.float64).reshape(-1, last).astype(np.float32))


def planes(value: Value, size: tuple[int, int], after: tuple[int, int], move) -> Value:
    if value.shape[-2:] != size:
        raise RecordError("masks of another size than the image")
    data = np.empty((*value.shape[:-2], *after), np.uint8)
    for at in product(*(range(n) for n in value.shape[:-2])):
        data[at] = move(Value("uint8", value.data[at])).data
    return Value("uint8", data)


# ---- the operator ----


def size_after(name: str, attrs: dict, before: tuple[int, int], draw: Draw) -> tuple[int, int]:
    if name in REGIONS:
        return tuple(attrs["size"])
    if name in geometry.PADDINGS:
        left, top, right, bottom = geometry.PADDINGS[name](attrs, *before, draw)
        return before[0] + top + bottom, before[1] + left + right
    found = name in geometry.MAPS and geometry.MAPS[name](attrs)(*before, draw)
    return found[1:] if found else before


def bind(name: str, attrs: dict, types: dict[str, Type], binder, made, wanted: set[str] | None = None):
    """The operator with its annotations. wanted: the components of it that are needed; None: all.
    binder(attrs, types) binds the operator on an image alone; made(types, apply) is the result.
    """
    annotations, component = list(of(attrs)), attrs["component"]
    names = [component, *(n for _, n in annotations)]
    if len(set(names)) < len(names) or any(n not in types for n in names):
        raise PlanError("annotations: each component once")
    plain = {**attrs, **NONE}
    image = binder(plain, types)
    after_types = {n: type_of(kind, types[n], image.types[component]) for kind, n in annotations}

    def move_mask(plane: Value, draw: Draw) -> Value:
        mask = binder({**plain, **MASK, "component": "mask"}, {"mask": Type("uint8", (None, None))})
        return mask.apply({"mask": plane}, draw)["mask"]

    def apply(components: dict[str, Value], draw: Draw) -> dict[str, Value]:
        before = components[component].shape[:2]
        if 0 in components[component].shape:
            raise RecordError("an image without pixels")
        if name in geometry.CUTS:
            geometry.CUTS[name](attrs, *before, draw)  # may fail
        after = size_after(name, attrs, before, draw)
        m = matrix(name, attrs, before, after, draw)
        result = dict(components)
        for kind, n in annotations:
            if wanted is not None and n not in wanted:
                continue
            value = components[n]
            result[n] = (
                planes(value, before, after, lambda plane: move_mask(plane, draw))
                if kind == "masks"
                else points(kind, m, value, after)
            )
        if wanted is None or component in wanted:
            result[component] = image.apply(components, draw)[component]
        return result

    return made({**image.types, **after_types}, apply)


# ---- sanitize_boxes ----


def sanitize_boxes(attrs: dict, types: dict[str, Type], made, wanted: set[str] | None = None):
    component = attrs["component"]
    labels = [attrs["labels"]] if isinstance(attrs["labels"], str) else attrs["labels"]
    if len({component, *labels}) <= len(labels) or any(n not in types for n in (component, *labels)):
        raise PlanError("sanitize_boxes: each component once")
    boxes = type_of("boxes", types[component], types[component])
    changed = {component: Type("float32", (None, *boxes.dims[1:]))}
    for name in labels:
        if types[name].dtype == "bytes" or not types[name].dims:
            raise PlanError("sanitize_boxes: no rows")
        changed[name] = Type(types[name].dtype, (None, *types[name].dims[1:]))

    def apply(components: dict[str, Value], _draw: Draw) -> dict[str, Value]:
        given = components[component].data
        if given.shape[1] != 4:
            raise RecordError("no boxes")
        needed = [n for n in (component, *labels) if wanted is None or n in wanted]
        if any(components[n].shape[0] != len(given) for n in needed):
            raise RecordError("another number of rows")
        with np.errstate(all="ignore"):
            w, h = (given[:, k + 2].astype(np.float64) - given[:, k] for k in (0, 1))
            keep = (w >= attrs["min_size"]) & (h >= attrs["min_size"]) & (w * h >= attrs["min_area"])
            keep &= np.isfinite(w * h)
        return components | {n: Value(components[n].dtype, components[n].data[keep]) for n in needed}

    return made({**types, **changed}, apply)
