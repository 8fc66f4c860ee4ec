"""Geometric image operators against Pillow, which torchvision calls, and against OpenCV.

Runs the operators through tests/unit/pixel_tool, as test_pixels.py does."""

import io
import json
import math
import random
import subprocess

import pytest

np = pytest.importorskip("numpy")
PIL = pytest.importorskip("PIL")
from example_data import CACHEW  # noqa: E402
from model.philox import Draw  # noqa: E402
from PIL import Image  # noqa: E402
from test_pixels import Failure, picture, run, saved, tool_path  # noqa: E402

try:
    import cv2
except ImportError:
    cv2 = None

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
SIZES = [(1, 1), (1, 7), (9, 1), (17, 15), (64, 48), (97, 131)]
ANGLES = [0, 90, 180, -90, 45, 17.3, 359.999]
DECODE = {"op": "decode_image", "channels": 0}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Pillow images of one and three channels, and their files: generated ones, and two photographs."""
    made = [Image.fromarray(picture(h, w, 3)) for h, w in SIZES]
    made += [Image.fromarray(picture(h, w, 1)[:, :, 0]) for h, w in SIZES]
    folder = tmp_path_factory.mktemp("photos")
    subprocess.run([CACHEW, "photos", folder, "--count", "2"], check=True, capture_output=True)
    photos = sorted(folder.glob("**/*.jpg"))
    assert len(photos) == 2
    made += [Image.open(p).convert("RGB").resize((140, 90)) for p in photos]
    return [(image, saved(image, "PNG")) for image in made]


def array(image):
    pixels = np.array(image)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def compare(op, pictures, wanted, tmp_path, **options):
    """op gives the images that `wanted` makes of Pillow images; it also gets their numbers."""
    found = run([DECODE, op], [blob for _, blob in pictures], tmp_path, **options)
    for number, ((image, _), got) in enumerate(zip(pictures, found)):
        want = wanted(image, number)
        assert not isinstance(got, Failure), got
        assert got.shape == array(want).shape
        assert np.array_equal(got, array(want)), (op, got.shape, np.mean(got != array(want)))


def fill_of(image, fill):
    return tuple(fill) if isinstance(fill, list) else (fill,) * len(image.getbands())


def transformed(image, method, m, interpolation, fill):
    return image.transform(image.size, method, m, FILTERS[interpolation], fillcolor=fill_of(image, fill))


def inverse_affine(center, angle, translate, scale, shear):
    """torchvision's matrix for Image.transform."""
    rot, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a = math.cos(rot - sy) / math.cos(sy)
    b = -math.cos(rot - sy) * math.tan(sx) / math.cos(sy) - math.sin(rot)
    c = math.sin(rot - sy) / math.cos(sy)
    d = -math.sin(rot - sy) * math.tan(sx) / math.cos(sy) + math.cos(rot)
    m = [v / scale for v in (d, -b, 0.0, -c, a, 0.0)]
    m[2] += m[0] * (-center[0] - translate[0]) + m[1] * (-center[1] - translate[1]) + center[0]
    m[5] += m[3] * (-center[0] - translate[0]) + m[4] * (-center[1] - translate[1]) + center[1]
    return m


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("expand", [False, True])
def test_rotation_equals_pillow(pictures, tmp_path, interpolation, expand):
    rng = random.Random(1)
    angles = [*ANGLES, rng.uniform(-360, 360)]
    for angle, center in [*((a, []) for a in angles), (90, [3, 5.5]), (angles[-1], [9, 2])]:
        fill = rng.choice([0, 77])
        op = {"op": "rotate", "angle": angle, "interpolation": interpolation, "expand": expand}

        def wanted(image, _number, angle=angle, center=center, fill=fill):
            around = tuple(center) or None
            return image.rotate(angle, FILTERS[interpolation], expand, around, fillcolor=fill_of(image, fill))

        compare(op | {"fill": fill, "center": center}, pictures, wanted, tmp_path)


