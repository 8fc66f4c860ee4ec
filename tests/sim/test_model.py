"""cachew simulate, black box: its model against a naive one, with one pool of workers and with several."""

import copy
import math
import sys
from pathlib import Path
from statistics import mean

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import naive  # noqa: E402
import workloads  # noqa: E402
from simulating import MODEL, NESTED, POOLS, TABLE, pools_like, run, simulate  # noqa: E402


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 10])
@pytest.mark.parametrize("workload", [TABLE, MODEL], ids=["table", "model"])
def test_fixed_is_the_closed_form(tmp_path, workload, n):
    result = simulate(tmp_path, workload, f"fixed:{n}")
    time_s, cost = naive.play(workload, n)
    assert result["time_s"] == pytest.approx(time_s, rel=1e-6)
    assert result["cost"] == pytest.approx(cost, rel=1e-6)
    assert [(d["t"], d["workers"], d["cache"]) for d in result["decisions"]] == [(0, n, None)]


def test_linear_scaling(tmp_path):
    """Four workers alike: a fourth of the time, by hand."""
    result = simulate(
        tmp_path,
        workloads.table([400, 200, 400 / 3, 100], 50, epochs=2, max_workers=4, objective="time"),
        "fixed:4",
    )
    assert result["time_s"] == pytest.approx(200)
    assert result["cost"] == pytest.approx(200 / 3600 * (4.96 + 4 * 0.427319))


def test_the_oracle_is_the_best_of_all(tmp_path):
    for workload in (TABLE, MODEL, {**TABLE, "objective": "cost"}, {**MODEL, "objective": "time"}):
        result = simulate(tmp_path, workload, "oracle")
        time_s, cost = naive.best(workload)
        key, value = ("oracle_time_s", time_s) if workload["objective"] == "time" else ("oracle_cost", cost)
        assert result[key] == pytest.approx(value, rel=2e-4)
        assert result["regret"][workload["objective"]] == pytest.approx(0, abs=2e-4)


def test_random_workloads_against_the_naive_oracle(tmp_path):
    checked = 0
    for seed in range(500, 560):
        workload = workloads.random_workload(seed)
        if workload["max_workers"] > 64 or workload["epochs"] > 10:
            continue
        result = simulate(tmp_path, workload, "fixed:1")
        time_s, cost = naive.best(workload)
        key, value = ("oracle_time_s", time_s) if workload["objective"] == "time" else ("oracle_cost", cost)
        assert result[key] == pytest.approx(value, rel=1e-3), seed
        checked += 1
    assert checked > 10


@pytest.mark.parametrize("counts", [(1, 1, 1), (6, 4, 2), (3, 1, 2)])
def test_fixed_fills_all_pools(tmp_path, counts):
    workload = pools_like(POOLS, counts)
    result = simulate(tmp_path, workload, f"fixed:{sum(counts)}")
    time_s, cost = naive.play_pools(workload, counts)
    assert result["time_s"] == pytest.approx(time_s, rel=1e-6)
    assert result["cost"] == pytest.approx(cost, rel=1e-6)
    assert result["decisions"][0]["record"]["chosen"]["workers"] == dict(
        zip(("remote", "large", "training"), counts)
    )
    assert sum(p["cost"] for p in result["pools"].values()) == pytest.approx(cost - time_s / 3600 * 5)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_fixed_fills_the_cheapest_pool_first(tmp_path, n):
    """Per unit of work: training costs nothing, large a third of a dollar, remote 0.4."""
    chosen = simulate(tmp_path, POOLS, f"fixed:{n}")["decisions"][0]["record"]["chosen"]["workers"]
    assert chosen == {"training": min(n, 2), "large": max(0, min(n - 2, 4)), "remote": max(0, n - 6)}


@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (4, 3), (5, 2)])
def test_nested_table(tmp_path, counts):
    workload = pools_like(NESTED, counts)
    result = simulate(tmp_path, workload, f"fixed:{sum(counts)}")
    assert result["time_s"] == pytest.approx(naive.play_pools(workload, counts)[0], rel=1e-6)


