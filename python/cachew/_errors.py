"""The exceptions. Each is a `cachew.Error` and also the built-in exception that says the same in general.

Facts are attributes, None where one does not apply, so that programs need not read messages.
"""

from __future__ import annotations


class Error(Exception):
    """What Cachew raises. `str(error)` is one sentence for people; the attributes are for programs."""

    kind: str = "internal"
    """What went wrong: "pipeline", "option", "state", "record", "data", "io", "memory", "budget",
    "deadline", "service", "usage", "internal".
    """
    operator: str | None = None
    """The operator that it happened in."""
    attribute: str | None = None
    """The attribute of the operator, or the option, that is wrong."""
    value: str | None = None
    """The value that was found."""
    expected: str | None = None
    """What would have been right."""
    file: str | None = None
    """The file that was read."""
    record: str | None = None
    """The id of the record, `<file key>:<row>`."""

    def __str__(self) -> str:
        text = super().__str__()
        places = (("file", self.file), ("record", self.record))
        return text + "".join(f" ({name} {place})" for name, place in places if place and place not in text)


class PipelineError(Error, ValueError):
    """The pipeline is wrong: an operator, an attribute, a type."""

    kind = "pipeline"


class OptionError(Error, ValueError):
    """An option of an iterator or loader is wrong."""

    kind = "option"


class StateError(Error, ValueError):
    """A state does not belong to this pipeline, data and seed, or is damaged."""

    kind = "state"


class RecordError(Error):
    """A record can't be computed; `file`, `record` and `operator` say which and where."""

    kind = "record"


class DataError(Error):
    """Data are damaged or changed, beyond a single record."""

    kind = "data"


class StorageError(Error, OSError):
    """The system refused to open or read something."""

    kind = "io"


class OutOfMemoryError(Error, MemoryError):
    """The system gave no memory."""

    kind = "memory"


class MemoryBudgetError(Error, MemoryError):
    """The memory budget is too small; the message says what the smallest is."""

    kind = "budget"


class DeadlineError(Error, TimeoutError):
    """No batch came in time. Nothing is lost: asking again goes on."""

    kind = "deadline"


class ServiceError(Error, ConnectionError):
    """The service can't be reached or refused."""

    kind = "service"


class UsageError(Error, RuntimeError):
    """An iterator was used where it can't be: closed, in two threads at once, or in a forked child."""

    kind = "usage"


class InternalError(Error):
    """An invariant of the library does not hold. Please report it."""

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


def from_core(kind: bytes, message: bytes, *facts: bytes | None) -> Error:
    """The exception for an error of the library. Bytes that are no UTF-8 become backslash escapes."""
    error = BY_KIND.get(kind.decode(), InternalError)(message.decode(errors="backslashreplace"))
    error.kind = kind.decode()
    names = ("operator", "attribute", "value", "expected", "file", "record")
    for name, fact in zip(names, facts, strict=False):
        if fact is not None:
            setattr(error, name, fact.decode(errors="backslashreplace"))
    return error
