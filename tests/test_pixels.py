"""Pixels against Pillow, OpenCV and a NumPy model of docs/pixels.md, over generated images of every kind.

Runs the operators through tests/unit/pixel_tool (CACHEW_PIXEL_TOOL names it; else it is looked for below
build*/)."""

import glob
import io
import itertools
import json
import os
import struct
import subprocess
import zlib

import pytest

np = pytest.importorskip("numpy")
PIL = pytest.importorskip("PIL")
from PIL import Image, ImageOps  # noqa: E402

try:
    import cv2
except ImportError:
    cv2 = None

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = [(1, 1), (1, 7), (9, 1), (8, 8), (16, 16), (17, 15), (31, 33), (64, 48), (75, 101), (130, 97)]


def tool_path():
    if "CACHEW_PIXEL_TOOL" in os.environ:
        return os.environ["CACHEW_PIXEL_TOOL"]
    found = sorted(glob.glob(os.path.join(HERE, "..", "build*", "**", "pixel_tool"), recursive=True))
    if not found:
        pytest.skip("pixel_tool is not built")
    return found[0]


class Failure(str):
    """What the tool says about a record that failed."""


def run(ops, blobs, tmp_path, fused=True, env=None):
    """A list of arrays or Failures, one per blob."""
    names = []
    for i, blob in enumerate(blobs):
        names.append(str(tmp_path / f"{i:05}"))
        with open(names[-1], "wb") as f:
            f.write(blob)
    (tmp_path / "list").write_text("\n".join(names))
    out = str(tmp_path / "out")
    command = (
        [tool_path()]
        + ([] if fused else ["--unfused"])
        + [json.dumps(ops), out, "@" + str(tmp_path / "list")]
    )
    subprocess.run(command, check=True, env={**os.environ, **(env or {})})
    with open(out, "rb") as f:
        data = f.read()
    results, at = [], 0
    while at < len(data):
        end = data.index(b"\n", at)
        words = data[at:end].decode("utf-8", "replace").split(" ")
        at = end + 1
        if words[0] == "fail":
            results.append(Failure(" ".join(words[1:])))
            continue
        shape = [int(w) for w in words[2:]]
        dtype = np.dtype("uint16" if words[1] == "bfloat16" else words[1])
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        results.append(np.frombuffer(data[at : at + size], dtype).reshape(shape))
        at += size
    assert len(results) == len(blobs)
    return results


# ---- images ----


