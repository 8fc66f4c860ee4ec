"""Operators on components against NumPy and pandas, on the words of the documentation; their errors."""

import json
from pathlib import Path

import numpy as np
import pytest

import cachew
from cachew import Dataset

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/expressions.md", "docs/semantics.md")


@pytest.fixture(scope="module")
def lines():
    """The words of each line that has some."""
    return [
        words for page in PAGES for line in (ROOT / page).read_text().splitlines() if (words := line.split())
    ]


@pytest.fixture(scope="module")
def records(lines, tmp_path_factory):
    """A data set with an element for each line: its first word, the lengths of its words, a pair for each."""
    path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    rows = [
        {
            "word": words[0],
            "lengths": [len(w) for w in words],
            "pairs": [[len(w), w.count("e") / 4] for w in words],
            "n": len(words),
            "mean": sum(map(len, words)) / len(words),
        }
        for words in lines
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    features = {
        "word": "bytes",
        "lengths": {"dtype": "int64", "variable": True},
        "pairs": {"dtype": "float32", "shape": [2], "variable": True},
        "n": "int64",
        "mean": "float64",
    }
    dataset = Dataset.jsonl(str(path), features=features)
    return dataset, rows


def elements(dataset, name):
    return [batch[name] for batch in dataset.select([name])]


def test_the_operators_give_what_numpy_gives(records):
    dataset, rows = records
    longest = max(row["n"] for row in rows)
    boundaries = [2, 3.5, 7, 11]
    mean, std = [4.5, 0.25], [2.5, 0.5]
    dataset = (
        dataset.concat_components(["pairs", "pairs"], name="twice", axis=1)
        .concat_components(["lengths", "lengths"], name="long")
        .stack(["lengths", "lengths"], name="last", axis=-1)
        .assign(
            bucket="lengths", scaled="pairs", padded="pairs", flat="pairs", shaped="pairs", hot="lengths % 5"
        )
        .bucketize("bucket", boundaries)
        .standardize("scaled", mean=mean, std=std)
        .pad("padded", shape=[longest, 3], value=-1)
        .pad("lengths", to=longest, value=7)
        .flatten("flat")
        .reshape("shaped", [2, -1])
        .one_hot("hot", 5)
        .assign(b="mean + 1")
        .stack(["mean", "b", "mean"], name="vector")
    )
    n = 0
    for element, row in zip(dataset, rows, strict=True):
        lengths, pairs = np.array(row["lengths"]), np.array(row["pairs"], np.float32).reshape(-1, 2)
        m = row["mean"]
        want = {
            "twice": np.concatenate([pairs, pairs], axis=1),
            "long": np.concatenate([lengths, lengths]),
            "last": np.stack([lengths, lengths], axis=-1),
            "bucket": np.digitize(lengths, boundaries),
            "scaled": ((pairs.astype(np.float64) - mean) / std).astype(np.float32),
            "padded": np.pad(pairs, [(0, longest - len(pairs)), (0, 1)], constant_values=-1),
            "lengths": np.pad(lengths, (0, longest - len(lengths)), constant_values=7),
            "flat": pairs.ravel(),
            "shaped": pairs.reshape(2, -1),
            "hot": np.eye(5, dtype=np.float32)[lengths % 5],
            "vector": np.array([m, m + 1, m]),
        }
        for name, value in want.items():
            got = element[name]
            assert got.dtype == value.dtype, name
            np.testing.assert_array_equal(got, value, err_msg=name)
        n += 1
    assert n == len(rows)


def test_one_batch_of_fixed_shapes(records):
    """In batches, where operators write into the batch's memory."""
    _, rows = records
    values = np.array([[row["n"], round(row["mean"])] for row in rows], np.int32)
    batch = (
        Dataset.arrays({"x": values, "y": values[:, 0]})
        .assign(hot="y % 3", grid="x", wide="x", bucket="float32(x)", part="x")
        .one_hot("hot", 3, dtype="int8")
        .reshape("grid", [-1, 1, 2])
        .pad("wide", shape=[4])
        .bucketize("bucket", [3, 10])
        .standardize("part", mean=[1, 2], std=4, dtype="float64")
        .stack(["y", "y", "y"], name="three")
        .concat_components(["x", "wide"], name="six")
        .flatten("y")
        .batch(len(rows))
        .peek()
    )
    wide = np.pad(values, [(0, 0), (0, 2)])
    y = values[:, 0]
    for name, want in {
        "hot": np.eye(3, dtype=np.int8)[y % 3],
        "grid": values.reshape(-1, 1, 1, 2),
        "wide": wide,
        "bucket": np.digitize(values, [3, 10]),
        "part": (values - np.array([1.0, 2])) / 4,
        "three": np.stack([y, y, y], axis=1),
        "six": np.concatenate([values, wide], axis=1),
        "y": y[:, None],
    }.items():
        assert batch[name].dtype == want.dtype
        np.testing.assert_array_equal(batch[name], want, err_msg=name)


def test_lookup_gives_pandas_codes(records):
    pandas = pytest.importorskip("pandas")
    dataset, rows = records
    words = pandas.Series([row["word"] for row in rows])
    vocabulary = words.value_counts().index[:50].to_list()
    codes = pandas.Index(vocabulary).get_indexer(words)
    batch = dataset.lookup("word", vocabulary=vocabulary).select(["word", "n"]).batch(len(rows)).peek()
    np.testing.assert_array_equal(batch["word"], codes)
    assert (codes == -1).any() and (codes == 49).any()
    batch = (
        dataset.lookup("word", vocabulary=vocabulary[::-1], default=99).select("word").batch(len(rows)).peek()
    )
    np.testing.assert_array_equal(batch["word"], np.where(codes < 0, 99, 49 - codes))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_vocabulary_in_a_file(tmp_path, end):
    path = tmp_path / "words.txt"
    path.write_bytes(f"größe{end}b{end}{end}a".encode())
    dataset = Dataset.arrays({"w": ["a", "", "b", "größe", "c"]}).lookup("w", file=path)
    assert dataset.batch(5).peek()["w"].tolist() == [3, 2, 1, 0, -1]
    path.write_text("a\n")  # read again by the next loop
    assert dataset.batch(5).peek()["w"].tolist() == [0, -1, -1, -1, -1]
    head, relative = {"op": "text", "files": "words.txt"}, {"op": "lookup", "component": "text"}
    text = json.dumps({"cachew": 1, "pipeline": [head, {**relative, "file": "words.txt"}]})
    assert [b["text"].tolist() for b in Dataset.from_json(text, base_dir=tmp_path)] == [0]


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "No such file"), (b"a\n\xff\na", 'word 2 is also word 0: "a"'), (b"", "at least one word")],
)
def test_a_wrong_file_of_a_vocabulary(tmp_path, content, text):
    path = tmp_path / "words.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(cachew.PipelineError) as caught:
        Dataset.arrays({"w": ["a"]}).lookup("w", file=path).batch(1).peek()
    assert text in str(caught.value)
    assert caught.value.attribute == "file"


