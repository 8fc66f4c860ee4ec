"""The command line, black box: bad input is said, with the file and the record, or skipped and counted."""

import json
import os
import random
import shutil
import struct
import subprocess
import zlib

import make_data
import numpy as np
import pytest
from command import BATCH, SANITIZED, SHUFFLE, Ran, cachew, failed, patient, range_chain
from command import read_log, run, write
from deadlines import HANG_S, wait_for
from example_data import CACHEW, generated_picture, jpeg

pytestmark = pytest.mark.usefixtures("own_index_dir")


# ---- bad input ----

PARSE = {"op": "parse_example", "features": {"id": "int64", "vector": {"dtype": "float32", "shape": [4]}}}


def damaged(tmp_path, records, name, *ops, **beside):
    return write(
        tmp_path / "p.json",
        [
            {"op": "tfrecord", "files": str(records / "damaged" / name)},
            *(ops or [PARSE]),
            {"op": "batch", "size": 4},
        ],
        **beside,
    )


@pytest.mark.parametrize(
    "name", ["truncated-data.tfrecord", "truncated-header.tfrecord", "truncated.tfrecord.gz"]
)
def test_truncated_tfrecord(tmp_path, records, name):
    error = failed(damaged(tmp_path, records, name), 1)
    assert error["kind"] == "data" and error["file"].endswith(name)


@pytest.mark.parametrize(
    "name",
    [
        "flipped-length.tfrecord",
        "flipped-length-crc.tfrecord",
        "flipped-data.tfrecord",
        "flipped-data-crc.tfrecord",
        "flipped.tfrecord.gz",
    ],
)
def test_bit_flipped_tfrecord(tmp_path, records, name):
    error = failed(damaged(tmp_path, records, name), 1)
    assert error["kind"] in ("data", "record") and error["file"].endswith(name)
    if error["kind"] == "record":
        assert error["record"].endswith(":5")


def test_flipped_data_is_skipped_and_listed(tmp_path, records):
    pipeline = damaged(tmp_path, records, "flipped-data.tfrecord", on_error="skip")
    ran = run(pipeline, "--quarantine", tmp_path / "bad.jsonl")
    assert ran["skipped"] == 1 and ran["elements"] == 9
    line = json.loads((tmp_path / "bad.jsonl").read_text())
    assert (
        line["record"].endswith(":5")
        and line["action"] == "skipped"
        and line["file"].endswith("flipped-data.tfrecord")
        and line["reason"]
    )


def test_flipped_data_is_replaced_and_flagged(tmp_path, records):
    pipeline = damaged(tmp_path, records, "flipped-data.tfrecord", on_error="replace")
    ran = run(pipeline, "--quarantine", tmp_path / "bad.jsonl", "--log", tmp_path / "log")
    assert ran["replaced"] == 1 and ran["elements"] == 10
    assert sum(f for line in read_log(tmp_path / "log") for f in line["flags"]) == 1
    assert json.loads((tmp_path / "bad.jsonl").read_text())["by"]


def test_record_length_of_2_to_the_63(tmp_path, records):
    error = failed(damaged(tmp_path, records, "length-2^63.tfrecord"), 1)
    assert error["kind"] == "data" and error["file"].endswith("length-2^63.tfrecord")


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("wrong-type.tfrecord", "id"),
        ("missing-feature.tfrecord", "id"),
        ("wrong-count.tfrecord", "vector"),
        ("malformed-example.tfrecord", ""),
    ],
)
def test_example_with_wrong_type(tmp_path, records, name, feature):
    error = failed(damaged(tmp_path, records, name), 1)
    assert (
        error["kind"] == "record"
        and error["operator"] == "parse_example"
        and error["record"].endswith(":5")
        and error["file"].endswith(name)
    )
    assert feature in error["message"]


def test_not_a_tfrecord(tmp_path, records):
    assert failed(damaged(tmp_path, records, "not-tfrecord.txt"), 1)["file"].endswith("not-tfrecord.txt")


def test_empty_files(tmp_path, records):
    pipeline = write(
        tmp_path / "p.json", [{"op": "tfrecord", "files": str(records / "empty.tfrecord")}, BATCH]
    )
    assert run(pipeline)["batches"] == 0
    (tmp_path / "empty.jpg").touch()
    pipeline = write(
        tmp_path / "q.json",
        [{"op": "files", "files": "*.jpg"}, {"op": "decode_image", "component": "data"}, BATCH],
    )
    error = failed(pipeline, 1)
    assert (
        error["kind"] == "record"
        and error["operator"] == "decode_image"
        and error["file"].endswith("empty.jpg")
    )


