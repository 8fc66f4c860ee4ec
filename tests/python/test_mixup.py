"""mixup and cutmix against NumPy, doing what torchvision's MixUp and CutMix do with given draws."""

import cachew
import numpy as np
import pytest
from cachew import Dataset

CLASSES = 7


def images(n=90, dtype="uint8", shape=(12, 9, 3)):
    rng = np.random.default_rng(5)
    pixels = rng.integers(0, 256, (n, *shape)).astype(dtype)
    return Dataset.arrays(
        {"image": pixels, "label": np.arange(n) % CLASSES, "name": [f"n{i}" for i in range(n)]}
    )


def shares(labels, plain):
    """The share of each row that is its own, from its label; None: both rows have the same class."""
    other = np.roll(plain, 1)
    return [row[a] if a != b else None for row, a, b in zip(labels, plain, other)]


def pairs(ds, mixed, seed=3, epochs=2):
    return zip(ds.iterator(seed=seed, epochs=epochs), mixed.iterator(seed=seed, epochs=epochs))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 8.0])
def test_mixup_equals_torchvision(dtype, alpha):
    ds = images(dtype=dtype).shuffle().batch(16)
    drawn = []
    for plain, mixed in pairs(ds, ds.mixup("image", label="label", classes=CLASSES, alpha=alpha)):
        own = next(s for s in shares(mixed["label"], plain["label"]) if s is not None)
        drawn.append(own)
        x = plain["image"].astype(np.float32)
        onehot = np.eye(CLASSES, dtype=np.float32)[plain["label"]]
        # 1 - share is rounded from double precision, which the label of the other class shows
        other = next(
            row[b] for row, a, b in zip(mixed["label"], plain["label"], np.roll(plain["label"], 1)) if a != b
        )
        want = np.roll(x, 1, 0) * other + x * own
        assert mixed["image"].dtype == dtype
        assert np.array_equal(mixed["image"], np.rint(want).astype("u1") if dtype == "uint8" else want)
        assert mixed["label"].dtype == np.float32
        assert np.array_equal(mixed["label"], np.roll(onehot, 1, 0) * other + onehot * own)
        assert abs(own + other - 1) < 1e-6
        assert list(mixed["name"]) == list(plain["name"])
    assert len(set(drawn)) == len(drawn) == 12  # another share for each batch of each epoch


@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_cutmix_equals_torchvision(layout):
    ds = images(shape=(12, 9, 3) if layout == "hwc" else (3, 12, 9)).batch(8)
    sizes = set()
    for plain, mixed in pairs(ds, ds.cutmix("image", label="label", classes=CLASSES, layout=layout)):
        x, got = plain["image"], mixed["image"]
        other = np.roll(x, 1, 0)
        if layout == "chw":
            x, got, other = (v.transpose(0, 2, 3, 1) for v in (x, got, other))
        pasted = (got != x).any((0, 3))  # random pixels differ in some row and channel
        rows, columns = np.flatnonzero(pasted.any(1)), np.flatnonzero(pasted.any(0))
        area = len(rows) * len(columns)
        want = x.copy()
        if area:
            assert pasted.sum() == area  # a rectangle
            box = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
            want[:, box[0], box[1]] = other[:, box[0], box[1]]
        assert np.array_equal(got, want)
        share = np.float32(1 - area / (12 * 9))
        for own, label in zip(shares(mixed["label"], plain["label"]), mixed["label"]):
            assert own in (share, None)
            assert abs(label.sum() - 1) < 1e-6
        sizes.add(area)
    assert len(sizes) > 5


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_shares_have_the_distribution(alpha):
    """The largest distance of two empirical distributions of n and m numbers exceeds 1.95 * sqrt(1/n + 1/m)
    with probability 0.001 (Kolmogorov-Smirnov); the draws are always the same.
    """
    n = 3000
    label = np.arange(2 * n) % 2
    ds = Dataset.arrays({"x": np.zeros((2 * n, 1), np.float32), "label": label}).batch(2)
    drawn = [b["label"][0, 0] for b in ds.mixup("x", label="label", classes=2, alpha=alpha).iterator(seed=1)]
    want = np.random.default_rng(1).beta(alpha, alpha, 100_000)
    at = np.sort(np.concatenate([drawn, want]))
    far = (
        np.searchsorted(np.sort(drawn), at, "right") / n
        - np.searchsorted(np.sort(want), at, "right") / 100_000
    )
    assert np.abs(far).max() < 1.95 * np.sqrt(1 / n + 1 / 100_000)


def both():
    ds = images().shuffle().batch(8)
    mixed = ds.mixup("image", label="label", classes=CLASSES)
    return mixed.cutmix("image", label="label", classes=CLASSES)


def contents(batches):
    return [(b["image"].tobytes(), b["label"].tobytes(), list(b["name"])) for b in batches]


def test_labels_may_be_shares_already():
    for batch in both().iterator(seed=1):
        assert np.allclose(batch["label"].sum(1), 1)


def test_threads_and_resume():
    """The same batches for any number of threads, and after a state."""
    whole = contents(both().iterator(seed=4, epochs=2, threads=1))
    assert contents(both().iterator(seed=4, epochs=2, threads=4)) == whole
    first = both().iterator(seed=4, epochs=2)
    begun = contents([next(first) for _ in range(15)])
    second = both().iterator(seed=4, epochs=2, state=first.state_dict())
    assert begun + contents(second) == whole


def test_service():
    ds = Dataset.synthetic(count=70, shape=[6, 5, 3], dtype="uint8").assign(label="data[0, 0, 0] % 7")
    ds = ds.batch(8).mixup("data", label="label", classes=7).cutmix("data", label="label", classes=7)

    def of(batches):
        return [(b["data"].tobytes(), b["label"].tobytes()) for b in batches]

    with ds.distribute("local", seed=4, epochs=2) as batches:
        assert of(batches) == of(ds.iterator(seed=4, epochs=2))


REFUSED = [
    (lambda ds: ds.mixup("image", label="label", classes=7), "needs batch or bucket_by_length before it"),
    (lambda ds: ds.batch(4).mixup("name", label="label", classes=7), 'uint8 or float32, but "name" is bytes'),
    (lambda ds: ds.batch(4).mixup("image", label="image", classes=7), "another component than the images"),
    (lambda ds: ds.batch(4).mixup("image", label="name", classes=7), 'an integer or float32[7], but "name"'),
    (lambda ds: ds.batch(4).mixup("image", label="label", classes=7, alpha=0), "alpha is 0"),
    (lambda ds: ds.batch(4).cutmix("label", label="label", classes=7), "images of three dimensions"),
    (
        lambda ds: ds.batch(4).mixup("image", label="label", classes=7).random_flip("image"),
        "on whole batches",
    ),
]


@pytest.mark.parametrize("make, message", REFUSED)
def test_refused(make, message):
    with pytest.raises(cachew.Error) as error:
        make(images()).peek()
    assert message in str(error.value)


def test_a_label_that_is_no_class():
    ds = images().batch(4).mixup("image", label="label", classes=5)
    with pytest.raises(
        cachew.Error, match=r"mixup: label is 5 in row 1 of a batch: expected a class from 0 to 4"
    ):
        list(ds.iterator(seed=0))
