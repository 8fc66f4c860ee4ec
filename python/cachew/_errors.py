"""The exceptions. Each is a `cachew.Error`; most are also a built-in exception of the same general meaning (a
`DeadlineError` is a `TimeoutError`). The attributes have the facts of the message, for programs.
"""

from __future__ import annotations

import errno
from typing import Any, NamedTuple


class FailedElement(NamedTuple):
    """The element that could not be computed."""

    epoch: int | None
    """Its epoch, from 0; None: not known."""
    position: int | None
    """Its position in the epoch, from 0, counted before filters; None: not known."""
    components: dict[str, Any]
    """Its components as the function got them: values of at most 256 bytes; for a larger one a text with its
    dtype and shape. Empty if no Python function failed."""


class Error(Exception):
    """The base class of the exceptions that Cachew raises. `str(error)` is a message for people; the
    attributes are for programs. An attribute that does not apply is None.
    """

    kind: str = "internal"
    """The kind of error: "pipeline", "option", "state", "record", "data", "io", "memory", "budget",
    "deadline", "service", "usage", "internal".
    """
    operator: str | None = None
    """The name of the operator in which the error occurred."""
    attribute: str | None = None
    """The name of the operator's attribute, or of the option, that is wrong."""
    value: str | None = None
    """The wrong value."""
    expected: str | None = None
    """A description of the values that are allowed."""
    file: str | None = None
    """The file that was read."""
    record: str | None = None
    """The id of the record, `<file key>:<row>`."""
    element: FailedElement | None = None
    """The element that could not be computed."""

    def __str__(self) -> str:
        text = BaseException.__str__(self)  # OSError has another form
        places = (("file", self.file), ("record", self.record))
        return text + "".join(f" ({name} {place})" for name, place in places if place and place not in text)


class PipelineError(Error, ValueError):
    """An operator of the pipeline, one of its attributes, or the type of a component is wrong."""

    kind = "pipeline"


class OptionError(Error, ValueError):
    """An option of an iterator or loader is wrong."""

    kind = "option"


class StateError(Error, ValueError):
    """A state is damaged, or belongs to another pipeline, other data, or another seed."""

    kind = "state"


class RecordError(Error):
    """A record can't be computed. `file` and `record` name it, `operator` the operator that failed."""

    kind = "record"


class DataError(Error):
    """Data are damaged, or have changed, and not only in a single record."""

    kind = "data"


class StorageError(Error, OSError):
    """The system refused to open, read or write a file."""

    kind = "io"


class OutOfMemoryError(Error, MemoryError):
    """The operating system refused to give more memory."""

    kind = "memory"


class MemoryBudgetError(Error, MemoryError):
    """The memory budget is too small; the message gives the smallest budget that is enough."""

    kind = "budget"


class DeadlineError(Error, TimeoutError):
    """No batch came within the time limit. No batch is lost: the next call waits for the same batch."""

    kind = "deadline"


class ServiceError(Error, ConnectionError):
    """The service can't be reached, or refused the request."""

    kind = "service"


class UsageError(Error, RuntimeError):
    """An iterator was used where it can't be: closed, in two threads at once, or in a forked child."""

    kind = "usage"


class InternalError(Error):
    """Cachew has a defect. Please report it."""

    kind = "internal"


BY_KIND: dict[str, type[Error]] = {
    c.kind: c
    for c in (
        PipelineError,
        OptionError,
        StateError,
        RecordError,
        DataError,
        StorageError,
        OutOfMemoryError,
        MemoryBudgetError,
        DeadlineError,
        ServiceError,
        UsageError,
        InternalError,
    )
}


class PipelineFileNotFoundError(PipelineError, FileNotFoundError):
    """No file matches a pattern of the pipeline, or a directory does not exist."""


class StorageFileNotFoundError(StorageError, FileNotFoundError):
    """A file does not exist."""


class StoragePermissionError(StorageError, PermissionError):
    """The system denied access to a file."""


class OptionFileNotFoundError(OptionError, FileNotFoundError):
    """An option names a file that does not exist."""


class OptionPermissionError(OptionError, PermissionError):
    """The system denied access to a file that an option names."""


_BUILTIN: dict[int, type[OSError]] = {
    errno.ENOENT: FileNotFoundError,
    errno.EACCES: PermissionError,
    errno.EPERM: PermissionError,
}
BY_ERRNO: dict[tuple[type[Error], type[OSError]], type[Error]] = {
    (PipelineError, FileNotFoundError): PipelineFileNotFoundError,
    (StorageError, FileNotFoundError): StorageFileNotFoundError,
    (StorageError, PermissionError): StoragePermissionError,
    (OptionError, FileNotFoundError): OptionFileNotFoundError,
    (OptionError, PermissionError): OptionPermissionError,
}
"""The subclasses that are also the built-in exception of the system's error."""


def from_core(kind: bytes, message: bytes, number: int = 0, *facts: bytes | None) -> Error:
    """Makes the exception for an error of the library; the extension module calls it. number: the errno of
    the system call that failed, else 0. facts: operator, attribute, value, expected, file, record, and the
    detail (docs/hosts.md, Failures); None where one does not apply. Bytes that are not UTF-8 become backslash
    escapes.
    """
    found = BY_KIND.get(kind.decode(), InternalError)
    found = BY_ERRNO.get((found, _BUILTIN.get(number, OSError)), found)
    error = found(message.decode(errors="backslashreplace"))
    error.kind = kind.decode()
    if number and isinstance(error, OSError):
        error.errno = number
    if len(facts) == 7 and facts[6] is not None:
        from cachew._failures import explain  # only here: most programs see no such error

        explain(error, facts[6].decode(errors="replace"))
    names = ("operator", "attribute", "value", "expected", "file", "record")
    for name, fact in zip(names, facts, strict=False):
        if fact is not None:
            setattr(error, name, fact.decode(errors="backslashreplace"))
    return error
