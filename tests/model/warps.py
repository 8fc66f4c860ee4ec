"""Rotations, affine maps and perspectives of images, as docs/pixels.md defines them, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from . import mathfn

DEGREE = math.pi / 180


# ---- maps: six or eight numbers ----


def rotation(
    height: int, width: int, angle: float, expand: bool, center: list
) -> tuple[list[float], int, int]:
    """The map, and the size of the result."""
    angle %= 360.0
    x, y = center or (width / 2, height / 2)
    cos, sin = round(mathfn.cos(angle * DEGREE), 15), round(mathfn.sin(angle * DEGREE), 15)
    m = [cos, -sin, 0.0, sin, cos, 0.0]
    m[2] = m[0] * -x + m[1] * -y + x
    m[5] = m[3] * -x + m[4] * -y + y
    if not expand:
        return m, height, width
    corners = [(0, 0), (width, 0), (width, height), (0, height)]
    xs = [m[0] * a + m[1] * b + m[2] for a, b in corners]
    ys = [m[3] * a + m[4] * b + m[5] for a, b in corners]
    out_w = math.ceil(max(xs)) - math.floor(min(xs))
    out_h = math.ceil(max(ys)) - math.floor(min(ys))
    if not center and angle in (90, 270):
        out_h, out_w = width, height
    a, b = -(out_w - width) / 2, -(out_h - height) / 2
    m[2], m[5] = m[0] * a + m[1] * b + m[2], m[3] * a + m[4] * b + m[5]
    return m, out_h, out_w


def affine(
    height: int, width: int, angle: float, translate: tuple, scale: float, shear: tuple, center: list
) -> list[float]:
    x, y = center or (width / 2, height / 2)
    turn, sx, sy = angle * DEGREE, shear[0] * DEGREE, shear[1] * DEGREE
    tan = mathfn.sin(sx) / mathfn.cos(sx)
    cos_y = mathfn.cos(sy)
    a = mathfn.cos(turn - sy) / cos_y
    b = -mathfn.cos(turn - sy) * tan / cos_y - mathfn.sin(turn)
    c = mathfn.sin(turn - sy) / cos_y
    d = -mathfn.sin(turn - sy) * tan / cos_y + mathfn.cos(turn)
    m = [d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0]
    m[2] = m[0] * (-x - translate[0]) + m[1] * (-y - translate[1]) + x
    m[5] = m[3] * (-x - translate[0]) + m[4] * (-y - translate[1]) + y
    return m


def perspective(height: int, width: int, corners: list[tuple[int, int]]) -> list[float] | None:
    """The map that moves the corners of the image; None: there is none."""
    ends = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
    rows: list[list[float]] = []
    for (x, y), (u, v) in zip(corners, ends):
        rows.append([float(n) for n in (x, y, 1, 0, 0, 0, -u * x, -u * y, u)])
        rows.append([float(n) for n in (0, 0, 0, x, y, 1, -v * x, -v * y, v)])
    for k in range(8):
        pivot = max(range(k, 8), key=lambda i: (abs(rows[i][k]), -i))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        if rows[k][k] == 0:
            return None
        for i in range(k + 1, 8):
            factor = rows[i][k] / rows[k][k]
            for j in range(k + 1, 9):
                rows[i][j] -= factor * rows[k][j]
    solution = [0.0] * 8
    for k in reversed(range(8)):
        value = rows[k][8]
        for j in range(k + 1, 8):
            value -= rows[k][j] * solution[j]
        solution[k] = value / rows[k][k]
    return [float(np.float32(value)) for value in solution]


# ---- pixels ----


def places(m: list[float], height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y in the image for each pixel of a result."""
    x, y = np.arange(width)[None, :] + 0.5, np.arange(height)[:, None] + 0.5
    px, py = m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]
    if len(m) == 8:
        with np.errstate(all="ignore"):
            d = m[6] * x + m[7] * y + 1
            px, py = px / d, py / d
    return np.broadcast_to(px, (height, width)), np.broadcast_to(py, (height, width))


