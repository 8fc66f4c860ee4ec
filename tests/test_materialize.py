"""`cachew materialize` and the source `materialized`, black box. What the files hold is read by tarfile,
NumPy and the decoders of the reference model (tests/model)."""

import fcntl
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from command import BATCH, SHUFFLE, cachew, failed, need_test_build, range_chain, run, write
from digest import MASK128, content_hash, le64
from materialize_kills import FORMATS, Life, files

sys.path.insert(0, str(Path(__file__).resolve().parent))
from model import materialized  # noqa: E402
from model.dtypes import Type  # noqa: E402

pytestmark = pytest.mark.usefixtures("own_index_dir")

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
DTYPES += ["float16", "bfloat16", "float32"]


def materialize(pipeline, out, *words, code=0, **options):
    ran = cachew("materialize", pipeline, "--out", out, "--json", *words, **options)
    assert ran.code == code, (ran.code, ran.out[-2000:], ran.err[-2000:])
    return ran.error if code else ran.json


def verify(out, code=0):
    ran = cachew("materialize", "--verify", out, "--json")
    assert ran.code == code, ran.err
    return ran.error if code else ran.json


def read_digest(tmp_path, out, *ops):
    """The set digest of what `materialized` gives."""
    chain = [{"op": "materialized", "path": str(out)}, *ops]
    return run(write(tmp_path / "read.json", chain), "--digest")["set_digest"]


def elements(out):
    """The elements of a directory, read by the reference model."""
    source = materialized.Materialized({"path": str(out)}, Path("/"))
    source.needed = set(source.types)
    return [source.element(r) for r in source.records]


def digest_of(out):
    """The set digest of a directory, by tests/digest.py."""
    total = 0
    for element in elements(out):
        parts = []
        for name, value in element.items():
            length = le64(len(value.data)) if value.dtype == "bytes" else b""
            parts.append((name, value.dtype, value.shape, length + value.raw()))
        total = (total + content_hash((1,), parts)) & MASK128
    return f"{total:032x}"


def every_dtype():
    """Elements with each dtype, scalars and arrays."""
    ops, names = [], {}
    for dtype in DTYPES:
        names |= {f"v_{dtype}": "value * 37 - 3000", f"a_{dtype}": "data"}
    ops.append({"op": "assign", "set": names})
    ops += [{"op": "cast", "component": name, "dtype": name[2:]} for name in names]
    source = {"op": "synthetic", "count": 40, "shape": [2, 3], "dtype": "int32"}
    return [{"op": "zip", "inputs": [[source], range_chain(40)]}, *ops]


