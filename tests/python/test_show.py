"""What a dataset shows of itself: show, the HTML of notebooks, and describe, against NumPy."""

import base64
import io
import math
import re
import sys
import types

import cachew
import numpy as np
import pytest
from cachew import Dataset, _describe, _show
from PIL import Image


def people():
    return Dataset.arrays(
        {
            "age": np.arange(10) * 3,
            "name": ["Ada", "<b>&", "", "x" * 90, "a\nb", b"\xff\x00\x01"] + ["Eve"] * 4,
        }
    )


def html_of(ds, n=8):
    return _show.table(ds, n)._repr_html_()


def pictures(html):
    return [Image.open(io.BytesIO(base64.b64decode(d))) for d in re.findall(r"base64,([^\"]+)", html)]


# ---- show ----


@pytest.mark.parametrize("ds", [people(), people().batch(4)], ids=["elements", "batches"])
def test_show_prints_a_table(ds, capsys):
    ds.show(6)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["age", "name"],
        ["---", "-" * 40],
        ["0", "Ada"],
        ["3", "<b>&"],
    ]
    assert lines[4:] == ["6", f"9    {'x' * 37}...", "12   a\\nb", "15   3 bytes: ff 00 01"]


def test_show_begins_where_the_next_loop_begins(capsys):
    ds = Dataset.range(100).shuffle()
    ds.set_epoch(2)
    ds.show(3)
    shown = [int(v) for v in capsys.readouterr().out.split()[2:]]
    assert shown == [int(e["value"]) for e in ds.iterator(epoch=2)][:3] and ds.epoch == 2


def test_elements_that_on_error_leaves_out_are_not_shown(capsys):
    ds = Dataset.range(9)._for_tests("fail", where="value % 4 == 1").on_error("skip")
    ds.show(3)
    assert capsys.readouterr().out.split()[2:] == ["0", "2", "3"]
    assert ds.describe().to_dict()["components"]["value"]["distinct"] == 7


def test_show_of_arrays():
    ds = Dataset.arrays({"x": np.arange(40.0, dtype="float32").reshape(2, 20), "y": np.ones((2, 3), bool)})
    assert repr(_show.table(ds, 1)).splitlines()[2].split("  ") == [
        "float32[20] 0.0 .. 19.0",
        "bool[3] [True, True, True]",
    ]


def test_show_with_ipython(monkeypatch, capsys):
    shown = []
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython, display.display = lambda: object(), shown.append
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    people().show(2)
    assert capsys.readouterr().out == "" and shown[0]._repr_html_() == html_of(people(), 2)
    ipython.get_ipython = lambda: None  # imported, but not active
    people().show(2)
    assert len(shown) == 1 and "Ada" in capsys.readouterr().out


def test_html_is_escaped():
    html = html_of(people().rename({"name": "<i>"}))
    assert "&lt;b&gt;&amp;" in html and "&lt;i&gt;" in html and "<b>" not in html and "<i>" not in html


@pytest.mark.parametrize("shape", [(30, 20, 3), (30, 20, 4), (30, 20, 1), (30, 20)], ids=str)
def test_pictures_of_arrays(shape):
    pixels = np.random.default_rng(1).integers(0, 256, (2, *shape), dtype=np.uint8)
    found = pictures(html_of(Dataset.arrays({"image": pixels})))
    assert [np.array_equal(np.asarray(p).reshape(shape), want) for p, want in zip(found, pixels, strict=True)]


def test_a_large_picture_is_a_thumbnail():
    pixels = np.random.default_rng(1).integers(0, 256, (1, 300, 1000, 3), dtype=np.uint8)
    (picture,) = pictures(html_of(Dataset.arrays({"image": pixels})))
    assert np.array_equal(np.asarray(picture), pixels[0, ::8, ::8])