def fixed_places(m: list[float], height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Integer places, of 16 fractional bits before they are cut off."""
    m = [m[0], m[1], m[2] + m[0] * 0.5 + m[1] * 0.5, m[3], m[4], m[5] + m[3] * 0.5 + m[4] * 0.5]
    f = [math.floor(v * 65536 + 0.5) for v in m]
    x, y = np.arange(width)[None, :], np.arange(height)[:, None]
    return (f[2] + y * f[1] + x * f[0]) >> 16, (f[5] + y * f[4] + x * f[3]) >> 16


def stepped_places(m: list[float], height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Places by repeated addition."""

    def steps(first: float, down: float, across: float) -> np.ndarray:
        left = np.add.accumulate(np.array([first] + [down] * (height - 1)))
        table = np.full((height, width), across)
        table[:, 0] = left
        return np.add.accumulate(table, axis=1)

    return (
        steps(m[2] + m[1] * 0.5 + m[0] * 0.5, m[1], m[0]),
        steps(m[5] + m[4] * 0.5 + m[3] * 0.5, m[4], m[3]),
    )


def nearest_places(m: list[float], height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    if len(m) == 8:
        return places(m, height, width)
    small = all(
        abs(x * a + y * b + c) < 32768 for x in (0, width) for y in (0, height) for a, b, c in (m[:3], m[3:])
    )
    if m[1] == m[3] == 0 or not small:
        return stepped_places(m, height, width)
    return fixed_places(m, height, width)


def linear(v: list[np.ndarray], d: np.ndarray) -> np.ndarray:
    return v[0] + (v[1] - v[0]).astype(np.float64) * d


def cubic(v: list[np.ndarray], d: np.ndarray) -> np.ndarray:
    p2 = (v[2] - v[0]).astype(np.float64)
    p3 = (2 * (v[0] - v[1]) + v[2] - v[3]).astype(np.float64)
    p4 = (v[1] - v[0] - v[2] + v[3]).astype(np.float64)
    return v[1] + d * (p2 + d * (p3 + d * p4))


def warp(
    pixels: np.ndarray, m: list[float], height: int, width: int, interpolation: str, fill: list
) -> np.ndarray:
    """pixels: [height, width, channels], uint8 or float32."""
    rows, columns = pixels.shape[:2]
    result = np.empty((height, width, pixels.shape[2]), pixels.dtype)
    result[:] = np.array(fill, dtype=pixels.dtype)
    px, py = (nearest_places if interpolation == "nearest" else places)(m, height, width)
    inside = (px >= 0) & (px < columns) & (py >= 0) & (py < rows)
    px, py = px[inside], py[inside]
    if interpolation == "nearest":
        result[inside] = pixels[py.astype(np.int64), px.astype(np.int64)]
        return result
    values = pixels.astype(np.int64) if pixels.dtype == np.uint8 else pixels
    taps, mix = (2, linear) if interpolation == "bilinear" else (4, cubic)
    px, py = px - 0.5, py - 0.5
    left, top = np.floor(px).astype(np.int64), np.floor(py).astype(np.int64)
    dx, dy = (px - left)[:, None], (py - top)[:, None]
    first = taps // 2 - 1
    in_column: list[np.ndarray] = []
    for j in range(taps):
        y = top - first + j
        at = [np.clip(left - first + k, 0, columns - 1) for k in range(taps)]
        mixed = mix([values[np.clip(y, 0, rows - 1), x] for x in at], dx)
        if j:
            mixed = np.where(((y >= 0) & (y < rows))[:, None], mixed, in_column[-1])
        in_column.append(mixed)
    value = mix(in_column, dy)
    result[inside] = np.clip(value, 0, 255).astype(np.uint8) if pixels.dtype == np.uint8 else value
    return result
