"""The command line, black box: exit codes, errors, digests, resuming, ranks, memory, signals, bad input.

CACHEW names the command (default build/cachew), MAKE_PHOTOS the tool that cuts photographs; without photographs on this machine the
pipelines over them are made of generated pictures."""

import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))
import digest as hashes  # noqa: E402
import make_data  # noqa: E402
from example_data import CACHEW, EXAMPLES, FEWER, generated_picture, jpeg  # noqa: E402
SANITIZED = bool(os.environ.get("CACHEW_SANITIZED"))
MASK128 = (1 << 128) - 1
TIMEOUT_S = 120


class Ran:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out.splitlines()[-1])

    @property
    def error(self):
        return self.json["error"]


def cachew(*words, env=None, timeout=TIMEOUT_S, cwd=None):
    done = subprocess.run([CACHEW, *map(str, words)], check=False, capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env={**os.environ, **(env or {})})
    return Ran(done.returncode, done.stdout, done.stderr)


def run(pipeline, *words, code=0, **options):
    """`cachew run --json`, which must end with this code."""
    ran = cachew("run", pipeline, "--json", *words, **options)
    assert ran.code == code, (ran.code, ran.out[-2000:], ran.err[-2000:])
    return ran.json


def failed(pipeline, code, *words, **options):
    """The error object of a run that must end with this code; the message is on stderr too."""
    ran = cachew("run", pipeline, "--json", *words, **options)
    assert ran.code == code, (ran.code, ran.out[-2000:], ran.err[-2000:])
    assert ran.error["message"] in ran.err
    return ran.error


def write(path, chain, **beside):
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain, **beside}))
    return path


def range_chain(n, *ops):
    return [{"op": "range", "stop": n}, *ops]


BATCH = {"op": "batch", "size": 8}
SHUFFLE = {"op": "shuffle"}


@pytest.fixture(autouse=True)
def own_index_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHEW_INDEX_DIR", str(tmp_path / "index"))


def example_words(name):
    return [w for s in FEWER.get(name, []) for w in ("--set", s)]


# ---- digests ----

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
    ran = run(examples / f"{name}.json", *example_words(name), "--digest", "--batches", "4", "--dump", tmp_path / "dump")
    assert hashes.digests(sorted((tmp_path / "dump").glob("*.npz"))) == (int(ran["digest"], 16), int(ran["set_digest"], 16))


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

def read_log(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_log_lines(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, {"op": "repeat", "count": 2}, SHUFFLE, BATCH))
    before = time.time()
    ran = run(pipeline, "--digest", "--log", tmp_path / "log")
    lines = read_log(tmp_path / "log")
    assert len(lines) == ran["batches"] == 25
    assert [line["g"] for line in lines] == [*range(25)]
    assert sorted(line["split"] for line in lines) == [line["split"] for line in lines]
    for line in lines:
        assert set(line) == {"epoch", "g", "rank", "split", "index", "n", "flags", "records", "hash", "t"}
        assert line["rank"] == 0 and line["n"] == 8 and line["flags"] == [0] * 8
        assert all(re.fullmatch(r"[0-9a-f]{16}:\d+\.[01]", r) for r in line["records"])
        assert before - 1 < line["t"] < time.time() + 1
    assert len({r for line in lines for r in line["records"]}) == 200
    assert f"{sum(int(line['hash'], 16) for line in lines) & MASK128:032x}" == ran["digest"]
    run(pipeline, "--digest", "--log", tmp_path / "log")  # appends
    assert len(read_log(tmp_path / "log")) == 50


def test_dump_is_what_the_digest_says(tmp_path, records):
    features = {"id": "int64", "name": "bytes", "vector": {"dtype": "float32", "shape": [4]}, "tokens": {"dtype": "int64", "variable": True}}
    pipeline = write(tmp_path / "p.json", [{"op": "tfrecord", "files": str(records / "gzip-*.tfrecord.gz")}, {"op": "parse_example", "features": features},
                                           {"op": "bucket_by_length", "length": "length(tokens)", "boundaries": [3, 7], "sizes": [5, 5, 5]}])
    ran = run(pipeline, "--digest", "--dump", tmp_path / "dump", "--epochs", "2")
    files = sorted((tmp_path / "dump").glob("*.npz"))
    assert len(files) == ran["batches"]
    assert hashes.digests(files) == (int(ran["digest"], 16), int(ran["set_digest"], 16))
    first = np.load(tmp_path / "dump" / "00000000.npz")
    assert first["vector"].shape == (5, 4) and first["vector"].dtype == np.float32 and len(first["__records__"]) == 5
    assert set(first.files) == {"id", "name", "name.lengths", "vector", "tokens", "__records__", "__flags__", "__meta__"}


def test_json_fields(tmp_path):
    ran = run(write(tmp_path / "p.json", range_chain(1000, BATCH)), "--digest", "--threads", "3")
    assert ran["batches"] == 125 and ran["elements"] == 1000 and ran["bytes"] == 8000 and ran["threads"] == 3 and ran["seed"] == 0
    assert ran["elements_per_s"] == pytest.approx(1000 / ran["seconds"], rel=1e-3)
    assert 0 < ran["first_batch_s"] < 30 and ran["cpu_s"] >= 0 and ran["peak_rss_bytes"] > 1 << 20
    assert re.fullmatch("[0-9a-f]{32}", ran["digest"]) and re.fullmatch("[0-9a-f]{32}", ran["set_digest"])
    assert "digest" not in run(tmp_path / "p.json")


