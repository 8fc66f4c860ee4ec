"""Autoscale, black box: `cachew up --autoscale`, provisioners, shares, and what is said of decisions. How
well it decides: bench/autoscale.py and bench/policies.py.

CACHEW names the command (default build/cachew)."""

import contextlib
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from command import cachew, need_test_build
from daemons import answer, endless_job
from deadlines import HANG_S, wait_for
from held_run import HeldRun


def jobs(*words):
    return cachew("jobs", *words).out


def refused(*words, code=2):
    ran = cachew(*words)
    assert ran.code == code, (words, ran.out, ran.err)
    return ran.err


def held_job(directory, pipeline, service, epochs):
    return HeldRun(directory, pipeline, "--service", service.address, "--job", "one", "--epochs", epochs)


def local_digest(pipeline, epochs):
    return answer("run", pipeline, "--digest", "--epochs", epochs)["digest"]


@pytest.fixture
def pipeline(tmp_path):
    path = tmp_path / "pipeline.json"
    chain = [
        {"op": "synthetic", "count": 4096, "shape": [16]},
        {"op": "delay", "us": 100},
        {"op": "batch", "size": 8},
    ]
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return path


def scaling(address, job):
    return next(
        (
            j["scaling"]
            for j in answer("jobs", "--service", address)
            if j["name"] == job and j["state"] not in ("done", "cancelled", "failed")
        ),
        None,
    )


def serving(address):
    return [w for w in answer("workers", "--service", address) if w["state"] == "ready" and w["serves"]]


def up(daemons, *words, **options):
    return daemons.start(
        "up", "--listen", "127.0.0.1:0", "--autoscale", "--memory", "256M", *words, **options
    )


def test_up_starts_as_many_as_are_wanted_and_makes_up_for_the_dead(daemons, pipeline, tmp_path):
    service = up(daemons, "--workers", 3, "--policy", "fixed:3")
    with held_job(tmp_path, pipeline, service, 4) as job:
        workers = wait_for(lambda: len(found := serving(service.address)) == 3 and found)
        assert {w["pool"] for w in workers} == {"local"}
        os.kill(workers[0]["pid"], signal.SIGKILL)
        gone = workers[0]["id"]
        wait_for(lambda: len(found := serving(service.address)) == 3 and gone not in [w["id"] for w in found])
        assert job.end(code=0)["digest"] == local_digest(pipeline, 4)
    assert service.end() == 0


def test_a_dispatcher_that_comes_back_goes_on_with_as_many(daemons, pipeline, tmp_path):
    service = up(daemons, "--workers", 3, "--policy", "fixed:3", "--state-dir", tmp_path / "state")

    def back():
        with contextlib.suppress(AssertionError):  # the dispatcher does not answer yet
            restarted = service.err.count("the dispatcher (pid") == 1
            return restarted and len(found := serving(service.address)) == 3 and found

    with held_job(tmp_path, pipeline, service, 6) as job:
        workers = wait_for(lambda: len(found := serving(service.address)) == 3 and found)
        os.kill(service.ready["pid"], signal.SIGKILL)
        after = wait_for(back)
        assert {w["pid"] for w in after} == {w["pid"] for w in workers}  # none was ended, none started
        wait_for(lambda: (s := scaling(service.address, "one")) and s["wanted"] == 3)
        assert job.end(code=0)["digest"] == local_digest(pipeline, 6)


def test_a_provisioner_that_dies_takes_its_workers_along_and_the_next_one_starts_others(
    daemons, pipeline, tmp_path
):
    service = up(daemons, "--workers", 2, "--policy", "fixed:2")
    with held_job(tmp_path, pipeline, service, 8) as job:
        workers = wait_for(lambda: len(found := serving(service.address)) == 2 and found)
        before = {w["id"] for w in workers}
        os.kill(service.ready["workers"][0]["pid"], signal.SIGKILL)
        wait_for(
            lambda: len(found := serving(service.address)) == 2 and not before & {w["id"] for w in found}
        )
        assert job.end(code=0)["digest"] == local_digest(pipeline, 8)


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


def provision(daemons, dispatcher, *words, least=1, most=None, memory="64M", env=None):
    """Starts a provisioner of `least` to `most` workers."""
    numbers = ["--min-workers", least, "--max-workers", most or least]
    return daemons.start(
        "provision", "--dispatcher", dispatcher.address, *numbers, *words, "--", "--memory", memory, env=env
    )


