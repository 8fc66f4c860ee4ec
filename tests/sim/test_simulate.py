"""cachew simulate, black box: against a naive model, its errors, what it reports, and the promises of the
policies.
"""

import copy
import json
import math
import random
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from statistics import mean, median

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import naive  # noqa: E402
import workloads  # noqa: E402
from deadlines import HANG_S  # noqa: E402
from example_data import CACHEW  # noqa: E402

TABLE = {
    "workload": 1,
    "seed": 7,
    "epochs": 3,
    "batches_per_epoch": 100,
    "client_step_s": 0.5,
    "objective": "time",
    "price_per_h": {"client": 5, "worker": 0.4},
    "max_workers": 10,
    "start_delay_s": 20,
    "table": {"remote": {"1": 1000, "2": 500, "4": 250, "8": 130}},
}
MODEL = {
    "workload": 1,
    "epochs": 4,
    "batches_per_epoch": 200,
    "client_step_s": 0.1,
    "objective": "cost",
    "max_workers": 20,
    "start_delay_s": 5,
    "model": {
        "stages": [
            {"name": "read", "cpu_s": 0.1},
            {"name": "decode", "cpu_s": 0.8, "size_factor": 2, "keep": 0.5},
            {"name": "augment", "cpu_s": 0.2},
        ],
        "source_bytes_per_s": 1e9,
        "store": {"read_bytes_per_s": 2e9, "write_bytes_per_s": 1e8},
        "cache_markers": ["decode"],
    },
}
JOB = {"batches_per_epoch": 100, "model": {"stages": [{"name": "decode", "cpu_s": 1}]}}  # one of several


def run(folder, workload, *options):
    path = folder / "workload.json"
    path.write_text(workload if isinstance(workload, str) else json.dumps(workload))
    return subprocess.run(
        [CACHEW, "simulate", path, *options], capture_output=True, text=True, timeout=HANG_S
    )


