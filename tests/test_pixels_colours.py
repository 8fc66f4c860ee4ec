"""Operators that change colours, against independent implementations.

uint8 images are compared with Pillow, called as torchvision calls it for Pillow images, bit for bit; float32
images with the NumPy formulas of the reference model. The draws are those of docs/randomness.md."""

import json
import subprocess

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("PIL")
from command import cachew, write  # noqa: E402
from example_data import CACHEW, jpeg  # noqa: E402
from model import colours, philox  # noqa: E402
from PIL import Image, ImageEnhance, ImageOps  # noqa: E402
from test_pixels import Failure, picture, png, run  # noqa: E402

DECODE = {"op": "decode_image", "component": "image"}
GREY = {**DECODE, "channels": 1}
AS_FLOAT = {"op": "normalize", "component": "image", "mean": 0, "std": 255}
SIZES = [(1, 1), (1, 7), (2, 5), (3, 3), (17, 15), (75, 101)]


# ---- Pillow ----


def adjust_hue(image, shift):
    """The value of a hue moves by the whole part of 255 shift, and wraps around."""
    if image.mode == "L":
        return image
    h, s, v = image.convert("HSV").split()
    moved = ((np.asarray(h).astype(np.int64) + int(shift * 255)) % 256).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(moved), s, v)).convert("RGB")


CHANGES = {
    "brightness": lambda image, f: ImageEnhance.Brightness(image).enhance(f),
    "contrast": lambda image, f: ImageEnhance.Contrast(image).enhance(f),
    "saturation": lambda image, f: ImageEnhance.Color(image).enhance(f),
    "hue": adjust_hue,
}


def grayscale(image, channels):
    grey = image.convert("L")
    return grey if channels == 1 else Image.merge("RGB", [grey] * 3)


PILLOW = {
    "invert": ImageOps.invert,
    "posterize": lambda image, bits: ImageOps.posterize(image, bits),
    "solarize": lambda image, threshold: ImageOps.solarize(image, threshold),
    "equalize": ImageOps.equalize,
    "autocontrast": ImageOps.autocontrast,
    "adjust_sharpness": lambda image, f: ImageEnhance.Sharpness(image).enhance(f),
    "grayscale": grayscale,
}
# (operator, its attributes in the order of the arguments)
SINGLE = [
    ("invert", {}),
    *[("posterize", {"bits": bits}) for bits in range(1, 9)],
    *[("solarize", {"threshold": t}) for t in (0, 1, 127.5, 128, 255, 256)],
    ("equalize", {}),
    ("autocontrast", {}),
    *[("adjust_sharpness", {"sharpness_factor": f}) for f in (0, 0.3, 1, 1.7, 2, 20)],
    *[("grayscale", {"num_output_channels": n}) for n in (1, 3)],
]
FACTORS = [0, 0.25, 0.999, 1, 1.3, 7.5]
JITTERS = [(name, f) for name in ("brightness", "contrast", "saturation") for f in FACTORS] + [
    ("hue", f) for f in (-0.5, -0.31, -0.001, 0, 0.02, 0.25, 0.5)
]


