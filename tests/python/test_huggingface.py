"""Hugging Face datasets as sources: rows in the order of the dataset, types, files, what is refused."""

import datetime
import io
import pickle

import numpy as np
import pytest

datasets = pytest.importorskip("datasets")
import pyarrow as pa  # noqa: E402
from PIL import Image  # noqa: E402

import cachew  # noqa: E402
from cachew import Dataset  # noqa: E402


def numbers(n=100):
    return datasets.Dataset.from_dict({"x": list(range(n)), "t": [f"text {i}" for i in range(n)]})


def rows(ds, name="x", **options):
    return [int(batch[name]) for batch in ds.iterator(**options)]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d,
        lambda d: d.select([5, 3, 3, 99, 0]),
        lambda d: d.select(range(10, 30)),
        lambda d: d.select(range(10, 90)).shuffle(seed=1),
        lambda d: d.filter(lambda row: row["x"] % 7 == 2),
        lambda d: d.shuffle(seed=3).filter(lambda row: row["x"] % 2 == 1).select(range(5, 20)),
        lambda d: d.sort("t"),
        lambda d: d.train_test_split(0.3, seed=1)["test"],
        lambda d: datasets.concatenate_datasets([d.select([8, 1]), d.shuffle(seed=2)]),
        lambda d: d.select([]),
    ],
    ids=["all", "indices", "range", "shuffle", "filter", "chain", "sort", "split", "concat", "none"],
)
def test_rows_come_as_the_dataset_orders_them(change):
    chosen = change(numbers())
    ds = Dataset.huggingface(chosen)
    assert rows(ds) == chosen["x"][:] and [bytes(b["t"]).decode() for b in ds] == chosen["t"][:]


def test_rows_are_shuffled_and_read_at_any_position():
    chosen = numbers(5000).shuffle(seed=1).select(range(1000, 4000))
    ds = Dataset.huggingface(chosen).shuffle().batch(64)
    whole = [b.hash() for b in ds.iterator(seed=1)]
    with ds.iterator(seed=1) as it:
        head = [next(it).hash() for _ in range(20)]
        state = it.state_dict()
    assert head + [b.hash() for b in ds.iterator(seed=1, state=state)] == whole
    assert sorted(x for b in ds for x in b["x"].tolist()) == sorted(chosen["x"])
    with pytest.raises(cachew.StateError):
        Dataset.huggingface(chosen.select(range(2999))).shuffle().batch(64).iterator(seed=1, state=state)


def test_the_same_rows_are_the_same_data_however_they_were_chosen():
    chosen = numbers().filter(lambda row: row["x"] > 60)
    assert Dataset.huggingface(chosen) == Dataset.huggingface(chosen.flatten_indices())
    assert Dataset.huggingface(chosen) != Dataset.huggingface(chosen.shuffle(seed=1))


def test_a_dataset_on_disk_is_mapped_and_pickled_by_its_path(tmp_path):
    numbers(2000).save_to_disk(tmp_path / "data")
    chosen = datasets.load_from_disk(tmp_path / "data").shuffle(seed=2)
    ds = Dataset.huggingface(chosen).batch(100)
    again = pickle.loads(pickle.dumps(ds))
    assert again == ds and [b.hash() for b in again] == [b.hash() for b in ds]


