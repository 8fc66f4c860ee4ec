"""cachew simulate, black box: what it prints, and the picture that it draws."""

import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import workloads  # noqa: E402
from simulating import JOB, MODEL, TABLE, run, simulate  # noqa: E402


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
        "settled_cost",
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

    assert why({**TABLE, "max_workers": 16}, "fixed:500") == [
        "500 workers were requested by the policy fixed:N, but this job may have only 16 now"
    ]
    assert why({**TABLE, "max_workers": 16}, "fixed:16") == [
        "16 workers were requested by the policy fixed:N"
    ]
    assert why(TABLE, "fixed:1") == ["1 worker was requested by the policy fixed:N"]
    jobs = [{"name": "two", "weight": 2, **JOB}, {"name": "one", **JOB}]
    assert {
        f"9 workers were requested by the policy fixed:N, but this job may have only {n} now" for n in (6, 3)
    } <= set(why({"workload": 1, "max_workers": 9, "jobs": jobs}, "fixed:9"))


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
