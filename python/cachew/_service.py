"""The local service: a process `cachew up` that is started when a dataset is distributed to "local".

This process has at most one local service, for all datasets. The service ends when its stdin is closed, so
also when this process is killed. The output of its processes goes to an unnamed temporary file, and is shown
if the service does not start.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO

from cachew._errors import DeadlineError, ServiceError
from cachew._options import integer, wrong

READY_S = 1800.0
"""Seconds until starting the service fails. `cachew up` itself ends earlier if one of its processes does not
get ready, so only a `cachew up` that hangs takes this long.
"""
SLOW_S = 60.0
"""Seconds until a warning says that the service is not ready yet."""
END_S = 5.0
"""Seconds that the service has to end, before it is killed."""
MAX_WORKERS = 256


class Service:
    """A running `cachew up`. It runs until `end` is called, or this process ends."""

    def __init__(self, workers: int) -> None:
        command = find_command()
        self.workers = workers
        self._log: IO[bytes] = tempfile.TemporaryFile()
        try:
            # In a session of its own: Ctrl-C must not end the service, because this process may go on.
            self._process = subprocess.Popen(
                [
                    command,
                    "up",
                    "--workers",
                    str(workers),
                    "--listen",
                    "127.0.0.1:0",
                    "--end-with-stdin",
                    "--drain-timeout",
                    "1",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=0,
                start_new_session=True,
                env={"CACHEW_PYTHON": sys.executable, **os.environ},
            )
        except OSError as error:
            self._log.close()
            raise ServiceError(f"the local service can't be started: {command}: {error.strerror}") from error
        try:
            self.address = self._read_ready()
        except BaseException:
            self.end()
            raise

    def _read_ready(self) -> str:
        assert self._process.stdout is not None
        line, began, limit = b"", time.monotonic(), min(SLOW_S, READY_S)
        with self._process.stdout as out, selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(began + limit - time.monotonic(), 0)):
                    what = f"the local service was not ready within {limit:g} s"
                    if limit == READY_S:
                        raise DeadlineError(f"{what}{self._said()}")
                    logging.getLogger("cachew").warning("%s; still waiting%s", what, self._said())
                    limit = READY_S
                    continue
                part = out.read(4096)
                if not part:
                    raise ServiceError(f"the local service ended before it was ready{self._said()}")
                line += part
        try:
            return str(json.loads(line)["ready"]["address"])
        except (ValueError, KeyError, TypeError):
            raise ServiceError(
                f"the local service printed {line[:80]!r}: expected the line that says it is ready"
            ) from None

    def _said(self) -> str:
        self._log.seek(0)
        last = self._log.read()[-1000:].decode(errors="replace").strip()
        return f"; its output: {last}" if last else ""

    def runs(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._let_go()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child: closes the child's copy of the service's stdin, so that the service ends with
        the parent, not with the child.
        """
        self._let_go()
        self._process.returncode = 0  # only the parent can wait for the process

    def _let_go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._log.close()


def find_command() -> str:
    """The path of the command `cachew`: the one in the package; if there is none, the one beside the Python
    interpreter, or in PATH.
    """
    package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cachew-command")
    beside = os.path.join(os.path.dirname(sys.executable or ""), "cachew")
    for path in (package, beside, shutil.which("cachew")):
        if path and os.access(path, os.X_OK):
            return path
    raise ServiceError(
        f"the command cachew does not exist, which runs local services and makes photographs: expected "
        f"{package}, {beside}, or cachew in PATH"
    )


_service: Service | None = None
_lock = threading.Lock()


def local_address(workers: int | None = None) -> str:
    """The address of the local service, which is started if none is running. workers: the number of workers;
    None: 1 for a new service, any number for a running one.
    """
    global _service
    if workers is not None:
        workers = integer("workers", workers, 1, MAX_WORKERS)
    with _lock:
        if _service is not None and not _service.runs():
            _service.end()
            _service = None
        if _service is None:
            _service = Service(workers or 1)
        elif workers not in (None, _service.workers):
            raise wrong(
                "workers",
                workers,
                f"{_service.workers}, the number with which this process already started its local service",
            )
        return _service.address


def _end() -> None:
    global _service
    with _lock:
        service, _service = _service, None
    if service is not None:
        service.end()


def _forget() -> None:
    global _service, _lock
    _lock = threading.Lock()
    if _service is not None:
        _service.forget()
        _service = None


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
