"""The command line, black box: exit codes, errors, digests, memory, signals.

CACHEW names the command (default build/cachew)."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import digest as hashes
import numpy as np
import pytest
from command import BATCH, MASK128, SANITIZED, SHUFFLE, cachew, failed, patient, range_chain
from command import read_log, run, write
from deadlines import HANG_S, wait_for
from example_data import CACHEW, EXAMPLES, FEWER

pytestmark = pytest.mark.usefixtures("own_index_dir")


def example_words(name):
    return [w for s in FEWER.get(name, []) for w in ("--set", s)]


# ---- digests ----


@pytest.mark.large
@pytest.mark.parametrize("name", EXAMPLES)
def test_digest_of_example_depends_on_the_seed_alone(examples, name):
    pipeline, words = examples / f"{name}.json", [*example_words(name), "--digest", "--seed", "5"]
    whole = run(pipeline, *words, "--threads", "1")
    assert whole["batches"] > 0 and whole["elements"] > 0
    for other in (["--threads", "2"], ["--threads", "8"], ["--memory", "128M"], ["--no-optimize"]):
        ran = run(pipeline, *words, *other)
        assert (ran["digest"], ran["set_digest"]) == (whole["digest"], whole["set_digest"]), other
    another = run(pipeline, *words[:-1], "6", "--threads", "2")
    assert another["digest"] != whole["digest"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_dump_of_example_has_the_digest(examples, tmp_path, name):
    ran = run(
        examples / f"{name}.json",
        *example_words(name),
        "--digest",
        "--batches",
        "4",
        "--dump",
        tmp_path / "dump",
    )
    assert hashes.digests(sorted((tmp_path / "dump").glob("*.npz"))) == (
        int(ran["digest"], 16),
        int(ran["set_digest"], 16),
    )


def test_epochs_add_up(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(1000, SHUFFLE, BATCH))
    two = run(pipeline, "--epochs", "2", "--digest", "--log", tmp_path / "log")
    lines = read_log(tmp_path / "log")
    assert [line["epoch"] for line in lines] == [0] * 125 + [1] * 125
    assert [line["g"] for line in lines] == [*range(125)] * 2
    assert sum(int(line["hash"], 16) for line in lines) & MASK128 == int(two["digest"], 16)
    one = run(pipeline, "--digest")
    assert int(two["set_digest"], 16) == 2 * int(one["set_digest"], 16) & MASK128


def test_defaults_of_the_file_and_options_over_them(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, SHUFFLE, BATCH), defaults={"seed": 3, "epochs": 2})
    ran = run(pipeline, "--digest")
    assert ran["seed"] == 3 and ran["elements"] == 200
    ran = run(pipeline, "--digest", "--epochs", "1", "--seed", "4")
    assert ran["seed"] == 4 and ran["elements"] == 100
    assert run(pipeline, "--epochs", "0")["batches"] == 0


def test_simd_and_masked_instructions_give_the_same(examples):
    """Vector units switched off one by one change no digest."""
    words = [examples / "photos_float.json", "--digest", "--batches", "3"]
    want = run(*words)["digest"]
    assert run(*words, env={"CACHEW_SIMD": "c"})["digest"] == want
    masked = "glibc.cpu.hwcaps=-AVX2_Usable,-FMA_Usable,-AVX512F_Usable,-AVX2,-FMA,-AVX512F"
    assert run(*words, env={"GLIBC_TUNABLES": masked})["digest"] == want


# ---- --log, --dump, --json, --set ----


def test_log_lines(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, {"op": "repeat", "count": 2}, SHUFFLE, BATCH))
    before = time.time()
    ran = run(pipeline, "--digest", "--log", tmp_path / "log")
    lines = read_log(tmp_path / "log")
    assert len(lines) == ran["batches"] == 25
    assert [line["g"] for line in lines] == [*range(25)]
    for line in lines:
        assert set(line) == {"epoch", "g", "rank", "n", "flags", "records", "hash", "t"}
        assert line["rank"] == 0 and line["n"] == 8 and line["flags"] == [0] * 8
        assert all(re.fullmatch(r"[0-9a-f]{16}:\d+\.[01]", r) for r in line["records"])
        assert before - 1 < line["t"] < time.time() + 1
    assert len({r for line in lines for r in line["records"]}) == 200
    assert f"{sum(int(line['hash'], 16) for line in lines) & MASK128:032x}" == ran["digest"]
    run(pipeline, "--digest", "--log", tmp_path / "log")  # appends
    assert len(read_log(tmp_path / "log")) == 50


def test_dump_is_what_the_digest_says(tmp_path, records):
    features = {
        "id": "int64",
        "name": "bytes",
        "vector": {"dtype": "float32", "shape": [4]},
        "tokens": {"dtype": "int64", "variable": True},
    }
    pipeline = write(
        tmp_path / "p.json",
        [
            {"op": "tfrecord", "files": str(records / "gzip-*.tfrecord.gz")},
            {"op": "parse_example", "features": features},
            {"op": "bucket_by_length", "length": "length(tokens)", "boundaries": [3, 7], "sizes": [5, 5, 5]},
        ],
    )
    ran = run(pipeline, "--digest", "--dump", tmp_path / "dump", "--epochs", "2")
    files = sorted((tmp_path / "dump").glob("*.npz"))
    assert len(files) == ran["batches"]
    assert hashes.digests(files) == (int(ran["digest"], 16), int(ran["set_digest"], 16))
    first = np.load(tmp_path / "dump" / "00000000.npz")
    assert (
        first["vector"].shape == (5, 4)
        and first["vector"].dtype == np.float32
        and len(first["__records__"]) == 5
    )
    assert set(first.files) == {
        "id",
        "name",
        "name.lengths",
        "vector",
        "tokens",
        "__records__",
        "__flags__",
        "__meta__",
    }


def test_json_fields(tmp_path):
    begin = time.monotonic()
    ran = run(write(tmp_path / "p.json", range_chain(1000, BATCH)), "--digest", "--threads", "3")
    taken = time.monotonic() - begin
    assert (
        ran["batches"] == 125
        and ran["elements"] == 1000
        and ran["bytes"] == 8000
        and ran["threads"] == 3
        and ran["seed"] == 0
    )
    assert ran["elements_per_s"] == pytest.approx(1000 / ran["seconds"], rel=1e-3)
    # a process's start, from which first_batch_s counts, is known in ticks, rounded down
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert 0 < ran["first_batch_s"] < taken + tick and ran["cpu_s"] >= 0 and ran["peak_rss_bytes"] > 1 << 20
    assert re.fullmatch("[0-9a-f]{32}", ran["digest"]) and re.fullmatch("[0-9a-f]{32}", ran["set_digest"])
    assert "digest" not in run(tmp_path / "p.json")


def test_seconds_in_the_environment_are_checked(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(10, BATCH))
    for name in ("CACHEW_SILENCE_S", "CACHEW_START_S", "CACHEW_RANGE_S"):
        for value in ("3s", "0", "-1", "inf"):
            ran = cachew("run", pipeline, env={name: value})
            assert ran.code == 2 and f'{name} is "{value}": expected a number of seconds' in ran.err
        assert cachew("run", pipeline, env={name: ""}).code == 0


def test_json_is_the_last_line_and_stdout_holds_results_only(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(1000, BATCH))
    ran = cachew("run", pipeline, "--json")
    assert len(ran.out.splitlines()) == 1 and ran.err == ""
    ran = cachew("run", pipeline, "--digest")
    assert ran.err == "" and re.search("^digest [0-9a-f]{32}$", ran.out, re.MULTILINE)


def test_set_changes_the_pipeline(tmp_path):
    pipeline = write(
        tmp_path / "p.json", [{"op": "concat", "inputs": [range_chain(10), range_chain(20)]}, BATCH]
    )
    assert run(pipeline)["elements"] == 30
    assert run(pipeline, "--set", "0.inputs.1.0.stop=5", "--set", "1.size=3")["batches"] == 5
    changed = write(
        tmp_path / "q.json",
        [{"op": "concat", "inputs": [range_chain(10), range_chain(5)]}, {"op": "batch", "size": 3}],
    )
    assert (
        run(pipeline, "--digest", "--set", "0.inputs.1.0.stop=5", "--set", "1.size=3")["digest"]
        == run(changed, "--digest")["digest"]
    )
    for setting, why in (
        ("size", "no =VALUE"),
        ("=5", "no PATH"),
        ("7.size=5", "7.size"),
        ("0.inputs.5.0.stop=1", "an index that its list does not have"),
        ("1.size.x=1", "neither"),
    ):
        error = failed(pipeline, 2, "--set", setting)
        assert error["kind"] == "option" and why in error["message"], setting
    error = failed(pipeline, 2, "--set", "1.sice=5")
    assert error["kind"] == "pipeline" and "size" in error["message"] and error["operator"] == "batch"


# ---- options and pipelines that are wrong ----


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["--thread", "2"], "--threads"),
        (["--sede=3"], "--seed"),
        (["--digests"], "--digest"),
        (["--memoy", "1G"], "--memory"),
        (["--threads", "0"], "1"),
        (["--threads", "two"], "two"),
        (["--seed", "-1"], "-1"),
        (["--memory", "5X"], "5X"),
        (["--seed"], "needs a value"),
        (["--order", "some"], "exact"),
        (["--guarantee", "never"], "exactly-once"),
        (["--rank", "1"], "world-size"),
        (["--wait", "soon"], "soon"),
        (["--memory", "256 "], "256M"),
        (["--memory", " 256M"], "256M"),
        (["--memory", "256M "], "256M"),
        (["--memory", "0x100M"], "256M"),
        (["--memory", "-1"], "256M"),
        (["--batches", " -5"], "at least 0"),
        (["--batches", " 5"], "at least 0"),
        (["--batches", "+5"], "at least 0"),
        (["--wait", "inf"], "seconds"),
        (["--wait", "nan"], "seconds"),
        (["--wait", "3e10"], "1e9"),
        (["--wait", " 1"], "seconds"),
        (["--wait", "-1"], "seconds"),
        (["--digest=1"], "no value"),
        (["extra"], "too many"),
        (["--nothing-like-it"], "--help"),
    ],
)
def test_wrong_option(tmp_path, words, suggestion):
    error = failed(write(tmp_path / "p.json", range_chain(10)), 2, *words)
    assert error["kind"] == "option" and suggestion in error["message"] + error.get("expected", "")


def test_wrong_verb_and_no_arguments():
    ran = cachew("rnu")
    assert ran.code == 2 and "run" in ran.err and ran.out == ""
    assert cachew().code == 2
    ran = cachew("run", "--json")
    assert ran.code == 2 and ran.error["kind"] == "option"
    assert cachew("--version").out.startswith("cachew ")
    assert cachew("--help").code == 0
    assert "--threads" in cachew("run", "--help").out


def test_pipeline_file_that_is_not_there(tmp_path):
    error = failed(tmp_path / "none.json", 2)
    assert "none.json" in error["message"] and error["file"].endswith("none.json")


@pytest.mark.parametrize(
    ("op", "facts"),
    [
        ({"op": "bacth", "size": 2}, {"operator": "bacth", "value": "bacth", "message": '"batch"'}),
        ({"op": "batch", "sizes": 2}, {"operator": "batch", "attribute": "sizes", "message": '"size"'}),
        (
            {"op": "batch", "size": "2"},
            {"operator": "batch", "attribute": "size", "value": '"2"', "expected": "an integer"},
        ),
        ({"op": "batch"}, {"operator": "batch", "attribute": "size", "value": "missing"}),
        ({"op": "cast", "component": "valeu", "dtype": "int8"}, {"operator": "cast", "message": '"value"'}),
        ({"op": "filter", "where": "value < 1.e999"}, {"operator": "filter", "message": "too large"}),
        (
            {
                "op": "bucket_by_length",
                "length": "value",
                "boundaries": [3],
                "sizes": [1, 1],
                "pad": {"value": -1.5},
            },
            {"attribute": "pad", "message": "int64"},
        ),
        (
            {
                "op": "bucket_by_length",
                "length": "value",
                "boundaries": [3],
                "sizes": [1, 1],
                "pad": {"value": 1e300},
            },
            {"attribute": "pad", "message": "int64"},
        ),
        (
            {"op": "bucket_by_length", "length": "value", "boundaries": [*range(1024)], "sizes": [1] * 1025},
            {
                "operator": "bucket_by_length",
                "attribute": "boundaries",
                "value": "[0,1,2,",
                "expected": "of length 1 to 1023",
            },
        ),
        (
            {"op": "bucket_by_length", "length": "value", "boundaries": [3], "sizes": [1] * 1025},
            {
                "operator": "bucket_by_length",
                "attribute": "sizes",
                "value": "[1,1,1,",
                "expected": "of length 2 to 1024, from 1 to 1048576",
            },
        ),
        (
            {"op": "bucket_by_length", "length": "value", "boundaries": [*range(1023)], "sizes": [1] * 1023},
            {
                "operator": "bucket_by_length",
                "attribute": "sizes",
                "value": "[1,1,1,",
                "expected": "one more value than boundaries has: 1024",
            },
        ),
        (
            {"op": "pack", "component": "value", "length": 4},
            {"operator": "pack", "attribute": "component", "value": "value", "expected": "one dimension"},
        ),
        (
            {"op": "pack", "component": "value", "length": 0},
            {"operator": "pack", "attribute": "length", "value": "0", "expected": "from 1 to"},
        ),
        (
            {"op": "pack", "component": "valeu", "length": 4},
            {"operator": "pack", "attribute": "component", "value": "valeu", "message": '"value"'},
        ),
        (
            {"op": "filter", "where": "value > 1", "keep_position": 1},
            {"operator": "filter", "attribute": "keep_position", "value": "1", "expected": "true or false"},
        ),
        ({"op": "filter", "where": "value + "}, {"operator": "filter", "message": "value + "}),
        ({"op": "assign", "set": {"x": "label % 2"}}, {"operator": "assign", "message": "label"}),
    ],
)
def test_pipeline_error_names_its_place(tmp_path, op, facts):
    error = failed(write(tmp_path / "p.json", range_chain(10, op)), 2)
    assert error["kind"] == "pipeline"
    for key, part in facts.items():
        assert part in error[key], (key, error)


@pytest.mark.parametrize(
    ("attributes", "facts"),
    [
        ({"pad": 300}, {"attribute": "pad", "value": "300", "expected": "uint8"}),
        ({"separator": -1}, {"attribute": "separator", "value": "-1", "expected": "uint8"}),
        ({"separator": [1, 2]}, {"attribute": "separator", "value": "[1,2]", "expected": "of length"}),
        ({"algorithm": "best"}, {"attribute": "algorithm", "value": "best", "expected": "next"}),
        ({"window": 0}, {"attribute": "window", "value": "0", "expected": "from 1 to 65536"}),
    ],
)
def test_attributes_of_pack(tmp_path, attributes, facts):
    tokens = {"op": "synthetic", "count": 5, "shape": [3], "dtype": "uint8"}
    pack = {"op": "pack", "component": "data", "length": 4, **attributes}
    error = failed(write(tmp_path / "p.json", [tokens, pack]), 2)
    for key, part in (facts | {"operator": "pack"}).items():
        assert part in error[key], (key, error)


def test_a_sequence_that_is_too_long_to_pack(tmp_path):
    tokens = {"op": "synthetic", "count": 5, "shape": [3], "dtype": "uint8"}
    pack = {"op": "pack", "component": "data", "length": 3, "separator": 0, "split": False}
    error = failed(write(tmp_path / "p.json", [tokens, pack]), 1)
    assert "data has 4 tokens with the separator: expected at most length, 3" in error["message"]


def test_a_name_that_two_inputs_of_zip_have(tmp_path):
    both = {"op": "zip", "inputs": [range_chain(10)[:1], range_chain(20)[:1]]}
    error = failed(write(tmp_path / "p.json", [both]), 2)
    assert error["operator"] == "zip" and error["value"] == "value"
    assert 'component "value" is in two inputs' in error["message"]
    both["inputs"][1].append({"op": "filter", "where": "value > 3"})
    error = failed(write(tmp_path / "p.json", [both]), 2)
    assert "zip: input 1 has no known number of elements" in error["message"]


def test_pipeline_json_with_wrong_type(tmp_path):
    for text in (
        '{"cachew": 1, "pipeline": {"op": "range"}}',
        '{"cachew": "1", "pipeline": []}',
        "[1, 2",
        "5",
        '{"cachew": 1, "pipeline": [["range"]]}',
        '{"cachew": 1, "pipeline": [{"op": "range", "stop": [5]}]}',
        '{"cachew": 1, "pipeline": [{"op": "range", "stop": 1e400}]}',
        "",
        "\0",
        "\udcff",
    ):
        (tmp_path / "p.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        assert failed(tmp_path / "p.json", 2)["kind"] == "pipeline"


def test_pipeline_with_unknown_operator(tmp_path):
    error = failed(write(tmp_path / "p.json", range_chain(10, {"op": "shufle"})), 2)
    assert (
        error["operator"] == "shufle" and "did you mean" in error["message"] and "shuffle" in error["message"]
    )


@pytest.mark.parametrize("depth", [33, 1000, 100000])
def test_pipeline_nested_as_deep_as_a_cycle(tmp_path, depth):
    text = (
        '{"cachew": 1, "pipeline": '
        + '[{"op": "concat", "inputs": [' * depth
        + '[{"op": "range", "stop": 5}]'
        + "]}]" * depth
        + "}"
    )
    (tmp_path / "p.json").write_text(text)
    assert failed(tmp_path / "p.json", 2)["kind"] == "pipeline"


# ---- signals, deadlines, crashes ----


def endless(pipeline, *words):
    """`cachew run --json` of more epochs than any test waits for, as a process that only a signal ends."""
    words = patient(["run", pipeline, "--json", "--threads", 1, "--epochs", 10**12, *words])
    return subprocess.Popen([CACHEW, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_writes_the_state(tmp_path, number):
    pipeline = write(tmp_path / "p.json", range_chain(4000, {"op": "delay", "us": 1000}, BATCH))
    child = endless(pipeline, "--digest", "--state", tmp_path / "state", "--log", tmp_path / "log")
    wait_for(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("\n") >= 3)
    child.send_signal(number)
    out, _ = child.communicate(timeout=HANG_S)
    assert child.returncode == 128 + number
    first = json.loads(out.splitlines()[-1])
    state = json.loads((tmp_path / "state").read_text())
    assert state["epoch"] * 500 + state["g"] == first["batches"] == len(read_log(tmp_path / "log"))
    epochs = state["epoch"] + 1
    rest = run(pipeline, "--digest", "--state", tmp_path / "state", "--threads", "8", "--epochs", epochs)
    assert first["elements"] + rest["elements"] == epochs * 4000


def test_a_signal_without_a_state_does_not_claim_one(tmp_path):
    """The state can't be written: that is the error, and nothing says otherwise."""
    pipeline = write(tmp_path / "p.json", range_chain(4000, {"op": "delay", "us": 1000}, BATCH))
    (tmp_path / "none").mkdir()
    child = endless(pipeline, "--state", tmp_path / "none" / "state", "--log", tmp_path / "log")
    wait_for(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("\n") >= 1)
    shutil.rmtree(tmp_path / "none")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=HANG_S)
    assert child.returncode == 1 and "SIGINT" in err and "is written" not in err
    assert str(tmp_path / "none" / "state") in json.loads(out.splitlines()[-1])["error"]["message"]


