"""cachew simulate, black box: workloads that are wrong, extreme or broken, and errors that name the field."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from deadlines import HANG_S  # noqa: E402
from example_data import CACHEW  # noqa: E402
from simulating import JOB, MODEL, NESTED, POOLS, TABLE, run, simulate  # noqa: E402


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
    ({"table": {}}, "table", "name of the pool"),
    ({"table": {"a": {"1": 1}, "b": {"1": 1}}}, "table", "name of the pool"),
    ({"table": {"remote": {}}}, "table.remote", "numbers of workers"),
    ({"table": {"remote": {"0": 5}}}, "table.remote.0", "a number of workers"),
    ({"table": {"remote": {"x": 5}}}, "table.remote.x", "a number of workers"),
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
    ({"pools": [{"name": "a"}]}, "table", "name of the pool"),
    ({"pools": [{"name": "remote"}, {"name": "b"}]}, "table.remote.1", "pool that is not above it"),
    (
        {"pools": [{"name": "a"}, {"name": "b"}], "table": {"a": {"0": {"c": {"1": 2}}}}},
        "table.a.0",
        "pool that is not above it",
    ),
    (
        {"pools": [{"name": "a"}, {"name": "b"}], "table": {"a": {"0": {"b": {"1": -2}}}}},
        "table.a.0.b.1",
        "at least 1e-15",
    ),
    (
        {"pools": [{"name": "a"}, {"name": "b"}], "table": {"a": {"1": {"b": {"0": 5, "1": 2}}}}},
        "table",
        "workers of each pool alone",
    ),
    (
        {"pools": [{"name": "a"}, {"name": "b"}], "table": {"a": {"0": {"a": {"1": 2}}}}},
        "table.a.0",
        "pool that is not above it",
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
    (
        {"table": None, "model": {"stages": TWICE}, "table_unit": "batch_s"},
        "table_unit",
        "only in a job with a table",
    ),
    (
        {"table": None, "model": {"stages": TWICE}, "worker_cpu_s": 1},
        "worker_cpu_s",
        "only in a job with a table",
    ),
    (
        {"changes": [{"at_batch": 5, "client_step_s": 1}, {"at_batch": 6}]},
        "changes[1]",
        "at least one more field besides at_batch",
    ),
    (
        {"changes": [{"at_batch": 5, "read_bytes_per_s": 1}]},
        "changes[0].read_bytes_per_s",
        "only in a job with a model",
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