def test_json_is_the_last_line_and_stdout_holds_results_only(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(1000, BATCH))
    ran = cachew("run", pipeline, "--json")
    assert len(ran.out.splitlines()) == 1 and ran.err == ""
    ran = cachew("run", pipeline, "--digest")
    assert ran.err == "" and re.search("^digest [0-9a-f]{32}$", ran.out, re.MULTILINE)


def test_set_changes_the_pipeline(tmp_path):
    pipeline = write(tmp_path / "p.json", [{"op": "concat", "inputs": [range_chain(10), range_chain(20)]}, BATCH])
    assert run(pipeline)["elements"] == 30
    assert run(pipeline, "--set", "0.inputs.1.0.stop=5", "--set", "1.size=3")["batches"] == 5
    changed = write(tmp_path / "q.json", [{"op": "concat", "inputs": [range_chain(10), range_chain(5)]}, {"op": "batch", "size": 3}])
    assert run(pipeline, "--digest", "--set", "0.inputs.1.0.stop=5", "--set", "1.size=3")["digest"] == run(changed, "--digest")["digest"]
    for setting, why in (("size", "no =VALUE"), ("=5", "no PATH"), ("7.size=5", "7.size"), ("0.inputs.5.0.stop=1", "place"), ("1.size.x=1", "neither")):
        error = failed(pipeline, 2, "--set", setting)
        assert error["kind"] == "option" and why in error["message"], setting
    error = failed(pipeline, 2, "--set", "1.sice=5")
    assert error["kind"] == "pipeline" and "size" in error["message"] and error["operator"] == "batch"


# ---- options and pipelines that are wrong ----

@pytest.mark.parametrize(("words", "suggestion"), [
    (["--thread", "2"], "--threads"), (["--sede=3"], "--seed"), (["--digests"], "--digest"), (["--memoy", "1G"], "--memory"),
    (["--threads", "0"], "1"), (["--threads", "two"], "two"), (["--seed", "-1"], "-1"), (["--memory", "5X"], "5X"), (["--seed"], "needs a value"),
    (["--order", "some"], "exact"), (["--guarantee", "never"], "exactly-once"), (["--rank", "1"], "world-size"), (["--wait", "soon"], "soon"),
    (["--memory", "256 "], "256M"), (["--memory", " 256M"], "256M"), (["--memory", "256M "], "256M"), (["--memory", "0x100M"], "256M"),
    (["--memory", "-1"], "256M"), (["--batches", " -5"], "at least 0"), (["--batches", " 5"], "at least 0"), (["--batches", "+5"], "at least 0"),
    (["--wait", "inf"], "seconds"), (["--wait", "nan"], "seconds"), (["--wait", "3e10"], "1e9"), (["--wait", " 1"], "seconds"), (["--wait", "-1"], "seconds"),
    (["--digest=1"], "no value"), (["extra"], "too many"), (["--nothing-like-it"], "--help")])
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


@pytest.mark.parametrize(("op", "facts"), [
    ({"op": "bacth", "size": 2}, {"operator": "bacth", "value": "bacth", "message": '"batch"'}),
    ({"op": "batch", "sizes": 2}, {"operator": "batch", "attribute": "sizes", "message": '"size"'}),
    ({"op": "batch", "size": "2"}, {"operator": "batch", "attribute": "size", "value": '"2"', "expected": "an integer"}),
    ({"op": "batch"}, {"operator": "batch", "attribute": "size", "value": "missing"}),
    ({"op": "cast", "component": "valeu", "dtype": "int8"}, {"operator": "cast", "message": '"value"'}),
    ({"op": "filter", "where": "value < 1.e999"}, {"operator": "filter", "message": "too large"}),
    ({"op": "bucket_by_length", "length": "value", "boundaries": [3], "sizes": [1, 1], "pad": {"value": -1.5}}, {"attribute": "pad", "message": "int64"}),
    ({"op": "bucket_by_length", "length": "value", "boundaries": [3], "sizes": [1, 1], "pad": {"value": 1e300}}, {"attribute": "pad", "message": "int64"}),
    ({"op": "filter", "where": "value + "}, {"operator": "filter", "message": "value + "}),
    ({"op": "assign", "set": {"x": "label % 2"}}, {"operator": "assign", "message": "label"})])
def test_pipeline_error_names_its_place(tmp_path, op, facts):
    error = failed(write(tmp_path / "p.json", range_chain(10, op)), 2)
    assert error["kind"] == "pipeline"
    for key, part in facts.items():
        assert part in error[key], (key, error)