def test_buckets_are_pandas_intervals(records):
    pandas = pytest.importorskip("pandas")
    dataset, rows = records
    means = pandas.Series([row["mean"] for row in rows])
    boundaries = [2.5, 4, 5.25, 8]
    want = pandas.cut(means, [-np.inf, *boundaries, np.inf], right=False, labels=False)
    batch = dataset.bucketize("mean", boundaries).select("mean").batch(len(rows)).peek()
    np.testing.assert_array_equal(batch["mean"], want)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_special_values(dtype):
    values = np.array([np.nan, -np.inf, np.inf, -0.0, 2, 3, 65504], dtype)
    with np.errstate(all="ignore"):
        want = ((values.astype(np.float64) - 2) / 0.5).astype(dtype)
    batch = (
        Dataset.arrays({"x": values})
        .assign(b="x")
        .bucketize("b", [0, 3])
        .standardize("x", mean=2, std=0.5, dtype=dtype)
        .batch(7)
        .peek()
    )
    np.testing.assert_array_equal(batch["x"], want)
    np.testing.assert_array_equal(batch["b"], np.digitize(values, [0, 3]))


X = np.arange(6, dtype=np.int64).reshape(2, 3)
BASE = Dataset.arrays({"x": X, "y": X.astype(np.float32), "k": X[:, 0], "s": ["a", "bc"]})


