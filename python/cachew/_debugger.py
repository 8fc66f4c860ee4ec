"""Debugging: functions run in this process, on the thread that takes the batches.

The engine starts host processes as always, but their program, _host_relay.py, passes its descriptors to this
process. While a thread waits for a batch, it answers the engine's calls itself.
"""

from __future__ import annotations

import bdb
import importlib.util
import itertools
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from cachew import _core, _iterator
from cachew._errors import DeadlineError
from cachew._failures import alive
from cachew._options import Options
from cachew._payload import original

T = TypeVar("T")

HERE = os.path.dirname(os.path.abspath(__file__))
ADDRESS = "CACHEW_DEBUG_ADDRESS"  # the variable by which relays find this process
WAIT_S = 0.01  # between two looks whether a batch is ready
RELAY_S = 60  # a relay sends its descriptors as soon as it is connected
ALIVE = 100  # exceptions of functions that are kept until their error is raised, at most


class Stopped(BaseException):
    """The user ended a function: by Ctrl-C, or by `q` in the debugger."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


numbers = itertools.count(1)


def keep(error: BaseException, detailed: bool) -> int:
    """Keeps the exception of a function for the error that will tell of it, if one will: `detailed`."""
    if isinstance(error, (KeyboardInterrupt, bdb.BdbQuit)):
        raise Stopped(error)
    number = next(numbers)
    if detailed:
        while len(alive) >= ALIVE:
            del alive[next(iter(alive))]
        alive[number] = error
    return number


def program() -> ModuleType:
    """The program of host processes as a module."""
    if "_host" not in sys.modules:
        spec = importlib.util.spec_from_file_location("_host", os.path.join(HERE, "_host.py"))
        assert spec is not None and spec.loader is not None
        sys.modules["_host"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules["_host_failure"].keep_alive = keep  # type: ignore[attr-defined]
    return sys.modules["_host"]


class Relayed:
    """A host whose functions run in this process."""

    def __init__(self, relay: socket.socket, fds: list[int]) -> None:
        self._relay = relay  # the relay ends when this is closed
        self._connection = socket.socket(fileno=fds[0])
        self._fds = fds[1:]
        self._host = program().Host(
            self._connection, *self._fds, lambda spec: program().definition(spec, self._define)
        )
        self.busy = False

    def _define(self, spec: dict[str, Any]) -> Any:
        """The user's own function if it still exists, else a copy. Modules have their present values."""
        host = program()
        function = original(spec["payload"])
        made = host.Function(spec, host.load(spec["payload"]) if function is None else function)
        made.checks = False
        return made

    def fileno(self) -> int:
        return self._connection.fileno()

    def answer(self) -> None:
        self.busy = True
        self._host.answer()
        self.busy = False

    def close(self) -> None:
        self._connection.close()
        self._relay.close()
        while self._fds:
            os.close(self._fds.pop())

    __del__ = close


class Debugger:
    """The hosts of this process. Any thread that waits for a batch answers calls; one at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a function may itself iterate over a dataset
        self._hosts: list[Relayed] = []
        self._listener = socket.socket(socket.AF_UNIX)
        name = f"cachew-debug-{os.getpid()}-{os.urandom(16).hex()}"
        self._listener.bind("\0" + name)
        self._listener.listen()
        os.environ[ADDRESS] = name
        self._closed = False

    def close(self) -> None:
        """Ends all hosts; the engine starts others if it needs them."""
        with self._lock:
            self._closed = True
            self._listener.close()
            while self._hosts:
                self._hosts.pop().close()
        alive.clear()

    def options(self, options: Options) -> Options:
        """The options of an iterator that runs in this process, with one thread."""
        mine = {name: getattr(options, name) for name in ("seed", "epochs", "first_epoch", "memory", "rank")}
        mine |= {name: getattr(options, name) for name in ("world_size", "optimize", "state", "index_dir")}
        mine |= {name: getattr(options, name) for name in ("cache_dir", "cache", "cache_bytes")}
        return Options(**mine, threads=1)

    def next(self, core: _core.Iterator, timeout_s: float) -> _core.Slab | None:
        """As core.next, and answers calls meanwhile."""
        deadline = time.monotonic() + timeout_s
        while not self._closed:
            try:
                return core.next(0)
            except DeadlineError as late:
                if timeout_s >= 0 and time.monotonic() >= deadline:
                    raise DeadlineError(str(late).replace("within 0 s", f"within {timeout_s:g} s")) from None
            self._serve(WAIT_S)
        return core.next(timeout_s)

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function that may wait for functions of the user: on another thread, while this one
        answers calls.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while thread.is_alive() and not self._closed:
            self._serve(WAIT_S)
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def _serve(self, wait_s: float) -> None:
        """Answers the calls that have come, or waits a moment for one."""
        if not self._lock.acquire(timeout=wait_s):
            return
        try:
            if self._closed:
                return
            watched: list[Any] = [self._listener, *(host for host in self._hosts if not host.busy)]
            for ready in select.select(watched, [], [], wait_s)[0]:
                if ready is self._listener:
                    self._accept()
                elif ready in self._hosts:  # a function may have run others meanwhile
                    self._answer(ready)
        finally:
            self._lock.release()

    def _accept(self) -> None:
        relay, _ = self._listener.accept()
        peer = relay.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", peer)[1] != os.getuid():
            relay.close()
            return
        relay.settimeout(RELAY_S)
        _, fds, _, _ = socket.recv_fds(relay, 1, 3)
        if len(fds) == 3:
            self._hosts.append(Relayed(relay, fds))

    def _answer(self, host: Relayed) -> None:
        try:
            host.answer()
        except BaseException as problem:
            self._hosts.remove(host)
            host.close()
            if isinstance(problem, Stopped):
                raise problem.error from None
            if not isinstance(problem, (EOFError, OSError)):
                raise


def _renew() -> None:
    """In a forked child: the hosts are the parent's."""
    if _iterator.debugger is not None:
        _iterator.debugger = Debugger()


os.register_at_fork(after_in_child=_renew)