@pytest.mark.parametrize(
    "workload",
    [POOLS, {**POOLS, "objective": "time"}, NESTED, {**NESTED, "objective": "cost"}],
    ids=["cost", "time", "table", "table cost"],
)
def test_the_oracle_is_the_best_of_all_vectors(tmp_path, workload):
    result = simulate(tmp_path, workload, "oracle")
    time_s, cost = naive.best_of_pools(workload)
    key, value = ("oracle_time_s", time_s) if workload["objective"] == "time" else ("oracle_cost", cost)
    assert result[key] == pytest.approx(value, rel=2e-4)


def test_random_pools_against_the_naive_oracle(tmp_path):
    """All vectors where there are few; where there are more the oracle's search is bounded, and misses
    little.
    """
    checked = 0
    for seed in range(400, 470):
        workload = workloads.random_pools(seed)
        if math.prod(p["max_workers"] + 1 for p in workload["pools"]) * workload["epochs"] > 12000:
            continue
        result = simulate(tmp_path, workload, "fixed:1")
        time_s, cost = naive.best_of_pools(workload)
        key, value = ("oracle_time_s", time_s) if workload["objective"] == "time" else ("oracle_cost", cost)
        assert value * (1 - 1e-3) < result[key] < value * 1.005, seed
        checked += 1
    assert checked > 20


def test_one_pool_is_as_without_pools(tmp_path):
    """A list of one pool says the same as the fields of the file."""
    workload = {key: value for key, value in MODEL.items() if key not in ("max_workers", "start_delay_s")}
    listed = {**workload, "pools": [{"name": "remote", "max_workers": 20, "start_delay_s": 5}]}
    assert run(tmp_path, listed, "--json").stdout == run(tmp_path, MODEL, "--json").stdout


def test_a_cheap_pool_is_filled_first_and_a_dear_one_if_needed(tmp_path):
    def chosen(need, **more):
        pools = [
            {"name": "dear", "price_per_h": 2, "max_workers": 50, "start_delay_s": 5},
            {"name": "cheap", "price_per_h": 0.2, "max_workers": 10, "start_delay_s": 5},
        ]
        workload = {
            "workload": 1,
            "epochs": 5,
            "batches_per_epoch": 5000,
            "client_step_s": 0.1,
            "price_per_h": {"client": 100},
            "pools": pools,
            "model": {"stages": [{"name": "decode", "cpu_s": 0.1 * need}]},
            **more,
        }
        last = simulate(tmp_path, workload)["decisions"][-1]
        return last["record"]["chosen"]["workers"], last["why"]

    for objective in ("time", "cost"):
        assert chosen(7, objective=objective)[0] == {"dear": 0, "cheap": 7}
        workers, why = chosen(16, objective=objective)
        assert workers == {"dear": 6, "cheap": 10}
        assert "6 of pool dear, 10 of pool cheap" in why and "cheap first: its computing costs least" in why


def test_what_is_there_soon_serves_a_short_job(tmp_path):
    """Where only time counts and the cheap pool's workers would come when the job is nearly over."""
    pools = [
        {"name": "slow", "price_per_h": 0.2, "max_workers": 50, "start_delay_s": 120},
        {"name": "soon", "price_per_h": 1, "max_workers": 50, "start_delay_s": 1},
    ]
    workload = {
        "workload": 1,
        "batches_per_epoch": 1500,
        "client_step_s": 0.1,
        "pools": pools,
        "model": {"stages": [{"name": "decode", "cpu_s": 1}]},
    }
    result = simulate(tmp_path, workload)
    chosen = result["decisions"][0]["record"]["chosen"]["workers"]
    assert chosen["slow"] == 0 and 10 <= chosen["soon"] <= 12
    assert "its workers start soonest" in result["decisions"][0]["why"]
    long = simulate(tmp_path, {**workload, "batches_per_epoch": 150000})
    assert long["decisions"][-1]["record"]["chosen"]["workers"] == {"slow": 10, "soon": 0}


def test_what_workers_are_worth_is_measured(tmp_path):
    """Both pools say that they give a CPU, but on one something else takes half of it."""
    pools = [
        {"name": "a", "price_per_h": 0.5, "max_workers": 4},
        {"name": "b", "price_per_h": 0.6, "max_workers": 60, "slowdown": 2},
    ]
    workload = {
        "workload": 1,
        "epochs": 5,
        "batches_per_epoch": 5000,
        "client_step_s": 0.1,
        "noise": 0.05,
        "pools": pools,
        "model": {"stages": [{"name": "decode", "cpu_s": 1.4}]},
    }
    result = simulate(tmp_path, workload)
    assert result["regret"]["time"] < 0.02
    assert result["decisions"][-1]["record"]["chosen"]["workers"]["a"] == 4
    assert 19 <= result["decisions"][-1]["record"]["chosen"]["workers"]["b"] <= 22
    assert len(result["decisions"]) <= 3


