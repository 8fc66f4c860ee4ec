"""Caches of a service's workers, black box: they share what they keep, the dispatcher decides what is used of it, and says why. Caches of local runs: test_cache.py.

CACHEW names the command (default build/cachew)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from daemons import TIMEOUT_S, Daemons, digest, run, said, wait  # noqa: E402
from example_data import CACHEW  # noqa: E402


@pytest.fixture
def daemons(tmp_path):
    directory = tmp_path / "daemons"
    directory.mkdir()
    all_of_them = Daemons(directory)
    yield all_of_them
    all_of_them.end()


def write(path, chain):
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return path


def prefix(count, us):
    return [{"op": "synthetic", "count": count, "shape": [32, 32, 3], "dtype": "uint8"}, {"op": "delay", "us": us}, {"op": "autocache"}]


def counted(address, what):
    return sum(w[what] for w in said("workers", "--service", address, "--json"))


def service(daemons, tmp_path, *words, workers=2, **options):
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0", *words)
    for _ in range(workers):
        daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "256M", "--threads", 1, "--cache-dir", tmp_path / "cache", **options)
    return dispatcher.address


def test_a_job_reads_what_another_one_writes_while_it_writes(daemons, tmp_path):
    first = write(tmp_path / "first.json", [*prefix(800, 10000), {"op": "batch", "size": 8}])
    second = write(tmp_path / "second.json", [*prefix(800, 10000), {"op": "random_flip", "component": "data"}, {"op": "batch", "size": 5}])
    address = service(daemons, tmp_path)
    writes = run(first, "--service", address, "--job", "writes")
    wait(lambda: writes.poll() is not None or counted(address, "cache_misses") >= 80)
    reads = run(second, "--service", address, "--job", "reads")
    wait(lambda: writes.poll() is not None or counted(address, "cache_hits") >= 20)
    assert writes.poll() is None, "the first job was over before"
    assert digest(writes) == digest(run(first, "--set", "1.us=0"))
    assert digest(reads) == digest(run(second, "--set", "1.us=0"))
    assert not list((tmp_path / "cache").glob("*/tmp-*.cws"))


def decisions(address, job):
    if not any(j["name"] == job for j in said("jobs", "--service", address, "--json")):
        return []
    return [d["record"]["chosen"]["cache"] for d in said("jobs", "explain", job, "--service", address, "--json")]


def test_the_dispatcher_decides_and_changes_its_mind(daemons, tmp_path):
    """Without a policy for workers, too."""
    if not said("doctor", "--crash-points", "--json")["crash_points"]:
        pytest.skip("this build has no slow stores")
    speed = tmp_path / "speed"
    speed.write_text("300000 0")  # 10 ms for an element that takes one to compute
    pipeline = write(tmp_path / "p.json", [*prefix(400, 1000), {"op": "random_flip", "component": "data"}, {"op": "batch", "size": 8}])
    address = service(daemons, tmp_path, workers=1, env={"CACHEW_STORE": str(speed)})
    job = run(pipeline, "--service", address, "--job", "one", "--epochs", 500)
    wait(lambda: job.poll() is not None or None in decisions(address, "one"))
    assert job.poll() is None, decisions(address, "one")
    speed.write_text("0 0")
    wait(lambda: job.poll() is not None or decisions(address, "one")[-1] == "autocache (operator 2)")
    assert job.poll() is None, decisions(address, "one")
    assert digest(job) == digest(run(pipeline, "--epochs", 500, "--set", "1.us=0"))


def test_what_is_kept_in_the_directory_outlives_the_service(daemons, tmp_path):
    pipeline = write(tmp_path / "p.json", [*prefix(200, 2000), {"op": "batch", "size": 8}])
    wanted = digest(run(pipeline, "--set", "1.us=0"))
    for _ in range(2):
        one = Daemons(tmp_path / "daemons")
        address = service(one, tmp_path, workers=1)
        assert digest(run(pipeline, "--service", address, "--job", "one")) == wanted
        wait(lambda address=address: counted(address, "cache_hits") + counted(address, "cache_misses") >= 100)
        hits = counted(address, "cache_hits")
        one.end()
    assert hits >= 100


def test_a_cache_directory_that_cannot_be_is_said_at_once(daemons):
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    ran = subprocess.run([CACHEW, "worker", "--dispatcher", dispatcher.address, "--cache-dir", "/proc/nowhere"], check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ran.returncode == 2
    assert "can't make directory" in ran.stderr