@pytest.mark.parametrize("interpolation", FILTERS)
def test_affine_equals_pillow(pictures, tmp_path, interpolation):
    """With a matrix from libm's functions, whose last bits may differ: coordinates then differ by 1e-12."""
    rng = random.Random(2)
    for k in range(8):
        angle = rng.choice([0, 30, rng.uniform(-180, 180)])
        translate = [rng.randint(-20, 20), rng.randint(-9, 9)]
        scale = rng.choice([1, 0.5, 2, rng.uniform(0.2, 3)])
        shear = rng.choice([[0, 0], [20, 0], [rng.uniform(-40, 40), rng.uniform(-40, 40)]])
        op = {"op": "affine", "angle": angle, "translate": translate, "scale": scale, "shear": shear}
        op |= {"interpolation": interpolation, "fill": 9} | ({"center": [4, 2]} if k % 3 == 0 else {})

        def wanted(image, _number, op=op):
            center = op.get("center", [image.width * 0.5, image.height * 0.5])
            m = inverse_affine(center, op["angle"], op["translate"], op["scale"], op["shear"])
            return transformed(image, Image.Transform.AFFINE, m, interpolation, 9)

        compare(op, pictures, wanted, tmp_path)


def test_simd(pictures, tmp_path):
    op = {"op": "rotate", "angle": 33, "interpolation": "bilinear"}
    for simd in ("c", "avx2", "avx512"):
        compare(
            op,
            pictures,
            lambda image, _: image.rotate(33, Image.Resampling.BILINEAR),
            tmp_path,
            env={"CACHEW_SIMD": simd},
        )


@pytest.mark.parametrize("interpolation", FILTERS)
def test_float32_equals_pillow(tmp_path, interpolation):
    """Each channel as an image of Pillow's mode F."""
    for h, w in SIZES:
        pixels = picture(h, w, 3)
        ops = [
            DECODE,
            {"op": "normalize", "mean": [120, 110, 100], "std": [60, 50, 37]},
            {"op": "rotate", "angle": 25, "interpolation": interpolation, "fill": 0.1},
        ]
        (got,) = run(ops, [saved(Image.fromarray(pixels), "PNG")], tmp_path)
        values = (pixels.astype(np.float32) - np.float32([120, 110, 100])) / np.float32([60, 50, 37])
        for c in range(3):
            plane = Image.fromarray(np.ascontiguousarray(values[:, :, c]))
            want = np.array(plane.rotate(25, FILTERS[interpolation], fillcolor=0.1))
            assert np.array_equal(got[:, :, c], want)


def coefficients(corners, width, height):
    """torchvision's: the solution of a system in double precision, rounded to float32."""
    rows, sides = [], []
    ends = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
    for (x, y), (u, v) in zip(corners, ends):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        sides += [u, v]
    return [float(v) for v in np.linalg.solve(np.array(rows, float), np.array(sides, float)).astype("f4")]


