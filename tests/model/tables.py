"""csv, parquet and arrow: rows of named columns."""

from pathlib import Path
from typing import Any

import numpy as np

from . import philox
from .dtypes import (
    DTYPES,
    FLOATS,
    PlanError,
    RecordError,
    RunError,
    Type,
    Value,
    array,
    float_value,
    to_numpy,
)
from .sources import Record, Source, decompress, detected, matching_files

MISSING = (b"", b"NA", b"N/A", b"n/a", b"<NA>", b"#N/A", b"NaN", b"nan", b"NULL", b"null", b"None")
TRUE, FALSE = (b"true", b"True", b"TRUE"), (b"false", b"False", b"FALSE")
SAMPLE_ROWS, SAMPLE_BYTES = 1000, 1 << 20


def records(data: bytes, delimiter: bytes) -> list[bytes]:
    """The records without their ends: a line break in a quoted field does not end one."""
    found, at, start = [], 0, 0
    if data.startswith(b"\xef\xbb\xbf"):
        at = start = 3
    before, quoted = "field", False  # what comes before the byte at `at`
    while at < len(data):
        byte = data[at : at + 1]
        if quoted:
            quoted = byte != b'"'
            before = "quote"
        elif byte == b'"' and before != "text":
            quoted = True
        elif byte == b"\n":
            found.append(data[start:at].removesuffix(b"\r"))
            start, before = at + 1, "field"
        else:
            before = "field" if byte == delimiter else "text"
        at += 1
    if quoted:
        raise RunError("a quoted field is not closed")
    return [record for record in [*found, data[start:].removesuffix(b"\r")] if record]


def fields(record: bytes, delimiter: bytes) -> list[tuple[bytes, bool]]:
    """(text, whether it is quoted) of each field; None for one with text after its closing quote."""
    found, at = [], 0
    while True:
        quoted = record[at : at + 1] == b'"'
        text = b""
        if quoted:
            at += 1
            while True:
                end = record.index(b'"', at)
                text += record[at:end]
                at = end + 1
                if record[at : at + 1] != b'"':
                    break
                text += b'"'
                at += 1
        else:
            end = record.find(delimiter, at)
            end = len(record) if end < 0 else end
            text, at = record[at:end], end
        found.append((text, quoted))
        if at == len(record):
            return found
        if record[at : at + 1] != delimiter:
            raise RecordError("text after a closing quote")
        at += 1


def missing(text: bytes, quoted: bool) -> bool:
    return not quoted and text in MISSING


def as_integer(text: bytes) -> "int | None":
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    return int(text) if digits and all(c in b"0123456789" for c in digits) else None


def as_float(text: bytes) -> "float | None":
    bare = text.lstrip(b"+-")
    if len(text) - len(bare) > 1 or not bare or b"_" in text or text != text.strip():
        return None
    if bare in (b"NaN", b"nan", b"Infinity", b"inf"):
        return float(text)
    try:
        value = float(text) if bare[:1] in b"0123456789." else None
    except ValueError:
        return None
    return None if value is None or np.isinf(value) else value


def infer(values: list[tuple[bytes, bool]]) -> str:
    given = [text.strip(b" \t") for text, quoted in values if not missing(text.strip(b" \t"), quoted)]
    if not given:
        return "float64" if values else "bytes"
    whole = len(given) == len(values)
    if whole and all(text in TRUE + FALSE for text in given):
        return "bool"
    integers = [as_integer(text) for text in given]
    if whole and all(i is not None and -(2**63) <= i < 2**63 for i in integers):
        return "int64"
    return "float64" if all(as_float(text) is not None for text in given) else "bytes"


class Csv(Source):
    def __init__(self, attrs: dict, base: Path):
        self.records, self.chunk_lengths = [], []
        self.attrs, self.delimiter = attrs, attrs["delimiter"].encode()
        self.files = []
        for relative, path in matching_files(attrs["files"], base):
            self.add_file(relative, path.read_bytes(), attrs["compression"])

    def add_file(self, relative: str, stored: bytes, compression: str) -> None:
        if compression == "auto":
            compression = detected(stored)
        data, compressed = decompress(stored, compression)
        if compressed:
            self.random_access = False
        found = records(data, self.delimiter)
        first = [text.decode() for text, _ in fields(found[0], self.delimiter)] if found else []
        if self.attrs["header"]:
            if not found:
                raise RunError("no header")
            found = found[1:]
            names = [name or f"f{k}" for k, name in enumerate(first)]
        else:
            names = [f"f{k}" for k in range(len(first))]
        if not self.files:
            self.declare(names, found)
        if found and not set(self.types) <= set(names):
            raise RunError("a column is lacking")
        self.files.append(names)
        key = philox.hash64(
            relative.encode(), b"\0", philox.le64(len(stored)), philox.le64(philox.hash64(data))
        )
        self.add_records(
            [Record(key, row, len(line), (len(self.files) - 1, line)) for row, line in enumerate(found)]
        )

    def declare(self, names: list[str], found: list[bytes]) -> None:
        sample: list[list] = [[] for _ in names]
        for record in found[:SAMPLE_ROWS]:
            try:
                row = fields(record, self.delimiter)
            except RecordError:
                continue
            for values, value in zip(sample, row if len(row) == len(names) else []):
                values.append(value)
        chosen = self.attrs["columns"] or names
        dtypes = {name: self.attrs["types"].get(name) or infer(sample[names.index(name)]) for name in chosen}
        if set(self.attrs["types"]) - set(chosen) or any(dtype not in DTYPES for dtype in dtypes.values()):
            raise PlanError("types")
        self.types = {name: Type(dtype) for name, dtype in dtypes.items()}

    def element(self, record: Record) -> dict[str, Value]:
        file, line = record.content
        names = self.files[file]
        if not self.needed & set(self.types):
            return {}
        if record.source_bytes > self.attrs["max_line"]:
            raise RecordError("line too long")
        values = fields(line, self.delimiter)
        if len(values) != len(names):
            raise RecordError("wrong number of fields")
        found = dict(zip(names, values))
        return {
            name: self.value(type_.dtype, *found[name])
            for name, type_ in self.types.items()
            if name in self.needed
        }

    def value(self, dtype: str, text: bytes, quoted: bool) -> Value:
        if dtype == "bytes":
            return Value("bytes", text)
        text = text.strip(b" \t")
        if dtype == "bool" and text in TRUE + FALSE:
            return array("bool", text in TRUE)
        if missing(text, quoted):
            if dtype not in FLOATS:
                raise RecordError("missing")
            return float_value(dtype, np.float64("nan"))
        integer, number = as_integer(text), as_float(text)
        if dtype in FLOATS:
            stored = None if number is None else float_value(dtype, np.float64(number))
            if stored is None or np.isfinite(number) and not np.isfinite(to_numpy(stored)):
                raise RecordError("no such float")
            return stored
        if integer is None and number is not None and abs(number) <= 2**53 and number.is_integer():
            integer = int(number)
        low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if integer is None or not low <= integer <= high:
            raise RecordError("no such integer")
        return array(dtype, integer)


