"""The source parquet, black box: what pyarrow reads, and what it says of bad input."""

import random

import numpy as np
import pytest
from column_files import DEFAULTS, LISTS, assert_same, expected, rows_of, table
from command import BATCH, SHUFFLE, cachew, failed, run, write

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.usefixtures("own_index_dir")

ENCODINGS = {
    "u8": "DELTA_BINARY_PACKED",
    "i64": "DELTA_BINARY_PACKED",
    "text": "DELTA_BYTE_ARRAY",
    "blob": "DELTA_LENGTH_BYTE_ARRAY",
    "word": "DELTA_BYTE_ARRAY",
    "f32": "BYTE_STREAM_SPLIT",
    "maybe": "BYTE_STREAM_SPLIT",
    "flag": "RLE",
}
WRITERS = {
    "default": {},
    "plain": {"compression": "none", "use_dictionary": False},
    "small pages": {"compression": "gzip", "data_page_size": 900, "row_group_size": 150},
    "second version of pages": {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 100},
    "encodings": {"use_dictionary": False, "column_encoding": ENCODINGS, "data_page_size": 3000},
    "dictionaries that end": {"dictionary_pagesize_limit": 600, "data_page_size": 800},
    "lz4": {"compression": "lz4"},
    "checksums": {"write_page_checksum": True, "store_schema": False},
    "timestamps of 96 bits": {"use_deprecated_int96_timestamps": True},
}


def source(files="*.parquet", **given):
    return {"op": "parquet", "files": files, **given}


@pytest.mark.parametrize("how", WRITERS)
def test_every_type_is_read_as_by_pyarrow(tmp_path, how):
    parts = [table(320, 1), table(90, 2)]
    for k, part in enumerate(parts):
        pq.write_table(part, tmp_path / f"{k}.parquet", **WRITERS[how])
    data = pa.concat_tables(parts)
    wanted = expected(data, DEFAULTS)
    one = {"op": "batch", "size": 1}  # lists of different lengths can't be stacked
    found = rows_of(tmp_path, [source(nulls={"some": -1}, columns=["i64", *LISTS]), one])
    assert_same(found, {name: wanted[name] for name in ("i64", *LISTS)})
    found = rows_of(tmp_path, [source(nulls=DEFAULTS), {"op": "drop", "components": [*LISTS]}, BATCH])
    assert_same(found, {name: values for name, values in wanted.items() if name not in LISTS})


def test_indexes_of_a_dictionary_of_every_width(tmp_path):
    """Up to 17 bits, of which some are not at the beginning of a byte, in runs that end in any place."""
    n = 70_001
    data = pa.table({f"w{k}": pa.array(np.arange(n) * 7 % 2**k % n, pa.int32()) for k in (1, 3, 8, 13, 17)})
    pq.write_table(data, tmp_path / "a.parquet", data_page_size=5000)
    chain = [source(), {"op": "batch", "size": 10_000}]
    assert rows_of(tmp_path, chain) == {name: data[name].to_pylist() for name in data.column_names}


@pytest.mark.parametrize("threads", [1, 3])
def test_shuffled_and_sliced_it_is_the_same(tmp_path, threads):
    data = table(3000).select(["i64", "text", "f32"])
    pq.write_table(data, tmp_path / "a.parquet", row_group_size=256)
    plain = run(write(tmp_path / "p.json", [source(), BATCH]), "--digest")
    chain = [source(), SHUFFLE, BATCH]
    words = ["--threads", threads, "--digest", "--memory", "40M"]
    shuffled = run(write(tmp_path / "p.json", chain), *words)
    assert plain["set_digest"] == shuffled["set_digest"] and plain["elements"] == 3000
    part = rows_of(tmp_path, [source(), {"op": "skip", "count": 700}, {"op": "take", "count": 900}, BATCH])
    assert part["i64"] == list(range(700, 1600))


def test_only_columns_that_are_needed_are_read(tmp_path):
    data = pa.table({f"c{k}": pa.array(np.arange(1000) + k) for k in range(100)})
    path = tmp_path / "a.parquet"
    pq.write_table(data, path, compression="none", use_dictionary=False)
    chunks = pq.read_metadata(path).row_group(0)
    content = bytearray(path.read_bytes())
    for k in range(100):
        if k not in (3, 70):  # what is not read may be anything
            at = chunks.column(k).data_page_offset
            content[at : at + 40] = b"\xff" * 40
    path.write_bytes(content)
    error = failed(write(tmp_path / "p.json", [source(), BATCH]), 2)
    assert "100 columns" in error["message"] and 'columns: ["c0"' in error["message"]
    found = rows_of(tmp_path, [source(columns=["c3", "c70"]), BATCH])
    assert found == {"c3": list(range(3, 1003)), "c70": list(range(70, 1070))}
    few = [source(columns=["c3", "c4"]), {"op": "select", "components": ["c3"]}, BATCH]
    assert rows_of(tmp_path, few) == {"c3": list(range(3, 1003))}


