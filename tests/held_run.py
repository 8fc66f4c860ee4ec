"""A run that a test holds: what must happen in the middle of it happens, on a machine of any speed."""

import fcntl
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from command import patient
from deadlines import HANG_S, PATIENT
from example_data import CACHEW

F_SETPIPE_SZ = 1031  # of Linux; fcntl has the name from Python 3.10 on


class HeldRun:
    """`cachew run` that delivers at most some tens of batches more than the test takes. It writes its log to
    a pipe with little room, which the test reads."""

    PIPE_BYTES = 4096  # some tens of batches

    def __init__(self, directory, pipeline, *words, env=None):
        """directory: for the pipe and for what the run writes to stderr."""
        directory = Path(tempfile.mkdtemp(dir=directory))
        self.err_path, pipe = directory / "err", directory / "log"
        os.mkfifo(pipe)
        self.log = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self.log, F_SETPIPE_SZ, self.PIPE_BYTES)
        words = patient(["run", pipeline, "--digest", "--json", "--log", pipe, *words])
        with self.err_path.open("w") as err:
            self.process = subprocess.Popen(
                [CACHEW, *words],
                text=True,
                stdout=subprocess.PIPE,
                stderr=err,
                env={**os.environ, **PATIENT, **(env or {})},
            )
        self.unread = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        os.close(self.log)

    @property
    def err(self):
        return self.err_path.read_text()

    def read(self):
        """Waits for a piece of the log, and returns it; b"" when the process ended."""
        log, until = select.poll(), time.monotonic() + HANG_S
        log.register(self.log, select.POLLIN)
        while time.monotonic() < until:
            ended = self.process.poll() is not None
            if any(event & select.POLLIN for _, event in log.poll(20)):
                return os.read(self.log, self.PIPE_BYTES)
            if ended:
                return b""
        raise AssertionError("no batch came")

    def batches(self, n=1):
        """Takes n more batches; returns their lines of the log."""
        lines = []
        while len(lines) < n:
            line, found, rest = self.unread.partition(b"\n")
            if found:
                lines.append(json.loads(line))
                self.unread = rest
                continue
            more = self.read()
            assert more, (self.process.returncode, self.err[-1500:])
            self.unread += more
        return lines

    def until(self, condition, most=None):
        """Takes batches until condition() is true; returns its value. most: the condition follows from the
        batches, and must be true after so many. Without it, batches are taken slowly."""
        taken = 0
        while not (value := condition()):
            assert most is None or taken < most, (taken, self.err[-1500:])
            self.batches()
            taken += 1
            time.sleep(0 if most else 0.005)
        return value

    def end(self, code=130):
        """Interrupts the run; with another code than 130, waits for its own end. Returns what it printed."""
        if code == 130:
            self.process.send_signal(signal.SIGINT)
        while self.read():
            pass
        printed, _ = self.process.communicate(timeout=HANG_S)
        assert self.process.returncode == code, (self.process.returncode, self.err[-1500:])
        return json.loads(printed.splitlines()[-1])