def provisioned(daemons, dispatcher, n, env=None):
    """Returns a provisioner and its n workers, once all of them are ready."""
    provisioner = provision(daemons, dispatcher, least=n, env=env)
    return provisioner, wait_for(lambda: len(found := ready(dispatcher)) == n and found)


def serve(daemons, policy="auto", env=None):
    return daemons.start(
        "dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--policy", policy, env=env
    )


@pytest.fixture
def dispatcher(daemons):
    return serve(daemons)


def test_a_worker_that_hangs_is_killed_and_another_one_takes_its_place(daemons):
    """It stayed where it was, and the pool one short."""
    impatient = {"CACHEW_SILENCE_S": "10"}  # on a starved machine other workers may be replaced, too
    dispatcher = serve(daemons, env=impatient)
    provisioner, workers = provisioned(daemons, dispatcher, 2, env=impatient)
    hung = workers[0]["pid"]
    os.kill(hung, signal.SIGSTOP)
    wait_for(lambda: not is_there(hung))
    wait_for(lambda: len(found := ready(dispatcher)) == 2 and hung not in [w["pid"] for w in found])
    silent = f"worker {workers[0]['name']}: the dispatcher has received nothing from this worker for 15 s"
    assert f"{silent}; the worker is killed" in provisioner.err


@pytest.mark.large
def test_a_provisioner_that_hangs_is_killed_and_another_one_takes_its_place(daemons):
    """Nobody noticed, and the number of workers stayed as it was."""
    # Long enough that a starved provisioner which starts is not taken for one that hangs.
    env = {"CACHEW_SILENCE_S": "10", "CACHEW_START_S": "30"}
    service = up(daemons, "--workers", 2, "--min-workers", 2, "--http", "127.0.0.1:0", env=env)
    workers = wait_for(lambda: len(found := ready(service)) == 2 and found)
    hung = service.ready["workers"][0]["pid"]
    os.kill(hung, signal.SIGSTOP)
    wait_for(lambda: not is_there(hung))
    before = {w["pid"] for w in workers}
    wait_for(
        lambda: pool(service) and len(found := ready(service)) == 2 and not before & {w["pid"] for w in found}
    )
    assert (
        f"the provisioner (pid {hung}) sent nothing to the dispatcher for 30 s; the provisioner is killed"
        in service.err
    )
    assert 'the provisioner of pool "local" lost its connection' in service.err
    assert service.end() == 0


def test_a_second_provisioner_of_a_pool_ends_and_says_why(daemons, dispatcher):
    """They took the pool from each other for ever."""
    first, workers = provisioned(daemons, dispatcher, 1)
    second = daemons.start("provision", "--dispatcher", dispatcher.address)
    assert second.process.wait(HANG_S) == 3
    assert 'another provisioner has pool "local": expected a different pool name' in second.err
    assert [w["pid"] for w in ready(dispatcher)] == [w["pid"] for w in workers]
    assert "connection ended" not in first.err


def test_a_provisioner_in_the_place_of_one_that_was_killed_counts_the_workers_that_are_left(
    daemons, dispatcher
):
    """It started as many as it may beside them."""
    words = [
        "--dispatcher",
        dispatcher.address,
        "--memory",
        "64M",
        "--pool",
        "local",
        "--name",
        "local-before-1",
    ]
    left = daemons.start("worker", *words)  # as a provisioner starts one, which then was killed
    provisioner = provision(daemons, dispatcher, least=2)

    def others():
        return [w for w in ready(dispatcher) if w["name"] != "local-before-1"]

    wait_for(others)
    assert wait_for(lambda: pool(dispatcher)["workers"]) == 1  # it says how many it started, all at once
    left.end(signal.SIGKILL)
    wait_for(lambda: len(others()) == 2 and pool(dispatcher)["workers"] == 2)
    assert provisioner.end() == 0


def limited(daemons, dispatcher, *words, least):
    """A provisioner of workers with limited CPU time; None where that needs control groups that can't be
    made.
    """
    try:
        return provision(daemons, dispatcher, "--worker-cpus", 0.5, *words, least=least)
    except AssertionError as e:
        if "CPU time can't be limited here" not in str(e):
            raise
        return None


