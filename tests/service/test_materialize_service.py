"""`cachew materialize --service`, black box: workers write the shards, and the command publishes them."""

import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Process
from command import cachew, need_test_build, run
from deadlines import HANG_S, wait_for
from workbench import BATCH, FILTER, PIPELINES, SHUFFLE, numbers, slow

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from materialize_kills import FORMATS, files, service_life, shards_of  # noqa: E402

WHOLE = {
    "counted batches, all full": numbers(90, SHUFFLE, BATCH | {"drop_remainder": True}),
    "the first of a filter": numbers(300, SHUFFLE, FILTER, {"op": "take", "count": 77}, BATCH),
    "one by one": numbers(333, FILTER, SHUFFLE),
    "nothing": numbers(100, {"op": "filter", "where": "value < 0"}),
    "no positions": numbers(0),
    "buckets": PIPELINES["bucketed"],
}


def materialize(bench, pipeline, out, *words, code=0, **options):
    words = ["--service", bench.cluster.address, "--wait", HANG_S, "--out", out, "--json", *words]
    ran = cachew("materialize", pipeline, *words, env=bench.cluster.env, **options)
    assert ran.code == code, (ran.code, ran.out[-2000:], ran.err[-2000:])
    return ran.error if code else ran.json


def verify(out):
    ran = cachew("materialize", "--verify", out, "--json")
    assert ran.code == 0, ran.err
    return ran.json


@pytest.mark.parametrize("kind", WHOLE)
def test_the_elements_are_those_of_a_local_run(bench, tmp_path, kind):
    """For each form that a range may have; in the order of one thread."""
    bench.cluster.start(4)
    pipeline, form = bench.pipeline(WHOLE[kind]), FORMATS[len(kind) % 3]
    words = "--format", form, "--shard-bytes", "2K", "--seed", 3
    done = materialize(bench, pipeline, tmp_path / "out", *words)
    local = cachew("materialize", pipeline, "--out", tmp_path / "local", "--json", *words)
    assert [done[k] for k in ("elements", "set_digest")] == [
        local.json[k] for k in ("elements", "set_digest")
    ], done
    assert verify(tmp_path / "out") == done
    read = [{"op": "materialized", "path": str(tmp_path / o)} for o in ("out", "local")]
    digests = [run(bench.pipeline([r, BATCH]), "--digest")["digest"] for r in read if done["elements"]]
    assert digests[:1] == digests[1:]
    assert bench.cluster.deaths() == []


def test_shards_do_not_depend_on_the_workers(bench, tmp_path):
    bench.cluster.start(1)
    pipeline = bench.pipeline(PIPELINES["filtered"])
    first = materialize(bench, pipeline, tmp_path / "one")
    for _ in range(3):
        bench.cluster.start_worker()
    assert materialize(bench, pipeline, tmp_path / "four") == first and first["shards"] > 30
    assert shards_of(tmp_path / "one") == shards_of(tmp_path / "four")
    names = [s["name"] for s in shards_of(tmp_path / "one")[1]["shards"]]
    assert names == sorted(names) and names[0] == "shard-000000-00.cachew"
    # complete: nothing is computed again, and no service is needed
    for w in [*bench.cluster.workers.values(), bench.cluster.dispatcher]:
        w.kill9()
    before = files(tmp_path / "one")
    assert materialize(bench, pipeline, tmp_path / "one") == first and files(tmp_path / "one") == before


@pytest.mark.parametrize("seed", range(3))
def test_anything_is_killed(tmp_path, seed):
    need_test_build()
    assert service_life(tmp_path, seed, 3) > 0


def test_a_worker_whose_disk_is_full(bench, tmp_path):
    """Other workers write its ranges. When all workers fail, the error names the reason of each."""
    need_test_build()
    full = {"CACHEW_MUTATE": "full-disk"}
    bench.cluster.start_dispatcher()
    bench.cluster.start_worker("full", env=full)
    bench.cluster.start_worker("good")
    pipeline = bench.pipeline(PIPELINES["filtered"])
    done = materialize(bench, pipeline, tmp_path / "out")
    assert verify(tmp_path / "out") == done
    bench.cluster.workers["good"].kill9()
    error = materialize(bench, pipeline, tmp_path / "other", code=1)
    assert "(full)" in error["message"] and "No space left" in error["message"], error
    assert str(tmp_path / "other" / "shard-0000") in error["message"]
    assert not [n for n in files(tmp_path / "other") if n != "journal.jsonl"]
    bench.cluster.workers["full"].kill9()
    bench.cluster.start_worker("good")
    assert materialize(bench, pipeline, tmp_path / "other") == done
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "other")


