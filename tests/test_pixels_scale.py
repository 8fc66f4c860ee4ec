"""decode_image with scale "auto" against Pillow, whose draft mode decodes a JPEG at a part of its size.

Runs the operators through tests/unit/pixel_tool, as test_pixels.py does."""

import io

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("PIL")
from model import geometry, images  # noqa: E402
from model.philox import Draw  # noqa: E402
from PIL import Image  # noqa: E402
from test_pixels import picture, run, saved  # noqa: E402
from test_pixels_geometry import refused  # noqa: E402

AUTO = {"op": "decode_image", "scale": "auto"}
KEY = 2 * 1000003  # of the second operator of pixel_tool
CROP = {"scale": [0.08, 1], "ratio": [0.75, 1.3333], "interpolation": "bilinear", "antialias": True}


def photographs():
    """JPEGs of several samplings, scans and orientations, and a PNG."""
    found = []
    for k, (height, width) in enumerate([(97, 130), (64, 64), (33, 200), (160, 121), (17, 23), (150, 150)]):
        image = Image.fromarray(picture(height, width, 3, seed=k))
        exif = Image.Exif()
        exif[0x0112] = (1, 6, 3, 5, 8, 1)[k]
        data = io.BytesIO()
        image.save(data, "JPEG", quality=60 + 6 * k, subsampling=k % 3, progressive=k == 3, exif=exif)
        found.append(data.getvalue())
    return [*found, saved(Image.fromarray(picture(99, 80, 3)), "PNG")]


def expected(data, op, number):
    size = [op["size"]] * 2 if isinstance(op["size"], int) else op["size"]
    cut, draw, chosen = geometry.CUTS[op["op"]], Draw(KEY, number), []

    def reduced_by(height, width):
        _y, _x, h, w = cut(CROP, height, width, draw)
        chosen.append(1)
        while chosen[-1] < 8 and h >= 2 * chosen[-1] * size[0] and w >= 2 * chosen[-1] * size[1]:
            chosen.append(2 * chosen[-1])
        return chosen[-1]

    pixels = images.decode(data, 3, "uint8", True, 1 << 28, reduced_by)
    part = images.crop(pixels, *cut(CROP, *pixels.shape[:2], draw))
    return images.resize(part, size, "bilinear", True), chosen[-1] if chosen else 1


@pytest.mark.parametrize("name", ["resize", "random_resized_crop"])
def test_reduced_images_are_pillows(tmp_path, name):
    files, factors = photographs(), set()
    for size in (7, [12, 20], 40):
        op = {"op": name, "size": size}
        found = [run([AUTO, op], files, tmp_path, fused) for fused in (True, False)]
        for number, data in enumerate(files):
            want, factor = expected(data, op, number)
            factors.add(factor)
            for got in found:
                assert np.array_equal(got[number], want)
    assert factors == {1, 2, 4, 8}


def test_only_a_resize_that_follows_directly_reduces(tmp_path):
    files = photographs()
    for between in ({"op": "random_flip"}, {"op": "center_crop", "size": [16, 16]}):
        then = [between, {"op": "resize", "size": [5, 5]}]
        full, auto = (run([decode, *then], files, tmp_path) for decode in ({"op": "decode_image"}, AUTO))
        assert all(np.array_equal(a, b) for a, b in zip(full, auto))
    whole = run([AUTO], files, tmp_path)
    assert all(np.array_equal(a, b) for a, b in zip(run([{"op": "decode_image"}], files, tmp_path), whole))


def test_annotations_would_lie_in_another_image(tmp_path):
    message = refused([AUTO, {"op": "resize", "size": [5, 5], "boxes": ["box"]}], tmp_path)
    assert 'scale is "auto": expected "full", because resize moves boxes' in message
    assert 'scale is "half"' in refused([{"op": "decode_image", "scale": "half"}], tmp_path)
