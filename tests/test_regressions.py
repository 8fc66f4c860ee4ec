"""Faults that were once in the engine, each by a name of its own. Black box, as test_cli*.py."""

import json
import os
import random
import resource
import struct
import subprocess

import make_data
import pytest
import xxhash
from command import SHUFFLE, cachew, failed, range_chain, read_log, run, write
from deadlines import HANG_S, wait_for
from example_data import CACHEW

BATCH = {"op": "batch", "size": 8}


def same_everywhere(pipeline, *words, memories=("1G",), threads=(1, 2, 8)):
    """The digest, which no number of threads and no budget changes."""
    want = run(pipeline, "--digest", *words)["digest"]
    for memory in memories:
        for n in threads:
            assert run(pipeline, "--digest", "--threads", n, "--memory", memory, *words)["digest"] == want, (
                memory,
                n,
            )
    return want


def examples(path, n, compression="none"):
    make_data.write(path, [make_data.example({"id": [i], "text": [b"x" * i]}) for i in range(n)], compression)


FEATURES = {"op": "parse_example", "features": {"id": "int64", "text": "bytes"}}


def test_two_outputs_of_one_feature(tmp_path):
    examples(tmp_path / "a.tfrecord", 20)
    parse = {"op": "parse_example", "features": {"id": "int64", "again": {"key": "id", "dtype": "int64"}}}
    pipeline = write(
        tmp_path / "p.json",
        [{"op": "tfrecord", "files": "a.tfrecord"}, parse, {"op": "filter", "where": "id == again"}, BATCH],
    )
    assert run(pipeline)["elements"] == 20


def test_plain_and_compressed_files_in_one_pipeline(tmp_path):
    examples(tmp_path / "a.tfrecord", 30)
    examples(tmp_path / "b.tfrecord", 30, "gzip")
    chains = [[{"op": "tfrecord", "files": f"{name}.tfrecord"}, FEATURES] for name in "ab"]
    pipeline = write(
        tmp_path / "p.json",
        [{"op": "concat", "inputs": chains}, {"op": "shuffle"}, BATCH],
        on_error="replace",
    )
    same_everywhere(pipeline)


def test_stages_between_limits_all_run(tmp_path):
    chain = range_chain(
        500,
        {"op": "filter", "where": "value % 3 != 0"},
        {"op": "skip", "count": 10},
        {"op": "assign", "set": {"x": "value + 1"}},
        # fmt: skip
        {"op": "take", "count": 140},
        {"op": "assign", "set": {"y": "x * 2"}},
        BATCH,
    )
    pipeline = write(tmp_path / "p.json", chain)
    assert run(pipeline)["elements"] == 140
    same_everywhere(pipeline)


def test_a_block_whose_rows_alternate_between_buckets(tmp_path):
    chain = range_chain(
        3000,
        {"op": "bucket_by_length", "length": "value % 9", "boundaries": [3, 7, 8], "sizes": [2, 1, 2, 1]},
    )
    pipeline = write(tmp_path / "p.json", chain)
    for _ in range(5):
        same_everywhere(pipeline)


@pytest.mark.large
def test_scratch_that_does_not_fit_is_tried_again(tmp_path):
    chain = [
        {"op": "synthetic", "count": 100, "shape": [512, 512, 3], "dtype": "uint8"},
        {"op": "resize", "component": "data", "size": [224, 224]},
        # fmt: skip
        {"op": "shuffle"},
        {"op": "normalize", "component": "data", "mean": [1, 2, 3], "std": [4, 5, 6]},
        BATCH,
    ]
    same_everywhere(write(tmp_path / "p.json", chain), memories=("4G", "32M", "12M"))


@pytest.mark.large
def test_later_ranges_give_way_to_the_first(tmp_path):
    chain = [
        {"op": "synthetic", "count": 2000, "shape": [64, 64, 3], "dtype": "uint8"},
        {"op": "assign", "set": {"m": "max(data)"}},
        {"op": "filter", "where": "m > 100"},
        {"op": "shuffle"},
        {"op": "random_crop", "component": "data", "size": [48, 48]},
        # fmt: skip
        {"op": "bucket_by_length", "length": "int64(m) % 7", "boundaries": [2, 4], "sizes": [32, 16, 8]},
    ]
    same_everywhere(write(tmp_path / "p.json", chain), memories=("4G", "16M", "8M"))


