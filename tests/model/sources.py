"""Sources: lists of records with ids, source bytes and the components they give."""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import philox
from .dtypes import FLOATS, PlanError, RecordError, RunError, Type, Value, array, float_value, storage

CHUNK_BYTES, CHUNK_RECORDS = 4 << 20, 1024


def crc32c_table() -> list[int]:
    table = []
    for i in range(256):
        c = i
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
        table.append(c)
    return table


CRC_TABLE = crc32c_table()


def crc32c(data: bytes) -> int:
    c = 0xFFFFFFFF
    for byte in data:
        c = CRC_TABLE[(c ^ byte) & 0xFF] ^ c >> 8
    return c ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """TFRecord's masked CRC-32C."""
    c = crc32c(data)
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass
class Record:
    file_key: int
    row: int
    source_bytes: int
    content: object  # what `Source.element` makes the components of


class Source:
    """records, chunk lengths, and how a record becomes an element."""

    one_file_per_record = False
    random_access = True
    stream = False  # its end is not known before it is reached
    types: Mapping[str, Type]
    records: list[Record]
    chunk_lengths: list[int]
    needed: set[str]  # components that somebody needs

    def element(self, record: Record) -> dict[str, Value]:
        raise NotImplementedError

    def add_records(self, records: list[Record]) -> None:
        """Records of one file, in chunks."""
        count = size = 0
        for record in records:
            if count == CHUNK_RECORDS or count and size + record.source_bytes > CHUNK_BYTES:
                self.chunk_lengths.append(count)
                count = size = 0
            count, size = count + 1, size + record.source_bytes
        self.records += records
        if count:
            self.chunk_lengths.append(count)

    def source_bytes(self) -> int:
        return sum(r.source_bytes for r in self.records)


def relative_to_pattern(pattern: str, path: str) -> str:
    """The path without the pattern's longest directory prefix that is free of wildcards."""
    parts = pattern.split("/")
    depth = 0
    while depth < len(parts) - 1 and not any(c in parts[depth] for c in "*?["):
        depth += 1
    return "/".join(path.split("/")[depth:])


def matching_files(files: str | list[str], base: Path) -> list[tuple[str, Path]]:
    """(relative path, path) of the files of each pattern in turn, sorted as bytes."""
    found = []
    for pattern in [files] if isinstance(files, str) else files:
        absolute = pattern if pattern.startswith("/") else f"{base}/{pattern}"
        paths = sorted((p for p in glob.glob(absolute) if os.path.isfile(p)), key=os.fsencode)
        if not paths:
            raise RunError(f"no file matches {pattern}")
        found += [(relative_to_pattern(absolute, p), Path(p)) for p in paths]
    return found


def content_key(relative: str, content: bytes) -> int:
    """File key where one file is one record."""
    part = content if len(content) <= 128 << 10 else content[: 64 << 10] + content[-(64 << 10) :]
    return philox.hash64(relative.encode(), b"\0", philox.le64(len(content)), part)


class TFRecord(Source):
    def __init__(self, attrs: dict, base: Path):
        self.types = {"record": Type("bytes")}
        self.records, self.chunk_lengths = [], []
        self.verify = attrs["verify"]
        for relative, path in matching_files(attrs["files"], base):
            self.add_file(relative, path.read_bytes(), attrs["compression"])

    def add_file(self, relative: str, stored: bytes, compression: str) -> None:
        data, compressed = decompress(stored, compression)
        if compressed:
            self.random_access = False
        found, words = [], b""
        at = 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            if len(data) - at < 16 or length > len(data) - at - 16:
                raise RunError(f"{relative}: ends inside a record")
            if int.from_bytes(data[at + 8 : at + 12], "little") != masked_crc(data[at : at + 8]):
                raise RunError(f"{relative}: length CRC mismatch")
            end = at + 12 + length
            words += data[at : at + 12] + data[end : end + 4]
            found.append((data[at + 12 : end], int.from_bytes(data[end : end + 4], "little")))
            at = end + 4
        key = philox.hash64(relative.encode(), b"\0", philox.le64(len(stored)), words)
        self.add_records([Record(key, row, len(body), (body, crc)) for row, (body, crc) in enumerate(found)])

    def element(self, record: Record) -> dict[str, Value]:
        body, crc = record.content
        if "record" not in self.needed:
            return {}
        if self.verify and masked_crc(body) != crc:
            raise RecordError("data CRC mismatch")
        return {"record": Value("bytes", body)}


def detected(stored: bytes) -> str:
    """The compression that the first bytes name; zlib's are not looked for."""
    magics = {"gzip": b"\x1f\x8b", "bzip2": b"BZh", "xz": b"\xfd7zXZ\0"}
    return next((codec for codec, magic in magics.items() if stored.startswith(magic)), "none")


def decompress(stored: bytes, compression: str) -> tuple[bytes, bool]:
    """(data, whether it was compressed). `auto`: plain if it starts with a good length, or else by its first
    bytes.
    """
    if compression == "auto":
        if len(stored) >= 12 and int.from_bytes(stored[8:12], "little") == masked_crc(stored[:8]):
            compression = "none"
        elif detected(stored) != "none":
            compression = detected(stored)
        elif len(stored) >= 2 and stored[0] & 15 == 8 and int.from_bytes(stored[:2], "big") % 31 == 0:
            compression = "zlib"
        else:
            compression = "none"
    try:
        if compression == "gzip":
            return gzip.decompress(stored), True
        if compression == "zlib":
            return zlib.decompress(stored), True
        if compression == "bzip2":
            return bz2.decompress(stored), True
        if compression == "xz":
            return lzma.decompress(stored), True
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise RunError(f"damaged {compression} stream: {error}") from error
    return stored, False


