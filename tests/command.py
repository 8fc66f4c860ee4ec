"""The command as a process: what tests of it share.

CACHEW names it (default build/cachew)."""

import functools
import json
import os
import subprocess

from deadlines import HANG_S, PATIENT
from example_data import CACHEW

SANITIZED = bool(os.environ.get("CACHEW_SANITIZED"))
MASK128 = (1 << 128) - 1
# Verbs that take `--wait`, the deadline for a batch or an answer.
WAITING_VERBS = (["run"], ["explain"], ["cache", "warm"], ["jobs"], ["workers"], ["top"])


class Ran:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out.splitlines()[-1])

    @property
    def error(self):
        return self.json["error"]


def patient(words):
    """Returns the words of a command line, with `--wait HANG_S` unless they set a deadline."""
    words = [*map(str, words)]
    for verb in WAITING_VERBS:
        if words[: len(verb)] == verb and not any(word.startswith("--wait") for word in words):
            return [*verb, "--wait", str(HANG_S), *words[len(verb) :]]
    return words


def cachew(*words, env=None, timeout=HANG_S, cwd=None):
    done = subprocess.run(
        [CACHEW, *patient(words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env={**os.environ, **PATIENT, **(env or {})},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@functools.cache
def need_test_build():
    """For tests that need modelled costs, slow storage or the policy `script`."""
    told = subprocess.run(
        [CACHEW, "doctor", "--crash-points", "--json"], check=True, capture_output=True, text=True
    ).stdout
    assert json.loads(told)["crash_points"], f"{CACHEW} is not a test build (meson setup -Dcrash_points=true)"


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
