"""Describes the failure of a user's function: one line for the error's message, and a detail, a JSON object
with the whole traceback, the exception and the element. _failures.py reads the detail.
"""

import base64
import json
import os
import traceback

import numpy as np
from _host_values import Wrong, describe, text_of

HERE = os.path.dirname(os.path.abspath(__file__))
MOST = 7900  # bytes of a detail: CW_ERROR_DETAIL of src/base/error.h, less the position that the engine adds
SMALL = 256  # bytes of a component's value that is part of the detail
# Bytes of the JSON of all components, so that room is left for the traceback: with their values, and with
# descriptions of the further ones.
MOST_VALUES, MOST_COMPONENTS = 2500, 4000
LONGEST_TEXT, MOST_ITEMS = 1000, 100  # of an argument or attribute of an exception

keep_alive = None
"""In a process that is no host process (cachew.debug): gets each exception, and whether a detail will tell of
it. Returns a number that names the exception, or raises it.
"""


class Failure:
    """Why an element failed. text: one line. detail: JSON, or None."""

    def __init__(self, error, element=None, detailed=True):
        """element: as the function got it. detailed: False if nothing reads the detail, which takes five
        times as long to make as the text.
        """
        number = keep_alive(error, detailed) if keep_alive is not None else None
        self.text, self.detail = text_of(error), None
        try:
            self.detail = detail_of(error, element or {}, number) if detailed else None
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
    if len(text) > MOST and "traceback" in parts:  # a character of it is at least one byte of JSON
        cut = "...\n"
        over = len(text) - MOST + len(json.dumps(cut))
        parts["traceback"] = cut + parts["traceback"][over:]
        text = json.dumps(parts)
    return text if len(text) <= MOST else None


def components_of(element):
    """The small values of an element; of larger ones, dtype and shape, or the number of bytes. If there is no
    room for all components, the last item tells how many are left out.
    """
    described, size = {}, 0
    for name, value in element.items():
        forms = [(value_of(value), MOST_VALUES), (short(value), MOST_COMPONENTS)]
        sizes = [len(json.dumps({name: form})) for form, _ in forms]
        fitting = [i for i, (form, most) in enumerate(forms) if form is not None and size + sizes[i] <= most]
        if not fitting:
            described["..."] = f"{len(element) - len(described)} more components"
            break
        described[name] = forms[fitting[0]][0]
        size += sizes[fitting[0]]
    return described


def value_of(value):
    """A small value; None for a larger one, and for one that is no component's."""
    if isinstance(value, bytes):
        kind, data = {"dtype": "bytes"}, value
    elif isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf" and value.nbytes <= SMALL:
        kind, data = {"dtype": value.dtype.name, "shape": list(value.shape)}, value.tobytes()
    else:
        return None
    return {**kind, "data": base64.b64encode(data).decode()} if len(data) <= SMALL else None


def short(value):
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if hasattr(value, "offsets"):  # the byte strings of a batch
        return f"{len(value)} byte strings"
    return describe(np.asarray(value) if isinstance(value, np.generic) else value)


def exception_of(error):
    kind = type(error)
    # the arguments of an OSError lack its file
    args = OSError.__reduce__(error)[1] if isinstance(error, OSError) else error.args
    return {
        "module": kind.__module__,
        "name": kind.__qualname__,
        "args": [plain(a) for a in args],
        "attributes": {n: plain(v) for n, v in vars(error).items() if n != "__notes__"},
    }


def plain(value):
    """The value if JSON can hold it, else its repr; the begin of a long one."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float):
        return value
    if type(value) in (tuple, list):
        return [plain(v) for v in value[:MOST_ITEMS]]
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    text = value if type(value) is str else repr(value)
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "..."


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
