"""Describes the failure of a user's function: one line for the error's message, and a detail, a JSON object
with the whole traceback, the exception and the element. _failures.py reads the detail.
"""

import base64
import json
import os
import traceback

import numpy as np
from _host_values import Wrong, describe, text_of
from _values import shown_bytes

HERE = os.path.dirname(os.path.abspath(__file__))
MOST = 7900  # bytes of a detail: CW_ERROR_DETAIL of src/base/error.h, less the position that the engine adds
SMALL = 256  # bytes of a component's value that is part of the detail
MOST_COMPONENTS = 1500  # bytes of all components

keep_alive = None
"""In a process that is no host process (cachew.debug): gets each exception, and returns a number that names
it, or raises it.
"""


class Failure:
    """Why an element failed. text: one line. detail: JSON, or None."""

    def __init__(self, error, element=None):
        number = keep_alive(error) if keep_alive is not None else None
        self.text, self.detail = text_of(error), None
        try:
            self.detail = detail_of(error, element or {}, number)
        except Exception:  # looking at the user's objects runs their code; the text has the essentials
            pass

    def entry(self, row):
        return [row, self.text, self.detail]


def detail_of(error, element, number):
    parts = {"components": components_of(element)}
    if not isinstance(error, Wrong):
        parts["exception"] = exception_of(error)
        parts["traceback"] = traceback_of(error)
    if number is not None:
        parts["alive"] = number
    text = json.dumps(parts)
    if len(text) > MOST and "exception" in parts:  # its arguments are also at the end of the traceback
        parts["exception"] = {**parts["exception"], "args": [], "attributes": {}}
        text = json.dumps(parts)
    while len(text) > MOST and parts.get("traceback"):
        parts["traceback"] = "...\n" + parts["traceback"][len(text) - MOST + 8 :]
        text = json.dumps(parts)
    return text if len(text) <= MOST else None


def components_of(element):
    """The small values of an element; of larger ones, dtype and shape, or the number of bytes."""
    described, size = {}, 0
    for name, value in element.items():
        if isinstance(value, bytes):
            kind, length, short = {"dtype": "bytes"}, len(value), shown_bytes(len(value))
        elif isinstance(value, (np.ndarray, np.generic)):
            kind, length = {"dtype": value.dtype.name, "shape": list(value.shape)}, value.nbytes
            short = describe(np.asarray(value))
        else:  # the byte strings of a batch
            kind, length, short = {}, SMALL + 1, f"{len(value)} byte strings"
        if length <= SMALL and size + 2 * length <= MOST_COMPONENTS and kind["dtype"] != "bfloat16":
            data = value if isinstance(value, bytes) else value.tobytes()
            described[name] = {**kind, "data": base64.b64encode(data).decode()}
            size += 2 * length
        else:
            described[name] = short
    return described


def exception_of(error):
    kind = type(error)
    return {
        "module": kind.__module__,
        "name": kind.__qualname__,
        "args": [plain(a) for a in error.args],
        "attributes": {n: plain(v) for n, v in vars(error).items() if n != "__notes__"},
    }


def plain(value):
    """The value if JSON can hold it, else its repr."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (tuple, list):
        return [plain(v) for v in value]
    return repr(value)


def traceback_of(error):
    """The traceback, also of the exceptions that caused it, without the frames of this package."""
    whole = traceback.TracebackException.from_exception(error)
    waiting = [whole]
    while waiting:
        one = waiting.pop()
        frames = [f for f in one.stack if not f.filename.startswith(HERE + os.sep)]
        one.stack = traceback.StackSummary.from_list(frames)
        waiting += [e for e in (one.__cause__, one.__context__) if e is not None]
    return "".join(whole.format()).encode("utf-8", "backslashreplace").decode()
