"""Processes `cachew up` that belong to this process: the local service, which is started when a dataset is
distributed to "local", and the local workers of other services.

This process has at most one local service, for all datasets, and local workers once for each service. They
end when their stdin is closed, so also when this process is killed. The output of their processes goes to an
unnamed temporary file, and is shown if they do not start.
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
from collections.abc import Mapping
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
    """A running `cachew up`. It runs until `end` is called, or this process ends. what: names it in errors.
    words: further options.
    """

    def __init__(self, what: str, workers: int | str, *words: str, token: str | None = None) -> None:
        command = find_command()
        self._what, self.workers = what, workers
        self._log: IO[bytes] = tempfile.TemporaryFile()
        try:
            # In a session of its own: Ctrl-C must not end the service, because this process may go on.
            self._process = subprocess.Popen(
                [
                    command,
                    "up",
                    "--workers",
                    str(workers),
                    "--end-with-stdin",
                    "--drain-timeout",
                    "1",
                    *words,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=0,
                start_new_session=True,
                env={
                    "CACHEW_PYTHON": sys.executable,
                    **os.environ,
                    **({"CACHEW_TOKEN": token} if token else {}),
                },
            )
        except OSError as error:
            self._log.close()
            raise ServiceError(f"{what} can't be started: {command}: {error.strerror}") from error
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
                    what = f"{self._what} did not become ready within {limit:g} s"
                    if limit == READY_S:
                        raise DeadlineError(f"{what}{self._said()}")
                    logging.getLogger("cachew").warning("%s; still waiting%s", what, self._said())
                    limit = READY_S
                    continue
                part = out.read(4096)
                if not part:
                    raise ServiceError(f"{self._what} could not be started{self._said()}")
                line += part
        try:
            return str(json.loads(line)["ready"]["address"])
        except (ValueError, KeyError, TypeError):
            raise ServiceError(
                f"{self._what} printed {line[:80]!r}: expected the line that says it is ready"
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
_workers: dict[str, Service] = {}
"""The local workers, by the address of the dispatcher."""
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
            _service = Service("the local service", workers or 1, "--listen", "127.0.0.1:0")
        elif workers not in (None, _service.workers):
            raise wrong(
                "workers",
                workers,
                f"{_service.workers}, the number with which this process already started its local service",
            )
        return _service.address


def start_local_workers(
    service: str, workers: int | str, token: str | None, tls: Mapping[str, object]
) -> None:
    """Starts workers on this host for a service, unless this process has some for it. workers: their number,
    or "auto".
    """
    if workers != "auto":
        workers = integer("local_workers", workers, 0, MAX_WORKERS, f'"auto", or 0 to {MAX_WORKERS}')
    if workers == 0:
        return
    words = ["--dispatcher", service, "--nice", "5"]
    if workers != "auto":
        words += ["--threads", str(workers)]
    for name, path in tls.items():
        if path is not None:
            words += ["--" + name.replace("_", "-"), os.fsdecode(path)]  # type: ignore[arg-type]
    with _lock:
        running = _workers.get(service)
        if running is not None and not running.runs():
            running.end()
            running = None
        if running is None:
            _workers[service] = Service("the local workers", workers, *words, token=token)
        elif workers != running.workers:
            raise wrong(
                "local_workers",
                workers,
                f"{running.workers!r}, with which this process already started its workers for this service",
            )


def _end() -> None:
    global _service
    with _lock:
        services = [*([] if _service is None else [_service]), *_workers.values()]
        _service = None
        _workers.clear()
    for service in services:
        service.end()


def _forget() -> None:
    global _service, _lock
    _lock = threading.Lock()
    for service in [*([] if _service is None else [_service]), *_workers.values()]:
        service.forget()
    _service = None
    _workers.clear()


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
