"""Changes of colours as docs/pixels.md, "Colours", defines them, in NumPy: uint8 and float32 images
[height, width, channels] of 1 or 3 channels.
"""

from __future__ import annotations

import numpy as np

from .philox import Draw, integer, uniform

NAMES = (
    "invert", "posterize", "solarize", "equalize", "autocontrast", "adjust_sharpness", "grayscale",
    "random_grayscale", "color_jitter",
)  # fmt: skip


def is_float(x: np.ndarray) -> bool:
    return x.dtype == np.float32


def cut(v: np.ndarray, most: float) -> np.ndarray:
    return np.where(v < 0, v.dtype.type(0), np.where(v > most, v.dtype.type(most), v))


def luma(x: np.ndarray) -> np.ndarray:
    """[height, width, 1] of the image's dtype."""
    if x.shape[2] == 1:
        return x
    r, g, b = (x[:, :, c : c + 1] for c in range(3))
    if is_float(x):
        return np.float32(0.2989) * r + np.float32(0.587) * g + np.float32(0.114) * b
    r, g, b = (v.astype(np.int64) for v in (r, g, b))
    return ((19595 * r + 38470 * g + 7471 * b + 32768) >> 16).astype(np.uint8)


def blend(x: np.ndarray, d: np.ndarray | float, f: float) -> np.ndarray:
    if is_float(x):
        return cut(np.float32(f) * x + np.float32(1 - f) * np.asarray(d, np.float32), 1)
    d = np.asarray(d, np.float32)
    return cut(d + np.float32(f) * (x.astype(np.float32) - d), 255).astype(np.uint8)


def invert(x: np.ndarray) -> np.ndarray:
    return np.float32(1) - x if is_float(x) else 255 - x


def posterize(x: np.ndarray, bits: int) -> np.ndarray:
    low = 8 - bits
    return (x.astype(np.int64) >> low << low).astype(np.uint8)


def solarize(x: np.ndarray, threshold: float) -> np.ndarray:
    return np.where(x >= (np.float32(threshold) if is_float(x) else threshold), invert(x), x)


def per_channel(function):
    def all_channels(x: np.ndarray) -> np.ndarray:
        return np.stack([function(x[:, :, c]) for c in range(x.shape[2])], axis=2)

    return all_channels


@per_channel
def autocontrast(x: np.ndarray) -> np.ndarray:
    if is_float(x):
        lo, hi = np.fmin.reduce(x, axis=None, initial=np.inf), np.fmax.reduce(x, axis=None, initial=-np.inf)
        with np.errstate(divide="ignore"):
            scale = np.float32(1) / (hi - lo)
        if not np.isfinite(scale):
            lo, scale = np.float32(0), np.float32(1)
        return cut((x - lo) * scale, 1)
    lo, hi = int(x.min()), int(x.max())
    if lo == hi:
        return x
    scale = 255.0 / (hi - lo)
    return cut(np.trunc(x * scale + -lo * scale), 255).astype(np.uint8)


