"""The order in which operators run: the same batches as in the order as written, and which operators move.

CACHEW names the command (default build/cachew)."""

import pytest
from command import SHUFFLE, cachew, failed, run, write

pytestmark = pytest.mark.usefixtures("own_index_dir")

IMAGES = {"op": "synthetic", "count": 60, "shape": [11, 9, 3], "dtype": "uint8"}
KEY = {"op": "assign", "set": {"k": "max(data) % 4"}}
NORMALIZE = {"op": "normalize", "component": "data", "mean": [1, 2, 3], "std": [4, 5, 6]}
FLIP = {"op": "random_flip", "component": "data", "vertical": 0.5}
CROP = {"op": "random_crop", "component": "data", "size": [6, 5]}
FILTER = {"op": "filter", "where": "k != 2"}
BATCH = {"op": "batch", "size": 7}
ONE_HOT = {"op": "one_hot", "component": "k", "classes": 4}


def explained(pipeline, *words):
    ran = cachew("explain", pipeline, "--run", "0", "--json", *words)
    assert ran.code == 0, ran.err
    return ran.json


def names(pipeline, *words):
    """The operators in the order in which they run."""
    return [op["op"] for op in explained(pipeline, *words)["operators"]]


# A chain, and its order as run.
CHAINS = {
    "filter": (
        [IMAGES, KEY, NORMALIZE, FLIP, FILTER, BATCH],
        ["synthetic", "assign", "filter", "random_flip", "normalize", "batch"],
    ),
    "crop": (
        [IMAGES, NORMALIZE, {"op": "cast", "component": "data", "dtype": "float16"}, CROP, BATCH],
        ["synthetic", "random_crop", "normalize", "cast", "batch"],
    ),
    "apart": (
        [IMAGES, KEY, CROP, ONE_HOT, FLIP, BATCH],
        ["synthetic", "assign", "random_crop", "random_flip", "one_hot", "batch"],
    ),
    "after the batch": (
        [IMAGES, KEY, BATCH, NORMALIZE, FLIP],
        ["synthetic", "assign", "batch", "random_flip", "normalize"],
    ),
    "two flips draw what they draw": (
        [IMAGES, FLIP, NORMALIZE, FLIP, KEY, BATCH],
        ["synthetic", "random_flip", "random_flip", "normalize", "assign", "batch"],
    ),
    "projection": (
        [
            IMAGES,
            KEY,
            {"op": "assign", "set": {"x": "data * 2.5"}},
            {"op": "drop", "components": "data"},
            FILTER,
            BATCH,
        ],
        ["synthetic", "assign", "filter", "assign", "drop", "batch"],
    ),
    "concat": (
        [
            {"op": "concat", "inputs": [[IMAGES, KEY], [{**IMAGES, "shape": [8, 7, 3]}, KEY]]},
            NORMALIZE,
            CROP,
            FILTER,
            SHUFFLE,
            BATCH,
        ],
        None,
    ),
    "pinned": ([IMAGES, KEY, NORMALIZE, {**FILTER, "keep_position": True}, BATCH], None),
    "nothing passes a pinned one": ([IMAGES, KEY, {**NORMALIZE, "keep_position": True}, FILTER, BATCH], None),
    "it reads it": ([IMAGES, KEY, FILTER, BATCH], None),
    "a fixed point": ([IMAGES, KEY, NORMALIZE, SHUFFLE, FLIP, BATCH], None),
    "neighbours": (
        [IMAGES, NORMALIZE, {"op": "resize", "component": "data", "size": [5, 5]}, BATCH],
        None,
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_batches_are_those_of_the_order_as_written(tmp_path, name):
    chain, order = CHAINS[name]
    pipeline = write(tmp_path / "p.json", chain)
    written = names(pipeline, "--operator-order", "written")
    assert written == [op["op"] for op in chain]
    if name == "concat":
        assert names(pipeline)[:3] == ["concat", "filter", "random_crop"]
    else:
        assert names(pipeline) == (order or written)
    words = ["--digest", "--seed", "3", "--epochs", "2"]
    want = run(pipeline, *words, "--operator-order", "written")
    assert want["batches"] > 8
    for other in ([], ["--threads", "3"], ["--no-optimize"], ["--operator-order", "strict"]):
        assert run(pipeline, *words, *other)["digest"] == want["digest"], other


def test_a_state_is_good_in_the_other_order(tmp_path):
    pipeline, state = write(tmp_path / "p.json", CHAINS["filter"][0]), tmp_path / "state"
    whole = int(run(pipeline, "--digest")["digest"], 16)
    for first, then in (("strict", "written"), ("written", "strict")):
        state.unlink(missing_ok=True)
        words = ["--digest", "--state", state]
        a = run(pipeline, *words, "--batches", "3", "--operator-order", first)
        b = run(pipeline, *words, "--operator-order", then)
        assert (int(a["digest"], 16) + int(b["digest"], 16)) % 2**128 == whole


def test_where_errors_do_not_end_the_run_nothing_moves(tmp_path):
    chain, order = CHAINS["filter"]
    for on_error in ("raise", "skip", "replace"):
        pipeline = write(tmp_path / "p.json", chain, on_error=on_error)
        assert (names(pipeline) == order) == (on_error == "raise")


def test_the_file_and_options_say_which_order(tmp_path):
    chain, order = CHAINS["filter"]
    written = [op["op"] for op in chain]
    pipeline = write(tmp_path / "p.json", chain, order="written")
    assert names(pipeline) == written
    assert names(pipeline, "--operator-order", "strict") == order
    assert names(pipeline, "--set", "order=strict") == order
    assert names(pipeline, "--operator-order", "strict", "--no-optimize") == written
    error = failed(write(tmp_path / "p.json", chain, order="quick"), 2)
    assert (error["attribute"], error["value"]) == ("order", '"quick"')
    assert error["expected"] == '"strict", "relaxed" or "written"'
    error = failed(pipeline, 2, "--operator-order", "quick")
    assert (error["attribute"], error["value"]) == ("operator-order", "quick")


def test_explain_says_where_an_operator_is_written(tmp_path):
    pipeline = write(tmp_path / "p.json", CHAINS["crop"][0])
    told = explained(pipeline)
    assert told["order"] == "strict"
    assert [op.get("written") for op in told["operators"]] == [None, 3, 1, 2, None]
    text = cachew("explain", pipeline, "--run", "0").out
    assert "1 random_crop" in text and "(operator 3 as written)" in text


# ---- relaxed ----

JITTER = {"op": "color_jitter", "component": "data", "contrast": 0.5}
ROTATION = {"op": "random_rotation", "component": "data", "degrees": 30}
RESIZE = {"op": "resize", "component": "data", "size": [5, 4]}
GRAYSCALE = {"op": "grayscale", "component": "data"}
GREY = {"op": "normalize", "component": "data", "mean": 1, "std": 4}
AUTOCACHE = {"op": "autocache"}
BLUR = {"op": "gaussian_blur", "component": "data", "kernel_size": 3}

# A chain, and its order as run.
RELAXED = {
    "smaller first": (
        [IMAGES, KEY, FLIP, JITTER, ROTATION, RESIZE, GRAYSCALE, GREY, FILTER, BATCH],
        [
            *("synthetic", "assign", "filter", "grayscale", "resize", "color_jitter", "random_rotation"),
            *("random_flip", "normalize", "batch"),
        ],
    ),
    "between fixed points": (
        [IMAGES, NORMALIZE, {**RESIZE, "size": [10, 8]}, AUTOCACHE, BLUR, {**CROP, "size": [3, 3]}, BATCH],
        ["synthetic", "resize", "normalize", "autocache", "random_crop", "gaussian_blur", "batch"],
    ),
}


@pytest.mark.parametrize("name", RELAXED)
def test_relaxed_is_the_pipeline_in_the_order_that_explain_names(tmp_path, name):
    chain, order = RELAXED[name]
    pipeline = write(tmp_path / "p.json", chain, order="relaxed")
    told = explained(pipeline)
    assert (told["order"], [op["op"] for op in told["operators"]]) == ("relaxed", order)
    as_run = [chain[op.get("written", op["position"])] for op in told["operators"]]
    rewritten = write(tmp_path / "as_run.json", as_run, order="written")
    words = ["--digest", "--seed", "3", "--epochs", "2"]
    want = run(rewritten, *words)["digest"]
    assert run(pipeline, *words, "--operator-order", "written")["digest"] != want
    for other in (["--threads", "1"], ["--threads", "3"], ["--no-optimize"]):
        assert run(pipeline, *words, *other)["digest"] == want, other
    cache = ["--cache-dir", tmp_path / "cache", "--cache", "0"]
    for _ in range(2 if AUTOCACHE in chain else 0):
        assert run(pipeline, *words, *cache)["digest"] == want
    state = ["--state", tmp_path / "state"]
    parts = [run(pipeline, *words, *state, *n)["digest"] for n in (["--batches", "5"], ["--threads", "2"])]
    assert sum(int(part, 16) for part in parts) % 2**128 == int(want, 16)


def test_a_state_of_another_order_is_refused(tmp_path):
    pipeline, state = write(tmp_path / "p.json", RELAXED["smaller first"][0]), tmp_path / "state"
    run(pipeline, "--batches", "3", "--state", state)
    error = failed(pipeline, 2, "--state", state, "--operator-order", "relaxed")
    assert "fingerprint" in error["message"] or "pipeline" in error["message"]
