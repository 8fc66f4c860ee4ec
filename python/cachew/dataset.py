"""Datasets: pipelines as Python values."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cachew import _core
from cachew._batch import Batch
from cachew._errors import PipelineError
from cachew._iterator import DatasetIterator, State
from cachew._operators import TABLE, Operator, Operators, did_you_mean, read_table, value_of


class Field(NamedTuple):
    """What a component is: its dtype ("uint8", ..., "bytes") and the shape of one element, with None for what varies (or for all of the shape, where
    not even the number of dimensions is known beforehand)."""

    dtype: str
    shape: tuple[int | None, ...] | None


class Dataset(Operators):
    """Records and what is done with them. Immutable: each method gives a new dataset, checked in full as far as it is written.

    A dataset begins with a source, `Dataset.tfrecord("train-*.tfrecord")`, and goes on with operators, `.decode_image("image").shuffle().batch(256)`.
    Iterating over it runs it, on all cores, in this process.
    """

    __slots__ = ("_nodes", "_head", "_base_dir", "_pipeline")

    _nodes: tuple[dict[str, Any], ...]
    _head: dict[str, Any]  # what stands beside the chain: on_error, defaults
    _base_dir: str

    def __init__(self) -> None:
        raise TypeError("a dataset begins with a source: Dataset.tfrecord(...), Dataset.files(...), Dataset.range(...), or Dataset.load(path)")

    @classmethod
    def _make(cls, nodes: tuple[dict[str, Any], ...], head: dict[str, Any], base_dir: str) -> Dataset:
        self = object.__new__(cls)
        self._nodes, self._head, self._base_dir = nodes, head, base_dir
        self._pipeline = _core.Pipeline(self.to_json(), base_dir)
        return self

    @classmethod
    def _begin(cls, op: Operator, attributes: Mapping[str, Any]) -> Dataset:
        """A source, or what joins datasets."""
        node: dict[str, Any] = {"op": op.name}
        head: dict[str, Any] = {}
        base_dir = os.getcwd()
        for name, value in attributes.items():
            if op.attributes[name].kind == "chains":
                inputs = _inputs(op, name, value)
                node[name] = [list(d._nodes) for d in inputs]
                head, base_dir = inputs[0]._head, inputs[0]._base_dir
            else:
                node[name] = value_of(op, name, value)
        return cls._make((node,), head, base_dir)

    def _append(self, op: Operator, attributes: Mapping[str, Any]) -> Dataset:
        node = {"op": op.name, **{name: value_of(op, name, value) for name, value in attributes.items()}}
        return self._make((*self._nodes, node), self._head, self._base_dir)

    def __getattr__(self, name: str) -> Any:
        """For operators of plug-ins that were loaded later, and for what is no method at all."""
        if name not in TABLE and not name.startswith("_"):
            read_table()
            if name in TABLE:
                return getattr(self, name)
        if name in TABLE:
            raise AttributeError(f"{name} begins a dataset: Dataset.{name}(...)")
        raise AttributeError(f"a dataset has no method {name}{did_you_mean(name, [n for n in dir(type(self)) if not n.startswith('_')])}")

    # ---- files ----

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Dataset:
        """The pipeline of a file, as `cachew run` reads it. Relative paths in it are relative to the file."""
        pipeline = _core.load(path)
        return cls._from_root(json.loads(pipeline.json()), os.path.dirname(os.path.abspath(path)))

    @classmethod
    def from_json(cls, text: str, base_dir: str | os.PathLike[str] | None = None) -> Dataset:
        """The pipeline of a text. Relative paths in it are relative to base_dir (default: the working directory)."""
        base_dir = os.path.abspath(os.getcwd() if base_dir is None else base_dir)
        _core.Pipeline(text, base_dir)  # all of what may be wrong
        return cls._from_root(json.loads(text), base_dir)

    @classmethod
    def _from_root(cls, root: dict[str, Any], base_dir: str) -> Dataset:
        head = {key: value for key, value in root.items() if key not in ("cachew", "pipeline")}
        return cls._make(tuple(root["pipeline"]), head, base_dir)

    def to_json(self, indent: int | None = None) -> str:
        """The pipeline as JSON, as `cachew run` and `from_json` read it."""
        return json.dumps({"cachew": 1, "pipeline": self._nodes, **self._head}, indent=indent)

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset.from_json, (self.to_json(), self._base_dir)

    # ---- what is known beforehand ----

    @property
    def schema(self) -> dict[str, Field]:
        """Component name -> `Field`, of one element, in the order that batches have. No data are touched."""
        return {name: Field(dtype, shape) for name, dtype, shape in self._pipeline.schema()[0]}

    @property
    def batch_size(self) -> int | None:
        """Elements of a full batch; None if the pipeline does not batch."""
        return self._pipeline.schema()[1] or None

    # ---- running ----

    def iterator(self, *, seed: int | None = None, epochs: float | None = None, threads: int | None = None, memory: int | str | None = None, rank: int = 0,
                 world_size: int = 1, state: State | str | None = None, timeout_s: float | None = None, optimize: bool = True,
                 index_dir: str | os.PathLike[str] | None = None) -> DatasetIterator:
        """Runs the pipeline.

        The sequence of batches is a function of pipeline, data and seed alone: threads, memory and stopping points do not change it.

        seed: of all randomness (default: the pipeline's, else 0)
        epochs: how many (default: the pipeline's, else 1); math.inf: without end
        threads: that compute (default: the CPUs that this process may use)
        memory: bytes for everything but batches that are held, 268435456 or "256M" (default: half of what there is)
        rank, world_size: this iterator gets batch g where g modulo world_size is rank
        state: go on from here: what state_dict() gave
        timeout_s: raise DeadlineError when a batch takes longer
        index_dir: where indexes of data sets are kept (default: $CACHEW_INDEX_DIR, else ~/.cache/cachew/index)
        optimize: False runs the operators as written; the results are the same
        """
        return DatasetIterator(self, seed=seed, epochs=epochs, threads=threads, memory=memory, rank=rank, world_size=world_size, state=state,
                               timeout_s=timeout_s, optimize=optimize, index_dir=index_dir)

    def __iter__(self) -> DatasetIterator:
        return self.iterator()

    def peek(self) -> Batch:
        """The first batch."""
        with self.iterator(epochs=1) as iterator:
            for batch in iterator:
                return batch
        raise PipelineError("the dataset has no batches")

    def on_error(self, action: str) -> Dataset:
        """What happens when a record can't be computed: "raise" (default), "skip" (it is left out), or "replace" (another record of the split stands in)."""
        return self._make(self._nodes, {**self._head, "on_error": action}, self._base_dir)


def _inputs(op: Operator, attribute: str, value: Iterable[Any]) -> list[Dataset]:
    inputs = [value] if isinstance(value, Dataset) else list(value)
    for i, d in enumerate(inputs):
        if not isinstance(d, Dataset):
            raise TypeError(f"{op.name}() takes a list of datasets, {attribute}[{i}] is a {type(d).__name__}")
    if not inputs:
        raise PipelineError(f"{op.name}: {attribute} is empty: expected at least one dataset")
    return inputs