class FilePerRecord(Source):
    one_file_per_record = True

    def add(self, relative: str, path: Path, label: int = 0) -> None:
        content = path.read_bytes()
        self.records.append(
            Record(content_key(relative, content), 0, len(content), (content, relative.encode(), label))
        )
        self.chunk_lengths.append(1)


class ImageFolder(FilePerRecord):
    endings = (".jpg", ".jpeg", ".png", ".webp")

    def __init__(self, attrs: dict, base: Path):
        self.types = {"image": Type("bytes"), "label": Type("int64"), "path": Type("bytes")}
        self.records, self.chunk_lengths = [], []
        root = Path(base, attrs["root"])
        classes = sorted((d for d in root.iterdir() if d.is_dir()), key=lambda d: os.fsencode(d.name))
        for label, directory in enumerate(classes):
            for path in sorted(directory.iterdir(), key=lambda f: os.fsencode(f.name)):
                if path.suffix.lower() in self.endings:
                    self.add(f"{directory.name}/{path.name}", path, label)

    def element(self, record: Record) -> dict[str, Value]:
        content, path, label = record.content
        return {
            "image": Value("bytes", content),
            "label": array("int64", label),
            "path": Value("bytes", path),
        }


class Files(FilePerRecord):
    def __init__(self, attrs: dict, base: Path):
        self.types = {"data": Type("bytes"), "path": Type("bytes")}
        self.records, self.chunk_lengths = [], []
        for relative, path in matching_files(attrs["files"], base):
            self.add(relative, path)

    def element(self, record: Record) -> dict[str, Value]:
        content, path, _ = record.content
        return {"data": Value("bytes", content), "path": Value("bytes", path)}


class FixedLength(Source):
    def __init__(self, attrs: dict, base: Path):
        self.types = {"record": Type("bytes")}
        self.records, self.chunk_lengths = [], []
        size, header, footer = (attrs[f"{name}_bytes"] for name in ("record", "header", "footer"))
        for relative, path in matching_files(attrs["files"], base):
            content = path.read_bytes()
            key, body = content_key(relative, content), content[header : len(content) - footer]
            if len(content) < header + footer or len(body) % size:
                raise RunError("no whole number of records")
            rows = [body[at : at + size] for at in range(0, len(body), size)]
            self.add_records([Record(key, row, size, content) for row, content in enumerate(rows)])

    def element(self, record: Record) -> dict[str, Value]:
        return {"record": Value("bytes", record.content)}


class Rows(Source):
    """Sources without files: rows under one key, in chunks of 1,024."""

    def fill(self, key: int, contents, source_bytes: int) -> None:
        self.records = [Record(key, row, source_bytes, content) for row, content in enumerate(contents)]
        n = len(self.records)
        self.chunk_lengths = [min(CHUNK_RECORDS, n - at) for at in range(0, n, CHUNK_RECORDS)]


class Range(Rows):
    def __init__(self, attrs: dict, base: Path):
        self.types = {"value": Type("int64")}
        start, stop, step = attrs["start"], attrs["stop"], attrs["step"]
        if step == 0:
            raise PlanError("range: step is 0")
        self.fill(philox.hash64(b"range", philox.le64(start), philox.le64(step)), range(start, stop, step), 8)

    def element(self, record: Record) -> dict[str, Value]:
        return {"value": array("int64", record.content)}


class Synthetic(Rows):
    def __init__(self, attrs: dict, base: Path):
        self.dtype, self.shape, self.random = attrs["dtype"], tuple(attrs["shape"]), attrs["fill"] == "random"
        self.key = philox.hash64(b"synthetic")
        type_ = Type(self.dtype, self.shape)
        self.types = {"data": type_}
        self.fill(self.key, [None] * attrs["count"], type_.size())

    def element(self, record: Record) -> dict[str, Value]:
        if not self.random:
            return {"data": Value(self.dtype, np.zeros(self.shape, storage(self.dtype)))}
        values = self.values(record.row, int(np.prod(self.shape, dtype=object)))
        if self.dtype in FLOATS:
            value = float_value(self.dtype, np.array(values, dtype=np.float64))
        else:
            value = array(self.dtype, values)
        return {"data": Value(self.dtype, np.asarray(value.data).reshape(self.shape))}

    def values(self, row: int, n: int) -> list:
        wide = self.dtype in ("int64", "uint64")
        words: list[int] = []
        while len(words) < n * (2 if wide else 1):
            words += philox.philox(self.key, (row & philox.MASK32, row >> 32, len(words) // 4, 2))
        if wide:
            values = [words[2 * k] | words[2 * k + 1] << 32 for k in range(n)]
        else:
            values = words[:n]
        if self.dtype == "bool":
            return [bool(v & 1) for v in values]
        if self.dtype in FLOATS:
            return [philox.uniform(v) for v in values]
        info = np.iinfo(self.dtype)
        low = [v & (1 << info.bits) - 1 for v in values]
        return [v - (1 << info.bits) if v > int(info.max) else v for v in low]
