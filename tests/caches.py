"""Runs of the command with caches: what tests of them share. CACHEW names the command (default build/cachew)."""

import json
import os
import subprocess
from pathlib import Path

from example_data import CACHEW

TIMEOUT_S = 240
OF_A_SET = {"meta.json", "profile.json", "used", "pin"}


def words(*given):
    return [CACHEW, *map(str, given)]


def cachew(*given, code=0, env=None):
    """A command with --json that must end with this code: what it printed, and its standard error."""
    done = subprocess.run(words(*given, "--json"), check=False, capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, **(env or {})})
    assert done.returncode == code, (done.returncode, done.stdout[-1500:], done.stderr[-1500:])
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def run(pipeline, *given, **options):
    return cachew("run", pipeline, "--digest", *given, **options)[0]


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


def crash_points():
    """Of a test build; else none."""
    return cachew("doctor", "--crash-points")[0]["crash_points"]
