"""The command line, black box: states, ranks, and order any: parts of a run add up to the whole."""

import json
import random
import shutil

import numpy as np
import pytest
from command import BATCH, MASK128, SHUFFLE, failed, range_chain, read_log, run, write

pytestmark = pytest.mark.usefixtures("own_index_dir")


# ---- state ----


def resume_pipelines(records):
    tfrecord = [
        {"op": "tfrecord", "files": str(records / "plain-*.tfrecord")},
        {"op": "parse_example", "features": {"id": "int64", "tokens": {"dtype": "int64", "variable": True}}},
    ]
    ids = [tfrecord[0], {"op": "parse_example", "features": {"id": "int64"}}]
    return {
        "counted": [*ids, SHUFFLE, {"op": "repeat", "count": 3}, {"op": "batch", "size": 7}],
        "filtered": [
            *ids,
            {"op": "repeat", "count": 5},
            {"op": "filter", "where": "id % 3 != 0"},
            SHUFFLE,
            {"op": "batch", "size": 7},
        ],
        "bucketed": [
            *tfrecord,
            SHUFFLE,
            {"op": "repeat", "count": 3},
            {
                "op": "bucket_by_length",
                "length": "length(tokens)",
                "boundaries": [2, 4, 6, 8],
                "sizes": [9, 8, 7, 6, 5],
            },
        ],
        "take-after-filter": [
            *ids,
            SHUFFLE,
            {"op": "repeat", "count": 4},
            {"op": "filter", "where": "id % 2 == 0"},
            {"op": "take", "count": 150},
            {"op": "batch", "size": 4},
        ],
    }


@pytest.mark.large
@pytest.mark.parametrize("kind", ["counted", "filtered", "bucketed", "take-after-filter"])
def test_parts_add_up_to_the_whole(tmp_path, records, kind):
    pipeline = write(tmp_path / "p.json", resume_pipelines(records)[kind])
    words = ["--digest", "--seed", "9", "--epochs", "2"]
    whole = run(pipeline, *words, "--threads", "2", "--log", tmp_path / "whole.log")
    want = [(line["epoch"], line["g"], line["hash"]) for line in read_log(tmp_path / "whole.log")]
    assert whole["batches"] == len(want) > 20
    draw = random.Random(kind)
    for stop in [
        0,
        1,
        len(want) - 1,
        len(want),
        len(want) + 5,
        *(draw.randrange(2, len(want) - 1) for _ in range(25)),
    ]:
        state, log = tmp_path / f"{stop}.state", tmp_path / f"{stop}.log"
        for old in (state, log):
            old.unlink(missing_ok=True)
        first = run(
            pipeline,
            *words,
            "--batches",
            stop,
            "--threads",
            draw.choice([1, 2, 8]),
            "--state",
            state,
            "--log",
            log,
        )
        assert state.stat().st_size <= 1024
        again = draw.random() < 0.3
        second = {"digest": "0"}
        if again:  # a third part
            second = run(
                pipeline,
                *words,
                "--batches",
                draw.randrange(5),
                "--threads",
                "2",
                "--state",
                state,
                "--log",
                log,
            )
        rest = run(pipeline, *words, "--threads", draw.choice([1, 2, 8]), "--state", state, "--log", log)
        assert state.stat().st_size <= 1024
        assert [(line["epoch"], line["g"], line["hash"]) for line in read_log(log)] == want, (
            f"stopped after {stop}"
        )
        assert sum(int(r["digest"], 16) for r in (first, second, rest)) & MASK128 == int(whole["digest"], 16)
        assert run(pipeline, *words, "--state", state)["batches"] == 0  # nothing is left


