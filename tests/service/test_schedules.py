"""Schedules of faults, judged by the delivery oracle: some random ones, and each that once failed. By the
hundred they are soak.py's.

CACHEW names the command (default build/cachew), a test build with named points (-Dcrash_points=true)."""

import json
import select
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import schedules  # noqa: E402
import soak  # noqa: E402
from cluster import CACHEW, Process  # noqa: E402
from deadlines import HANG_S  # noqa: E402
from workbench import SLOW, Bench  # noqa: E402

# Quick ones that have, all together, every pipeline, order and transport, 1 to 6 workers and 1 to 4 ranks,
# and all kinds of faults and phases.
SEEDS = [1, 5, 7, 8, 13, 15, 16, 17, 22, 30, 31, 34, 43, 44, 45, 49, 50, 56, 388]
KEPT = sorted(path.stem for path in (HERE / "kept").glob("*.json"))


@pytest.fixture(scope="module")
def points():
    there = soak.crash_points(CACHEW)
    if not there:
        pytest.skip(f"{CACHEW} has no named points: expected a build with -Dcrash_points=true")
    return there


def play(plan, tmp_path, how):
    result = soak.play(plan, CACHEW, tmp_path / "keep")
    assert result["ok"], (f"tests/service/soak.py {how}", result["problems"], result["faults"])
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_schedule(seed, records, points, tmp_path):
    result = play(schedules.make(seed, records, points), tmp_path, f"--only {seed}")
    # its clients are held until the faults of its instants have happened; what is lost shortens a job
    if result["exact"]:
        assert len(result["faults"]) >= schedules.MIN_FAULTS


def test_random_schedules_have_all_that_there_is(points):
    plans = [schedules.make(seed, "data", points) for seed in SEEDS]
    assert {p["kind"] for p in plans} == {p.__name__ for p in schedules.PIPELINES}
    assert {p["workers"] for p in plans} == set(range(1, 7)) and {p["world_size"] for p in plans} == set(
        range(1, 5)
    )
    faults = [f for p in plans for f in p["faults"]]
    assert {(f["role"], f["kind"]) for f in faults} == set(schedules.FAULTS)
    assert {f["at"].get("phase", schedules.INSTANT) for f in faults} == {*schedules.PHASES, schedules.INSTANT}


def test_each_kind_of_fault_in_each_phase_has_its_schedule(points):
    seeds = range(1000, 1000 + len(schedules.CELLS) // schedules.CELLS_EACH)
    faults = [
        f for seed in seeds for f in schedules.make(seed, "data", points)["faults"] if "point" in f["at"]
    ]
    assert {(f["role"], f["kind"], f["at"]["phase"]) for f in faults} == set(schedules.CELLS)


@pytest.mark.parametrize("name", KEPT)
def test_a_schedule_that_failed(name, records, tmp_path):
    path = HERE / "kept" / f"{name}.json"
    play(json.loads(path.read_text().replace("@DATA@", str(records))), tmp_path, f"--plan {path}")


def test_what_a_held_client_left_is_kept(tmp_path):
    """The pipe that holds it cannot be copied. A schedule that failed said that, in place of what was
    wrong.
    """
    held = Bench(tmp_path)
    held.cluster.keep = tmp_path / "kept"
    try:
        held.cluster.start(1)
        held.ranks(SLOW, held=1)
    finally:
        held.cluster.close()
    assert list((tmp_path / "kept").glob("*.err")) and not list((tmp_path / "kept").rglob("*.turns"))


def test_what_is_wrong_with_a_job_is_said(bench):
    with pytest.raises(AssertionError, match="ranks: "):
        bench.judge(SLOW, (1, None, []))


def test_a_process_that_ends_while_it_is_looked_at_has_not_stopped(bench):
    """That it has ended is not known before it is asked for."""
    process = Process(bench.cluster, "ends", ["--version"])
    assert select.select([process.pidfd], [], [], HANG_S)[0]
    assert not process.has_stopped()
    assert process.code == 0
