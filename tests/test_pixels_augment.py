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
        # Pillow refuses 0 bits, with which torchvision's operation on tensors gives black
        "Posterize": lambda: (
            ImageOps.posterize(image, int(amount)) if amount else Image.new(image.mode, image.size)
        ),
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


MIXTURE = {"severity": 10, "mixture_width": 3, "chain_depth": -1, "alpha": 1.0, "all_ops": True}


@pytest.mark.parametrize(
    "attributes",
    [
        MIXTURE,
        {**MIXTURE, "chain_depth": 4, "all_ops": False},
        {**MIXTURE, "mixture_width": 1, "severity": 3},
    ],
)
def test_augmix_is_pillow(tmp_path, attributes):
    """The sum of Pillow's results, by the definition of torchvision's AugMix."""
    arrays = [picture(h, w, 3, seed=k) for k in range(20) for h, w in ((31, 40), (64, 23))]
    decode = {"op": "decode_image", "component": "image", "channels": 3}
    got = run(
        [decode, {"op": "augmix", **attributes}], [png(array, 2, 8, False) for array in arrays], tmp_path
    )
    shares, seen = [], set()
    for element, array in enumerate(arrays):
        share, chains = augment.mixture(attributes, array.shape[:2], philox.Draw(2 * 1000003, element))
        shares.append([share, *(part for part, _ in chains)])
        want = np.float32(share) * array
        for part, steps in chains:
            image = Image.fromarray(array)
            for kind, amount in steps:
                image = changed(image, kind, amount)
                seen.add(kind)
            want += np.float32(part) * np.array(image)
        assert np.array_equal(got[element], np.minimum(want, 255).astype(np.uint8)), (element, chains)
    assert np.allclose(np.sum(shares, axis=1), 1, rtol=1e-12)
    assert len(seen) == (13 if attributes["all_ops"] and attributes["severity"] > 3 else len(seen))


def test_the_shares_of_augmix_are_distributed_as_asked():
    """Beta(1, 1) and Dirichlet(1, 1, 1): means 1/2 and 1/6, standard deviations 0.289 and 0.133."""
    drawn = [augment.mixture(MIXTURE, (8, 8), philox.Draw(7, element)) for element in range(2000)]
    shares = np.array([[share, *(part for part, _ in chains)] for share, chains in drawn])
    assert np.allclose(shares.mean(axis=0), [1 / 2, 1 / 6, 1 / 6, 1 / 6], atol=0.02)
    assert np.allclose(shares.std(axis=0), [0.289, 0.161, 0.161, 0.161], atol=0.02)


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
