"""Batches: dicts of NumPy arrays that lie in the engine's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from cachew._errors import UsageError

if TYPE_CHECKING:
    from cachew import _core

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a component. bfloat16 is ml_dtypes' where that is installed, else its bits are uint16."""
    found = _DTYPES.get(name)
    if found is None:
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            found = np.dtype("uint16")
        else:
            found = np.dtype(bfloat16)
        _DTYPES[name] = found
    return found


class Bytes(Sequence[memoryview]):
    """Byte strings of varying length, one after the other in one array. `b[i]` is a memoryview of string i, without a copy; `bytes(b[i])` copies it.

    `data` (uint8) holds the bytes; string i lies at `data[offsets[i]:offsets[i + 1]]`.
    """

    __slots__ = ("data", "offsets", "_view")

    def __init__(self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        self.data = data
        self.offsets = offsets
        self._view = memoryview(data)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, i: int) -> memoryview: ...
    @overload
    def __getitem__(self, i: slice) -> Bytes: ...
    def __getitem__(self, i: int | slice) -> memoryview | Bytes:
        if isinstance(i, slice):
            start, stop, step = i.indices(len(self))
            if step != 1:
                raise ValueError(f"a slice of Bytes has step {step}: expected 1 (or use [b[i] for i in ...])")
            return Bytes(self.data, self.offsets[start : max(start, stop) + 1])
        n = len(self)
        if not -n <= i < n:
            raise IndexError(f"string {i} of {n}")
        i %= n
        return self._view[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[memoryview]:
        offsets = self.offsets.tolist()
        for start, stop in zip(offsets, offsets[1:]):
            yield self._view[start:stop]

    def tolist(self) -> list[bytes]:
        """Copies of all strings."""
        return [bytes(b) for b in self]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other))

    def __hash__(self) -> int:
        raise TypeError("Bytes can be written to: it has no hash")

    def __reduce__(self) -> tuple[Any, ...]:
        start, stop = self.offsets[0], self.offsets[-1]
        return Bytes, (self.data[start:stop].copy(), self.offsets - start)

    def __repr__(self) -> str:
        shown = ", ".join(_short(bytes(b)) for b in self[:3])
        return f"<{len(self)} byte strings: {shown}{', ...' if len(self) > 3 else ''}>"


def _short(b: bytes) -> str:
    return repr(b) if len(b) <= 20 else f"{b[:20]!r}... ({len(b)})"


class Batch(dict[str, Any]):
    """A batch: component name -> array. The arrays lie in the engine's memory, are yours to write to, and keep that memory until the last of them is
    gone. Components of bytes are `Bytes`.

    Without `batch` in the pipeline it is an element: arrays have no batch dimension, and bytes are a memoryview.
    """

    __slots__ = ("_slab", "epoch", "g", "split", "index", "flags", "n_records")

    epoch: int
    """The epoch, from 0."""
    g: int
    """The number of the batch in the epoch, over all ranks."""
    split: int
    """The split that it came from (see docs/semantics.md) ..."""
    index: int
    """... and its number in it."""
    flags: int
    """2: padding, a repetition that fills up the last round of ranks and is not part of the epoch."""
    n_records: int
    """Records in it."""

    def __init__(self, slab: _core.Slab) -> None:
        super().__init__(_arrays(slab))
        self._slab: _core.Slab | None = slab
        self.epoch, self.g, self.split, self.index, self.flags, self.n_records = slab.place()

    def _owner(self) -> _core.Slab:
        if self._slab is None:
            raise UsageError("this batch is a copy: it knows its place, not its records")
        return self._slab

    @property
    def records(self) -> list[str]:
        """The ids of the records: `<file key>:<row>`, and `.<pass>` for each `repeat`."""
        return self._owner().records()

    @property
    def record_flags(self) -> list[int]:
        """1 for a record that stands in for one that failed (on_error="replace"), else 0."""
        return self._owner().record_flags()

    @property
    def is_padding(self) -> bool:
        """Whether it repeats another batch, so that all ranks get equally many."""
        return bool(self.flags & 2)

    def hash(self) -> int:
        """128 bits. The sum over all batches that are no padding, modulo 2**128, is the digest that `cachew run --digest` prints."""
        return self._owner().hash()

    def set_hash(self) -> int:
        """The same without order and epoch: their sum is the set digest."""
        return self._owner().set_hash()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}: {_describe(value)}" for name, value in self.items())
        return f"<Batch {self.g} of epoch {self.epoch}: {shown}>"


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    return f"{len(value)} byte strings" if isinstance(value, Bytes) else f"{len(value)} bytes"


def _arrays(slab: _core.Slab) -> Iterator[tuple[str, Any]]:
    for name, dtype, shape, data, lengths in slab.components():
        if lengths is None:
            yield name, np.ndarray(shape, numpy_dtype(dtype), data)
        elif not shape:
            yield name, memoryview(data)
        else:
            offsets = np.zeros(shape[0] + 1, np.int64)
            np.cumsum(np.ndarray(shape, np.uint64, lengths), out=offsets[1:], dtype=np.int64)
            yield name, Bytes(np.ndarray((int(offsets[-1]),), np.uint8, data), offsets)
