"""Batches of expensive elements in counted pipelines, which several workers compute: each has rows of a
batch, and the client joins them.

CACHEW names the command (default build/cachew)."""

import json
import re
import subprocess

import oracle
import pytest
from deadlines import HANG_S
from example_data import CACHEW
from workbench import SHUFFLE, numbers, slow

SIZE = 256
ONE = numbers(SIZE, SHUFFLE, slow(20_000), {"op": "batch", "size": SIZE})
SOME = numbers(5 * SIZE + 7, SHUFFLE, slow(5_000), {"op": "batch", "size": SIZE})
CUT = {"CACHEW_MUTATE": "cut"}  # test builds: ranges end anywhere, whatever an element costs
MANY = numbers(1200, SHUFFLE, slow(1_000), {"op": "batch", "size": 40})


def run(path, *words):
    ran = subprocess.run(
        [CACHEW, "run", str(path), "--digest", "--json", "--wait", str(HANG_S), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def computed(worker, operator):
    """Elements that went into an operator."""
    found = re.search(
        rf'^cachew_worker_operator_elements_total{{operator="{operator}"}} (\d+)',
        worker.get("/metrics")[1],
        re.M,
    )
    return int(found[1]) if found else 0


def test_rows_of_one_batch_come_from_several_workers(daemons, tmp_path):
    """The epoch is one batch, which takes one worker five seconds."""
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": ONE}))
    dispatcher, workers = daemons.service(workers=4, http=True)
    there = run(path, "--service", dispatcher.address)
    assert there["batches"] == 1
    assert there["digest"] == run(path, "--threads", 8)["digest"]
    shares = [computed(w, "delay") for w in workers]
    assert sum(share > 0 for share in shares) > 1 and max(shares) < SIZE <= sum(shares)


def test_one_worker_alone_has_whole_batches(daemons, tmp_path):
    """Nothing is joined, so the client gets batches as shm_loans."""
    path = tmp_path / "pipeline.json"
    path.write_text(
        json.dumps({"cachew": 1, "pipeline": numbers(64, SHUFFLE, slow(20_000), {"op": "batch", "size": 32})})
    )
    dispatcher, _ = daemons.service(workers=1)
    (link,) = run(path, "--service", dispatcher.address, "--transport", "shm")["links"]
    assert link["transport"] == "shm" and link["batches"] == 2


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("chain", [MANY, [*MANY[:-1], {"op": "filter", "where": "value % 3 != 0"}, MANY[-1]]])
def test_ranges_that_their_workers_say_are_not_there(bench, workers, chain):
    """Test builds answer so for each fourth lease, though it is there, computed and reported: nothing is
    late, and clients asked for ever.
    """
    bench.cluster.start_dispatcher()
    for _ in range(workers):
        bench.cluster.start_worker(env={"CACHEW_MUTATE": "not-here"})
    ranks = bench.ranks(chain, 2)
    for r in ranks:
        r.finish()
    bench.judge(chain, (2, None, ranks))
    assert "the range is leased again" in bench.cluster.dispatcher.said()


@pytest.mark.parametrize("env", [None, CUT])
def test_a_worker_is_killed(bench, env):
    bench.cluster.start(4, env=env)
    r = bench.ranks(SOME, held=1)[0]
    bench.cluster.wait_lines(r, 1)
    bench.cluster.workers["w1"].kill9()
    r.finish()
    bench.judge(SOME, (1, None, [r]))


@pytest.mark.parametrize("env", [None, CUT])
def test_the_last_worker_that_is_left_has_all_parts(bench, env):
    bench.cluster.start(3, env=env)
    r = bench.ranks(SOME, held=1)[0]
    bench.cluster.wait_lines(r, 1)
    for name in ("w0", "w2"):
        bench.cluster.workers[name].kill9()
    r.finish()
    bench.judge(SOME, (1, None, [r]))


@pytest.mark.parametrize("env", [None, CUT])
@pytest.mark.parametrize("world", [2, 3])
def test_ranks(bench, env, world):
    bench.cluster.start(4, env=env)
    ranks = bench.ranks(SOME, world=world, words=["--epochs", "2"], state_every=1)
    for r in ranks:
        r.finish()
    bench.judge(SOME, (world, None, ranks), words=["--epochs", "2"])
    assert bench.cluster.drain() == []


@pytest.mark.parametrize("worlds", [(1, 3), (2, 1)])
def test_clients_go_on_in_another_world(bench, worlds):
    bench.cluster.start(3, env=CUT)
    ranks = bench.ranks(MANY, world=worlds[0], held=4)
    for r in ranks:
        bench.cluster.wait_lines(r, 4)
    for r in ranks:
        r.process.kill9()
    at, state = min((oracle.read_state(r.state), str(r.state)) for r in ranks)
    after = bench.ranks(MANY, world=worlds[1], job="again", start=state)
    for r in after:
        r.finish()
    bench.judge(MANY, (worlds[0], None, ranks), (worlds[1], at, after))


@pytest.mark.parametrize("state_dir", [True, False])
def test_the_dispatcher_is_killed_and_cuts_otherwise(bench, state_dir):
    """Then some ranges of a batch have other bounds than the client knows."""
    bench.cluster.start(3, env=CUT, state_dir=state_dir)
    ranks = bench.ranks(MANY, world=2, held=4)
    for r in ranks:
        bench.cluster.wait_lines(r, 4)
    bench.cluster.dispatcher.kill9()
    bench.cluster.start_dispatcher(state_dir=state_dir)
    for r in ranks:
        r.finish()
    bench.judge(MANY, (2, None, ranks))


def test_a_record_that_fails_ends_the_run_as_it_does_locally(bench):
    chain = numbers(400, {"op": "fail", "where": "value == 177 or value == 190"}, {"op": "batch", "size": 40})
    bench.cluster.start(3, env=CUT)
    got = bench.ranks(chain)[0].finish(code=1)["error"]
    assert got["kind"] == "record" and ":177" in got["record"]