@per_channel
def equalize(x: np.ndarray) -> np.ndarray:
    h = np.bincount(x.reshape(-1), minlength=256)
    step = (h.sum() - h[x.max()]) // 255
    if step == 0:
        return x
    n = step // 2 + np.concatenate([[0], np.cumsum(h)[:-1]])
    return np.minimum(n // step, 255).astype(np.uint8)[x]


def adjust_sharpness(x: np.ndarray, factor: float) -> np.ndarray:
    height, width = x.shape[:2]
    if min(height, width) < 3:
        return x
    smooth = x.copy() if is_float(x) else x.astype(np.int64)
    wide, total = smooth.copy(), 0
    for dy in range(3):
        for dx in range(3):
            part = wide[dy : height - 2 + dy, dx : width - 2 + dx]
            centre = dy == dx == 1
            weight = np.float32((5 if centre else 1) / 13) if is_float(x) else (5 if centre else 1)
            total = total + weight * part
    smooth[1:-1, 1:-1] = total if is_float(x) else (2 * total + 13) // 26
    return blend(x, smooth, factor)


def grayscale(x: np.ndarray, channels: int) -> np.ndarray:
    return np.repeat(luma(x), channels, axis=2)


def random_grayscale(x: np.ndarray) -> np.ndarray:
    return saturation(x, 0)


def brightness(x: np.ndarray, f: float) -> np.ndarray:
    return blend(x, 0, f)


def contrast(x: np.ndarray, f: float) -> np.ndarray:
    grey = luma(x)
    if not is_float(x):
        return blend(x, int(grey.sum(dtype=np.int64) / grey.size + 0.5), f)
    total = np.add.accumulate(grey.reshape(-1), dtype=np.float64)[-1]  # one after the other, unlike sum
    return blend(x, np.float32(total / grey.size), f)


def saturation(x: np.ndarray, f: float) -> np.ndarray:
    return blend(x, luma(x), f) if x.shape[2] == 3 else x


def hue(x: np.ndarray, f: float) -> np.ndarray:
    if x.shape[2] == 1:
        return x
    return hue_float(x, f) if is_float(x) else hue_uint8(x, f)


def to_circle(x: np.ndarray, wide: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """h, s, v in float32; the sums of h are in `wide`."""
    r, g, b = (x[:, :, c] for c in range(3))
    hi = np.where(r > g, r, g)
    hi = np.where(hi > b, hi, b)
    lo = np.where(r > g, g, r)
    lo = np.where(lo < b, lo, b)
    one = np.float32(1)
    range_ = hi - lo
    divisor = np.where(hi == lo, one, range_)
    rc, gc, bc = ((hi - v) / divisor for v in (r, g, b))
    rw, gw, bw = (v.astype(wide) for v in (rc, gc, bc))
    h = np.where(
        r == hi,
        bc - gc,
        np.where(g == hi, (2 + rw - bw).astype(np.float32), (4 + gw - rw).astype(np.float32)),
    )
    h = h.astype(wide) / 6 + 1
    h = np.where(h >= 1, h - 1, h).astype(np.float32)
    return h, range_ / np.where(hi == lo, one, hi), hi


def from_circle(k: np.ndarray, v: np.ndarray, p: np.ndarray, q: np.ndarray, t: np.ndarray) -> np.ndarray:
    sectors = [(v, t, p), (q, v, p), (p, v, t), (p, q, v), (t, p, v), (v, p, q)]
    return np.stack([np.choose(k, [sector[c] for sector in sectors]) for c in range(3)], axis=2)


def hue_uint8(x: np.ndarray, f: float) -> np.ndarray:
    h, s, v = to_circle(x.astype(np.float32), np.float64)
    h, s = (np.trunc(c.astype(np.float64) * 255).astype(np.int64) for c in (h, s))
    turn = (h + int(f * 255)) % 256 * 6.0 / 255.0
    k = np.floor(turn).astype(np.int64)
    r, s, v = (turn - k).astype(np.float32), (s / 255.0).astype(np.float32), v.astype(np.float64)
    sr = s * r
    s, r, sr = s.astype(np.float64), r.astype(np.float64), sr.astype(np.float64)
    p, q, t = (np.trunc(v * (1 - c) + 0.5) for c in (s, sr, s * (1 - r)))
    return from_circle(k % 6, v, p, q, t).astype(np.uint8)


def hue_float(x: np.ndarray, f: float) -> np.ndarray:
    h, s, v = to_circle(x, np.float32)
    h = h + np.float32(f)
    h = np.where(h >= 1, h - 1, np.where(h < 0, h + 1, h))
    h = np.where(h >= 1, np.float32(0), h)
    turn = h * np.float32(6)
    k = sum((turn >= i).astype(np.int64) for i in range(1, 6))
    r = turn - k.astype(np.float32)
    one = np.float32(1)
    p, q, t = (cut(v * (one - c), 1) for c in (s, s * r, s * (one - r)))
    return from_circle(k, v, p, q, t)


# ---- color_jitter ----

CHANGES = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}


def jitter_ranges(attrs: dict) -> list[tuple[float, float]]:
    ranges = []
    for name in CHANGES:
        given = attrs[name]
        if isinstance(given, list) and len(given) == 2:
            ranges.append((float(given[0]), float(given[1])))
            continue
        x = float(given[0] if isinstance(given, list) else given)
        ranges.append((-x, x) if name == "hue" else (max(0.0, 1 - x), 1 + x))
    return ranges


def jitter_steps(attrs: dict, draw: Draw) -> list[tuple[str, float]]:
    """(change, amount) in the order drawn."""
    order = [0, 1, 2, 3]
    for t in range(3):
        i = 3 - t
        j = integer(draw.word(4 + t), i + 1)
        order[i], order[j] = order[j], order[i]
    ranges, names = jitter_ranges(attrs), list(CHANGES)
    steps = []
    for k in order:
        low, high = ranges[k]
        if (low, high) != ((0, 0) if names[k] == "hue" else (1, 1)):
            steps.append((names[k], low + (high - low) * uniform(draw.word(k))))
    return steps


def color_jitter(x: np.ndarray, attrs: dict, draw: Draw) -> np.ndarray:
    for name, amount in jitter_steps(attrs, draw):
        x = CHANGES[name](x, amount)
    return x