def test_a_signal_before_the_first_batch_ends_the_run(tmp_path):
    """What is waited for is opened before there is an iterator: here a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "p.json")
    child = subprocess.Popen(
        [CACHEW, "run", str(tmp_path / "p.json"), "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    waits_for_signals = 1 << (signal.SIGTERM - 1)
    wait_for(
        lambda: (
            int(re.search(r"SigBlk:\s*(\w+)", Path(f"/proc/{child.pid}/status").read_text())[1], 16)
            & waits_for_signals
        )
    )
    child.send_signal(signal.SIGTERM)
    try:
        _, err = child.communicate(timeout=HANG_S)
    finally:
        child.kill()
    assert child.returncode == 128 + signal.SIGTERM and "SIGTERM" in err


def test_hang_ends_at_the_deadline(tmp_path):
    pipeline = write(
        tmp_path / "p.json",
        range_chain(100, {"op": "fail", "kind": "hang", "where": "value == 50"}, {"op": "batch", "size": 5}),
    )
    begin = time.monotonic()
    ran = cachew("run", pipeline, "--json", "--wait", "2", "--state", tmp_path / "state")
    assert ran.code == 4 and ran.error["kind"] == "deadline"
    assert time.monotonic() - begin >= 2  # not before the deadline
    assert ran.json["batches"] <= 10


def test_crash_is_a_crash(tmp_path):
    pipeline = write(
        tmp_path / "p.json",
        range_chain(100, {"op": "fail", "kind": "crash", "where": "value == 50"}, {"op": "batch", "size": 5}),
    )
    assert cachew("run", pipeline, "--json").code == -signal.SIGKILL


def test_killed_run_goes_on_from_its_state(tmp_path):
    """What a kill -9 leaves: the log up to the state's g, and the rest after it, are the whole."""
    chain = range_chain(800, SHUFFLE, BATCH)
    pipeline, state = write(tmp_path / "p.json", chain), tmp_path / "state"
    run(pipeline, "--log", tmp_path / "whole.log")
    slow = patient(
        [
            "run",
            write(tmp_path / "p.json", chain),
            "--state",
            state,
            "--state-every",
            "1",
            "--log",
            tmp_path / "log",
        ]
    )
    child = subprocess.Popen([CACHEW, *slow], stdout=subprocess.DEVNULL)
    wait_for(lambda: (tmp_path / "log").exists() and (tmp_path / "log").stat().st_size > 0)
    child.kill()
    child.wait()
    g = json.loads(state.read_text())["g"] if state.exists() else 0
    kept = read_log(tmp_path / "log")[:g]
    assert len(kept) == g  # the log is ahead of the state, never behind
    (tmp_path / "log").unlink()
    run(pipeline, "--state", state, "--log", tmp_path / "log")
    rest = read_log(tmp_path / "log") if (tmp_path / "log").exists() else []
    assert [line["hash"] for line in kept + rest] == [
        line["hash"] for line in read_log(tmp_path / "whole.log")
    ]