def test_no_control_group_is_left_of_a_provisioner_that_was_killed(daemons, dispatcher):
    """Each left as many as it had workers, for ever."""
    first = limited(daemons, dispatcher, least=2)
    if not first:
        pytest.skip("no control groups can be made here")
    workers = wait_for(lambda: len(found := ready(dispatcher)) == 2 and found)
    lines = [
        line.split(":", 2) for line in Path(f"/proc/{workers[0]['pid']}/cgroup").read_text().splitlines()
    ]
    ((controllers, group),) = ((c, g) for _, c, g in lines if f"cachew-{first.process.pid}-" in g)
    kinds = [line.split()[1:4] for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = next(
        path
        for path, kind, options in kinds
        if (kind == "cgroup2" if not controllers else kind == "cgroup" and "cpu" in options.split(","))
    )
    parent = Path(mount + group).parent
    assert Path(mount + group).is_dir()
    first.end(signal.SIGKILL)
    wait_for(lambda: not any(is_there(w["pid"]) for w in workers))
    second = limited(daemons, dispatcher, least=2)
    wait_for(lambda: len(ready(dispatcher)) == 2)
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


def test_nothing_is_left_of_provisioners_that_are_killed_soon_after_their_start(
    daemons, dispatcher, tmp_path
):
    """Some children missed that their provisioner was dead, and served for ever: those that just entered a
    control group, which takes long, nearly always.
    """
    moments, start = random.Random(1), limited
    for i in range(30):
        name = f"{tmp_path.name}-{os.getpid()}-{i}"
        provisioner = start(daemons, dispatcher, "--pool", name, least=3)
        if not provisioner:
            start = provision
            provisioner = start(daemons, dispatcher, "--pool", name, least=3)
        time.sleep(moments.random() / 20)  # any moment may be the wrong one
        provisioner.end(signal.SIGKILL)
        daemons.all.remove(provisioner)
        wait_for(lambda name=name: not of_pool(name))


@pytest.mark.large
def test_two_jobs_share_by_weight(daemons, pipeline):
    service = up(daemons, "--workers", 6, "--policy", "fixed:6")
    names = ("a", "b")

    def running():
        return [(scaling(service.address, name) or {}).get("running") for name in names]

    with endless_job(pipeline, service, "a"), endless_job(pipeline, service, "b"):
        wait_for(lambda: running() == [3, 3])
        assert answer("jobs", "--service", service.address, "--share", "a", "--weight", 2)
        wait_for(lambda: running() == [4, 2])
        assert answer("jobs", "--service", service.address, "--share", "b", "--priority", 1, "--quota", 5)
        wait_for(lambda: running() == [1, 5])
        assert scaling(service.address, "a")["objective"] == "time"
        assert answer(
            "jobs", "--service", service.address, "--aim", "a", "--objective", "cost", "--price-client", 8.8
        )
        assert [scaling(service.address, name)["objective"] for name in names] == ["cost", "time"]
        assert scaling(service.address, "a")["client_price_per_h"] == 8.8
        assert "one of time, cost" in refused(
            "jobs", "--service", service.address, "--aim", "a", "--objective", "speed"
        )
        assert answer("jobs", "--service", service.address, "--share", "b", "--weight", 3)
        # what was not given is as it was
        assert [scaling(service.address, "b")[key] for key in ("weight", "priority", "quota")] == [3, 1, 5]
        assert "changes nothing: expected --weight" in refused(
            "jobs", "--service", service.address, "--share", "a"
        )
        assert "--share is missing" in refused("jobs", "--service", service.address, "--weight", 2)
        assert "--aim is missing" in refused("jobs", "--service", service.address, "--objective", "time")
        assert 'no running job "c"' in refused(
            "jobs", "--service", service.address, "--share", "c", "--weight", 2
        )
        # which the command took, up to 1e9, and the dispatcher refused with other bounds
        for number in (0, -1, 1e-7, 1e7, "nan"):
            assert "a number from 1e-06 to 1e+06" in refused(
                "jobs", "--service", service.address, "--share", "a", "--weight", number
            )
            assert "a number from 1e-06 to 1e+06" in refused(
                "jobs", "--service", service.address, "--aim", "a", "--price-client", number
            )


def test_decisions_are_told(daemons, pipeline):
    service = up(daemons, "--workers", 2, "--policy", "fixed:2", "--http", "127.0.0.1:0")
    with endless_job(pipeline, service, "one"):
        page = wait_for(
            lambda: scaling(service.address, "one") and service.json("/api/v1/jobs/one/decisions")
        )
        assert page[0]["record"]["chosen"]["workers"] == {"local": 2}
        assert page[0]["record"]["why"] == "2 workers were requested by the policy fixed:N"
        assert (
            answer("jobs", "explain", "one", "--service", service.address)[0]["record"] == page[0]["record"]
        )
        told = f"{page[0]['record']['what']}: 2 workers were requested by the policy fixed:N"
        assert told.startswith("2 workers")
        lines = jobs("explain", "one", "--service", service.address).splitlines()
        assert [line.split(":")[0].split(",")[0] for line in lines] == [
            "bottleneck",
            "what to do",
            "batches/s",
            "workers",
            "last decision",
        ]
        assert lines[3].endswith(" of 2 wanted by the policy fixed:2, objective time") and told in lines[4]
        verbose = jobs("explain", "one", "--verbose", "--service", service.address).splitlines()
        assert len(verbose) > 5 and told in verbose[5]
        assert "expected cachew jobs explain NAME --verbose" in refused(
            "jobs", "--verbose", "--service", service.address
        )
        assert service.json("/api/v1/pools")[0]["maximum"] == 2
        wait_for(lambda: f'job "one": {told}' in service.err)
        assert 'there is no job "two"' in refused("jobs", "explain", "two", "--service", service.address)
        assert "explain NAME" in refused("jobs", "list", "--service", service.address)


def test_alternatives_of_several_pools_say_of_which(daemons, pipeline):
    """Two that differed in nothing but that looked alike. What costs are in was said nowhere."""
    need_test_build()
    dispatcher = serve(daemons, "script")
    provisioned(daemons, dispatcher, 1)
    provision(daemons, dispatcher, "--pool", "far", "--price-worker", 3)
    wait_for(lambda: len(ready(dispatcher)) == 2)
    with endless_job(pipeline, dispatcher, "one"):
        decisions = wait_for(
            lambda: scaling(dispatcher.address, "one") and dispatcher.json("/api/v1/jobs/one/decisions")
        )
        alternatives = decisions[0]["record"]["alternatives"]
        assert [a["pools"] for a in alternatives] == [{"local": 1, "far": 0}, {"local": 0, "far": 1}]
        told = jobs("explain", "one", "--verbose", "--service", dispatcher.address)
        for a in alternatives:
            of = ", ".join(f"{n} of {name}" for name, n in a["pools"].items() if n)
            assert f"{a['workers']} worker{'s' * (a['workers'] != 1)} ({of})" in told
        assert "in the unit of --price-client and --price-worker" in told


def test_explain_of_a_dispatcher_without_a_policy_says_so(daemons, pipeline):
    """It seemed to be about to decide something."""
    dispatcher, _ = daemons.service()
    with endless_job(pipeline, dispatcher, "one"):
        wait_for(lambda: any(j["name"] == "one" for j in answer("jobs", "--service", dispatcher.address)))
        told = jobs("explain", "one", "--service", dispatcher.address)
        assert "nothing was decided: the dispatcher has no policy" in told and len(told.splitlines()) == 5
        assert cachew("jobs", "--service", dispatcher.address, "--pause", "one").code == 0
        paused = jobs("explain", "one", "--service", dispatcher.address).splitlines()
        assert paused[0].startswith("bottleneck: not known, the job is paused") and len(paused) == 5
        assert paused[1].startswith("what to do: ")
        assert answer("jobs", "explain", "one", "--service", dispatcher.address) == []


def test_a_provisioner_says_what_it_waits_for(daemons):
    """It waited for its dispatcher without a word."""
    provisioner = daemons.start("provision", "--dispatcher", "127.0.0.1:1")
    wait_for(lambda: "waiting for the dispatcher at 127.0.0.1:1: " in provisioner.err)
    assert provisioner.end() == 0


def test_a_worker_that_can_not_start_is_no_end(daemons, dispatcher):
    """Workers that end before they served are tried again at longer and longer intervals, however long they
    took to end, and the dispatcher learns that there are no more."""
    provisioner = provision(daemons, dispatcher, least=2, most=5, memory="1")
    wait_for(
        lambda: any(
            p["maximum"] == 0 and "ended with exit code 2" in (p["why"] or "")
            for p in dispatcher.json("/api/v1/pools")
        )
    )
    assert "3 workers in a row ended before they served, for the reasons above" in provisioner.err
    assert provisioner.err.count("expected at least 16777216 bytes, 16 MiB") >= 3
    short = {"cachew_dispatcher_pools 1", "cachew_dispatcher_pools_short 1"}
    wait_for(lambda: short <= set(dispatcher.get("/metrics")[1].splitlines()))
    assert provisioner.end() == 0


@pytest.mark.parametrize(
    "words, why",
    [
        (["--bogus"], "the options after -- are wrong for cachew worker: unknown option --bogus"),
        (["--threads", 0], "--threads 0"),
        (["--listen", "0.0.0.0:0"], "--listen 0.0.0.0:0 is no loopback address"),
        (["--data-root", "/nowhere"], "expected an existing directory"),
    ],
)
def test_words_that_every_worker_would_refuse_are_refused_before_one_is_started(words, why):
    """They were tried for ever."""
    assert why in refused("provision", "--dispatcher", "127.0.0.1:1", "--", *words)


def test_pools_without_a_name_of_their_own_are_refused():
    """Decisions took a pool called static for the workers that belong to none."""
    assert 'pool "static" is reserved for workers that no provisioner started' in refused(
        "provision", "--dispatcher", "127.0.0.1:1", "--pool", "static"
    )
    assert "the pool's name has 0 bytes: expected 1 to 64 bytes of valid UTF-8" in refused(
        "provision", "--dispatcher", "127.0.0.1:1", "--pool", ""
    )
    assert 'the address "nonsense": expected HOST:PORT' in refused("provision", "--dispatcher", "nonsense")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("policy", "auto"),
        ("min-workers", 3),
        ("worker-cpus", 0.1),
        ("objective", "cost"),
        ("price-client", 3),
        ("price-worker", 3),
        ("currency", "EUR"),
    ],
)
def test_an_option_that_means_nothing_without_autoscale_is_refused(option, value):
    """All but the policy were passed over."""
    assert f"--{option} needs --autoscale: expected both" in refused("up", f"--{option}", value)
    if option in ("objective", "price-client", "price-worker", "currency"):
        assert f"--{option} needs --policy: expected both" in refused("dispatcher", f"--{option}", value)


