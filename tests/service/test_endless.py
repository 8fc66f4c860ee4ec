"""Epochs without an end of their own, which a `take` ends.

CACHEW names the command (default build/cachew)."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from command import run

ENDLESS = [{"op": "range", "stop": 50}, {"op": "repeat", "count": -1}]
TAKES = {
    "counted": [{"op": "batch", "size": 4}, {"op": "take", "count": 30}],
    "behind a filter": [
        {"op": "filter", "where": "value % 3 != 0"},
        {"op": "batch", "size": 4},
        {"op": "take", "count": 30},
    ],
    "of elements": [
        {"op": "filter", "where": "value % 3 != 0"},
        {"op": "take", "count": 130},
        {"op": "batch", "size": 4},
    ],
    "of buckets": [
        {"op": "bucket_by_length", "length": "value % 9", "boundaries": [4], "sizes": [3, 5]},
        {"op": "take", "count": 30},
    ],
}


@pytest.mark.parametrize("take", TAKES)
def test_every_epoch_of_an_endless_pipeline_is_delivered(daemons, tmp_path, take):
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": ENDLESS + TAKES[take]}))
    dispatcher, _ = daemons.service(workers=2)
    served = run(path, "--service", dispatcher.address, "--epochs", 7, "--digest")
    assert served["digest"] == run(path, "--epochs", 7, "--digest")["digest"]
    assert served["batches"] == 7 * (33 if take == "of elements" else 30)


@pytest.mark.parametrize("take", TAKES)
def test_a_rank_without_a_batch_in_the_last_round(daemons, tmp_path, take):
    """It learns that the other rank has one, though it asks for none behind it."""
    path = tmp_path / "pipeline.json"
    chain = [{**op, "count": 3} if op["op"] == "take" else op for op in TAKES[take]]
    path.write_text(json.dumps({"cachew": 1, "pipeline": ENDLESS + chain}))
    dispatcher, _ = daemons.service(workers=2)
    words = ("--service", dispatcher.address, "--job", "job", "--epochs", 3, "--world-size", 2, "--digest")
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda rank: run(path, *words, "--rank", rank), range(2)))
    whole = run(path, "--epochs", 3, "--digest")
    assert (sum(int(part["digest"], 16) for part in parts)) % 2**128 == int(whole["digest"], 16)
