"""The source arrow, black box: what pyarrow reads, and what it says of bad input."""

import random
import resource

import numpy as np
import pytest
from column_files import DEFAULTS, LISTS, assert_same, expected, rows_of, table
from command import BATCH, SHUFFLE, cachew, failed, run, write

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")

pytestmark = pytest.mark.usefixtures("own_index_dir")

ONE = {"op": "batch", "size": 1}  # lists of different lengths can't be stacked


def source(files="*.arrow", **given):
    return {"op": "arrow", "files": files, **given}


def write_ipc(path, data, rows=None, stream=False, **options):
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(path, data.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(data, max_chunksize=rows)


def more_types(n):
    """What Parquet has no form for, or writes in another one."""
    words = [["red", None, "green", "a string of more than twelve bytes"][k % 4] for k in range(n)]
    return pa.table(
        {
            "large": pa.array([f"w{k}" * (k % 3) for k in range(n)], pa.large_string()),
            "view": pa.array([w or "" for w in words], pa.string_view()),
            "after": pa.array(np.arange(n, dtype="u2")),  # its buffers come after those of the view
            "bytes_view": pa.array([w and w.encode() for w in words], pa.binary_view()),
            "kind": pa.array(words).dictionary_encode(),
            "numbers": pa.DictionaryArray.from_arrays(
                pa.array([k % 3 for k in range(n)], pa.uint8()), pa.array([2.5, -1.0, 7.25])
            ),
            "nested": pa.array(
                [
                    None if k % 7 == 1 else {"x": {"y": None if k % 5 == 2 else k}, "z": str(k)}
                    for k in range(n)
                ],
                pa.struct([("x", pa.struct([("y", pa.int16())])), ("z", pa.string())]),
            ),
            "gone": pa.array([[(1, "a")]] * n, pa.map_(pa.int8(), pa.string())),
            "square": pa.array(
                [[[k, 1], [None if k % 6 == 3 else 2, 3], [4, 5]] for k in range(n)],
                pa.list_(pa.list_(pa.int32(), 2), 3),
            ),
            "pairs": pa.array(
                [None if k % 9 == 4 else [[k, j] for j in range(k % 4)] for k in range(n)],
                pa.large_list(pa.list_(pa.float64(), 2)),
            ),
            "bits": pa.array([[k % 2 == 0, k % 3 == 0, None] for k in range(n)], pa.list_(pa.bool_(), 3)),
            "flags": pa.array([[j % 3 == 0 for j in range(k % 5)] for k in range(n)], pa.list_(pa.bool_())),
            "span": pa.array(np.arange(n) * 1000, pa.duration("us")),
            "clock": pa.array(np.arange(n, dtype="i4"), pa.time32("s")),
        }
    )


MORE_DEFAULTS = {
    "bytes_view": "none",
    "kind": "-",
    "nested.x.y": -1,
    "nested.z": "?",
    "square": -7,
    "pairs": [],
    "bits": True,
}


def more_expected(n):
    def each(value):
        return [value(k) for k in range(n)]

    words = [["red", None, "green", "a string of more than twelve bytes"][k % 4] for k in range(n)]
    return {
        "large": each(lambda k: (f"w{k}" * (k % 3)).encode()),
        "view": [(w or "").encode() for w in words],
        "after": each(lambda k: k),
        "bytes_view": [(w or "none").encode() for w in words],
        "kind": [(w or "-").encode() for w in words],
        "numbers": each(lambda k: [2.5, -1.0, 7.25][k % 3]),
        "nested.x.y": each(lambda k: -1 if k % 7 == 1 or k % 5 == 2 else k),
        "nested.z": each(lambda k: b"?" if k % 7 == 1 else str(k).encode()),
        "square": each(lambda k: [[k, 1], [-7 if k % 6 == 3 else 2, 3], [4, 5]]),
        "pairs": each(lambda k: [] if k % 9 == 4 else [[float(k), float(j)] for j in range(k % 4)]),
        "bits": each(lambda k: [k % 2 == 0, k % 3 == 0, True]),
        "flags": each(lambda k: [j % 3 == 0 for j in range(k % 5)]),
        "span": each(lambda k: k * 1000),
        "clock": each(lambda k: k),
    }


WRITERS = {
    "file": {},
    "stream": {"stream": True, "rows": 64},
    "lz4": {"compression": "lz4", "rows": 100},
    "zstd stream": {"compression": "zstd", "stream": True, "rows": 33},
    "before version 0.15": {
        "stream": True,
        "use_legacy_format": True,
        "metadata_version": pa.ipc.MetadataVersion.V4,
    },
}


@pytest.mark.parametrize("how", WRITERS)
def test_every_type_is_read_as_by_pyarrow(tmp_path, how):
    parts = [table(320, 1), table(90, 2)]
    for k, part in enumerate(parts):
        write_ipc(tmp_path / f"{k}.arrow", part, **WRITERS[how])
    wanted = expected(pa.concat_tables(parts), DEFAULTS)
    found = rows_of(tmp_path, [source(nulls={"some": -1}, columns=["i64", *LISTS]), ONE])
    assert_same(found, {name: wanted[name] for name in ("i64", *LISTS)})
    found = rows_of(tmp_path, [source(nulls=DEFAULTS), {"op": "drop", "components": ["ints", "some"]}, BATCH])
    assert_same(found, {name: values for name, values in wanted.items() if name not in ("ints", "some")})


@pytest.mark.parametrize("how", ["file", "lz4", "zstd stream"])
def test_types_that_parquet_lacks(tmp_path, how):
    n = 230
    write_ipc(tmp_path / "0.arrow", more_types(n), **WRITERS[how])
    wanted = more_expected(n)
    lists = ("pairs", "flags")
    plain = [name for name in wanted if name not in lists]
    given = {name: value for name, value in MORE_DEFAULTS.items() if name not in lists}
    assert_same(rows_of(tmp_path, [source(nulls=given, columns=plain), BATCH]), {k: wanted[k] for k in plain})
    found = rows_of(tmp_path, [source(nulls={"pairs": 0}, columns=list(lists)), ONE])
    assert_same(found, {name: wanted[name] for name in lists})


def test_files_of_feather(tmp_path):
    data = table(300)
    feather.write_feather(data, tmp_path / "0.arrow", chunksize=77)
    found = rows_of(tmp_path, [source(columns=["i64", "text", "kind"]), BATCH])
    assert_same(found, {name: expected(data, {})[name] for name in ("i64", "text", "kind")})
    (tmp_path / "0.arrow").write_bytes(b"FEA1" + bytes(40) + b"FEA1")
    error = failed(write(tmp_path / "p.json", [source(), BATCH]), 1)
    assert "version 1: expected version 2" in error["message"]


def test_dictionaries_that_grow_and_change(tmp_path):
    """Of a stream, a batch has the dictionaries that came before it."""
    type_ = pa.dictionary(pa.int8(), pa.string())
    batches = [["a", "b"], ["a", "b", "c"], ["x", None]]
    for emit in (False, True):
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=emit)
        with pa.ipc.new_stream(tmp_path / "0.arrow", pa.schema([("w", type_)]), options=options) as writer:
            for words in batches:
                indexes = pa.array(range(len(words)), pa.int8())
                array = pa.DictionaryArray.from_arrays(indexes, pa.array(words))
                writer.write(pa.record_batch({"w": array}))
        found = rows_of(tmp_path, [source(nulls={"w": "?"}), BATCH])
        assert found == {"w": [b"a", b"b", b"a", b"b", b"c", b"x", b"?"]}


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_shuffled_and_sliced_it_is_the_same(tmp_path, compression):
    data = table(3000).select(["i64", "text", "f32", "kind"])
    write_ipc(tmp_path / "a.arrow", data, rows=256, compression=compression)
    plain = run(write(tmp_path / "p.json", [source(), BATCH]), "--digest")
    chain = [source(), SHUFFLE, BATCH]
    digests = {
        run(write(tmp_path / "p.json", chain), "--threads", n, "--digest", "--memory", "40M")["digest"]
        for n in (1, 3)
    }
    assert len(digests) == 1
    shuffled = run(tmp_path / "p.json", "--digest")
    assert plain["set_digest"] == shuffled["set_digest"] and plain["elements"] == 3000
    part = rows_of(tmp_path, [source(), {"op": "skip", "count": 700}, {"op": "take", "count": 900}, BATCH])
    assert part["i64"] == list(range(700, 1600)) and part["text"] == expected(data, {})["text"][700:1600]