def test_state_of_one_world_size_resumes_with_another(tmp_path):
    pipeline = write(
        tmp_path / "p.json", range_chain(1000, {"op": "filter", "where": "value % 5 != 0"}, SHUFFLE, BATCH)
    )
    want = run(pipeline, "--digest", "--log", tmp_path / "whole.log")["digest"]
    total = 0
    for rank in range(2):  # 20 rounds of two
        part = run(
            pipeline,
            "--digest",
            "--rank",
            rank,
            "--world-size",
            2,
            "--batches",
            20,
            "--state",
            tmp_path / f"state{rank}",
        )
        total += int(part["digest"], 16)
    states = [json.loads((tmp_path / f"state{r}").read_text()) for r in range(2)]
    assert states[0]["g"] == states[1]["g"] == 40
    for rank in range(4):
        shutil.copy(tmp_path / "state0", tmp_path / f"four{rank}")
        part = run(
            pipeline, "--digest", "--rank", rank, "--world-size", 4, "--state", tmp_path / f"four{rank}"
        )
        total += int(part["digest"], 16)
    assert f"{total & MASK128:032x}" == want


@pytest.mark.large(keep=0)
@pytest.mark.parametrize("kind", ["counted", "filtered", "bucketed"])
def test_parts_with_changing_world_sizes_add_up_to_the_whole(tmp_path, records, kind):
    """Wherever a part ends: g of its state need not be a multiple of the next world size."""
    pipeline, words = (
        write(tmp_path / "p.json", resume_pipelines(records)[kind]),
        ["--digest", "--epochs", "2"],
    )
    want = run(pipeline, *words, "--log", tmp_path / "whole.log")
    batches = {(line["epoch"], line["g"]): line["hash"] for line in read_log(tmp_path / "whole.log")}
    draw = random.Random(kind)
    for nth in range(4):
        total, seen, at = 0, {}, None
        worlds = [draw.randint(1, 5) for _ in range(5)]
        for part, world in enumerate(worlds):
            last = ["--batches", draw.randint(1, 7)] if part + 1 < len(worlds) else []
            states = []
            for rank in range(world):
                state, log = tmp_path / f"{nth}.{part}.{rank}.state", tmp_path / f"{nth}.{part}.{rank}.log"
                if at:
                    state.write_text(json.dumps(at))
                ran = run(
                    pipeline,
                    *words,
                    *last,
                    "--rank",
                    rank,
                    "--world-size",
                    world,
                    "--state",
                    state,
                    "--log",
                    log,
                    "--threads",
                    draw.choice([1, 2, 8]),
                )
                total += int(ran["digest"], 16)
                states.append((ran["batches"], json.loads(state.read_text())))
                for line in read_log(log) if log.exists() else []:
                    if not any(f & 2 for f in line["flags"]):
                        assert (line["epoch"], line["g"]) not in seen
                        seen[line["epoch"], line["g"]] = line["hash"]
            assert all(s == states[0] for s in states)  # equally many batches, and one state
            at = states[0][1]
        assert seen == batches
        assert f"{total & MASK128:032x}" == want["digest"]


def test_state_every(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(80, BATCH, {"op": "fail", "where": "value == 77"}))
    state = tmp_path / "state"
    assert failed(pipeline, 1, "--state", state, "--state-every", 4, "--threads", "1")["kind"] == "record"
    assert json.loads(state.read_text())["g"] == 8


def state_of(tmp_path, pipeline, *words):
    state = tmp_path / "state"
    run(pipeline, "--batches", 3, "--state", state, *words)
    return state


def test_state_of_another_pipeline(tmp_path):
    state = state_of(tmp_path, write(tmp_path / "p.json", range_chain(100, BATCH)))
    error = failed(
        write(tmp_path / "q.json", range_chain(100, {"op": "batch", "size": 9})), 2, "--state", state
    )
    assert error["kind"] == "state" and "pipeline" in error["message"]


def test_state_of_another_seed(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, BATCH))
    error = failed(pipeline, 2, "--state", state_of(tmp_path, pipeline), "--seed", "8")
    assert error["kind"] == "state" and "seed" in error["message"]


def test_state_of_other_data(tmp_path, records):
    data = tmp_path / "data.tfrecord"
    shutil.copy(records / "plain-00.tfrecord", data)
    pipeline = write(
        tmp_path / "p.json", [{"op": "tfrecord", "files": "data.tfrecord"}, {"op": "batch", "size": 4}]
    )
    state = state_of(tmp_path, pipeline)
    shutil.copy(records / "plain-01.tfrecord", data)
    error = failed(pipeline, 2, "--state", state)
    assert error["kind"] == "state" and "data" in error["message"]


