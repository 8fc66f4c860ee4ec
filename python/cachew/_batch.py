"""Batches: dicts of NumPy arrays that lie in the engine's memory."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast, overload

import numpy as np
import numpy.typing as npt

from cachew._errors import UsageError
from cachew._values import shown_bytes

if TYPE_CHECKING:
    from cachew import _core

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in (
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
    )
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype for a component's dtype. bfloat16 becomes the dtype of ml_dtypes where that package is
    installed, else uint16, which holds the same bits.
    """
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


_NO_ARRAY = (
    "of varying length are no array: take .data (uint8) and .offsets, or single strings [i], or .tolist(); "
    "batch.arrow() exports them as large_binary"
)


class Bytes(Sequence[memoryview]):
    """Byte strings of varying length, one after the other in one array. `b[i]` is a memoryview of string i,
    without a copy; `bytes(b[i])` copies it.

    `data` (uint8) holds the bytes; string i lies at `data[offsets[i]:offsets[i + 1]]`.
    """

    __slots__ = ("data", "offsets", "_view")

    def __init__(self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        self.data = data
        self.offsets = offsets
        self._view = memoryview(cast(Any, data))

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
        try:
            i = operator.index(i)
        except TypeError:
            raise TypeError(
                f"the index {i!r:.60} of a string is a {type(i).__name__}: expected an "
                f"integer or a slice (or use [b[i] for i in ...])"
            ) from None
        if not -n <= i < n:
            raise IndexError(f"string {i} does not exist: there are {n} strings")
        i %= n
        return self._view[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[memoryview]:
        offsets = self.offsets.tolist()
        for start, stop in zip(offsets, offsets[1:]):
            yield self._view[start:stop]

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        """Refuses: strings of varying length can't form one array."""
        raise TypeError(f"byte strings {_NO_ARRAY}")

    def __dlpack_device__(self) -> NoReturn:
        raise BufferError(f"byte strings {_NO_ARRAY}")

    def __dlpack__(self, **_: object) -> NoReturn:
        raise BufferError(f"byte strings {_NO_ARRAY}")

    def tolist(self) -> list[bytes]:
        """Copies of all strings."""
        return [bytes(b) for b in self]

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> list[str]:
        """All strings as texts; as `bytes.decode` of each."""
        return [str(b, encoding, errors) for b in self]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other))

    def __hash__(self) -> int:
        raise TypeError("a Bytes object can be written to, so it has no hash")

    def __reduce__(self) -> tuple[Any, ...]:
        start, stop = self.offsets[0], self.offsets[-1]
        return Bytes, (self.data[start:stop].copy(), self.offsets - start)

    def __repr__(self) -> str:
        shown = ", ".join(_short(bytes(b)) for b in self[:3])
        return f"<{len(self)} byte strings: {shown}{', ...' if len(self) > 3 else ''}>"


def _short(b: bytes) -> str:
    return repr(b) if len(b) <= 20 else f"{b[:20]!r}... ({len(b)})"


