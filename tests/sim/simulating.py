"""What the tests of cachew simulate share: workloads, and running the command."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from deadlines import HANG_S  # noqa: E402
from example_data import CACHEW  # noqa: E402

TABLE = {
    "workload": 1,
    "seed": 7,
    "epochs": 3,
    "batches_per_epoch": 100,
    "client_step_s": 0.5,
    "objective": "time",
    "price_per_h": {"client": 5, "worker": 0.4},
    "max_workers": 10,
    "start_delay_s": 20,
    "table": {"remote": {"1": 1000, "2": 500, "4": 250, "8": 130}},
}
MODEL = {
    "workload": 1,
    "epochs": 4,
    "batches_per_epoch": 200,
    "client_step_s": 0.1,
    "objective": "cost",
    "max_workers": 20,
    "start_delay_s": 5,
    "model": {
        "stages": [
            {"name": "read", "cpu_s": 0.1},
            {"name": "decode", "cpu_s": 0.8, "size_factor": 2, "keep": 0.5},
            {"name": "augment", "cpu_s": 0.2},
        ],
        "source_bytes_per_s": 1e9,
        "store": {"read_bytes_per_s": 2e9, "write_bytes_per_s": 1e8},
        "cache_markers": ["decode"],
    },
}
JOB = {"batches_per_epoch": 100, "model": {"stages": [{"name": "decode", "cpu_s": 1}]}}  # one of several


def run(folder, workload, *options):
    path = folder / "workload.json"
    path.write_text(workload if isinstance(workload, str) else json.dumps(workload))
    return subprocess.run(
        [CACHEW, "simulate", path, *options], capture_output=True, text=True, timeout=HANG_S
    )


def simulate(folder, workload, policy="auto", *options):
    done = run(folder, workload, "--policy", policy, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


POOLS = {
    "workload": 1,
    "epochs": 3,
    "batches_per_epoch": 300,
    "client_step_s": 0.1,
    "objective": "cost",
    "price_per_h": {"client": 5},
    "pools": [
        {"name": "remote", "price_per_h": 0.4, "max_workers": 6, "start_delay_s": 20},
        {"name": "large", "price_per_h": 1, "max_workers": 4, "start_delay_s": 3, "worker_cpus": 3},
        {
            "name": "training",
            "price_per_h": 0,
            "max_workers": 2,
            "worker_cpus": 0.5,
            "slowdown": 1.5,
        },
    ],
    "model": {"stages": [{"name": "read", "cpu_s": 0.2}, {"name": "decode", "cpu_s": 0.8}]},
}
NESTED = {
    "workload": 1,
    "epochs": 2,
    "batches_per_epoch": 100,
    "objective": "time",
    "price_per_h": {"client": 5},
    "pools": [
        {"name": "remote", "price_per_h": 0.4, "max_workers": 5},
        {"name": "training", "price_per_h": 0, "max_workers": 3, "start_delay_s": 40},
    ],
    "table": {
        "remote": {
            "0": {"training": {"1": 300, "2": 200}},
            "1": {"training": {"0": 200, "2": 90}},
            "4": {"training": {"0": 60, "3": 35}},
        }
    },
}


def pools_like(workload, counts):
    """The same with these counts as the only ones that there are: what `fixed` takes then is known."""
    return {**workload, "pools": [{**p, "max_workers": n} for p, n in zip(workload["pools"], counts)]}
