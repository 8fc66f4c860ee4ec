"""Ranges that their workers end early, all of them and at any time: batches, and errors, are those of one
process.

CACHEW names the command (default build/cachew)."""

import pytest
from command import failed, run, write

PLACED = {
    "batches": [{"op": "filter", "where": "value % 3 != 1"}, {"op": "batch", "size": 16}],
    "buckets": [{"op": "bucket_by_length", "length": "value % 9", "boundaries": [4, 7], "sizes": [3, 5, 8]}],
    "counted": [{"op": "batch", "size": 16}],
}
DEAR = [{"op": "range", "stop": 4000}, {"op": "shuffle"}, {"op": "delay", "us": 300}]


@pytest.fixture
def service(daemons):
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    for _ in range(2):
        daemons.start(
            "worker",
            "--dispatcher",
            dispatcher.address,
            "--threads",
            2,
            "--memory",
            "64M",
            env={"CACHEW_RANGE_S": "0.001"},
        )
    return dispatcher


@pytest.mark.parametrize("name", PLACED)
def test_batches_are_those_of_one_process(service, tmp_path, name):
    path = write(tmp_path / "p.json", DEAR + PLACED[name])
    words = ("--seed", 5, "--epochs", 2, "--digest")
    assert run(path, "--service", service.address, *words)["digest"] == run(path, *words)["digest"]


@pytest.mark.parametrize("name", PLACED)
def test_an_element_that_fails_is_the_error_of_the_run(service, tmp_path, name):
    path = write(tmp_path / "p.json", [*DEAR, {"op": "fail", "where": "value == 1234"}, *PLACED[name]])
    assert failed(path, 1, "--service", service.address)["message"] == failed(path, 1)["message"]
