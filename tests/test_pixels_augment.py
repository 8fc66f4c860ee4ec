"""rand_augment, trivial_augment and auto_augment against Pillow, called as torchvision calls it for Pillow
images: nearest pixels, black outside. The drawn changes and magnitudes are those of the reference model."""

import math

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("PIL")
from model import augment, philox  # noqa: E402
from PIL import Image, ImageEnhance, ImageOps  # noqa: E402
from test_pixels import picture, png, run  # noqa: E402

POLICIES = [
    *[("rand_augment", {"num_ops": 2, "magnitude": m, "num_magnitude_bins": 31}) for m in (9, 30)],
    ("rand_augment", {"num_ops": 5, "magnitude": 3, "num_magnitude_bins": 5}),
    ("trivial_augment", {}),
    *[("auto_augment", {"policy": policy}) for policy in ("imagenet", "cifar10", "svhn")],
]


def affine(image, shear, translate, centre):
    """The inverse of torchvision's affine map without rotation, with its shears in degrees."""
    sx, sy = (math.radians(degrees) for degrees in shear)
    a, b = math.cos(-sy) / math.cos(sy), -math.cos(-sy) * math.tan(sx) / math.cos(sy)
    c, d = math.sin(-sy) / math.cos(sy), -math.sin(-sy) * math.tan(sx) / math.cos(sy) + 1
    (x, y), (tx, ty) = centre, translate
    matrix = [d, -b, 0.0, -c, a, 0.0]
    matrix[2] = matrix[0] * (-x - tx) + matrix[1] * (-y - ty) + x
    matrix[5] = matrix[3] * (-x - tx) + matrix[4] * (-y - ty) + y
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def changed(image, kind, amount):
    middle = (image.width * 0.5, image.height * 0.5)
    degrees = math.degrees(math.atan(amount))
    return {
        "Identity": lambda: image,
        "ShearX": lambda: affine(image, (degrees, 0.0), (0, 0), (0, 0)),
        "ShearY": lambda: affine(image, (0.0, degrees), (0, 0), (0, 0)),
        "TranslateX": lambda: affine(image, (0.0, 0.0), (int(amount), 0), middle),
        "TranslateY": lambda: affine(image, (0.0, 0.0), (0, int(amount)), middle),
        "Rotate": lambda: image.rotate(amount, Image.Resampling.NEAREST),
        "Brightness": lambda: ImageEnhance.Brightness(image).enhance(1 + amount),
        "Color": lambda: ImageEnhance.Color(image).enhance(1 + amount),
        "Contrast": lambda: ImageEnhance.Contrast(image).enhance(1 + amount),
        "Sharpness": lambda: ImageEnhance.Sharpness(image).enhance(1 + amount),
        "Posterize": lambda: ImageOps.posterize(image, int(amount)),
        "Solarize": lambda: ImageOps.solarize(image, amount),
        "AutoContrast": lambda: ImageOps.autocontrast(image),
        "Equalize": lambda: ImageOps.equalize(image),
        "Invert": lambda: ImageOps.invert(image),
    }[kind]()


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("name, attributes", POLICIES)
def test_policies_are_pillow(tmp_path, name, attributes, channels):
    arrays = [picture(h, w, channels, seed=k) for k in range(60) for h, w in ((31, 40), (64, 23))]
    decode = {"op": "decode_image", "component": "image", "channels": channels}
    blobs = [png(array, 2 if channels == 3 else 0, 8, False) for array in arrays]
    got = run([decode, {"op": name, **attributes}], blobs, tmp_path)
    seen = set()
    for element, array in enumerate(arrays):
        steps = augment.STEPS[name](attributes, array.shape[:2], philox.Draw(2 * 1000003, element))
        image = Image.fromarray(array[:, :, 0] if channels == 1 else array)
        for kind, amount in steps:
            image = changed(image, kind, amount)
            seen.add(kind)
        assert np.array_equal(got[element], np.array(image).reshape(array.shape)), (element, steps)
    assert len(seen) > 7


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", augment.KINDS)
def test_each_magnitude_is_pillow(kind, wide):
    """The model, which the test above compares with the operators, for every magnitude of a change."""
    array = picture(61, 83, 3)
    for bin_ in range(31):
        for negative in (False, True):
            amount = augment.magnitude(kind, bin_, 31, negative, array.shape[:2], wide)
            want = np.array(changed(Image.fromarray(array), kind, amount))
            assert np.array_equal(augment.change(array, kind, amount), want), (kind, amount)