def picture(h, w, channels, seed=0, bits=8):
    """Smooth colours, edges and some noise: what makes upsampling and rounding show."""
    rng = np.random.default_rng(seed * 1000003 + h * 1009 + w * 31 + channels)
    y, x = np.mgrid[0:h, 0:w]
    planes = []
    for c in range(channels):
        a, b, p = rng.uniform(0.02, 0.9, 3)
        v = (
            127
            + 90 * np.sin(a * y + p * 7) * np.cos(b * x + c)
            + rng.normal(0, 18, (h, w))
            + 60 * ((x // 5 + y // 3 + c) % 2 - 0.5)
        )
        planes.append(v)
    v = np.clip(np.stack(planes, -1), 0, 255)
    if bits == 16:
        return (v * 257 + rng.integers(0, 257, v.shape)).clip(0, 65535).astype(np.uint16)
    return v.astype(np.uint8)


def saved(image, fmt, **options):
    b = io.BytesIO()
    image.save(b, fmt, **options)
    return b.getvalue()


def jpegs(h, w):
    """(name, bytes)"""
    rgb = Image.fromarray(picture(h, w, 3))
    for sub, progressive in itertools.product((0, 1, 2), (False, True)):
        yield (
            f"rgb-{sub}-{progressive}",
            saved(rgb, "JPEG", quality=88, subsampling=sub, progressive=progressive),
        )
    yield "rgb-restart", saved(rgb, "JPEG", quality=70, subsampling=2, restart_marker_blocks=3)
    yield "rgb-keep", saved(rgb, "JPEG", quality=90, keep_rgb=True)
    grey = Image.fromarray(picture(h, w, 1)[:, :, 0])
    for progressive in (False, True):
        yield f"grey-{progressive}", saved(grey, "JPEG", quality=85, progressive=progressive)
    cmyk = Image.fromarray(picture(h, w, 4), mode="CMYK")
    for progressive in (False, True):
        blob = saved(cmyk, "JPEG", quality=85, progressive=progressive)
        yield f"cmyk-{progressive}", blob
        at = blob.index(b"Adobe")
        yield f"ycck-{progressive}", blob[: at + 11] + b"\x02" + blob[at + 12 :]
    if cv2 is not None:
        array = picture(h, w, 3)
        for name in ("411", "420", "422", "440", "444"):
            factor = getattr(cv2, "IMWRITE_JPEG_SAMPLING_FACTOR_" + name)
            for progressive in (0, 1):
                ok, blob = cv2.imencode(
                    ".jpg",
                    array,
                    [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive],
                )
                assert ok
                yield f"cv-{name}-{progressive}", blob.tobytes()


def png(array, color, depth, interlaced, palette=None, trns=None):
    """A PNG writer of our own: all colour types and depths, Adam7. array: h x w x samples, values below
    2^depth.
    """
    h, w = array.shape[:2]

    def pack(part):
        rows = []
        for row in part:
            if depth == 16:
                rows.append(b"\x00" + row.astype(">u2").tobytes())
            elif depth == 8:
                rows.append(b"\x00" + row.astype(np.uint8).tobytes())
            else:
                bits = (
                    ((row.reshape(-1)[:, None] >> np.arange(depth - 1, -1, -1)) & 1)
                    .astype(np.uint8)
                    .reshape(-1)
                )
                rows.append(b"\x00" + np.packbits(bits).tobytes())
        return b"".join(rows)

    if interlaced:
        steps = [
            (0, 0, 8, 8),
            (0, 4, 8, 8),
            (4, 0, 8, 4),
            (0, 2, 4, 4),
            (2, 0, 4, 2),
            (0, 1, 2, 2),
            (1, 0, 2, 1),
        ]
        raw = b"".join(pack(array[y::dy, x::dx]) for y, x, dy, dx in steps if array[y::dy, x::dx].size)
    else:
        raw = pack(array)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    out = b"\x89PNG\r\n\x1a\n" + chunk(
        b"IHDR", struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, int(interlaced))
    )
    if palette is not None:
        out += chunk(b"PLTE", palette)
    if trns is not None:
        out += chunk(b"tRNS", trns)
    return out + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def pngs(h, w):
    for interlaced in (False, True):
        for depth in (1, 2, 4, 8, 16):
            grey = picture(h, w, 1, bits=16) >> (16 - depth)
            yield f"grey{depth}-{interlaced}", png(grey, 0, depth, interlaced)
            if depth <= 8:
                n = 2**depth
                table = picture(1, n, 3, seed=9).tobytes()
                yield f"palette{depth}-{interlaced}", png(grey, 3, depth, interlaced, table)
                yield (
                    f"palette{depth}-trns-{interlaced}",
                    png(grey, 3, depth, interlaced, table, bytes(range(n))[::-1][: max(1, n - 1)]),
                )
            if depth >= 8:
                for color, samples in ((2, 3), (4, 2), (6, 4)):
                    yield (
                        f"color{color}-{depth}-{interlaced}",
                        png(picture(h, w, samples, bits=16) >> (16 - depth), color, depth, interlaced),
                    )
    key = picture(h, w, 3)
    yield "rgb-key", png(key, 2, 8, False, trns=struct.pack(">HHH", *[int(v) for v in key[0, 0]]))
    yield "grey-key", png(key[:, :, :1], 0, 8, True, trns=struct.pack(">H", int(key[0, 0, 0])))


def webps(h, w):
    rgb, rgba = Image.fromarray(picture(h, w, 3)), Image.fromarray(picture(h, w, 4), mode="RGBA")
    for quality in (30, 90):
        yield f"lossy{quality}", saved(rgb, "WEBP", quality=quality)
        yield f"alpha{quality}", saved(rgba, "WEBP", quality=quality)
    yield "lossless", saved(rgb, "WEBP", lossless=True)
    yield "lossless-alpha", saved(rgba, "WEBP", lossless=True, exact=True)


@pytest.fixture(scope="module")
def images():
    """(name, bytes) of all kinds and sizes."""
    return [
        (f"{kind}-{name}-{h}x{w}", blob)
        for h, w in SIZES
        for kind, make in (("jpeg", jpegs), ("png", pngs), ("webp", webps))
        for name, blob in make(h, w)
    ]


def blobs_of(images, kind=""):
    return [b for n, b in images if n.startswith(kind)]


# ---- a model of docs/pixels.md ----


def bilinear(x):
    x = abs(x)
    return 1.0 - x if x < 1.0 else 0.0


def bicubic(x):
    a, x = -0.5, abs(x)
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2.0 else 0.0


def taps_of(n_in, n_out, interpolation, antialias):
    scale = n_in / n_out
    fs = scale if antialias and scale > 1 else 1.0
    f, support = (bilinear, fs) if interpolation == "bilinear" else (bicubic, fs * 2.0)
    taps = []
    for i in range(n_out):
        centre = (i + 0.5) * scale
        lo, hi = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), n_in)
        taps.append((lo, [f((k + lo - centre + 0.5) * (1.0 / fs)) for k in range(hi - lo)]))
    return taps


