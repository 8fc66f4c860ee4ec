"""Operators on components of numbers: one_hot, pad, reshape, flatten, stack, concat_components, bucketize,
standardize, serialize_tensor; and lookup, of words.
"""

from __future__ import annotations

import math

import numpy as np

from .dtypes import (
    FLOATS,
    INTEGERS,
    Dims,
    PlanError,
    RecordError,
    Type,
    Value,
    array,
    cast,
    float_value,
    storage,
    to_numpy,
)

MOST_DIMS = 6


def numbers(types: dict[str, Type], name: str) -> Type:
    if name not in types:
        raise PlanError(f"no component {name}")
    if types[name].dtype == "bytes":
        raise PlanError(f"{name} is bytes")
    return types[name]


def like(value: Value, data: np.ndarray) -> Value:
    return Value(value.dtype, np.asarray(data).astype(storage(value.dtype)))


class OneHot:
    def __init__(self, attrs: dict, types: dict[str, Type]):
        before = numbers(types, attrs["component"])
        if before.dtype not in (*INTEGERS, "bool") or attrs["dtype"] == "bytes":
            raise PlanError("one_hot of no integers")
        if before.dims is not None and len(before.dims) == MOST_DIMS:
            raise PlanError("one_hot: too many dimensions")
        self.classes, self.dtype = attrs["classes"], attrs["dtype"]
        dims = None if before.dims is None else (*before.dims, self.classes)
        self.type = Type(self.dtype, dims)

    def __call__(self, value: Value) -> Value:
        classes = value.data.astype(object)
        if any(not 0 <= int(k) < self.classes for k in classes.ravel()):
            raise RecordError("one_hot: no such class")
        if value.data.ndim == MOST_DIMS:
            raise RecordError("one_hot: too many dimensions")
        eye = cast(array("uint8", np.eye(self.classes)), self.dtype).data
        return Value(self.dtype, eye[value.data.astype(np.int64)])


class Pad:
    def __init__(self, attrs: dict, types: dict[str, Type]):
        before = numbers(types, attrs["component"])
        shape, to = attrs["shape"], attrs["to"]
        if bool(shape) == (to >= 0):
            raise PlanError("pad: shape or to")
        self.sizes = shape
        self.to = to
        dims = before.dims
        if shape:
            if dims is not None and len(dims) != len(shape):
                raise PlanError("pad: another number of dimensions")
            dims = (None,) * len(shape) if dims is None else dims
        elif dims == ():
            raise PlanError("pad of a scalar")
        if dims is not None:
            sizes = shape or [to, *[-1] * (len(dims) - 1)]
            if any(0 <= s < (d or 0) for d, s in zip(dims, sizes)):
                raise PlanError("pad: too small")
            dims = tuple(d if s < 0 else s for d, s in zip(dims, sizes))
        self.type = Type(before.dtype, dims)
        self.fill = cast(array("float64", attrs["value"]), before.dtype)
        if before.dtype not in FLOATS and self.fill.data != attrs["value"]:
            raise PlanError("pad: the value does not fit the dtype")

    def __call__(self, value: Value) -> Value:
        have = value.shape
        sizes = self.sizes or [self.to, *[-1] * (len(have) - 1)]
        if len(sizes) != len(have):
            raise RecordError("pad: another number of dimensions")
        want = [h if s < 0 else s for h, s in zip(have, sizes)]
        if any(h > w for h, w in zip(have, want)):
            raise RecordError("pad: too large")
        return Value(
            value.dtype,
            np.pad(value.data, [(0, w - h) for h, w in zip(have, want)], constant_values=self.fill.data),
        )


class Reshape:
    def __init__(self, attrs: dict, types: dict[str, Type]):
        before = numbers(types, attrs["component"])
        self.shape = attrs.get("shape", [-1])
        rest = [s for s in self.shape if s != -1]
        if len(rest) < len(self.shape) - 1 or -1 in self.shape and 0 in rest:
            raise PlanError("reshape: more than one size is open")
        dims: Dims = tuple(None if s == -1 else s for s in self.shape)
        if before.fixed():
            dims = self.of(Value(before.dtype, np.zeros(before.dims, storage(before.dtype))), PlanError).shape
        self.type = Type(before.dtype, dims)

    def of(self, value: Value, wrong: type[Exception]) -> Value:
        try:
            return Value(value.dtype, value.data.reshape(self.shape))
        except ValueError as error:
            raise wrong(str(error)) from error

    def __call__(self, value: Value) -> Value:
        return self.of(value, RecordError)


