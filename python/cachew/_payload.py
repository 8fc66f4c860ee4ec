"""Functions as bytes, which host processes load. A function that captures large arrays is stored once in
shared memory: the JSON of a run in this process has the place of that memory, and each host process maps it.
Only the JSON for other processes (a service, a file) contains the bytes themselves.
"""

from __future__ import annotations

import base64
import mmap
import os
import pickle
import struct
import weakref
from collections.abc import Callable
from typing import Any

from cachew._host_payload import MAGIC, PLACE

LARGE = 1 << 16
"""Bytes from which an array is stored beside the pickle, and a pickle is kept out of the JSON of a run."""
ALIGN = 64
LONGEST_S = 1e6
"""The largest time limit of a function."""
NONE = "AA=="
"""Stands for a large payload where the library only checks the pipeline, by the identity of the function."""


_originals: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def original(text: str) -> Any:
    """The function that was made a payload of this text in this process; None: it no longer exists."""
    return _originals.get(text)


def _remember(text: str, function: Any) -> None:
    _originals.pop(text, None)
    try:
        _originals[text] = function
    except TypeError:  # an object that has no weak references
        pass


class Small(str):
    """The value of `payload` in a function's node, if it is small: the pickle in base64."""

    function: Any
    """The function itself, so that it exists as long as the dataset."""


class Payload(str):
    """The value of `payload` in a function's node, if it is large: a text without meaning, and the memory
    with the bytes.
    """

    fd: int
    size: int

    @classmethod
    def of(cls, parts: list[memoryview]) -> Payload:
        places, end = [], 16 + 16 * len(parts)
        for part in parts:
            begin = -(-end // ALIGN) * ALIGN
            places.append((begin, part.nbytes))
            end = begin + part.nbytes
        self = cls("in memory")
        self.fd, self.size = os.memfd_create("cachew-function", os.MFD_CLOEXEC), end
        weakref.finalize(self, os.close, self.fd)
        os.truncate(self.fd, end)
        numbers = [len(parts), *(number for place in places for number in place)]
        _write(self.fd, memoryview(MAGIC + struct.pack(f"<{len(numbers)}Q", *numbers)), 0)
        for part, (begin, _) in zip(parts, places):
            _write(self.fd, part, begin)
        return self

    def place(self) -> str:
        """A text for host processes of this process."""
        return f"{PLACE}/proc/{os.getpid()}/fd/{self.fd}"

    def inline(self) -> str:
        """A text for any process: the bytes in base64."""
        with mmap.mmap(self.fd, self.size, prot=mmap.PROT_READ) as memory:
            return base64.b64encode(memory).decode()


def _write(fd: int, data: memoryview, offset: int) -> None:
    while data.nbytes:
        n = os.pwrite(fd, data, offset)
        data, offset = data[n:], offset + n


def payload_of(function: Any) -> str:
    """The value of `payload` for a function. Raises what pickling raises."""
    import cloudpickle  # type: ignore[import-untyped]  # not at the top: importing it takes long

    parts: list[memoryview] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < LARGE:
            return True
        parts.append(raw)
        return False

    pickled = cloudpickle.dumps(function, protocol=5, buffer_callback=in_band)
    if not parts and len(pickled) < LARGE:
        small = Small(base64.b64encode(pickled).decode())
        small.function = function
        _remember(str(small), function)
        return small
    large = Payload.of([memoryview(pickled), *parts])
    _remember(large.place(), function)
    return large


def with_payloads(value: Any, form: Callable[[str], str]) -> Any:
    """A copy of nodes, or of an attribute's value, in which form() of each payload replaces it."""
    if isinstance(value, dict) and "payload" in value:
        return {**value, "payload": form(value["payload"])}
    if isinstance(value, dict):
        return {name: with_payloads(v, form) for name, v in value.items()}
    # a list of nodes, or of chains, as the inputs of concat
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (dict, list)):
        return [with_payloads(v, form) for v in value]
    return value


def without_limits(value: Any) -> Any:
    """A copy of nodes whose functions may take as long as a user needs to look at them."""
    if isinstance(value, dict):
        limits = {"timeout_s": LONGEST_S} if isinstance(value.get("function"), dict) else {}
        return {name: without_limits(v) for name, v in value.items()} | limits
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (dict, list)):
        return [without_limits(v) for v in value]
    return value


def place_of(text: str) -> str:
    """A payload for host processes of this process."""
    return text.place() if isinstance(text, Payload) else text


def inline(text: str) -> str:
    """A payload for any process."""
    return text.inline() if isinstance(text, Payload) else text


def without_large(text: str) -> str:
    """A payload for the library's checks."""
    return NONE if isinstance(text, Payload) or len(text) > LARGE else text