def pass_model(image, n_out, axis, interpolation, antialias):
    n_in = image.shape[axis]
    if n_in == n_out:
        return image
    image = np.moveaxis(image, axis, 0)
    out = np.empty((n_out,) + image.shape[1:], image.dtype)
    if interpolation == "nearest":
        t = n_in / n_out * 0.5
        for i in range(n_out):
            out[i] = image[min(int(t), n_in - 1)]
            t += n_in / n_out
        return np.moveaxis(out, 0, axis)
    taps = taps_of(n_in, n_out, interpolation, antialias)
    sums = []
    for _, w in taps:
        s = [0.0]
        for v in w:
            s.append(s[-1] + v)
        sums.append(s)
    if image.dtype != np.uint8:
        for i, ((lo, w), s) in enumerate(zip(taps, sums)):
            total = np.zeros(image.shape[1:])
            for k, v in enumerate(w):
                total = total + (v / s[-1]) * image[lo + k].astype(np.float64)
            out[i] = np.clip(np.floor(total + 0.5), 0, 65535) if image.dtype == np.uint16 else total
        return np.moveaxis(out, 0, axis)
    p = 14 if interpolation == "bilinear" and not antialias else 22
    for i, ((lo, w), s) in enumerate(zip(taps, sums)):
        if p == 14:
            r = [int(np.floor(v / s[-1] * 2**14 + 0.5)) for v in s]
            weights = [b - a for a, b in zip(r, r[1:])]
        else:
            weights = [int(v / s[-1] * 2**22 + (0.5 if v >= 0 else -0.5)) for v in w]
        total = np.full(image.shape[1:], 2 ** (p - 1), np.int64)
        for k in range(len(w)):
            total += weights[k] * image[lo + k].astype(np.int64)
        out[i] = np.clip(total >> p, 0, 255)
    return np.moveaxis(out, 0, axis)


def resize_model(image, h, w, interpolation="bilinear", antialias=True):
    return pass_model(pass_model(image, w, 1, interpolation, antialias), h, 0, interpolation, antialias)


# ---- decoding ----

MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def pillow(blob, channels):
    image = Image.open(io.BytesIO(blob))
    image.load()
    if channels == 0:
        if image.mode == "P":
            image = image.convert("RGBA" if "transparency" in image.info else "RGB")
        if image.mode in ("1", "I;16"):
            image = (
                image.convert("L")
                if image.mode == "1"
                else Image.fromarray((np.array(image) >> 8).astype(np.uint8))
            )
    elif image.mode in ("I;16", "I"):
        image = Image.fromarray((np.array(image) >> 8).astype(np.uint8)).convert(MODES[channels])
    else:
        image = image.convert(MODES[channels])
    array = np.array(image)
    return array[:, :, None] if array.ndim == 2 else array


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_decode_equals_pillow(images, tmp_path, channels):
    got = run(
        [{"op": "decode_image", "channels": channels, "orientation": False}], [b for _, b in images], tmp_path
    )
    wrong = []
    for (name, blob), g in zip(images, got):
        want = pillow(blob, channels)
        if channels == 0 and name.startswith("png-color4-16"):  # Pillow opens 16-bit grey with alpha as RGBA
            want = want[:, :, [0, 3]]
        if isinstance(g, Failure) or g.shape != want.shape or not np.array_equal(g, want):
            wrong.append((name, g if isinstance(g, Failure) else (g.shape, want.shape)))
    assert not wrong, (len(wrong), wrong[:10])


def test_decode_uint16(images, tmp_path):
    names = [n for n, _ in images]
    eight = run([{"op": "decode_image", "channels": 0}], [b for _, b in images], tmp_path)
    wide = run([{"op": "decode_image", "channels": 0, "dtype": "uint16"}], [b for _, b in images], tmp_path)
    for name, a, b in zip(names, eight, wide):
        assert b.dtype == np.uint16
        if "16-" in name:
            assert np.array_equal(a, b >> 8), name
            assert a.size < 100 or not np.array_equal(b, a.astype(np.uint16) * 257), name
        else:
            assert np.array_equal(b, a.astype(np.uint16) * 257), name
    array = picture(20, 30, 3, bits=16)
    (got,) = run([{"op": "decode_image", "dtype": "uint16"}], [png(array, 2, 16, True)], tmp_path)
    assert np.array_equal(got, array)


def test_orientation(tmp_path):
    blobs, wants = [], []
    for orientation, (h, w), sub in itertools.product(range(0, 10), [(37, 53), (16, 8), (1, 5)], (0, 2)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        blob = saved(Image.fromarray(picture(h, w, 3)), "JPEG", quality=90, subsampling=sub, exif=exif)
        blobs.append(blob)
        wants.append(np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(blob)))))
    for got, want in zip(run([{"op": "decode_image"}], blobs, tmp_path), wants):
        assert np.array_equal(got, want)
    got = run([{"op": "decode_image", "orientation": False}], blobs, tmp_path)
    assert all(np.array_equal(g, np.array(Image.open(io.BytesIO(b)))) for g, b in zip(got, blobs))


# ---- fusion ----

DECODE = {"op": "decode_image"}
RUNS = [
    [DECODE, {"op": "random_crop", "size": [1, 1]}],
    [DECODE, {"op": "random_crop", "size": [9, 11]}],
    [DECODE, {"op": "random_crop", "size": [30, 21]}, {"op": "random_flip", "vertical": 0.5}],
    [
        DECODE,
        {"op": "center_crop", "size": [7, 7]},
        {"op": "normalize", "mean": [10, 120, 130], "std": [58, 57, 3]},
    ],
    [DECODE, {"op": "random_resized_crop", "size": [32, 40]}],
    [DECODE, {"op": "random_resized_crop", "size": [32, 40], "antialias": False}, {"op": "random_flip"}],
    [
        DECODE,
        {"op": "random_resized_crop", "size": [23, 17], "interpolation": "bicubic"},
        {"op": "random_flip", "vertical": 1},
        {"op": "normalize", "mean": [1, 2, 3], "std": [4, 5, 6]},
        {"op": "transpose_image"},
    ],
    [
        DECODE,
        {"op": "resize", "size": [40, 50]},
        {"op": "center_crop", "size": [33, 31]},
        {"op": "random_flip"},
        {"op": "transpose_image"},
    ],
    [
        DECODE,
        {"op": "resize", "size": [20, 50], "interpolation": "nearest"},
        {"op": "random_crop", "size": [5, 50]},
        {"op": "random_flip"},
    ],
    [
        {"op": "decode_image", "channels": 0},
        {"op": "random_crop", "size": [9, 9]},
        {"op": "resize", "size": [30, 30]},
        {"op": "random_flip"},
    ],
    [
        {"op": "decode_image", "channels": 1},
        {"op": "random_resized_crop", "size": [30, 20]},
        {"op": "normalize", "mean": 5, "std": 2, "dtype": "float16"},
    ],
    [
        {"op": "decode_image", "dtype": "uint16"},
        {"op": "random_resized_crop", "size": [30, 20]},
        {"op": "normalize", "mean": [5, 5, 5], "std": [2, 2, 9]},
        {"op": "cast", "dtype": "bfloat16"},
    ],
    [
        DECODE,
        {"op": "random_flip"},
        {"op": "normalize", "mean": [5, 5, 5], "std": [2, 2, 9]},
        {"op": "transpose_image"},
        {"op": "cast", "dtype": "float16"},
    ],
    [
        {"op": "decode_image", "channels": 4},
        {"op": "random_flip", "vertical": 0.5},
        {"op": "cast", "dtype": "float32"},
        {"op": "transpose_image"},
    ],
]