# ---- memory ----


@pytest.mark.skipif(SANITIZED, reason="sanitizers need memory of their own")
def test_images_stay_within_the_budget(examples):
    ran = run(examples / "photos.json", "--digest", "--memory", "64M", "--set", "6.size=32", "--threads", "2")
    assert ran["peak_rss_bytes"] < (64 + 30) << 20
    assert (
        ran["digest"]
        == run(examples / "photos.json", "--digest", "--set", "6.size=32", "--threads", "8")["digest"]
    )


@pytest.mark.parametrize(
    "length",
    ["value * 7 % 10007 % 100", "value // 500", "value % 99 + int64(value == 49999) * (99 - value % 99)"],
)
def test_budget_too_small_for_100_buckets_names_the_smallest(tmp_path, length):
    """All buckets fill together; one after the other; and one of them gets its first element last."""
    chain = range_chain(
        50_000,
        {"op": "assign", "set": {"x": "float32(value)"}},
        {"op": "bucket_by_length", "length": length, "boundaries": [*range(1, 100)], "sizes": [64] * 100},
    )
    pipeline = write(tmp_path / "p.json", chain)
    want, error = run(pipeline, "--digest"), failed(pipeline, 2, "--memory", "1M")
    assert error["attribute"] == "memory"
    smallest = error["expected"].split()[2]
    for threads in (1, 8):
        assert (
            run(pipeline, "--digest", "--memory", smallest, "--threads", threads)["digest"] == want["digest"]
        )


