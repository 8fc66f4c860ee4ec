"""Runs of the command with caches: what tests of them share. CACHEW names the command (default
build/cachew).

What is decided follows from measured costs, so commands run on the model's clock (src/base/cost_clock.h):
elements cost what their pipeline states, `delay` does not sleep, and storage is waited for without a limit.
REAL puts a command back on the real clock, for tests of what happens to storage that does not answer."""

import json
import os
import subprocess
from pathlib import Path

from command import need_test_build, patient
from deadlines import HANG_S, PATIENT
from example_data import CACHEW
from held_run import HeldRun

OF_A_SET = {"meta.json", "profile.json", "used", "pin"}
MODELLED = {"CACHEW_CLOCK": "modelled"}
# `delay` and slow storage take their time, for what happens meanwhile
SLEEPING = {"CACHEW_CLOCK": "modelled,sleep"}
REAL = {"CACHEW_CLOCK": ""}


def words(*given):
    return [CACHEW, *patient(given)]


def environment(*more):
    """More: REAL, SLEEPING, or other variables."""
    need_test_build()
    env = {**os.environ, **PATIENT, **MODELLED}
    for variables in more:
        env.update(variables or {})
    return env


def cachew(*given, code=0, env=None):
    """A command with --json that must end with this code: what it printed, and its standard error."""
    done = subprocess.run(
        words(*given, "--json"),
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=environment(env),
    )
    assert done.returncode == code, (done.returncode, done.stdout[-1500:], done.stderr[-1500:])
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def run(pipeline, *given, **options):
    return cachew("run", pipeline, "--digest", *given, **options)[0]


class Running(HeldRun):
    """A run with a cache that delivers only a few batches more than the test takes."""

    def __init__(self, directory, pipeline, *given, env=None):
        super().__init__(directory, pipeline, *given, env=environment(env))


def content(ran):
    """All that a cache must not change."""
    return ran["digest"], ran["set_digest"], ran["skipped"], ran["replaced"]


def same(pipeline, *given, **options):
    return content(run(pipeline, *given, **options))


def segments(directory):
    return sorted(Path(directory).glob("*/*.cws"))


def left_over(directory):
    """Files that are neither segments nor belong to a set."""
    return [p for p in Path(directory).glob("*/*") if p.suffix != ".cws" and p.name not in OF_A_SET]


def used_bytes(directory):
    return sum(p.stat().st_size for p in Path(directory).rglob("*") if p.is_file())


def write(path, chain, **more):
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain, **more}))
    return path