def test_pipeline_json_with_wrong_type(tmp_path):
    for text in ('{"cachew": 1, "pipeline": {"op": "range"}}', '{"cachew": "1", "pipeline": []}', "[1, 2", "5", '{"cachew": 1, "pipeline": [["range"]]}',
                 '{"cachew": 1, "pipeline": [{"op": "range", "stop": [5]}]}', '{"cachew": 1, "pipeline": [{"op": "range", "stop": 1e400}]}', "", "\0", "\udcff"):
        (tmp_path / "p.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        assert failed(tmp_path / "p.json", 2)["kind"] == "pipeline"


def test_pipeline_with_unknown_operator(tmp_path):
    error = failed(write(tmp_path / "p.json", range_chain(10, {"op": "shufle"})), 2)
    assert error["operator"] == "shufle" and "did you mean" in error["message"] and "shuffle" in error["message"]


@pytest.mark.parametrize("depth", [33, 1000, 100000])
def test_pipeline_nested_as_deep_as_a_cycle(tmp_path, depth):
    text = '{"cachew": 1, "pipeline": ' + '[{"op": "concat", "inputs": [' * depth + '[{"op": "range", "stop": 5}]' + "]}]" * depth + "}"
    (tmp_path / "p.json").write_text(text)
    assert failed(tmp_path / "p.json", 2)["kind"] == "pipeline"


# ---- state ----

def resume_pipelines(records):
    tfrecord = [{"op": "tfrecord", "files": str(records / "plain-*.tfrecord")},
                {"op": "parse_example", "features": {"id": "int64", "tokens": {"dtype": "int64", "variable": True}}}]
    ids = [tfrecord[0], {"op": "parse_example", "features": {"id": "int64"}}]
    return {
        "counted": [*ids, SHUFFLE, {"op": "repeat", "count": 3}, {"op": "batch", "size": 7}],
        "filtered": [*ids, {"op": "repeat", "count": 5}, {"op": "filter", "where": "id % 3 != 0"}, SHUFFLE, {"op": "batch", "size": 7}],
        "bucketed": [*tfrecord, SHUFFLE, {"op": "repeat", "count": 3},
                     {"op": "bucket_by_length", "length": "length(tokens)", "boundaries": [2, 4, 6, 8], "sizes": [9, 8, 7, 6, 5]}],
        "take-after-filter": [*ids, SHUFFLE, {"op": "repeat", "count": 4}, {"op": "filter", "where": "id % 2 == 0"}, {"op": "take", "count": 150}, {"op": "batch", "size": 4}],
    }


@pytest.mark.parametrize("kind", ["counted", "filtered", "bucketed", "take-after-filter"])
def test_parts_add_up_to_the_whole(tmp_path, records, kind):
    pipeline = write(tmp_path / "p.json", resume_pipelines(records)[kind])
    words = ["--digest", "--seed", "9", "--epochs", "2"]
    whole = run(pipeline, *words, "--threads", "2", "--log", tmp_path / "whole.log")
    want = [(line["epoch"], line["g"], line["hash"]) for line in read_log(tmp_path / "whole.log")]
    assert whole["batches"] == len(want) > 20
    draw = random.Random(kind)
    for stop in [0, 1, len(want) - 1, len(want), len(want) + 5, *(draw.randrange(2, len(want) - 1) for _ in range(15))]:
        state, log = tmp_path / f"{stop}.state", tmp_path / f"{stop}.log"
        for old in (state, log):
            old.unlink(missing_ok=True)
        first = run(pipeline, *words, "--batches", stop, "--threads", draw.choice([1, 2, 8]), "--state", state, "--log", log)
        assert state.stat().st_size <= 1024
        again = draw.random() < 0.3
        second = {"digest": "0"}
        if again:  # a third part
            second = run(pipeline, *words, "--batches", draw.randrange(5), "--threads", "2", "--state", state, "--log", log)
        rest = run(pipeline, *words, "--threads", draw.choice([1, 2, 8]), "--state", state, "--log", log)
        assert state.stat().st_size <= 1024
        assert [(line["epoch"], line["g"], line["hash"]) for line in read_log(log)] == want, f"stopped after {stop}"
        assert sum(int(r["digest"], 16) for r in (first, second, rest)) & MASK128 == int(whole["digest"], 16)
        assert run(pipeline, *words, "--state", state)["batches"] == 0  # nothing is left


def test_state_of_one_world_size_resumes_with_another(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(1000, {"op": "filter", "where": "value % 5 != 0"}, SHUFFLE, BATCH))
    want = run(pipeline, "--digest", "--log", tmp_path / "whole.log")["digest"]
    total = 0
    for rank in range(2):  # 20 rounds of two
        part = run(pipeline, "--digest", "--rank", rank, "--world-size", 2, "--batches", 20, "--state", tmp_path / f"state{rank}")
        total += int(part["digest"], 16)
    states = [json.loads((tmp_path / f"state{r}").read_text()) for r in range(2)]
    assert states[0]["g"] == states[1]["g"] == 40
    for rank in range(4):
        shutil.copy(tmp_path / "state0", tmp_path / f"four{rank}")
        part = run(pipeline, "--digest", "--rank", rank, "--world-size", 4, "--state", tmp_path / f"four{rank}")
        total += int(part["digest"], 16)
    assert f"{total & MASK128:032x}" == want


@pytest.mark.parametrize("kind", ["counted", "filtered", "bucketed"])
def test_parts_with_changing_world_sizes_add_up_to_the_whole(tmp_path, records, kind):
    """Wherever a part ends: g of its state need not be a multiple of the next world size."""
    pipeline, words = write(tmp_path / "p.json", resume_pipelines(records)[kind]), ["--digest", "--epochs", "2"]
    want = run(pipeline, *words, "--log", tmp_path / "whole.log")
    batches = {(line["epoch"], line["g"]): line["hash"] for line in read_log(tmp_path / "whole.log")}
    draw = random.Random(kind)
    for nth in range(4):
        total, seen, at = 0, {}, None
        worlds = [draw.randint(1, 5) for _ in range(5)]
        for part, world in enumerate(worlds):
            last = ["--batches", draw.randint(1, 7)] if part + 1 < len(worlds) else []
            states = []
            for rank in range(world):
                state, log = tmp_path / f"{nth}.{part}.{rank}.state", tmp_path / f"{nth}.{part}.{rank}.log"
                if at:
                    state.write_text(json.dumps(at))
                ran = run(pipeline, *words, *last, "--rank", rank, "--world-size", world, "--state", state, "--log", log, "--threads", draw.choice([1, 2, 8]))
                total += int(ran["digest"], 16)
                states.append((ran["batches"], json.loads(state.read_text())))
                for line in read_log(log) if log.exists() else []:
                    if not any(f & 2 for f in line["flags"]):
                        assert (line["epoch"], line["g"]) not in seen
                        seen[line["epoch"], line["g"]] = line["hash"]
            assert all(s == states[0] for s in states)  # equally many batches, and one state
            at = states[0][1]
        assert seen == batches
        assert f"{total & MASK128:032x}" == want["digest"]


def test_state_every(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(80, BATCH, {"op": "fail", "where": "value == 77"}))
    state = tmp_path / "state"
    assert failed(pipeline, 1, "--state", state, "--state-every", 4, "--threads", "1")["kind"] == "record"
    assert json.loads(state.read_text())["g"] == 8


def state_of(tmp_path, pipeline, *words):
    state = tmp_path / "state"
    run(pipeline, "--batches", 3, "--state", state, *words)
    return state


def test_state_of_another_pipeline(tmp_path):
    state = state_of(tmp_path, write(tmp_path / "p.json", range_chain(100, BATCH)))
    error = failed(write(tmp_path / "q.json", range_chain(100, {"op": "batch", "size": 9})), 2, "--state", state)
    assert error["kind"] == "state" and "pipeline" in error["message"]


def test_state_of_another_seed(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, BATCH))
    error = failed(pipeline, 2, "--state", state_of(tmp_path, pipeline), "--seed", "8")
    assert error["kind"] == "state" and "seed" in error["message"]


