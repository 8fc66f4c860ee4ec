"""Images as docs/pixels.md defines them: decoding through Pillow, resizing in NumPy."""

import io
import math
import struct
import zlib

import numpy as np
from PIL import Image

from .dtypes import RecordError

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
INTERPOLATIONS = ("nearest", "bilinear", "bicubic")


# ---- decoding ----


def decode(
    data: bytes, channels: int, dtype: str, orientation: bool, max_pixels: int, reduced_by=None
) -> np.ndarray:
    """[height, width, channels] of dtype. Raises RecordError for a damaged image.

    reduced_by(height, width): what a JPEG's size is divided by.
    """
    if not (data.startswith((JPEG, PNG)) or data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        raise RecordError("not a JPEG, PNG or WebP image")
    if data.startswith(JPEG) and not has_end(data):
        raise RecordError("the JPEG has no EOI")
    if data.startswith(PNG):
        check_png(data)
    try:
        image = Image.open(io.BytesIO(data))
        if image.width * image.height > max_pixels:
            raise RecordError("more than max_pixels")
        if reduced_by and data.startswith(JPEG):
            width, height = image.size
            turned = orientation and image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            by = reduced_by(width, height) if turned else reduced_by(height, width)
            if by > 1:
                image.draft(image.mode, (width // by, height // by))
        image.load()
    except (OSError, SyntaxError, ValueError, struct.error) as error:
        raise RecordError(f"damaged image: {error}") from error
    if data.startswith(PNG) and data[24] == 16:
        pixels = read_png16(data)
        pixels = convert((pixels >> 8).astype(np.uint8) if dtype == "uint8" else pixels, channels)
    else:
        pixels = convert(as_stored(image, channels), channels)
    if data.startswith(JPEG) and orientation:
        pixels = orient(pixels, image.getexif().get(0x0112, 1))
    if pixels.dtype.name == dtype:
        return pixels
    return pixels.astype(np.uint16) * np.uint16(257)


def has_end(data: bytes) -> bool:
    """Whether an EOI stands after the first SOS."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        if data[at + 1] == 0xFF:
            at += 1
            continue
        if data[at + 1] == 0xDA:
            return b"\xff\xd9" in data[at:]
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


def check_png(data: bytes) -> None:
    """Checksums of the critical chunks, and of the compressed stream."""
    at, compressed, kind = 8, b"", b""
    while kind != b"IEND":
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + size]
        if len(data) < at + 12 + size:
            raise RecordError("the PNG ends too early")
        if (
            kind[0] & 32 == 0
            and zlib.crc32(kind + body).to_bytes(4, "big") != data[at + 8 + size : at + 12 + size]
        ):
            raise RecordError("a checksum of the PNG is wrong")
        compressed += body if kind == b"IDAT" else b""
        at += 12 + size
    try:
        zlib.decompress(compressed)
    except zlib.error as error:
        raise RecordError(f"damaged PNG: {error}") from error


def as_stored(image: Image.Image, channels: int) -> np.ndarray:
    transparent = "transparency" in image.info
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode == "P":
        image = image.convert("RGBA" if transparent else "RGB")
    elif image.mode in ("L", "RGB") and transparent and channels == 4:
        image = image.convert("RGBA")
    pixels = np.asarray(image)
    return (
        pixels[:, :, None] if pixels.ndim == 2 else pixels if image.mode != "CMYK" else cmyk(pixels, channels)
    )


def cmyk(pixels: np.ndarray, channels: int) -> np.ndarray:
    if channels == 0:
        return pixels
    inverse = 255 - pixels[:, :, 3:].astype(np.int64)
    t = pixels[:, :, :3] * inverse + 128
    return np.clip(inverse - ((t + (t >> 8)) >> 8), 0, 255).astype(np.uint8)


def convert(pixels: np.ndarray, channels: int) -> np.ndarray:
    stored = pixels.shape[2]
    if channels in (0, stored):
        return pixels
    full = np.iinfo(pixels.dtype).max
    colour = pixels[:, :, :1] if stored <= 2 else pixels[:, :, :3]
    alpha = pixels[:, :, -1:] if stored in (2, 4) else np.full_like(pixels[:, :, :1], full)
    if channels == 1:
        if stored <= 2:
            return colour
        wide = colour.astype(np.uint64)
        grey = (19595 * wide[:, :, 0] + 38470 * wide[:, :, 1] + 7471 * wide[:, :, 2] + 32768) >> 16
        return grey.astype(pixels.dtype)[:, :, None]
    if stored <= 2:
        colour = np.repeat(colour, 3, axis=2)
    return colour if channels == 3 else np.concatenate([colour, alpha], axis=2)


def orient(pixels: np.ndarray, orientation: int) -> np.ndarray:
    if orientation >= 5 and orientation <= 8:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


def read_png16(data: bytes) -> np.ndarray:
    """A PNG of 16 bits per value, not interlaced: Pillow keeps only the high bytes of most of them."""
    width, height, _depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    if interlaced:
        raise NotImplementedError("interlaced PNG of 16 bits")
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    compressed, at = b"", 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"IDAT":
            compressed += data[at + 8 : at + 8 + size]
        at += 12 + size
    lines = zlib.decompress(compressed)
    stride, step = width * channels * 2, channels * 2
    rows, above = [], bytearray(stride)
    for y in range(height):
        kind, line = lines[y * (stride + 1)], bytearray(lines[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for i in range(stride):
            left, up = line[i - step] if i >= step else 0, above[i]
            corner = above[i - step] if i >= step else 0
            guess = (0, left, up, (left + up) // 2, paeth(left, up, corner))[kind]
            line[i] = (line[i] + guess) & 0xFF
        rows.append(bytes(line))
        above = line
    return np.frombuffer(b"".join(rows), dtype=">u2").reshape(height, width, channels).astype(np.uint16)


def paeth(left: int, up: int, corner: int) -> int:
    p = left + up - corner
    return min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))[2]


# ---- resizing ----


def bilinear(x: float) -> float:
    return 1.0 - abs(x) if abs(x) < 1.0 else 0.0


def bicubic(x: float) -> float:
    a, x = -0.5, abs(x)
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    if x < 2.0:
        return (((x - 5) * x + 8) * x - 4) * a
    return 0.0


def taps(size_in: int, size_out: int, interpolation: str, antialias: bool) -> list[tuple[int, list[float]]]:
    """(first tap, weights) of each output."""
    filter_, radius = (bilinear, 1.0) if interpolation == "bilinear" else (bicubic, 2.0)
    scale = size_in / size_out
    fs = scale if antialias and scale > 1 else 1.0
    support = fs * radius
    result = []
    for i in range(size_out):
        centre = (i + 0.5) * scale
        lo = max(int(centre - support + 0.5), 0)
        hi = min(int(centre + support + 0.5), size_in)
        result.append((lo, [filter_((k + lo - centre + 0.5) * (1.0 / fs)) for k in range(hi - lo)]))
    return result


def partial_sums(weights: list[float]) -> list[float]:
    sums = [0.0]
    for w in weights:
        sums.append(sums[-1] + w)
    return sums


def integer_weights(weights: list[float], plain: bool) -> tuple[list[int], int]:
    """(weights, bits): Pillow's, or for plain bilinear differences of rounded partial sums."""
    sums = partial_sums(weights)
    if not plain:
        scaled = [w / sums[-1] * (1 << 22) for w in weights]
        return [int(v + 0.5) if v >= 0 else int(v - 0.5) for v in scaled], 22
    rounded = [math.floor(s / sums[-1] * (1 << 14) + 0.5) for s in sums]
    return [right - left for left, right in zip(rounded, rounded[1:])], 14


def resize_uint8(pixels: np.ndarray, size: int, interpolation: str, antialias: bool) -> np.ndarray:
    """One pass, along axis 0."""
    result = []
    for lo, weights in taps(pixels.shape[0], size, interpolation, antialias):
        integers, bits = integer_weights(weights, interpolation == "bilinear" and not antialias)
        total = 1 << (bits - 1)
        for k, weight in enumerate(integers):
            total = total + weight * pixels[lo + k].astype(np.int64)
        result.append(np.clip(total >> bits, 0, 255))
    return np.array(result).astype(np.uint8)


def resize_wide(pixels: np.ndarray, size: int, interpolation: str, antialias: bool) -> np.ndarray:
    """One pass, along axis 0, of another dtype than uint8."""
    result = []
    for lo, weights in taps(pixels.shape[0], size, interpolation, antialias):
        whole = partial_sums(weights)[-1]
        total = np.zeros(pixels.shape[1:])
        for k, weight in enumerate(weights):
            total = total + (weight / whole) * pixels[lo + k].astype(np.float64)
        result.append(np.clip(np.floor(total + 0.5), 0, 65535) if pixels.dtype == np.uint16 else total)
    return np.array(result).astype(pixels.dtype)


def nearest(pixels: np.ndarray, size: int) -> np.ndarray:
    scale = pixels.shape[0] / size
    t, indices = scale * 0.5, []
    for _ in range(size):
        indices.append(min(int(t), pixels.shape[0] - 1))
        t += scale
    return pixels[indices]


def resize_axis(pixels: np.ndarray, size: int, interpolation: str, antialias: bool) -> np.ndarray:
    if pixels.shape[0] == size:
        return pixels
    if interpolation == "nearest":
        return nearest(pixels, size)
    one_pass = resize_uint8 if pixels.dtype == np.uint8 else resize_wide
    return one_pass(pixels, size, interpolation, antialias)


def resize(pixels: np.ndarray, size: tuple[int, int], interpolation: str, antialias: bool) -> np.ndarray:
    if 0 in pixels.shape[:2]:
        raise RecordError("an image without pixels")
    wide = resize_axis(np.swapaxes(pixels, 0, 1), size[1], interpolation, antialias)
    return resize_axis(np.swapaxes(wide, 0, 1), size[0], interpolation, antialias)


# ---- crops ----


def crop(pixels: np.ndarray, y: int, x: int, h: int, w: int) -> np.ndarray:
    if h > pixels.shape[0] or w > pixels.shape[1]:
        raise RecordError("the crop is larger than the image")
    return pixels[y : y + h, x : x + w]
