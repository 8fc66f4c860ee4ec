"""random_erasing, pad_image and gaussian_blur against Pillow, NumPy, OpenCV and torch, doing what torchvision
does.

Runs the operators through tests/unit/pixel_tool, as test_pixels.py does."""

import io
import math

import pytest

np = pytest.importorskip("numpy")
PIL = pytest.importorskip("PIL")
from model.philox import Draw  # noqa: E402
from PIL import Image, ImageOps  # noqa: E402
from test_pixels import Failure, picture, run, saved  # noqa: E402
from test_pixels_geometry import refused  # noqa: E402

RGB = {"op": "decode_image"}
SIZES = [(9, 7), (40, 31), (64, 48)]
KEY = 2 * 1000003  # of the second operator of pixel_tool


def blobs(seeds=range(3)):
    images = [picture(h, w, 3, seed=seed) for h, w in SIZES for seed in seeds]
    return images, [saved(Image.fromarray(i), "PNG") for i in images]


def uniform(word):
    return (word >> 8) * 2.0**-24


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("padding", [0, 3, [2, 5], [6, 0, 1, 4], [0, 20, 13, 0]])
def test_padding_equals_torchvision(tmp_path, mode, padding):
    """torchvision pads Pillow images by ImageOps.expand, and in the other modes by np.pad."""
    images, files = blobs([0])
    found = run(
        [RGB, {"op": "pad_image", "padding": padding, "fill": [1, 2, 250], "padding_mode": mode}],
        files,
        tmp_path,
    )
    sides = padding if isinstance(padding, list) else [padding]
    left, top, right, bottom = (sides * 4)[:4] if len(sides) < 4 else sides
    for image, got in zip(images, found):
        if mode == "constant":
            pillow = ImageOps.expand(Image.fromarray(image), (left, top, right, bottom), (1, 2, 250))
            want = np.array(pillow)
        else:
            want = np.pad(image, [(top, bottom), (left, right), (0, 0)], mode)
        assert np.array_equal(got, want)


def erased(image, draw, p, scale, ratio):
    """torchvision's RandomErasing.get_params with given draws: y, x, h, w."""
    height, width = image.shape[:2]
    if not uniform(draw.word(0)) < p:
        return None
    for attempt in range(1, 11):
        words = draw.block(attempt)
        area = height * width * (scale[0] + (scale[1] - scale[0]) * uniform(words[0]))
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + (high - low) * uniform(words[1]))
        h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if h < height and w < width:
            return words[2] * (height - h + 1) >> 32, words[3] * (width - w + 1) >> 32, h, w
    return None


@pytest.mark.parametrize("scale, ratio", [([0.02, 0.33], [0.3, 3.3]), ([0.5, 1], [0.9, 9]), ([0, 0], [1, 1])])
def test_erasing_equals_torchvision(tmp_path, scale, ratio):
    images, files = blobs(range(8))
    op = {"op": "random_erasing", "p": 0.7, "scale": scale, "ratio": ratio, "value": [9, 8, 7]}
    n_erased = 0
    for number, (image, got) in enumerate(zip(images, run([RGB, op], files, tmp_path))):
        want = image.copy()
        rect = erased(image, Draw(KEY, number), 0.7, scale, ratio)
        if rect:
            y, x, h, w = rect
            want[y : y + h, x : x + w] = [9, 8, 7]
            n_erased += h * w > 0
        assert np.array_equal(got, want)
    assert 0 < n_erased < len(images) or scale == [0, 0]


