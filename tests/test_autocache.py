"""Caches of a service's workers, black box: they share what they keep, the dispatcher decides what is used
of it, and says why. Caches of local runs: test_cache.py.

CACHEW names the command (default build/cachew)."""

import json
import signal

from caches import SLEEPING
from command import cachew, need_test_build, write
from daemons import Daemons, answer, start_job
from deadlines import HANG_S, wait_for


def prefix(count, us):
    return [
        {"op": "synthetic", "count": count, "shape": [32, 32, 3], "dtype": "uint8"},
        {"op": "delay", "us": us},
        {"op": "autocache"},
    ]


ENDLESS = 1000000  # epochs or elements: more than any test waits for


def ended(process):
    """What a job printed at its end."""
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode in (0, 128 + signal.SIGINT), err
    return json.loads(out.splitlines()[-1])


def wait(condition, job):
    """Until it is true, while the job goes on."""
    return wait_for(condition, lambda: job.poll() is None)


def job(pipeline, *words):
    return start_job(pipeline, "--digest", "--json", *words)


def local(pipeline, *words):
    return ended(job(pipeline, "--set", "1.us=0", *words))["digest"]


def end(process):
    """The job is told to end: its digest, and how many batches that is of."""
    process.send_signal(signal.SIGINT)
    told = ended(process)
    return told["digest"], told["batches"]


def counted(address, what):
    return sum(w[what] for w in answer("workers", "--service", address))


def service(daemons, tmp_path, *words, workers=2, env=None):
    """Workers' costs are modelled: a cache pays, or does not, by what the pipeline and its store state."""
    need_test_build()
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0", *words)
    for _ in range(workers):
        daemons.start(
            "worker",
            "--dispatcher",
            dispatcher.address,
            "--memory",
            "256M",
            "--threads",
            1,
            "--cache-dir",
            tmp_path / "cache",
            env={**SLEEPING, **(env or {})},
        )
    return dispatcher.address


def test_a_job_reads_what_another_one_writes_while_it_writes(daemons, tmp_path):
    first = write(tmp_path / "first.json", [*prefix(ENDLESS, 10000), {"op": "batch", "size": 8}])
    second = write(
        tmp_path / "second.json",
        [*prefix(ENDLESS, 10000), {"op": "random_flip", "component": "data"}, {"op": "batch", "size": 5}],
    )
    address = service(daemons, tmp_path)
    writes = job(first, "--service", address, "--job", "writes")
    wait(lambda: counted(address, "cache_misses") >= 80, writes)
    reads = job(second, "--service", address, "--job", "reads")
    wait(lambda: counted(address, "cache_hits") >= 20, reads)  # the first job is still in its first epoch
    for process, pipeline in ((reads, second), (writes, first)):
        digest, batches = end(process)
        assert digest == local(pipeline, "--batches", batches)


def decisions(address, name):
    if not any(j["name"] == name for j in answer("jobs", "--service", address)):
        return []
    return [d["record"]["chosen"]["cache"] for d in answer("jobs", "explain", name, "--service", address)]


def test_the_dispatcher_decides_and_changes_its_mind(daemons, tmp_path):
    """Without a policy for workers, too."""
    speed = tmp_path / "speed"
    speed.write_text("300000 0")  # 10 ms for an element that takes one to compute
    pipeline = write(
        tmp_path / "p.json",
        [*prefix(400, 1000), {"op": "random_flip", "component": "data"}, {"op": "batch", "size": 8}],
    )
    address = service(daemons, tmp_path, workers=1, env={"CACHEW_STORE": str(speed)})
    one = job(pipeline, "--service", address, "--job", "one", "--epochs", ENDLESS)
    wait(lambda: None in decisions(address, "one"), one)
    speed.write_text("0 0")
    wait(lambda: decisions(address, "one")[-1] == "autocache (operator 2)", one)
    digest, batches = end(one)
    assert digest == local(pipeline, "--epochs", ENDLESS, "--batches", batches)


def test_what_is_kept_in_the_directory_outlives_the_service(daemons, tmp_path):
    pipeline = write(tmp_path / "p.json", [*prefix(200, 2000), {"op": "batch", "size": 8}])
    wanted = local(pipeline)
    for counter in ("cache_misses", "cache_hits"):
        one = Daemons(tmp_path / "daemons")
        address = service(one, tmp_path, workers=1)
        assert ended(job(pipeline, "--service", address, "--job", "one"))["digest"] == wanted
        wait_for(lambda address=address, counter=counter: counted(address, counter) >= 100)
        one.end()


def test_a_cache_directory_that_cannot_be_is_said_at_once(daemons):
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    ran = cachew("worker", "--dispatcher", dispatcher.address, "--cache-dir", "/proc/nowhere")
    assert ran.code == 2
    assert "can't make directory" in ran.err
