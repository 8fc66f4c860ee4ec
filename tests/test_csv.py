"""The source csv, black box: what Python's csv module reads, and what it says of bad input."""

import csv
import gzip
import io
import math
import random

import numpy as np
import pytest
from command import BATCH, SHUFFLE, cachew, failed, run, write
from rows import read_rows

pytestmark = pytest.mark.usefixtures("own_index_dir")

TABLE = 'id,name,score,ok\r\n1,"a ""b"", c",0.5,true\r\n-2,"two\r\nlines",,False\r\n3,,1e3,TRUE\r\n'


def source(files="*.csv", **given):
    return [{"op": "csv", "files": files, **given}]


def rows_of(tmp_path, chain, *words):
    return read_rows(write(tmp_path / "p.json", chain), tmp_path, *words)


def same(a, b):
    return a == b or isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)


def test_columns_have_the_names_of_the_header_and_inferred_types(tmp_path):
    (tmp_path / "a.csv").write_bytes(TABLE.encode())
    found = rows_of(tmp_path, [*source(), BATCH])
    assert found["id"] == [1, -2, 3] and found["ok"] == [True, False, True]
    assert found["name"] == [b'a "b", c', b"two\r\nlines", b""]
    assert found["score"][0] == 0.5 and math.isnan(found["score"][1]) and found["score"][2] == 1000
    explained = cachew("explain", tmp_path / "p.json").out
    assert all(name in explained for name in ("id", "name", "score", "ok"))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["1", "-2", " 3 ", "007"], "int64"),
        (["1", "", "NA"], "float64"),
        (["1.5", "1e3", "inf"], "float64"),
        (["9223372036854775808", "1"], "float64"),
        (["true", "FALSE"], "bool"),
        (["true", ""], "object"),
        (["true", "1"], "object"),
        (["1", "x"], "object"),
        (["", "null"], "float64"),
        (["2020-01-01"], "object"),
    ],
)
def test_types_are_inferred(tmp_path, values, dtype):
    (tmp_path / "a.csv").write_text("x,pad\n" + "".join(f"{v},0\n" for v in values))
    pipeline = write(tmp_path / "p.json", [*source(), BATCH])
    run(pipeline, "--dump", tmp_path / "dump")
    with np.load(tmp_path / "dump" / "00000000.npz") as batch:
        found = "object" if "x.lengths" in batch else str(batch["x"].dtype)
    assert found == dtype


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
@pytest.mark.parametrize("packed", [False, True])
def test_any_text_is_read_as_by_pythons_csv(tmp_path, delimiter, packed):
    rng = random.Random(f"{delimiter}{packed}")
    pieces = [delimiter, '"', "\n", "\r\n", "a", "é", " ", "'", "0", "\\", "x"]
    table = [
        ["".join(rng.choices(pieces, k=rng.choice([0, 1, 5, 30]))) for _ in range(5)] for _ in range(3000)
    ]
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator=rng.choice(["\n", "\r\n"])).writerows(
        [["a", "b", "c", "d", "e"], *table]
    )
    data = text.getvalue().encode()
    (tmp_path / "t.csv").write_bytes(gzip.compress(data) if packed else data)
    expected = list(csv.reader(io.StringIO(text.getvalue(), newline=""), delimiter=delimiter))[1:]
    assert expected == table
    given = {"delimiter": delimiter, "types": {c: "bytes" for c in "abcde"}}
    found = rows_of(tmp_path, [*source(**given), BATCH], "--threads", "3")
    for k, name in enumerate("abcde"):
        assert found[name] == [row[k].encode() for row in table]


def test_numbers_are_those_of_python(tmp_path):
    rng = random.Random(7)
    values = [
        rng.choice([repr(rng.gauss(0, 10 ** rng.randint(-30, 30))), f"{rng.random():.17e}"])
        for _ in range(2000)
    ]
    (tmp_path / "a.csv").write_text(
        "x,i\n" + "".join(f"{v},{k * 3**30 - 2**60}\n" for k, v in enumerate(values))
    )
    found = rows_of(tmp_path, [*source(), BATCH])
    assert found["x"] == [float(v) for v in values]
    assert found["i"] == [k * 3**30 - 2**60 for k in range(2000)]


def test_without_header_columns_are_numbered(tmp_path):
    (tmp_path / "a.csv").write_text("1,x\n2,y\n")
    assert rows_of(tmp_path, [*source(header=False), BATCH]) == {"f0": [1, 2], "f1": [b"x", b"y"]}


