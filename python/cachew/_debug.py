"""`cachew.debug`: switches between host processes and functions that run in this process (_debugger.py)."""

from __future__ import annotations

import os
import sys
from types import TracebackType

from cachew import _core, _iterator
from cachew._options import truth

HERE = os.path.dirname(os.path.abspath(__file__))


class debug:
    """Runs everything in this process, to debug Python functions: they are called one element after the
    other, in order, on the thread that waits for the batch. So `breakpoint()`, `pdb`, `print` and variables
    of your program work in functions as elsewhere. The batches are the same, but slower. A function's time
    limit does not apply, and results are not computed twice to compare them. `distribute`, and loaders with
    a service, run the pipeline in this process, too.

    `with cachew.debug():` applies to the block: make the iterators and loaders in it. The plain call
    `cachew.debug()` applies to all that follows.

    on: False: all that follows runs as usual
    """

    def __init__(self, on: bool = True) -> None:
        self._before = _iterator.debugger is not None
        _switch(truth("on", on))

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _switch(self._before)


def _switch(on: bool) -> None:
    debugger = _iterator.debugger
    if on == (debugger is not None):
        return
    if on:
        from cachew._debugger import Debugger  # only here: its imports take time

        _iterator.debugger = Debugger()  # before the first relay looks for it
        _core.set_python(sys.executable, os.path.join(HERE, "_host_relay.py"))
    elif debugger is not None:
        _core.set_python(sys.executable, os.path.join(HERE, "_host.py"))
        _iterator.debugger = None
        debugger.close()  # iterators that go on get host processes