def test_budget_too_small_for_a_batch_names_the_smallest(tmp_path):
    pipeline = write(
        tmp_path / "p.json",
        [
            {"op": "synthetic", "count": 100, "shape": [224, 224, 3], "dtype": "uint8"},
            {"op": "batch", "size": 64},
        ],
    )
    error = failed(pipeline, 2, "--memory", "4M")
    assert error["kind"] == "budget"
    smallest = max(int(n) for n in re.findall(r"\d{7,}", error["message"]))
    assert smallest >= 64 * 224 * 224 * 3
    assert run(pipeline, "--memory", smallest)["elements"] == 100


# ---- other verbs ----


def test_ops_lists_and_describes():
    ops = json.loads(cachew("ops", "--json").out.splitlines()[-1])["ops"]
    names = [o["name"] for o in ops]
    assert names == sorted(names) and {"batch", "tfrecord", "random_resized_crop"} <= set(names)
    assert "random_resized_crop" in cachew("ops").out
    assert "interpolation" in cachew("ops", "resize").out
    ran = cachew("ops", "resise")
    assert ran.code == 2 and "resize" in ran.err


def test_explain_says_what_is_fused(examples):
    ran = cachew("explain", examples / "photos.json", "--json", "--run", "0.2")
    assert ran.code == 0
    told = ran.json
    assert told["fused"] and told["counted"] is True and told["outputs"]["image"] == "uint8[224,224,3]"


def test_index_is_kept(tmp_path, records):
    words = ["index", str(records / "plain-*.tfrecord"), "--index-dir", tmp_path / "cwx", "--json"]
    first, second = cachew(*words), cachew(*words)
    assert first.code == second.code == 0
    assert (
        first.json["indexed"] == 3
        and second.json["reused"] == 3
        and first.json["records"] == second.json["records"] == 120
    )


def test_doctor_and_bench(tmp_path):
    ran = cachew("doctor", "--json")
    assert ran.code in (0, 1) and ran.json["checks"]
    ran = cachew(
        "bench",
        write(tmp_path / "p.json", range_chain(10000, BATCH)),
        "--json",
        "--seconds",
        "0.1",
        "--best-of",
        "1",
        "--threads",
        "2",
    )
    assert ran.code == 0 and ran.json["elements_per_s"] > 0
    ran = cachew("bench", tmp_path / "p.json", "--json", "--seconds", "0")
    assert ran.code == 2 and ran.error["attribute"] == "seconds"
