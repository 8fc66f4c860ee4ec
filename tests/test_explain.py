"""`cachew explain`: what it names as the bottleneck, what it predicts, and what it tries. Costs are modelled
(src/base/cost_clock.h): they are those that a pipeline states, and what limits it follows from them alone.
Predictions are compared with arithmetic on the costs that it tells."""

import json
import math
import os
import re
import signal
import subprocess

import pytest
from caches import MODELLED, REAL
from command import BATCH, SHUFFLE, cachew, need_test_build, range_chain, run, write
from deadlines import HANG_S
from example_data import CACHEW, EXAMPLES, FEWER, ROOT

RUN_S = 0.6
LIMITS = ["threads", "cpus", "storage", "consumer", "planning"]
SYNTHETIC = {"op": "synthetic", "count": 100000, "shape": [16], "fill": "none"}


def told_costs(**us):
    """An element costs so many microseconds in these operators."""
    return {"CACHEW_CLOCK": ",".join(["modelled", *(f"{op}={cost}" for op, cost in us.items())])}


def explain(path, *words, run_s=RUN_S, code=0, env=MODELLED):
    need_test_build()
    ran = cachew("explain", path, "--json", "--run", run_s, *words, env=env)
    assert ran.code == code, (ran.code, ran.out[-2000:], ran.err[-2000:])
    return ran.json


def explained(tmp_path, chain, *words, **options):
    return explain(write(tmp_path / "p.json", chain), *words, **options)


# ---- the model once more, naively ----


def limits(costs):
    occupied = sum(costs["parts"].values()) + sum(
        (s["cpu_s"] + s["wait_s"] + s["delay_s"]) * s["rows"] for s in costs["stages"]
    )
    storage = costs["storage"]
    return {
        "threads": costs["threads"] / occupied,
        "cpus": costs["cpus"] / costs["cpu_s"],
        "storage": storage["had_bytes_per_s"] / storage["cold_bytes_per_element"]
        if storage["had_bytes_per_s"]
        else math.inf,
        "consumer": min(
            1 / (costs["consumer_s"] + costs["calls_s"])
            if costs["consumer_s"] + costs["calls_s"]
            else math.inf,
            costs["taken_per_s"] or math.inf,
        ),
        "planning": 1 / costs["parts"]["planning_s"] if costs["parts"]["planning_s"] else math.inf,
    }


def predict(costs, then):
    return costs["elements_per_s"] * min(limits(then).values()) / min(limits(costs).values())


def work(costs):
    return (
        costs["parts"]["reading_s"]
        + costs["parts"]["copying_s"]
        + sum((s["cpu_s"] + s["wait_s"] + s["delay_s"]) * s["rows"] for s in costs["stages"])
    )


def with_cache(told, at_position, bytes_each):
    costs = json.loads(json.dumps(told["costs"]))
    speed = told["cache_speed"]
    behind = [s for s in costs["stages"] if s["position"] > at_position]
    before = [s for s in costs["stages"] if s["position"] <= at_position]
    rows = behind[0]["rows"] if behind else 1
    read = rows * (speed["entry_s"] + bytes_each * speed["byte_s"])
    was_read, was_scheduling = costs["parts"]["reading_s"], costs["parts"]["scheduling_s"]
    costs["parts"]["reading_s"] = read
    costs["storage"]["had_bytes_per_s"] = None
    costs["stages"] = behind
    part = min(work(costs) / work(told["costs"]), 1)
    costs["parts"]["scheduling_s"] = was_scheduling * part
    costs["parts"]["delay_s"] *= part
    parts = told["costs"]["parts"]
    scheduling_cpu = told["costs"]["cpu_s"] - sum(s["cpu_s"] * s["rows"] for s in told["costs"]["stages"])
    scheduling_cpu -= (
        parts["reading_s"] + parts["copying_s"] + parts["planning_s"] + told["costs"]["consumer_s"]
    )
    costs["cpu_s"] = max(
        costs["cpu_s"]
        - sum(s["cpu_s"] * s["rows"] for s in before)
        + read
        - was_read
        - max(scheduling_cpu, 0) * (1 - part),
        read,
    )
    return predict(told["costs"], costs)


def near(got, expected, part=0.02):
    assert abs(got - expected) <= part * expected, (got, expected)


def of_kind(told, kind):
    return [r for r in told["remedies"] if r["kind"] == kind]


# ---- the bottleneck ----

CPU = [
    ("synthetic", [{**SYNTHETIC, "cost_us": 1000}, BATCH]),
    ("assign", [SYNTHETIC, {"op": "assign", "set": {"data": "data + 1"}}, BATCH]),
    (
        "resize",
        [
            {**SYNTHETIC, "shape": [8, 8, 3], "dtype": "uint8"},
            {"op": "resize", "component": "data", "size": [16, 16]},
            {"op": "center_crop", "component": "data", "size": [8, 8]},
            BATCH,
        ],
    ),
]