def every_colour():
    """Each fourth value, and 255, in each channel, with each other."""
    values = np.append(np.arange(0, 255, 4), 255).astype(np.uint8)
    return np.stack(np.meshgrid(values, values, values), axis=-1).reshape(65, -1, 3)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    """Images [height, width, 3]: photographs of the demo, pictures of every shape with few values and with
    many, one value, every colour.
    """
    directory = tmp_path_factory.mktemp("photos") / "photos"
    subprocess.run([CACHEW, "photos", directory, "--count", "2"], check=True, capture_output=True)
    photographs = [np.array(Image.open(path).convert("RGB")) for path in sorted(directory.rglob("*.jpg"))]
    assert len(photographs) == 2
    pictures = [picture(h, w, 3) for h, w in SIZES]
    flat = [picture(30, 20, 3) // 9 + 40, picture(30, 20, 3) // 200 * 31, np.full((5, 6, 3), 77, np.uint8)]
    two = np.zeros((20, 20, 3), np.uint8)
    two[3, 4], two[:, :, 1] = 255, 9  # one pixel of another value: a step of 1 gives values beyond 255
    return [*photographs, *pictures, *flat, two, every_colour()]


def encoded(arrays):
    return [png(array, {1: 0, 3: 2}[array.shape[2]], 8, False) for array in arrays]


def greys(arrays):
    return [array[:, :, :1] for array in arrays]


def of_pillow(change, array, *arguments):
    image = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    result = np.array(change(image, *arguments))
    return result[:, :, None] if result.ndim == 2 else result


def expect_equal(got, want, what):
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert not isinstance(g, Failure), (what, g)
        assert g.dtype == w.dtype and g.shape == w.shape, (what, g.shape, w.shape)
        assert np.array_equal(g, w), (what, w.shape, int((g != w).sum()))


@pytest.mark.parametrize("channels", [3, 1])
def test_uint8_is_pillow(arrays, tmp_path, channels):
    arrays = arrays if channels == 3 else greys(arrays)
    blobs = encoded(arrays)
    decode = DECODE if channels == 3 else GREY
    for name, attributes in SINGLE:
        got = run([decode, {"op": name, **attributes}], blobs, tmp_path)
        want = [of_pillow(PILLOW[name], array, *attributes.values()) for array in arrays]
        expect_equal(got, want, (name, attributes))


@pytest.mark.parametrize("simd", ["", "avx2", "c"])
@pytest.mark.parametrize("change", list(CHANGES))
def test_jitter_of_one_amount_is_pillow(arrays, tmp_path, change, simd):
    env = {"CACHEW_SIMD": simd} if simd else None
    for channels in (3, 1):
        some = arrays if channels == 3 else greys(arrays)
        blobs = encoded(some)
        for name, f in JITTERS:
            if name != change or f == (0 if name == "hue" else 1):
                continue
            ops = [DECODE if channels == 3 else GREY, {"op": "color_jitter", name: [f, f]}]
            want = [of_pillow(CHANGES[name], array, f) for array in some]
            expect_equal(run(ops, blobs, tmp_path, env=env), want, (name, f, channels))


def drawn(position, element):
    """The draw of an element by the operator at this position, in pixel_tool."""
    return philox.Draw(1000003 * (position + 1), element)


def test_jitter_in_the_drawn_order_is_pillow(arrays, tmp_path):
    attributes = {"brightness": 0.4, "contrast": [0.2, 1.9], "saturation": [1.5], "hue": 0.3}
    arrays = [array for array in arrays for _ in range(6 if array.size < 50_000 else 1)]
    got = run([DECODE, {"op": "color_jitter", **attributes}], encoded(arrays), tmp_path)
    orders, want = set(), []
    for element, array in enumerate(arrays):
        steps = colours.jitter_steps(attributes, drawn(1, element))
        orders.add(tuple(name for name, _ in steps))
        image = Image.fromarray(array)
        for name, amount in steps:
            image = CHANGES[name](image, amount)
        want.append(np.array(image))
    expect_equal(got, want, attributes)
    assert len(orders) > 12


def test_jitters_are_drawn_from_their_ranges():
    """Amounts are uniform, orders equally frequent: mean and range over 4,000 elements."""
    attributes = {"brightness": 0.4, "contrast": 2, "saturation": [1.5, 1.75], "hue": 0.25}
    ranges = {"brightness": (0.6, 1.4), "contrast": (0, 3), "saturation": (1.5, 1.75), "hue": (-0.25, 0.25)}
    amounts, firsts = {name: [] for name in ranges}, []
    for element in range(4000):
        steps = colours.jitter_steps(attributes, drawn(1, element))
        firsts.append(steps[0][0])
        for name, amount in steps:
            amounts[name].append(amount)
    for name, (low, high) in ranges.items():
        assert len(amounts[name]) == 4000
        assert low <= min(amounts[name]) < low + (high - low) / 100
        assert high - (high - low) / 100 < max(amounts[name]) <= high
        assert abs(np.mean(amounts[name]) - (low + high) / 2) < (high - low) * 0.02
        assert abs(firsts.count(name) - 1000) < 150


@pytest.mark.parametrize("channels", [3, 1])
def test_float32_is_the_formula(arrays, tmp_path, channels):
    arrays = [a for a in arrays if a.size < 100_000] if channels == 3 else greys(arrays[2:-1])
    blobs = encoded(arrays)
    decode = [DECODE if channels == 3 else GREY, AS_FLOAT]
    floats = run(decode, blobs, tmp_path)
    assert all(f.dtype == np.float32 and f.max() <= 1 for f in floats)
    single = [
        ({"op": name, **attributes}, getattr(colours, name), [*attributes.values()])
        for name, attributes in SINGLE
        if name not in ("posterize", "equalize", "solarize")
    ]
    single += [({"op": "solarize", "threshold": t}, colours.solarize, [t]) for t in (0, 0.2, 128 / 255, 1)]
    single += [
        ({"op": "color_jitter", name: [f, f]}, colours.CHANGES[name], [f])
        for name, f in JITTERS
        if f != (0 if name == "hue" else 1)
    ]
    for op, change, arguments in single:
        got = run([*decode, op], blobs, tmp_path)
        expect_equal(got, [change(f, *arguments) for f in floats], op)


def test_float32_is_near_uint8(arrays, tmp_path):
    """The two definitions say the same: float32 results are within 1.6/255 of uint8's, which are truncated.
    (Hues of uint8 are coarser: there are only 256.)
    """
    blobs = encoded(arrays)
    ops = [
        {"op": "invert"},
        {"op": "adjust_sharpness", "sharpness_factor": 1.7},
        {"op": "grayscale", "num_output_channels": 3},
        {"op": "autocontrast"},
        *({"op": "color_jitter", name: [0.8, 0.8]} for name in ("brightness", "contrast", "saturation")),
    ]
    for op in ops:
        for a, b in zip(run([DECODE, op], blobs, tmp_path), run([DECODE, AS_FLOAT, op], blobs, tmp_path)):
            assert np.abs(a / 255 - b).max() < 1.6 / 255, op


def test_p_is_drawn_per_element(tmp_path):
    arrays = [picture(4, 5, 3)] * 200
    for name, attributes, p in (
        ("invert", {"p": 0.3}, 0.3),
        ("random_grayscale", {}, 0.1),
        ("random_grayscale", {"p": 0.6}, 0.6),
        ("posterize", {"bits": 1, "p": 0}, 0),
    ):
        got = run([DECODE, {"op": name, **attributes}], encoded(arrays), tmp_path)
        changed = [bool((g != arrays[0]).any()) for g in got]
        assert changed == [philox.uniform(drawn(1, e).word(0)) < p for e in range(200)]
        assert abs(sum(changed) - 200 * p) < 30
    grey = of_pillow(grayscale, arrays[0], 3)
    got = run([DECODE, {"op": "random_grayscale", "p": 1}], encoded(arrays[:2]), tmp_path)
    expect_equal(got, [grey, grey], "random_grayscale")


def test_beside_a_chain(arrays, tmp_path):
    """Between operators that are fused: the same as unfused, and as Pillow between the same two chains."""
    ops = [
        DECODE,
        {"op": "random_resized_crop", "size": [20, 24]},
        {"op": "random_flip"},
        {"op": "color_jitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
        {"op": "equalize", "p": 0.5},
        {"op": "normalize", "mean": [1, 2, 3], "std": [4, 5, 6]},
        {"op": "transpose_image"},
    ]
    blobs = [jpeg(Image.fromarray(array)) for array in arrays]
    expect_equal(run(ops, blobs, tmp_path), run(ops, blobs, tmp_path, fused=False), "fused")


# ---- what is refused ----


def synthetic(shape, dtype="uint8", count=3):
    return {"op": "synthetic", "count": count, "shape": shape, "dtype": dtype}


def failure(tmp_path, source, op, code=2):
    done = cachew("run", write(tmp_path / "pipeline.json", [source, {"component": "data", **op}]), "--json")
    assert done.code == code, (done.out, done.err)
    return json.loads(done.out.splitlines()[-1])["error"]


@pytest.mark.parametrize(
    "source, op, attribute, expected",
    [
        (
            synthetic([4, 5, 3], "uint16"),
            {"op": "invert"},
            "component",
            "uint8 or float32 with 1 or 3 channels",
        ),
        (synthetic([4, 5, 3], "float32"), {"op": "equalize"}, "component", "an image of uint8 with 1 or 3"),
        (synthetic([4, 5, 4]), {"op": "color_jitter"}, "component", 'but "data" is uint8[4,5,4]'),
        (synthetic([4]), {"op": "invert"}, "component", "an image [height, width, channels] or"),
        (synthetic([4, 5]), {"op": "grayscale"}, "component", "no channels"),
        (
            synthetic([4, 5, 3]),
            {"op": "grayscale", "num_output_channels": 2},
            "num_output_channels",
            "1 or 3",
        ),
        (synthetic([4, 5, 3]), {"op": "posterize", "bits": 9}, "bits", "from 0 to 8"),
        (synthetic([4, 5, 3]), {"op": "posterize"}, "bits", ""),
        (synthetic([4, 5, 3], "float32"), {"op": "solarize", "threshold": 128}, "threshold", "0 to 1"),
        (synthetic([4, 5, 3]), {"op": "invert", "p": 1.5}, "p", "from 0 to 1"),
        (synthetic([4, 5, 3]), {"op": "color_jitter", "brightness": -1}, "brightness", ""),
        (synthetic([4, 5, 3]), {"op": "color_jitter", "hue": 0.6}, "hue", "from -0.5 to 0.5"),
        (synthetic([4, 5, 3]), {"op": "color_jitter", "hue": -0.1}, "hue", "a number from 0 on"),
        (synthetic([4, 5, 3]), {"op": "color_jitter", "contrast": [2, 1]}, "contrast", "[least, greatest]"),
        (
            synthetic([4, 5, 3], "float32"),
            {"op": "trivial_augment"},
            "component",
            "an image of uint8 with 1 or 3",
        ),
        (
            synthetic([4, 5, 3]),
            {"op": "rand_augment", "magnitude": 31},
            "magnitude",
            "num_magnitude_bins, 31",
        ),
        (synthetic([4, 5, 3]), {"op": "auto_augment", "policy": "x"}, "policy", "imagenet"),
        (synthetic([4, 5, 3]), {"op": "adjust_sharpness", "sharpness_factor": -1}, "sharpness_factor", ""),
    ],
)
def test_what_is_refused(tmp_path, source, op, attribute, expected):
    error = failure(tmp_path, source, op)
    assert error["operator"] == op["op"] and error["attribute"] == attribute, error
    assert expected in error.get("expected", error["message"]), error


def test_images_of_other_channels_fail(arrays, tmp_path):
    blob = png(picture(5, 6, 4), 6, 8, False)
    (got,) = run([{**DECODE, "channels": 0}, {"op": "autocontrast"}], [blob], tmp_path)
    assert got == "autocontrast: an image of 4 channels: expected 1 or 3"


def test_without_pixels_fails(tmp_path):
    (tmp_path / "data.jsonl").write_text('{"data": []}\n')
    features = {"data": {"dtype": "uint8", "shape": [5, 3], "variable": True}}
    source = {"op": "jsonl", "files": "data.jsonl", "features": features}
    error = failure(tmp_path, source, {"op": "invert"}, code=1)
    assert "an image without pixels" in error["message"], error


# ---- what is not random ----


def test_a_cache_behind_a_certain_change_is_used(tmp_path):
    """With p = 1 nothing is drawn, so the elements are the same in every epoch."""
    for p, inert in ((1, False), (0.5, True)):
        chain = [
            synthetic([8, 9, 3], count=20),
            {"op": "invert", "component": "data", "p": p},
            {"op": "autocache"},
            {"op": "batch", "size": 4},
        ]
        done = cachew(
            "run",
            write(tmp_path / "pipeline.json", chain),
            "--epochs",
            "2",
            "--cache-dir",
            tmp_path / "cache",
        )
        assert done.code == 0, done.err
        assert ("draws new random numbers" in done.err) == inert, done.err