@pytest.mark.parametrize("ops", RUNS, ids=lambda ops: "+".join(o["op"] for o in ops))
def test_fused_equals_unfused(images, tmp_path, ops):
    blobs = [b for _, b in images]
    try:
        fused, plain = run(ops, blobs, tmp_path), run(ops, blobs, tmp_path, fused=False)
    except subprocess.CalledProcessError:
        if any(o["op"] == "cast" for o in ops):
            pytest.skip("cast is not built into the tool")
        raise
    for (name, _), f, p in zip(images, fused, plain):
        assert type(f) is type(p) and (
            f == p if isinstance(f, Failure) else f.dtype == p.dtype and np.array_equal(f, p)
        ), name
    assert sum(not isinstance(f, Failure) for f in fused) > 100


def test_oriented_crops(tmp_path):
    blobs = []
    for orientation, (h, w), sub in itertools.product(range(1, 9), [(67, 53), (40, 90)], (0, 1, 2)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for progressive in (False, True):
            blobs.append(
                saved(
                    Image.fromarray(picture(h, w, 3)),
                    "JPEG",
                    quality=90,
                    subsampling=sub,
                    exif=exif,
                    progressive=progressive,
                )
            )
    for ops in (
        [DECODE, {"op": "random_crop", "size": [11, 13]}],
        [DECODE, {"op": "random_resized_crop", "size": [15, 12]}, {"op": "random_flip"}],
    ):
        for f, p in zip(run(ops, blobs, tmp_path), run(ops, blobs, tmp_path, fused=False)):
            assert np.array_equal(f, p)


def test_center_crop_is_the_middle(images, tmp_path):
    whole = run([DECODE], blobs_of(images), tmp_path)
    cut = run([DECODE, {"op": "center_crop", "size": [15, 14]}], blobs_of(images), tmp_path)
    for a, b in zip(whole, cut):
        if a.shape[0] < 15 or a.shape[1] < 14:
            assert isinstance(b, Failure) and b.startswith("center_crop: ")
            continue
        y, x = (a.shape[0] - 15) // 2, (a.shape[1] - 14) // 2
        assert np.array_equal(b, a[y : y + 15, x : x + 14])


# ---- resizing ----

RESIZES = [(1, 1), (5, 3), (16, 16), (33, 70), (64, 47), (224, 200), (1, 90), (75, 101)]


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("simd", ["", "avx2", "c"])
def test_resize_equals_the_model(tmp_path, interpolation, antialias, simd):
    for channels, dtype in ((1, "uint8"), (3, "uint8"), (4, "uint8"), (3, "uint16")):
        arrays = [
            picture(h, w, channels, bits=16 if dtype == "uint16" else 8) for h, w in SIZES + [(300, 311)]
        ]
        color = {1: 0, 3: 2, 4: 6}[channels]
        blobs = [png(a, color, 16 if dtype == "uint16" else 8, False) for a in arrays]
        for h, w in RESIZES if dtype == "uint8" else RESIZES[:4]:
            ops = [
                {"op": "decode_image", "channels": channels, "dtype": dtype},
                {"op": "resize", "size": [h, w], "interpolation": interpolation, "antialias": antialias},
            ]
            for a, got in zip(arrays, run(ops, blobs, tmp_path, env={"CACHEW_SIMD": simd} if simd else None)):
                assert np.array_equal(got, resize_model(a, h, w, interpolation, antialias)), (
                    a.shape,
                    h,
                    w,
                    dtype,
                )


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_antialiased_resize_equals_pillow(tmp_path, interpolation):
    how = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}[interpolation]
    arrays = [
        picture(h, w, 3, seed=s) for h, w in SIZES + [(300, 280), (500, 375), (700, 11)] for s in range(2)
    ]
    blobs = [png(a, 2, 8, False) for a in arrays]
    for h, w in RESIZES + [(224, 224)]:
        got = run([DECODE, {"op": "resize", "size": [h, w], "interpolation": interpolation}], blobs, tmp_path)
        for a, g in zip(arrays, got):
            # Pillow 13 resizes vertically first when the height shrinks much more than the width; before, and
            # here, it is always the other way.
            rows = Image.fromarray(a).resize((w, a.shape[0]), how)
            assert np.array_equal(g, np.array(rows.resize((w, h), how))), (a.shape, h, w)
            if interpolation != "bicubic":
                whole = np.array(Image.fromarray(a).resize((w, h), how))
                assert np.abs(g.astype(int) - whole.astype(int)).max() <= 1, (a.shape, h, w)