@pytest.mark.parametrize(("op", "chain"), CPU, ids=[op for op, _ in CPU])
def test_names_the_operator_that_computes(tmp_path, op, chain):
    told = explained(tmp_path, chain, "--no-optimize", env=told_costs(assign=1000, resize=1000))
    assert (told["bottleneck"]["kind"], told["bottleneck"]["op"]) == ("cpu", op)
    assert told["bottleneck"]["op"] in told["bottleneck"]["says"]


def test_names_the_operator_that_waits(tmp_path):
    told = explained(tmp_path, [SYNTHETIC, {"op": "delay", "us": 10000}, BATCH])
    assert (told["bottleneck"]["kind"], told["bottleneck"]["op"]) == ("waiting", "delay")
    threads = of_kind(told, "threads")[0]
    assert (
        threads["here"]
        and threads["change"]["option"] == "threads"
        and threads["change"]["value"] > told["run"]["threads"]
    )


@pytest.mark.large
def test_names_who_takes_the_batches(tmp_path):
    """And that it is so: as fast as batches are made, there are many more of them."""
    told = explained(
        tmp_path, range_chain(100000, SHUFFLE, BATCH), "--limit-rate", 2000, "--check", "--seconds", 0.3
    )
    assert told["bottleneck"]["kind"] == "consumer"
    near(told["costs"]["limits"]["consumer"], told["run"]["elements_per_s"], 0.15)
    (remedy,) = told["remedies"]
    assert (
        remedy["kind"] == "consumer"
        and remedy["here"]
        and remedy["change"] == {"option": "limit-rate", "value": 0}
    )
    near(
        remedy["elements_per_s"],
        predict(told["costs"], {**told["costs"], "consumer_s": 0, "taken_per_s": None}),
    )
    unchanged, tried, after = told["checks"]
    near(unchanged["measured"], 2000, 0.15)
    near(after["measured"], 2000, 0.15)
    assert tried["kind"] == "consumer" and tried["measured"] > 10 * unchanged["measured"]


def test_a_rate_that_a_batch_would_take_years_for_is_refused(tmp_path):
    """It did not end: the first batch was waited for as long as its elements take."""
    path = write(tmp_path / "p.json", range_chain(1000, BATCH))
    for rate in ("1e-9", "1"):
        error = explain(path, "--limit-rate", rate, run_s=0.5, code=2)["error"]
        assert (error["kind"], error["attribute"], float(error["value"])) == (
            "option",
            "limit-rate",
            float(rate),
        )
        assert "at least" in error["expected"] and "batch of" in error["expected"]


def test_tells_that_threads_wait_for_memory(tmp_path):
    """That this limits the rate is a matter of time: tests/unit/test_explain.c."""
    chain = [
        {"op": "synthetic", "count": 4000, "shape": [1 << 18], "dtype": "uint8", "fill": "none"},
        {"op": "delay", "us": 20000},
        BATCH,
    ]
    path = write(tmp_path / "p.json", chain)
    smallest = max(int(n) for n in re.findall(r"\d{7,}", cachew("explain", path, "--memory", "1M").err))
    # 8 elements fill the one batch for which there is room
    told = explain(path, "--memory", smallest, "--threads", 24, env=REAL)
    assert told["costs"]["parts"]["memory_s"] > 0
    for remedy in of_kind(told, "memory"):  # none, where others use the CPUs
        assert remedy["change"] == {"option": "memory", "value": 2 * smallest}


def test_names_elements_that_wait_for_others(tmp_path):
    """One in many waits long, and the others are done long before."""
    chain = range_chain(
        1 << 20,
        {"op": "delay", "us": 30000, "where": "value % 64 == 0"},
        {"op": "filter", "where": "value >= 0"},
        {"op": "skip", "count": 1 << 10},
        BATCH,
    )
    told = explained(tmp_path, chain, "--threads", 4)
    assert told["bottleneck"]["kind"] == "waiting" and told["sequential"]
    assert told["run"]["advice"][-1].startswith("with this pipeline, a service runs each epoch on one worker")