def test_state_that_is_cut_off_or_damaged(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, BATCH))
    state = state_of(tmp_path, pipeline)
    text = state.read_text()
    values = json.loads(text)
    for broken in (
        text[: len(text) // 2],
        text[:-3],
        "[]",
        "5",
        "{}",
        '"x"',
        json.dumps({**values, "position": "2"}),
        json.dumps({**values, "g": -1}),
        json.dumps({**values, "position": 10**9}),
        *(json.dumps({k: v for k, v in values.items() if k != gone}) for gone in ("epoch", "position")),
    ):
        state.write_text(broken)
        error = failed(pipeline, 2, "--state", state)
        assert error["kind"] == "state", broken
        assert state.read_text() == broken  # left alone
    state.write_text("")
    assert failed(pipeline, 2, "--state", state)["kind"] == "state"


@pytest.mark.parametrize(
    ("change", "attribute", "value"),
    [
        ({"g": 10**9}, "g", "1000000000"),
        ({"g": 2}, "position", "24"),
        ({"position": 10**9}, "position", "1000000000"),
        ({"epoch": 2**70}, "epoch", "1.1805916207174113e+21"),
        ({"seed": -(2**64)}, "seed", "-1.8446744073709552e+19"),
    ],
)
def test_a_number_in_a_state_that_can_not_be_is_named(tmp_path, change, attribute, value):
    """A g behind the data was taken as it is, and numbers of more than 64 bits were "not valid JSON"."""
    pipeline = write(tmp_path / "p.json", range_chain(100, BATCH))
    state = state_of(tmp_path, pipeline)
    state.write_text(json.dumps({**json.loads(state.read_text()), **change}))
    error = failed(pipeline, 2, "--state", state)
    assert (error["kind"], error["attribute"], error["value"]) == ("state", attribute, value)
    assert f"{attribute} is {value}: expected" in error["message"]


def test_a_position_within_a_window_of_pack_is_no_place_to_begin(tmp_path):
    """Its rows would be others."""
    values = {"op": "synthetic", "count": 50, "shape": [5], "dtype": "int32"}
    pack = {"op": "pack", "component": "data", "length": 7, "window": 16}
    pipeline = write(tmp_path / "p.json", [values, pack, {"op": "batch", "size": 3}])
    state = state_of(tmp_path, pipeline)
    state.write_text(json.dumps({**json.loads(state.read_text()), "position": 8}))
    error = failed(pipeline, 2, "--state", state)
    assert (error["attribute"], error["value"]) == ("position", "8") and "multiple of 16" in error["expected"]


def test_state_of_a_later_version(tmp_path):
    pipeline = write(tmp_path / "p.json", range_chain(100, BATCH))
    state = state_of(tmp_path, pipeline)
    values = json.loads(state.read_text())
    state.write_text(json.dumps({**values, "cachew_state": values["cachew_state"] + 1}))
    error = failed(pipeline, 2, "--state", state)
    assert error["kind"] == "state" and "version" in error["message"]


# ---- ranks ----


@pytest.mark.parametrize("world", [2, 3, 5])
@pytest.mark.parametrize("kind", ["counted", "filtered"])
def test_ranks_share_out_the_batches_of_one(tmp_path, world, kind):
    ops = [{"op": "filter", "where": "value % 7 != 0"}] if kind == "filtered" else []
    pipeline = write(tmp_path / "p.json", range_chain(500, *ops, SHUFFLE, BATCH))
    whole = run(pipeline, "--digest", "--epochs", "2", "--log", tmp_path / "whole.log")
    batches = {(line["epoch"], line["g"]): line["hash"] for line in read_log(tmp_path / "whole.log")}
    per_epoch = len(batches) // 2
    rounds, total, seen = -(-per_epoch // world), 0, {}
    for rank in range(world):
        log = tmp_path / f"{rank}.log"
        part = run(pipeline, "--digest", "--epochs", "2", "--rank", rank, "--world-size", world, "--log", log)
        total += int(part["digest"], 16)
        lines = read_log(log)
        assert len(lines) == 2 * rounds  # all get equally many
        for line in lines:
            assert line["rank"] == rank and line["g"] % world == rank
            if line["g"] < per_epoch:
                assert not any(line["flags"])
                seen[line["epoch"], line["g"]] = line["hash"]
            else:
                assert line["flags"] == [2] * line["n"]
    assert seen == batches
    assert f"{total & MASK128:032x}" == whole["digest"]


# ---- entries ----


def entry_pipelines():
    """What is kept of the elements before a position: how many are in batches, and how many arrived at a
    take.
    """
    keep = {"op": "filter", "where": "value % 5 != 0"}
    return {
        "filtered": range_chain(1500, keep, BATCH),
        "bucketed": range_chain(
            1500,
            {
                "op": "bucket_by_length",
                "length": "value * 7 % 23",
                "boundaries": [4, 9, 17],
                "sizes": [7, 5, 8, 3],
            },
        ),
        "taken": range_chain(
            300, keep, {"op": "take", "count": 200}, {"op": "repeat", "count": 3}, {"op": "batch", "size": 7}
        ),
    }


@pytest.mark.parametrize("kind", entry_pipelines())
def test_a_state_that_means_the_same_is_as_good(tmp_path, kind):
    """Where nothing was kept, the first position of the epoch does, with all that was handed out left out."""
    pipeline, state = write(tmp_path / "p.json", entry_pipelines()[kind]), tmp_path / "state"
    run(pipeline, "--batches", 20, "--state", state, "--log", tmp_path / "first.log")
    rest = run(pipeline, "--digest", "--state", shutil.copy(state, tmp_path / "copy"))
    values = json.loads(state.read_text())
    assert values["position"] > 0
    handed_out = {}
    for line in read_log(tmp_path / "first.log"):
        numbers = [int(record.split(":")[1].split(".")[0]) for record in line["records"]]
        key = sum(boundary <= numbers[0] * 7 % 23 for boundary in (4, 9, 17)) if kind == "bucketed" else 0
        handed_out[key] = handed_out.get(key, 0) + len(numbers)
    from_the_beginning = {key: value for key, value in values.items() if key not in ("skip", "limits")} | {
        "position": 0
    }
    skip = " ".join(f"{key}:{np.base_repr(n, 36).lower()}" for key, n in handed_out.items())
    state.write_text(json.dumps({**from_the_beginning, "skip": skip}))
    assert run(pipeline, "--digest", "--state", state)["digest"] == rest["digest"]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("filtered", {"position": 1501}),
        ("filtered", {"skip": "1:3"}),
        ("filtered", {"skip": "1 1"}),
        ("filtered", {"skip": "0:-1"}),
        ("filtered", {"skip": "0:1,"}),
        ("filtered", {"skip": "0:"}),
        ("filtered", {"skip": "A"}),
        ("filtered", {"skip": "0:0:1"}),
        ("filtered", {"skip": "zzzzzzzzzzzzz"}),
        ("bucketed", {"skip": "1 3:2 5"}),
        ("bucketed", {"skip": "4294967296:1"}),
        ("filtered", {"limits": "0:0:5"}),
        ("bucketed", {"skip": "4:1"}),
        ("taken", {"limits": "1:0:5"}),
        ("taken", {"limits": "0:0"}),
        ("taken", {"limits": "x"}),
    ],
)
def test_a_damaged_entry_is_refused(tmp_path, kind, change):
    pipeline = write(tmp_path / "p.json", entry_pipelines()[kind])
    state = state_of(tmp_path, pipeline)
    state.write_text(json.dumps({**json.loads(state.read_text()), **change}))
    error = failed(pipeline, 2, "--state", state)
    assert error["kind"] == "state" and next(iter(change)) in error["message"]


