"""What a host process tells about an element that it could not compute, as attributes of the exception:
the traceback in the user's function, the original exception, and the element. _host_failure.py writes the
text that this module reads.
"""

from __future__ import annotations

import base64
import json
import linecache
import re
import sys
from typing import Any

import numpy as np

from cachew._errors import Error, FailedElement

alive: dict[int, BaseException] = {}
"""Exceptions of functions that ran in this process (cachew.debug), by their numbers."""

_FRAME = re.compile(r'^( *)File "(.*)", line (\d+), in .*$')


def explain(error: Error, text: str) -> None:
    """Sets `element`, `__cause__` and a note with the traceback. A text that can't be read sets nothing, or
    not all of them.
    """
    try:
        detail: dict[str, Any] = json.loads(text)
        components = {name: _value(value) for name, value in detail.get("components", {}).items()}
        error.element = FailedElement(detail.get("epoch"), detail.get("position"), components)
        if "traceback" in detail:
            _add_note(
                error, f"In the function:\n{_printable(_with_lines(str(detail['traceback']))).rstrip()}"
            )
        if "exception" in detail:
            error.__cause__ = alive.pop(detail.get("alive", 0), None) or _exception(detail["exception"])
    except Exception:  # the text may come from another machine
        pass


def _add_note(error: Error, note: str) -> None:
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:  # Python prints no notes yet
        error.__dict__["__notes__"] = [note]
        error.args = (f"{error.args[0]}\n{note}",)


def _value(value: Any) -> Any:
    """The value of a component: bytes, a NumPy scalar or array; a text: the description of a larger one."""
    if isinstance(value, str):
        return value
    data = base64.b64decode(value["data"])
    if value["dtype"] == "bytes":
        return data
    return np.frombuffer(data, np.dtype(value["dtype"])).reshape(value["shape"])[()]


def _exception(described: dict[str, Any]) -> BaseException | None:
    """A new exception of the class and with the arguments of the original one; None if this process has no
    such class. The text may come from another machine, so it is not a pickle: only classes of exceptions in
    modules that this program has imported are used.
    """
    found: Any = sys.modules.get(described["module"])
    for name in described["name"].split("."):
        found = getattr(found, name, None)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        return None
    arguments = [tuple(a) if isinstance(a, list) else a for a in described["args"]]
    try:
        made = found(*arguments)
        if not isinstance(made, OSError):  # whose `args` lack the file
            made.args = tuple(arguments)  # the class may have made other ones
    except Exception:  # the class takes other arguments than those that `args` keeps
        try:
            made = found.__new__(found)
            made.args = tuple(arguments)
        except Exception:
            return None
    for name, value in described["attributes"].items():
        try:
            setattr(made, name, value)
        except Exception:
            pass
    return made


def _printable(text: str) -> str:
    """The text without characters that control a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _with_lines(text: str) -> str:
    """The traceback with the lines of code that the host could not read, such as those of a notebook."""
    lines = text.splitlines()
    done = []
    for i, line in enumerate(lines):
        done.append(line)
        frame = _FRAME.match(line)
        if frame and not (i + 1 < len(lines) and lines[i + 1].startswith(frame[1] + "  ")):
            code = linecache.getline(frame[2], int(frame[3])).strip()
            done += [f"{frame[1]}  {code}"] if code else []
    return "\n".join(done)
