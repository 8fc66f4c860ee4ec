"""Operators that run Python functions: docs/semantics.md, section 9. The very functions are called, those
that the pipeline carries for the hosts.
"""

from __future__ import annotations

import asyncio
import base64
import pickle

import numpy as np

from .dtypes import RecordError, RunError, Type, Value, storage
from .philox import Draw, hash64
from .sources import Record, Source

try:
    from ml_dtypes import bfloat16
except ImportError:  # then functions get its bits
    bfloat16 = np.dtype("uint16")

Types = dict[str, Type]


def written_function(attrs: dict):
    return pickle.loads(base64.b64decode(attrs["function"]["payload"]))


def function_of(attrs: dict):
    """The function, to be called here: an `async def` function as one that is not."""
    function = written_function(attrs)
    if not attrs["function"].get("async"):
        return function
    return lambda *args, **rng: asyncio.run(function(*args, **rng))


def generator(attrs: dict, draw: Draw) -> dict:
    """The argument `rng`, for functions that ask for it."""
    if not attrs["function"]["rng"]:
        return {}
    return {"rng": np.random.Generator(np.random.Philox(key=np.array([draw.key, draw.element], np.uint64)))}


def outputs_of(attrs: dict) -> Types:
    def dims(shape: list | None) -> tuple | None:
        return None if shape is None else tuple(shape)

    return {
        name: Type(given["dtype"], dims(given.get("shape", [])))
        for name, given in sorted(attrs["outputs"].items(), key=lambda o: o[0].encode())
    }


# ---- values as functions see them, and what they return as values ----


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def given(value: Value, type_: Type):
    """A component as a function gets it, its own to write to: bytes, an array, or a NumPy scalar where the
    shape is known to be that of one.
    """
    if value.dtype == "bytes":
        return value.data
    copy = np.array(value.data, order="C").view(numpy_dtype(value.dtype))
    return copy[()] if type_.fixed() else copy


def element_of(components: dict[str, Value], types: Types) -> dict:
    return {name: given(components[name], types[name]) for name in sorted(types, key=str.encode)}


def fits(shape: tuple[int, ...], dims: tuple | None) -> bool:
    return dims is None or len(shape) == len(dims) and all(d is None or d == n for d, n in zip(dims, shape))


def plain_number(value, type_: Type) -> np.ndarray:
    """A Python number, if it is of the kind of the dtype and can be held."""
    kinds = {"b": bool, "i": int, "u": int}.get(numpy_dtype(type_.dtype).kind, (int, float))
    if not isinstance(value, kinds) or isinstance(value, bool) != (type_.dtype == "bool"):
        raise RecordError(f"returned a {type(value).__name__}, expected {type_.dtype}")
    try:
        return np.array(value, numpy_dtype(type_.dtype))
    except OverflowError as error:
        raise RecordError(f"{value} is no {type_.dtype}") from error


def returned(value, type_: Type) -> Value:
    """A component that a function returned, as its declared type."""
    if type_.dtype == "bytes":
        if not isinstance(value, (bytes, bytearray, memoryview, str)):
            raise RecordError(f"returned a {type(value).__name__}, expected bytes")
        return Value("bytes", value.encode() if isinstance(value, str) else bytes(value))
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        data = plain_number(value, type_)
    else:
        data = np.asarray(value)
    if data.dtype != numpy_dtype(type_.dtype) or not fits(data.shape, type_.dims):
        raise RecordError(f"returned {data.dtype}{data.shape}, expected {type_}")
    return Value(type_.dtype, data.view(storage(type_.dtype)).copy())


def components_of(result, types: Types) -> dict[str, Value]:
    if not isinstance(result, dict) or result.keys() != types.keys():
        raise RecordError("returned other components than it declares")
    return {name: returned(result[name], type_) for name, type_ in types.items()}


def called(function, *arguments, **keywords):
    """What a function raises makes the record fail."""
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        raise RecordError(f"{type(error).__name__}: {error}") from error