def test_state_of_other_data(tmp_path, records):
    data = tmp_path / "data.tfrecord"
    shutil.copy(records / "plain-00.tfrecord", data)
    pipeline = write(tmp_path / "p.json", [{"op": "tfrecord", "files": "data.tfrecord"}, {"op": "batch", "size": 4}])
    state = state_of(tmp_path, pipeline)
    shutil.copy(records / "plain-01.tfrecord", data)
    error = failed(pipeline, 2, "--state", state)
    assert error["kind"] == "state" and "data" in error["message"]


def test_state_that_is_cut_off_or_damaged(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, BATCH))
    state = state_of(tmp_path, pipeline)
    text = state.read_text()
    values = json.loads(text)
    for broken in (text[:len(text) // 2], text[:-3], "[]", "5", "{}", '"x"', json.dumps({**values, "split": "2"}), json.dumps({**values, "g": -1}),
                   json.dumps({**values, "split": 10**9}), json.dumps({k: v for k, v in values.items() if k != "epoch"})):
        state.write_text(broken)
        error = failed(pipeline, 2, "--state", state)
        assert error["kind"] == "state", broken
        assert state.read_text() == broken  # left alone
    state.write_text("")
    assert failed(pipeline, 2, "--state", state)["kind"] == "state"


def test_state_of_a_later_version(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, BATCH))
    state = state_of(tmp_path, pipeline)
    values = json.loads(state.read_text())
    state.write_text(json.dumps({**values, "cachew_state": values["cachew_state"] + 1}))
    error = failed(pipeline, 2, "--state", state)
    assert error["kind"] == "state" and "version" in error["message"]


# ---- ranks ----

