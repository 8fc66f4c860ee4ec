"""Autoscale, black box: `cachew up --autoscale`, provisioners, shares, and what is said of decisions. How well it decides: bench/autoscale.py and bench/policies.py.

CACHEW names the command (default build/cachew)."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from command import wait_for  # noqa: E402
from daemons import TIMEOUT_S, Daemons, digest, run, said, wait  # noqa: E402
from example_data import CACHEW  # noqa: E402


def cachew(*words):
    return subprocess.run([CACHEW, *map(str, words)], check=False, capture_output=True, text=True, timeout=TIMEOUT_S)


def refused(*words, code=2):
    ran = cachew(*words)
    assert ran.returncode == code, (words, ran)
    return ran.stderr


@pytest.fixture
def daemons(tmp_path):
    directory = tmp_path / "daemons"
    directory.mkdir()
    all_of_them = Daemons(directory)
    yield all_of_them
    all_of_them.end()


@pytest.fixture
def pipeline(tmp_path):
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": [{"op": "synthetic", "count": 4096, "shape": [16]}, {"op": "delay", "us": 300}, {"op": "batch", "size": 8}]}))
    return path


def scaling(address, job):
    return next((j["scaling"] for j in said("jobs", "--service", address, "--json") if j["name"] == job and j["state"] not in ("done", "cancelled", "failed")), None)


def serving(address):
    return [w for w in said("workers", "--service", address, "--json") if w["state"] == "ready" and w["serves"]]


def up(daemons, *words):
    return daemons.start("up", "--listen", "127.0.0.1:0", "--autoscale", "--memory", "256M", *words)


def test_up_starts_as_many_as_are_wanted_and_makes_up_for_the_dead(daemons, pipeline):
    service = up(daemons, "--workers", 3, "--policy", "fixed:3")
    job = run(pipeline, "--service", service.address, "--job", "one", "--epochs", 4)
    workers = wait(lambda: len(found := serving(service.address)) == 3 and found)
    assert {w["pool"] for w in workers} == {"local"}
    os.kill(workers[0]["pid"], signal.SIGKILL)
    again = wait(lambda: job.poll() is not None or ((found := serving(service.address)) and workers[0]["id"] not in [w["id"] for w in found] and len(found) == 3))
    assert again is True, "the job was over before"
    assert digest(job) == digest(run(pipeline, "--epochs", 4))
    assert service.end() == 0


def test_a_dispatcher_that_comes_back_goes_on_with_as_many(daemons, pipeline, tmp_path):
    service = up(daemons, "--workers", 3, "--policy", "fixed:3", "--state-dir", tmp_path / "state")
    job = run(pipeline, "--service", service.address, "--job", "one", "--epochs", 6)
    workers = wait(lambda: len(found := serving(service.address)) == 3 and found)
    os.kill(service.ready["pid"], signal.SIGKILL)

    def back():
        with contextlib.suppress(AssertionError):  # it is not there yet
            return len(found := serving(service.address)) == 3 and found
    after = wait(lambda: job.poll() is not None or back())
    assert after is not True, "the job was over before"
    assert {w["pid"] for w in after} == {w["pid"] for w in workers}  # nobody was ended, or started anew
    assert scaling(service.address, "one")["wanted"] == 3
    assert digest(job) == digest(run(pipeline, "--epochs", 6))


def test_a_provisioner_that_dies_takes_its_workers_along_and_the_next_one_starts_others(daemons, pipeline):
    service = up(daemons, "--workers", 2, "--policy", "fixed:2")
    job = run(pipeline, "--service", service.address, "--job", "one", "--epochs", 8)
    workers = wait(lambda: len(found := serving(service.address)) == 2 and found)
    before = {w["id"] for w in workers}
    os.kill(service.ready["workers"][0]["pid"], signal.SIGKILL)
    after = wait(lambda: job.poll() is not None or (len(found := serving(service.address)) == 2 and not before & {w["id"] for w in found}))
    assert after is True and job.poll() is None, "the job was over before"
    assert digest(job) == digest(run(pipeline, "--epochs", 8))


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pool(dispatcher, name="local"):
    return next((p for p in dispatcher.json("/api/v1/pools") if p["name"] == name), None)


def ready(dispatcher):
    return [w for w in dispatcher.json("/api/v1/workers") if w["state"] == "ready"]


def provisioned(daemons, dispatcher, n, *words):
    """A provisioner, and its workers once all of them are there."""
    provisioner = daemons.start("provision", "--dispatcher", dispatcher.address, "--min-workers", n, "--max-workers", n, *words, "--", "--memory", "64M")
    return provisioner, wait(lambda: len(found := ready(dispatcher)) == n and found)


@pytest.fixture
def dispatcher(daemons):
    return daemons.start("dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--policy", "auto")


def test_a_worker_that_hangs_is_killed_and_another_one_takes_its_place(daemons, dispatcher):
    """It stayed where it was, and the pool one short."""
    provisioner, workers = provisioned(daemons, dispatcher, 2)
    hung, other = (w["pid"] for w in workers)
    os.kill(hung, signal.SIGSTOP)
    wait(lambda: not is_there(hung))
    wait(lambda: len(found := ready(dispatcher)) == 2 and other in [w["pid"] for w in found])
    assert "the dispatcher has heard nothing of it for 15 s; it is killed" in provisioner.err


def test_a_provisioner_that_hangs_is_killed_and_another_one_takes_its_place(daemons):
    """Nobody noticed, and the number of workers stayed as it was."""
    service = up(daemons, "--workers", 2, "--min-workers", 2, "--http", "127.0.0.1:0")
    workers = wait(lambda: len(found := ready(service)) == 2 and found)
    hung = service.ready["workers"][0]["pid"]
    os.kill(hung, signal.SIGSTOP)
    wait(lambda: not is_there(hung))
    wait(lambda: pool(service) and len(found := ready(service)) == 2 and not {w["pid"] for w in workers} & {w["pid"] for w in found})
    assert f"the provisioner (pid {hung}): the dispatcher has heard nothing of it for 15 s; it is killed" in service.err
    assert 'pool "local" is away' in service.err
    assert service.end() == 0


def test_a_second_provisioner_of_a_pool_ends_and_says_why(daemons, dispatcher):
    """They took the pool from each other for ever."""
    first, workers = provisioned(daemons, dispatcher, 1)
    second = daemons.start("provision", "--dispatcher", dispatcher.address)
    assert second.process.wait(TIMEOUT_S) == 3
    assert 'another provisioner has pool "local": expected a name of its own for each (--pool)' in second.err
    assert [w["pid"] for w in ready(dispatcher)] == [w["pid"] for w in workers]
    assert "connection ended" not in first.err


def test_a_provisioner_in_the_place_of_one_that_was_killed_counts_the_workers_that_are_left(daemons, dispatcher):
    """It started as many as it may beside them."""
    first, workers = provisioned(daemons, dispatcher, 2)
    left = workers[0]["pid"]
    os.kill(left, signal.SIGSTOP)  # so that it does not end with its provisioner, and is a worker still for the dispatcher while its connection lasts
    first.end(signal.SIGKILL)
    second = daemons.start("provision", "--dispatcher", dispatcher.address, "--min-workers", 2, "--max-workers", 2, "--", "--memory", "64M")
    try:
        wait(lambda: (p := pool(dispatcher)) and p["workers"] + len([w for w in ready(dispatcher) if w["pid"] == left]) == 2)
        wait(lambda: len(found := ready(dispatcher)) == 2 and not {w["pid"] for w in workers} & {w["pid"] for w in found})
        assert pool(dispatcher)["workers"] == 2
    finally:
        os.kill(left, signal.SIGKILL)
    assert second.end() == 0


def test_no_control_group_is_left_of_a_provisioner_that_was_killed(daemons, dispatcher):
    """Each left as many as it had workers, for ever."""
    words = ["provision", "--dispatcher", dispatcher.address, "--min-workers", 2, "--max-workers", 2, "--worker-cpus", 0.5, "--", "--memory", "64M"]
    try:
        first = daemons.start(*words)
    except AssertionError as e:
        if "CPU time can't be limited here" not in str(e):
            raise
        pytest.skip("no control groups can be made here")
    workers = wait(lambda: len(found := ready(dispatcher)) == 2 and found)
    lines = [line.split(":", 2) for line in Path(f"/proc/{workers[0]['pid']}/cgroup").read_text().splitlines()]
    (controllers, group), = ((c, g) for _, c, g in lines if f"cachew-{first.process.pid}-" in g)
    kinds = [line.split()[1:4] for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = next(path for path, kind, options in kinds if (kind == "cgroup2" if not controllers else kind == "cgroup" and "cpu" in options.split(",")))
    parent = Path(mount + group).parent
    assert Path(mount + group).is_dir()
    first.end(signal.SIGKILL)
    wait(lambda: not any(is_there(w["pid"]) for w in workers))
    second = daemons.start(*words)
    wait(lambda: len(ready(dispatcher)) == 2)
    assert not list(parent.glob(f"cachew-{first.process.pid}-*"))
    assert second.end() == 0
    assert not list(parent.glob(f"cachew-{second.process.pid}-*"))


def of_pool(name):
    """Processes that have it in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found += [path.parent.name] if name.encode() in path.read_bytes().split(b"\0") else []
    return found


