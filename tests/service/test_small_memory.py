"""Ranges that do not fit in a worker's memory.

CACHEW names the command (default build/cachew)."""

import json
import subprocess

from deadlines import HANG_S
from example_data import CACHEW

# Rows of 1 MiB: the first range has 64 of them.
BUCKETS = [{"op": "synthetic", "count": 240, "shape": [1 << 18], "dtype": "float32"},
           {"op": "bucket_by_length", "length": "int64(min(data) * 1e9) % 20", "boundaries": [8], "sizes": [2, 3]}]


def run(path, *words):
    command = [CACHEW, "run", str(path), "--digest", "--json", "--wait", str(HANG_S), *map(str, words)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANG_S)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_bucketed_range_larger_than_a_workers_memory_is_delivered(daemons, tmp_path):
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": BUCKETS}))
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "40M")
    assert run(path, "--service", dispatcher.address)["digest"] == run(path)["digest"]