@pytest.mark.parametrize("world", [2, 3, 5])
@pytest.mark.parametrize("kind", ["counted", "filtered"])
def test_ranks_share_out_the_batches_of_one(tmp_path, world, kind):
    ops = [{"op": "filter", "where": "value % 7 != 0"}] if kind == "filtered" else []
    pipeline = write(tmp_path / "p.json", range_chain(500, *ops, SHUFFLE, BATCH))
    whole = run(pipeline, "--digest", "--epochs", "2", "--log", tmp_path / "whole.log")
    batches = {(line["epoch"], line["g"]): line["hash"] for line in read_log(tmp_path / "whole.log")}
    per_epoch = len(batches) // 2
    rounds, total, seen = -(-per_epoch // world), 0, {}
    for rank in range(world):
        log = tmp_path / f"{rank}.log"
        part = run(pipeline, "--digest", "--epochs", "2", "--rank", rank, "--world-size", world, "--log", log)
        total += int(part["digest"], 16)
        lines = read_log(log)
        assert len(lines) == 2 * rounds  # all get equally many
        for line in lines:
            assert line["rank"] == rank and line["g"] % world == rank
            if line["g"] < per_epoch:
                assert not any(line["flags"])
                seen[line["epoch"], line["g"]] = line["hash"]
            else:
                assert line["flags"] == [2] * line["n"]
    assert seen == batches
    assert f"{total & MASK128:032x}" == whole["digest"]


# ---- order any ----

def any_words(rank, world):
    return ["--digest", "--order", "any", "--rank", rank, "--world-size", world]


def any_pipelines():
    two = {"op": "concat", "inputs": [[{"op": "range", "stop": 300}, {"op": "repeat", "count": 3}], [{"op": "range", "start": 5000, "stop": 5500}]]}
    buckets = {"op": "bucket_by_length", "length": "value * 7 % 23", "boundaries": [4, 9, 17], "sizes": [7, 5, 8, 3]}
    return {
        "counted": range_chain(1000, SHUFFLE, BATCH),
        "short last batch dropped": range_chain(1003, SHUFFLE, {**BATCH, "drop_remainder": True}),
        "fewer splits than ranks": range_chain(30, SHUFFLE, BATCH),
        "filtered": range_chain(1500, {"op": "filter", "where": "value % 5 != 0"}, SHUFFLE, BATCH),
        "nearly empty": range_chain(4000, {"op": "filter", "where": "value % 97 == 1"}, SHUFFLE, BATCH),
        "bucketed": range_chain(1500, SHUFFLE, buckets),
        "concatenated": [two, {"op": "filter", "where": "value % 3 != 0"}, SHUFFLE, BATCH],
        "unbatched": range_chain(200, {"op": "filter", "where": "value % 3 != 0"}, SHUFFLE),
    }


def set_sum(results):
    return f"{sum(int(r['set_digest'], 16) for r in results) & MASK128:032x}"


@pytest.mark.parametrize("kind", any_pipelines())
def test_ranks_in_any_order_get_all_elements_once(tmp_path, kind):
    pipeline = write(tmp_path / "p.json", any_pipelines()[kind])
    whole = run(pipeline, "--digest", "--epochs", 2)
    assert run(pipeline, *any_words(0, 1), "--epochs", 2)["digest"] == whole["digest"]  # one rank, one process: splits end in their order
    for world in (2, 3, 7):
        logs = [tmp_path / f"{world}.{rank}.log" for rank in range(world)]
        ranks = [run(pipeline, *any_words(rank, world), "--epochs", 2, "--log", logs[rank]) for rank in range(world)]
        assert set_sum(ranks) == whole["set_digest"]
        assert sum(r["elements"] for r in ranks) == whole["elements"]  # padding is no element
        for rank, log in enumerate(logs):
            g = {epoch: [line["g"] for line in read_log(log) if line["epoch"] == epoch] for epoch in (0, 1)} if log.exists() else {}
            assert all(numbers == list(range(rank, rank + len(numbers) * world, world)) for numbers in g.values())
        if kind in ("counted", "short last batch dropped", "fewer splits than ranks"):
            assert len({r["batches"] for r in ranks}) == 1  # equally many, where that is known beforehand


@pytest.mark.parametrize("kind", any_pipelines())
def test_parts_in_any_order_add_up_to_the_whole(tmp_path, kind):
    """After each batch, those that fill up and those that are joined at an epoch's end among them."""
    pipeline, world, draw = write(tmp_path / "p.json", any_pipelines()[kind]), 3, random.Random(kind)
    whole, parts = run(pipeline, "--digest", "--epochs", 2), []
    for rank in range(world):
        in_one = run(pipeline, *any_words(rank, world), "--epochs", 2)
        mine, state = [], tmp_path / f"{rank}.state"
        while not mine or mine[-1]["batches"]:
            mine.append(run(pipeline, *any_words(rank, world), "--epochs", 2, "--batches", draw.choice([1, 1, 3, 20]), "--threads", draw.choice([1, 2, 8]), "--state", state))
            assert state.stat().st_size <= 1024
        assert f"{sum(int(r['digest'], 16) for r in mine) & MASK128:032x}" == in_one["digest"]
        parts += mine
    assert set_sum(parts) == whole["set_digest"]


def test_a_state_in_any_order_is_one_rank_s(tmp_path):
    pipeline, state = write(tmp_path / "p.json", range_chain(1000, SHUFFLE, BATCH)), tmp_path / "state"
    run(pipeline, *any_words(1, 2), "--batches", 5, "--state", state)
    for words, has in ((any_words(0, 2), "0 of 2"), (any_words(1, 3), "1 of 3")):
        error = failed(pipeline, 2, *words, "--state", state)
        assert error["kind"] == "state" and "1 of 2" in error["message"] and has in error["message"], error
    error = failed(pipeline, 2, "--state", state)
    assert error["attribute"] == "order" and error["value"] == "any" and error["expected"] == "exact"
    exact = tmp_path / "exact"
    run(pipeline, "--batches", 5, "--state", exact)
    error = failed(pipeline, 2, *any_words(0, 1), "--state", exact)
    assert error["attribute"] == "order" and error["value"] == "exact" and error["expected"] == "any"


def test_a_state_between_epochs_is_good_for_any_order_and_rank(tmp_path):
    pipeline, state = write(tmp_path / "p.json", range_chain(1000, SHUFFLE, BATCH)), tmp_path / "state"
    second = run(pipeline, *any_words(1, 2), "--epochs", 1, "--state", state)
    assert second["batches"] > 0 and "order" not in json.loads(state.read_text())
    copies = [shutil.copy(state, tmp_path / f"copy{i}") for i in range(2)]
    whole, first = run(pipeline, "--digest", "--epochs", 2), run(pipeline, "--digest")
    rest = run(pipeline, "--digest", "--epochs", 2, "--state", state)
    assert (int(first["digest"], 16) + int(rest["digest"], 16)) & MASK128 == int(whole["digest"], 16)
    assert set_sum([first, *(run(pipeline, *any_words(r, 2), "--epochs", 2, "--state", copies[r]) for r in range(2))]) == whole["set_digest"]


@pytest.mark.parametrize("change", [{"split": 1}, {"split": 10**6}, {"rank": 7}, {"g": 3}, {"batches": "1 2 x"}, {"batches": "1 " * 100}, {"batches": "-1"},
                                    {"remnants": "0:1:0"}, {"remnants": "0:-1:0"}, {"world_size": None}])
def test_a_damaged_state_in_any_order(tmp_path, change):
    pipeline, state = write(tmp_path / "p.json", any_pipelines()["filtered"]), tmp_path / "state"
    run(pipeline, *any_words(0, 2), "--batches", 5, "--state", state)
    saved = json.loads(state.read_text())
    state.write_text(json.dumps({key: value for key, value in {**saved, **change}.items() if value is not None}))
    assert failed(pipeline, 2, *any_words(0, 2), "--state", state)["kind"] == "state"


def test_an_epoch_of_one_split_has_one_order(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(1000, {"op": "filter", "where": "value % 5 != 0"}, {"op": "take", "count": 300}, BATCH))
    assert run(pipeline, *any_words(0, 1))["digest"] == run(pipeline, "--digest")["digest"]
    error = failed(pipeline, 2, *any_words(0, 2))
    assert error["kind"] == "option" and error["attribute"] == "world_size" and "one split" in error["message"]


# ---- signals, deadlines, crashes ----

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_writes_the_state(tmp_path, number):
    pipeline = write(tmp_path / "p.json", range_chain(4000, {"op": "delay", "us": 1000}, BATCH))
    words = [CACHEW, "run", str(pipeline), "--json", "--digest", "--threads", "1", "--state", str(tmp_path / "state"), "--log", str(tmp_path / "log")]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("\n") >= 3)
    child.send_signal(number)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 128 + number
    first = json.loads(out.splitlines()[-1])
    state = json.loads((tmp_path / "state").read_text())
    assert state["g"] == first["batches"] == len(read_log(tmp_path / "log"))
    rest = run(pipeline, "--digest", "--state", tmp_path / "state", "--threads", "8")
    assert first["elements"] + rest["elements"] == 4000