# ---- operators: (types after, apply) for operators.Bound ----


def map_(attrs: dict, types: Types):
    function, outputs = function_of(attrs), outputs_of(attrs)

    def apply(components: dict[str, Value], draw: Draw) -> dict[str, Value]:
        return components_of(
            called(function, element_of(components, types), **generator(attrs, draw)), outputs
        )

    return outputs, apply


def filter_function(attrs: dict, types: Types):
    function = function_of(attrs)

    def apply(components: dict[str, Value], draw: Draw) -> bool:
        return called(lambda: bool(function(element_of(components, types), **generator(attrs, draw))))

    return types, apply


def flat_map(attrs: dict, types: Types):
    function, outputs = function_of(attrs), outputs_of(attrs)

    def apply(components: dict[str, Value], draw: Draw) -> list[dict[str, Value]]:
        results = called(lambda: list(function(element_of(components, types), **generator(attrs, draw))))
        return [components_of(result, outputs) for result in results]

    return outputs, apply


# ---- whole batches ----


class BatchMap:
    """map_batches. A batch is {name: (dims with the number of rows first, the values of the rows)}; what
    goes wrong in it is no record's.
    """

    def __init__(self, attrs: dict, types: Types, salt: str):
        self.attrs, self.before, self.salt = attrs, types, salt
        self.function, self.types = function_of(attrs), outputs_of(attrs)

    def apply(
        self, batch: dict[str, np.ndarray | list[bytes]], key: int, eids: list[int]
    ) -> dict[str, np.ndarray | list[bytes]]:
        draw = Draw(key, hash64(*(e.to_bytes(8, "little") for e in eids)))
        arguments = {
            name: self.given(batch[name], self.before[name]) for name in sorted(batch, key=str.encode)
        }
        try:
            result = called(self.function, arguments, **generator(self.attrs, draw))
            if result.keys() != self.types.keys():
                raise RecordError("returned other components than it declares")
            return {name: self.returned(result[name], type_, len(eids)) for name, type_ in self.types.items()}
        except RecordError as error:
            raise RunError(f"map_batches: {error}") from error

    @staticmethod
    def given(values: np.ndarray | list[bytes], type_: Type):
        if type_.dtype != "bytes":
            return np.array(values, order="C").view(numpy_dtype(type_.dtype))
        from cachew import Bytes  # a class of the package: functions are written for it

        data = np.frombuffer(bytearray(b"".join(values)), np.uint8)
        return Bytes(data, np.cumsum([0, *map(len, values)], dtype=np.int64))

    @staticmethod
    def returned(value, type_: Type, n: int) -> np.ndarray | list[bytes]:
        if type_.dtype == "bytes":
            if len(value) != n:
                raise RecordError(f"returned {len(value)} strings, expected {n}")
            return [returned(v, type_).data for v in value]
        data = np.asarray(value)
        if (
            data.dtype != numpy_dtype(type_.dtype)
            or data.shape[:1] != (n,)
            or not fits(data.shape[1:], type_.dims)
        ):
            raise RecordError(f"returned {data.dtype}{data.shape}, expected {n} rows of {type_}")
        return np.ascontiguousarray(data).view(storage(type_.dtype))


# ---- a source ----


class Iterable(Source):
    """Elements one after the other; `broken` is what the iterable raised after them."""

    random_access = False
    stream = True

    def __init__(self, attrs: dict, base):
        self.types = outputs_of(attrs)
        self.records = []
        self.broken: RunError | None = None
        key = hash64(attrs["function"]["identity"].encode())
        try:
            for row, element in enumerate(function_of(attrs)()):
                self.records.append(Record(key, row, 0, element))
        except Exception as error:
            self.broken = RunError(f"iterable: {error}, after {len(self.records)} elements")
        self.chunk_lengths = [len(self.records)]

    def element(self, record: Record) -> dict[str, Value]:
        return components_of(record.content, self.types)