def test_a_fixed_number_of_workers_that_can_not_be_is_refused():
    """It started, and had fewer."""
    assert "--policy fixed:20 is more than --workers 2: expected" in refused(
        "up", "--autoscale", "--policy", "fixed:20", "--workers", 2
    )


def test_prices_have_the_same_bounds_wherever_they_are_said():
    """Where a service began they were taken from 0 to 1e9, and then refused for a job."""
    for verb in (["up", "--autoscale"], ["dispatcher", "--policy", "auto"]):
        for price in (0, 1e-7, 1e8, "nan"):
            assert "a number from 1e-06 to 1e+06" in refused(*verb, "--price-client", price)
        assert "a number from 0 to 1e+06" in refused(*verb, "--price-worker", 1e8)
    assert "a number from 0 to 1e+06" in refused(
        "provision", "--dispatcher", "127.0.0.1:1", "--price-worker", 1e8
    )


@pytest.mark.parametrize("name", ["", "a" * 17, "E\x1bUR", "EU\u202eR"])
def test_a_currency_is_a_short_visible_text(name):
    for verb in (["up", "--autoscale"], ["dispatcher", "--policy", "auto"]):
        assert "1 to 16 bytes of visible text" in refused(*verb, "--currency", name)


def test_words_that_mean_nothing(daemons):
    assert "did you mean hpa" in refused("dispatcher", "--policy", "hpaa")
    assert "--min-workers 3 is more than --workers 2: expected" in refused(
        "up", "--autoscale", "--min-workers", 3, "--workers", 2
    )
    assert "--dispatcher is missing" in refused("provision")
    assert "--min-workers 3 is more" in refused(
        "provision", "--dispatcher", "127.0.0.1:1", "--min-workers", 3
    )
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    provisioner = daemons.start("provision", "--dispatcher", dispatcher.address, "--min-workers", 0)
    wait_for(lambda: "expected a dispatcher started with --policy" in provisioner.err)