def test_columns_of_other_files_in_another_order(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n")
    (tmp_path / "b.csv").write_text("\ufeffz,y,x\n9,b,2\n\n\n8,c,3\n", encoding="utf-8")
    assert rows_of(tmp_path, [*source(), BATCH]) == {"x": [1, 2, 3], "y": [b"a", b"b", b"c"]}


def test_an_index_column_of_pandas_has_a_name(tmp_path):
    (tmp_path / "a.csv").write_text(",y\n0,a\n1,b\n")
    assert rows_of(tmp_path, [*source(), BATCH])["f0"] == [0, 1]


def test_a_table_of_more_than_64_columns(tmp_path):
    (tmp_path / "a.csv").write_text(
        ",".join(f"c{k}" for k in range(100)) + "\n" + ",".join(str(k) for k in range(100)) + "\n"
    )
    error = failed(write(tmp_path / "p.json", [*source(), BATCH]), 2)
    assert "100 columns" in error["message"] and 'columns: ["c0"' in error["message"]
    found = rows_of(tmp_path, [*source(columns=["c99", "c3"]), BATCH])
    assert found == {"c3": [3], "c99": [99]}


@pytest.mark.parametrize("packed", [False, True])
def test_shuffled_it_is_the_same_set(tmp_path, packed):
    data = ("n,t\n" + "".join(f'{k},"{k}\n"\n' for k in range(5000))).encode()
    (tmp_path / "a.csv").write_bytes(gzip.compress(data) if packed else data)
    plain = run(write(tmp_path / "p.json", [*source(), BATCH]), "--digest")
    shuffled = run(write(tmp_path / "p.json", [*source(), SHUFFLE, BATCH]), "--digest", "--threads", "3")
    assert plain["set_digest"] == shuffled["set_digest"] and plain["elements"] == 5000


def test_a_quote_begins_a_field_only_after_the_delimiter(tmp_path):
    (tmp_path / "a.csv").write_text('x;y\n1,"2;3\n4;5\n')
    assert rows_of(tmp_path, [*source(delimiter=";"), BATCH]) == {"x": [b'1,"2', b"4"], "y": [3, 5]}
    error = failed(write(tmp_path / "p.json", [*source(delimiter=","), BATCH]), 1)
    assert "not closed" in error["message"]  # another index of the same file


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("2,b", ["row 1 ", "2 fields", "expected 3"]),
        ("2,b,c,d", ["row 1 ", "4 fields", "expected 3"]),
        ("2x,b,1", ["row 1, ", '"n"', "2x", "int64", 'types: {"n": "bytes"}']),
        ("2.5,b,1", ["row 1, ", '"n"', "2.5", "is not an integer", 'types: {"n": "float64"}']),
        ("99999999999999999999,b,1", ["row 1, ", '"n"', "out of range"]),
        (",b,1", ["row 1, ", '"n"', "missing", 'types: {"n": "float64"}']),
        ('2,"b"c,1', ["row 1", "field 1", "closing quote"]),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, words):
    good = "".join(f"{k},a,1\n" for k in range(1))
    (tmp_path / "a.csv").write_text("n,t,f\n" + good + row + "\n7,z,1\n")
    chain = [*source(types={"n": "int64"}), BATCH]
    error = failed(write(tmp_path / "p.json", chain), 1)
    assert error["kind"] == "record" and error["file"].endswith("a.csv")
    assert all(word in error["message"] for word in words), error["message"]
    found = read_rows(write(tmp_path / "q.json", chain, on_error="skip"), tmp_path)
    assert found["n"] == [0, 7]


def test_a_bad_value_in_a_column_that_is_not_needed(tmp_path):
    (tmp_path / "a.csv").write_text("n,t\n1,x\n2,y\n")
    chain = [*source(types={"t": "int64"}), {"op": "select", "components": ["n"]}, BATCH]
    assert rows_of(tmp_path, chain) == {"n": [1, 2]}


@pytest.mark.parametrize(
    ("data", "given", "code", "words"),
    [
        (b"", {}, 1, ["a.csv", "empty"]),
        (b"\n\n", {}, 1, ["a.csv", "empty"]),
        (b'a,b\n1,"x\n2,y\n', {}, 1, ["a.csv", "not closed", "byte 4"]),
        (b"a,a\n1,2\n", {}, 2, ["two columns", '"a"']),
        (b"a,b\n1,2\n", {"types": {"c": "int64"}}, 2, ['"c"', "there are: a, b"]),
        (b"a,b\n1,2\n", {"types": {"b": "int"}}, 2, ['"b"', "dtype"]),
        (b"a,b\n1,2\n", {"columns": ["bb"]}, 2, ['did you mean "b"']),
        (gzip.compress(b"a,b\n" + b"1,2\n" * 99, mtime=0)[:-9], {}, 1, ["a.csv", "gzip"]),
    ],
)
def test_bad_files_and_attributes(tmp_path, data, given, code, words):
    (tmp_path / "a.csv").write_bytes(data)
    error = failed(write(tmp_path / "p.json", [*source(**given), BATCH]), code)
    assert all(word in error["message"] for word in words), error["message"]


def test_a_file_that_lacks_a_column(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n")
    (tmp_path / "b.csv").write_text("x,z\n1,a\n")
    error = failed(write(tmp_path / "p.json", [*source(), BATCH]), 1)
    assert "b.csv" in error["message"] and '"y"' in error["message"]


def test_rows_longer_than_the_limit(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n2," + "b" * 100 + "\n3,c\n")
    error = failed(write(tmp_path / "p.json", [*source(max_line=50), BATCH]), 1)
    assert "row 1 has 102 bytes" in error["message"] and "max_line, 50" in error["message"]


def test_index_made_beforehand_is_used(tmp_path):
    (tmp_path / "a.csv").write_text(TABLE)
    words = ["index", tmp_path / "a.csv", "--format", "csv", "--sidecar", "--json"]
    first, second = cachew(*words), cachew(*words)
    assert first.json["indexed"] == 1 and second.json["reused"] == 1
    pipeline = write(tmp_path / "p.json", [*source(), BATCH])
    assert run(pipeline, "--index-dir", tmp_path / "none")["elements"] == 3
    assert not (tmp_path / "none").exists()
