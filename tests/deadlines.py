"""Deadlines of tests. They only end a hang: no verdict depends on how fast the machine is."""

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

HANG_S = 900  # a command, a page or an event that takes longer hangs
# For the environment of daemons and clients (src/base/patience.h): no process is given up because it is slow.
# Tests of these limits set their own. It is less than HANG_S, so that a test that hangs says what was waited
# for.
PATIENT_S = 600
PATIENT = {"CACHEW_SILENCE_S": str(PATIENT_S), "CACHEW_START_S": str(PATIENT_S)}
SILENCE_S = 3  # the default of CACHEW_SILENCE_S, for tests of that limit
# a command that computes and does not use the CPU for so long hangs: sooner known than after HANG_S
IDLE_S = 120
PAUSE_S = 0.01  # between two looks: the processes under test need the CPU


@contextlib.contextmanager
def started(words, **options):
    """A process that is killed when the block ends, also by a failed assertion. Gives its Popen."""
    with subprocess.Popen([*map(str, words)], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition, goes_on=lambda: True):
    """Waits until condition() is true, and returns its value. What would make it true runs as long as
    goes_on() is true.
    """
    until = time.monotonic() + HANG_S
    while not (value := condition()):
        assert goes_on(), "what would make the condition true has ended"
        assert time.monotonic() < until, f"the condition is false after {HANG_S} s"
        time.sleep(PAUSE_S)
    return value


def cpu_ticks(pid: int) -> int:
    """The CPU time that the process has used, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def run_computing(words: list[str]) -> subprocess.CompletedProcess:
    """Runs a command that reads local data and computes, to its end. If it does not use the CPU for IDLE_S,
    raises TimeoutExpired, with what its threads wait in."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        started(words, stdout=out, stderr=err, text=True) as child,
    ):
        used, since = -1, time.monotonic()
        while True:
            try:
                child.wait(0.5 if used >= 0 else PAUSE_S)
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if (ticks := cpu_ticks(child.pid)) != used:
                    used, since = ticks, now
                elif now - since > IDLE_S:
                    raise subprocess.TimeoutExpired(words, IDLE_S, stderr=stacks(child.pid)) from None
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, child.returncode, out.read(), err.read())


def stacks(pid: int) -> str:
    """Where the process's threads are: their stacks if gdb is there, else the system calls they wait in."""
    try:
        return subprocess.run(
            ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"],
            check=False,
            capture_output=True,
            text=True,
        ).stdout
    except FileNotFoundError:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return "".join(
            f"thread {task.name}: {(task / 'wchan').read_text(encoding='utf-8')}\n"
            for task in tasks
            if os.access(task / "wchan", os.R_OK)
        )