def test_directory_without_images(tmp_path):
    (tmp_path / "root" / "class").mkdir(parents=True)
    for root in ("root", "root/class", "nothing"):
        ran = cachew(
            "run",
            write(
                tmp_path / "p.json",
                [{"op": "image_folder", "root": root}, {"op": "decode_image", "component": "image"}, BATCH],
            ),
            "--json",
        )
        assert (
            ran.code in (1, 2)
            and ran.error["operator"] == "image_folder"
            and root.split("/")[0] in ran.error["message"]
        ), ran.out
    error = failed(write(tmp_path / "p.json", [{"op": "tfrecord", "files": "root/*.tfrecord"}]), 2)
    assert "root/*.tfrecord" in error["message"]


def picture_file(path, data, *, n=3):
    """A class directory of good pictures and this one."""
    path.mkdir()
    rng = np.random.default_rng(3)
    for i in range(n):
        (path / f"a{i}.jpg").write_bytes(jpeg(generated_picture(rng, 60, 80)))
    (path / "bad.img").write_bytes(data)
    return [
        {"op": "files", "files": f"{path}/*"},
        {"op": "decode_image", "component": "data"},
        {"op": "resize", "component": "data", "size": [16, 16]},
        {"op": "batch", "size": 2},
    ]


def test_jpeg_cut_in_half(tmp_path):
    data = jpeg(generated_picture(np.random.default_rng(2), 300, 400))
    chain = picture_file(tmp_path / "d", data[: len(data) // 2])
    error = failed(write(tmp_path / "p.json", chain), 1)
    assert (
        error["kind"] == "record"
        and error["operator"] == "decode_image"
        and error["file"].endswith("bad.img")
    )
    assert run(tmp_path / "p.json", "--set", "on_error=skip")["elements"] == 3


def png_bomb(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    row = bytes(1 + width * 3)
    body = b"".join(packer.compress(row) for _ in range(min(height, 50))) + packer.flush()
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", body)
        + chunk(b"IEND", b"")
    )


def test_png_bomb(tmp_path):
    chain = picture_file(tmp_path / "d", png_bomb(60000, 60000))
    pipeline = write(tmp_path / "p.json", chain)
    error = failed(pipeline, 1, "--memory", "256M")
    assert error["kind"] == "record" and "pixels" in error["message"] and error["file"].endswith("bad.img")
    ran = cachew("run", pipeline, "--json", "--memory", "256M")
    if not SANITIZED:
        assert ran.json["peak_rss_bytes"] < 256 << 20
    error = failed(pipeline, 1, "--set", "1.max_pixels=1000")
    assert "1000" in error["message"]


@pytest.mark.parametrize(
    "before",
    [
        [],
        [{"op": "filter", "where": "value >= 0"}],
        [{"op": "filter", "where": "value >= 0"}, {"op": "take", "count": 15}],
        [{"op": "filter", "where": "value != 5"}, SHUFFLE],
    ],
)
def test_record_that_fails_ends_the_run_wherever_it_stands(tmp_path, before):
    """With the count known, unknown, and behind an operator that counts what arrives."""
    pipeline = write(
        tmp_path / "p.json",
        range_chain(
            17, *before, {"op": "assign", "set": {"x": "1 // (value - 3)"}}, {"op": "batch", "size": 38}
        ),
    )
    error = failed(pipeline, 1)
    assert error["kind"] == "record" and error["operator"] == "assign" and error["record"].endswith(":3")
    assert run(pipeline, "--set", "on_error=skip")["skipped"] == 1
    assert run(pipeline, "--set", "on_error=replace")["replaced"] == 1


# The index is made in one run, and the file is another one in the next.


def indexed(tmp_path, records, chain_tail):
    data = tmp_path / "data"
    data.mkdir()
    for k in range(3):
        shutil.copy(records / f"plain-0{k}.tfrecord", data)
    pipeline = write(tmp_path / "p.json", [{"op": "tfrecord", "files": "data/*.tfrecord"}, *chain_tail])
    words = [pipeline, "--digest", "--index-dir", tmp_path / "cwx"]
    return data, words, run(*words)


def test_file_deleted_between_index_and_run(tmp_path, records):
    data, words, before = indexed(tmp_path, records, [PARSE, BATCH])
    (data / "plain-02.tfrecord").unlink()
    ran = run(*words)
    assert 0 < ran["elements"] < before["elements"]


def test_file_changed_between_index_and_run(tmp_path, records):
    data, words, before = indexed(tmp_path, records, [PARSE, BATCH])
    shutil.copy(records / "plain-00.tfrecord", data / "plain-02.tfrecord")
    ran = run(*words)
    assert ran["elements"] == before["elements"] and ran["digest"] != before["digest"]
    (data / "plain-02.tfrecord").write_bytes(b"x" * 100)
    assert failed(*words[:1], 1, *words[1:])["file"].endswith("plain-02.tfrecord")


@pytest.mark.large
def test_file_changed_or_deleted_while_it_is_read(tmp_path, records):
    for how in ("cut", "deleted"):
        data = tmp_path / how
        data.mkdir()
        payloads = [make_data.example({"id": [i], "blob": [bytes(20000)]}) for i in range(400)]
        for k in range(4):
            make_data.write(data / f"{k}.tfrecord", payloads[100 * k : 100 * k + 100])
        pipeline = write(
            tmp_path / f"{how}.json",
            [
                {"op": "tfrecord", "files": f"{how}/*.tfrecord"},
                {"op": "parse_example", "features": {"id": "int64"}},
                {"op": "delay", "us": 3000},
                {"op": "batch", "size": 4},
            ],
        )
        # A file that is cut is read again in some epoch. One that is deleted may stay open for all of them.
        epochs = 10**12 if how == "cut" else 1
        words = ["--threads", 1, "--memory", "8M", "--epochs", epochs, "--log", tmp_path / f"{how}.log"]
        words = patient(["run", pipeline, "--json", *words])
        child = subprocess.Popen([CACHEW, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda log=tmp_path / f"{how}.log": log.exists() and log.stat().st_size > 0)
        last = data / "3.tfrecord"
        if how == "cut":
            with open(last, "r+b") as f:
                f.truncate(1000)
        else:
            last.unlink()
        out, err = child.communicate(timeout=HANG_S)
        ran = Ran(child.returncode, out, err)
        if how == "deleted" and ran.code == 0:
            continue  # it was open already
        assert (
            ran.code == 1 and ran.error["kind"] in ("io", "data") and ran.error["file"].endswith("3.tfrecord")
        ), (out, err)


def test_index_that_is_damaged_is_made_again(tmp_path, records):
    _, words, before = indexed(tmp_path, records, [PARSE, SHUFFLE, BATCH])
    files = [f for f in (tmp_path / "cwx").rglob("*") if f.is_file()]
    assert files
    draw = random.Random(1)
    for _ in range(10):
        for f in files:
            data = bytearray(f.read_bytes())
            how = draw.randrange(3)
            if how == 0:
                data = data[: draw.randrange(len(data))]
            elif how == 1:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            else:
                data = b"\xff" * 50
            f.write_bytes(data)
        assert run(*words)["digest"] == before["digest"]


def test_no_permission_and_no_space(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(10, BATCH))
    os.mkfifo(tmp_path / "pipe")
    for words in (
        ["--log", tmp_path / "no" / "log"],
        ["--state", tmp_path / "no" / "state"],
        ["--state", "/dev/null"],
        ["--state", tmp_path],
        ["--state", tmp_path / "pipe"],
        ["--dump", "/proc/none"],
        ["--dump", "/dev/full"],
        ["--save", "/proc/none"],
        ["--quarantine", tmp_path / "no" / "q"],
    ):
        ran = cachew("run", pipeline, "--json", *words)
        assert (
            ran.code == 2
            and ran.error["kind"] == "option"
            and str(words[1]) in ran.error["message"]
            and ran.json["batches"] == 0
        ), (words, ran.out)
    assert failed(pipeline, 1, "--log", "/dev/full")["kind"] == "io"
    assert "image" in failed(pipeline, 2, "--save", tmp_path / "sheets")["message"]


def test_a_pipeline_file_that_is_too_large_is_named_with_its_size_and_the_limit(tmp_path):
    path = tmp_path / "large.json"
    path.write_bytes(b" " * (16 << 20) + b"{}")
    error = failed(path, 2)
    assert f"{path} has 16777218 bytes: expected at most 16777216" in error["message"]