@pytest.mark.large(keep=0)
@pytest.mark.parametrize(
    "batcher",
    [
        [{"op": "filter", "where": "id * 7919 % 101 < 60"}, BATCH],
        # fmt: skip
        [
            {
                "op": "bucket_by_length",
                "length": "length(text)",
                "boundaries": [10000, 20000, 30000],
                "sizes": [16, 16, 16, 16],
            }
        ],
    ],
)
def test_a_budget_of_some_batches_is_enough(tmp_path, batcher):
    """Elements of varying size wait for their batches: the first one always finds memory, whatever later
    ones and later ranges hold.
    """
    draw = random.Random(1)
    make_data.write(
        tmp_path / "a.tfrecord",
        [make_data.example({"id": [i], "text": [b"x" * draw.randrange(40000)]}) for i in range(1500)],
    )
    pipeline = write(
        tmp_path / "p.json",
        [{"op": "tfrecord", "files": "a.tfrecord"}, FEATURES, {"op": "shuffle"}, *batcher],
    )
    same_everywhere(pipeline, memories=("4M", "6M", "8M"), threads=(2, 3, 4, 8))


@pytest.mark.large
def test_elements_without_a_batcher_never_use_up_all_batches(tmp_path):
    """Later ranges hold as many elements as there may be under way, and then one of them becomes the
    first.
    """
    draw = random.Random(2)
    make_data.write(
        tmp_path / "a.tfrecord",
        [make_data.example({"id": [i], "text": [b"x" * draw.randrange(60)]}) for i in range(12000)],
    )
    pipeline = write(
        tmp_path / "p.json",
        [
            {"op": "tfrecord", "files": "a.tfrecord"},
            FEATURES,
            {"op": "shuffle"},
            {"op": "filter", "where": "length(text) > 4"},
        ],
    )
    same_everywhere(pipeline, threads=(16, 7, 16, 13, 16), memories=("1G", "2M"))


def test_an_error_in_a_part_is_raised(tmp_path):
    chain = range_chain(
        10,
        {"op": "filter", "where": "value >= 0"},
        {"op": "fail", "where": "value == 9"},
        {"op": "batch", "size": 4},
    )
    error = failed(write(tmp_path / "p.json", chain), 1)
    assert error["operator"] == "fail" and error["record"].endswith(":9")


def test_the_remainder_that_is_dropped_cannot_fail(tmp_path):
    chain = range_chain(
        11, {"op": "fail", "where": "value >= 8"}, {"op": "batch", "size": 4, "drop_remainder": True}
    )
    assert run(write(tmp_path / "p.json", chain))["elements"] == 8


@pytest.mark.large(keep=0)
@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_take_of_batches_ends_every_epoch(tmp_path, count):
    chain = range_chain(
        100,
        {"op": "filter", "where": "value >= 0"},
        {"op": "repeat", "count": -1},
        {"op": "batch", "size": 3},
        {"op": "take", "count": count},
    )
    pipeline = write(tmp_path / "p.json", chain)
    for threads in (1, 2, 3, 8):
        for _ in range(5):
            assert run(pipeline, "--epochs", 30, "--threads", threads)["batches"] == 30 * count


def test_a_filter_that_fails_removes_the_element(tmp_path):
    chain = range_chain(30, {"op": "filter", "where": "value % value > value"}, {"op": "take", "count": 26})
    ran = run(write(tmp_path / "p.json", chain, on_error="skip"))
    assert ran["batches"] == 0 and ran["skipped"] <= 1


def test_what_nobody_needs_cannot_fail(tmp_path):
    chain = range_chain(
        10,
        {"op": "assign", "set": {"bad": "1 // (value - value)"}},
        {"op": "select", "components": ["value"]},
        BATCH,
    )
    assert run(write(tmp_path / "p.json", chain))["elements"] == 10


def test_passes_do_not_wrap(tmp_path):
    """Combined pass numbers have 32 bits: more is an error, and an endless repeat ends there."""
    repeat = {"op": "repeat", "count": 1 << 16}
    error = failed(write(tmp_path / "p.json", range_chain(1, repeat, repeat)), 2)
    assert error["operator"] == "repeat" and "2^32" in error["message"]
    chain = range_chain(
        1,
        {"op": "repeat", "count": 1 << 31},
        {"op": "repeat", "count": -1},
        {"op": "skip", "count": (1 << 32) - 12},
        {"op": "batch", "size": 4},
    )
    error = failed(write(tmp_path / "q.json", chain), 2, "--memory", "1G")
    assert "2^32" in error["message"]


