"""Iterators: a dataset that runs."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cachew import _core
from cachew._batch import Batch
from cachew._errors import OptionError, StateError
from cachew._values import bytes_of

if TYPE_CHECKING:
    from cachew.dataset import Dataset

State = Mapping[str, Any]

_ENDLESS = 2**63 - 1


class DatasetIterator:
    """The batches of a dataset, one after the other, computed ahead by threads of its own. `Dataset.iterator` makes it.

    It is also a context manager: at the end of `with` its threads are gone. Batches that are held stay valid. One thread may use it at a time.
    """

    def __init__(self, dataset: Dataset, *, seed: int | None, epochs: float | None, threads: int | None, memory: int | str | None, rank: int,
                 world_size: int, state: State | str | None, timeout_s: float | None, optimize: bool, index_dir: str | os.PathLike[str] | None) -> None:
        self._dataset = dataset
        self._index_dir = index_dir
        self._timeout_s = _timeout(timeout_s)
        world_size = _integer("world_size", world_size, 1, 2**20)
        self._options = (
            -1 if seed is None else _integer("seed", seed, 0, 2**63 - 1),
            _epochs(epochs),
            0 if threads is None else _integer("threads", threads, 1, 1024),
            0 if memory is None else _memory(memory),
            _integer("rank", rank, 0, world_size - 1),
            world_size,
            bool(optimize),
        )
        self._core = self._open(state)

    def _open(self, state: State | str | None) -> _core.Iterator:
        text = state if state is None or isinstance(state, str) else _state_text(state)
        return _core.open(self._dataset._pipeline, *self._options, text, self._index_dir)

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Batch:
        slab = self._core.next(self._timeout_s)
        if slab is None:
            raise StopIteration
        return Batch(slab)

    def next(self, timeout_s: float | None = None) -> Batch | None:
        """The next batch, or None at the end. `DeadlineError` if none comes within timeout_s; nothing is lost then."""
        slab = self._core.next(_timeout(timeout_s))
        return None if slab is None else Batch(slab)

    def state_dict(self) -> dict[str, Any]:
        """The position after the batch that was handed out last: at most 1 KB, plain values. Any number of threads and ranks may go on from it."""
        state: dict[str, Any] = json.loads(self._core.state())
        return state

    def load_state_dict(self, state: State | str) -> None:
        """Goes on from a state of the same pipeline, data and seed, as if nothing had come between."""
        fresh = self._open(state)
        self._core.close()
        self._core = fresh

    def profile(self) -> dict[str, Any]:
        """Where the time went so far: seconds and share of each operator, the bottleneck, bytes read, peak of memory, batches held."""
        profile: dict[str, Any] = json.loads(self._core.profile())
        return profile

    def quarantine(self) -> list[dict[str, Any]]:
        """The records of batches handed out so far that could not be computed (the first 10,000), with reasons."""
        records: list[dict[str, Any]] = json.loads(self._core.quarantine()[2])
        return records

    def close(self) -> None:
        """Ends it and its threads, now. From another thread it ends a wait. Closing twice is fine."""
        self._core.close()

    def __enter__(self) -> DatasetIterator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


def wrong(option: str, value: object, expected: str) -> OptionError:
    """The error for an option that is no good."""
    error = OptionError(f"option {option} is {value!r}: expected {expected}")
    error.attribute, error.value, error.expected = option, str(value), expected
    return error


def _integer(option: str, value: object, low: int, high: int) -> int:
    expected = f"an integer from {low} to {high}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise wrong(option, value, expected) from None
    if not low <= number <= high:
        raise wrong(option, value, expected)
    return number


def _epochs(epochs: float | None) -> int:
    if epochs is None:
        return -1
    if isinstance(epochs, float) and epochs == math.inf:
        return _ENDLESS
    return _integer("epochs", epochs, 0, _ENDLESS)


def _memory(memory: int | str) -> int:
    number = bytes_of(memory) if isinstance(memory, str) else memory
    if number is None:
        raise wrong("memory", memory, 'bytes, as 268435456, "256M" or "1.5G"')
    return _integer("memory", number, 1, 2**62)


def _timeout(timeout_s: float | None) -> float:
    if timeout_s is None:
        return -1.0
    try:
        seconds = float(timeout_s)
    except (TypeError, ValueError):
        raise wrong("timeout_s", timeout_s, "seconds, at least 0, or None for no limit") from None
    if not seconds >= 0:
        raise wrong("timeout_s", timeout_s, "seconds, at least 0, or None for no limit")
    return min(seconds, 1e9)


def _state_text(state: object) -> str:
    if not isinstance(state, Mapping):
        raise StateError(f"state is a {type(state).__name__}: expected what state_dict() gave, or its JSON")
    try:
        return json.dumps(dict(state))
    except (TypeError, ValueError) as problem:
        raise StateError(f"state can't be a state_dict(): {problem}") from None