def test_nothing_is_left_of_provisioners_that_are_killed_soon_after_their_start(daemons, dispatcher, tmp_path):
    """Some children missed that their provisioner was dead, and served for ever: those that just entered a control group, which takes long, nearly always."""
    moments, limits = random.Random(1), ["--worker-cpus", 0.5]
    for i in range(30):
        words = ["--dispatcher", dispatcher.address, "--pool", name := f"{tmp_path.name}-{os.getpid()}-{i}", "--min-workers", 3, "--max-workers", 3]
        try:
            provisioner = daemons.start("provision", *words, *limits, "--", "--memory", "64M")
        except AssertionError as e:
            if "CPU time can't be limited here" not in str(e):
                raise
            limits = []
            provisioner = daemons.start("provision", *words, "--", "--memory", "64M")
        time.sleep(moments.random() / 20)
        provisioner.end(signal.SIGKILL)
        daemons.all.remove(provisioner)
        wait_for(lambda name=name: not of_pool(name), TIMEOUT_S)


def test_two_jobs_share_by_weight(daemons, pipeline):
    service = up(daemons, "--workers", 6, "--policy", "fixed:6")
    jobs = {name: run(pipeline, "--service", service.address, "--job", name, "--epochs", 1000000) for name in ("a", "b")}
    try:
        wait(lambda: [(scaling(service.address, name) or {}).get("running") for name in jobs] == [3, 3])
        assert said("jobs", "--service", service.address, "--json", "--share", "a", "--weight", 2)
        wait(lambda: [scaling(service.address, name)["running"] for name in jobs] == [4, 2])
        assert said("jobs", "--service", service.address, "--json", "--share", "b", "--priority", 1, "--quota", 5)
        wait(lambda: [scaling(service.address, name)["running"] for name in jobs] == [1, 5])
        assert scaling(service.address, "a")["objective"] == "time"
        assert said("jobs", "--service", service.address, "--json", "--aim", "a", "--objective", "cost", "--price-client", 8.8)
        assert [scaling(service.address, name)["objective"] for name in jobs] == ["cost", "time"]
        assert scaling(service.address, "a")["client_price_per_h"] == 8.8
        assert "one of time, cost" in refused("jobs", "--service", service.address, "--aim", "a", "--objective", "speed")
        assert said("jobs", "--service", service.address, "--json", "--share", "b", "--weight", 3)
        assert [scaling(service.address, "b")[key] for key in ("weight", "priority", "quota")] == [3, 1, 5]  # what was not given is as it was
        assert "says nothing of it: expected --weight" in refused("jobs", "--service", service.address, "--share", "a")
        assert "--share is missing" in refused("jobs", "--service", service.address, "--weight", 2)
        assert "--aim is missing" in refused("jobs", "--service", service.address, "--objective", "time")
        assert 'no job "c" that runs' in refused("jobs", "--service", service.address, "--share", "c", "--weight", 2)
        for number in (0, -1, 1e-7, 1e7, "nan"):  # which the command took, up to 1e9, and the dispatcher refused with other bounds
            assert "a number from 1e-06 to 1e+06" in refused("jobs", "--service", service.address, "--share", "a", "--weight", number)
            assert "a number from 1e-06 to 1e+06" in refused("jobs", "--service", service.address, "--aim", "a", "--price-client", number)
    finally:
        for job in jobs.values():
            job.kill()
            job.communicate()


