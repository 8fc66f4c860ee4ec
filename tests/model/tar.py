"""tar: samples of tar archives, read block by block."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import philox
from .dtypes import RecordError, RunError, Type, Value
from .lines import number
from .operators import Feature, read_features
from .sources import Record, Source, decompress, detected, matching_files

BLOCK = 512


@dataclass
class Member:
    name: str
    start: int  # of its first header
    end: int  # of its data, padded
    data: bytes


@dataclass
class Sample:
    key: str
    files: list[tuple[str, bytes]]  # extension, data


def text(field: bytes) -> bytes:
    return field.split(b"\0")[0]


def pax_path(data: bytes) -> bytes | None:
    while data:
        length = int(data.split(b" ", 1)[0])
        key, value = data[:length].split(b" ", 1)[1].rstrip(b"\n").split(b"=", 1)
        if key == b"path":
            return value
        data = data[length:]
    return None


def members(archive: bytes) -> tuple[list[Member], bytes]:
    """Regular files in order, and what the file key is made of."""
    found, hashed, at, start, path = [], b"", 0, 0, None
    while True:
        header = archive[at : at + BLOCK]
        if len(header) < BLOCK:
            raise RunError("no end of archive")
        if header == bytes(BLOCK):
            return found, hashed
        kind, size = header[156:157], int(text(header[124:136]), 8)
        data = archive[at + BLOCK : at + BLOCK + size]
        end = at + BLOCK + -(-size // BLOCK) * BLOCK
        hashed += header
        if kind in b"Lx":
            hashed += data
            path = text(data) if kind == b"L" else pax_path(data) or path
        else:
            hashed += archive[at + BLOCK : min(end, at + 2 * BLOCK)]
            prefix = text(header[345:500]) if header[257:263] == b"ustar\0" else b""
            name = path or (prefix + b"/" if prefix else b"") + text(header[:100])
            if kind == b"0":
                found.append(Member(name.decode(), start, end, data))
            start, path = end, None
        at = end


class Tar(Source):
    def __init__(self, attrs: dict, base: Path):
        self.records, self.chunk_lengths = [], []
        self.features = read_features(attrs["components"])
        self.types = {name: feature.type() for name, feature in self.features.items()}
        for relative, path in matching_files(attrs["files"], base):
            self.add_file(relative, path.read_bytes(), attrs["compression"])

    def add_file(self, relative: str, stored: bytes, compression: str) -> None:
        if compression == "auto":
            compression = detected(stored)
        archive, compressed = decompress(stored, compression)
        if compressed:
            self.random_access = False
        found, hashed = members(archive)
        key = philox.hash64(
            relative.encode(), b"\0", philox.le64(len(stored)), philox.le64(philox.hash64(hashed))
        )
        records: list[Record] = []
        start = 0
        for member in found:
            directory, slash, base_name = member.name.rpartition("/")
            stem, dot, extension = base_name.partition(".")
            if not stem or not extension:
                continue
            sample_key = directory + slash + stem
            if not records or records[-1].content.key != sample_key:
                start = member.start
                records.append(Record(key, len(records), 0, Sample(sample_key, [])))
            records[-1].content.files.append((extension, member.data))
            records[-1].source_bytes = member.end - start
        self.add_records(records)

    def element(self, record: Record) -> dict[str, Value]:
        sample = record.content
        return {name: self.component(f, sample) for name, f in self.features.items() if name in self.needed}

    @staticmethod
    def component(feature: Feature, sample: Sample) -> Value:
        if feature.key == b"__key__":
            return Value("bytes", sample.key.encode())
        alternatives = feature.key.decode().lower().split(";")
        fitting = [
            (alternatives.index(e.lower()), e, data) for e, data in sample.files if e.lower() in alternatives
        ]
        if not fitting:
            return feature.value(None)
        which, extension, data = min(fitting, key=lambda f: f[0])
        if sum(f[0] == which for f in fitting) > 1:
            raise RecordError(f"two files {extension}")
        if feature.dtype == "bytes":
            return Value("bytes", data)
        if extension.lower().split(".")[-1] == "npy":
            return numpy_value(feature, data)
        return text_value(feature, data)


def numpy_value(feature: Feature, data: bytes) -> Value:
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise RecordError(f"no .npy: {error}") from error
    type_: Type = feature.type()
    if array.dtype != np.dtype(feature.dtype) or array.ndim != len(type_.dims):
        raise RecordError(f"{array.dtype}{array.shape}, not {type_}")
    if any(wanted not in (None, found) for wanted, found in zip(type_.dims, array.shape)):
        raise RecordError(f"{array.shape}, not {type_}")
    return Value(feature.dtype, array)


def text_value(feature: Feature, data: bytes) -> Value:
    words = data.split()
    size = int(np.prod(feature.shape, dtype=object))
    if len(words) % size if feature.variable else len(words) != size:
        raise RecordError(f"{len(words)} numbers")
    values = []
    for word in words:
        try:
            values.append(number(feature.dtype, int(word) if word.strip(b"+-").isdigit() else float(word)))
        except ValueError as error:
            raise RecordError(f"no number: {word!r}") from error
    return Feature(b"", feature.dtype, feature.shape, feature.variable, values or None).of_default()