@pytest.mark.large
def test_tells_what_storage_gives(tmp_path):
    """What is not in memory is read by other threads; a file system may keep everything there."""
    records = tmp_path / "lines.txt"
    with records.open("wb") as f:
        for _ in range(400):
            f.write(b"x" * (1 << 14) + b"\n")
        f.flush()
        os.fsync(f.fileno())
    path = write(
        tmp_path / "p.json",
        [{"op": "text", "files": "lines.txt"}, {"op": "assign", "set": {"n": "1"}}, BATCH],
    )
    cachew("explain", path, "--run", 0)  # the index is made
    with records.open("rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    storage = explain(path, "--threads", 2)["costs"]["storage"]
    near(storage["bytes_per_element"], 1 << 14, 0.05)
    assert (storage["had_bytes_per_s"] is None) == (storage["cold_bytes_per_element"] == 0)
    assert 0 <= storage["cold_bytes_per_element"] <= storage["bytes_per_element"] * 1.01


@pytest.fixture
def throttled(tmp_path, monkeypatch):
    """How fast files are for sources: throttled(bytes per second)."""
    need_test_build()
    monkeypatch.setenv("CACHEW_FILES", str(tmp_path / "speed"))
    return lambda bytes_per_s: (tmp_path / "speed").write_text(f"{bytes_per_s:.0f} 0")


@pytest.mark.large
def test_names_storage_and_is_right(tmp_path, throttled):
    """Files give so many bytes, and computing could do with far more. Twice the speed is what it says, and a
    cache elsewhere what it tries.
    """
    size, speed = 1 << 12, 8e6
    (tmp_path / "lines.txt").write_bytes((b"x" * size + b"\n") * 2000)
    path = write(
        tmp_path / "p.json",
        [{"op": "text", "files": "lines.txt"}, {"op": "assign", "set": {"n": "1"}}, BATCH],
    )
    throttled(speed)
    told = explain(path, "--check", "--seconds", 1, run_s=30)
    assert told["bottleneck"]["kind"] == "storage" and told["costs"]["limit"] == "storage"
    near(told["costs"]["storage"]["had_bytes_per_s"], speed, 0.1)
    near(told["run"]["elements_per_s"], speed / size, 0.1)
    storage = of_kind(told, "storage")[0]
    near(storage["elements_per_s"], 2 * told["run"]["elements_per_s"], 0.1)
    assert not storage["here"] and "change" not in storage
    cached = next(c for c in told["checks"] if c["kind"] == "cache")
    assert (
        cached["hits"] == 1
        and min(cached["measured"], cached["predicted"]) > 4 * told["run"]["elements_per_s"]
    )
    throttled(2 * speed)  # what it said of storage, done
    near(explain(path, run_s=30)["run"]["elements_per_s"], storage["elements_per_s"], 0.15)


# ---- what it predicts ----


def test_costs_are_those_of_the_operators(tmp_path):
    told = explained(
        tmp_path, [{**SYNTHETIC, "shape": [], "cost_us": 1500}, {"op": "filter", "where": "data == 0"}, BATCH]
    )
    source = told["costs"]["stages"][0]
    near(source["cpu_s"], 1500e-6, 0.15)  # CPU time, which others can't take
    near(source["rows"], 1, 0.15)
    assert source["bytes"] == 4


def test_rows_are_those_that_come_to_an_operator(tmp_path):
    chain = range_chain(
        1 << 22,
        {"op": "assign", "set": {"x": "value % 4"}},
        {"op": "filter", "where": "x == 0"},
        {"op": "assign", "set": {"y": "value + 1"}},
        BATCH,
    )
    told = explained(tmp_path, chain, "--no-optimize")
    rows = {s["position"]: s["rows"] for s in told["costs"]["stages"]}
    for position, expected in {0: 4, 1: 4, 2: 4, 3: 1}.items():
        near(rows[position], expected, 0.1)
    for stage in told["costs"]["stages"]:
        near(stage["elements_per_s"], stage["rows"] * told["costs"]["elements_per_s"])
    bytes_behind = {s["position"]: s["bytes"] for s in told["costs"]["stages"]}
    assert bytes_behind == {0: 8, 1: 16, 2: 16, 3: 24}


@pytest.mark.large
def test_what_varies_is_measured(tmp_path):
    lines = ["x" * (100 + 50 * (k % 3)) for k in range(3000)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    told = explained(tmp_path, [{"op": "text", "files": "lines.txt"}, SHUFFLE, BATCH], run_s=0.2)
    near(told["costs"]["stages"][0]["bytes"], sum(map(len, lines)) / len(lines), 0.15)


def test_limits_and_predictions_follow_from_the_costs(tmp_path):
    chain = [
        {**SYNTHETIC, "cost_us": 800},
        {"op": "delay", "us": 300},
        {"op": "assign", "set": {"data": "data + 1"}},
        BATCH,
    ]
    told = explained(tmp_path, chain, "--threads", 1)
    costs = told["costs"]
    ours = limits(costs)
    for name in LIMITS:
        if costs["limits"][name] is not None:
            near(costs["limits"][name], ours[name])
    assert costs["limit"] == min(ours, key=ours.get)
    for remedy in of_kind(told, "threads"):
        near(remedy["elements_per_s"], predict(costs, {**costs, "threads": remedy["change"]["value"]}))
    caches = of_kind(told, "cache")
    assert caches
    for remedy in caches:
        stage = [s for s in costs["stages"] if s["position"] < remedy["change"]["at"]][-1]
        near(remedy["elements_per_s"], with_cache(told, stage["position"], stage["bytes"]))
        near(remedy["bytes"], 64 * 100000)
    for remedy in told["remedies"]:
        assert (
            remedy["low"] <= remedy["elements_per_s"] * 1.0001
            and remedy["high"] >= remedy["elements_per_s"] * 0.9999
        )
        near(1 + remedy["gain"], remedy["elements_per_s"] / costs["elements_per_s"])
        assert remedy["gain"] >= 0.03
    rates = [r["elements_per_s"] for r in told["remedies"]]
    assert rates == sorted(rates, reverse=True)


def test_a_cache_behind_what_is_dear(tmp_path):
    burn = {"op": "synthetic", "count": 100000, "shape": [16], "cost_us": 1000}
    path = write(tmp_path / "p.json", [burn, {"op": "autocache"}, {"op": "delay", "us": 1}, BATCH])
    told = explain(path, "--threads", 1)
    remedy = next(r for r in of_kind(told, "cache") if "option" in r["change"])
    assert remedy["change"] == {"option": "cache", "value": 0} and remedy["here"]
    near(remedy["elements_per_s"], with_cache(told, 0, 64))


# ---- other orders ----

ORDERS = {
    "filter": (
        range_chain(
            3000,
            {"op": "assign", "set": {"x": "exp(log(value + 1.0) * 0.5)"}},
            {"op": "delay", "us": 200},
            {"op": "filter", "where": "value % 5 == 0"},
            SHUFFLE,
            BATCH,
        ),
        {"move": 3, "to": 1},
    ),
    "crop": (
        [
            {"op": "synthetic", "count": 400, "shape": [256, 256, 3], "dtype": "uint8"},
            {"op": "normalize", "component": "data", "mean": [1, 2, 3], "std": [4, 5, 6]},
            {"op": "random_crop", "component": "data", "size": [32, 32]},
            {"op": "random_flip", "component": "data"},
            SHUFFLE,
            BATCH,
        ],
        {"move": 2, "to": 1},
    ),
}


@pytest.mark.large
@pytest.mark.parametrize("name", ORDERS)
def test_another_order_has_the_same_batches(tmp_path, name):
    chain, change = ORDERS[name]
    unfilled = [{**op, "fill": "none"} if op["op"] == "synthetic" else op for op in chain]
    told = explained(tmp_path, unfilled, "--no-optimize", env=told_costs(normalize=100))
    assert [r["change"] for r in of_kind(told, "order")] == [change]
    moved = [op for k, op in enumerate(chain) if k != change["move"]]
    moved.insert(change["to"], chain[change["move"]])
    words = ["--digest", "--operator-order", "written"]
    digests = [run(write(tmp_path / "q.json", c), *words)["digest"] for c in (chain, moved)]
    assert digests[0] == digests[1]


# ---- trying it ----


@pytest.mark.large
def test_tries_what_can_be_tried(tmp_path):
    burn = {"op": "synthetic", "count": 3000, "cost_us": 200}
    chain = [burn, {"op": "delay", "us": 300}, {"op": "filter", "where": "data < 0.5"}, BATCH]
    words = ["--seconds", 0.3, "--threads", 1, "--cache-dir", tmp_path, "--operator-order", "written"]
    told = explained(tmp_path, chain, "--check", *words)
    checks = told["checks"]
    tried = [r for r in told["remedies"] if r["here"]]
    assert [c["what"] for c in checks] == [
        "the unchanged pipeline",
        *[r["what"] for r in tried],
        "the unchanged pipeline",
    ]
    as_it_is = (checks[0]["measured"] + checks[-1]["measured"]) / 2
    for check, remedy in zip(checks[1:-1], tried):
        near(1 + check["gain"], check["measured"] / as_it_is)
        near(1 + check["predicted_gain"], 1 + remedy["gain"])
    assert {"threads", "cache", "order"} <= {c["kind"] for c in checks}
    for check in checks:
        assert "failed" not in check and check["measured"] > 0 and check["predicted"] > 0
        near(1 + check["error"], check["measured"] / check["predicted"])
        assert check.get("hits", 1) == 1  # all came from the cache
    assert {p.name for p in tmp_path.iterdir()} == {"p.json"}  # nothing is left of the caches


@pytest.mark.large
def test_a_cache_point_that_is_there_is_tried(tmp_path):
    chain = [
        {"op": "synthetic", "count": 2000, "shape": [8, 8, 3], "dtype": "uint8", "cost_us": 500},
        SHUFFLE,
        {"op": "autocache"},
        {"op": "random_flip", "component": "data"},
        {"op": "autocache"},
        BATCH,
    ]
    told = explained(tmp_path, chain, "--check", "--seconds", 0.3, "--cache-dir", tmp_path)
    assert [m["number"] for m in told["cache_points"] if "inert" in m] == [1]
    assert [r["change"] for r in of_kind(told, "cache")] == [{"option": "cache", "value": 0}]
    assert [c["hits"] for c in told["checks"] if c["kind"] == "cache"] == [1]


STOPS = 12  # more than the segments of caches that are published before a remedy is tried


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(tmp_path, number):
    """While there is a directory for what is tried; and what was known before stays said. It stops whenever
    it is about to publish a segment, first of caches that measure how fast they are, then of a cache that is
    tried."""
    need_test_build()
    caches, out = tmp_path / "caches", tmp_path / "out"
    caches.mkdir()
    path = write(tmp_path / "p.json", [{**SYNTHETIC, "cost_us": 500}, {"op": "delay", "us": 100}, BATCH])
    words = [
        "--run",
        "0.3",
        "--check",
        "--seconds",
        "2",
        "--threads",
        "1",
        "--wait",
        "0",
        "--cache-dir",
        caches,
    ]
    crash = ",".join(f"cache-publish:{n}:stop" for n in range(1, STOPS + 1))
    with out.open("w") as printed:
        explaining = subprocess.Popen(
            [CACHEW, "explain", path, *words],
            stdout=printed,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **MODELLED, "CACHEW_CRASH": crash},
        )
    try:
        for _ in range(STOPS):
            stopped = os.waitid(os.P_PID, explaining.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert stopped.si_code == os.CLD_STOPPED, explaining.communicate(timeout=HANG_S)
            os.waitid(os.P_PID, explaining.pid, os.WSTOPPED)
            if "remedies" in out.read_text():  # then trials begin
                break
            explaining.send_signal(signal.SIGCONT)
        assert list(caches.iterdir())
        explaining.send_signal(number)
        explaining.send_signal(signal.SIGCONT)
        _, err = explaining.communicate(timeout=HANG_S)
    finally:
        explaining.kill()
    assert explaining.returncode == 128 + number and number.name in err
    assert list(caches.iterdir()) == []
    assert any(line.startswith("bottleneck: synthetic") for line in out.read_text().splitlines())


def test_options_that_make_no_sense(tmp_path):
    path = write(tmp_path / "p.json", range_chain(10, BATCH))
    for words, attribute in ((["--check", "--run", 0], "run"), (["--check", "--seconds", 0], "seconds")):
        ran = cachew("explain", path, "--json", *words)
        assert ran.code == 2 and ran.error["attribute"] == attribute


def test_where_there_is_no_room_for_a_cache_nothing_is_said_of_it(tmp_path):
    told = explained(
        tmp_path,
        [{**SYNTHETIC, "cost_us": 500}, {"op": "delay", "us": 10}, BATCH],
        "--cache-dir",
        "/nowhere/at/all",
    )
    assert of_kind(told, "cache") == [] and "/nowhere/at/all" in told["cache_speed"]["unknown"]
    assert (
        "how fast a cache would be is not known: "
        in cachew("explain", tmp_path / "p.json", "--run", 0.2, "--cache-dir", "/nowhere/at/all").out
    )


# ---- what it prints ----

STAGE = {
    "op": str,
    "position": int,
    "elements_per_s": float,
    "rows": float,
    "cpu_s": float,
    "wait_s": float,
    "delay_s": float,
    "bytes": float,
}
REMEDY = {
    "kind": str,
    "what": str,
    "here": bool,
    "elements_per_s": float,
    "gain": float,
    "low": float,
    "high": float,
    "change": dict,
}
BOTTLENECK = {"kind": str, "share": float, "says": str, "op": str, "position": int}
CHECK = {"kind": str, "what": str, "seconds": float, "predicted": float, "measured": float, "error": float}
COSTS = {
    "elements_per_s": float,
    "threads": int,
    "cpus": float,
    "thread_s": float,
    "cpu_s": float,
    "delay_s": float,
    "consumer_s": float,
    "calls_s": float,
    "taken_per_s": (float, type(None)),
    "stages": list,
    "parts": dict,
    "storage": dict,
    "limits": dict,
    "limit": str,
}


def has(o, schema, *more):
    assert set(o) - set(more) == set(schema)
    for key, kind in schema.items():
        assert isinstance(o[key], kind), (key, o[key])


@pytest.mark.large
def test_the_schema(tmp_path):
    told = explained(
        tmp_path,
        [{**SYNTHETIC, "cost_us": 500}, {"op": "delay", "us": 100}, BATCH],
        "--check",
        "--seconds",
        0.2,
        "--threads",
        1,
    )
    assert {"run", "costs", "bottleneck", "remedies", "checks", "cache_speed", "tuning"} <= set(told)
    has(told["costs"], COSTS)
    assert set(told["costs"]["limits"]) == set(LIMITS)
    assert set(told["costs"]["parts"]) == {
        "reading_s",
        "planning_s",
        "copying_s",
        "scheduling_s",
        "memory_s",
        "order_s",
        "delay_s",
    }
    assert set(told["costs"]["storage"]) == {
        "bytes_per_element",
        "cold_bytes_per_element",
        "needed_bytes_per_s",
        "had_bytes_per_s",
    }
    for stage in told["costs"]["stages"]:
        has(stage, STAGE, "fused_into", "alone_s", "call_s")
    for remedy in told["remedies"]:
        has(remedy, REMEDY, "bytes")
    has(told["bottleneck"], BOTTLENECK)
    for check in told["checks"]:
        has(check, CHECK, "hits", "gain", "predicted_gain")


def test_says_how_much_is_padding(tmp_path):
    # batches of strings of 1 and 3 numbers: 2 of 6 numbers are padding, and none of n and value
    chain = range_chain(
        1 << 12,
        {"op": "assign", "set": {"n": "1 + 2 * (value % 2)"}},
        {"op": "bucket_by_length", "length": "n", "boundaries": [9], "sizes": [2, 2]},
    )
    told = explained(tmp_path, chain, run_s=0.2)
    assert told["run"]["padding_bytes"] == 0
    (tmp_path / "rows.jsonl").write_text('{"t": [1]}\n{"t": [1, 2, 3]}\n' * 500)
    feature = {"dtype": "int32", "variable": True}
    chain = [
        {"op": "jsonl", "files": "rows.jsonl", "features": {"t": feature}},
        {"op": "bucket_by_length", "length": "length(t)", "boundaries": [9], "sizes": [2, 2]},
    ]
    run = explained(tmp_path, chain, run_s=0.2)["run"]
    assert run["padding_bytes"] * 3 == run["bytes"] > 0


def test_the_text(tmp_path):
    path = write(tmp_path / "p.json", [{**SYNTHETIC, "cost_us": 1000}, {"op": "delay", "us": 100}, BATCH])
    ran = cachew("explain", path, "--run", RUN_S, "--threads", 1, "--check", "--seconds", 0.2, env=MODELLED)
    assert ran.code == 0 and ran.err == ""
    assert ran.out.startswith("bottleneck: synthetic (operator 0): ")  # first what matters
    said = re.sub(r"[\d.]+", "#", ran.out)
    for line in (
        "an element costs:",
        r"  operator                   elements/s     CPU us   waits us   size after",
        "  files: # bytes per element, # bytes/s at this rate",
        "bottleneck: synthetic (operator #): it computes for # % of the threads' time",
        "remedies, and the rate with each (now # elements/s):",
        "remedies tried, each for # s:",
    ):
        assert line in said, said
    assert re.search(
        r"^ +# \(# to #\)  autocache after (synthetic|delay) \(operator #\): # (bytes|[kMG]B) for all "
        r"elements$",
        said,
        re.MULTILINE,
    ), said
    assert re.search(r"^ +# +# +[+-]#%  the unchanged pipeline$", said, re.MULTILINE), said


# ---- what it sets by itself ----


def tuned(rows, what):
    """The record of this name, whose form is that of decisions."""
    (record,) = [row["record"] for row in rows if row["what"] == what]
    assert set(record) == {"seen", "alternatives", "chosen", "why"} and set(record["chosen"]) == {what}
    assert record["why"] and all(set(a) == {what, "by"} for a in record["alternatives"])
    return record


def test_says_what_it_set_by_itself(tmp_path):
    chain = [{**SYNTHETIC, "shape": [1024], "cost_us": 50}, SHUFFLE, {"op": "batch", "size": 64}]
    told = explained(tmp_path, chain, "--threads", 2, "--memory", "64M")["tuning"]
    # threads and memory are ours
    assert {row["what"] for row in told} == {"batches_under_way", "blocks_in_flight", "block_rows"}
    assert told[0]["t"] == 0 and all(row["t"] >= 0 and row["times"] >= 1 for row in told)
    rows = tuned(told, "block_rows")
    by = {a["by"]: a["block_rows"] for a in rows["alternatives"]}
    assert rows["seen"]["row_bytes"] >= 4096 and by["core_cache"] == (256 << 10) // rows["seen"]["row_bytes"]
    assert by["time"] == max(500000 // round(rows["seen"]["row_s"] * 1e9), 1) and rows["chosen"][
        "block_rows"
    ] == min(by.values())
    assert tuned(told, "blocks_in_flight")["chosen"]["blocks_in_flight"] == 8
    batches = tuned(told, "batches_under_way")
    by = {a["by"]: a["batches_under_way"] for a in batches["alternatives"]}
    assert (
        batches["chosen"]["batches_under_way"] == min(max(by["threads"], by["output"]), by["memory"])
        and by["threads"] == 6
    )


def test_says_what_the_machine_gave(tmp_path):
    told = run(write(tmp_path / "p.json", range_chain(1000, BATCH)))["tuning"]
    threads = tuned(told, "threads")
    assert threads["chosen"]["threads"] == threads["seen"]["cpus"] <= len(os.sched_getaffinity(0))
    memory = tuned(told, "memory_bytes")
    half = pytest.approx(memory["seen"]["memory_total_bytes"] / 2, rel=1e-7)  # as many digits are said
    assert memory["chosen"]["memory_bytes"] == memory["alternatives"][0]["memory_bytes"] == half


LAUNCHERS = {
    "torchrun": ({"LOCAL_WORLD_SIZE": "4"}, "LOCAL_WORLD_SIZE", 4),
    "Open MPI": ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "OMPI_COMM_WORLD_LOCAL_SIZE", 2),
    "MPICH": ({"MPI_LOCALNRANKS": "8"}, "MPI_LOCALNRANKS", 8),
    "srun, node 0": (
        {"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "0", "SLURM_CPUS_ON_NODE": "64"},
        "SLURM_STEP_TASKS_PER_NODE",
        4,
    ),
    "srun, node 2": (
        {"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2", "SLURM_CPUS_ON_NODE": "3"},
        "SLURM_STEP_TASKS_PER_NODE",
        3,
    ),
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_of_a_host_share_it(tmp_path, launcher):
    env, variable, ranks = LAUNCHERS[launcher]
    pipeline = write(tmp_path / "p.json", range_chain(1000, BATCH))
    ran = cachew("run", pipeline, "--json", env=env)
    assert ran.code == 0, ran.err
    threads, memory = (tuned(ran.json["tuning"], what) for what in ("threads", "memory_bytes"))
    assert threads["seen"][variable] == memory["seen"][variable] == ranks
    cpus = int(env.get("SLURM_CPUS_ON_NODE", threads["seen"]["cpus"]))
    assert threads["chosen"]["threads"] == max(min(cpus // ranks, threads["seen"]["cpus"]), 1)
    part = memory["seen"]["memory_total_bytes"] / 2 / ranks
    assert memory["chosen"]["memory_bytes"] == pytest.approx(part, rel=1e-7)


@pytest.mark.parametrize("value", ["", "0", "-1", "many", "4 5", "100000", "99999999999999999999"])
def test_an_odd_number_of_ranks_is_ignored(tmp_path, value):
    pipeline = write(tmp_path / "p.json", range_chain(1000, BATCH))
    env = {"LOCAL_WORLD_SIZE": value, "SLURM_STEP_TASKS_PER_NODE": value, "SLURM_NODEID": value}
    ran = cachew("run", pipeline, "--json", env=env)
    assert ran.code == 0, ran.err
    assert set(tuned(ran.json["tuning"], "threads")["seen"]) == {"cpus"}


def test_says_that_files_are_not_in_memory(tmp_path, throttled):
    (tmp_path / "lines.txt").write_bytes((b"x" * 1000 + b"\n") * 3000)
    throttled(1e7)
    told = run(write(tmp_path / "p.json", [{"op": "text", "files": "lines.txt"}, BATCH]), "--threads", 1)[
        "tuning"
    ]
    assert tuned(told, "blocks_in_flight")["chosen"]["blocks_in_flight"] == 68
    assert next(row["times"] for row in told if row["what"] == "blocks_in_flight") == 2


# ---- records in random order ----

SMALL = [{"op": "text", "files": "lines.txt"}, {"op": "shuffle"}, BATCH]


@pytest.fixture
def slow_disk(tmp_path, monkeypatch):
    """40,000 records of 200 bytes on a disk with 150 reads/s of 5 ms; what was read is in memory
    afterwards.
    """
    need_test_build()
    monkeypatch.setenv("CACHEW_FILES", str(tmp_path / "speed"))
    (tmp_path / "lines.txt").write_bytes((b"x" * 199 + b"\n") * 40000)
    (tmp_path / "speed").write_text("4e6 0 150 0.005 1")
    return write(tmp_path / "p.json", SMALL)


def test_predicts_what_a_shuffle_by_chunk_gains(slow_disk, monkeypatch):
    monkeypatch.setenv("CACHEW_MUTATE", "no_page_cache")
    told = explain(slow_disk, run_s=0)["reading"]
    assert told["absent"] == 1 and told["record_bytes"] == 199 and not told["fits_in_memory"]
    near(told["records_per_s"], 149, 0.1)
    near(told["chunked_records_per_s"], 1024 / (1 / 150 + 1024 * 200 / 4e6), 0.1)
    assert re.fullmatch(
        r'shuffle by record reads 150 records/s here; by="chunk" would read about '
        r"1[5-9],000/s \(0.2 kB records, 6.7 ms a read\)",
        told["says"],
    )
    assert told["says"] in cachew("explain", slow_disk, "--run", 0, env=MODELLED).out


def test_a_run_says_what_a_shuffle_by_chunk_gains(slow_disk, monkeypatch):
    monkeypatch.setenv("CACHEW_MUTATE", "no_page_cache")
    ran = cachew("run", slow_disk, "--batches", 1, env=MODELLED)
    assert ran.err.count("shuffle by record reads ") == 1


def test_says_nothing_of_files_that_are_read_in(slow_disk):
    assert "says" not in explain(slow_disk, run_s=0)["reading"]
    assert "shuffle by record reads " not in cachew("run", slow_disk, "--batches", 1, env=MODELLED).err


def test_says_nothing_of_files_in_memory(tmp_path):
    (tmp_path / "lines.txt").write_bytes((b"x" * 199 + b"\n") * 4000)
    told = explain(write(tmp_path / "p.json", SMALL), run_s=0)
    # a file system may not tell what is in memory
    assert "reading" not in told or told["reading"]["absent"] > 0


def test_says_why_files_are_not_read_in(slow_disk, monkeypatch):
    monkeypatch.setenv("CACHEW_MUTATE", "no_page_cache")
    told = tuned(run(slow_disk, "--batches", 1, env=MODELLED)["tuning"], "read_in_bytes")
    assert told["chosen"]["read_in_bytes"] == 0 and told["why"].endswith("memory has no room for them")
    assert {"by": "memory", "read_in_bytes": 0} in told["alternatives"]


# ---- its page ----

PAGE = (ROOT / "docs" / "explain.md").read_text()


@pytest.mark.large(keep=0)
@pytest.mark.parametrize("command", re.findall(r"^    \$ cachew (.*)$", PAGE, re.MULTILINE))
def test_the_commands_of_its_page(examples, command):
    ran = cachew(*command.split(), cwd=examples.parent.parent)
    assert ran.code == 0 and "bottleneck: " in ran.out and "tried, each for " in ran.out, (ran.out, ran.err)


@pytest.mark.large
def test_its_page_knows_what_there_is(tmp_path):
    """Each part of a table of the page that is made here."""
    told = explained(
        tmp_path,
        [{**SYNTHETIC, "cost_us": 500}, {"op": "delay", "us": 100}, BATCH],
        "--check",
        "--seconds",
        0.2,
        "--threads",
        1,
    )
    known = set(re.findall(r"`([^`]+)`", "".join(line for line in PAGE.splitlines() if line.startswith("|"))))
    assert {row["what"] for row in told["tuning"]} | set(LIMITS) | {
        r["kind"] for r in told["remedies"]
    } | set(told["costs"]) | set(told["costs"]["parts"]) <= known


# ---- whatever the pipeline ----


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example(examples, name):
    fewer = [word for setting in FEWER.get(name, []) for word in ("--set", setting)]
    told = explain(examples / f"{name}.json", "--check", "--seconds", 0.1, *fewer, run_s=0.3, env=REAL)
    assert told["costs"]["stages"] and told["bottleneck"]["says"]
    assert [c for c in told["checks"] if "failed" in c] == []


ODD = {
    "endless": [
        {**SYNTHETIC, "count": 40, "cost_us": 200},
        {"op": "repeat", "count": -1},
        {"op": "shuffle"},
        BATCH,
    ],
    "no batch": [{**SYNTHETIC, "cost_us": 200}],
    "concat": [
        {
            "op": "concat",
            "inputs": [[{**SYNTHETIC, "cost_us": 200}, {"op": "autocache"}], [{**SYNTHETIC, "count": 50}]],
        },
        {"op": "delay", "us": 50},
        BATCH,
    ],
    "all dropped but few": range_chain(
        1 << 20, {"op": "delay", "us": 1}, {"op": "filter", "where": "value % 1000 == 0"}, BATCH
    ),
    "tiny": range_chain(3, {"op": "delay", "us": 100}, BATCH),
    "two cache points": [
        {**SYNTHETIC, "count": 500, "cost_us": 100},
        {"op": "cache"},
        {"op": "delay", "us": 100},
        {"op": "autocache"},
        BATCH,
    ],
    "counting": range_chain(
        5000,
        {"op": "filter", "where": "value % 2 == 0"},
        {"op": "take", "count": 900},
        {"op": "delay", "us": 50},
        BATCH,
    ),
}


@pytest.mark.large
@pytest.mark.parametrize("name", ODD)
def test_odd_pipelines(tmp_path, name):
    told = explained(tmp_path, ODD[name], "--check", "--seconds", 0.1, run_s=0.3, env=REAL)
    assert told["costs"]["stages"] and told["bottleneck"]["says"]
    assert [c for c in told["checks"] if "failed" in c] == []


def test_what_can_not_be_measured(tmp_path):
    for chain, said in (
        (range_chain(0, BATCH), "no elements"),
        (range_chain(9, {"op": "filter", "where": "value > 9"}, BATCH), "no batches"),
    ):
        assert said in explained(tmp_path, chain, "--check", code=1)["error"]["message"]