def test_decisions_are_told(daemons, pipeline):
    service = up(daemons, "--workers", 2, "--policy", "fixed:2", "--http", "127.0.0.1:0")
    job = run(pipeline, "--service", service.address, "--job", "one", "--epochs", 1000000)
    try:
        page = wait(lambda: scaling(service.address, "one") and service.json("/api/v1/jobs/one/decisions"))
        assert page[0]["record"]["chosen"]["workers"] == {"local": 2}
        assert page[0]["record"]["why"] == "2 were asked for"
        assert said("jobs", "explain", "one", "--service", service.address, "--json")[0]["record"] == page[0]["record"]
        told = f"{page[0]['record']['what']}: 2 were asked for"
        assert told.startswith("2 workers")
        assert told in cachew("jobs", "explain", "one", "--service", service.address).stdout
        assert service.json("/api/v1/pools")[0]["maximum"] == 2
        wait(lambda: f'job "one": {told}' in service.err)
        assert 'there is no job "two"' in refused("jobs", "explain", "two", "--service", service.address)
        assert "explain NAME" in refused("jobs", "list", "--service", service.address)
    finally:
        job.kill()
        job.communicate()


def test_alternatives_of_several_pools_say_of_which(daemons, dispatcher, pipeline):
    """Two that differed in nothing but that looked alike. What costs are in was said nowhere."""
    provisioned(daemons, dispatcher, 1)
    daemons.start("provision", "--dispatcher", dispatcher.address, "--pool", "far", "--price-worker", 3, "--", "--memory", "64M")
    wait(lambda: len(ready(dispatcher)) == 2)
    job = run(pipeline, "--service", dispatcher.address, "--job", "one", "--epochs", 1000000)
    try:
        decisions = wait(lambda: scaling(dispatcher.address, "one") and dispatcher.json("/api/v1/jobs/one/decisions"))
        record = decisions[0]["record"]
        assert record["alternatives"]
        told = cachew("jobs", "explain", "one", "--service", dispatcher.address).stdout
        for a in record["alternatives"]:
            of = ", ".join(f"{n} of {name}" for name, n in a["pools"].items() if n)
            assert f"{a['workers']} worker{'s' * (a['workers'] != 1)} ({of})" in told
        assert "in the unit of --price-client and --price-worker" in told
    finally:
        job.kill()
        job.communicate()