def blurred(image, taps, sigma):
    """In double precision."""
    result = image.astype(np.float64)
    for axis, n in ((1, taps[0]), (0, taps[1])):
        x = np.arange(n) - n // 2
        w = np.exp(-0.5 * (x / sigma) ** 2)
        around = [(n // 2, n // 2) if a == axis else (0, 0) for a in range(3)]
        padded = np.pad(result, around, "reflect")
        windows = np.lib.stride_tricks.sliding_window_view(padded, n, axis)
        result = windows @ (w / w.sum())
    return result


@pytest.mark.parametrize("taps", [[1, 1], [3, 3], [5, 9], [13, 1]])
def test_blur_is_the_gaussian(tmp_path, taps):
    images, files = blobs()
    fixed = run([RGB, {"op": "gaussian_blur", "kernel_size": taps, "sigma": 1.3}], files, tmp_path)
    drawn = run([RGB, {"op": "gaussian_blur", "kernel_size": taps}], files, tmp_path)
    for number, image in enumerate(images):
        sigma = 0.1 + 1.9 * uniform(Draw(KEY, number).word(0))
        if taps[0] // 2 >= image.shape[1] or taps[1] // 2 >= image.shape[0]:
            assert isinstance(fixed[number], Failure) and "too small for a kernel" in fixed[number]
            continue
        for got, width in ((fixed[number], 1.3), (drawn[number], sigma)):
            assert np.abs(got - blurred(image, taps, width)).max() <= 0.5001


def test_blur_of_floats(tmp_path):
    images, files = blobs([1])
    normal = {"op": "normalize", "mean": [128, 128, 128], "std": [50, 50, 50]}
    found = run([RGB, normal, {"op": "gaussian_blur", "kernel_size": 7, "sigma": 2}], files, tmp_path)
    for image, got in zip(images, found):
        assert got.dtype == np.float32
        assert np.abs(got - blurred((image - 128.0) / 50, [7, 7], 2)).max() < 1e-5


def test_blur_is_near_opencv(tmp_path):
    cv2 = pytest.importorskip("cv2")
    images, files = blobs([2])
    found = run([RGB, {"op": "gaussian_blur", "kernel_size": [5, 7], "sigma": 1.5}], files, tmp_path)
    for image, got in zip(images, found):
        want = cv2.GaussianBlur(image, (5, 7), 1.5, borderType=cv2.BORDER_REFLECT_101)
        assert np.abs(got.astype(int) - want).max() <= 1


REFUSED = [
    ([RGB, {"op": "pad_image", "padding": [1, 2, 3]}], "padding is [1,2,3]: expected a number, [x, y], or"),
    ([RGB, {"op": "pad_image", "padding": 1, "fill": -1}], "fill is -1: expected values that uint8 has"),
    ([RGB, {"op": "pad_image", "padding": 1, "padding_mode": "wrap"}], "padding_mode is"),
    ([RGB, {"op": "random_erasing", "scale": [0.5, 0.25]}], "scale is [0.5,0.25]: expected [low, high]"),
    ([RGB, {"op": "random_erasing", "ratio": [2, 1]}], "ratio is [2,1]: expected [low, high]"),
    ([RGB, {"op": "random_erasing", "value": [1, 2]}], "value is [1,2]: expected 3 values"),
    ([RGB, {"op": "gaussian_blur", "kernel_size": 4}], "kernel_size is 4: expected odd numbers"),
    (
        [RGB, {"op": "gaussian_blur", "kernel_size": 3, "sigma": [2, 1]}],
        "sigma is [2,1]: expected [low, high]",
    ),
    ([RGB, {"op": "cast", "dtype": "int64"}, {"op": "gaussian_blur", "kernel_size": 3}], "uint8 or float32"),
]


@pytest.mark.parametrize("ops, message", REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_attributes(tmp_path, ops, message):
    assert message in refused(ops, tmp_path)


def test_channels_that_vary(tmp_path):
    grey = io.BytesIO()
    Image.fromarray(picture(9, 9, 1)[:, :, 0]).save(grey, "PNG")
    op = {"op": "pad_image", "padding": 1, "fill": [1, 2, 3]}
    (got,) = run([{"op": "decode_image", "channels": 0}, op], [grey.getvalue()], tmp_path)
    assert got == "pad_image: an image of 1 channels, but there are 3 values to fill with"