def test_types():
    features = datasets.Features(
        {
            **{
                name: datasets.Value(name)
                for name in ("bool", "int8", "uint16", "float32", "float64", "string")
            },
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "many": datasets.List(datasets.Value("int32")),
            "pair": datasets.List(datasets.Value("float32"), length=2),
            "ragged": datasets.List(datasets.List(datasets.Value("int64"))),
            "matrix": datasets.Array2D((2, 3), "float32"),
            "rows": datasets.Array2D((None, 2), "int64"),
            "when": datasets.Value("timestamp[s]"),
            "raw": datasets.Value("binary"),
        }
    )
    data = {
        "bool": [True, False, True],
        "int8": [1, -2, 3],
        "uint16": [1, 2, 65535],
        "float32": [0.5, 1.5, 2.5],
        "float64": [0.1, 0.2, 0.3],
        "string": ["a", "é", ""],
        "label": ["dog", "cat", "dog"],
        "many": [[1], [], [2, 3]],
        "pair": [[1, 2], [3, 4], [5, 6]],
        "ragged": [[[1, 2]], [], [[3, 4], [5, 6]]],
        "matrix": [[[1, 2, 3], [4, 5, 6]]] * 2 + [[[7, 8, 9], [0, 0, 0]]],
        "rows": [[[1, 2]], [[3, 4], [5, 6]], [[7, 8]]],
        "when": [datetime.datetime(1970, 1, 1, 0, 1)] * 3,
        "raw": [b"\0", b"ab", b""],
    }
    hf = datasets.Dataset.from_dict(data, features=features)
    for order in ([0, 1, 2], [2, 0, 0]):
        ds = Dataset.huggingface(hf.select(order) if order != [0, 1, 2] else hf)
        assert ds.schema["many"] == ("int32", (None,)) and ds.schema["pair"] == ("float32", (2,))
        assert ds.schema["ragged"] == ("int64", (None, 2)) and ds.schema["matrix"] == ("float32", (2, 3))
        assert ds.schema["rows"] == ("int64", (None, 2)) and ds.schema["label"] == ("int64", ())
        for i, row in zip(order, ds, strict=True):
            for name in (
                "bool",
                "int8",
                "uint16",
                "float32",
                "float64",
                "many",
                "pair",
                "ragged",
                "matrix",
                "rows",
            ):
                assert (
                    np.asarray(row[name]).tolist() == np.asarray(data[name][i], row[name].dtype).tolist()
                ), name
            assert bytes(row["string"]).decode() == data["string"][i] and bytes(row["raw"]) == data["raw"][i]
            assert row["label"] == features["label"].str2int(data["label"][i]) and row["when"] == 60


def test_a_dataset_without_rows_has_its_types():
    features = datasets.Features({"m": datasets.Array2D((2, 3), "float32"), "s": datasets.Value("string")})
    empty = Dataset.huggingface(datasets.Dataset.from_dict({"m": [], "s": []}, features=features))
    assert empty.schema == {"m": ("float32", (2, 3)), "s": ("bytes", ())} and list(empty) == []


def png(level):
    file = io.BytesIO()
    Image.new("RGB", (4, 3), (level, 0, 0)).save(file, "PNG")
    return file.getvalue()


def pictures(tmp_path, *, paths):
    """A dataset of images: of bytes, of paths of files, or, with paths None, of both."""
    values = []
    for i in range(6):
        (tmp_path / f"{i}.png").write_bytes(png(i))
        by_path = paths if paths is not None else i % 2 == 0
        values.append(str(tmp_path / f"{i}.png") if by_path else {"bytes": png(i), "path": None})
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    return datasets.Dataset.from_dict({"image": values, "label": list(range(6))}, features=features)


@pytest.mark.parametrize("paths", [False, True, None], ids=["bytes", "paths", "both"])
def test_images_are_decoded_by_the_pipeline(tmp_path, paths):
    hf = pictures(tmp_path, paths=paths).select([4, 2, 1])
    ds = Dataset.huggingface(hf)
    assert list(ds.schema) == ["image", "label"]
    for row, label in zip(ds.decode_image("image"), [4, 2, 1], strict=True):
        assert (
            row["label"] == label and (row["image"] == np.asarray(hf[[4, 2, 1].index(label)]["image"])).all()
        )