class Parquet(Source):
    """Read by pyarrow, from footers and rows; a chunk is a row group."""

    random_access = False

    def __init__(self, attrs: dict, base: Path):
        self.records, self.chunk_lengths = [], []
        self.attrs, self.bytes = attrs, 0
        self.types: dict[str, Type] = {}
        for relative, path in matching_files(attrs["files"], base):
            self.add_file(relative, path)

    def source_bytes(self) -> int:
        return self.bytes

    def add_file(self, relative: str, path: Path) -> None:
        import pyarrow.parquet as pq  # takes a while, and few pipelines need it

        content = path.read_bytes()
        footer = content[-8 - int.from_bytes(content[-8:-4], "little") : -8]
        key = philox.hash64(
            relative.encode(), b"\0", philox.le64(len(content)), philox.le64(philox.hash64(footer))
        )
        file = pq.ParquetFile(path)
        names = self.attrs["columns"] or file.schema_arrow.names
        if not self.types:
            self.types = {name: self.type(str(file.schema_arrow.field(name).type)) for name in names}
        if set(self.attrs["nulls"]) - set(names):
            raise PlanError("nulls")
        row = 0
        for k in range(file.num_row_groups):
            group = file.metadata.row_group(k)
            chunks = (group.column(i) for i in range(group.num_columns))
            self.bytes += sum(
                c.total_uncompressed_size for c in chunks if c.path_in_schema.split(".")[0] in names
            )
            rows = file.read_row_group(k, columns=names).to_pylist()
            self.records += [Record(key, row + i, 0, values) for i, values in enumerate(rows)]
            row += len(rows)
            if rows:
                self.chunk_lengths.append(len(rows))

    def type(self, written: str) -> Type:
        if written.startswith("list<"):
            return Type(written.split()[-1].rstrip(">"), (None,))
        named = {"double": "float64", "float": "float32", "halffloat": "float16", "string": "bytes"}
        return Type(named.get(written, written))

    def element(self, record: Record) -> dict[str, Value]:
        return {name: self.value(name, record.content[name]) for name in self.types if name in self.needed}

    def value(self, name: str, found: object) -> Value:
        type_, default = self.types[name], self.attrs["nulls"].get(name)
        if type_.dims:
            if found is None and default is not None:
                found = default if isinstance(default, list) else []
            if isinstance(found, list) and not isinstance(default, list):
                found = [default if v is None else v for v in found]
            if found is None or None in found:
                raise RecordError("null")
            return array(type_.dtype, found)
        found = default if found is None else found
        if found is None:
            raise RecordError("null")
        if type_.dtype == "bytes":
            return Value("bytes", found.encode())
        if type_.dtype in FLOATS:
            return float_value(type_.dtype, np.float64("nan" if found == "NaN" else found))
        return array(type_.dtype, found)


class Arrow(Parquet):
    """Read by pyarrow; a chunk is a record batch."""

    random_access = True

    def add_file(self, relative: str, path: Path) -> None:
        import pyarrow as pa

        content = path.read_bytes()
        edge = 64 << 10
        ends = content if len(content) < 2 * edge else content[:edge] + content[-edge:]
        key = philox.hash64(
            relative.encode(), b"\0", philox.le64(len(content)), philox.le64(philox.hash64(ends))
        )
        file = content.startswith(b"ARROW1")
        reader = pa.ipc.open_file(content) if file else pa.ipc.open_stream(content)
        batches = [reader.get_batch(k) for k in range(reader.num_record_batches)] if file else [*reader]
        names = self.attrs["columns"] or reader.schema.names
        if not self.types:
            self.types = {name: self.type(self.values(reader.schema.field(name))) for name in names}
        if set(self.attrs["nulls"]) - set(names):
            raise PlanError("nulls")
        row = 0
        for batch in batches:
            # what is stored may be compressed; the windows of a shuffle hold all rows here in any case
            self.bytes += batch.nbytes
            rows = batch.select(names).to_pylist()
            self.records += [Record(key, row + i, 0, values) for i, values in enumerate(rows)]
            row += len(rows)
            if rows:
                self.chunk_lengths.append(len(rows))
                self.random_access &= not path.name.endswith(".zstd.arrow")

    def values(self, field: Any) -> str:
        """The name of a field's type; of a dictionary, that of its values."""
        return str(getattr(field.type, "value_type", None) if "dictionary" in str(field.type) else field.type)