# ---- many buckets ----

EVENLY = "value * 7 % 10007 % 100"  # lengths in no order, of each bucket equally many


def hundred_buckets(n, size, length="value % 100"):
    return range_chain(
        n, {"op": "bucket_by_length", "length": length, "boundaries": [*range(1, 100)], "sizes": [size] * 100}
    )


def test_a_state_of_1024_buckets_resumes(tmp_path):
    """Keys with and without elements in batches, so that both forms of an entry of `skip` occur."""
    chain = range_chain(
        9000,
        {
            "op": "bucket_by_length",
            "length": "value * value % 1031",
            "boundaries": [*range(1, 1024)],
            "sizes": [1 + k % 7 for k in range(1024)],
        },
    )
    pipeline, state = write(tmp_path / "p.json", chain), tmp_path / "state"
    want, first = run(pipeline, "--digest"), run(pipeline, "--digest", "--batches", 1500, "--state", state)
    skip = json.loads(state.read_text())["skip"].split()
    assert any(":" in entry for entry in skip) and any(":" not in entry for entry in skip)
    rest = run(pipeline, "--digest", "--state", state)
    assert f"{int(first['digest'], 16) + int(rest['digest'], 16) & MASK128:032x}" == want["digest"]


def test_a_state_of_100_waiting_buckets_fits_in_1_kb(tmp_path):
    """Bucket 99 waits for its second element from position 5 on: what the others gave counts from there."""
    length = "value % 99 + int64(value == 5) * (99 - value % 99)"
    pipeline, state = write(tmp_path / "p.json", hundred_buckets(100_000, 4, length)), tmp_path / "state"
    want, total = run(pipeline, "--digest"), 0
    for batches in (1, 99, 20_000, 4_321):
        total += int(run(pipeline, "--digest", "--batches", batches, "--state", state)["digest"], 16)
        assert state.stat().st_size <= 1024
    values = json.loads(state.read_text())
    assert values["position"] == 5 and len(values["skip"].split()) == 99
    total += int(run(pipeline, "--digest", "--state", state)["digest"], 16)
    assert f"{total & MASK128:032x}" == want["digest"]


