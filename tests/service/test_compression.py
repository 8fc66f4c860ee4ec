"""Payloads are compressed where the link to a worker is what holds a run up, and it helps; else they are not. (When, in numbers: tests/unit/test_pack.c.)

CACHEW names the command (default build/cachew)."""

import json
import subprocess

import pytest
from daemons import TIMEOUT_S
from example_data import CACHEW
from proxy import Network

DOUBLES = [{"op": "synthetic", "count": 1000, "shape": [4096], "dtype": "uint8"}, {"op": "cast", "component": "data", "dtype": "float64"}, {"op": "shuffle"},
           {"op": "batch", "size": 32}]  # 31 MiB, an eighth of which is not zero
NOISE = [{"op": "synthetic", "count": 240, "shape": [1 << 17], "dtype": "uint8"}, {"op": "shuffle"}, {"op": "batch", "size": 8}]
RATE = 12_000_000


@pytest.fixture
def network():
    with Network() as n:
        yield n


def pipeline(tmp_path, chain):
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return path


def run(path, *words):
    ran = subprocess.run([CACHEW, "run", str(path), "--digest", "--json", *map(str, words)], check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def slow_service(daemons, network, rate):
    """A worker behind a link that takes so many bytes a second."""
    proxy = network.proxy("worker")
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    worker = daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "256M", "--advertise", proxy.address, "--http", "127.0.0.1:0")
    proxy.aim(worker.address)
    proxy.throttle(rate)
    return dispatcher.address, worker


def test_a_slow_link_is_helped(daemons, network, tmp_path):
    path = pipeline(tmp_path, DOUBLES)
    address, worker = slow_service(daemons, network, RATE)
    there = run(path, "--epochs", 3, "--service", address, "--transport", "tcp")
    assert there["digest"] == run(path, "--epochs", 3)["digest"]
    (link,) = there["links"]
    assert link["transport"] == "tcp" and link["bytes"] >= 93_000_000
    assert link["wire_bytes"] < 0.6 * link["bytes"]  # what buffers took went before it was seen that the link is slow
    sent = next(float(line.split()[1]) for line in worker.get("/metrics")[1].splitlines() if line.startswith("cachew_worker_wire_bytes_total "))
    assert link["wire_bytes"] <= sent <= link["wire_bytes"] + 8 * RATE / 10  # and what nobody took any more


def test_a_slow_link_is_left_alone_where_nothing_becomes_smaller(daemons, network, tmp_path):
    address, _ = slow_service(daemons, network, RATE)
    (link,) = run(pipeline(tmp_path, NOISE), "--service", address, "--transport", "tcp")["links"]
    assert link["wire_bytes"] == link["bytes"]


def test_a_fast_link_is_left_alone(daemons, tmp_path):
    dispatcher, _ = daemons.service()
    path = pipeline(tmp_path, DOUBLES)
    for transport in ("tcp", "unix", "shm"):
        (link,) = run(path, "--epochs", 3, "--service", dispatcher.address, "--job", transport, "--transport", transport)["links"]
        assert link["transport"] == transport
        assert link["wire_bytes"] == (0 if transport == "shm" else link["bytes"])