def test_a_signal_without_a_state_does_not_claim_one(tmp_path):
    """The state can't be written: that is the error, and nothing says otherwise."""
    pipeline = write(tmp_path / "p.json", range_chain(4000, {"op": "delay", "us": 1000}, BATCH))
    words = [CACHEW, "run", str(pipeline), "--json", "--threads", "1", "--state", str(tmp_path / "none" / "state"), "--log", str(tmp_path / "log")]
    (tmp_path / "none").mkdir()
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("\n") >= 1)
    shutil.rmtree(tmp_path / "none")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 1 and "SIGINT" in err and "is written" not in err
    assert str(tmp_path / "none" / "state") in json.loads(out.splitlines()[-1])["error"]["message"]


def test_a_signal_before_the_first_batch_ends_the_run(tmp_path):
    """What is waited for is opened before there is an iterator: here a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "p.json")
    child = subprocess.Popen([CACHEW, "run", str(tmp_path / "p.json"), "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    waits_for_signals = 1 << (signal.SIGTERM - 1)
    wait_for(lambda: int(re.search(r"SigBlk:\s*(\w+)", Path(f"/proc/{child.pid}/status").read_text())[1], 16) & waits_for_signals)
    child.send_signal(signal.SIGTERM)
    try:
        _, err = child.communicate(timeout=30)
    finally:
        child.kill()
    assert child.returncode == 128 + signal.SIGTERM and "SIGTERM" in err


def wait_for(condition, timeout_s=30):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_hang_ends_at_the_deadline(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, {"op": "fail", "kind": "hang", "where": "value == 50"}, {"op": "batch", "size": 5}))
    begin = time.monotonic()
    ran = cachew("run", pipeline, "--json", "--wait", "2", "--state", tmp_path / "state", timeout=30)
    assert ran.code == 4 and ran.error["kind"] == "deadline"
    assert 1.9 < time.monotonic() - begin < 10
    assert ran.json["batches"] <= 10


def test_crash_is_a_crash(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, {"op": "fail", "kind": "crash", "where": "value == 50"}, {"op": "batch", "size": 5}))
    assert cachew("run", pipeline, "--json").code == -signal.SIGKILL


def test_killed_run_goes_on_from_its_state(tmp_path):
    """What a kill -9 leaves: the log up to the state's g, and the rest after it, are the whole."""
    chain = range_chain(800, SHUFFLE, BATCH)
    pipeline, state = write(tmp_path / "p.json", chain), tmp_path / "state"
    run(pipeline, "--log", tmp_path / "whole.log")
    slow = [CACHEW, "run", str(write(tmp_path / "p.json", chain)), "--state", str(state), "--state-every", "1", "--log", str(tmp_path / "log")]
    child = subprocess.Popen(slow, stdout=subprocess.DEVNULL)
    wait_for(lambda: (tmp_path / "log").exists() and (tmp_path / "log").stat().st_size > 0)
    child.kill()
    child.wait()
    g = json.loads(state.read_text())["g"] if state.exists() else 0
    kept = read_log(tmp_path / "log")[:g]
    assert len(kept) == g  # the log is ahead of the state, never behind
    (tmp_path / "log").unlink()
    run(pipeline, "--state", state, "--log", tmp_path / "log")
    rest = read_log(tmp_path / "log") if (tmp_path / "log").exists() else []
    assert [line["hash"] for line in kept + rest] == [line["hash"] for line in read_log(tmp_path / "whole.log")]


# ---- memory ----

