"""The source `materialized_stream`: materialised data that are read while they are written."""

import json
import subprocess

import pytest
from command import SHUFFLE, cachew, failed, need_test_build, range_chain, run, write
from deadlines import HANG_S, PATIENT, wait_for
from example_data import CACHEW
from materialize_kills import FORMATS

pytestmark = pytest.mark.usefixtures("own_index_dir")
DRAWS = [{"op": "maybe", "p": 0.5, "operators": [{"op": "assign", "set": {"x": "x + 1"}}]}]
BATCH = {"op": "batch", "size": 7}


class Written:
    """A directory of which three shards are finished, with the command that goes on."""

    def __init__(self, tmp_path, form="cachew"):
        need_test_build()
        chain = range_chain(400, {"op": "assign", "set": {"x": "value * 3"}}, SHUFFLE)
        self.out = tmp_path / "out"
        self.words = ["materialize", write(tmp_path / "w.json", chain), "--out", self.out, "--format", form]
        self.words += ["--shard-bytes", {"tar": "40K"}.get(form, "1K")]
        assert cachew(*self.words, env={"CACHEW_CRASH": "materialize-journal:3"}).code == -9
        lines = (self.out / "journal.jsonl").read_text().splitlines()
        self.elements = sum(json.loads(line)["shard"]["elements"] for line in lines[1:])
        self.stream = {"op": "materialized_stream", "path": str(self.out)}

    def finish(self):
        assert cachew(*self.words).code == 0

    def digest(self, tmp_path, *ops):
        """Of the complete data."""
        return run(write(tmp_path / "m.json", [self.stream | {"op": "materialized"}, *ops]), "--digest")


@pytest.mark.parametrize("form", FORMATS)
def test_read_while_it_is_written(tmp_path, form):
    """The same batches and random draws as afterwards; finished shards are read before the others exist."""
    written = Written(tmp_path, form)
    pipeline, log = write(tmp_path / "r.json", [written.stream, *DRAWS, BATCH]), tmp_path / "log"
    words = [CACHEW, "run", pipeline, "--digest", "--json", "--log", log, "--wait", HANG_S]
    with subprocess.Popen(
        [*map(str, words)], stdout=subprocess.PIPE, env=PATIENT | {"HOME": str(tmp_path)}
    ) as reader:
        batches = written.elements // BATCH["size"]
        wait_for(
            lambda: log.exists() and log.read_bytes().count(b"\n") >= batches, lambda: reader.poll() is None
        )
        assert log.read_bytes().count(b"\n") == batches
        written.finish()
        result = json.loads(reader.communicate(timeout=HANG_S)[0])
    wanted = written.digest(tmp_path, *DRAWS, BATCH)
    for name in "digest", "set_digest", "elements":
        assert result[name] == wanted[name]
    assert run(pipeline, "--digest")["digest"] == wanted["digest"]


def test_a_run_continues_from_its_state(tmp_path):
    """The state of a run over unfinished data, continued over complete data."""
    written = Written(tmp_path)
    pipeline = write(tmp_path / "r.json", [written.stream, *DRAWS, BATCH])
    words = "--state", tmp_path / "state", "--digest"
    first = run(pipeline, *words, "--batches", 9)
    written.finish()
    rest = run(pipeline, *words)
    total = (int(first["digest"], 16) + int(rest["digest"], 16)) % 2**128
    assert f"{total:032x}" == written.digest(tmp_path, *DRAWS, BATCH)["digest"]


def test_the_deadline_says_what_is_finished(tmp_path):
    written = Written(tmp_path)
    pipeline = write(tmp_path / "r.json", [written.stream | {"wait": 0.01}, BATCH])
    error = failed(pipeline, 1)
    assert error["operator"] == "materialized_stream" and error["kind"] == "data", error
    assert (
        f"no further shard for 0.01 s (attribute wait); 3 shards with {written.elements} elements"
        in (error["message"])
    )
    # the elements that there are come before the error
    few = write(tmp_path / "r.json", [written.stream | {"wait": 0.01}, {"op": "take", "count": 50}, BATCH])
    assert run(few)["elements"] == 50


def test_nothing_has_begun(tmp_path):
    pipeline = write(tmp_path / "r.json", [{"op": "materialized_stream", "path": "out"}])
    assert (
        "out/journal.jsonl can't be read: expected a directory that cachew materialize has begun"
        in (failed(pipeline, 2)["message"])
    )
    (tmp_path / "out").mkdir()
    for text, says in (("", "it has no line"), ('{"format": "zip"}\n', "is none of"), ("[]\n", "first line")):
        (tmp_path / "out" / "journal.jsonl").write_text(text)
        error = failed(pipeline, 2)
        assert says in error["message"] and "journal.jsonl" in error["message"], error


def test_a_damaged_record_is_skipped(tmp_path):
    written = Written(tmp_path)
    written.finish()
    shard = written.out / "shard-000001.cachew"
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    shard.write_bytes(data)
    pipeline = write(tmp_path / "r.json", [written.stream], on_error="skip")
    assert run(pipeline)["elements"] == 399
    assert failed(write(tmp_path / "q.json", [written.stream]), 1)["operator"] == "materialized_stream"
