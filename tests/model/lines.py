"""text and jsonl: lines of files, and JSON objects on them."""

import json
import math
from pathlib import Path

import numpy as np

from . import philox
from .dtypes import FLOATS, RecordError, Type, Value, array, float_value, to_numpy
from .operators import Feature, read_features
from .sources import Record, Source, decompress, detected, matching_files


class Lines(Source):
    """`attrs["files"]`, a record per line."""

    def __init__(self, attrs: dict, base: Path):
        self.records, self.chunk_lengths = [], []
        self.max_line = attrs["max_line"]
        for relative, path in matching_files(attrs["files"], base):
            self.add_file(relative, path.read_bytes(), attrs["compression"])

    def add_file(self, relative: str, stored: bytes, compression: str) -> None:
        if compression == "auto":
            compression = detected(stored)
        data, compressed = decompress(stored, compression)
        if compressed:
            self.random_access = False
        pieces = data.split(b"\n")
        lines = [piece.removesuffix(b"\r") for piece in pieces[:-1]] + [p for p in pieces[-1:] if p]
        key = philox.hash64(
            relative.encode(), b"\0", philox.le64(len(stored)), philox.le64(philox.hash64(data))
        )
        self.add_records([Record(key, row, len(line), line) for row, line in enumerate(lines)])

    def line(self, record: Record) -> bytes:
        if len(record.content) > self.max_line:
            raise RecordError("line too long")
        return record.content


class Text(Lines):
    def __init__(self, attrs: dict, base: Path):
        super().__init__(attrs, base)
        self.types = {"text": Type("bytes")}

    def element(self, record: Record) -> dict[str, Value]:
        return {"text": Value("bytes", self.line(record))} if "text" in self.needed else {}


class TooLarge(float):
    """A number in JSON that no float64 holds."""


def parse_float(text: str) -> float:
    value = float(text)
    return TooLarge(value) if math.isinf(value) else value


def number(dtype: str, value: object) -> object:
    """The value as the dtype holds it, or a RecordError; nothing is rounded to an integer, wrapped or
    saturated.
    """
    if dtype == "bool":
        if not isinstance(value, bool):
            raise RecordError("expected true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RecordError(f"expected {dtype}")
    if dtype not in FLOATS:
        if isinstance(value, float):
            if math.isnan(value) or abs(value) > 2**53 or not value.is_integer():
                raise RecordError(f"not an integer within 2^53: {value}")
            value = int(value)
        info = np.iinfo(dtype)
        if not info.min <= value <= info.max:
            raise RecordError(f"{value} is out of range for {dtype}")
        return value
    try:
        value = value if isinstance(value, TooLarge) else float(value)
    except OverflowError as error:
        raise RecordError(f"{value} is out of range") from error
    stored = float_value(dtype, np.float64(value))
    if isinstance(value, TooLarge) or math.isfinite(value) and not np.isfinite(to_numpy(stored)):
        raise RecordError(f"{value} is out of range for {dtype}")
    return value


def flatten(value: object, shape: tuple, dtype: str) -> list:
    """The numbers of nested lists of just this shape; None in front: any length."""
    if not shape:
        return [number(dtype, value)]
    if not isinstance(value, list) or shape[0] is not None and len(value) != shape[0]:
        raise RecordError(f"expected a list of {shape[0]}")
    return [n for item in value for n in flatten(item, shape[1:], dtype)]


def feature_value(feature: Feature, found: object) -> Value:
    if found is None:
        return feature.value(None)
    if feature.dtype == "bytes":
        if not isinstance(found, str):
            raise RecordError("expected a string")
        return Value("bytes", found.encode())
    dims = feature.type().dims
    numbers = flatten(found, dims, feature.dtype)
    shape = (-1, *dims[1:]) if feature.variable else dims
    if feature.dtype in FLOATS:
        value = float_value(feature.dtype, np.array(numbers, dtype=np.float64))
    else:
        value = array(feature.dtype, numbers)
    return Value(feature.dtype, value.data.reshape(shape if numbers else (0, *dims[1:])))


class JsonLines(Lines):
    def __init__(self, attrs: dict, base: Path):
        super().__init__(attrs, base)
        self.features = read_features(attrs["features"])
        self.types = {name: feature.type() for name, feature in self.features.items()}

    def element(self, record: Record) -> dict[str, Value]:
        needed = {name: f for name, f in self.features.items() if name in self.needed}
        if not needed:
            return {}
        try:
            found = json.loads(self.line(record).decode(), parse_float=parse_float)
        except ValueError as error:
            raise RecordError(f"malformed JSON: {error}") from error
        if not isinstance(found, dict):
            raise RecordError("expected an object")
        return {name: feature_value(f, found.get(f.key.decode())) for name, f in needed.items()}
