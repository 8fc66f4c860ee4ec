"""Sources that are no operators of their own: NumPy arrays and objects with an Arrow stream in the memory of
this process, materialised data that are complete or not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cachew import _core
from cachew._batch import Bytes
from cachew._calls import checked_methods
from cachew._errors import PipelineError
from cachew._host_tree import flat
from cachew._options import seconds
from cachew._values import is_text

if TYPE_CHECKING:
    from typing_extensions import Self

    from cachew._chain import Node
    from cachew._options import Path


MAX_NDIM = 6
"""The largest number of dimensions that an element can have."""


class Data(str):
    """The value of the attribute `data` of the operator `arrays`: a text, the id of data that are registered
    with the library.
    """

    made_of: tuple[str, Any]
    """("arrays", "arrow" or "huggingface", the user's object). A pickle of a dataset contains this tuple, so
    that another process can make the data again.
    """
    keeps: object
    """The library keeps the data registered as long as this object lives."""

    @classmethod
    def of(cls, registered: tuple[str, int, object], made_of: tuple[str, Any]) -> Data:
        self = cls(registered[0])
        self.made_of, self.keeps = made_of, registered
        return self


@checked_methods
class InMemory:
    """The methods of Dataset that make these sources."""

    __slots__ = ()

    if TYPE_CHECKING:

        @classmethod
        def _make_function_source(cls, op: str, attributes: Mapping[str, Any]) -> Self: ...

    @classmethod
    def arrays(cls, components: Mapping[str, Any]) -> Self:
        """NumPy arrays, one per component, all of the same length: element i has entry i of each array.

        components: name -> array, or an object that numpy.asarray converts. Lists of bytes or texts become
            components of bytes. The arrays of a dict in the dict are named by their path ("a.x"). Contiguous
            arrays are not copied: do not write to them while the dataset is in use (with a cache, a change
            raises DataError). The content is hashed once, so that states of other data are refused. The
            dataset's JSON contains only this hash, not the arrays, so only this process can run the JSON. A
            pickle of the dataset contains the arrays, so other processes can run it.
        """
        return cls._make_function_source("arrays", {"data": _from_arrays(components)})

    @classmethod
    def arrow(
        cls, files: Any, *, columns: Sequence[str] = (), nulls: Mapping[str, Any] | None = None
    ) -> Self:
        """files: names of Arrow files, or an object with `__arrow_c_stream__`, without the other arguments: a
        pyarrow Table, a Polars DataFrame. Then the rows of the object are the elements. Only its columns of
        bools and dictionaries are copied. A stream that can be read only once, such as a RecordBatchReader,
        is read to its end now, into memory. If it does not fit into memory, use `iterable` with a function
        that yields rows, or a source of files.

        Columns of an object can have integers, floats, bools, strings, binary, fixed-size lists (which give a
        shape) and lists of numbers (the first dimension varies). A null is an error that names column and
        row.
        """
        given = {k: v for k, v in (("columns", columns), ("nulls", nulls)) if v}
        paths = [files] if isinstance(files, (str, os.PathLike)) else files
        if isinstance(paths, (list, tuple)) and all(isinstance(p, (str, os.PathLike)) for p in paths):
            return cls._make_function_source("arrow", {"files": files, **given})
        if given:
            raise TypeError(f"arrow(): {', '.join(given)}: expected names of files, which have this argument")
        return cls._make_function_source("arrays", {"data": _from_arrow(files)})

    @classmethod
    def materialized(cls, path: Path, *, wait: bool | float = False) -> Self:
        """The elements of a materialised data set, in their order, with the components that they had when
        `materialize` wrote them (docs/materialize.md).

        path: the directory that `cachew materialize` or `Dataset.materialize` wrote

        wait: read data that are still being written: each file as soon as it is finished. A number is the
            longest wait for a further file, in seconds; True stands for 600. Such a source is read from its
            start, so `shuffle` needs a window. The directory must have been begun. Default: the data must be
            complete, and are read at any position
        """
        if wait is False:
            return cls._make_function_source("materialized", {"path": path})
        given = {} if wait is True else {"wait": seconds("wait", wait)}
        return cls._make_function_source("materialized_stream", {"path": path, **given})

    @classmethod
    def huggingface(cls, dataset: Any) -> Self:
        """The rows of a Hugging Face dataset (the package datasets), one component per column.

        dataset: a `datasets.Dataset` or a `datasets.IterableDataset`. Rows of a Dataset are read at any
            position, in place from its Arrow table, in the order that `select`, `shuffle`, `filter` and
            `sort` gave them. The content is hashed once, as for `arrays`. An IterableDataset is read by a
            host process, as `iterable` does

        Numbers, bools and class labels keep their dtype. Texts, images and audio become bytes: decode_image()
        decodes the images. Times become integers in the column's unit. Lists of numbers become arrays whose
        first dimension varies. A null is an error that names the column. Of an IterableDataset, times are an
        error, too.
        """
        from cachew import _huggingface  # only here: it imports datasets

        return _huggingface.source(cls, dataset)  # type: ignore[arg-type,return-value]


def _from_arrays(components: Mapping[str, Any]) -> Data:
    if not isinstance(components, Mapping) or not components:
        raise TypeError("arrays() takes a dict of arrays, {name: array}, with at least one")
    lengths: dict[str, int] = {}
    described = []
    kept = {}
    try:
        components = flat(components, lambda _, value: isinstance(value, Mapping))
    except ValueError as problem:
        raise PipelineError(f"arrays(): {problem}") from None
    for name, value in components.items():
        if not isinstance(name, str):
            raise TypeError(f"arrays(): the name {name!r} is a {type(name).__name__}: expected a text")
        if not is_text(name):
            raise PipelineError(
                f"arrays: the name {name!r} can't be written in UTF-8, or has a NUL: expected a text"
            )
        try:
            dtype, shape, data, offsets, lengths[name] = _component(name, value)
        except UnicodeEncodeError as problem:
            raise PipelineError(
                f"arrays: {name} has a text that can't be written in UTF-8 ({problem})"
            ) from None
        described.append((name, dtype, shape, data, offsets))
        kept[name] = value
    if len(set(lengths.values())) > 1:
        raise PipelineError(
            f"arrays: the arrays differ in length: "
            f"{', '.join(f'{name} has {n}' for name, n in lengths.items())}"
        )
    return Data.of(_core.arrays(described, next(iter(lengths.values()))), ("arrays", kept))


def _component(name: str, value: Any) -> tuple[str, tuple[int, ...], Any, Any, int]:
    """(dtype, shape of an element, buffer, offsets, length)."""
    if isinstance(value, Bytes):
        offsets = np.ascontiguousarray(value.offsets, np.uint64)
        return "bytes", (), np.ascontiguousarray(value.data), offsets, len(value)
    if (
        isinstance(value, (list, tuple))
        and value
        and all(isinstance(v, (str, bytes, bytearray, memoryview)) for v in value)
    ):
        return _strings(value)
    if isinstance(value, np.ma.MaskedArray):
        raise PipelineError(
            f"arrays: {name} is a masked array, and components have no masks: fill it, or "
            f"give the mask as a component of its own"
        )
    try:
        array = np.asarray(value)
    except ValueError:  # NumPy's, of lists that differ in length
        raise PipelineError(
            f"arrays: {name} has elements that differ in shape: expected the same shape for "
            f"all elements; Dataset.iterable allows shapes that differ"
        ) from None
    if array.dtype.kind in "SU" or (
        array.dtype == object and array.ndim == 1 and all(isinstance(v, (str, bytes)) for v in array)
    ):
        if array.ndim != 1:
            raise PipelineError(
                f"arrays: {name} is an array of strings with {array.ndim} dimensions: expected 1"
            )
        return _strings(array.tolist())
    if array.ndim == 0:
        raise PipelineError(
            f"arrays: {name} is a single value: expected an array whose first dimension counts the elements"
        )
    bfloat16 = array.dtype.name == "bfloat16"
    if (array.dtype.kind not in "biuf" or array.dtype.itemsize > 8) and not bfloat16:
        raise PipelineError(
            f"arrays: {name} has dtype {array.dtype}, which components can't have: "
            f"expected bool, integers, floats or strings"
        )
    if array.ndim > MAX_NDIM + 1:
        raise PipelineError(
            f"arrays: {name} has elements of {array.ndim - 1} dimensions: expected at most {MAX_NDIM}"
        )
    dtype = array.dtype.newbyteorder("=")
    array = np.ascontiguousarray(array, dtype)
    data = array.view(np.uint16) if bfloat16 else array
    return dtype.name, array.shape[1:], data.reshape(-1).view(np.uint8), None, len(array)


def _strings(values: Iterable[Any]) -> tuple[str, tuple[int, ...], Any, Any, int]:
    strings = [v.encode() if isinstance(v, str) else bytes(v) for v in values]
    offsets = np.zeros(len(strings) + 1, np.uint64)
    np.cumsum([len(s) for s in strings], out=offsets[1:], dtype=np.uint64)
    return "bytes", (), b"".join(strings), offsets, len(strings)


def _from_arrow(source: Any) -> Data:
    if not hasattr(source, "__arrow_c_stream__"):
        raise TypeError(
            f"arrow() takes names of files, or an object with __arrow_c_stream__, such as a pyarrow Table or "
            f"a Polars DataFrame, not a {type(source).__name__}"
        )
    return Data.of(_core.arrow(source.__arrow_c_stream__(), None), ("arrow", source))


def _from_huggingface(dataset: Any) -> Data:
    from cachew import _huggingface  # only here: it imports datasets

    return _huggingface.from_huggingface(dataset)


def data_of(nodes: Iterable[Node]) -> list[Data]:
    """The Data values of all operators of a chain, also of the inputs of `concat` and `zip`."""
    found = []
    for node in nodes:
        for value in node.values():
            if isinstance(value, Data):
                found.append(value)
            elif isinstance(value, list) and value and isinstance(value[0], list):
                found += [d for chain in value for d in data_of(chain)]
    return found


def restored(nodes: Iterable[Node], made_of: Mapping[str, tuple[str, Any]]) -> list[Node]:
    """The chain of an unpickled dataset. Registers its data in this process, and replaces the ids of data in
    nodes by Data values. made_of: id -> Data.made_of.
    """
    kinds = {"arrays": _from_arrays, "arrow": _from_arrow, "huggingface": _from_huggingface}
    fresh = {str(data): data for data in (kinds[kind](value) for kind, value in made_of.values())}

    def renewed(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], list):
            return [[{k: renewed(v) for k, v in node.items()} for node in chain] for chain in value]
        return fresh.get(value, value) if isinstance(value, str) else value

    return [{k: renewed(v) for k, v in node.items()} for node in nodes]
