"""Sources of files with many records each, black box: what a run gives, and what it says of bad input."""

import gzip
import json

import numpy as np
import pytest
from test_cli import BATCH, SHUFFLE, examples, failed, own_index_dir, run, shared_dir, write  # noqa: F401


def batches(pipeline, tmp_path, *words, components=()):
    """Rows of all batches in order: for each component a list (numbers as NumPy has them, bytes as bytes)."""
    out = tmp_path / "dump"
    run(pipeline, "--dump", out, *words)
    rows = {name: [] for name in components}
    for path in sorted(out.glob("*.npz")):
        with np.load(path) as batch:
            for name in components:
                if f"{name}.lengths" in batch:
                    data, at = batch[name].tobytes(), 0
                    for length in batch[f"{name}.lengths"]:
                        rows[name].append(data[at : at + int(length)])
                        at += int(length)
                else:
                    rows[name] += batch[name].tolist()
        path.unlink()
    return rows


# ---- text ----

LINES = [b"first", b"", b"third \xff\x00", b"last"]


@pytest.mark.parametrize(("name", "pack"), [("a.txt", bytes), ("a.txt.gz", gzip.compress)])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_text_is_lines(tmp_path, name, pack, end):
    (tmp_path / name).write_bytes(pack(end.join(LINES)))
    pipeline = write(tmp_path / "p.json", [{"op": "text", "files": name}, BATCH])
    assert batches(pipeline, tmp_path, components=["text"])["text"] == LINES


def test_text_without_any_line(tmp_path):
    (tmp_path / "empty.txt").touch()
    assert run(write(tmp_path / "p.json", [{"op": "text", "files": "empty.txt"}, BATCH]))["batches"] == 0


def test_text_of_the_same_lines_in_another_file_has_other_records(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"same\n")
    (tmp_path / "b.txt").write_bytes(b"same\n")
    run(write(tmp_path / "p.json", [{"op": "text", "files": ["a.txt", "b.txt"]}, BATCH]), "--log", tmp_path / "log")
    records = json.loads((tmp_path / "log").read_text().splitlines()[0])["records"]
    assert len(set(records)) == 2


def test_text_with_a_line_that_is_too_long(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"short\n" + b"x" * 5000 + b"\nshort\n")
    chain = [{"op": "text", "files": "a.txt", "max_line": 100}, BATCH]
    error = failed(write(tmp_path / "p.json", chain), 1)
    assert error["kind"] == "record" and error["file"].endswith("a.txt")
    assert "line 2 has 5000 bytes: max_line is 100" in error["message"]
    assert run(write(tmp_path / "p.json", chain, on_error="skip"))["elements"] == 2


def test_text_in_a_gzip_file_cut_off(tmp_path):
    packed = gzip.compress(b"line\n" * 10000, mtime=0)
    (tmp_path / "a.gz").write_bytes(packed[:-20])
    error = failed(write(tmp_path / "p.json", [{"op": "text", "files": "a.gz"}, BATCH]), 1)
    assert error["kind"] == "data" and error["file"].endswith("a.gz")


def test_text_file_that_changes_is_indexed_again(tmp_path):
    pipeline = write(tmp_path / "p.json", [{"op": "text", "files": "a.txt"}, BATCH])
    (tmp_path / "a.txt").write_bytes(b"a\nb\n")
    state = tmp_path / "state"
    assert run(pipeline, "--state", state, "--batches", "1")["elements"] == 2
    (tmp_path / "a.txt").write_bytes(b"a\nB\n")  # another content of the same size
    error = failed(pipeline, 2, "--state", state)
    assert error["kind"] == "state"
    assert batches(pipeline, tmp_path, components=["text"])["text"] == [b"a", b"B"]


# ---- jsonl ----

FEATURES = {"id": "int64", "name": {"dtype": "bytes", "default": "nobody"}, "v": {"dtype": "float32", "shape": [2, 2]}}


def json_lines(path, lines):
    path.write_text("".join(line + "\n" for line in lines))


