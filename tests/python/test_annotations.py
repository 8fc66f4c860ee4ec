"""Boxes, masks and keypoints follow their image: shapes that are found in the pixels, fusion, errors."""

import annotated_shapes
import numpy as np
import pytest

import cachew
import cachew.demo
from cachew import Dataset

ALL = {"boxes": "boxes", "masks": "masks", "keypoints": "points"}


@pytest.mark.parametrize("seed", range(0, 500, 100))
def test_shapes_are_where_their_annotations_say(seed):
    found = [annotated_shapes.run(seed + k) for k in range(60)]
    assert sum(found) > 600


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Encoded photographs with annotations of different numbers."""
    folder = Dataset.image_folder(cachew.demo.photos(8)).select("image")
    files = [bytes(batch["image"]) for batch in folder]
    rng = np.random.default_rng(3)
    sizes = [batch["image"].shape[:2] for batch in folder.decode_image("image")]

    def boxes(n, height, width):
        corners = rng.uniform(0, 1, (n, 2, 2)) * [width, height]
        return np.concatenate([corners.min(1), corners.max(1)], axis=1).astype(np.float32)

    elements = [
        {
            "image": file,
            "boxes": boxes(i % 4, h, w),
            "labels": np.arange(i % 4),
            "masks": rng.integers(0, 2, (i % 3, h, w), dtype=np.uint8),
            "points": rng.uniform(0, min(h, w), (i % 2, 2)).astype(np.float32),
        }
        for i, (file, (h, w)) in enumerate(zip(files, sizes))
    ]
    outputs = {
        "image": "bytes",
        "boxes": ("float32", (None, 4)),
        "labels": ("int64", (None,)),
        "masks": ("uint8", (None, None, None)),
        "points": ("float32", (None, 2)),
    }
    return Dataset.sequence(elements, outputs=outputs).decode_image("image")


def elements(dataset, **options):
    return [dict(batch) for batch in dataset.iterator(seed=5, **options)]


def same(a, b, names):
    assert len(a) == len(b)
    for left, right in zip(a, b):
        for name in names:
            np.testing.assert_array_equal(left[name], right[name])


def test_fused_one_by_one_or_without_the_image(photos):
    moved = (
        photos.random_resized_crop("image", size=(64, 48), **ALL)
        .random_crop("image", (40, 40), boxes="boxes", keypoints="points", masks=["masks"])
        .random_flip("image", vertical=0.5, **ALL)
        .sanitize_boxes("boxes", labels="labels", min_area=4)
    )
    fused = elements(moved)
    same(fused, elements(moved, optimize=False), ["image", *ALL.values(), "labels"])
    same(fused, elements(moved.drop("image")), [*ALL.values(), "labels"])
    same(fused, elements(moved.select(["boxes"])), ["boxes"])
    assert any(len(e["boxes"]) for e in fused)
    assert all(len(e["boxes"]) == len(e["labels"]) for e in fused)


def test_the_image_is_the_same_without_annotations(photos):
    plain = photos.random_resized_crop("image", size=(64, 48)).random_rotation("image", degrees=30)
    joint = photos.random_resized_crop("image", size=(64, 48), **ALL).random_rotation(
        "image", degrees=30, **ALL
    )
    same(elements(plain), elements(joint), ["image"])


def test_schema(photos):
    schema = photos.resize("image", (64, 48), **ALL).schema
    assert schema["masks"] == cachew.Field("uint8", (None, 64, 48))
    assert schema["boxes"] == cachew.Field("float32", (None, 4))
    schema = photos.resize("image", (64, 48), **ALL).random_zoom_out("image", **ALL).schema
    assert schema["masks"] == cachew.Field("uint8", (None, None, None))
    assert schema["image"] == cachew.Field("uint8", (None, None, 3))


def test_sanitize_boxes_keeps_rows_together():
    boxes = np.array(
        [[0, 0, 9, 9], [3, 3, 3, 8], [1, 1, 1.5, 30], [np.nan, 0, 9, 9], [5, 5, 4, 9], [0, 0, np.inf, 9],
         [2, 2, 3, 3]], np.float32)  # fmt: skip
    dataset = Dataset.arrays(
        {"boxes": boxes[None], "labels": np.arange(7)[None], "masks": np.arange(7)[None, :, None, None]}
    )
    kept = dataset.sanitize_boxes("boxes", labels=["labels", "masks"])
    element = next(iter(kept))
    np.testing.assert_array_equal(element["boxes"], boxes[[0, 6]])
    assert element["labels"].tolist() == [0, 6]
    assert element["masks"].tolist() == [[[0]], [[6]]]
    assert next(iter(dataset.sanitize_boxes("boxes", min_area=2)))["boxes"].tolist() == [[0, 0, 9, 9]]
    assert len(next(iter(dataset.sanitize_boxes("boxes", min_size=20)))["boxes"]) == 0


def test_boxes_across_the_horizon_of_a_perspective():
    """distortion_scale 1 can fold an image; no box may then claim less than there is to see."""
    image = np.zeros((200, 40, 40, 1), np.uint8)
    image[:, 12:30, 8:33] = 1
    dataset = Dataset.arrays({"image": image, "boxes": np.full((200, 1, 4), [8, 12, 33, 30], np.float32)})
    moved = dataset.random_perspective(
        "image", distortion_scale=1, p=1, interpolation="nearest", boxes="boxes"
    )
    for element in moved.iterator(seed=1):
        found = annotated_shapes.extent(element["image"][:, :, 0])
        if found is not None:
            box = element["boxes"][0]
            assert (np.array(found[:2]) >= box[:2] - 1).all() and (np.array(found[2:]) <= box[2:] + 1).all()


IMAGE = np.zeros((2, 20, 30, 3), np.uint8)
BASE = Dataset.arrays(
    {
        "image": IMAGE,
        "boxes": np.zeros((2, 5, 4), np.float32),
        "masks": np.zeros((2, 20, 30), np.uint8),
        "turned": np.zeros((2, 3, 30, 20), np.uint8),
        "points": np.zeros((2, 5, 2), np.float32),
        "labels": np.zeros((2, 4), np.int64),
        "k": np.zeros(2, np.int64),
        "name": ["a", "b"],
    }
)


@pytest.mark.parametrize(
    ("build", "attribute", "text"),
    [
        (
            lambda: BASE.random_flip("image", boxes="points"),
            "boxes",
            'float32[?,4], but "points" is float32[5,2]',
        ),
        (lambda: BASE.random_flip("image", boxes="labels"), "boxes", 'but "labels" is int64[4]'),
        (lambda: BASE.random_flip("image", boxes="boxs"), "boxes", 'did you mean "boxes"?'),
        (lambda: BASE.random_flip("image", masks="image"), "masks", '"image" is named twice'),
        (
            lambda: BASE.resize("image", 9, masks="boxes"),
            "masks",
            'uint8[?,?,?], but "boxes" is float32[5,4]',
        ),
        (lambda: BASE.resize("image", 9, keypoints="boxes"), "keypoints", 'but "boxes" is float32[5,4]'),
        (lambda: BASE.rotate("image", 9, boxes=["boxes", "boxes"]), "boxes", '"boxes" is named twice'),
        (lambda: BASE.random_zoom_out("image", side_range=[2, 1]), "side_range", "low <= high"),
        (lambda: BASE.random_zoom_out("image", side_range=[0.5, 1]), "side_range", "from 1 to 100"),
        (lambda: BASE.sanitize_boxes("points"), "component", 'float32[?,4], but "points" is float32[5,2]'),
        (lambda: BASE.sanitize_boxes("boxes", labels="boxes"), "labels", '"boxes" is named twice'),
        (lambda: BASE.sanitize_boxes("boxes", labels="k"), "labels", 'a row for each box, but "k" is int64'),
        (lambda: BASE.sanitize_boxes("boxes", labels="name"), "labels", 'but "name" is bytes'),
        (lambda: BASE.sanitize_boxes("boxes", labels=["labels"] * 2), "labels", '"labels" is named twice'),
    ],
)
def test_wrong_attributes(build, attribute, text):
    with pytest.raises(cachew.PipelineError) as caught:
        build().batch(1).peek()
    assert caught.value.attribute == attribute
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: BASE.random_flip("image", masks=["masks", "turned"]),
            '"turned" has masks of 30 x 20, but the image is 20 x 30 (height x width)',
        ),
        (
            lambda: BASE.affine("image", masks="turned", boxes="boxes"),
            '"turned" has masks of 30 x 20, but the image is 20 x 30 (height x width)',
        ),
        (
            lambda: BASE.sanitize_boxes("boxes", labels="labels"),
            '"labels" has 4 rows, but "boxes" has 5 boxes',
        ),
    ],
)
def test_wrong_records(build, text):
    with pytest.raises(cachew.RecordError) as caught:
        build().batch(1).peek()
    assert text in str(caught.value)


def test_a_wrong_last_dimension():
    dataset = Dataset.sequence(
        [{"image": IMAGE[0], "boxes": np.zeros((2, 3), np.float32)}],
        outputs={"image": ("uint8", (None, None, 3)), "boxes": ("float32", (None, None))},
    )
    for moved in (dataset.random_flip("image", boxes="boxes"), dataset.sanitize_boxes("boxes")):
        with pytest.raises(cachew.RecordError) as caught:
            moved.batch(1).peek()
        assert '"boxes" is [2, 3]: expected [n, 4]' in str(caught.value)