def test_without_a_mapping_rows_are_the_same(tmp_path):
    """With a limit of address space, no file is mapped: rows are read one by one, or in runs."""
    write_ipc(tmp_path / "0.arrow", more_types(900), rows=400)
    write_ipc(tmp_path / "1.arrow", more_types(50))
    columns = [name for name in more_expected(1) if name != "pairs"]
    given = {name: value for name, value in MORE_DEFAULTS.items() if name in columns}
    chain = [source(nulls=given, columns=columns), SHUFFLE, ONE]
    pipeline = write(tmp_path / "p.json", chain)
    mapped = run(pipeline, "--digest")
    most, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 46, hard))  # a limit that nothing reaches
    try:
        found = run(pipeline, "--digest")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    assert found["digest"] == mapped["digest"] and found["elements"] == 950


def test_nulls_are_named_with_what_to_write(tmp_path):
    for type_, values, default in (
        (pa.int64(), [1, None], "0"),
        (pa.string(), ["a", None], '""'),
        (pa.bool_(), [True, None], "false"),
        (pa.list_(pa.int64()), [[1], None], "[]"),
        (pa.list_(pa.int64(), 1), [[1], [None]], "0"),
        (pa.dictionary(pa.int8(), pa.string()), ["a", None], '""'),
    ):
        write_ipc(tmp_path / "a.arrow", pa.table({"id": [7, 8], "x": pa.array(values, type_)}))
        error = failed(write(tmp_path / "p.json", [source(), BATCH]), 1)
        assert error["kind"] == "record" and error["file"].endswith("a.arrow")
        assert 'row 1, column "x"' in error["message"] and f'nulls: {{"x": {default}}}' in error["message"]
    chain = [source(), {"op": "select", "components": ["id"]}, BATCH]
    assert rows_of(tmp_path, chain) == {"id": [7, 8]}  # the column is not needed


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"columns": ["idd"]}, ['did you mean "id"']),
        ({"columns": ["names"]}, ['"names"', "lists of strings", 'columns: ["id"']),
        ({"columns": ["price"]}, ["decimal"]),
        ({"columns": ["pairs"]}, ["maps"]),
        ({"columns": ["deep"]}, ["lists of lists"]),
        ({"columns": ["rows"]}, ["lists of structs"]),
        ({"columns": ["none"]}, ["nulls only"]),
        ({"columns": ["either"]}, ["unions"]),
        ({"columns": ["id"], "nulls": {"x": 1}}, ['"x"', "there are: id"]),
        ({"columns": ["two"], "nulls": {"two": [1]}}, ["int64[2]", '"two"']),
    ],
)
def test_attributes_are_checked(tmp_path, given, words):
    data = {
        "either": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1]), pa.array(["a"])]),
        "names": [["a"]],
        "price": pa.array([1], pa.decimal128(5, 2)),
        "pairs": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "deep": [[[1]]],
        "rows": [[{"a": 1}]],
        "none": pa.array([None]),
        "two": pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
    }
    data = {"id": [1], **data}
    write_ipc(tmp_path / "a.arrow", pa.table(data))
    error = failed(write(tmp_path / "p.json", [source(**given), BATCH]), 2)
    assert all(word in error["message"] for word in words), error["message"]
    assert rows_of(tmp_path, [source(columns=["id"]), BATCH]) == {"id": [1]}