def test_limits_after_repeats_of_many_passes(tmp_path):
    repeat = {"op": "repeat", "count": 1 << 31}
    chain = range_chain(
        1, repeat, repeat, repeat, {"op": "filter", "where": "value >= 0"}, {"op": "take", "count": 5}
    )
    assert "2^32" in failed(write(tmp_path / "p.json", chain), 2)["message"]


@pytest.mark.large
def test_a_shuffle_of_too_many_chunks(tmp_path):
    """By record there are no chunks, and nothing grows with the number of elements."""
    pipeline = write(
        tmp_path / "p.json",
        range_chain(1, {"op": "repeat", "count": (1 << 32) - 1}, {"op": "shuffle"}, BATCH),
    )
    error = failed(pipeline, 2, "--set", "2.by=chunk")
    assert error["operator"] == "shuffle" and 'or the attribute by "record"' in error["message"]
    assert run(pipeline, "--memory", "64M", "--batches", 3)["batches"] == 3


def test_the_plan_of_a_range_counts(tmp_path):
    """There was memory for the plan or for a batch, but not for both: nothing ran, and nobody said why."""
    pipeline = write(tmp_path / "p.json", range_chain(100_000_000, {"op": "batch", "size": 130_000}))
    for memory in ("3M", "6500K", "8M", "12M"):
        error = failed(pipeline, 2, "--memory", memory, "--batches", 20)
        assert error["kind"] == "budget"
    assert run(pipeline, "--memory", error["expected"].split()[2], "--batches", 20)["batches"] == 20


def test_a_read_that_fails_names_its_operator(tmp_path):
    """A file that is gone when its turn comes."""
    (tmp_path / "data").mkdir()
    for i in range(300):
        (tmp_path / "data" / f"{i:03}").write_bytes(b"x")
    pipeline = write(
        tmp_path / "p.json", [{"op": "files", "files": "data/*"}, {"op": "repeat", "count": -1}, BATCH]
    )
    words = [
        CACHEW,
        "run",
        str(pipeline),
        "--json",
        "--threads",
        "1",
        "--log",
        str(tmp_path / "log"),
        "--wait",
        str(HANG_S),
    ]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wait_for(lambda: (tmp_path / "log").exists() and (tmp_path / "log").stat().st_size > 0)
    (tmp_path / "data" / "299").unlink()
    out, _ = child.communicate(timeout=HANG_S)
    error = json.loads(out.splitlines()[-1])["error"]
    assert child.returncode == 1 and error["operator"] == "files" and error["file"].endswith("data/299")


def test_a_list_of_skipped_records_that_is_cut_off(tmp_path):
    """More than stdio keeps back until the file is closed."""
    pipeline = write(
        tmp_path / "p.json", range_chain(500, {"op": "fail", "where": "value >= 0"}, BATCH), on_error="skip"
    )
    assert failed(pipeline, 1, "--quarantine", "/dev/full")["kind"] == "io"


@pytest.mark.large
def test_shuffles_of_shuffles_are_planned_at_once(tmp_path):
    """Each of them once took some 38 times as long as the one before it."""
    assert (
        run(write(tmp_path / "p.json", range_chain(10_000_000, *[SHUFFLE] * 5, BATCH)), "--batches", 1)[
            "batches"
        ]
        == 1
    )


TFRECORDS = [{"op": "tfrecord", "files": "data/*.tfrecord"}, {"op": "batch", "size": 4}]


@pytest.mark.parametrize("thing", ["dangling", "loop", "pipe", "device", "directory"])
def test_what_a_wildcard_matches_is_not_left_out_silently(tmp_path, thing):
    (tmp_path / "data").mkdir()
    examples(tmp_path / "data" / "a.tfrecord", 10)
    odd = tmp_path / "data" / "b.tfrecord"
    if thing == "pipe":
        os.mkfifo(odd)
    elif thing == "directory":
        odd.mkdir()
    else:
        odd.symlink_to({"dangling": tmp_path / "nowhere", "loop": odd, "device": "/dev/zero"}[thing])
    pipeline = write(tmp_path / "p.json", TFRECORDS)
    named = failed(pipeline, 1 if thing in ("dangling", "loop") else 2, "--set", "0.files=data/b.tfrecord")
    says = {
        "dangling": "leads nowhere",
        "loop": "symbolic links",
        "pipe": "a pipe",
        "device": "a device",
        "directory": "a directory",
    }[thing]
    assert says in named["message"] and named["file"].endswith("b.tfrecord")
    if thing == "directory":
        assert run(pipeline)["elements"] == 10
    else:
        assert says in failed(pipeline, 1 if thing in ("dangling", "loop") else 2)["message"]
        assert cachew("index", tmp_path / "data" / "*").code in (1, 2)