@pytest.mark.skipif(SANITIZED, reason="sanitizers need memory of their own")
def test_images_stay_within_the_budget(examples):
    ran = run(examples / "photos.json", "--digest", "--memory", "64M", "--set", "6.size=32", "--threads", "2")
    assert ran["peak_rss_bytes"] < (64 + 30) << 20
    assert ran["digest"] == run(examples / "photos.json", "--digest", "--set", "6.size=32", "--threads", "8")["digest"]


def test_budget_too_small_for_a_batch_names_the_smallest(tmp_path):
    pipeline = write(tmp_path / "p.json", [{"op": "synthetic", "count": 100, "shape": [224, 224, 3], "dtype": "uint8"}, {"op": "batch", "size": 64}])
    error = failed(pipeline, 2, "--memory", "4M")
    assert error["kind"] == "budget"
    smallest = max(int(n) for n in re.findall(r"\d{7,}", error["message"]))
    assert smallest >= 64 * 224 * 224 * 3
    assert run(pipeline, "--memory", smallest)["elements"] == 100


# ---- bad input ----

PARSE = {"op": "parse_example", "features": {"id": "int64", "vector": {"dtype": "float32", "shape": [4]}}}


def damaged(tmp_path, records, name, *ops, **beside):
    return write(tmp_path / "p.json", [{"op": "tfrecord", "files": str(records / "damaged" / name)}, *(ops or [PARSE]), {"op": "batch", "size": 4}], **beside)


@pytest.mark.parametrize("name", ["truncated-data.tfrecord", "truncated-header.tfrecord", "truncated.tfrecord.gz"])
def test_truncated_tfrecord(tmp_path, records, name):
    error = failed(damaged(tmp_path, records, name), 1)
    assert error["kind"] == "data" and error["file"].endswith(name)


@pytest.mark.parametrize("name", ["flipped-length.tfrecord", "flipped-length-crc.tfrecord", "flipped-data.tfrecord", "flipped-data-crc.tfrecord", "flipped.tfrecord.gz"])
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
    assert line["record"].endswith(":5") and line["action"] == "skipped" and line["file"].endswith("flipped-data.tfrecord") and line["reason"]


def test_flipped_data_is_replaced_and_flagged(tmp_path, records):
    pipeline = damaged(tmp_path, records, "flipped-data.tfrecord", on_error="replace")
    ran = run(pipeline, "--quarantine", tmp_path / "bad.jsonl", "--log", tmp_path / "log")
    assert ran["replaced"] == 1 and ran["elements"] == 10
    assert sum(f for line in read_log(tmp_path / "log") for f in line["flags"]) == 1
    assert json.loads((tmp_path / "bad.jsonl").read_text())["by"]


def test_record_length_of_2_to_the_63(tmp_path, records):
    error = failed(damaged(tmp_path, records, "length-2^63.tfrecord"), 1)
    assert error["kind"] == "data" and error["file"].endswith("length-2^63.tfrecord")


@pytest.mark.parametrize(("name", "feature"), [("wrong-type.tfrecord", "id"), ("missing-feature.tfrecord", "id"), ("wrong-count.tfrecord", "vector"),
                                               ("malformed-example.tfrecord", "")])
def test_example_with_wrong_type(tmp_path, records, name, feature):
    error = failed(damaged(tmp_path, records, name), 1)
    assert error["kind"] == "record" and error["operator"] == "parse_example" and error["record"].endswith(":5") and error["file"].endswith(name)
    assert feature in error["message"]


def test_not_a_tfrecord(tmp_path, records):
    assert failed(damaged(tmp_path, records, "not-tfrecord.txt"), 1)["file"].endswith("not-tfrecord.txt")


def test_empty_files(tmp_path, records):
    pipeline = write(tmp_path / "p.json", [{"op": "tfrecord", "files": str(records / "empty.tfrecord")}, BATCH])
    assert run(pipeline)["batches"] == 0
    (tmp_path / "empty.jpg").touch()
    pipeline = write(tmp_path / "q.json", [{"op": "files", "files": "*.jpg"}, {"op": "decode_image", "component": "data"}, BATCH])
    error = failed(pipeline, 1)
    assert error["kind"] == "record" and error["operator"] == "decode_image" and error["file"].endswith("empty.jpg")


def test_directory_without_images(tmp_path):
    (tmp_path / "root" / "class").mkdir(parents=True)
    for root in ("root", "root/class", "nothing"):
        ran = cachew("run", write(tmp_path / "p.json", [{"op": "image_folder", "root": root}, {"op": "decode_image", "component": "image"}, BATCH]), "--json")
        assert ran.code in (1, 2) and ran.error["operator"] == "image_folder" and root.split("/")[0] in ran.error["message"], ran.out
    error = failed(write(tmp_path / "p.json", [{"op": "tfrecord", "files": "root/*.tfrecord"}]), 2)
    assert "root/*.tfrecord" in error["message"]


def picture_file(path, data, *, n=3):
    """A class directory of good pictures and this one."""
    path.mkdir()
    rng = np.random.default_rng(3)
    for i in range(n):
        (path / f"a{i}.jpg").write_bytes(jpeg(generated_picture(rng, 60, 80)))
    (path / "bad.img").write_bytes(data)
    return [{"op": "files", "files": f"{path}/*"}, {"op": "decode_image", "component": "data"}, {"op": "resize", "component": "data", "size": [16, 16]}, {"op": "batch", "size": 2}]


