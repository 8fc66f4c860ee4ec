"""The functions with which host processes read Hugging Face datasets. It imports no package that is slow to
import: a host process loads only what the dataset needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

PATH = ".path"
"""The suffix of the component that has the paths of files which `ReadFiles` reads."""


class ReadFiles:
    """A function of `map`: reads the files of components that have no bytes, and drops the paths."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __call__(self, element: Mapping[str, Any]) -> dict[str, Any]:
        paths = {name + PATH for name in self.names}
        found = {name: value for name, value in element.items() if name not in paths}
        for name in self.names:
            path = bytes(element[name + PATH]).decode()
            if path and not len(found[name]):
                found[name] = read_file(path)
        return found


def read_file(path: str) -> bytes:
    if "://" in path:  # a file inside an archive, or of another machine
        datasets: Any = importlib.import_module("datasets.utils.file_utils")
        with datasets.xopen(path, "rb") as file:
            return bytes(file.read())
    with open(path, "rb") as file:
        return file.read()


class Rows:
    """A factory of `iterable`: the rows of a `datasets.IterableDataset`."""

    def __init__(self, dataset: Any, outputs: Mapping[str, tuple[str, Any]] | None) -> None:
        self.dataset = dataset
        self.outputs = outputs
        self._named = type(dataset)

    def __call__(self) -> Iterator[dict[str, Any]]:
        for row in self.dataset:
            yield {name: self._value(name, value) for name, value in row.items()}

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"bytes", "path"}:
            path, value = value["path"], value["bytes"]
            if value is None and path is not None:
                value = read_file(path)
        if value is None:
            raise ValueError(f'the column "{name}" has a null: components can\'t hold nulls')
        dtype = self.outputs[name][0] if self.outputs else None
        return value if dtype in (None, "bytes") else np.asarray(value, dtype)