def test_two_jobs_share_each_pool(tmp_path):
    job = {
        "batches_per_epoch": 5000,
        "client_step_s": 0.01,
        "model": {"stages": [{"name": "decode", "cpu_s": 1}]},
    }
    workload = {
        "workload": 1,
        "pools": [{"name": "a", "max_workers": 12}, {"name": "b", "max_workers": 18}],
        "jobs": [{"name": "two", "weight": 2, **job}, {"name": "one", "weight": 1, **job}],
    }
    two, one = simulate(tmp_path, workload, "fixed:30")["jobs"]
    assert two["time_s"] == pytest.approx(250, rel=0.01)
    assert one["time_s"] == pytest.approx(250 + 2500 / 30, rel=0.02)
    workload["jobs"][0]["quota"] = 5  # of both pools together
    two, one = simulate(tmp_path, workload, "fixed:30")["jobs"]
    assert two["pools"]["a"]["worker_hours"] + two["pools"]["b"]["worker_hours"] == pytest.approx(
        5 * two["time_s"] / 3600, rel=0.01
    )


def test_noise_leaves_the_mean(tmp_path):
    workload = {**TABLE, "noise": 0.3, "batches_per_epoch": 1000}
    times = [simulate(tmp_path, {**workload, "seed": seed}, "fixed:4")["time_s"] for seed in range(20)]
    assert mean(times) == pytest.approx(naive.play(workload, 4)[0], rel=0.01)
    assert len(set(times)) == 20
    assert simulate(tmp_path, {**workload, "seed": 3}, "fixed:4")["time_s"] == times[3]


def test_equal_runs_are_equal(tmp_path):
    workload = {**MODEL, "noise": 0.2, "stragglers": {"part": 0.2, "slowdown": 3}, "failures": {"mtbf_s": 50}}
    assert run(tmp_path, workload, "--json").stdout == run(tmp_path, workload, "--json").stdout


def test_table_of_batches(tmp_path):
    workload = {**copy.deepcopy(TABLE), "table_unit": "batch_s"}
    workload["table"]["remote"] = {n: s / 100 for n, s in TABLE["table"]["remote"].items()}
    assert simulate(tmp_path, workload, "fixed:3")["time_s"] == pytest.approx(naive.play(TABLE, 3)[0])


def test_stragglers_and_failures_cost_time(tmp_path):
    base = {**MODEL, "batches_per_epoch": 5000}
    plain, slow, failing = (
        simulate(tmp_path, {**base, **more}, "fixed:8")["time_s"]
        for more in ({}, {"stragglers": {"part": 0.5, "slowdown": 4}}, {"failures": {"mtbf_s": 100}})
    )
    assert slow > 1.3 * plain
    assert 1.02 * plain < failing < 1.2 * plain


def test_two_jobs_share_by_weight(tmp_path):
    job = {
        "batches_per_epoch": 5000,
        "client_step_s": 0.01,
        "model": {"stages": [{"name": "decode", "cpu_s": 1}]},
    }
    workload = {
        "workload": 1,
        "max_workers": 30,
        "jobs": [{"name": "two", "weight": 2, **job}, {"name": "one", "weight": 1, **job}],
    }
    result = simulate(tmp_path, workload, "fixed:30")
    two, one = result["jobs"]
    assert two["time_s"] == pytest.approx(250, rel=0.01)  # 5,000 batches with 20 workers
    # half of them meanwhile, the rest with all 30
    assert one["time_s"] == pytest.approx(250 + 2500 / 30, rel=0.02)
    assert {d["job"] for d in result["decisions"]} == {"two", "one"}
    late = copy.deepcopy(workload)
    late["jobs"][1] |= {"arrive_s": 50, "priority": 1, "quota": 25}
    result = simulate(tmp_path, late, "fixed:30")
    assert result["jobs"][1]["time_s"] == pytest.approx(200, rel=0.02)
    assert result["jobs"][1]["arrived_s"] == 50
