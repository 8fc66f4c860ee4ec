"""The command as a process: what tests of it share.

CACHEW names it (default build/cachew)."""

import json
import os
import subprocess
import time

from example_data import CACHEW

SANITIZED = bool(os.environ.get("CACHEW_SANITIZED"))
MASK128 = (1 << 128) - 1
TIMEOUT_S = 120


class Ran:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out.splitlines()[-1])

    @property
    def error(self):
        return self.json["error"]


def cachew(*words, env=None, timeout=TIMEOUT_S, cwd=None):
    done = subprocess.run([CACHEW, *map(str, words)], check=False, capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env={**os.environ, **(env or {})})
    return Ran(done.returncode, done.stdout, done.stderr)


def run(pipeline, *words, code=0, **options):
    """`cachew run --json`, which must end with this code."""
    ran = cachew("run", pipeline, "--json", *words, **options)
    assert ran.code == code, (ran.code, ran.out[-2000:], ran.err[-2000:])
    return ran.json


def failed(pipeline, code, *words, **options):
    """The error object of a run that must end with this code; the message is on stderr too."""
    ran = cachew("run", pipeline, "--json", *words, **options)
    assert ran.code == code, (ran.code, ran.out[-2000:], ran.err[-2000:])
    assert ran.error["message"] in ran.err
    return ran.error


def write(path, chain, **beside):
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain, **beside}))
    return path


def range_chain(n, *ops):
    return [{"op": "range", "stop": n}, *ops]


BATCH = {"op": "batch", "size": 8}
SHUFFLE = {"op": "shuffle"}


def read_log(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_for(condition, timeout_s=30):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