def test_arrays_that_are_no_pictures():
    data = {
        "a": np.zeros((1, 5, 5, 2), np.uint8),
        "b": np.zeros((1, 5, 5, 3)),
        "c": np.zeros((1, 9), np.uint8),
    }
    assert "<img" not in html_of(Dataset.arrays(data))


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "gif"])
def test_pictures_of_encoded_images(kind, monkeypatch):
    file = io.BytesIO()
    Image.new("RGB", (400, 200), "red").save(file, kind)
    ds = Dataset.arrays({"image": [file.getvalue()]})
    html = html_of(ds)
    assert pictures(html)[0].size == (128, 64) and f"{kind} 200 x 400" in html
    monkeypatch.setitem(sys.modules, "PIL", None)  # not installed: the browser decodes
    (data,) = re.findall(rf"data:image/{kind};base64,([^\"]+)", html_of(ds))
    assert base64.b64decode(data) == file.getvalue()


def test_an_encoded_image_that_is_damaged():
    data = b"\xff\xd8\xff" + b"x" * 50
    assert base64.b64encode(data).decode() in html_of(Dataset.arrays({"image": [data]}))


def test_the_html_of_a_dataset():
    ds = people().filter("age > 3").shuffle().batch(4)
    ds.set_epoch(3)
    html = ds._repr_html_()
    assert "elements of an epoch: not known beforehand; batch size: 4; next epoch: 3" in html
    assert "<td" in html and ">int64<" in html and "filter(&#x27;age &gt; 3&#x27;)" in html
    assert "elements of an epoch: 10; batch size: none; next epoch: 0" in people()._repr_html_()


def test_the_html_of_a_dataset_without_its_files(tmp_path):
    assert "no-such-file" in Dataset.text(str(tmp_path / "no-such-file")).batch(2)._repr_html_()


# ---- describe ----


def numbers(n=500):
    rng = np.random.default_rng(3)
    x = rng.normal(5, 2, (n, 4)).astype("float32")
    x[::7, 1] = np.nan
    return {
        "x": x,
        "label": rng.integers(0, 9, n),
        "flag": rng.random(n) < 0.3,
        "large": rng.integers(2**63, 2**64 - 1, n, dtype=np.uint64),
        "image": rng.integers(0, 256, (n, 3, 2), dtype=np.uint8),
    }


@pytest.mark.parametrize("size", [None, 64])
def test_numbers_are_those_of_numpy(size):
    data = numbers()
    ds = Dataset.arrays(data)
    found = (ds if size is None else ds.batch(size)).describe().to_dict()
    assert (found["n"], found["n_elements"], found["at_random"]) == (500, 500, False)
    for name, array in data.items():
        facts, values = found["components"][name], array.astype("float64")
        assert facts["dtype"] == array.dtype.name and facts["bytes"] == array.nbytes
        assert facts["shapes"] == [[list(array.shape[1:]), 500]]
        assert (facts["min"], facts["max"]) == (np.nanmin(array), np.nanmax(array))
        assert facts["mean"] == pytest.approx(np.nanmean(values), rel=1e-12)
        assert facts["std"] == pytest.approx(np.nanstd(values), rel=1e-9)
        assert facts["missing"] == np.isnan(values).mean()
    for name in ("label", "flag"):
        values, counts = np.unique(data[name], return_counts=True)
        facts = found["components"][name]
        assert facts["distinct"] == len(values)
        want = dict(zip(values.tolist(), counts.tolist()))
        assert facts["top"] == [[v, want[v]] for v, _ in facts["top"]]
        assert [n for _, n in facts["top"]] == sorted(counts.tolist(), reverse=True)[:5]
    assert found["components"]["x"]["distinct"] is None


def test_texts():
    names = ["ab", "ab", "", "c" * 50 + "1", "c" * 50 + "2", b"\xff"]
    facts = Dataset.arrays({"name": names}).describe().to_dict()["components"]["name"]
    assert facts["length"] == {"min": 0, "mean": 107 / 6, "max": 51}
    assert facts["missing"] == 1 / 6 and facts["distinct"] == 5 and facts["top"][0] == ["ab", 2]
    assert facts["bytes"] == 107 and facts["min"] is None