def test_explain_of_a_dispatcher_without_a_policy_says_so(daemons, pipeline):
    """It seemed to be about to decide something."""
    dispatcher, _ = daemons.service()
    digest(run(pipeline, "--service", dispatcher.address, "--job", "one"))
    assert "nothing was decided: the dispatcher has no policy" in cachew("jobs", "explain", "one", "--service", dispatcher.address).stdout
    assert said("jobs", "explain", "one", "--service", dispatcher.address, "--json") == []


def test_a_provisioner_says_what_it_waits_for(daemons):
    """It waited for its dispatcher without a word."""
    provisioner = daemons.start("provision", "--dispatcher", "127.0.0.1:1")
    wait(lambda: "waiting for the dispatcher at 127.0.0.1:1: " in provisioner.err)
    assert provisioner.end() == 0


def test_a_worker_that_can_not_start_is_no_end(daemons, tmp_path):
    """Units that die at once are tried again at longer and longer intervals, and the dispatcher learns that there are no more."""
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--policy", "auto")
    provisioner = daemons.start("provision", "--dispatcher", dispatcher.address, "--min-workers", 2, "--max-workers", 5, "--", "--memory", "1")
    wait(lambda: any(p["maximum"] == 0 and "ended with 2" in (p["why"] or "") for p in dispatcher.json("/api/v1/pools")))
    assert "3 workers in a row died at once, and said why above" in provisioner.err and provisioner.err.count("at least 16 MiB of memory") >= 3
    metrics = dispatcher.get("/metrics")[1].splitlines()
    assert "cachew_dispatcher_pools 1" in metrics and "cachew_dispatcher_pools_short 1" in metrics
    assert provisioner.end() == 0