def photos(examples, count=24):
    root = examples.parent.parent / "build" / "photos"
    return [
        {"op": "tfrecord", "files": str(root / "*.tfrecord")},
        {"op": "parse_example", "features": {"image": "bytes", "label": "int64"}},
        {"op": "take", "count": count},
        {"op": "assign", "set": {"encoded": "image"}},
        {"op": "decode_image", "component": "image"},
        {"op": "random_resized_crop", "component": "image", "size": [40, 30]},
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_every_dtype_is_read_back_exactly(tmp_path, form):
    pipeline = write(tmp_path / "p.json", every_dtype())
    done = materialize(pipeline, tmp_path / "out", "--format", form, "--shard-bytes", "4K")
    wanted = run(pipeline, "--digest")
    assert done["elements"] == wanted["elements"] == 40 and done["shards"] > 2
    digests = (
        done["set_digest"],
        digest_of(tmp_path / "out"),
        read_digest(tmp_path, tmp_path / "out", SHUFFLE),
    )
    assert digests == (wanted["set_digest"],) * 3
    assert verify(tmp_path / "out") == done


@pytest.mark.parametrize("form", FORMATS)
def test_photographs_of_different_shapes(tmp_path, examples, form):
    """Batches are taken apart; shapes that vary, and bytes."""
    whole = photos(examples, 2)[:-1]
    cropped = [*photos(examples), SHUFFLE, {"op": "batch", "size": 10}]
    for k, chain in enumerate([whole, cropped]):
        pipeline, out = write(tmp_path / "p.json", chain), tmp_path / f"out{k}"
        done = materialize(pipeline, out, "--format", form, "--shard-bytes", "100K", "--seed", "4")
        wanted = run(pipeline, "--digest", "--seed", "4")
        assert done["elements"] == wanted["elements"] and done["shards"] > 1
        digests = done["set_digest"], digest_of(out), read_digest(tmp_path, out)
        assert digests == (wanted["set_digest"],) * 3


def test_elements_keep_the_order_of_one_thread(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(3000, SHUFFLE))
    for threads in 1, 4:
        words = "--seed", 7, "--threads", threads, "--shard-bytes", "10K"
        materialize(pipeline, tmp_path / f"out{threads}", *words)
    assert files(tmp_path / "out1") == files(tmp_path / "out4")
    batched = write(tmp_path / "b.json", range_chain(3000, SHUFFLE, {"op": "batch", "size": 64}))
    run(batched, "--seed", 7, "--dump", tmp_path / "dump")
    delivered = [v for f in sorted((tmp_path / "dump").iterdir()) for v in np.load(f)["value"].tolist()]
    assert [int(e["value"].data) for e in elements(tmp_path / "out1")] == delivered


def test_a_shard_ends_with_the_element_that_reaches_its_size(tmp_path):
    batched = write(tmp_path / "p.json", range_chain(1000, {"op": "batch", "size": 64}))
    materialize(batched, tmp_path / "out", "--shard-bytes", 1000)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    each = manifest["bytes"] // manifest["elements"]
    assert all(s["bytes"] - each < 1000 <= s["bytes"] for s in manifest["shards"][:-1])
    for shard in manifest["shards"]:
        data = (tmp_path / "out" / shard["name"]).read_bytes()
        assert len(data) == shard["bytes"] == each * shard["elements"]
    assert manifest["lineage"]["pipeline"] == json.loads(batched.read_text())
    assert manifest["components"] == [{"name": "value", "dtype": "int64", "shape": []}]
    assert manifest["lineage"]["seed"] == 0


def test_tar_is_a_webdataset(tmp_path, examples):
    """Python's tarfile reads it, and the source `tar`."""
    pipeline = write(tmp_path / "p.json", photos(examples))
    materialize(pipeline, tmp_path / "out", "--format", "tar")
    with tarfile.open(tmp_path / "out" / "shard-000000.tar") as archive:
        names = archive.getnames()
        first = np.load(io.BytesIO(archive.extractfile("0000000000.image.npy").read()))
        encoded = archive.extractfile("0000000000.encoded").read()
    assert names[:4] == [f"0000000000.{e}" for e in ("encoded", "image.npy", "label.npy")] + [
        "0000000001.encoded"
    ]
    assert first.shape == (40, 30, 3) and first.dtype == np.uint8 and encoded[:2] == b"\xff\xd8"
    components = {"label": {"key": "label.npy", "dtype": "int64"}, "encoded": "bytes"}
    chain = [{"op": "tar", "files": "out/*.tar", "components": components}]
    read = run(write(tmp_path / "tar.json", chain), "--digest")["set_digest"]
    assert read == read_digest(tmp_path, tmp_path / "out", {"op": "drop", "components": ["image"]})


def test_tfrecord_is_read_by_parse_example(tmp_path, examples):
    pipeline = write(tmp_path / "p.json", photos(examples))
    materialize(pipeline, tmp_path / "out", "--format", "tfrecord")
    features = {
        "image": {"dtype": "int64", "shape": [40, 30, 3]},
        "label": "int64",
        "encoded": "bytes",
    }
    chain = [
        {"op": "tfrecord", "files": "out/*.tfrecord"},
        {"op": "parse_example", "features": features},
        {"op": "cast", "component": "image", "dtype": "uint8"},
    ]
    read = run(write(tmp_path / "t.json", chain), "--digest")["set_digest"]
    assert read == read_digest(tmp_path, tmp_path / "out")


def test_nothing_is_computed_twice(tmp_path):
    """The command on complete data prints the same result, and changes nothing; also with a journal left."""
    pipeline = write(tmp_path / "p.json", range_chain(100))
    first, before = materialize(pipeline, tmp_path / "out"), files(tmp_path / "out")
    (tmp_path / "out").chmod(0o500)
    assert materialize(pipeline, tmp_path / "out") == first
    (tmp_path / "out").chmod(0o700)
    assert files(tmp_path / "out") == before


def test_no_elements(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, {"op": "take", "count": 0}))
    done = materialize(pipeline, tmp_path / "out")
    assert done == {"shards": 0, "elements": 0, "bytes": 0, "set_digest": "0" * 32}
    assert list(files(tmp_path / "out")) == ["manifest.json"] and verify(tmp_path / "out") == done


@pytest.mark.parametrize("seed", range(5))
def test_killed_at_any_point(tmp_path, seed):
    need_test_build()
    assert Life(tmp_path, seed).play(2) > 0


