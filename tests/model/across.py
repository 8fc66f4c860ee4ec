"""Parts of expressions that look at several values of a record: sums, indices, slices, functions of bytes;
docs/expressions.md.
"""

from __future__ import annotations

import numpy as np
import xxhash

from .dtypes import FLOATS, INTEGERS, PlanError, RecordError, Value, array, float_value, to_numpy

REDUCTIONS = ("min", "max", "sum", "mean")
TEXT = ("hash", "lower", "strip", "startswith", "endswith")


def whole(tree) -> int | None:
    """The integer of a literal, which may have a sign; None: it is something else."""
    if tree[0] == "unary" and tree[1] in "+-":
        n = whole(tree[2])
        return n if n is None or tree[1] == "+" else -n
    return tree[1] if tree[0] == "number" and type(tree[1]) is int else None


def bounds(item) -> tuple[int | None, int | None, int]:
    """Start, stop and step of a slice."""
    start, stop, step = (part and whole(part) for part in item[1])
    if any(part and whole(part) is None for part in item[1]) or step == 0:
        raise PlanError("expression: bounds of slices are integer literals")
    return start, stop, 1 if step is None else step


def slice_of(item) -> slice:
    return slice(*bounds(item))


def index(value, items: list, checked: bool) -> Value:
    if isinstance(value, (int, float)):
        raise PlanError("expression: an index of a literal")
    if value.dtype == "bytes":
        return Value("bytes", value.data[items[0]])
    data = value.data
    at = 0
    for item in items:
        if isinstance(item, slice):
            if data.ndim > at:
                data = data[(slice(None),) * at + (item,)]
            at += 1
            continue
        if not isinstance(item, int) and (not isinstance(item, Value) or item.dtype not in INTEGERS):
            raise PlanError("expression: an index must be an integer")
        if not checked and data.ndim <= at:  # only the dtype counts
            continue
        k = item if isinstance(item, int) else int(item.data.astype(np.int64))
        if not -data.shape[at] <= k < data.shape[at]:
            if not checked:
                return array(value.dtype, 1)
            raise RecordError("index out of range")
        data = np.take(data, k, axis=at)
    return Value(value.dtype, np.asarray(data))


def add(name: str, value: Value) -> Value:
    """sum or mean of all values."""
    if name == "sum" and value.dtype not in FLOATS:
        dtype = "uint64" if value.dtype.startswith("u") else "int64"
        return array(dtype, np.sum(value.data.astype(dtype)))
    dtype = value.dtype if value.dtype in FLOATS else "float64"
    parts = [0.0] * 8
    values = to_numpy(value).astype(np.float64).reshape(-1)
    if value.data.ndim == 0:
        return float_value(dtype, values.reshape(()))
    for k, x in enumerate(values):
        parts[k % 8] = parts[k % 8] + x
    a, b, c, d, e, f, g, h = parts
    total = np.float64(((a + b) + (c + d)) + ((e + f) + (g + h)))
    return float_value(dtype, total / np.float64(len(values)) if name == "mean" else total)


def text(name: str, values: list[Value]) -> Value:
    first = values[0]
    if name == "hash" and first.dtype != "bytes":
        if first.dtype in FLOATS:
            raise PlanError("expression: hash of floating-point numbers")
        hashes = [xxhash.xxh3_64_intdigest(x.tobytes()) for x in first.data.reshape(-1)]
        return array("uint64", np.array(hashes, np.uint64).reshape(first.shape))
    if any(v.dtype != "bytes" for v in values):
        raise PlanError(f"expression: {name} of numbers")
    if name == "hash":
        return array("uint64", xxhash.xxh3_64_intdigest(first.data))
    result = getattr(first.data, name)(*(v.data for v in values[1:]))
    return Value("bytes", result) if isinstance(result, bytes) else array("bool", result)