class Join:
    """stack and concat_components."""

    def __init__(self, attrs: dict, types: dict[str, Type], stacks: bool):
        self.names, self.axis, self.stacks = attrs["components"], attrs["axis"], stacks
        inputs = [numbers(types, name) for name in self.names]
        if len({t.dtype for t in inputs}) > 1:
            raise PlanError("different dtypes")
        self.type = Type(inputs[0].dtype, self.dims([t.dims for t in inputs]))

    def dims(self, shapes: list[Dims]) -> Dims:
        if None in shapes:
            before = shapes[: shapes.index(None)]  # they are compared with one another
            if before:
                self.merged(before)
            return None
        return self.merged(shapes)

    def merged(self, shapes: list[tuple]) -> tuple:
        ndim = len(shapes[0])
        if any(len(s) != ndim for s in shapes):
            raise PlanError("different shapes")
        have = ndim + self.stacks
        if not -have <= self.axis < have or have > MOST_DIMS or have == 0:
            raise PlanError("no such axis")
        axis = self.axis % have
        dims: list = []
        for at, sizes in enumerate(zip(*shapes)):
            known = {s for s in sizes if s is not None}
            if not self.stacks and at == axis:
                dims.append(None if None in sizes else sum(sizes))
            elif len(known) > 1:
                raise PlanError("different shapes")
            else:
                dims.append(known.pop() if known else None)
        if self.stacks:
            dims.insert(axis, len(shapes))
        return tuple(dims)

    def __call__(self, values: list[Value]) -> Value:
        try:
            join = np.stack if self.stacks else np.concatenate
            result = join([v.data for v in values], axis=self.axis)
        except ValueError as error:
            raise RecordError(str(error)) from error
        if result.ndim > MOST_DIMS:
            raise RecordError("too many dimensions")
        return Value(values[0].dtype, result)


class Bucketize:
    def __init__(self, attrs: dict, types: dict[str, Type]):
        self.boundaries = np.array(attrs["boundaries"], np.float64)
        if (np.diff(self.boundaries) <= 0).any():
            raise PlanError("boundaries must ascend")
        self.type = Type("int64", numbers(types, attrs["component"]).dims)

    def __call__(self, value: Value) -> Value:
        return array("int64", np.digitize(to_numpy(value).astype(np.float64), self.boundaries))


class Standardize:
    def __init__(self, attrs: dict, types: dict[str, Type]):
        before = numbers(types, attrs["component"])
        self.mean, self.std = (np.atleast_1d(np.array(attrs[k], np.float64)) for k in ("mean", "std"))
        self.dtype = attrs["dtype"]
        n = max(len(self.mean), len(self.std))
        if len(self.mean) not in (1, n) or len(self.std) not in (1, n) or (self.std == 0).any():
            raise PlanError("standardize: mean and std don't fit")
        if n > 1 and (not before.dims or before.dims[-1] != n):
            raise PlanError("standardize: another number of features")
        if self.dtype not in FLOATS:
            raise PlanError("standardize gives floating-point numbers")
        self.type = Type(self.dtype, before.dims)

    def __call__(self, value: Value) -> Value:
        with np.errstate(all="ignore"):
            result = (to_numpy(value).astype(np.float64) - self.mean) / self.std
        return float_value(self.dtype, result.reshape(value.shape))


class Lookup:
    def __init__(self, attrs: dict, types: dict[str, Type]):
        if types.get(attrs["component"], Type("int64")).dtype != "bytes":
            raise PlanError("lookup of no bytes")
        words = [word.encode() for word in attrs["vocabulary"]]
        if len(set(words)) < len(words):
            raise PlanError("a word occurs twice")
        self.numbers = {word: k for k, word in enumerate(words)}
        self.default = attrs["default"]
        self.type = Type("int64")

    def __call__(self, value: Value) -> Value:
        return array("int64", self.numbers.get(value.data, self.default))


class SerializeTensor:
    def __init__(self, attrs: dict, types: dict[str, Type]):
        numbers(types, attrs["component"])
        self.type = Type("bytes")

    def __call__(self, value: Value) -> Value:
        head = np.array([len(value.shape), *value.shape], "<i8").tobytes()
        raw = value.raw()
        return Value("bytes", head + raw + bytes(-len(raw) % 8))


ON_ONE = {
    "one_hot": OneHot,
    "pad": Pad,
    "reshape": Reshape,
    "flatten": Reshape,
    "bucketize": Bucketize,
    "standardize": Standardize,
    "lookup": Lookup,
    "serialize_tensor": SerializeTensor,
}
JOINS = {"stack": True, "concat_components": False}
DEFAULTS: dict[str, dict] = {
    "one_hot": {"dtype": "float32"},
    "pad": {"shape": [], "to": -1, "value": 0},
    "reshape": {},
    "flatten": {},
    "stack": {"axis": 0},
    "concat_components": {"axis": 0},
    "bucketize": {},
    "standardize": {"dtype": "float32"},
    "lookup": {"vocabulary": [], "file": "", "default": -1},
    "serialize_tensor": {},
}


def size(dims: Dims) -> int | None:
    """Number of values of a known shape."""
    return None if dims is None or None in dims else math.prod(dims)