def test_lengths_that_vary():
    ds = Dataset.range(6).map(
        lambda e: {"tokens": np.arange(e["value"] + 1)}, outputs={"tokens": ("int64", (None,))}
    )
    facts = ds.describe().to_dict()["components"]["tokens"]
    assert facts["length"] == {"min": 1, "mean": 3.5, "max": 6} and facts["max"] == 5
    assert sorted(facts["shapes"]) == [[[k], 1] for k in range(1, 7)]


def test_a_sample_is_random_and_repeatable():
    ds = Dataset.range(1_000_000)
    first = ds.describe(200).to_dict()
    assert first == ds.describe(200).to_dict() != ds.describe(200, seed=1).to_dict()
    assert (first["n"], first["at_random"], first["n_elements"]) == (200, True, 1_000_000)
    assert first["components"]["value"]["max"] > 900_000
    assert "a sample of 200 of 1000000 elements" in repr(ds.describe(200))


def test_the_first_elements_where_no_shuffle_can_be():
    taken = Dataset.range(1000).filter("value % 2 == 0").take(100)
    found = taken.describe(10).to_dict()
    assert not found["at_random"] and found["components"]["value"]["max"] == 18
    assert found["n_elements"] is None and "the first 10 elements" in repr(taken.describe(10))


def test_a_sample_of_buckets_and_of_maps_on_batches():
    ds = Dataset.range(50).assign(n="value % 7").bucket_by_length("n", boundaries=[3], sizes=[4, 6])
    assert ds.describe().to_dict()["components"]["value"]["distinct"] == 50


def test_many_values_and_values_that_are_not_finite(monkeypatch):
    monkeypatch.setattr(_describe, "MOST_VALUES", 50)
    assert Dataset.range(50).describe().to_dict()["components"]["value"]["distinct"] == 50
    facts = Dataset.range(51).describe().to_dict()["components"]["value"]
    assert facts["distinct"] is None and facts["top"] == []
    facts = Dataset.arrays({"x": [1.0, math.inf, math.nan]}).describe().to_dict()["components"]["x"]
    assert facts["max"] == math.inf and facts["min"] == 1.0 and facts["missing"] == pytest.approx(1 / 3)
    facts = Dataset.arrays({"x": [math.nan] * 2}).describe().to_dict()["components"]["x"]
    assert facts["mean"] is None and facts["min"] is None and facts["missing"] == 1


def test_a_description_is_a_table():
    shown = Dataset.arrays({"<x>": np.arange(4) % 2}).describe()
    assert repr(shown).splitlines()[0] == "the first 4 of 4 elements"
    assert repr(shown).splitlines()[3].split()[:6] == ["<x>", "int64", "[]", "0", "1", "0.5"]
    assert "&lt;x&gt;" in shown._repr_html_() and "<x>" not in shown._repr_html_()


def test_a_description_of_nothing():
    with pytest.raises(cachew.PipelineError, match="describe: the dataset has no element"):
        Dataset.range(5).filter("value > 9").describe()
    with pytest.raises(cachew.OptionError, match="option n is 0"):
        Dataset.range(5).describe(0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal(monkeypatch):
    monkeypatch.setattr(_describe, "PROGRESS_AFTER_S", 0.0)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # not installed
    monkeypatch.setattr(sys, "stderr", Terminal())
    Dataset.range(50).describe(30)
    assert sys.stderr.getvalue().startswith("\rdescribe: 0 of 30 elements")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    Dataset.range(50).describe(30)
    assert sys.stderr.getvalue() == ""


def test_progress_with_tqdm(monkeypatch):
    calls = []

    class Bar(list):
        def close(self):
            calls.append("closed")

    def bar(items, **options):
        calls.append(options["total"])
        return Bar(items)

    module = types.ModuleType("tqdm.auto")
    module.tqdm = bar
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert Dataset.range(50).describe(30).to_dict()["n"] == 30 and calls == [30, "closed"]
