"""cachew simulate, black box: what the policies promise, and how close they come to the oracle."""

import sys
from pathlib import Path
from statistics import median

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import workloads  # noqa: E402
from simulating import simulate  # noqa: E402


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
    assert any(
        d["why"].startswith("the client waits for batches, which was not expected")
        for d in result["decisions"]
    )
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