@pytest.mark.parametrize(
    ("values", "kind", "default"),
    [
        ([1, None, 3], "int64", "0"),
        (["a", None, "b"], "string", '""'),
        ([True, None, True], "bool", "false"),
        ([[1], None, [2]], "list", "[]"),
        ([[1], [None], [2]], "list", "0"),
    ],
)
def test_a_null_is_named_with_what_to_write(tmp_path, values, kind, default):
    type_ = pa.list_(pa.int64()) if kind == "list" else pa.type_for_alias(kind)
    pq.write_table(pa.table({"id": [7, 8, 9], "x": pa.array(values, type_)}), tmp_path / "a.parquet")
    error = failed(write(tmp_path / "p.json", [source(), BATCH]), 1)
    assert error["kind"] == "record" and error["file"].endswith("a.parquet")
    assert 'row 1, column "x"' in error["message"] and f'nulls: {{"x": {default}}}' in error["message"]
    chain = [source(), {"op": "select", "components": ["id"]}, BATCH]
    assert rows_of(tmp_path, chain) == {"id": [7, 8, 9]}  # the column is not needed
    assert run(write(tmp_path / "p.json", [source(), BATCH], on_error="skip"))["elements"] == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"columns": ["idd"]}, ['did you mean "id"']),
        ({"columns": ["names"]}, ['"names"', "lists of strings", 'columns: ["id"']),
        ({"columns": ["price"]}, ["decimal"]),
        ({"columns": ["pairs"]}, ["maps"]),
        ({"columns": ["deep"]}, ["lists of lists"]),
        ({"columns": ["id"], "nulls": {"x": 1}}, ['"x"', "there are: id"]),
        ({"columns": ["id"], "nulls": {"id": "a"}}, ["int64", '"id"']),
    ],
)
def test_attributes_are_checked(tmp_path, given, words):
    data = {
        "id": [1],
        "names": [["a"]],
        "price": pa.array([1], pa.decimal128(5, 2)),
        "pairs": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "deep": [[[1]]],
    }
    pq.write_table(pa.table(data), tmp_path / "a.parquet")
    error = failed(write(tmp_path / "p.json", [source(**given), BATCH]), 2)
    assert all(word in error["message"] for word in words), error["message"]


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "footer", "page", "codec"])
def test_damaged_files(tmp_path, damage):
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"id": np.arange(5000), "t": [str(k * 7919) for k in range(5000)]}),
        path,
        compression="brotli" if damage == "codec" else "zstd",
        use_dictionary=False,
        write_page_checksum=True,
    )
    content = bytearray(path.read_bytes())
    if damage == "page":
        at = pq.read_metadata(path).row_group(0).column(1)
        middle = at.data_page_offset + at.total_compressed_size // 2
        content[middle : middle + 8] = b"\xff" * 8
    elif damage == "footer":
        content[-300:-200] = b"\xff" * 100
    changed = {"empty": b"", "cut": content[:-100], "text": b"id,t\n1,2\n1234567890"}
    path.write_bytes(changed.get(damage, content))
    error = failed(write(tmp_path / "p.json", [source(), BATCH]), 1)
    words = {
        "page": ["row group 0", '"t"', "checksum"],
        "codec": ["row group 0", "brotli", "zstd"],
        "footer": ["footer"],
    }
    assert error["kind"] == "data" and "a.parquet" in error["message"]
    assert all(word in error["message"] for word in words.get(damage, [])), error["message"]


def test_any_flipped_bit_ends_in_data_or_an_error(tmp_path):
    path, rng = tmp_path / "a.parquet", random.Random(4)
    pq.write_table(table(40).select(["i64", "text", "ints", "word"]), path, data_page_size=200)
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
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"c": [5], "b": ["y"], "a": [2]}), tmp_path / "1.parquet")
    assert rows_of(tmp_path, [source(), BATCH]) == {"a": [1, 2], "b": [b"x", b"y"]}
    pq.write_table(pa.table({"b": ["y"]}), tmp_path / "1.parquet")
    assert '1.parquet: there is no column "a"' in failed(tmp_path / "p.json", 1)["message"]
    pq.write_table(pa.table({"b": ["y"], "a": [0.5]}), tmp_path / "1.parquet")
    assert "is float64: expected int64" in failed(tmp_path / "p.json", 1)["message"]


def test_a_file_that_changes_between_runs_has_other_records(tmp_path):
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "0.parquet")
    first = run(write(tmp_path / "p.json", [source(), BATCH]), "--digest")
    pq.write_table(pa.table({"a": [1, 3]}), tmp_path / "0.parquet")
    assert run(tmp_path / "p.json", "--digest")["digest"] != first["digest"]


def test_a_table_without_rows(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [4]}), tmp_path / "1.parquet")
    assert rows_of(tmp_path, [source(), BATCH]) == {"a": [4]}
