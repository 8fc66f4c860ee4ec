"""bench/dispatcher.py, which measures what a dispatcher takes: that it measures something. Its figures are
no tests.
"""

import json
import subprocess
import sys
from pathlib import Path

from command import CACHEW

BENCH = Path(__file__).resolve().parents[1] / "bench"
LOAD = Path(CACHEW).parent / "bench" / "dispatcher_load"


def measure(*words):
    done = subprocess.run(
        [sys.executable, BENCH / "dispatcher.py", "--cachew", CACHEW, *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.returncode, json.loads(done.stdout or "{}")


def test_completions_and_heartbeats(tmp_path):
    few = ["--connections", 3, "--in-flight", 2, "--heartbeats", 100]
    for n in range(12):  # longer, until something of each kind came within the time
        code, said = measure("--state-dir", tmp_path / "state", "--seconds", 2**n, *few)
        measured = ("completions", "p50_s", "heartbeats_per_s", "question_p99_s")
        if code == 0 and all(said[name] > 0 for name in measured):
            break
    assert code == 0 and said["durable"]
    assert 0 < said["p50_s"] <= said["p99_s"] <= said["max_s"]
    assert (tmp_path / "state" / "journal.db").stat().st_size > 0


def test_scaling():
    code, said = measure("--scaling", 20, "--seconds", 2)
    assert code == 0 and said["workers"] == 20 and said["heartbeats_per_s"] > 0


def test_an_address_without_a_dispatcher_is_named():
    done = subprocess.run([LOAD, "completions", "127.0.0.1:1"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3 and "127.0.0.1:1" in done.stderr
    done = subprocess.run([LOAD, "nothing", "127.0.0.1:1"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "completions" in done.stderr