def damaged(content, damage):
    data = bytearray(content)
    if damage == "short":
        return data[:12]
    if damage == "cut":
        return data[:-100]
    if damage == "text":
        return b"id,t\n1,2\n1234567890,1234567890"
    if damage == "footer":
        data[-120:-60] = b"\xff" * 60
    if damage == "body":  # offsets of strings
        at = data.find(np.arange(0, 21, 4, dtype="i4").tobytes())
        data[at : at + 4] = b"\xff" * 4
    return data


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("short", ["a.arrow", "less than 20 bytes"]),
        ("cut", ["a.arrow", "ARROW1"]),
        ("text", ["a.arrow", "no Arrow file"]),
        ("footer", ["a.arrow"]),
        ("body", ["a.arrow", "record batch at byte", '"t"', "row 0"]),
    ],
)
def test_damaged_files(tmp_path, damage, words):
    path = tmp_path / "a.arrow"
    write_ipc(path, pa.table({"id": np.arange(500), "t": [str(k % 7000 + 1000) for k in range(500)]}))
    path.write_bytes(damaged(path.read_bytes(), damage))
    error = failed(write(tmp_path / "p.json", [source(), BATCH]), 1)
    assert error["kind"] == "data", error
    assert all(word in error["message"] for word in words), error["message"]


@pytest.mark.parametrize("how", ["file", "zstd stream"])
def test_any_flipped_bit_ends_in_data_or_an_error(tmp_path, how):
    path, rng = tmp_path / "a.arrow", random.Random(4)
    write_ipc(path, table(40).select(["i64", "text", "ints", "word", "kind"]), **WRITERS[how])
    content = path.read_bytes()
    pipeline = write(tmp_path / "p.json", [source(nulls={"word": ""})])
    for _ in range(8):
        changed = bytearray(content)
        at = rng.randrange(8 * len(changed))
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(changed)
        ran = cachew("run", pipeline, "--json")
        assert ran.code in (0, 1, 2), (at, ran.code, ran.err)


def test_files_with_other_columns(tmp_path):
    write_ipc(tmp_path / "0.arrow", pa.table({"a": [1, 2], "b": ["x", "y"]}))
    write_ipc(tmp_path / "1.arrow", pa.table({"c": [5], "b": ["y"], "a": [2]}), stream=True)
    assert rows_of(tmp_path, [source(), BATCH]) == {"a": [1, 2, 2], "b": [b"x", b"y", b"y"]}
    write_ipc(tmp_path / "1.arrow", pa.table({"b": ["y"]}))
    assert '1.arrow: there is no column "a"' in failed(tmp_path / "p.json", 1)["message"]
    write_ipc(tmp_path / "1.arrow", pa.table({"b": ["y"], "a": [0.5]}))
    assert "is float64: expected int64" in failed(tmp_path / "p.json", 1)["message"]


def test_a_file_that_changes_between_runs_has_other_records(tmp_path):
    write_ipc(tmp_path / "0.arrow", pa.table({"a": [1, 2]}))
    first = run(write(tmp_path / "p.json", [source(), BATCH]), "--digest")
    write_ipc(tmp_path / "0.arrow", pa.table({"a": [1, 3]}))
    assert run(tmp_path / "p.json", "--digest")["digest"] != first["digest"]