def test_a_state_of_100_buckets_with_large_counts_fits_in_1_kb(tmp_path):
    """Counts of two thousand million elements in each bucket."""
    pipeline, state = write(tmp_path / "p.json", hundred_buckets(10**12, 4)), tmp_path / "state"
    run(pipeline, "--batches", 3, "--state", state)
    values = json.loads(state.read_text())
    skip = " ".join(["zzzzzz"] * 100)
    state.write_text(json.dumps({**values, "g": 2**40, "position": 10**12 - 5, "skip": skip}))
    assert run(pipeline, "--batches", 0, "--state", state)["batches"] == 0
    assert json.loads(state.read_text())["skip"] == skip and state.stat().st_size <= 1024


# ---- what is computed again ----


def computed(ran):
    """Elements that the source gave: each is computed once, unless memory is short."""
    return ran["operators"][0]["elements"]


def tuned(ran, what):
    return next(t["record"]["chosen"][what] for t in ran["tuning"] if t["what"] == what)


def prefetched(ran, per_batch):
    """The most positions that a run computes beyond the batches handed out, of `per_batch` positions each."""
    return (tuned(ran, "batches_under_way") + 2) * per_batch + tuned(ran, "blocks_in_flight") * BLOCK_ROWS


BLOCK_ROWS = 4096  # the most rows of a block
N = 10_000_000


def test_a_resume_behind_a_filter_computes_nothing_again(tmp_path):
    """A quarter of the elements is left: batch 130 ends behind 5.2 million positions."""
    chain = range_chain(N, {"op": "filter", "where": "value % 4 == 1"}, {"op": "batch", "size": 10_000})
    pipeline, state, log = write(tmp_path / "p.json", chain), tmp_path / "state", tmp_path / "log"
    words = ["--memory", "16M", "--threads", 2, "--state", state]
    run(pipeline, *words, "--batches", 130)
    values = json.loads(state.read_text())
    assert (values["g"], values["position"]) == (130, 130 * 40_000 - 2) and "skip" not in values
    ran = run(pipeline, *words, "--batches", 1, "--log", log)
    assert [line["g"] for line in read_log(log)] == [130]
    assert computed(ran) <= 40_000 + prefetched(ran, 40_000) < N // 4