def test_files_are_not_copied_where_one_has_a_path_only(tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    values = [{"bytes": bytes([i]) * 100_000, "path": None} for i in range(50)]
    values.insert(20, {"bytes": None, "path": str(tmp_path / "a")})
    hf = datasets.Dataset.from_list([{"audio": value} for value in values[:30]])
    hf = datasets.concatenate_datasets([hf, datasets.Dataset.from_list([{"audio": v} for v in values[30:]])])
    hf = hf.cast_column("audio", datasets.Audio())
    before = pa.total_allocated_bytes()
    ds = Dataset.huggingface(hf.select(range(10, 51)))
    assert pa.total_allocated_bytes() - before < 1_000_000
    assert [bytes(row["audio"]) for row in ds] == [v["bytes"] or b"a" for v in values[10:]]


def test_audio_comes_as_the_bytes_of_its_file(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    values = [{"bytes": b"abc", "path": None}, {"bytes": None, "path": str(tmp_path / "a.wav")}]
    hf = datasets.Dataset.from_list([{"audio": value} for value in values]).cast_column(
        "audio", datasets.Audio()
    )
    assert [bytes(row["audio"]) for row in Dataset.huggingface(hf)] == [b"abc", b"RIFF"]


def test_rows_with_nulls_may_be_left_out():
    hf = datasets.Dataset.from_dict({"x": [1, None, 3], "l": [[1.0], [2.0], None]})
    with pytest.raises(cachew.DataError, match='"x" has a null in row 1'):
        Dataset.huggingface(hf)
    with pytest.raises(cachew.DataError, match='"l" has a null in row 0'):
        Dataset.huggingface(hf.select([2]))
    assert rows(Dataset.huggingface(hf.select([0, 0]))) == [1, 1]
    lists = datasets.Dataset.from_dict({"l": [[1, 2], [3, None], [4]]})
    assert [row["l"].tolist() for row in Dataset.huggingface(lists.select([2, 0]))] == [[4], [1, 2]]
    with pytest.raises(cachew.DataError, match='"l" has a null in a list, in row 1'):
        Dataset.huggingface(lists.select([0, 1]))
    assert rows(Dataset.huggingface(hf.remove_columns("l").filter(lambda row: row["x"] is not None))) == [
        1,
        3,
    ]


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (
            lambda: datasets.DatasetDict({"train": numbers()}),
            TypeError,
            r"choose a split, such as dataset\['train'\]",
        ),
        (lambda: [1, 2], TypeError, "not a list"),
        (lambda: numbers().with_transform(lambda b: b), cachew.PipelineError, "has a transform"),
        (
            lambda: datasets.Dataset.from_list([{"a": {"b": 1, "c": 2}}]),
            cachew.PipelineError,
            '"a" is a struct: .*flatten',
        ),
        (lambda: datasets.Dataset.from_list([{"a": ["x"]}]), cachew.DataError, '"a" is or holds strings'),
        (
            lambda: datasets.Dataset.from_list([{"a": [[1], [2, 3]]}]),
            cachew.PipelineError,
            '"a" has lists of different lengths inside lists',
        ),
        (
            lambda: datasets.Dataset.from_list([{"a": [[], []]}]),
            cachew.PipelineError,
            '"a" has lists of length 0 inside lists',
        ),
    ],
    ids=["splits", "list", "transform", "struct", "texts", "ragged", "empty"],
)
def test_what_is_refused(make, error, said):
    with pytest.raises(error, match=said):
        Dataset.huggingface(make())


def test_columns_of_a_format():
    assert list(Dataset.huggingface(numbers().with_format("torch", columns=["t"])).schema) == ["t"]
    kept = numbers().with_format("numpy", columns=["t"], output_all_columns=True)
    assert set(Dataset.huggingface(kept).schema) == {"x", "t"}


def test_iterable_datasets(tmp_path):
    hf = (
        numbers()
        .to_iterable_dataset(num_shards=4)
        .map(lambda row: {"x": row["x"] * 2})
        .filter(lambda row: row["x"] % 3 == 0)
    )
    assert rows(Dataset.huggingface(hf)) == [2 * i for i in range(100) if 2 * i % 3 == 0]
    shuffled = numbers().to_iterable_dataset().shuffle(seed=1, buffer_size=50)
    assert rows(Dataset.huggingface(shuffled)) == [row["x"] for row in shuffled]
    images = Dataset.huggingface(pictures(tmp_path, paths=None).to_iterable_dataset())
    assert images.schema["image"].dtype == "bytes"
    assert [int(row["image"][0, 0, 0]) for row in images.decode_image("image")] == list(range(6))


def test_a_file_of_an_iterable_dataset_without_bytes_and_path_is_a_null():
    hf = datasets.Dataset.from_list([{"image": {"bytes": None, "path": None}}])
    hf = hf.cast_column("image", datasets.Image()).to_iterable_dataset()
    with pytest.raises(cachew.DataError, match='"image" has a null'):
        list(Dataset.huggingface(hf))


def test_the_state_of_an_iterable_dataset_is_that_of_the_same_one():
    def ds(n):
        return Dataset.huggingface(numbers(n).to_iterable_dataset()).batch(8)

    with ds(100).iterator() as it:
        next(it)
        state = it.state_dict()
    assert rows_of(ds(100).iterator(state=state)) == list(range(8, 100))
    with pytest.raises(cachew.StateError):
        ds(99).iterator(state=state)


def rows_of(batches):
    return [x for batch in batches for x in batch["x"].tolist()]
