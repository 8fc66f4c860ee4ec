"""`cachew show`: texts, thumbnails and pages of elements."""

import base64
import html
import io
import json
import re

import numpy as np
import pytest

from command import cachew


def pipeline(tmp_path, chain):
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return path


def texts(tmp_path, values, *words):
    """Shows elements with a text each; `words` follow."""
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": value}) + "\n" for value in values))
    source = {"op": "jsonl", "files": [str(tmp_path / "rows.jsonl")], "features": {"text": "bytes"}}
    return cachew("show", pipeline(tmp_path, [source]), *words)


def values(ran):
    assert ran.code == 0, ran.err
    return [element["components"] for element in json.loads(ran.out.splitlines()[-1])["elements"]]


@pytest.mark.parametrize("batch", [[], [{"op": "batch", "size": 3}]])
def test_numbers(tmp_path, batch):
    chain = [
        {"op": "range", "stop": 7},
        {
            "op": "assign",
            "set": {
                "big": "uint64(value) + uint64(18446744073709551600)",
                "half": "value / 2",
                "odd": "value % 2 == 1",
            },
        },
        *batch,
    ]
    path = pipeline(tmp_path, chain)
    found = values(cachew("show", path, "--json", "--elements", 5))
    assert [v["value"]["value"] for v in found] == [str(i) for i in range(5)]
    assert [v["half"]["value"] for v in found] == ["0", "0.5", "1", "1.5", "2"]
    assert [v["odd"]["value"] for v in found] == ["false", "true", "false", "true", "false"]
    assert found[4]["big"] == {"type": "uint64", "value": "18446744073709551604"}
    ran = cachew("show", path)
    assert ran.code == 0 and ran.out.count("element ") == 4
    assert re.search(r"^element 3  \w+:3\n  big    uint64  \d+3\n  half   float64  1.5\n", ran.out, re.M)


def synthetic(dtype, shape):
    return {"op": "synthetic", "count": 1, "dtype": dtype, "shape": shape}


def test_arrays(tmp_path):
    (found,) = values(cachew("show", pipeline(tmp_path, [synthetic("int32", [40])]), "--json"))
    assert found["data"]["type"] == "int32[40]"
    assert re.fullmatch(r"(-?\d+ ){8}\.\.\.  -?\d+ \.\. -?\d+", found["data"]["value"])
    (found,) = values(cachew("show", pipeline(tmp_path, [synthetic("float32", [3, 3, 3])]), "--json"))
    assert found["data"]["type"] == "float32[3, 3, 3]"
    assert re.fullmatch(r"\S+ \.\. \S+", found["data"]["value"])


def test_texts(tmp_path):
    rows = ("plain", "tab\tand \x1b[31m", "é" * 100, "", "<b>&")
    shown = [v["text"]["value"] for v in values(texts(tmp_path, rows, "--json", "--elements", 9))]
    assert shown == ["plain", r"tab\tand \u001b[31m", "é" * 36 + "...", "", "<b>&"]
    page = tmp_path / "page.html"
    assert texts(tmp_path, rows, "--html", page, "--elements", 9).code == 0
    text = page.read_text()
    assert "<b>" not in text
    assert [html.unescape(cell) for cell in re.findall(r"</td><td>([^<]*)<br><small>bytes", text)] == shown


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "file.bin").write_bytes(b"\xff\x00" * 6)
    path = pipeline(tmp_path, [{"op": "files", "files": [str(tmp_path / "file.bin")]}])
    (found,) = values(cachew("show", path, "--json"))
    assert {"type": "bytes, 12", "value": "ff 00 ff 00 ff 00 ff 00 ..."} in found.values()


def images(tmp_path, page):
    image = pytest.importorskip("PIL.Image")
    found = re.findall(r"data:image/(\w+);base64,([^\"]+)", page.read_text())
    return [(kind, np.asarray(image.open(io.BytesIO(base64.b64decode(data))))) for kind, data in found]


def test_a_page_has_thumbnails(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, (480, 320, 3), np.uint8)
    image.fromarray(pixels).save(tmp_path / "image.png")
    chain = [{"op": "files", "files": [str(tmp_path / "image.png")]}]
    page = tmp_path / "page.html"
    assert cachew("show", pipeline(tmp_path, chain), "--html", page).code == 0
    ((kind, whole),) = images(tmp_path, page)
    assert kind == "png" and np.array_equal(whole, pixels)
    chain.append({"op": "decode_image", "component": "data"})
    assert cachew("show", pipeline(tmp_path, chain), "--html", page).code == 0
    ((kind, small),) = images(tmp_path, page)
    assert kind == "png" and small.shape == (160, 106, 3)
    edges = [x * 320 // 106 for x in range(107)]
    for x in (0, 50, 105):
        box = pixels[30:33, edges[x] : edges[x + 1]].reshape(-1, 3).astype(int)
        assert np.array_equal(small[10, x], box.sum(axis=0) // len(box)), x


def test_floats_are_stretched(tmp_path):
    page = tmp_path / "page.html"
    assert cachew("show", pipeline(tmp_path, [synthetic("float32", [16, 20])]), "--html", page).code == 0
    ((_, plane),) = images(tmp_path, page)
    assert plane.shape == (16, 20, 3) and plane.min() == 0 and plane.max() == 255
    assert cachew("show", pipeline(tmp_path, [synthetic("float32", [2, 20])]), "--html", page).code == 0
    assert images(tmp_path, page) == []  # too few rows for a picture


def test_a_terminal_gets_half_blocks(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.array([[[255, 0, 0]], [[0, 255, 0]], [[0, 0, 9]]], np.uint8)
    image.fromarray(pixels).save(tmp_path / "image.png")
    source = {"op": "files", "files": [str(tmp_path / "image.png")]}
    chain = [source, {"op": "decode_image", "component": "data"}]
    ran = cachew("show", pipeline(tmp_path, chain), "--pictures")
    assert "\x1b[38;2;255;0;0m\x1b[48;2;0;255;0m▀\x1b[0m\n" in ran.out
    assert "  \x1b[38;2;0;0;9m▀\x1b[0m\n" in ran.out
    assert "\x1b" not in cachew("show", pipeline(tmp_path, chain)).out


def test_peaks_of_a_series(tmp_path):
    chain = [
        {"op": "range", "stop": 1},
        {"op": "assign", "set": {"x": "float32(value)"}},
        {"op": "reshape", "component": "x", "shape": [1]},
        {"op": "pad", "component": "x", "to": 512, "value": -8},
    ]
    ran = cachew("show", pipeline(tmp_path, chain))
    assert ran.code == 0, ran.err
    assert "█" * 64 in ran.out and "-8 .. 0" in ran.out


def test_mistakes(tmp_path):
    path = pipeline(tmp_path, [{"op": "range", "stop": 4}, {"op": "filter", "where": "value > 9"}])
    ran = cachew("show", path)
    assert ran.code == 1 and "gives no element" in ran.err
    ran = cachew("show", path, "--html", tmp_path / "none" / "page.html")
    assert ran.code != 0 and "page.html" in ran.err and "No such file" in ran.err
    assert "expected" in cachew("show", path, "--elements", 0).err
