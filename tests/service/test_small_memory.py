"""Ranges that do not fit in a worker's memory.

CACHEW names the command (default build/cachew)."""

import gzip
import json
import subprocess

from deadlines import HANG_S
from example_data import CACHEW

# Rows of 1 MiB: the first range has 64 of them.
BUCKETS = [
    {"op": "synthetic", "count": 240, "shape": [1 << 18], "dtype": "float32"},
    {"op": "bucket_by_length", "length": "int64(min(data) * 1e9) % 20", "boundaries": [8], "sizes": [2, 3]},
]


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


def test_a_job_has_the_memory_of_jobs_whose_clients_went(daemons, tmp_path):
    """Each stream of a worker has a share of its memory. Who finds it too small, however late, waits for
    others to end; those without clients end for it.
    """
    small, large = tmp_path / "small.json", tmp_path / "large.json"
    small.write_text(
        json.dumps({"cachew": 1, "pipeline": [{"op": "range", "stop": 1 << 20}, {"op": "batch", "size": 8}]})
    )
    lines = b"".join(b"%d\n" % i for i in range(500))
    (tmp_path / "lines.txt.gz").write_bytes(
        gzip.compress(lines + b"".join(b"x" * 3_000_000 + b"%d\n" % i for i in range(10)) + lines)
    )
    large.write_text(
        json.dumps(
            {
                "cachew": 1,
                "pipeline": [
                    {"op": "text", "files": "lines.txt.gz", "max_line": 4_000_000},
                    {"op": "batch", "size": 1},
                ],
            }
        )
    )
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "80M")
    for i in range(8):
        run(small, "--service", dispatcher.address, "--job", f"small{i}", "--batches", 1)
    assert run(large, "--service", dispatcher.address)["digest"] == run(large)["digest"]
