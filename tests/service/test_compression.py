"""Payloads that are compressed come as they are. (When they are compressed: tests/unit/test_pack.c.)

CACHEW names the command (default build/cachew)."""

import json
import subprocess

import pytest
from deadlines import HANG_S
from example_data import CACHEW

DOUBLES = [
    {"op": "synthetic", "count": 1000, "shape": [4096], "dtype": "uint8"},
    {"op": "cast", "component": "data", "dtype": "float64"},
    {"op": "shuffle"},
    {"op": "batch", "size": 32},
]  # 31 MiB, an eighth of which is not zero
NOISE = [
    {"op": "synthetic", "count": 240, "shape": [1 << 17], "dtype": "uint8"},
    {"op": "shuffle"},
    {"op": "batch", "size": 8},
]
# test builds: payloads are compressed where they become smaller, however fast the link is
PACKED = {"CACHEW_MUTATE": "packed"}


def pipeline(tmp_path, chain):
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return path


def run(path, *words):
    ran = subprocess.run(
        [CACHEW, "run", str(path), "--digest", "--json", "--wait", str(HANG_S), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def service(daemons, env=None):
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    return dispatcher.address, daemons.start(
        "worker", "--dispatcher", dispatcher.address, "--memory", "256M", "--http", "127.0.0.1:0", env=env
    )


def wire_bytes(worker):
    return next(
        float(line.split()[1])
        for line in worker.get("/metrics")[1].splitlines()
        if line.startswith("cachew_worker_wire_bytes_total ")
    )


def test_what_is_compressed_comes_as_it_is(daemons, tmp_path):
    path = pipeline(tmp_path, DOUBLES)
    address, worker = service(daemons, PACKED)
    there = run(path, "--epochs", 3, "--service", address, "--transport", "tcp")
    assert there["digest"] == run(path, "--epochs", 3)["digest"]
    (link,) = there["links"]
    assert link["transport"] == "tcp" and link["bytes"] >= 93_000_000
    assert link["wire_bytes"] < 0.6 * link["bytes"]
    assert link["wire_bytes"] <= wire_bytes(worker)  # and what nobody took any more


def test_what_becomes_no_smaller_is_left_alone(daemons, tmp_path):
    address, _ = service(daemons, PACKED)
    (link,) = run(pipeline(tmp_path, NOISE), "--service", address, "--transport", "tcp")["links"]
    assert link["wire_bytes"] == link["bytes"]


@pytest.mark.parametrize("env", [None, PACKED])
def test_on_this_machine_nothing_is_compressed(daemons, tmp_path, env):
    address, _ = service(daemons, env)
    path = pipeline(tmp_path, DOUBLES)
    for transport in ("unix", "shm"):
        (link,) = run(
            path, "--epochs", 3, "--service", address, "--job", transport, "--transport", transport
        )["links"]
        assert link["transport"] == transport
        # By shared memory nothing is sent, but for what finds no room among what is lent.
        assert (
            link["wire_bytes"] == link["bytes"] if transport == "unix" else link["wire_bytes"] < link["bytes"]
        )
