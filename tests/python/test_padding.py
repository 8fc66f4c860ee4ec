"""`pad` of `batch` and `bucket_by_length`: against torch's pad_sequence, and a plain loop."""

import numpy as np
import pytest

import cachew
from cachew import Dataset

LENGTHS = [(7 * i * i + 3 * i) % 23 for i in range(200)]


def row(i, dtype):
    return (np.arange(LENGTHS[i]) * 3 + i).astype(dtype)


def rows(dtype="int32"):
    return [row(i, dtype) for i in range(len(LENGTHS))]


def texts(dtype="int32"):
    """Sequences of many lengths, and images whose height varies."""

    def element(e):
        i = int(e["value"])
        return {"t": row(i, dtype), "image": np.full((i % 4, 2), i, np.uint8), "i": e["value"]}

    outputs = {"t": (dtype, [None]), "image": ("uint8", [None, 2]), "i": "int64"}
    return Dataset.range(len(LENGTHS)).map(element, outputs=outputs)


def padded(arrays, shape, value=0):
    """The definition: each row at the beginning of an array of `value`."""
    result = np.full((len(arrays), *shape), value, arrays[0].dtype)
    for i, row in enumerate(arrays):
        result[(i, *map(slice, row.shape))] = row
    return result


@pytest.mark.parametrize("dtype", ["int32", "float32", "int64", "uint8"])
@pytest.mark.parametrize("value", [0, 7])
def test_batches_are_those_of_pad_sequence(dtype, value):
    torch = pytest.importorskip("torch")
    ds = texts(dtype=dtype).select("t").batch(16, pad=value if value else "longest")
    batches = [b["t"] for b in ds]
    for k, batch in enumerate(batches):
        expected = torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(r) for r in rows(dtype=dtype)[16 * k : 16 * k + 16]], True, value
        ).numpy()
        assert batch.dtype == expected.dtype and (batch == expected).all()
    assert len(batches) == 13


def test_named_components_have_their_own_padding():
    ds = texts().batch(9, pad={"t": {"value": -1, "to": [30]}, "image": {"value": 5, "to": [None, 3]}})
    for k, batch in enumerate(ds):
        own = slice(9 * k, 9 * k + 9)
        assert (batch["t"] == padded(rows()[own], (30,), -1)).all()
        heights = [i % 4 for i in batch["i"]]
        assert batch["image"].shape == (len(heights), max(heights), 3)
        assert (batch["image"][..., 2] == 5).all()
        for image, i in zip(batch["image"], batch["i"]):
            assert (image[: i % 4, :2] == i).all() and (image[i % 4 :] == 5).all()


def test_a_fixed_shape_is_filled_up_too():
    ds = Dataset.synthetic(7, shape=[3], dtype="float32", fill="none").batch(
        4, pad={"data": {"value": 2, "to": [5]}}
    )
    for batch in ds:
        assert (batch["data"] == [[0, 0, 0, 2, 2]] * len(batch["data"])).all()


def test_renamed_components_keep_their_padding():
    ds = (
        texts()
        .batch(9, pad={"t": -3, "image": 9})
        .select(["t", "image"])
        .rename({"t": "image", "image": "t"})
    )
    for k, batch in enumerate(ds):
        mine = rows()[9 * k : 9 * k + 9]
        assert (batch["image"] == padded(mine, (max(map(len, mine)),), -3)).all()
        assert (batch["t"][0, k % 4 :] == 9).all()  # image 9k has (9k) % 4 rows


@pytest.mark.parametrize("pad", ["boundary", {"t": {"value": -1, "to": "boundary"}, "image": 3}])
def test_buckets_are_filled_up_to_their_boundary(pad):
    ds = texts().bucket_by_length("length(t)", [5, 12], [8, 6, 4], pad=pad, drop_remainder=True)
    found = set()
    for batch in ds:
        mine = [rows()[i] for i in batch["i"]]
        bucket = sum(len(mine[0]) >= boundary for boundary in (5, 12))
        width = [4, 11, max(map(len, mine))][bucket]
        assert (batch["t"] == padded(mine, (width,), 0 if pad == "boundary" else -1)).all()
        assert len(mine) == [8, 6, 4][bucket]  # the short ones at the end are left out
        found.add(bucket)
    assert found == {0, 1, 2}


def test_drop_remainder_leaves_out_short_batches():
    ds = Dataset.range(1000).bucket_by_length("value % 7", [3], [10, 7])
    full = [b["value"].tolist() for b in ds if len(b["value"]) == (10 if b["value"][0] % 7 < 3 else 7)]
    dropped = Dataset.range(1000).bucket_by_length("value % 7", [3], [10, 7], drop_remainder=True)
    assert [b["value"].tolist() for b in dropped] == full
    with pytest.raises(TypeError, match="not known"):
        len(dropped)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: texts().batch(4), ['component "image" differs in shape', "set pad"]),
        (lambda: texts().batch(4, pad={"t": 0}), ['component "image" differs in shape']),
        (
            lambda: texts().batch(9, pad={"t": {"to": [20]}, "image": 0}),
            ["size 22", "at most 20", "fills it up"],
        ),
        (
            lambda: texts().select("t").bucket_by_length("0 * length(t)", [9], [4, 4], pad="boundary"),
            ['component "t"', "at most 8", "largest length of its bucket"],
        ),
    ],
)
def test_elements_that_do_not_fit(make, parts):
    with pytest.raises(cachew.Error) as error:
        for _ in make():
            pass
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("pad", "parts"),
    [
        ("boundary", ['"longest"']),
        ("longst", ['did you mean "longest"']),
        ({"q": 1}, ['no component "q"']),
        ({"t": "boundary"}, ['"t"', '{"value": number, "to": "longest"']),
        ({"t": {"valeu": 1}}, ['"t"', "none of these"]),
        ({"t": [3]}, ['"t"', "none of these"]),
        ({"t": {"to": [3, 4]}}, ['"to" with a size for each dimension', "int32[?]"]),
        ({"image": {"to": [9, 1]}}, ['"to" with a size for each dimension', "uint8[?,2]"]),
        ({"t": 1.5}, ["fits the dtype", "int32"]),
        (-1, ["fits the dtype", "uint8"]),
        (True, ["an object or a number"]),
    ],
)
def test_wrong_padding(pad, parts):
    with pytest.raises(cachew.PipelineError) as error:
        len(texts().batch(4, pad=pad))
    assert error.value.attribute == "pad"
    for part in parts:
        assert part in str(error.value)


def test_only_names_change_after_padding():
    ds = texts().batch(4, pad="longest")
    with pytest.raises(cachew.PipelineError, match="cast: comes after batch, which pads: write it before"):
        len(ds.cast("t", "int8"))


def test_padded_batches_from_a_service(divided):
    """Whose batches are joined of parts: by position, and by length."""
    counted = texts().shuffle().batch(7, pad={"t": {"value": -1, "to": [25]}, "image": 3})
    buckets = (
        texts()
        .shuffle()
        .bucket_by_length("length(t)", [5, 12], [8, 6, 4], pad="boundary", drop_remainder=True)
    )
    for ds in (counted, buckets):
        with ds.iterator(seed=5, epochs=2) as here, ds.distribute(divided.address, seed=5, epochs=2) as there:
            assert [(b.epoch, b.g, b.hash()) for b in there] == [(b.epoch, b.g, b.hash()) for b in here]
