"""Values, their types, and conversions between dtypes. bfloat16, which NumPy lacks, is kept as its 16 bits
in a uint16 array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import numpy as np

INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = ("bool", *INTEGERS, *FLOATS, "bytes")

# None in place of a dimension: varies; None in place of all: not even the rank is known
Dims = Optional[tuple[Optional[int], ...]]


@dataclass(frozen=True)
class Type:
    dtype: str
    dims: Dims = ()

    def fixed(self) -> bool:
        return self.dtype != "bytes" and self.dims is not None and None not in self.dims

    def size(self) -> int:
        """Bytes of one element of a fixed type."""
        return int(np.prod(self.dims, dtype=object)) * storage(self.dtype).itemsize


@dataclass(frozen=True)
class Value:
    dtype: str
    data: np.ndarray | bytes

    @property
    def shape(self) -> tuple[int, ...]:
        return () if isinstance(self.data, bytes) else self.data.shape

    def raw(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else np.ascontiguousarray(self.data).tobytes()


class RecordError(Exception):
    """The record can't be computed from its bytes: docs/semantics.md section 7."""


class RunError(Exception):
    """What always ends the run."""


class PlanError(Exception):
    """The pipeline is wrong: exit code 2."""


def storage(dtype: str) -> np.dtype:
    """The NumPy dtype a value is kept in."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")


def array(dtype: str, data) -> Value:
    return Value(dtype, np.asarray(data, dtype=storage(dtype)))


def bfloat_to_float(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def round_to_bfloat(x: np.ndarray) -> np.ndarray:
    """float64 to bfloat16 bits with one rounding to nearest even: first to float32 by round-to-odd, which
    loses nothing that matters.
    """
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(all="ignore"):
        f = x.astype(np.float32)
    bits = f.view(np.uint32)
    exact = f.astype(np.float64) == x
    too_big = np.abs(f.astype(np.float64)) > np.abs(x)
    truncated = np.where(too_big, bits - np.uint32(1), bits)
    bits = np.where(exact | np.isnan(x), bits, truncated | np.uint32(1)).astype(np.uint32)
    rounded = (
        (bits.astype(np.uint64) + 0x7FFF + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint64(16)
    ).astype(np.uint16)
    quiet = ((bits >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return np.where(np.isnan(x), quiet, rounded).astype(np.uint16)


def to_numpy(value: Value) -> np.ndarray:
    """As a plain NumPy array; bfloat16 becomes float32, exactly."""
    return bfloat_to_float(value.data) if value.dtype == "bfloat16" else value.data


def float_value(dtype: str, data: np.ndarray) -> Value:
    """A result rounded once to a floating dtype; NaN is always the positive quiet one."""
    data = np.asarray(data)
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            return Value(dtype, np.where(np.isnan(data), np.uint16(0x7FC0), round_to_bfloat(data)))
        result = data.astype(dtype)
    return Value(dtype, np.where(np.isnan(result), np.array(np.nan, dtype=dtype), result))


def float_to_integer(data: np.ndarray, dtype: str) -> np.ndarray:
    """Round half to even, saturate, NaN is 0."""
    info = np.iinfo(dtype)
    x = np.rint(data.astype(np.float64))
    out = np.zeros(x.shape, dtype=dtype)
    inside = (x >= float(info.min)) & (x < float(info.max) + (0.0 if info.max >= 2**53 else 1.0))
    out[inside] = x[inside].astype(dtype)
    out[x < float(info.min)] = info.min
    out[(x >= float(info.max))] = info.max
    return out


def cast(value: Value, dtype: str) -> Value:
    """The operator `cast`, and casts in expressions."""
    if value.dtype == dtype:
        return value
    if "bytes" in (value.dtype, dtype):
        raise PlanError("bytes can't be cast")
    data = to_numpy(value)
    if dtype == "bool":
        return Value(dtype, data != 0)
    if dtype in FLOATS:
        by_way = (
            data.astype(np.float32) if value.dtype in INTEGERS and dtype in ("float16", "bfloat16") else data
        )
        return float_value(dtype, by_way)
    if value.dtype in FLOATS:
        return Value(dtype, float_to_integer(np.atleast_1d(data), dtype).reshape(value.shape))
    return Value(dtype, data.astype(dtype))