@pytest.mark.skipif(cv2 is None, reason="no OpenCV")
def test_plain_bilinear_is_within_1_of_opencv(tmp_path):
    arrays = [
        picture(h, w, 3, seed=s) for h, w in SIZES + [(300, 280), (500, 375), (700, 11)] for s in range(2)
    ]
    blobs = [png(a, 2, 8, False) for a in arrays]
    for h, w in RESIZES + [(224, 224)]:
        got = run([DECODE, {"op": "resize", "size": [h, w], "antialias": False}], blobs, tmp_path)
        for a, g in zip(arrays, got):
            want = cv2.resize(a, (w, h), interpolation=cv2.INTER_LINEAR)
            assert np.abs(g.astype(int) - want.astype(int)).max() <= 1, (a.shape, h, w)


@pytest.mark.parametrize("simd", ["", "avx2", "c"])
def test_normalize(tmp_path, simd):
    mean, std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
    arrays = [picture(h, w, 3) for h, w in SIZES]
    blobs = [png(a, 2, 8, False) for a in arrays]
    env = {"CACHEW_SIMD": simd} if simd else None
    for chw in (False, True):
        ops = [DECODE, {"op": "normalize", "mean": mean, "std": std}] + (
            [{"op": "transpose_image"}] if chw else []
        )
        for a, got in zip(arrays, run(ops, blobs, tmp_path, env=env)):
            want = (a.astype(np.float32) - np.float32(mean)) / np.float32(std)
            assert np.array_equal(got, want.transpose(2, 0, 1) if chw else want)
    for a, got in zip(arrays, run([DECODE, {"op": "transpose_image"}], blobs, tmp_path, env=env)):
        assert np.array_equal(got, a.transpose(2, 0, 1))


# ---- damage ----


