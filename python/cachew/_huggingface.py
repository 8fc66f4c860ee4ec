"""Hugging Face datasets as sources. `Dataset.huggingface` imports this module when it is called, because the
module imports datasets and pyarrow.

A `datasets.Dataset` is an Arrow table and, after `select`, `shuffle` or `filter`, the numbers of its rows in
the table. The library reads both in place (`_memory.Data`). A `datasets.IterableDataset` is read by a host
process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

from cachew import _core
from cachew._errors import PipelineError
from cachew._huggingface_rows import PATH, ReadFiles, Rows
from cachew._memory import Data

if TYPE_CHECKING:
    from cachew.dataset import Dataset


def source(cls: type[Dataset], dataset: Any) -> Dataset:
    """What `Dataset.huggingface` returns."""
    if isinstance(dataset, datasets.Dataset):
        made = cls._make_function_source("arrays", {"data": from_huggingface(dataset)})
        kinds = dataset.data.table.schema
        files = [n for n in made.schema if n + PATH in made.schema and _is_file(kinds.field(n).type)]
        if not files:
            return made
        paths = {name + PATH for name in files}
        outputs = {name: (f.dtype, f.shape) for name, f in made.schema.items() if name not in paths}
        return made.map(ReadFiles(files), outputs=outputs)
    if isinstance(dataset, datasets.IterableDataset):
        # without a format, rows have plain Python values, and with decoding off, the bytes of files
        plain = dataset.with_format(None)
        if any(_is_file_feature(f) for f in (dataset.features or {}).values()):
            plain = plain.decode(False)
        found = _outputs(dataset.features)
        return cls.iterable(
            Rows(plain, found), outputs=found, version=str(datasets.fingerprint.Hasher.hash(dataset))
        )
    hint = ""
    if isinstance(dataset, (datasets.DatasetDict, datasets.IterableDatasetDict)):
        hint = f": choose a split, such as dataset[{next(iter(dataset), 'train')!r}]"
    raise TypeError(
        f"huggingface() takes a datasets.Dataset or datasets.IterableDataset, not a "
        f"{type(dataset).__name__}{hint}"
    )


# ---- datasets with random access ----


def from_huggingface(dataset: datasets.Dataset) -> Data:
    """Registers the rows of a dataset with the library. Files that the dataset names by their paths are not
    read: the component with their bytes is empty there, and a component with the suffix PATH has the paths.
    """
    names = _shown_columns(dataset)
    # Public methods return copies of chosen rows; only these two attributes give the data in place.
    table, indices = dataset.data.table, dataset._indices
    rows = None if indices is None else indices.column(0).to_numpy().astype(np.uint64, copy=False)
    columns: dict[str, pa.ChunkedArray] = {}
    for name in names:
        column = table.column(name)
        if _is_file(column.type):
            columns.update(_file_columns(name, column, rows))
        else:
            columns[name] = _plain_column(name, column, dataset.features[name])
    made = pa.table(columns)
    capsule = made.__arrow_c_stream__()
    return Data.of(
        _core.arrow(capsule, None if rows is None else np.ascontiguousarray(rows)), ("huggingface", dataset)
    )


def _shown_columns(dataset: datasets.Dataset) -> list[str]:
    """The names of the columns that the dataset's format shows. A format that computes rows is an error."""
    shown = dataset.format
    if shown["type"] == "custom":
        raise PipelineError(
            "huggingface: the dataset has a transform (set_transform or with_transform), a Python function "
            "that computes its rows: expected a dataset without one (reset_format() removes it); give the "
            "function to map() of the cachew.Dataset instead"
        )
    return list(dataset.column_names if shown["output_all_columns"] else shown["columns"])


def _is_file(kind: pa.DataType) -> bool:
    """Whether values of this type are files, such as images and audio."""
    names = {kind.field(i).name for i in range(kind.num_fields)} if pa.types.is_struct(kind) else set()
    return names == {"bytes", "path"}


def _is_file_feature(feature: Any) -> bool:
    kind = getattr(feature, "pa_type", None)
    return isinstance(kind, pa.DataType) and _is_file(kind)


def _file_columns(name: str, column: pa.ChunkedArray, rows: Any) -> dict[str, pa.ChunkedArray]:
    """The columns for a feature whose values are files: an image or audio. Each value has the file's bytes,
    its path, or both.
    """
    data, path = pc.struct_field(column, "bytes"), pc.struct_field(column, "path")
    missing = pc.and_(pc.is_null(data), pc.is_valid(path))
    seen = missing if rows is None else missing.take(pa.array(rows))
    if not pc.any(seen).as_py():
        return {name: data}
    filled, at = [], 0
    for chunk in data.chunks:  # those of `missing` may be other ones
        filled.append(_filled(chunk, missing.slice(at, len(chunk)).combine_chunks()))
        at += len(chunk)
    return {name: pa.chunked_array(filled, data.type), name + PATH: pc.fill_null(path, "")}