def test_jpeg_cut_in_half(tmp_path):
    data = jpeg(generated_picture(np.random.default_rng(2), 300, 400))
    chain = picture_file(tmp_path / "d", data[:len(data) // 2])
    error = failed(write(tmp_path / "p.json", chain), 1)
    assert error["kind"] == "record" and error["operator"] == "decode_image" and error["file"].endswith("bad.img")
    assert run(tmp_path / "p.json", "--set", "on_error=skip")["elements"] == 3


def png_bomb(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    row = bytes(1 + width * 3)
    body = b"".join(packer.compress(row) for _ in range(min(height, 50))) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


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


@pytest.mark.parametrize("before", [[], [{"op": "filter", "where": "value >= 0"}], [{"op": "filter", "where": "value >= 0"}, {"op": "take", "count": 15}],
                                    [{"op": "filter", "where": "value != 5"}, SHUFFLE]])
def test_record_that_fails_ends_the_run_wherever_it_stands(tmp_path, before):
    """With the count known, unknown, and behind an operator that counts what arrives."""
    pipeline = write(tmp_path / "p.json", range_chain(17, *before, {"op": "assign", "set": {"x": "1 // (value - 3)"}}, {"op": "batch", "size": 38}))
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


def test_file_changed_or_deleted_while_it_is_read(tmp_path, records):
    for how in ("cut", "deleted"):
        data = tmp_path / how
        data.mkdir()
        payloads = [make_data.example({"id": [i], "blob": [bytes(20000)]}) for i in range(400)]
        for k in range(4):
            make_data.write(data / f"{k}.tfrecord", payloads[100 * k:100 * k + 100])
        pipeline = write(tmp_path / f"{how}.json", [{"op": "tfrecord", "files": f"{how}/*.tfrecord"}, {"op": "parse_example", "features": {"id": "int64"}},
                                                    {"op": "delay", "us": 3000}, {"op": "batch", "size": 4}])
        child = subprocess.Popen([CACHEW, "run", str(pipeline), "--json", "--threads", "1", "--memory", "8M", "--log", str(tmp_path / f"{how}.log")],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda log=tmp_path / f"{how}.log": log.exists() and log.stat().st_size > 0)
        last = data / "3.tfrecord"
        if how == "cut":
            with open(last, "r+b") as f:
                f.truncate(1000)
        else:
            last.unlink()
        out, err = child.communicate(timeout=60)
        ran = Ran(child.returncode, out, err)
        if how == "deleted" and ran.code == 0:
            continue  # it was open already
        assert ran.code == 1 and ran.error["kind"] in ("io", "data") and ran.error["file"].endswith("3.tfrecord"), (out, err)


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
                data = data[:draw.randrange(len(data))]
            elif how == 1:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            else:
                data = b"\xff" * 50
            f.write_bytes(data)
        assert run(*words)["digest"] == before["digest"]


def test_no_permission_and_no_space(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(10, BATCH))
    os.mkfifo(tmp_path / "pipe")
    for words in (["--log", tmp_path / "no" / "log"], ["--state", tmp_path / "no" / "state"], ["--state", "/dev/null"], ["--state", tmp_path],
                  ["--state", tmp_path / "pipe"], ["--dump", "/proc/none"], ["--dump", "/dev/full"], ["--save", "/proc/none"], ["--quarantine", tmp_path / "no" / "q"]):
        ran = cachew("run", pipeline, "--json", *words)
        assert ran.code == 2 and ran.error["kind"] == "option" and str(words[1]) in ran.error["message"] and ran.json["batches"] == 0, (words, ran.out)
    assert failed(pipeline, 1, "--log", "/dev/full")["kind"] == "io"
    assert "image" in failed(pipeline, 2, "--save", tmp_path / "sheets")["message"]


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
    assert first.json["indexed"] == 3 and second.json["reused"] == 3 and first.json["records"] == second.json["records"] == 120


def test_doctor_and_bench(tmp_path):
    ran = cachew("doctor", "--json")
    assert ran.code in (0, 1) and ran.json["checks"]
    ran = cachew("bench", write(tmp_path / "p.json", range_chain(10000, BATCH)), "--json", "--seconds", "0.1", "--best-of", "1", "--threads", "2")
    assert ran.code == 0 and ran.json["elements_per_s"] > 0
    ran = cachew("bench", tmp_path / "p.json", "--json", "--seconds", "0")
    assert ran.code == 2 and ran.error["attribute"] == "seconds"


def test_bench_dispatcher(tmp_path):
    few = ["--connections", 3, "--in-flight", 2, "--heartbeats", 100, "--seconds", 0.2, "--json"]
    ran = cachew("bench", "dispatcher", "--state-dir", tmp_path / "state", *few)
    assert ran.code == 0 and ran.json["durable"] and ran.json["completions"] > 0 and 0 < ran.json["p50_s"] <= ran.json["p99_s"] <= ran.json["max_s"]
    assert ran.json["heartbeats_per_s"] > 0 and ran.json["question_p99_s"] > 0
    assert (tmp_path / "state" / "journal.db").stat().st_size > 0
    ran = cachew("bench", "dispatcher", "--service", "127.0.0.1:1", *few)  # nobody listens there
    assert ran.code == 3 and "127.0.0.1:1" in ran.error["message"]
    ran = cachew("bench", "dispatcher", "--service", "127.0.0.1:1", "--state-dir", tmp_path / "other", "--json")
    assert ran.code == 2 and not (tmp_path / "other").exists()