def test_a_resume_of_buckets_begins_at_the_earliest_waiting_element(tmp_path):
    """The elements that wait in 100 buckets are among the last 40,000: a bucket fills in about 20,000
    positions.
    """
    pipeline, state = write(tmp_path / "p.json", hundred_buckets(N, 200, EVENLY)), tmp_path / "state"
    words = ["--memory", "8M", "--threads", 2, "--state", state]
    run(pipeline, *words, "--batches", 5_000)
    values = json.loads(state.read_text())
    assert values["g"] == 5_000 and len(values["skip"].split()) > 50
    assert 960_000 < values["position"] < 1_000_000
    ran = run(pipeline, *words, "--batches", 1)
    assert computed(ran) <= 40_000 + prefetched(ran, 200) < 500_000


@pytest.mark.parametrize(
    "chain",
    [
        range_chain(N, {"op": "filter", "where": "value % 4 == 1"}, {"op": "batch", "size": 10_000}),
        hundred_buckets(N, 200, EVENLY),
    ],
)
def test_a_resume_with_a_service_leases_nothing_before_its_position(tmp_path, daemons, chain):
    """The first batch has the number of the state, and the first range begins at the state's position."""
    pipeline = write(tmp_path / "p.json", chain)
    state, log, trace = tmp_path / "state", tmp_path / "log", tmp_path / "trace"
    run(pipeline, "--batches", 130, "--state", state)
    values = json.loads(state.read_text())
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "256M", "--trace", trace)
    run(
        pipeline,
        "--service",
        dispatcher.address,
        "--job",
        "resumed",
        "--batches",
        1,
        "--state",
        state,
        "--log",
        log,
    )
    daemons.end()
    assert [line["g"] for line in read_log(log)] == [130]
    events = json.loads(trace.read_text())
    begins = [int(event["id"].split("/")[1]) for event in events if event.get("cat") == "range"]
    assert min(begins) == values["position"] > 10_000


def test_a_take_behind_a_rare_filter_ends_the_run(tmp_path):
    """The tenth element stands at position 9,000,999: beyond it only blocks begun by then are computed."""
    chain = range_chain(
        10 * N,
        {"op": "filter", "where": "value % 1000000 == 999"},
        {"op": "take", "count": 10},
        {"op": "batch", "size": 10},
    )
    ran = run(write(tmp_path / "p.json", chain), "--threads", 2)
    assert ran["elements"] == 10
    assert 0 <= computed(ran) - 9_001_000 <= tuned(ran, "blocks_in_flight") * BLOCK_ROWS


# ---- order any ----


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("kind", entry_pipelines())
def test_any_order_in_one_process_is_the_exact_one(tmp_path, kind, world):
    pipeline = write(tmp_path / "p.json", entry_pipelines()[kind])
    for rank in range(world):
        words = ["--digest", "--epochs", 2, "--rank", rank, "--world-size", world]
        assert run(pipeline, *words, "--order", "any")["digest"] == run(pipeline, *words)["digest"]


@pytest.fixture
def any_words(daemons):
    """Words of a rank in order any, which a service has: in one process it is the exact order."""
    dispatcher, _ = daemons.service()
    return lambda rank, world: [
        "--digest",
        "--order",
        "any",
        "--rank",
        rank,
        "--world-size",
        world,
        "--service",
        dispatcher.address,
        "--job",
        f"{rank} of {world}",
    ]


def set_sum(results):
    return f"{sum(int(r['set_digest'], 16) for r in results) & MASK128:032x}"


FIRST_LATE = {"op": "delay", "us": 3_000_000, "where": "value == 3"}  # the first batch comes behind others