class Batch(dict[str, Any]):
    """A batch: component name -> array. The arrays lie in the engine's memory, without a copy. The program
    may write to the arrays; the memory is freed when no array of the batch is referenced any more. Components
    of bytes are `Bytes`.

    If the pipeline has no `batch`, a batch is one element: arrays have no batch dimension, and bytes are a
    memoryview.
    """

    __slots__ = ("_slab", "_batched", "_records", "_record_flags", "epoch", "g", "flags", "n_records")

    epoch: int
    """The epoch, from 0."""
    g: int
    """The number of the batch in the epoch, from 0. The batches of all ranks are counted together."""
    flags: int
    """2 (CACHEW_PADDING of the C interface) if the batch is padding (see `is_padding`), else 0. The flag 1
    exists only for single records (see `record_flags`).
    """
    n_records: int
    """The number of records in the batch."""

    _slab: _core.Slab | None
    _batched: bool
    _records: list[str] | None
    _record_flags: list[int] | None

    @classmethod
    def _over(cls, slab: _core.Slab, batched: bool) -> Batch:
        self = cls(_arrays(slab))
        self._slab, self._batched, self._records, self._record_flags = slab, batched, None, None
        self.epoch, self.g, self.flags, self.n_records = slab.place()
        return self

    @property
    def records(self) -> list[str]:
        """The ids of the records: `<file key>:<row>`, followed by `.<pass>`, the number of the pass, for each
        `repeat` in the pipeline.
        """
        if self._records is None:
            self._records = list(self._owner().records())
        return self._records

    @property
    def record_flags(self) -> list[int]:
        """Per record: 1 if it replaces a record that failed (on_error="replace"), else 0."""
        if self._record_flags is None:
            self._record_flags = list(self._owner().record_flags())
        return self._record_flags

    @property
    def is_padding(self) -> bool:
        """Whether the batch repeats another one, so that all ranks get the same number of batches. Padding is
        not part of the epoch.
        """
        return bool(self.flags & 2)

    def hash(self) -> int:
        """A hash of 128 bits over the epoch, `g`, and the present content of the arrays. The sum over all
        batches except padding, modulo 2**128, is the digest that `cachew run --digest` prints.
        """
        return self._owner().hash()

    def set_hash(self) -> int:
        """A hash of 128 bits that depends neither on the epoch and `g` nor on the order of the elements. The
        sum over all batches except padding, modulo 2**128, is the set digest of `cachew run`.
        """
        return self._owner().set_hash()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The batch as an Arrow struct array; see `arrow`."""
        return self._owner().arrow(self._batched)

    def arrow(self) -> Arrow:
        """The batch as Arrow data, for `pyarrow.record_batch(batch.arrow())` or
        `polars.DataFrame(batch.arrow())`. Only components of bool are copied, because Arrow stores a bool as
        one bit. (`pyarrow.array` accepts the batch itself, too. Other functions and libraries would take the
        batch for a dict.)

        Elements of one dimension become lists of fixed size, elements of more dimensions fixed-shape tensors,
        bytes large_binary, and bfloat16 uint16 with the same bits.
        """
        return Arrow(self)

    def _owner(self) -> _core.Slab:
        if self._slab is None:
            raise UsageError(
                "this batch is a copy with arrays of its own: expected a batch as the iterator gave it"
            )
        return self._slab

    def __reduce__(self) -> tuple[Any, ...]:
        place = (self.epoch, self.g, self.flags, self.n_records)
        return _copied, (
            {k: bytes(v) if isinstance(v, memoryview) else v for k, v in self.items()},
            self._batched,
            place,
            self.records,
            self.record_flags,
        )

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}: {_describe(value)}" for name, value in self.items())
        return f"<Batch {self.g} of epoch {self.epoch}: {shown}>"


class Arrow:
    """A batch that other libraries can see only as Arrow data, not as a dict."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._batch.__arrow_c_array__(requested_schema)


def _copied(
    components: dict[str, Any],
    batched: bool,
    place: tuple[int, ...],
    records: list[str],
    record_flags: list[int],
) -> Batch:
    """Makes a batch from a pickle. It has its own arrays, not the engine's memory."""
    self = Batch(components)
    self._slab, self._batched, self._records, self._record_flags = None, batched, records, record_flags
    self.epoch, self.g, self.flags, self.n_records = place
    return self


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    return f"{len(value)} byte strings" if isinstance(value, Bytes) else shown_bytes(len(value))


def _arrays(slab: _core.Slab) -> Iterator[tuple[str, Any]]:
    data: Any  # _core.Buffer, which NumPy's type annotations do not accept
    lengths: Any
    for name, dtype, shape, data, lengths in slab.components():
        if lengths is None:
            yield name, np.ndarray(shape, numpy_dtype(dtype), data)
        elif not shape:
            yield name, memoryview(data)
        else:
            offsets = np.zeros(shape[0] + 1, np.int64)
            np.cumsum(np.ndarray(shape, np.int64, lengths), out=offsets[1:])
            yield name, Bytes(np.ndarray((int(offsets[-1]),), np.uint8, data), offsets)