def test_a_worker_that_does_not_reach_the_directory(bench, tmp_path):
    hidden = tmp_path / "out"
    hidden.mkdir()
    prefix = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {hidden} && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("file systems can't be mounted here")
    bench.cluster.prefix = lambda name: prefix if name.startswith("far") else []
    bench.cluster.start_dispatcher()
    bench.cluster.start_worker("far")
    pipeline = bench.pipeline(PIPELINES["counted"])
    error = materialize(bench, pipeline, hidden, code=1)
    assert f"{hidden}/journal.jsonl: can't be read on this worker" in error["message"], error
    bench.cluster.start_worker("near")
    done = materialize(bench, pipeline, hidden)
    assert verify(hidden) == done


def test_a_record_that_can_not_be_computed(bench, tmp_path):
    """It ends the job as it ends a run, and --set on_error goes on."""
    bench.cluster.start(2)
    pipeline = bench.pipeline(numbers(500, {"op": "fail", "where": "value == 321"}))
    error = materialize(bench, pipeline, tmp_path / "out", code=1)
    local = cachew("materialize", pipeline, "--out", tmp_path / "local", "--json").error
    assert (error["operator"], error["kind"]) == (local["operator"], local["kind"]) == ("fail", "record")
    assert error["message"] == f"{local['message']} (record {local['record']})"
    done = materialize(bench, pipeline, tmp_path / "skip", "--set", "on_error=skip")
    assert done["elements"] == 499 and verify(tmp_path / "skip") == done


def test_what_a_worker_refuses(bench, tmp_path):
    """A pipeline that may end its process, and a directory outside its --data-root."""
    (tmp_path / "data").mkdir()
    bench.cluster.start_dispatcher()
    bench.cluster.start_worker("w", "--data-root", tmp_path / "data")
    trusted = bench.pipeline(numbers(50, {"op": "fail", "where": "false", "kind": "crash"}))
    error = materialize(bench, trusted, tmp_path / "data" / "out", code=2)
    assert "--allow-python" in error["message"], error
    error = materialize(bench, bench.pipeline(numbers(50)), tmp_path / "out", code=2)
    assert str(tmp_path / "out") in error["message"] and str(tmp_path / "data") in error["message"], error
    assert materialize(bench, bench.pipeline(numbers(50)), tmp_path / "data" / "in")["elements"] == 50


def test_a_directory_belongs_to_one_kind_of_run(bench, tmp_path):
    bench.cluster.start(1)
    pipeline = bench.pipeline(numbers(50))
    materialize(bench, pipeline, tmp_path / "out")
    error = cachew("materialize", pipeline, "--out", tmp_path / "out", "--json").error
    assert "which was made with a service" in error["message"] and error["attribute"] == "out"
    assert cachew("materialize", pipeline, "--out", tmp_path / "local").code == 0
    error = materialize(bench, pipeline, tmp_path / "local", code=2)
    assert "which was made without a service" in error["message"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--verify", "x", "--service", "127.0.0.1:1"], "--verify can't be used with --service"),
        (["p.json", "--out", "x", "--service", "127.0.0.1:1", "--quarantine", "q"], "--quarantine can't be"),
        (["p.json", "--out", "x", "--job", "j"], "--job j needs --service"),
    ],
)
def test_wrong_words(words, says):
    ran = cachew("materialize", *words)
    assert ran.code == 2 and says in ran.err, ran.err


def test_the_service_reads_what_it_writes(bench, tmp_path):
    """A job reads the shards in their order while another one, of the same workers, writes them."""
    bench.cluster.start(2)
    chain = PIPELINES["filtered"]
    write = cachew("materialize", bench.pipeline(chain), "--out", tmp_path / "whole")
    assert write.code == 0
    words = ["--service", bench.cluster.address, "--wait", HANG_S, "--out", tmp_path / "out"]
    pipeline = bench.pipeline([*chain[:-1], slow(1000), chain[-1]])
    writer = Process(bench.cluster, "writer", ["materialize", pipeline, *words])
    wait_for(lambda: (tmp_path / "out" / "journal.jsonl").exists(), lambda: writer.running)
    wait_for(lambda: (tmp_path / "out" / "journal.jsonl").stat().st_size > 0, lambda: writer.running)
    bench.locals += 1  # another file
    reader = [{"op": "materialized_stream", "path": str(tmp_path / "out")}, BATCH]
    read = bench.cluster.run(bench.pipeline(reader), "reads").finish()
    assert writer.wait() == 0
    complete = [{"op": "materialized", "path": str(tmp_path / "whole")}, BATCH]
    assert read["digest"] == run(bench.pipeline(complete), "--digest")["digest"]