@pytest.mark.parametrize("words, why", [
    (["--bogus"], "workers would refuse their command line: unknown option --bogus"), (["--threads", 0], "--threads 0"),
    (["--listen", "0.0.0.0:0"], "--listen 0.0.0.0:0 is no loopback address"), (["--data-root", "/nowhere"], "expected a directory that pipelines may read")])
def test_words_that_every_worker_would_refuse_are_refused_before_one_is_started(words, why):
    """They were tried for ever."""
    assert why in refused("provision", "--dispatcher", "127.0.0.1:1", "--", *words)


def test_pools_without_a_name_of_their_own_are_refused():
    """Decisions took a pool called static for the workers that belong to none."""
    assert 'pool "static" has the workers that no provisioner started' in refused("provision", "--dispatcher", "127.0.0.1:1", "--pool", "static")
    assert "a pool's name has 1 to 64 bytes of UTF-8, not 0" in refused("provision", "--dispatcher", "127.0.0.1:1", "--pool", "")
    assert 'the address "nonsense": expected HOST:PORT' in refused("provision", "--dispatcher", "nonsense")


@pytest.mark.parametrize(("option", "value"), [("policy", "auto"), ("min-workers", 3), ("worker-cpus", 0.1), ("objective", "cost"), ("price-client", 3), ("price-worker", 3)])
def test_an_option_that_means_nothing_without_autoscale_is_refused(option, value):
    """All but the policy were passed over."""
    assert f"--{option} without --autoscale: expected both" in refused("up", f"--{option}", value)
    if option in ("objective", "price-client", "price-worker"):
        assert f"--{option} without --policy: expected both" in refused("dispatcher", f"--{option}", value)


def test_a_fixed_number_of_workers_that_can_not_be_is_refused():
    """It started, and had fewer."""
    assert "--policy fixed:20 is more than --workers 2: expected" in refused("up", "--autoscale", "--policy", "fixed:20", "--workers", 2)


def test_prices_have_the_same_bounds_wherever_they_are_said():
    """Where a service began they were taken from 0 to 1e9, and then refused for a job."""
    for verb in (["up", "--autoscale"], ["dispatcher", "--policy", "auto"]):
        for price in (0, 1e-7, 1e8, "nan"):
            assert "a number from 1e-06 to 1e+06" in refused(*verb, "--price-client", price)
        assert "a number from 0 to 1e+06" in refused(*verb, "--price-worker", 1e8)
    assert "a number from 0 to 1e+06" in refused("provision", "--dispatcher", "127.0.0.1:1", "--price-worker", 1e8)


def test_words_that_mean_nothing(daemons):
    assert "did you mean hpa" in refused("dispatcher", "--policy", "hpaa")
    assert "--min-workers 3 is more than --workers 2: expected" in refused("up", "--autoscale", "--min-workers", 3, "--workers", 2)
    assert "--dispatcher is missing" in refused("provision")
    assert "--min-workers 3 is more" in refused("provision", "--dispatcher", "127.0.0.1:1", "--min-workers", 3)
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    provisioner = daemons.start("provision", "--dispatcher", dispatcher.address, "--min-workers", 0)
    wait(lambda: "expected one with --policy" in provisioner.err)
