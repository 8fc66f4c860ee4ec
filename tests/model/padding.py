"""How `batch` and `bucket_by_length` pad the rows of a batch to one shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .dtypes import FLOATS, PlanError, RunError, Type, Value, array, cast, storage


@dataclass
class Padding:
    """How one component is padded: the value, and the size of each dimension (None: the longest). boundary:
    dimensions that vary are filled up to the largest length of the batch's bucket.
    """

    value: Value
    to: list[int | None] | None = None
    boundary: bool = False
    varies: tuple[bool, ...] | None = None  # by dimension; None: all

    def wanted(self, shape: tuple[int, ...], longest: int | None) -> tuple[int, ...]:
        """The shape of a batch whose rows are at most so large."""
        if self.to is not None and len(self.to) != len(shape):
            raise RunError("pad has another number of dimensions")
        sizes = self.to or [
            longest if self.boundary and (self.varies is None or self.varies[d]) else None
            for d in range(len(shape))
        ]
        if any(size is not None and have > size for have, size in zip(shape, sizes)):
            raise RunError("an element is larger than what it is padded to")
        return tuple(have if size is None else size for have, size in zip(shape, sizes))

    def apply(self, name: str, values: list[Value], longest: int | None) -> list[Value]:
        if len({len(v.shape) for v in values}) > 1:
            raise RunError(f"{name} has elements with different numbers of dimensions")
        shape = self.wanted(tuple(max(dims) for dims in zip(*(v.shape for v in values))), longest)
        result = []
        for value in values:
            data = np.full(shape, self.value.data, dtype=storage(value.dtype))
            data[tuple(slice(d) for d in value.shape)] = value.data
            result.append(Value(value.dtype, data))
        return result

    def empty(self, type_: Type, longest: int | None) -> tuple[int, ...]:
        """The shape of the rows of a batch without rows."""
        return self.wanted(tuple(d or 0 for d in type_.dims or ()), longest)


def of(batcher: str, attrs: dict, name: str, type_: Type) -> Padding | None:
    """How a component is padded; None: its rows must have equal shapes, or are bytes."""
    pad = attrs["pad"]
    named = isinstance(pad, dict) and name in pad
    if named and type_.dtype == "bytes":
        raise PlanError(f"{batcher}: {name} can't be padded")
    if type_.dtype == "bytes" or isinstance(pad, dict) and not named and batcher == "batch":
        return None
    own = pad[name] if named else {} if isinstance(pad, dict) else pad
    if not named and type_.fixed():
        own = {}
    own = {"to": own} if isinstance(own, str) else own if isinstance(own, dict) else {"value": own}
    number, to = own.get("value", 0), own.get("to", "longest")
    value = (
        cast(array("float64", number), type_.dtype) if type_.dtype in FLOATS else array(type_.dtype, number)
    )
    if isinstance(to, list):
        if type_.dims is not None and len(to) != len(type_.dims):
            raise PlanError(f"{batcher}: pad of {name} has another number of dimensions")
        if any(t is not None and (d or 0) > t for t, d in zip(to, type_.dims or ())):
            raise PlanError(f"{batcher}: pad of {name} is too small")
        return Padding(value, to)
    varies = None if type_.dims is None else tuple(d is None for d in type_.dims)
    return Padding(value, None, to == "boundary", varies)
