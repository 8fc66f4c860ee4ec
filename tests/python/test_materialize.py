"""`Dataset.materialize` and `Dataset.materialized`."""

import json

import numpy as np
import pytest

import cachew


def rows(ds):
    with ds.batch(16).iterator(seed=0) as batches:
        return [value for batch in batches for value in batch["value"].tolist()]


@pytest.mark.parametrize("form", ["cachew", "tfrecord", "tar"])
def test_elements_are_read_back(tmp_path, form):
    ds = cachew.Dataset.range(300).assign(x="value * 3").shuffle()
    seen = []
    done = ds.materialize(
        tmp_path / "out",
        format=form,
        shard_bytes="2K",
        seed=3,
        threads=2,
        progress=lambda elements, size: seen.append((elements, size)),
    )
    assert (
        done["elements"] == 300
        and done["shards"] > 3
        and set(done)
        == {
            "shards",
            "elements",
            "bytes",
            "set_digest",
        }
    )
    assert seen[-1] == (300, done["bytes"]) and seen == sorted(seen)
    read = cachew.Dataset.materialized(tmp_path / "out")
    assert read.schema == ds.schema
    with ds.batch(16).iterator(seed=3) as batches:
        wanted = [value for batch in batches for value in batch["value"].tolist()]
    assert rows(read) == wanted and sorted(rows(read.shuffle())) == list(range(300))


def test_arrays_and_functions(tmp_path):
    """What only this process can compute."""
    images = np.arange(4 * 6 * 5, dtype=np.uint8).reshape(4, 6, 5)
    ds = cachew.Dataset.arrays({"image": images}).map(
        lambda e: {"image": e["image"][: e["image"][0, 0] % 4]}, outputs={"image": ("uint8", (None, 5))}
    )
    done = ds.materialize(tmp_path / "out")
    with cachew.Dataset.materialized(tmp_path / "out").iterator() as elements:
        read = [element["image"].copy() for element in elements]
    assert done["elements"] == len(read) == 4
    for image, element in zip(images, read):
        assert np.array_equal(image[: image[0, 0] % 4], element)


def test_the_same_call_continues(tmp_path):
    """After an element that could not be computed."""
    gate = tmp_path / "gate"

    def opened(element):
        if element["value"] == 900 and not gate.exists():
            raise ValueError("not yet")
        return element

    ds = cachew.Dataset.range(1000).map(opened)
    with pytest.raises(cachew.RecordError, match="not yet"):
        ds.materialize(tmp_path / "out", shard_bytes="1K")
    finished = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("shard-*")}
    assert len(finished) > 2
    gate.touch()
    assert ds.materialize(tmp_path / "out", shard_bytes="1K")["elements"] == 1000
    assert finished == {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in finished}
    assert rows(cachew.Dataset.materialized(tmp_path / "out")) == list(range(1000))


def test_errors(tmp_path):
    ds = cachew.Dataset.range(10)
    with pytest.raises(cachew.OptionError, match='expected "cachew", "tfrecord" or "tar"'):
        ds.materialize(tmp_path / "out", format="zip")
    with pytest.raises(cachew.OptionError, match="shard_bytes is 0"):
        ds.materialize(tmp_path / "out", shard_bytes=0)
    ds.materialize(tmp_path / "out")
    with pytest.raises(cachew.OptionError, match="another seed|its seed is 0, not 1"):
        ds.materialize(tmp_path / "out", seed=1)
    with pytest.raises(cachew.PipelineError, match="cachew materialize has finished"):
        cachew.Dataset.materialized(tmp_path)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["elements"] == 10


def test_progress_that_raises_ends_the_call(tmp_path):
    def stop(elements, size):
        raise KeyError(elements)

    with pytest.raises(KeyError):
        cachew.Dataset.range(10).materialize(tmp_path / "out", progress=stop)