def test_a_state_with_batches_handed_out_early_is_one_rank_s(tmp_path, any_words):
    """It is good for this rank in order any only. Without such batches it is that of exact order, and good
    for all.
    """
    pipeline, state = write(tmp_path / "p.json", range_chain(1000, FIRST_LATE, BATCH)), tmp_path / "state"
    first = run(pipeline, *any_words(0, 2), "--batches", 5, "--state", state)
    assert int(json.loads(state.read_text())["handed_out"], 16) > 0
    for words, has in ((any_words(1, 2), "1 of 2"), (any_words(0, 3), "0 of 3")):
        error = failed(pipeline, 2, *words, "--state", state)
        assert error["kind"] == "state" and "0 of 2" in error["message"] and has in error["message"], error
    error = failed(pipeline, 2, "--state", state)
    assert error["attribute"] == "order" and error["value"] == "any" and error["expected"] == "exact"
    rest = run(pipeline, "--digest", "--order", "any", "--rank", 0, "--world-size", 2, "--state", state)
    whole = run(pipeline, "--digest", "--rank", 0, "--world-size", 2)
    assert (
        set_sum([first, rest]) == whole["set_digest"]
        and first["elements"] + rest["elements"] == whole["elements"]
    )


def test_a_state_without_batches_handed_out_early_is_good_for_all(tmp_path, any_words):
    """A sequential pipeline has one order."""
    chain = range_chain(
        1000, {"op": "filter", "where": "value % 3 != 0"}, {"op": "take", "count": 500}, BATCH
    )
    pipeline, state = write(tmp_path / "p.json", chain), tmp_path / "state"
    first, whole = (
        run(pipeline, *any_words(0, 1), "--batches", 5, "--state", state),
        run(pipeline, "--digest"),
    )
    assert "handed_out" not in json.loads(state.read_text())
    rest = [
        run(
            pipeline,
            "--digest",
            "--rank",
            rank,
            "--world-size",
            2,
            "--state",
            shutil.copy(state, tmp_path / "copy"),
        )
        for rank in range(2)
    ]
    assert set_sum([first, *rest]) == whole["set_digest"]


def test_a_state_of_100_buckets_in_any_order_fits_in_1_kb(tmp_path, any_words):
    """Each range leaves elements of all buckets."""
    pipeline, state = write(tmp_path / "p.json", hundred_buckets(100_000, 16, EVENLY)), tmp_path / "state"
    whole, parts = run(pipeline, "--digest"), []
    for batches in (500, 700, 4_000):
        parts.append(run(pipeline, *any_words(0, 1), "--batches", batches, "--state", state))
        values = json.loads(state.read_text())
        assert len(values["skip"].split()) > 50 and state.stat().st_size <= 1024
    parts.append(run(pipeline, *any_words(0, 1), "--state", state))
    assert sum(part["elements"] for part in parts) == whole["elements"]


def test_a_state_between_epochs_is_good_for_any_order_and_rank(tmp_path, any_words):
    pipeline, state = write(tmp_path / "p.json", range_chain(1000, SHUFFLE, BATCH)), tmp_path / "state"
    first, whole = (
        run(pipeline, *any_words(0, 1), "--epochs", 1, "--state", state),
        run(pipeline, "--digest", "--epochs", 2),
    )
    assert first["batches"] > 0 and "handed_out" not in json.loads(state.read_text())
    copies = [shutil.copy(state, tmp_path / f"copy{i}") for i in range(2)]
    for words in (any_words(0, 1), ["--digest"]):
        rest = run(pipeline, *words, "--epochs", 2, "--state", copies.pop())
        assert set_sum([first, rest]) == whole["set_digest"]
    assert run(pipeline, *any_words(1, 3), "--epochs", 2, "--batches", 1, "--state", state)["batches"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"handed_out": ""},
        {"handed_out": "x"},
        {"handed_out": "1" * 17},
        {"handed_out": 3},
        {"rank": 7},
        {"rank": None},
        {"world_size": None},
    ],
)
def test_a_damaged_state_in_any_order(tmp_path, change):
    pipeline, state = write(tmp_path / "p.json", range_chain(1500, BATCH)), tmp_path / "state"
    words = ["--order", "any", "--rank", 0, "--world-size", 2, "--state", state]
    run(pipeline, *words, "--batches", 5)
    saved = {**json.loads(state.read_text()), "handed_out": "6", "rank": 0, "world_size": 2}
    state.write_text(
        json.dumps({key: value for key, value in {**saved, **change}.items() if value is not None})
    )
    assert failed(pipeline, 2, *words)["kind"] == "state"