def _filled(data: pa.Array, missing: pa.Array) -> pa.Array:
    """Byte strings that are empty where `missing` is true. Their bytes are not copied: the column may be
    larger than the memory.
    """
    width = {pa.binary(): 4, pa.large_binary(): 8}.get(data.type)
    if width is not None and len(data):
        _, offsets, values = data.buffers()
        valid = pc.or_(pc.is_valid(data), missing)
        buffers = [valid.buffers()[1], offsets.slice(data.offset * width), values]
        filled = pa.Array.from_buffers(data.type, len(data), buffers)
        lengths = pc.binary_length(filled.filter(missing))
        if valid.offset == 0 and not pc.any(pc.greater(lengths, 0)).as_py():  # Arrow lets a null have bytes
            return filled
    return pc.if_else(missing, pa.scalar(b"", data.type), data)


def _plain_column(name: str, column: pa.ChunkedArray, feature: Any) -> pa.ChunkedArray:
    """The column in a type that the library reads: times as integers, arrays of several dimensions as lists
    of fixed size.
    """
    if isinstance(column.type, pa.BaseExtensionType):  # Array2D to Array5D
        column = pa.chunked_array([c.storage for c in column.chunks], column.type.storage_type)
    kind = column.type
    if pa.types.is_temporal(kind):
        return column.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
    if pa.types.is_struct(kind):
        raise PipelineError(
            f'huggingface: the column "{name}" is a struct: expected numbers, texts, files, or lists of '
            f"numbers; flatten() of the dataset makes a column of each of its fields, and remove_columns() "
            f"leaves it out"
        )
    shape = getattr(feature, "shape", None)
    if shape is None and not (_is_list(kind) and _is_list(kind.value_type)):
        return column
    sizes = list(shape) if shape is not None else [None] * _depth(kind)
    for level in range(1, len(sizes)):
        sizes[level] = sizes[level] or _size(name, column, level)
    chunks = column.chunks or [pa.array([], kind)]
    return pa.chunked_array([_nested(name, chunk, sizes) for chunk in chunks])


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _depth(kind: pa.DataType) -> int:
    return 1 + _depth(kind.value_type) if _is_list(kind) else 0


def _size(name: str, column: pa.ChunkedArray, level: int) -> int:
    """The size of the lists at a level, taken from the first one: `_fixed` checks the others."""
    for chunk in column.chunks:
        for _ in range(level):
            chunk = chunk.flatten()
        if len(chunk):
            return pc.list_value_length(chunk)[0].as_py() or 0
    return 1


def _nested(name: str, array: pa.Array, sizes: list[int | None]) -> pa.Array:
    """A list array whose inner lists have the fixed sizes sizes[1:], and the outer ones sizes[0], or any size
    if that is None.
    """
    if array.null_count:
        raise PipelineError(
            f'huggingface: the column "{name}" has nulls: components can\'t hold nulls, so filter these rows '
            f"out, and then call flatten_indices() of the dataset"
        )
    if sizes[0] is not None:
        return _fixed(name, array, sizes)
    inner = _fixed(name, array.flatten(), sizes[1:])
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(pc.list_value_length(array), out=offsets[1:])
    return pa.LargeListArray.from_arrays(pa.array(offsets), inner)


def _fixed(name: str, array: pa.Array, sizes: list[int | None]) -> pa.Array:
    if not _is_list(array.type):
        return array
    size = sizes[0]
    lengths = pc.list_value_length(array)
    if array.null_count or not pc.all(pc.equal(lengths, size), min_count=0).as_py():
        raise PipelineError(
            f'huggingface: the column "{name}" has lists of different lengths inside lists: expected only '
            f"the outermost list to vary; remove_columns() leaves the column out"
        )
    if size == 0:
        raise PipelineError(
            f'huggingface: the column "{name}" has lists of length 0 inside lists: expected at least 1 item; '
            f"remove_columns() leaves the column out"
        )
    return pa.FixedSizeListArray.from_arrays(_fixed(name, array.flatten(), sizes[1:]), size)


# ---- datasets that are iterated over ----


def _outputs(features: Any) -> dict[str, Any] | None:
    """The types of the rows; None: not known before the first row."""
    if features is None:
        return None
    found = {name: _output(features[name]) for name in features}
    return None if None in found.values() else found


def _output(feature: Any) -> Any:
    """The type of a feature as `outputs` of `iterable` has it; None: not known."""
    if isinstance(feature, datasets.ClassLabel):
        return "int64", ()
    if _is_file_feature(feature):
        return "bytes", ()
    if isinstance(feature, datasets.Value):
        kind = {"string": "bytes", "large_string": "bytes", "binary": "bytes", "large_binary": "bytes"}.get(
            feature.dtype, feature.dtype
        )
        return (kind, ()) if kind in NUMBERS or kind == "bytes" else None
    shape = getattr(feature, "shape", None)
    if shape is not None:
        return feature.dtype, tuple(shape)
    if isinstance(feature, (datasets.List, datasets.LargeList)):
        inner = _output(feature.feature)
        length = getattr(feature, "length", -1)
        ok = inner is not None and inner[0] != "bytes" and None not in inner[1]
        return (inner[0], (None if length < 0 else length, *inner[1])) if ok else None
    return None


NUMBERS = {"bool", "float16", "float32", "float64"} | {
    f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}