def good_line(i):
    return json.dumps({"id": i, "name": None if i % 3 == 0 else f"n\u00e4me {i}\n", "v": [[i, 0.5], [-1, 1e3]]})


def jsonl_chain(*ops, **attributes):
    return [{"op": "jsonl", "files": "a.jsonl", "features": FEATURES, **attributes}, *ops, BATCH]


def test_jsonl_gives_components(tmp_path):
    json_lines(tmp_path / "a.jsonl", map(good_line, range(10)))
    rows = batches(write(tmp_path / "p.json", jsonl_chain()), tmp_path, components=["id", "name", "v"])
    assert rows["id"] == list(range(10))
    assert rows["name"] == [b"nobody" if i % 3 == 0 else f"n\u00e4me {i}\n".encode() for i in range(10)]
    assert rows["v"] == [[[i, 0.5], [-1, 1e3]] for i in range(10)]


BAD_LINES = {
    "syntax": ('{"id": 5, "v": [[1, 2], [3, 4]]', "malformed JSON: expected"),
    "no object": ("[5]", "malformed JSON: expected an object"),
    "empty": ("", "expected an object, but there is nothing"),
    "not UTF-8": ('{"id": 5, "name": "\udcff", "v": [[1, 2], [3, 4]]}', "not UTF-8"),
    "fraction": ('{"id": 1.5, "v": [[1, 2], [3, 4]]}', '"id" holds 1.5, which is not an integer for int64'),
    "out of range": ('{"id": 9223372036854775808, "v": [[1, 2], [3, 4]]}', "out of range for int64"),
    "missing": ('{"v": [[1, 2], [3, 4]]}', '"id" (int64) is missing'),
    "null": ('{"id": null, "v": [[1, 2], [3, 4]]}', '"id" (int64) is null'),
    "another type": ('{"id": "5", "v": [[1, 2], [3, 4]]}', '"id" holds a string, expected int64'),
    "shape": ('{"id": 5, "v": [[1, 2], [3]]}', '"v" has an array of 1 values where 2 are expected'),
    "deep": ('{"id": 5, "v": ' + "[" * 100000 + "]" * 100000 + "}", "nested too deeply"),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_jsonl_with_a_bad_line_in_the_middle(tmp_path, kind):
    line, reason = BAD_LINES[kind]
    lines = [good_line(i) if i != 5 else line for i in range(10)]
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    error = failed(write(tmp_path / "p.json", jsonl_chain()), 1)
    assert error["kind"] == "record" and error["operator"] == "jsonl"
    assert error["file"].endswith("a.jsonl") and error["record"].endswith(":5")
    assert "line 6: " in error["message"] and reason in error["message"]
    rows = batches(write(tmp_path / "p.json", jsonl_chain(), on_error="skip"), tmp_path, components=["id"])
    assert rows["id"] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    ran = run(write(tmp_path / "p.json", jsonl_chain(), on_error="replace"))
    assert ran["elements"] == 10 and ran["replaced"] == 1


def test_jsonl_reads_only_what_somebody_needs(tmp_path):
    json_lines(tmp_path / "a.jsonl", ['{"id": 1, "v": "nonsense"}'])
    chain = jsonl_chain({"op": "select", "components": ["id"]})
    assert batches(write(tmp_path / "p.json", chain), tmp_path, components=["id"])["id"] == [1]


def test_jsonl_shuffled_is_the_same_set(tmp_path):
    json_lines(tmp_path / "a.jsonl", map(good_line, range(300)))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes(), mtime=0))
    for name in ("a.jsonl", "b.jsonl.gz"):
        chain = jsonl_chain(SHUFFLE, files=name)
        rows = batches(write(tmp_path / "p.json", chain), tmp_path, "--seed", "3", components=["id"])
        assert rows["id"] != sorted(rows["id"]) and sorted(rows["id"]) == list(range(300))


def test_jsonl_features_are_checked(tmp_path):
    error = failed(write(tmp_path / "p.json", jsonl_chain(features={"id": "int65"})), 2)
    assert error["operator"] == "jsonl" and error["attribute"] == "features"
