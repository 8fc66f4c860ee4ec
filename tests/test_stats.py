"""`cachew stats`: against NumPy."""

import json

import numpy as np
import pytest

from command import cachew


def stats(tmp_path, chain, *words, code=0):
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    ran = cachew("stats", path, "--json", *words)
    assert ran.code == code, ran.err
    return json.loads(ran.out.splitlines()[-1])


def close(found, values):
    values = np.asarray(values, np.float64)
    for key, expected in {"mean": values.mean(), "std": values.std()}.items():
        assert found[key] == pytest.approx(expected, rel=1e-8), key


@pytest.mark.parametrize("batch", [[], [{"op": "batch", "size": 7}]])
def test_numbers(tmp_path, batch):
    chain = [
        {"op": "range", "stop": 5003},
        {"op": "shuffle"},
        {"op": "assign", "set": {"x": "float32(value) / 7 - 300", "big": "value + 9007199254740993"}},
        *batch,
    ]
    told = stats(tmp_path, chain)
    value = np.arange(5003)
    x = np.float32(value) / np.float32(7) - np.float32(300)
    found = told["components"]
    assert told["n"] == 5003 and list(found) == ["big", "value", "x"]
    assert [found["value"][key] for key in ("min", "max", "dtype", "bytes")] == [0, 5002, "int64", 5003 * 8]
    assert found["big"]["min"] == 9007199254740993 and found["big"]["max"] == 9007199254745995
    assert found["x"]["min"] == x.min() and found["x"]["max"] == x.max() and found["x"]["missing"] == 0
    close(found["value"], value)
    close(found["x"], x)


def test_missing_values_and_strings(tmp_path):
    lines = [b"", b"abc", b"", b"defgh", b"\xff"]
    (tmp_path / "lines.txt").write_bytes(b"\n".join(lines) + b"\n")
    chain = [
        {"op": "text", "files": "lines.txt"},
        {"op": "assign", "set": {"x": "sqrt(float64(length(text)) - 3)"}},
    ]
    found = stats(tmp_path, chain)["components"]
    assert found["text"]["length"] == {"min": 0, "mean": 9 / 5, "max": 5}
    assert found["text"]["missing"] == 2 / 5 and found["text"]["min"] is None
    assert found["x"]["missing"] == 3 / 5 and found["x"]["length"] is None
    close(found["x"], [0, 2**0.5])


def test_a_sample_is_the_first_elements(tmp_path):
    told = stats(tmp_path, [{"op": "range", "stop": 100}, {"op": "batch", "size": 8}], "--sample", 13)
    assert told["n"] == 13 and told["components"]["value"]["max"] == 12


def test_the_table_and_errors(tmp_path):
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": [{"op": "range", "stop": 4}]}))
    ran = cachew("stats", path)
    assert ran.out.splitlines()[0] == "4 elements"
    assert ran.out.splitlines()[2].split() == ["value", "int64", "0", "3", "1.5", "1.11803", "0.0%"]
    empty = stats(tmp_path, [{"op": "range", "stop": 4}, {"op": "filter", "where": "value > 9"}], code=1)
    assert "no element: expected at least one" in empty["error"]["message"]