def simulate(folder, workload, policy="auto", *options):
    done = run(folder, workload, "--policy", policy, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# ---- the model ----


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


# ---- several pools ----

POOLS = {
    "workload": 1,
    "epochs": 3,
    "batches_per_epoch": 300,
    "client_step_s": 0.1,
    "objective": "cost",
    "price_per_h": {"client": 5},
    "pools": [
        {"name": "remote", "price_per_h": 0.4, "max_workers": 6, "start_delay_s": 20},
        {"name": "large", "price_per_h": 1, "max_workers": 4, "start_delay_s": 3, "worker_cpus": 3},
        {
            "name": "training",
            "price_per_h": 0,
            "max_workers": 2,
            "worker_cpus": 0.5,
            "slowdown": 1.5,
        },
    ],
    "model": {"stages": [{"name": "read", "cpu_s": 0.2}, {"name": "decode", "cpu_s": 0.8}]},
}
NESTED = {
    "workload": 1,
    "epochs": 2,
    "batches_per_epoch": 100,
    "objective": "time",
    "price_per_h": {"client": 5},
    "pools": [
        {"name": "remote", "price_per_h": 0.4, "max_workers": 5},
        {"name": "training", "price_per_h": 0, "max_workers": 3, "start_delay_s": 40},
    ],
    "table": {
        "remote": {
            "0": {"training": {"1": 300, "2": 200}},
            "1": {"training": {"0": 200, "2": 90}},
            "4": {"training": {"0": 60, "3": 35}},
        }
    },
}


def pools_like(workload, counts):
    """The same with these counts as the only ones that there are: what `fixed` takes then is known."""
    return {**workload, "pools": [{**p, "max_workers": n} for p, n in zip(workload["pools"], counts)]}


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
        assert "6 of dear, 10 of cheap" in why and "cheap first: its computing costs least" in why


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


# ---- what it says ----


def test_output(tmp_path):
    result = simulate(tmp_path, MODEL)
    assert set(result) == {
        "policy",
        "time_s",
        "cost",
        "oracle_time_s",
        "oracle_cost",
        "regret",
        "settled_at_s",
        "decisions",
        "waiting",
        "worker_hours",
        "pools",
    }
    assert result["decisions"]
    for decision in result["decisions"]:
        assert {"t", "workers", "cache", "why"} <= set(decision)
        record = decision["record"]
        assert record["chosen"]["workers"] == {"remote": decision["workers"]}
        assert record["chosen"]["cache"] == decision["cache"]
        assert record["why"] == decision["why"]
        assert all(a["time_s"] > 0 and a["cost"] > 0 for a in record["alternatives"])
    assert result["settled_at_s"] == result["decisions"][-1]["t"]


def test_the_only_pool_is_in_the_result(tmp_path):
    """What docs/simulator.md lists was there with several pools only."""
    for workload, name in (
        (MODEL, "remote"),
        ({**TABLE, "table": {"here": TABLE["table"]["remote"]}}, "here"),
    ):
        result = simulate(tmp_path, workload)
        price = workload.get("price_per_h", {}).get("worker", workloads.WORKER)
        assert result["pools"] == {
            name: {
                "worker_hours": pytest.approx(result["worker_hours"]),
                "cost": pytest.approx(result["worker_hours"] * price),
            }
        }
    jobs = simulate(tmp_path, {"workload": 1, "jobs": [{"name": "a", **JOB}, {"name": "b", **JOB}]})["jobs"]
    assert [set(job["pools"]) for job in jobs] == [{"remote"}] * 2


def test_fixed_says_what_was_asked_for(tmp_path):
    """It said that so many were asked for as there are, or as were this job's share."""

    def why(workload, policy):
        return [d["why"] for d in simulate(tmp_path, workload, policy)["decisions"]]

    assert why({**TABLE, "max_workers": 16}, "fixed:500") == ["500 were asked for, this job may have 16 now"]
    assert why({**TABLE, "max_workers": 16}, "fixed:16") == ["16 were asked for"]
    assert why(TABLE, "fixed:1") == ["1 was asked for"]
    jobs = [{"name": "two", "weight": 2, **JOB}, {"name": "one", **JOB}]
    assert {f"9 were asked for, this job may have {n} now" for n in (6, 3)} <= set(
        why({"workload": 1, "max_workers": 9, "jobs": jobs}, "fixed:9")
    )


def test_text_and_picture(tmp_path):
    picture = tmp_path / "out.svg"
    workload = {**TABLE, "table": {"a<b&": TABLE["table"]["remote"]}}
    done = run(tmp_path, workload, "--plot", picture)
    assert done.returncode == 0
    assert "decisions:" in done.stdout
    root = xml.etree.ElementTree.parse(picture).getroot()
    marks = [e for e in root.iter() if e.get("class") == "decision"]
    assert len(marks) == len(simulate(tmp_path, workload)["decisions"])
    assert run(tmp_path, workload, "--plot", tmp_path / "no" / "where.svg").returncode != 0


WRONG = [
    ({"workload": 2}, "workload", "workload is 2: expected 1"),
    ({"workload": None}, "workload", "is missing: expected 1"),
    ({"batches_per_epoch": None}, "batches_per_epoch", "is missing: expected a number of at least 0.01"),
    (
        {"seed": 2**70},
        "seed",
        "seed is 1.1805916207174113e+21: expected a whole number of at least 0 and at most 9007199254740992",
    ),
    (
        {
            "table": None,
            "model": {"stages": [{"name": "a"}], "cache_markers": [0]},
            "changes": [{"at_batch": 2**70}],
        },
        "changes[0].at_batch",
        "at most 1e+15",
    ),
    ({"batches_per_epoch": 0}, "batches_per_epoch", "at least 0.01"),
    ({"batches_per_epoch": "many"}, "batches_per_epoch", "a number"),
    ({"epochs": 1.5}, "epochs", "whole number"),
    ({"lump_s": -1}, "lump_s", "lump_s is -1: expected a number of at least 0"),
    ({"noise": -0.1}, "noise", "noise is -0.1: expected a number of at least 0"),
    ({"objective": "speed"}, "objective", '"time" or "cost"'),
    ({"max_workers": 0}, "max_workers", "at least 1"),
    ({"max_worker": 3}, "max_worker", "max_workers"),
    ({"price_per_h": {"worker": -1}}, "price_per_h.worker", "at least 0"),
    ({"price_per_h": {"workers": 1}}, "price_per_h.workers", "worker"),
    ({"price_per_h": 3}, "price_per_h", "an object"),
    ({"table": {}}, "table", "one pool"),
    ({"table": {"a": {"1": 1}, "b": {"1": 1}}}, "table", "one pool"),
    ({"table": {"remote": {}}}, "table.remote", "counts of workers"),
    ({"table": {"remote": {"0": 5}}}, "table.remote.0", "a count of workers"),
    ({"table": {"remote": {"x": 5}}}, "table.remote.x", "a count of workers"),
    ({"table": {"remote": {"1": 0}}}, "table.remote.1", "at least 1e-15 and at most 1e15, in seconds"),
    ({"table": {"remote": {"1": 1e308}}}, "table.remote.1", "at least 1e-15 and at most 1e15, in seconds"),
    ({"table": {"remote": {"1": 5, "01": 6}}}, "table.remote", "once"),
    ({"table_unit": "hours"}, "table_unit", "batch_s"),
    ({"model": {"stages": []}}, "table", "a table or a model, not both"),
    ({"table": None, "model": {"stages": []}}, "model.stages", "1 to 1000 stages"),
    (
        {"table": None, "model": {"stages": [{"cpu_s": 1}]}},
        "model.stages[0].name",
        "is missing: expected a string",
    ),
    (
        {"table": None, "model": {"stages": [{"name": "a", "keep": 0}]}},
        "model.stages[0].keep",
        "at least 1e-09",
    ),
    (
        {"table": None, "model": {"stages": [{"name": "a", "keep": 1e-300}]}},
        "model.stages[0].keep",
        "at least 1e-09 and at most 1",
    ),
    (
        {
            "table": None,
            "model": {"stages": [{"name": "a", "keep": 1e-5}, {"name": "b"}, {"name": "c", "keep": 1e-6}]},
        },
        "model.stages[0].keep",
        "1e-09 of the elements",
    ),
    (
        {"table": None, "model": {"stages": [{"name": "a"}, {"name": "b", "cpu_s": 1e15, "keep": 0.5}]}},
        "model.stages[1].cpu_s",
        "at most 1e15 s",
    ),
    (
        {
            "table": None,
            "model": {"stages": [{"name": "a", "size_factor": 1e6}, {"name": "b", "size_factor": 1e6}]},
        },
        "model.stages[1].size_factor",
        "at most 1e15 bytes",
    ),
    (
        {"table": None, "model": {"stages": [{"name": "a"}], "source_bytes_per_s": 1e-300}},
        "model.source_bytes_per_s",
        "at least 1e-15",
    ),
    ({"worker_cpus": 1e-300}, "worker_cpus", "at least 1e-15"),
    (
        {"table": None, "model": {"stages": [{"name": "a"}], "cache_markers": ["b"]}},
        "model.cache_markers[0]",
        'the name of one stage, of "a", or its number from 0 to 0',
    ),
    (
        {"table": None, "model": {"stages": [{"name": "a"}], "store": {"read_bytes_per_s": 0}}},
        "model.store.read_bytes_per_s",
        "at least 1e-15",
    ),
    ({"table": None}, "table", "a table, or a model"),
    (
        {"changes": [{"client_step_s": 1}]},
        "changes[0].at_batch",
        "is missing: expected a number of at least 1e-15",
    ),
    (
        {"changes": [{"at_batch": 9, "client_step_s": 1}, {"at_batch": 5, "client_step_s": 2}]},
        "changes[1].at_batch",
        "more than 9",
    ),
    (
        {"changes": [{"at_batch": 1e15, "client_step_s": 1}, {"at_batch": 1e15, "client_step_s": 2}]},
        "changes[1].at_batch",
        "a number of more than 1e+15",
    ),
    ({"stragglers": {"part": 2, "slowdown": 2}}, "stragglers.part", "at most 1"),
    ({"failures": {}}, "failures.mtbf_s", "is missing: expected a number of"),
    ({"jobs": []}, "jobs", "1 to 64 jobs"),
    ({"pools": []}, "pools", "1 to 5 pools"),
    ({"pools": {"name": "a"}}, "pools", "1 to 5 pools"),
    ({"pools": [{"price_per_h": 1}]}, "pools[0].name", "is missing: expected a string that is not empty"),
    ({"pools": [{"name": ""}]}, "pools[0].name", "not empty"),
    ({"pools": [{"name": "a"}, {"name": "a"}]}, "pools[1].name", "no other pool"),
    ({"pools": [{"name": "a"}, {"name": "b", "max_workers": 0}]}, "pools[1].max_workers", "at least 1"),
    ({"pools": [{"name": "a", "worker_cpu": 2}]}, "pools[0].worker_cpu", "worker_cpus"),
    ({"pools": [{"name": "a"}]}, "table", "one pool"),
    ({"pools": [{"name": "remote"}, {"name": "b"}]}, "table.remote.1", "axis of one more of the pools"),
    (
        {"pools": [{"name": "a"}, {"name": "b"}], "table": {"a": {"0": {"c": {"1": 2}}}}},
        "table.a.0",
        "axis of one more of the pools",
    ),
    (
        {"pools": [{"name": "a"}, {"name": "b"}], "table": {"a": {"0": {"b": {"1": -2}}}}},
        "table.a.0.b.1",
        "at least 1e-15",
    ),
    (
        {"pools": [{"name": "a"}, {"name": "b"}], "table": {"a": {"1": {"b": {"0": 5, "1": 2}}}}},
        "table",
        "without workers of other pools",
    ),
    (
        {"pools": [{"name": "a"}, {"name": "b"}], "table": {"a": {"0": {"a": {"1": 2}}}}},
        "table.a.0",
        "axis of one more of the pools",
    ),
    ({"jobs": [{"name": "a"}]}, "epochs", 'inside each of "jobs"'),
]
TWICE = [{"name": "a"}, {"name": "b"}, {"name": "b"}]
WRONG += [  # all of this was taken, and said nothing
    (
        {"table": None, "model": {"stages": TWICE, "cache_markers": ["a", "a"]}},
        "model.cache_markers[1]",
        "each stage at most once",
    ),
    (
        {"table": None, "model": {"stages": TWICE, "cache_markers": [1, 0, 1]}},
        "model.cache_markers[2]",
        "each stage at most once",
    ),
    (
        {"table": None, "model": {"stages": TWICE, "cache_markers": ["a", "b"]}},
        "model.cache_markers[1]",
        "the number of the stage, from 0, since several stages have this name",
    ),
    ({"table": None, "model": {"stages": TWICE}, "table_unit": "batch_s"}, "table_unit", "only with a table"),
    ({"table": None, "model": {"stages": TWICE}, "worker_cpu_s": 1}, "worker_cpu_s", "only with a table"),
    (
        {"changes": [{"at_batch": 5, "client_step_s": 1}, {"at_batch": 6}]},
        "changes[1]",
        "at least one field that changes",
    ),
    (
        {"changes": [{"at_batch": 5, "read_bytes_per_s": 1}]},
        "changes[0].read_bytes_per_s",
        "only with a model",
    ),
    (
        {
            **dict.fromkeys(TABLE),
            "workload": 1,
            "jobs": [{"name": "a", **JOB}, {"name": "b", **JOB}, {"name": "a", **JOB}],
        },
        "jobs[2].name",
        "a name that no other job has",
    ),
]


@pytest.mark.parametrize(
    ("change", "attribute", "expected"), WRONG, ids=[f"{w[1]} {i}" for i, w in enumerate(WRONG)]
)
def test_errors_name_the_field(tmp_path, change, attribute, expected):
    workload = {key: value for key, value in {**TABLE, **change}.items() if value is not None}
    done = run(tmp_path, workload, "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    assert error["attribute"] == attribute
    assert expected in error["message"], error


@pytest.mark.large(keep=0)
@pytest.mark.parametrize(
    ("change", "attribute", "expected"),
    [
        ({"epochs": 1000000, "max_workers": 100}, "epochs", "less"),
        ({"failures": {"mtbf_s": 0.001}, "batches_per_epoch": 1e9}, "failures.mtbf_s", "more"),
        (
            {
                "epochs": 1000,
                "max_workers": 100000,
                "changes": [{"at_batch": i + 1, "client_step_s": 1} for i in range(100)],
            },
            "max_workers",
            "less",
        ),
        (
            {
                "epochs": 1000,
                "max_workers": 1000,
                "changes": [{"at_batch": i + 1, "client_step_s": 1} for i in range(100)],
            },
            "changes",
            "less",
        ),
    ],
)
def test_a_workload_that_would_take_minutes_is_refused(tmp_path, change, attribute, expected):
    """Each of its fields is allowed."""
    done = run(tmp_path, {**MODEL, **change}, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["kind"], error["attribute"], error["expected"]) == (
        2,
        "pipeline",
        attribute,
        expected,
    )


@pytest.mark.large
def test_a_workload_that_would_take_minutes_names_its_file(tmp_path):
    """It named the field alone."""
    done = run(tmp_path, {**TABLE, "failures": {"mtbf_s": 0.001}, "batches_per_epoch": 1e9})
    assert done.returncode == 2 and f"(file {tmp_path / 'workload.json'})" in done.stderr


def test_a_number_out_of_range_is_valid_json(tmp_path):
    """It was said to be none."""
    done = run(tmp_path, json.dumps(TABLE).replace('"seed": 7', '"seed": 1e400'))
    assert done.returncode == 2 and "a number out of range: line 1, column" in done.stderr


def test_what_is_odd_but_means_something_is_taken(tmp_path):
    """Two stages of one name where no cache point names them, a cache point by number, a change beyond the
    job's end, changes of a model without a cache.
    """
    two = {**MODEL, "model": {"stages": [{"name": "map", "cpu_s": 0.1}, {"name": "map", "cpu_s": 0.2}]}}
    plain = simulate(tmp_path, two)
    assert (
        simulate(
            tmp_path, {**two, "changes": [{"at_batch": 800, "client_step_s": 9, "read_bytes_per_s": 5}]}
        )["time_s"]
        == plain["time_s"]
    )
    for cache_point in (1, 1.0):
        assert simulate(tmp_path, {**two, "model": {**two["model"], "cache_markers": [cache_point]}})[
            "decisions"
        ]


def test_other_errors(tmp_path):
    assert run(tmp_path, "{").returncode == 2
    assert run(tmp_path, "[]").returncode == 2
    assert run(tmp_path, "").returncode == 2
    done = run(tmp_path, TABLE, "--policy", "hpaa")
    assert done.returncode == 2 and "did you mean hpa" in done.stderr
    done = subprocess.run(
        [CACHEW, "simulate", tmp_path / "absent.json"], capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 2 and "absent.json" in done.stderr


@pytest.mark.parametrize("policy", ["fixed:0", "fixed:", "fixed", "fixd:3", "fixed:1000001"])
def test_what_is_suggested_for_a_policy_is_one(tmp_path, policy):
    """It was `fixed:`, which needs a number that nothing told the range of."""
    for words in (["simulate", tmp_path / "absent.json"], ["dispatcher"]):
        done = subprocess.run(
            [CACHEW, *words, "--policy", policy], capture_output=True, text=True, timeout=HANG_S
        )
        assert (
            done.returncode == 2
            and "fixed:N (N from 1 to 1000000)" in done.stderr
            and "did you mean" not in done.stderr
        )


def test_a_picture_that_cannot_be_written_is_an_argument_that_is_wrong(tmp_path):
    """It was code 1, as if the data had failed."""
    for path in (tmp_path / "absent" / "a.svg", tmp_path):
        done = run(tmp_path, TABLE, "--plot", path, "--json")
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["kind"]) == (2, "option") and error["file"] == str(path)


EXTREMES = {
    "batches_per_epoch": [0.01, 1e12],
    "epochs": [1, 1e6],
    "client_step_s": [0, 1e15],
    "noise": [0, 10],
    "lump_s": [0, 1e6],
    "start_delay_s": [0, 1e6],
    "max_workers": [1, 100],
    "worker_cpus": [1e-15, 1e6],
}
EXTREME_STAGES = {"cpu_s": [0, 1e-15, 1e15], "size_factor": [0, 1e6], "keep": [1e-9, 1]}
EXTREME_MODEL = {"source_bytes_per_s": [1e-15, 1e15], "source_batch_bytes": [0, 1e15]}


@pytest.mark.large
def test_numbers_at_their_bounds_give_a_result_or_name_the_field(tmp_path):
    """They gave "out of memory", where numbers that are none came of them."""
    for seed in range(40):
        r = random.Random(seed)

        def some(fields, r=r):
            return {name: r.choice(values) for name, values in fields.items() if r.random() < 0.4}

        workload = {
            "workload": 1,
            "batches_per_epoch": 100,
            "objective": r.choice(["time", "cost"]),
            "max_workers": 20,
            **some(EXTREMES),
        }
        if r.random() < 0.5:
            workload["table"] = {"remote": {str(n): r.choice([1e-15, 1, 1e15]) for n in (1, 2, 20)}}
        else:
            rate = [1e-15, 1e15]
            workload["model"] = {
                "stages": [{"name": "a", **some(EXTREME_STAGES)}, {"name": "b", **some(EXTREME_STAGES)}],
                "cache_markers": ["a"],
                "store": {"read_bytes_per_s": r.choice(rate), "write_bytes_per_s": r.choice(rate)},
                **some(EXTREME_MODEL),
            }
        done = run(
            tmp_path, workload, "--json", "--policy", r.choice(["auto", "cachew-atc22", "hpa", "fixed:3"])
        )
        told = json.loads(done.stdout)
        assert done.returncode == 0 or (done.returncode == 2 and told["error"]["attribute"]), (workload, told)


def test_broken_files_end_in_errors(tmp_path):
    """Bytes changed at random: a result or an error that says what is wrong, never anything else."""
    texts = [json.dumps({**MODEL, "epochs": 1}), json.dumps(POOLS), json.dumps(NESTED)]
    draw = random.Random(1)
    codes = set()
    for i in range(90):
        broken = list(texts[i % 3])
        for _ in range(draw.randint(1, 3)):
            broken[draw.randrange(len(broken))] = draw.choice('0129-.eE{}[]",:x')
        done = run(tmp_path, "".join(broken), "--json")
        assert done.returncode in (0, 2), done.stderr
        codes.add(done.returncode)
    assert 2 in codes


def test_thousands_of_workers_and_weeks(tmp_path):
    workload = {
        "workload": 1,
        "epochs": 90,
        "batches_per_epoch": 100000,
        "client_step_s": 0.3,
        "noise": 0.3,
        "max_workers": 5000,
        "start_delay_s": 120,
        "model": {"stages": [{"name": "decode", "cpu_s": 600}]},
    }
    result = simulate(tmp_path, workload)
    assert result["time_s"] > 30 * 86400
    assert result["regret"]["time"] < 0.05


# ---- what the policies promise ----


def test_demand_that_changes(tmp_path):
    workload = {
        "workload": 1,
        "seed": 3,
        "epochs": 10,
        "batches_per_epoch": 20000,
        "client_step_s": 0.1,
        "noise": 0.2,
        "start_delay_s": 10,
        "max_workers": 64,
        "objective": "time",
        "model": {"stages": [{"name": "decode", "cpu_s": 0.8}]},
        "changes": [{"at_batch": 60000, "client_step_s": 0.05}, {"at_batch": 120000, "client_step_s": 0.2}],
    }
    result = simulate(tmp_path, workload)
    assert result["regret"]["time"] < 0.02
    at = {d["t"]: d["workers"] for d in result["decisions"]}
    for begin, end, right in ((0, 6000, 8), (6000, 9000, 16), (9000, 1e9, 4)):
        made = [workers for t, workers in at.items() if begin <= t < end]
        assert 1 <= len(made) <= 3
        assert right <= made[-1] <= right + 1


def test_epochs_shorter_than_a_start(tmp_path):
    """Workers that start in one epoch serve those behind it, too: the cache is full after the first, and
    nothing else changes.
    """
    workload = {
        "workload": 1,
        "seed": 1,
        "epochs": 90,
        "batches_per_epoch": 395,
        "client_step_s": 0.012,
        "objective": "cost",
        "noise": 0.02,
        "start_delay_s": 120,
        "max_workers": 64,
        "model": {
            "stages": [{"name": "decode", "cpu_s": 0.25}, {"name": "augment", "cpu_s": 0.064}],
            "store": {"read_bytes_per_s": 1e10, "write_bytes_per_s": 3e9},
            "cache_markers": ["decode"],
        },
    }
    result = simulate(tmp_path, workload)
    assert result["regret"]["cost"] < 0.15
    assert 2 <= result["decisions"][-1]["workers"] <= 8


def test_a_full_cache_says_nothing_of_computing(tmp_path):
    """With all of the work cached, the interval is the cache's: taken for what computing takes, cache points
    and numbers of workers went back and forth.
    """
    workload = {
        "workload": 1,
        "seed": 7000760,
        "epochs": 10,
        "batches_per_epoch": 91,
        "client_step_s": 0.028,
        "objective": "cost",
        "noise": 0.2,
        "start_delay_s": 10,
        "max_workers": 8,
        "model": {
            "stages": [
                {"name": "read", "cpu_s": 2.68, "keep": 0.214},
                {"name": "decode", "cpu_s": 1.52, "size_factor": 6.933},
            ],
            "source_bytes_per_s": 1.29e9,
            "store": {"read_bytes_per_s": 5.6e9, "write_bytes_per_s": 2.1e9},
            "cache_markers": ["read", "decode"],
        },
    }
    result = simulate(tmp_path, workload)
    assert result["regret"]["cost"] < 0.15
    assert len(result["decisions"]) <= 3


def test_a_cache_relieves_the_source(tmp_path):
    """A worker waits for the source nearly all of its time. With all of that cached only computing is left:
    scaled like computing, waiting asked for more workers.
    """
    workload = {
        "workload": 1,
        "seed": 50077,
        "epochs": 10,
        "batches_per_epoch": 168,
        "client_step_s": 0.10717,
        "objective": "cost",
        "noise": 0.02,
        "start_delay_s": 30,
        "price_per_h": {"client": 0.303, "worker": 1.721},
        "max_workers": 50,
        "model": {
            "stages": [
                {"name": "resize", "cpu_s": 0.003837},
                {"name": "decode", "cpu_s": 0.02432},
                {"name": "filter", "cpu_s": 0.002919, "size_factor": 0.559, "keep": 0.14},
                {"name": "augment", "cpu_s": 0.024326, "size_factor": 2.791},
            ],
            "source_bytes_per_s": 62157381,
            "store": {"read_bytes_per_s": 329501474, "write_bytes_per_s": 91998670},
            "cache_markers": ["filter"],
        },
    }
    result = simulate(tmp_path, workload)
    assert result["regret"]["cost"] < 0.05
    assert result["decisions"][-1]["workers"] == 1


def test_a_cache_that_fills_slowly(tmp_path):
    """A little more can be read in each epoch, and a worker less would do in each: it is not told to go
    in each.
    """
    workload = {
        "workload": 1,
        "seed": 9900154,
        "epochs": 10,
        "batches_per_epoch": 3789,
        "client_step_s": 0.02316,
        "objective": "time",
        "noise": 0.02,
        "start_delay_s": 10,
        "max_workers": 32,
        "model": {
            "stages": [
                {"name": "read", "cpu_s": 0.006623},
                {"name": "resize", "cpu_s": 0.004695, "size_factor": 0.638},
                {"name": "augment", "cpu_s": 0.029762, "keep": 0.352},
                {"name": "decode", "cpu_s": 0.078014},
                {"name": "batch", "cpu_s": 0.038624},
            ],
            "store": {"read_bytes_per_s": 2165122107, "write_bytes_per_s": 110071290},
            "cache_markers": ["augment", "decode"],
        },
    }
    result = simulate(tmp_path, workload)
    assert result["regret"]["time"] < 0.05
    assert len(result["decisions"]) <= 3


def test_a_start_that_lasts_for_epochs(tmp_path):
    """Workers come after some epochs only, whatever cache point is looked at: taken to be there with the next
    epoch, another cache point seemed worth to begin anew.
    """
    workload = {
        "workload": 1,
        "seed": 50022,
        "epochs": 20,
        "batches_per_epoch": 66,
        "client_step_s": 0.04192,
        "objective": "cost",
        "noise": 0.1,
        "start_delay_s": 120,
        "max_workers": 8,
        "model": {
            "stages": [
                {"name": "augment", "cpu_s": 0.0427, "size_factor": 0.498},
                {"name": "decode", "cpu_s": 0.0534, "size_factor": 0.116},
                {"name": "tokenize", "cpu_s": 0.0109, "size_factor": 0.123},
                {"name": "batch", "cpu_s": 0.0768, "keep": 0.495},
            ],
            "source_bytes_per_s": 4.35e9,
            "store": {"read_bytes_per_s": 6e8, "write_bytes_per_s": 1.8e8},
            "cache_markers": ["decode", "tokenize"],
        },
    }
    result = simulate(tmp_path, workload)
    assert result["regret"]["cost"] < 0.1
    assert len({d["cache"] for d in result["decisions"]}) == 1


def test_noise_is_no_change(tmp_path):
    """For hours nothing changes but by chance. A few slow batches were taken for a change, again and again:
    reports are thousands, and tails long.
    """
    curve = {n: max(48034.6 / n, 15548.7) for n in range(1, 41)}
    for seed in (12340558, 0, 1, 2, 3):
        workload = workloads.table(
            curve,
            2953,
            epochs=5,
            seed=seed,
            client_step_s=0.6269,
            objective="cost",
            noise=0.233,
            start_delay_s=30,
            max_workers=68,
        )
        assert len(simulate(tmp_path, workload)["decisions"]) <= 3, seed


def test_work_in_lumps_is_no_reason_to_stay(tmp_path):
    """Work of two minutes at a time: until then the client seems to be the limit, and is served no longer.
    What was decided by that was final, while it waited most of the time.
    """
    workload = {
        "workload": 1,
        "epochs": 1,
        "batches_per_epoch": 40000,
        "client_step_s": 0.1,
        "noise": 0.1,
        "lump_s": 120,
        "max_workers": 32,
        "start_delay_s": 5,
        "model": {"stages": [{"name": "tokenize", "cpu_s": 0.4}]},
        "changes": [{"at_batch": 15000, "client_step_s": 0.05}],
    }
    result = simulate(tmp_path, workload)
    assert result["waiting"] < 0.1 and result["decisions"][-1]["workers"] >= 8
    assert any(d["why"].startswith("the client waits, which was not expected") for d in result["decisions"])
    for d in result["decisions"]:
        seen = d["record"]["seen"]
        assert seen["limit"] != "client" or seen["wait_s"] <= 0.021 * seen["step_s"], d


def test_a_few_batches_that_happen_to_be_alike_are_no_measure(tmp_path):
    """Thirty batches scattered by chance less than all others did; beside what came then conditions seemed
    to have changed, and all began anew.
    """
    for workload in (
        workloads.random_curve(1432),
        workloads.random_job(2000329),
        workloads.random_pools(2000329),
    ):
        decisions = simulate(tmp_path, workload)["decisions"]
        assert sum(d["why"].startswith("measured:") for d in decisions) == 1, [d["why"] for d in decisions]


@pytest.mark.parametrize("most", [64, 200])
@pytest.mark.parametrize("last_s", [30, 150])
def test_workers_far_apart_in_a_table(tmp_path, most, last_s):
    """Between two counts that lie far apart time falls by the same for each worker, so the last ones gain
    the most: it stopped on the way, at nine times the time.
    """
    result = simulate(
        tmp_path,
        workloads.table(
            {1: 2000, 2: 1000, most: last_s}, 1000, epochs=10, client_step_s=0.05, noise=0.1, start_delay_s=10
        ),
    )
    assert result["regret"]["time"] < 0.15
    assert len(result["decisions"]) <= 3


def test_what_workers_are_worth_is_no_other_maximum(tmp_path):
    """All of three pools were taken; each report told a little better what that is worth, and that seemed to
    be more than there had been: it went from cache point to cache point.
    """
    for seed in (2000452, 2000581, 2000792, 2001333):
        assert len(simulate(tmp_path, workloads.random_pools(seed))["decisions"]) <= 3, seed


def judge(tmp_path, cases):
    regrets, decisions = [], []
    for name, workload in cases.items():
        result = simulate(tmp_path, workload)
        regrets.append((result["regret"][workload["objective"]], name))
        decisions.append((len(result["decisions"]), name))
    return regrets, decisions


@pytest.mark.parametrize("kind", ["published", "modelled"])
def test_close_to_the_oracle(tmp_path, kind):
    regrets, decisions = judge(tmp_path, getattr(workloads, kind)())
    assert median(r for r, _ in regrets) < 0.05
    assert max(regrets)[0] < 0.15, max(regrets)
    assert max(decisions)[0] <= 3, max(decisions)


@pytest.mark.large
def test_close_to_the_oracle_on_workloads_that_nobody_saw(tmp_path):
    """Of random workloads some can't be won: these are few. bench/policies.py prints the distribution."""
    regrets, decisions = judge(
        tmp_path, {seed: workloads.random_workload(seed) for seed in range(9000, 9080)}
    )
    assert median(r for r, _ in regrets) < 0.05
    assert sum(r < 0.15 for r, _ in regrets) >= 77, sorted(regrets)[-5:]
    assert sum(n <= 3 for n, _ in decisions) >= 74, sorted(decisions)[-8:]


@pytest.mark.large
def test_close_to_the_oracle_on_jobs_of_every_length(tmp_path):
    """As above. Where a job is over a few seconds after the first report nobody can win, so these don't
    count.
    """
    regrets, decisions = judge(tmp_path, {seed: workloads.random_job(seed) for seed in range(9000, 9080)})
    assert median(r for r, _ in regrets) < 0.05
    assert sum(r < 0.15 for r, _ in regrets) >= 77, sorted(regrets)[-5:]
    assert sum(n <= 3 for n, _ in decisions) >= 78, sorted(decisions)[-8:]


@pytest.mark.large
def test_close_to_the_oracle_on_tables_with_gaps_knees_and_steps_back(tmp_path):
    """What lies in a gap nobody can know from a few counts, so more of these can't be won: docs/policies.md
    has what they cost.
    """
    regrets, decisions = judge(tmp_path, {seed: workloads.random_curve(seed) for seed in range(9000, 9100)})
    assert median(r for r, _ in regrets) < 0.05
    assert sum(r < 0.15 for r, _ in regrets) >= 86, sorted(regrets)[-14:]
    assert sum(n <= 3 for n, _ in decisions) >= 97, sorted(decisions)[-8:]


@pytest.mark.large
def test_close_to_the_oracle_with_several_pools(tmp_path):
    regrets, decisions = judge(tmp_path, {seed: workloads.random_pools(seed) for seed in range(9000, 9060)})
    assert median(r for r, _ in regrets) < 0.05
    assert max(regrets)[0] < 0.15, sorted(regrets)[-5:]
    assert max(decisions)[0] <= 3, sorted(decisions)[-8:]


def test_better_than_what_was_published(tmp_path):
    """On each published curve at most as far from the oracle as the published policies, but for a part in
    twenty.
    """
    for name, workload in workloads.published().items():
        objective = workload["objective"]
        ours, *theirs = (
            simulate(tmp_path, workload, policy)["regret"][objective]
            for policy in ("auto", "cachew-atc22", "cachew-atc22-code", "hpa")
        )
        assert ours <= min(theirs) + 0.05, name