def test_full_disk(tmp_path, small_disk):
    """A shard that does not fit is removed; the same command goes on when there is room."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(900_000))
    pipeline = write(tmp_path / "p.json", range_chain(6000, SHUFFLE))
    words = "--shard-bytes", "50K"
    error = materialize(pipeline, small_disk / "out", *words, code=1)
    assert error["kind"] == "io" and "No space left" in error["message"]
    assert error["file"].startswith(str(small_disk / "out"))
    left = sorted(p.name for p in (small_disk / "out").iterdir())
    assert left[0] == "journal.jsonl" and not any(n.endswith(".tmp") for n in left)
    ballast.unlink()
    materialize(pipeline, tmp_path / "whole", *words)
    materialize(pipeline, small_disk / "out", *words)
    assert files(small_disk / "out") == files(tmp_path / "whole")


def test_full_disk_at_once(tmp_path, small_disk):
    (small_disk / "out").mkdir()
    with open(small_disk / "ballast", "wb") as ballast, pytest.raises(OSError):
        while True:
            os.write(ballast.fileno(), bytes(1 << 16))
    pipeline = write(tmp_path / "p.json", range_chain(600))
    error = materialize(pipeline, small_disk / "out", code=1)
    assert "No space left" in error["message"] and "journal.jsonl" in error["message"]
    (small_disk / "ballast").unlink()
    materialize(pipeline, small_disk / "out")


def test_no_right_to_write(tmp_path, small_disk):
    pipeline = write(tmp_path / "p.json", range_chain(10))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    error = materialize(pipeline, small_disk / "out", code=2)
    assert error["kind"] == "option" and str(small_disk / "out") in error["message"]
    assert "Read-only" in error["message"]
    (tmp_path / "file").write_text("")
    error = materialize(pipeline, tmp_path / "file", code=2)
    assert f"{tmp_path / 'file'}: expected a directory" in error["message"]


def test_a_directory_with_other_files_is_refused(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(10))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "shard-000000.tar").write_text("mine")
    error = materialize(pipeline, tmp_path / "out", code=2)
    assert "holds other files (shard-000000.tar)" in error["message"] and error["attribute"] == "out"
    assert (tmp_path / "out" / "shard-000000.tar").read_text() == "mine"


@pytest.mark.parametrize("complete", [True, False])
def test_the_data_of_another_run_are_kept(tmp_path, complete):
    need_test_build()
    pipeline = write(tmp_path / "p.json", range_chain(100))
    crash = {} if complete else {"CACHEW_CRASH": "materialize-journal:1"}
    materialize_words = ("materialize", pipeline, "--out", tmp_path / "out", "--shard-bytes", "1K")
    assert cachew(*materialize_words, env=crash).code == (0 if complete else -9)
    before = files(tmp_path / "out")
    other = write(tmp_path / "q.json", range_chain(101))
    words = "--shard-bytes", "1K"
    for given, options, why in (
        (other, words, "another pipeline"),
        (pipeline, (*words, "--seed", 5), "its seed is 0, not 5"),
        (pipeline, ("--shard-bytes", "2K"), "its shard_bytes is 1024, not 2048"),
        (pipeline, (*words, "--format", "tar"), "another format"),
    ):
        error = materialize(given, tmp_path / "out", *options, code=2)
        assert why in error["message"] and str(tmp_path / "out") in error["message"], error
    assert files(tmp_path / "out") == before


def test_changed_input_is_noticed(tmp_path):
    need_test_build()
    (tmp_path / "a.txt").write_text("one\ntwo\n" * 100)
    pipeline = write(tmp_path / "p.json", [{"op": "text", "files": "a.txt"}])
    words = "--shard-bytes", "1K"
    crash = {"CACHEW_CRASH": "materialize-journal:1"}
    assert cachew("materialize", pipeline, "--out", tmp_path / "out", *words, env=crash).code == -9
    (tmp_path / "a.txt").write_text("one\nthree\n" * 100)
    assert "another input data" in materialize(pipeline, tmp_path / "out", *words, code=2)["message"]


def test_two_processes_do_not_write_the_same_directory(tmp_path):
    need_test_build()
    pipeline = write(tmp_path / "p.json", range_chain(100))
    words = ("materialize", pipeline, "--out", tmp_path / "out", "--shard-bytes", "1K")
    assert cachew(*words, env={"CACHEW_CRASH": "materialize-journal:1"}).code == -9
    with open(tmp_path / "out" / "journal.jsonl") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        error = materialize(pipeline, tmp_path / "out", "--shard-bytes", "1K", code=2)
    assert "another process" in error["message"]


@pytest.mark.parametrize(
    ("chain", "form", "code", "says"),
    [
        (range_chain(5, {"op": "repeat", "count": -1}), "cachew", 2, "no end"),
        (
            range_chain(5, {"op": "assign", "set": {"x": "value * 0.5"}}),
            "tfrecord",
            2,
            '"x" exactly: it is float64',
        ),
        (range_chain(5, {"op": "rename", "names": {"value": "a/b"}}), "tar", 2, '"a/b"'),
        (range_chain(5, {"op": "fail", "where": "value == 3"}), "cachew", 1, "fail"),
    ],
)
def test_what_can_not_be_written(tmp_path, chain, form, code, says):
    pipeline = write(tmp_path / "p.json", chain)
    assert says in materialize(pipeline, tmp_path / "out", "--format", form, code=code)["message"]


def test_endless_input_that_take_ends(tmp_path):
    pipeline = write(
        tmp_path / "p.json", range_chain(5, {"op": "repeat", "count": -1}, {"op": "take", "count": 12})
    )
    assert materialize(pipeline, tmp_path / "out")["elements"] == 12


def test_wrong_words():
    for words, says in (
        (["materialize"], "--verify DIR"),
        (["materialize", "p.json"], "--out DIR"),
        (["materialize", "p.json", "--verify", "x"], "one of the two"),
        (["materialize", "p.json", "--out", "x", "--format", "zip"], "cachew, tfrecord"),
    ):
        ran = cachew(*words)
        assert ran.code == 2 and says in ran.err, ran.err


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("form", FORMATS)
def test_verify_finds_damage(tmp_path, form):
    pipeline = write(tmp_path / "p.json", range_chain(300))
    out = tmp_path / "out"
    materialize(pipeline, out, "--format", form, "--shard-bytes", "3K")
    shard = out / f"shard-000001.{form}"
    flip(shard, 700)
    error = verify(out, code=1)
    assert "checksum" in error["message"] and error["file"] == str(shard)
    flip(shard, 700)
    (out / "notes").write_text("")
    assert "notes" in verify(out, code=1)["message"]
    (out / "notes").unlink()
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    assert f"expected {len(whole)}" in verify(out, code=1)["message"]
    shard.unlink()
    assert str(shard) in verify(out, code=1)["message"]
    shard.write_bytes(whole)
    manifest = out / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"dtype": "int64"', '"dtype": "int32"'))
    verify(out, code=1)
    manifest.write_text(text.replace('"elements": 300', '"elements": 301'))
    verify(out)
    manifest.write_text(text)
    verify(out)


def test_the_source_refuses_what_is_not_complete(tmp_path):
    chain = [{"op": "materialized", "path": "out"}, BATCH]
    pipeline = write(tmp_path / "p.json", chain)
    error = failed(pipeline, 2)
    assert error["operator"] == "materialized" and "manifest.json can't be read" in error["message"]
    materialize(write(tmp_path / "q.json", range_chain(100)), tmp_path / "out", "--shard-bytes", "1K")
    text = (tmp_path / "out" / "manifest.json").read_text()
    for old, new, says in (
        ('"materialized": 1', '"materialized": 2', '"materialized" is not 1'),
        ('"format": "cachew"', '"format": "zip"', '"format" is none of'),
        ('"dtype": "int64"', '"dtype": "word"', "dtype or shape"),
        ("shard-000001.cachew", "../x", "of a shard is wrong"),
        ('"shards"', '"shard"', 'no list "shards"'),
    ):
        (tmp_path / "out" / "manifest.json").write_text(text.replace(old, new))
        assert says in failed(pipeline, 2)["message"], new
    (tmp_path / "out" / "manifest.json").write_text(text.replace('"elements": 43', '"elements": 42'))
    assert "but the manifest has" in failed(pipeline, 1)["message"]
    (tmp_path / "out" / "manifest.json").write_text(text.replace('"shape": []', '"shape": [2]'))
    assert "does not have the components" in failed(pipeline, 1)["message"]


def test_skipped_records_are_left_out(tmp_path):
    chain = range_chain(100, {"op": "fail", "where": "value % 10 == 3"})
    pipeline = write(tmp_path / "p.json", chain, on_error="skip")
    done = materialize(pipeline, tmp_path / "out", "--quarantine", tmp_path / "bad")
    assert done["elements"] == 90 and len((tmp_path / "bad").read_text().splitlines()) == 10
    assert done["set_digest"] == run(pipeline, "--digest")["set_digest"]


def test_the_model_writes_what_the_source_reads(tmp_path):
    """Shapes of unknown rank, which few pipelines have."""
    import random

    rng = random.Random(5)
    types = {"a": Type("int16", None), "b": Type("bytes"), "m": Type("float16", (2, None))}
    for k in range(6):
        materialized.write(rng, tmp_path / str(k), types)
        if json.loads((tmp_path / str(k) / "manifest.json").read_text())["shards"]:
            assert read_digest(tmp_path, tmp_path / str(k)) == digest_of(tmp_path / str(k))