def test_a_directory_that_a_wildcard_matches_and_that_is_gone(tmp_path):
    (tmp_path / "data" / "1").mkdir(parents=True)
    examples(tmp_path / "data" / "1" / "a.tfrecord", 10)
    (tmp_path / "data" / "readme").write_text("no directory")
    pipeline = write(tmp_path / "p.json", [{"op": "tfrecord", "files": "data/*/*.tfrecord"}, BATCH])
    assert run(pipeline)["elements"] == 10
    (tmp_path / "data" / "2").symlink_to(tmp_path / "not-mounted")
    assert failed(pipeline, 1)["file"].endswith("data/2")


def test_an_error_about_a_file_whose_name_is_not_utf8_is_json(tmp_path):
    with open(os.fsencode(tmp_path) + b"/a\xff\xc3\xa9.tfrecord", "wb") as f:
        f.write(b"junk" * 10)
    pipeline = write(tmp_path / "p.json", [{"op": "tfrecord", "files": "a*.tfrecord"}, BATCH])
    done = subprocess.run([CACHEW, "run", pipeline, "--json"], check=False, capture_output=True)
    error = json.loads(done.stdout)["error"]
    assert (
        done.returncode == 1
        and error["kind"] == "data"
        and error["file"].endswith("a\\xff\u00e9.tfrecord")
        and "a\\xff\u00e9" in error["message"]
    )
    os.rename(os.fsencode(tmp_path) + b"/a\xff\xc3\xa9.tfrecord", tmp_path / "b")
    with open(os.fsencode(tmp_path) + b"/a\xff.tfrecord", "wb") as f:
        make_data.write(tmp_path / "good", [b"x"] * 4)
        f.write((tmp_path / "good").read_bytes()[:-1] + b"?")
    assert run(pipeline, "--set", "on_error=skip", "--quarantine", tmp_path / "q")["skipped"] == 1
    assert json.loads((tmp_path / "q").read_text())["file"].endswith("a\\xff.tfrecord")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "p.json"],
        ["run", "p.json", "--json"],
        ["run", "p.json", "--digest", "--log", "log"],
        ["ops"],
        ["--version"],
        # fmt: skip
        ["index", "a.tfrecord"],
        ["bench", "p.json", "--seconds", "0.01", "--best-of", "1", "--threads", "1"],
    ],
)
@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"])
def test_results_that_cannot_be_written_are_an_error(tmp_path, words, stdout):
    write(tmp_path / "p.json", range_chain(10, BATCH))
    examples(tmp_path / "a.tfrecord", 4)
    done = subprocess.run(
        ["bash", "-c", f'"$@" {stdout}', "bash", CACHEW, *words],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1 and "can't write to stdout" in done.stderr
    if "--log" in words:  # it did not become standard output
        assert len(read_log(tmp_path / "log")) == 2


def test_the_list_of_quarantined_records_is_this_runs(tmp_path):
    chain = range_chain(100, {"op": "assign", "set": {"x": "1 // (value % 10)"}}, BATCH)
    pipeline, listed = write(tmp_path / "p.json", chain, on_error="skip"), tmp_path / "q"
    run(pipeline, "--batches", 5, "--state", tmp_path / "state", "--quarantine", listed, "--threads", 1)
    run(pipeline, "--state", tmp_path / "state", "--quarantine", listed)  # appends
    assert [int(line["record"].split(":")[1]) for line in read_log(listed)] == [*range(0, 100, 10)]
    assert run(pipeline, "--set", "1.set.x=value", "--quarantine", listed)["skipped"] == 0
    assert listed.read_text() == ""


def test_a_log_line_that_does_not_fit_is_taken_back(tmp_path):
    """The limit is for shared memory too, which is made in ranges of 1 GiB: the log begins behind a hole of
    that size.
    """
    pipeline, log, hole = write(tmp_path / "p.json", range_chain(100, BATCH)), tmp_path / "log", 1 << 30
    log.touch()
    os.truncate(log, hole)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (hole + 3000, hole + 3000))

    done = subprocess.run(
        [CACHEW, "run", pipeline, "--json", "--log", log],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 1 and "--log" in error["message"] and "File too large" in error["message"]
    with open(log, "rb") as f:
        f.seek(hole)
        text = f.read()
    lines = [json.loads(line) for line in text.splitlines()]
    # none is torn
    assert text.endswith(b"\n") and lines and [line["g"] for line in lines] == [*range(len(lines))]


def test_content_that_changed_while_size_and_times_stayed(tmp_path):
    """As on a file system without change times, where the index can't tell: here it is forged to have those
    of the new content.
    """
    data, sidecar = tmp_path / "a.tfrecord", tmp_path / "a.tfrecord.cwx"
    make_data.write(data, [b"first", b"other", b"third"])
    pipeline = write(tmp_path / "p.json", [{"op": "tfrecord", "files": "a.tfrecord"}, BATCH])
    before = run(pipeline, "--digest")
    assert cachew("index", data, "--sidecar").code == 0
    make_data.write(data, [b"first", b"third", b"other"])
    after, times, index = run(pipeline, "--digest"), data.stat(), bytearray(sidecar.read_bytes())
    assert after["digest"] != before["digest"]
    struct.pack_into("<qq", index, 40, times.st_mtime_ns, times.st_ctime_ns)
    struct.pack_into("<Q", index, 8, xxhash.xxh3_64_intdigest(index[16:]))
    sidecar.write_bytes(index)
    error = failed(pipeline, 1, "--threads", 1)  # with more, whichever of the two comes first
    assert error["kind"] == "data" and "record 1" in error["message"] and error["file"].endswith("a.tfrecord")
    assert cachew("index", data, "--sidecar", "--rebuild").code == 0
    assert run(pipeline, "--digest")["digest"] == after["digest"]


# of the first batch, of a later one, of one with elements of two ranges
@pytest.mark.parametrize("bad", [3, 100, 127])
@pytest.mark.parametrize("words", [(), ("--rank", 0, "--world-size", 2), ("--rank", 1, "--world-size", 2)])
def test_what_is_wrong_in_a_batch_that_is_left_out_ends_the_run(tmp_path, bad, words):
    """Skipped, or another rank's: wherever its elements came from."""
    ops = {"op": "filter", "where": "value % 7 != 6"}, {"op": "fail", "where": f"value == {bad}"}, BATCH
    skip = [] if words else [{"op": "skip", "count": 16}]
    error = failed(write(tmp_path / "p.json", range_chain(200, *ops, *skip)), 1, *words)
    assert error["record"].endswith(f":{bad}")


def test_what_replaces_a_record_does_not_depend_on_the_batch(tmp_path):
    """It once was a record of the same part of an epoch, whose size followed from the batch's, from filters
    and from the size of elements.
    """
    fails = {"op": "fail", "where": "value == 5000 or value == 9999"}
    pipeline = write(
        tmp_path / "p.json", range_chain(10_000, fails, {"op": "batch", "size": 8}), on_error="replace"
    )
    found = set()
    for size in (1, 8, 100, 5000):
        words = ("--set", f"2.size={size}", "--log", tmp_path / f"{size}.log")
        run(pipeline, *words)
        records = [record for line in read_log(words[-1]) for record in line["records"]]
        replaced = [(at, record) for at, record in enumerate(records) if at in (5000, 9999)]
        assert [4096 <= int(record.split(":")[1]) < 8192 for _, record in replaced] == [True, False]
        assert 8192 <= int(replaced[1][1].split(":")[1]) < 9999
        found.add(tuple(replaced))
    assert len(found) == 1
    with_filter = write(
        tmp_path / "f.json",
        range_chain(10_000, fails, {"op": "filter", "where": "value >= 4096"}, BATCH),
        on_error="replace",
    )
    run(with_filter, "--log", tmp_path / "f.log")
    records = [record for line in read_log(tmp_path / "f.log") for record in line["records"]]
    assert (records[5000 - 4096], records[9999 - 4096]) == tuple(record for _, record in found.pop())