def test_damaged_jpegs_fail_by_the_rule(tmp_path):
    blob = saved(
        Image.fromarray(picture(160, 120, 3)), "JPEG", quality=90, subsampling=2, restart_marker_blocks=8
    )
    start = blob.index(b"\xff\xda")
    marks = [i for i in range(start, len(blob) - 1) if blob[i] == 0xFF and 0xD0 <= blob[i + 1] <= 0xD7]
    assert len(marks) == 9  # a restart after each row of 8 MCUs: rows 0 .. 9

    def broken(row):
        """The entropy-coded data of one row of MCUs cut short by one third."""
        begin = marks[row - 1] + 2 if row else start + 14
        end = marks[row] if row < 9 else len(blob) - 2
        return blob[: begin + (end - begin) * 2 // 3] + blob[end:]

    cases = {
        "whole": blob,
        "trailing": blob + b"abc\x00\xff",
        "no eoi": blob[:-2],
        "half": blob[: len(blob) // 2],
        "row 0": broken(0),
        "row 4": broken(4),
        "row 5": broken(5),
        "row 9": broken(9),
    }
    names = list(cases)
    crop = {"op": "center_crop", "size": [32, 32]}  # rows 64 .. 95: rows of MCUs 4 and 5
    for fused in (True, False):
        whole = dict(zip(names, run([DECODE], list(cases.values()), tmp_path, fused)))
        assert [n for n in names if not isinstance(whole[n], Failure)] == ["whole", "trailing"]
        cut = dict(zip(names, run([DECODE, crop], list(cases.values()), tmp_path, fused)))
        assert [n for n in names if not isinstance(cut[n], Failure)] == ["whole", "trailing", "row 9"]
        later = dict(
            zip(names, run([DECODE, {"op": "random_flip"}, crop], list(cases.values()), tmp_path, fused))
        )
        assert [n for n in names if not isinstance(later[n], Failure)] == ["whole", "trailing"]
        assert all(
            v.startswith("decode_image: damaged JPEG") for v in later.values() if isinstance(v, Failure)
        )


def test_cut_and_flipped_bits_never_differ_by_fusion(tmp_path):
    rng = np.random.default_rng(5)
    blobs = []
    for sub, progressive in itertools.product((0, 1, 2), (False, True)):
        for restart in (0, 5):
            good = saved(
                Image.fromarray(picture(90, 110, 3)),
                "JPEG",
                quality=80,
                subsampling=sub,
                progressive=progressive,
                restart_marker_blocks=restart,
            )
            for _ in range(40):
                bad = bytearray(good)
                for _ in range(int(rng.integers(1, 4))):
                    bad[int(rng.integers(20, len(bad)))] ^= 1 << int(rng.integers(0, 8))
                if rng.integers(0, 4) == 0:
                    at = int(rng.integers(200, len(bad)))
                    bad = bad[:at] + b"\xff\xd9"
                blobs.append(bytes(bad))
    for ops in (
        [DECODE, {"op": "random_crop", "size": [20, 30]}],
        [DECODE, {"op": "random_resized_crop", "size": [20, 30], "scale": [0.02, 0.3]}],
        [DECODE, {"op": "resize", "size": [20, 30]}, {"op": "center_crop", "size": [5, 5]}],
    ):
        fused, plain = run(ops, blobs, tmp_path), run(ops, blobs, tmp_path, fused=False)
        assert 20 < sum(isinstance(f, Failure) for f in fused) < len(blobs) - 20
        for f, p in zip(fused, plain):
            assert type(f) is type(p) and (f == p if isinstance(f, Failure) else np.array_equal(f, p))


def test_what_is_refused(tmp_path):
    bomb = (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + b"IHDR"
        + struct.pack(">IIBBBBB", 100000, 100000, 8, 6, 0, 0, 0)
    )
    bomb += (
        struct.pack(">I", zlib.crc32(bomb[12:29]))
        + struct.pack(">I", 0)
        + b"IDAT"
        + struct.pack(">I", zlib.crc32(b"IDAT"))
    )
    frames = [Image.fromarray(picture(20, 20, 3, seed=s)) for s in range(3)]
    animated = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=50)
    good = {k: saved(frames[0], k) for k in ("JPEG", "PNG", "WEBP")}
    cases = {
        "empty": b"",
        "text": b"hello world",
        "bomb": bomb,
        "animated": animated,
        "half png": good["PNG"][: len(good["PNG"]) // 2],
        "half webp": good["WEBP"][: len(good["WEBP"]) // 2],
        "gif": saved(frames[0], "GIF"),
        "soi": b"\xff\xd8\xff",
    }
    for name, got in zip(cases, run([DECODE], list(cases.values()), tmp_path)):
        assert isinstance(got, Failure) and got.startswith("decode_image: "), name
    for got in run([{"op": "decode_image", "max_pixels": 399}], list(good.values()), tmp_path):
        assert isinstance(got, Failure) and "expected at most max_pixels, 399" in got
    for got in run([{"op": "decode_image", "max_pixels": 400}], list(good.values()), tmp_path):
        assert not isinstance(got, Failure)
