"""The service of this process: `cachew up`, started when a dataset is distributed to "local" and ended with
the process.

There is one at most, for all datasets. It ends when the other end of its stdin does, so also when this
process is killed. What its processes say goes to a file without a name, and is shown if it does not start.
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
"""A service that does not say within this that it is ready hangs: `cachew up` itself ends when a process of
it does not get ready.
"""
SLOW_S = 60.0
"""After this it is said that the service is waited for."""
END_S = 5.0
"""What does not end within this, at the end of the process, is killed."""
MAX_WORKERS = 256


class Service:
    """A `cachew up` that lives as long as this object is not ended."""

    def __init__(self, workers: int) -> None:
        command = find_command()
        self.workers = workers
        self._log: IO[bytes] = tempfile.TemporaryFile()
        try:
            # A group of its own: Ctrl-C is for this process, which may go on.
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
                process_group=0,
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
                    what = f"the local service did not say within {limit:g} s that it is ready"
                    if limit == READY_S:
                        raise DeadlineError(f"{what}{self._said()}")
                    logging.getLogger("cachew").warning("%s; waiting for it%s", what, self._said())
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
                f"the local service said {line[:80]!r} where it should say that it is ready"
            ) from None

    def _said(self) -> str:
        self._log.seek(0)
        last = self._log.read()[-1000:].decode(errors="replace").strip()
        return f"; it said: {last}" if last else ""

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
        """In a forked child: the process is the parent's, and must not live as long as the child."""
        self._let_go()
        self._process.returncode = 0  # not ours to wait for

    def _let_go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._log.close()


def find_command() -> str:
    """The command that came with the package; in a package that was put together by hand, the one of the
    environment.
    """
    package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cachew-command")
    beside = os.path.join(os.path.dirname(sys.executable or ""), "cachew")
    for path in (package, beside, shutil.which("cachew")):
        if path and os.access(path, os.X_OK):
            return path
    raise ServiceError(
        f"the local service needs the command cachew, which is not there: neither {package} "
        f"nor {beside} nor in PATH"
    )


_service: Service | None = None
_lock = threading.Lock()


def local_address(workers: int | None = None) -> str:
    """Where the service of this process is; started if there is none, or the one there was has ended.
    workers: None: as many as it has, else 1.
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
                f"{_service.workers}, as the local service of this process has, which was started before",
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