def drawn_corners(draw, width, height, distortion):
    across, down = int(distortion * (width // 2)), int(distortion * (height // 2))
    words = [draw.word(1 + k) for k in range(8)]
    x = [words[2 * k] * (across + 1) >> 32 for k in range(4)]
    y = [words[2 * k + 1] * (down + 1) >> 32 for k in range(4)]
    right, bottom = width - 1 - across, height - 1 - down
    return [
        (x[0], y[0]),
        (right + x[1], y[1]),
        (right + x[2], bottom + y[2]),
        (x[3], bottom + y[3]),
    ]


@pytest.mark.parametrize("interpolation", FILTERS)
def test_perspective_equals_pillow(pictures, tmp_path, interpolation):
    large = [(image, blob) for image, blob in pictures if min(image.size) > 10]
    for distortion in (0, 0.3, 1):
        op = {"op": "random_perspective", "distortion_scale": distortion, "p": 1}
        op |= {"interpolation": interpolation, "fill": 50}

        def wanted(image, number, distortion=distortion):
            corners = drawn_corners(Draw(2 * 1000003, number), *image.size, distortion)
            m = coefficients(corners, *image.size)
            return transformed(image, Image.Transform.PERSPECTIVE, m, interpolation, 50)

        compare(op, large, wanted, tmp_path)


@pytest.mark.skipif(cv2 is None, reason="could not import cv2")
def test_rotation_is_near_opencv(tmp_path):
    """OpenCV has another arithmetic (coordinates of 1/32 pixel): away from the edges, smooth images differ
    by a few values.
    """
    y, x = np.mgrid[0:120, 0:160]
    pixels = np.stack([x, 2 * y, x // 2 + y], -1).astype(np.uint8)
    (got,) = run(
        [DECODE, {"op": "rotate", "angle": 20, "interpolation": "bilinear"}],
        [saved(Image.fromarray(pixels), "PNG")],
        tmp_path,
    )
    # OpenCV's coordinates are those of pixel centres
    matrix = cv2.getRotationMatrix2D((159 / 2, 119 / 2), 20, 1)
    want = cv2.warpAffine(pixels, matrix, (160, 120), flags=cv2.INTER_LINEAR)
    inside = cv2.warpAffine(np.ones((120, 160), np.uint8), matrix, (160, 120), flags=cv2.INTER_NEAREST)
    inside = cv2.erode(inside, np.ones((5, 5), np.uint8), borderType=cv2.BORDER_CONSTANT, borderValue=0) > 0
    assert np.abs(got.astype(int) - want)[inside].max() <= 2


def test_random_warps_equal_the_fixed_ones(tmp_path):
    """The draws of docs/randomness.md, given to `rotate` and `affine`."""
    blobs = [saved(Image.fromarray(picture(40, 56, 3, seed=k)), "PNG") for k in range(8)]
    turned = run([DECODE, {"op": "random_rotation", "degrees": [-30, 70]}], blobs, tmp_path)
    moved = run(
        [
            DECODE,
            {
                "op": "random_affine",
                "degrees": 40,
                "translate": [0.2, 0.1],
                "scale": [0.8, 1.3],
                "shear": [-5, 5, 10, 20],
            },
        ],
        blobs,
        tmp_path,
    )
    for number, blob in enumerate(blobs):
        draw = Draw(2 * 1000003, number)
        u = [(draw.word(k) >> 8) * 2.0**-24 for k in range(6)]
        fixed = {"op": "rotate", "angle": -30 + 100 * u[0]}
        assert np.array_equal(turned[number], run([DECODE, fixed], [blob], tmp_path)[0])
        fixed = {
            "op": "affine",
            "angle": -40 + 80 * u[0],
            "translate": [round(-11.2 + 22.4 * u[1]), round(-4 + 8 * u[2])],
            "scale": 0.8 + (1.3 - 0.8) * u[3],
            "shear": [-5 + 10 * u[4], 10 + 10 * u[5]],
        }
        assert np.array_equal(moved[number], run([DECODE, fixed], [blob], tmp_path)[0])


def refused(ops, tmp_path):
    blob = tmp_path / "image"
    blob.write_bytes(saved(Image.fromarray(picture(8, 8, 3)), "PNG"))
    done = subprocess.run(
        [tool_path(), json.dumps(ops), str(tmp_path / "out"), str(blob)], capture_output=True, text=True
    )
    assert done.returncode == 2
    return done.stderr


RGB = {"op": "decode_image"}
REFUSED = [
    ([RGB, {"op": "rotate", "angle": 400}], "rotate: angle is 400"),
    ([RGB, {"op": "rotate", "angle": 4, "center": [1]}], "center is [1]: expected [x, y]"),
    ([RGB, {"op": "rotate", "angle": 4, "fill": 300}], "fill is 300: expected values that uint8 has"),
    ([RGB, {"op": "rotate", "angle": 4, "fill": [1, 2]}], "fill is [1,2]: expected 3 values"),
    ([RGB, {"op": "cast", "dtype": "int32"}, {"op": "rotate", "angle": 4}], "uint8 or float32"),
    ([{"op": "rotate", "angle": 4}], "decode_image makes images"),
    ([RGB, {"op": "random_rotation", "degrees": -4}], "degrees is -4: expected a number that is not"),
    ([RGB, {"op": "random_rotation", "degrees": [5, 4]}], "degrees is [5,4]: expected [low, high]"),
    ([RGB, {"op": "random_affine", "degrees": 0, "scale": [2, 1]}], "scale is [2,1]: expected [low, high]"),
    ([RGB, {"op": "random_affine", "degrees": 0, "shear": [1, 2, 3]}], "shear is [1,2,3]: expected"),
    ([RGB, {"op": "random_affine", "degrees": 0, "shear": [1, 2, 4, 3]}], "each low <= high"),
    ([RGB, {"op": "random_perspective", "p": 1.5}], "p is 1.5"),
]


@pytest.mark.parametrize("ops, message", REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_attributes(tmp_path, ops, message):
    assert message in refused(ops, tmp_path)


def test_channels_that_vary(tmp_path):
    grey = io.BytesIO()
    Image.fromarray(picture(9, 9, 1)[:, :, 0]).save(grey, "PNG")
    (got,) = run([DECODE, {"op": "rotate", "angle": 9, "fill": [1, 2, 3]}], [grey.getvalue()], tmp_path)
    assert isinstance(got, Failure)
    assert got == "rotate: an image of 1 channels, but there are 3 values to fill with"
