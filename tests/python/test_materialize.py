"""`Dataset.materialize` and `Dataset.materialized`."""

import json
import threading
import time

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


def test_data_are_read_while_they_are_written(tmp_path):
    """The reader gets the finished shards before the function lets the writer go on."""
    gate = tmp_path / "gate"

    def held(element):
        until = time.monotonic() + 600
        while element["value"] >= 700 and not gate.exists() and time.monotonic() < until:
            time.sleep(0.01)
        return element

    path = tmp_path / "out"
    ds = cachew.Dataset.range(1000).map(held, outputs={"value": "int64"})
    writes = threading.Thread(target=ds.materialize, args=[path], kwargs={"shard_bytes": "1K"}, daemon=True)
    writes.start()
    while writes.is_alive() and not ((journal := path / "journal.jsonl").exists() and journal.stat().st_size):
        time.sleep(0.01)
    with cachew.Dataset.materialized(path, wait=True).iterator() as elements:
        first = [int(next(elements)["value"]) for _ in range(100)]
        gate.touch()
        assert first + [int(e["value"]) for e in elements] == list(range(1000))
    writes.join(600)
    assert rows(cachew.Dataset.materialized(path, wait=1)) == list(range(1000))
    assert rows(cachew.Dataset.materialized(path, wait=False).shuffle()) != list(range(1000))


def test_a_wait_that_is_no_time(tmp_path):
    cachew.Dataset.range(10).materialize(tmp_path)
    for wrong in "long", -1, None:
        with pytest.raises((cachew.OptionError, TypeError, cachew.PipelineError), match="wait"):
            cachew.Dataset.materialized(tmp_path, wait=wrong)


def test_the_workers_of_a_service_write(tmp_path):
    offset = 5
    ds = cachew.Dataset.range(500).map(lambda e: {"value": e["value"] + offset}, outputs={"value": "int64"})
    seen = []
    done = ds.shuffle().materialize(
        tmp_path / "out", seed=3, service="local", progress=lambda *now: seen.append(now)
    )
    assert done == ds.shuffle().materialize(tmp_path / "out", seed=3, service="local") and seen
    assert done["elements"] == 500 and done["shards"] > 8
    here = ds.shuffle().materialize(tmp_path / "here", seed=3)
    assert done["set_digest"] == here["set_digest"]
    assert rows(cachew.Dataset.materialized(tmp_path / "out")) == rows(
        cachew.Dataset.materialized(tmp_path / "here")
    )
    for wrong in {"order": "any"}, {"cut": 0}, {"local_workers": 1}:
        with pytest.raises(cachew.OptionError, match="None: materialize does not have it"):
            ds.materialize(tmp_path / "other", service="local", **wrong)
    with pytest.raises(cachew.OptionError, match="a service too"):
        ds.materialize(tmp_path / "other", job="job")
    arrays = cachew.Dataset.arrays({"value": np.arange(5)})
    with pytest.raises(cachew.PipelineError, match="memory of"):
        arrays.materialize(tmp_path / "other", service="local")