@pytest.mark.parametrize(
    ("build", "attribute", "text"),
    [
        (lambda: BASE.one_hot("y", 3), "component", 'integers, but "y" is float32[3]'),
        (lambda: BASE.one_hot("s", 3), "component", 'numbers or bool, but "s" is bytes'),
        (lambda: BASE.one_hot("x", 0), "classes", "from 1 to"),
        (lambda: BASE.pad("x"), "shape", "either `shape` or `to`"),
        (lambda: BASE.pad("x", shape=[4], to=4), "to", "either `shape` or `to`"),
        (lambda: BASE.pad("x", shape=[2]), "shape", 'at least 3 for dimension 0: "x" is int64[3]'),
        (
            lambda: BASE.pad("x", shape=[4, 4]),
            "shape",
            'one size for each dimension of "x", which is int64[3]',
        ),
        (lambda: BASE.pad("k", to=4), "to", 'a component with dimensions: "k" is int64'),
        (lambda: BASE.pad("x", to=4, value=0.5), "value", "a value of the component's dtype, int64"),
        (lambda: BASE.reshape("x", [2, 2]), "shape", 'a shape for the 3 values of "x", which is int64[3]'),
        (lambda: BASE.reshape("x", [-1, -1]), "shape", "at most one -1"),
        (lambda: BASE.reshape("x", [-1, 0]), "shape", "no 0 beside -1"),
        (lambda: BASE.stack(["x", "y"], name="z"), "components", '"x" is int64[3], "y" float32[3]'),
        (lambda: BASE.stack(["x", "k"], name="z"), "components", '"x" is int64[3], "k" int64'),
        (lambda: BASE.stack(["x"], name="z", axis=2), "axis", "-2 to 1"),
        (lambda: BASE.concat_components(["k", "k"], name="z"), "components", "`stack` makes an array"),
        (lambda: BASE.concat_components(["x", "x"], name="z", axis=1), "axis", "-1 to 0"),
        (lambda: BASE.bucketize("x", [1, 1]), "boundaries", "strictly ascending order"),
        (lambda: BASE.standardize("x", mean=[1, 2], std=1), "mean", "its last dimension is not 2"),
        (lambda: BASE.standardize("x", mean=[1, 2, 3], std=[1, 2]), "std", "3 values"),
        (lambda: BASE.standardize("x", mean=0, std=0), "std", "values other than 0"),
        (lambda: BASE.standardize("x", mean=0, std=1, dtype="int8"), "dtype", "float32 or float64"),
        (lambda: BASE.lookup("x", vocabulary=["a"]), "component", 'bytes, but "x" is int64[3]'),
        (lambda: BASE.lookup("s", vocabulary=["a", "b", "a"]), "vocabulary", 'word 2 is also word 0: "a"'),
        (lambda: BASE.lookup("s"), "vocabulary", "either `vocabulary` or `file`"),
        (lambda: BASE.stack(["x", "z"], name="z"), "components", 'there is no component "z"'),
    ],
)
def test_wrong_attributes(build, attribute, text):
    with pytest.raises(cachew.PipelineError) as caught:
        build().batch(1).peek()
    assert caught.value.attribute == attribute
    assert text in str(caught.value)


RAGGED = {"t": {"dtype": "int32", "variable": True}, "u": {"dtype": "int32", "variable": True}}


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda ds: ds.one_hot("t", 3), '"t" has class 3: expected 0 to 2, as classes is 3'),
        (lambda ds: ds.assign(t="-t").one_hot("t", 3), '"t" has class -1: expected 0 to 2'),
        (lambda ds: ds.pad("t", to=2), '"t" has shape [3]: expected at most 2 in its first dimension'),
        (lambda ds: ds.pad("t", shape=[2]), '"t" has shape [3]: expected at most [2]'),
        (
            lambda ds: ds.reshape("t", [2, -1]),
            '"t" has 3 values: expected a multiple of 2 for the shape [2,?]',
        ),
        (lambda ds: ds.reshape("t", [4]), '"t" has 3 values: expected 4 for the shape [4]'),
        (
            lambda ds: ds.stack(["t", "u"], name="x"),
            '"t" has shape [3] and "u" [2]: expected shapes that fit',
        ),
    ],
)
def test_records_that_fail(tmp_path, build, text):
    (tmp_path / "a.jsonl").write_text('{"t": [1, 2, 3], "u": [1, 2]}\n')
    dataset = build(Dataset.jsonl(str(tmp_path / "a.jsonl"), features=RAGGED))
    with pytest.raises(cachew.RecordError) as caught:
        list(dataset)
    assert text in str(caught.value)
    assert sum(len(batch["u"]) for batch in dataset.on_error("skip")) == 0
