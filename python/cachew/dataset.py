"""Datasets: pipelines as immutable Python values."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, SupportsIndex, overload

from cachew import _core, _foreign, _iterator, _parts
from cachew._batch import Batch
from cachew._calls import checked_methods, did_you_mean
from cachew._chain import Node, rebased, written
from cachew._describe import Description, describe
from cachew._errors import DataError, PipelineError
from cachew._functions import Functions
from cachew._iterator import DatasetIterator
from cachew._memory import InMemory, data_of, restored
from cachew._methods import Operators, read_table
from cachew._operators import TABLE, Operator, value_of
from cachew._payload import inline, place_of, with_payloads, without_large, without_limits
from cachew._show import dataset_html, display, table
from cachew._options import (
    ENDLESS,
    Path,
    ServiceOptions,
    State,
    byte_count,
    integer,
    make_options,
    seconds,
    with_cache,
    with_service,
    with_sharding,
    wrong,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from cachew.torch import TorchIterable, TorchMapStyle


class Field(NamedTuple):
    """The type of a component: its dtype ("uint8", ..., "bytes") and its shape in one element. A dimension of
    the shape is None if it varies; the whole shape is None if even the number of dimensions varies.
    """

    dtype: str
    shape: tuple[int | None, ...] | None


SHORT = 70
"""Characters of a pipeline in the repr of an iterator, at most."""


def _instead(name: str, known: Iterable[str]) -> str:
    """The end of a message about a method that does not exist."""
    known = [n for n in known if not n.startswith("_")]
    return _foreign.method(name) or did_you_mean(name, known, list_all=False)


class Names(type):
    """The class of `Dataset`, for the message about a source that does not exist."""

    if not TYPE_CHECKING:  # as for Dataset.__getattr__

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(f"Dataset has no method {name}{_instead(name, dir(cls))}")


@checked_methods
class Dataset(Functions, InMemory, Operators, metaclass=Names):
    """A pipeline: a source of records and operators on them. A dataset is immutable: each method returns a
    new dataset, and raises at once if the pipeline so far is wrong.

    A dataset begins with a source, `Dataset.tfrecord("train-*.tfrecord")`, followed by operators,
    `.decode_image("image").shuffle().batch(256)`. Iterating over the dataset runs the pipeline, on all cores,
    in this process.
    """

    __slots__ = ("_nodes", "_head", "_base_dir", "_pipeline", "_whole", "_epoch", "_start")

    _nodes: tuple[Node, ...]  # the chain: one JSON object per operator
    _head: dict[str, Any]  # settings of the whole pipeline: on_error, order, defaults
    _base_dir: str  # absolute; relative paths in _nodes are relative to it
    _pipeline: _core.Pipeline  # for checks and types; it lacks large pickles of functions
    # the pipelines that can run, which `_runnable` makes: (process, for a service) -> pipeline
    # None: `_pipeline` can
    _whole: dict[tuple[int, bool], _core.Pipeline] | None
    _epoch: int  # see `epoch`; not part of the value
    _start: tuple[int, dict[str, Any]] | None  # _parts.start_of, kept for ds[i]

    def __init__(self) -> None:
        raise TypeError(
            "a dataset begins with a source: Dataset.tfrecord(...), Dataset.files(...), "
            "Dataset.range(...), or Dataset.load(path)"
        )

    # ---- making datasets ----

    @classmethod
    def _make(cls, nodes: Iterable[Node], head: dict[str, Any], base_dir: str) -> Dataset:
        self = object.__new__(cls)
        for name, value in (("_nodes", tuple(nodes)), ("_head", head), ("_base_dir", base_dir)):
            object.__setattr__(self, name, value)
        light = with_payloads(self._nodes, without_large)
        object.__setattr__(self, "_pipeline", _core.Pipeline(_json(light, head), base_dir))
        object.__setattr__(self, "_whole", {} if list(self._nodes) != light else None)
        object.__setattr__(self, "_epoch", 0)
        object.__setattr__(self, "_start", None)
        return self

    def _runnable(self, for_service: bool = False) -> _core.Pipeline:
        """The pipeline with its functions. It is made at the first run, because parsing large functions at
        each method call would take long. for_service: other processes than those of this one's hosts run it.
        """
        if _iterator.debugger is not None:
            return _core.Pipeline(
                _json(with_payloads(without_limits(self._nodes), place_of), self._head), self._base_dir
            )
        if self._whole is None:
            return self._pipeline
        key = os.getpid(), for_service
        if key not in self._whole:
            text = self.to_json() if for_service else _json(with_payloads(self._nodes, place_of), self._head)
            self._whole[key] = _core.Pipeline(text, self._base_dir)
        return self._whole[key]

    @classmethod
    def _begin(cls, op: Operator, attributes: Mapping[str, Any]) -> Dataset:
        """A new dataset that begins with op: a source, or an operator that joins several datasets."""
        node: Node = {"op": op.name}
        head: dict[str, Any] = {}
        base_dir = os.getcwd()
        for name, value in attributes.items():
            if op.attributes[name].kind == "chains":
                inputs = _inputs(op, name, value)
                head, base_dir = _common_head(op, inputs), inputs[0]._base_dir
                node[name] = [
                    list(d._nodes) if d._base_dir == base_dir else rebased(d._nodes, d._base_dir)
                    for d in inputs
                ]
            else:
                node[name] = value_of(op, name, value)
        return cls._make([node], head, base_dir)

    def _append(self, op: Operator, attributes: Mapping[str, Any]) -> Dataset:
        node: Node = {"op": op.name}
        for name, value in attributes.items():
            operators = op.attributes[name].kind == "operators"
            node[name] = value_of(op, name, self._operators(op, name, value) if operators else value)
        return self._make([*self._nodes, node], self._head, self._base_dir)

    def _operators(self, op: Operator, name: str, value: Any) -> Any:
        """The operators that a function adds to this dataset; of a list, those of each function."""
        if isinstance(value, (list, tuple)):
            return [self._operators(op, name, v) for v in value]
        if not callable(value):
            return value
        longer = value(self)
        n = len(self._nodes)
        if not isinstance(longer, Dataset) or list(longer._nodes[:n]) != list(self._nodes):
            raise TypeError(
                f"{op.name}: {name}: expected a function that returns its dataset with more operators"
            )
        return list(longer._nodes[n:])

    @classmethod
    def _make_function_source(cls, op: str, attributes: Mapping[str, Any]) -> Dataset:
        return cls._begin(TABLE[op], attributes)

    def _with_function(self, op: str, attributes: Mapping[str, Any]) -> Dataset:
        return self._append(TABLE[op], attributes)

    def _for_tests(self, op: str, *args: Any, **attributes: Any) -> Dataset:
        """Appends one of the operators that only tests need: `delay`, `fail`, `count`."""
        return self._append(TABLE[op], TABLE[op].arguments(args, attributes))

    def on_error(self, action: str) -> Dataset:
        """Sets what happens when a record can't be computed: "raise" (default) ends the iteration, "skip"
        leaves the record out, "replace" puts another record from the same part of the epoch in its place.
        """
        return self._make(self._nodes, {**self._head, "on_error": action}, self._base_dir)

    def order(self, order: str) -> Dataset:
        """Sets in which order operators may run. "strict" (default): in another order than the one as
        written, where that is faster and the results are the same, bit by bit. "relaxed": also past
        augmentations, which changes results. "written": never in another order.
        """
        return self._make(self._nodes, {**self._head, "order": order}, self._base_dir)

    def defaults(self, *, seed: int | None = None, epochs: int | None = None) -> Dataset:
        """Sets the default seed and the default number of epochs of iterators and of `cachew run`."""
        given = {name: value for name, value in (("seed", seed), ("epochs", epochs)) if value is not None}
        return self._make(
            self._nodes,
            {**self._head, "defaults": {**self._head.get("defaults", {}), **given}},
            self._base_dir,
        )

    # ---- as text ----

    @classmethod
    def load(cls, path: Path) -> Dataset:
        """Reads a pipeline file, as `cachew run` does. Relative paths in the file are relative to its
        directory.
        """
        return cls._parsed(json.loads(_core.load(path).json()), os.path.dirname(os.path.abspath(path)))

    @classmethod
    def from_json(cls, text: str, base_dir: Path | None = None) -> Dataset:
        """Makes a dataset of a pipeline's JSON. Relative paths in the JSON are relative to base_dir (default:
        the working directory).
        """
        base_dir = os.path.abspath(os.getcwd() if base_dir is None else base_dir)
        return cls._parsed(json.loads(_core.Pipeline(text, base_dir).json()), base_dir)

    @classmethod
    def _parsed(cls, root: dict[str, Any], base_dir: str) -> Dataset:
        read_table()  # a plug-in may have added operators; paths and repr need their attributes
        return cls._make(
            root["pipeline"],
            {key: value for key, value in root.items() if key not in ("cachew", "pipeline")},
            base_dir,
        )

    def to_json(self, indent: int | None = None) -> str:
        """The pipeline as JSON, in the form that `from_json` and `cachew run` read. Relative paths stay
        relative; `save` makes those absolute that would be wrong in the directory of the file.
        """
        return _json(with_payloads(self._nodes, inline), self._head, indent)

    def save(self, path: Path) -> None:
        """Writes the pipeline to a file, for `load` and `cachew run`. Relative paths that would be wrong in
        the directory of the file become absolute.
        """
        directory = os.path.dirname(os.path.abspath(path))
        ds = (
            self
            if directory == self._base_dir
            else self._make(rebased(self._nodes, self._base_dir), self._head, directory)
        )
        with open(path, "w") as file:
            file.write(ds.to_json(indent=1) + "\n")

    def __reduce__(self) -> tuple[Any, ...]:
        made_of = {str(data): data.made_of for data in data_of(self._nodes)}
        if made_of:
            return _unpickled, (self.to_json(), self._base_dir, made_of)
        return Dataset.from_json, (self.to_json(), self._base_dir)

    def __repr__(self) -> str:
        head = "".join(
            f".{name}({self._head[name]!r})" for name in ("on_error", "order") if name in self._head
        )
        if "defaults" in self._head:
            head += (
                f".defaults({', '.join(f'{name}={value}' for name, value in self._head['defaults'].items())})"
            )
        return written(self._nodes) + head

    def _short(self) -> str:
        """The pipeline in one line, for the repr of an iterator."""
        calls = written(self._nodes, SHORT)
        if "\n" not in calls and len(calls) <= SHORT:
            return calls
        return f"Dataset.{self._nodes[0]['op']}(...) ... {self._nodes[-1]['op']}(...)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dataset):
            return NotImplemented
        return self._checked() == other._checked()

    def __hash__(self) -> int:
        return hash(self._checked())

    def _checked(self) -> tuple[str, str]:
        """What makes two datasets equal: of large functions, the identities count."""
        return _json(with_payloads(self._nodes, without_large), self._head), self._base_dir

    def __setattr__(self, name: str, value: object) -> NoReturn:
        instead = (
            "call set_epoch()" if name == "epoch" else "datasets are immutable; their methods give new ones"
        )
        raise AttributeError(f"{name} can't be set: {instead}")

    if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept misspelt methods

        def __getattr__(self, name: str) -> Any:
            """Python calls this for a name that is not an attribute. If the name is an operator of a plug-in
            that was loaded after the table of operators was read, reads the table again and returns the
            operator's method. Otherwise raises an AttributeError that suggests a name.
            """
            if name.startswith("_"):
                raise AttributeError(name)
            if name not in TABLE:
                read_table()
                if name in TABLE:
                    return getattr(self, name)
            if name in TABLE and TABLE[name].for_tests:
                raise AttributeError(
                    f"a dataset has no method {name}: the operator {name} is for tests; a pipeline file may "
                    "have it, and Dataset.from_json reads it"
                )
            if name in TABLE:
                call = "[ds, other]" if TABLE[name].takes_datasets else "..."
                raise AttributeError(f"{name} begins a dataset: Dataset.{name}({call})")
            raise AttributeError(f"a dataset has no method {name}{_instead(name, dir(self))}")

    def __dir__(self) -> list[str]:
        """The methods of a dataset: without the sources, which begin one (Dataset.tfrecord)."""
        return sorted(n for n in super().__dir__() if n not in TABLE or not TABLE[n].begins)

    # ---- what is known beforehand ----

    @property
    def schema(self) -> dict[str, Field]:
        """The type of each component: name -> `Field`, in the same order as in batches. Reads no data."""
        return {name: Field(dtype, shape) for name, dtype, shape in self._pipeline.schema()[0]}

    @property
    def batch_size(self) -> int | None:
        """Elements of a full batch; None if the pipeline does not batch."""
        return self._pipeline.schema()[1] or None

    @property
    def n_elements(self) -> int | None:
        """The number of elements of an epoch; None if it is not known beforehand (after a filter), or if the
        epoch has no end. Records that fail are counted too. Opens the sources.
        """
        n = self._pipeline.elements(make_options())
        return None if n == -1 else n

    def n_batches(self, *, rank: int = 0, world_size: int = 1, index_dir: Path | None = None) -> int | None:
        """The number of batches that each rank gets in an epoch; None if this number is not known beforehand
        (after a filter), or if the epoch has no end. Opens the sources.
        """
        # batches() gives None if the number is not known beforehand, -1 if the epoch has no end
        n = self._pipeline.batches(make_options(rank=rank, world_size=world_size, index_dir=index_dir))
        return None if n == -1 else n

    def __len__(self) -> int:
        """The number of batches of an epoch. Raises TypeError if this number is not known beforehand (after a
        filter), or if the epoch has no end. Opens the sources.
        """
        n = self._pipeline.batches(make_options())  # see n_batches
        if n is None:
            raise TypeError(
                "the number of batches is not known beforehand: it depends on how many elements a filter "
                "or a function gives, or on the lengths of elements"
            )
        if n < 0:
            raise TypeError("the dataset is endless: its number of batches is infinite")
        return n

    def __bool__(self) -> bool:
        return True  # without this method, Python would call __len__, which opens the sources

    # ---- parts ----

    @overload
    def __getitem__(self, key: SupportsIndex) -> Batch: ...
    @overload
    def __getitem__(self, key: slice) -> Dataset: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Batch | Dataset:
        """ds[i] is the batch (without a batcher: the element) at place i of the next `for` loop over the
        dataset, which is epoch `ds.epoch`; ds[-1] is the last one. No batch before it is computed. That needs
        a source whose records can be found by their number, and no filter: else TypeError says what is in the
        way. Each ds[i] starts the pipeline anew, and its threads may compute some elements after the batch,
        too: to go through many batches, iterate.

        ds[a:b] is a dataset with the batches (elements) from place a up to, but not including, place b: the
        same as `ds.skip(a).take(b - a)`.
        """
        return _parts.cut(self, key) if isinstance(key, slice) else _parts.item(self, key)

    def random_split(self, parts: Sequence[float], *, seed: int = 0) -> list[Dataset]:
        """Divides the elements at random: returns one dataset for each part. No element is in two parts, and
        each element is in one. Call it before `batch`.

        The split depends only on the number of elements and on `seed`: not on the epoch, nor on the seed of a
        run. The parts are made with `shuffle(seed=seed, reshuffle=False)`, `skip` and `take`. So each part
        has its elements in one random order; call `shuffle()` on it for another order in each epoch.

        parts: fractions that add up to 1, such as [0.9, 0.1], or numbers of elements that add up to
            `n_elements`

        seed: another seed gives another split
        """
        return _parts.random_split(self, parts, seed)

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Part number `index`, from 0, of `num_shards` parts of equal size (they differ by at most one
        element): consecutive elements in the dataset's order, after `batch` consecutive batches. Each element
        is in exactly one shard.
        """
        return _parts.shard(self, num_shards, index)

    # ---- for torch.utils.data.DataLoader ----

    def as_map_style(self, *, seed: int | None = None, epoch: int = 0) -> TorchMapStyle:
        """A torch.utils.data.Dataset with `len` and `[i]`, for code that takes one, such as a DataLoader.
        Item i is `ds[i]` as a dict of tensors. The random draws are those of one epoch until `set_epoch` is
        called. Where the code can be changed, cachew.torch.loader is faster.

        seed: seed of all randomness (default: set by `defaults`, else 0)

        epoch: the epoch whose order and random draws the items have
        """
        from cachew.torch import TorchMapStyle

        return TorchMapStyle(self if seed is None else self.defaults(seed=seed), epoch)

    def __getitems__(self, indices: Sequence[int]) -> NoReturn:
        """A DataLoader calls this method where it would otherwise collate the results of ds[i]."""
        raise TypeError(
            "a DataLoader can't collate the elements of a cachew.Dataset: expected ds.as_iterable() or "
            "ds.as_map_style(), or cachew.torch.loader(ds) in place of the DataLoader"
        )

    def as_iterable(self, *, seed: int | None = None, rank: int = 0, world_size: int = 1) -> TorchIterable:
        """A torch.utils.data.IterableDataset, for code that takes one, such as a DataLoader. Each loop is the
        next epoch. The workers of the DataLoader divide the items, so that each comes once. The result has
        `state_dict` and `load_state_dict` for torchdata's StatefulDataLoader. Where the code can be changed,
        cachew.torch.loader is faster.

        seed: seed of all randomness (default: set by `defaults`, else 0)

        rank, world_size: the ranks divide the items as workers do: rank r gets part r of `world_size` parts
            of consecutive items. No item is repeated, so the ranks' numbers of items may differ by one, and
            behind a filter by more
        """
        from cachew.torch import TorchIterable

        world_size = integer("world_size", world_size, 1, 2**10)
        rank = integer("rank", rank, 0, world_size - 1)
        return TorchIterable(self if seed is None else self.defaults(seed=seed), rank, world_size)

    # ---- running ----

    def iterator(
        self,
        *,
        seed: int | None = None,
        epochs: float | None = None,
        threads: int | None = None,
        memory: int | str | None = None,
        rank: int = 0,
        world_size: int = 1,
        state: State | str | None = None,
        timeout_s: float | None = None,
        first_epoch: int = 0,
        epoch: int | None = None,
        optimize: bool = True,
        index_dir: Path | None = None,
        cache_dir: Path | None = None,
        cache: str | int | None = None,
        cache_bytes: int | str | None = None,
    ) -> DatasetIterator:
        """Runs the pipeline in this process, and returns an iterator over its batches.

        Pipeline, data and seed alone determine the sequence of batches. Threads, memory, and where a run
        stops and resumes do not change it.

        seed: seed of all randomness (default: set by `defaults`, else 0)

        epochs: number of epochs (default: set by `defaults`, else 1); math.inf: without end

        threads: number of compute threads (default: the CPUs that this process may use, or its part of them,
            as for `memory`)

        memory: limit in bytes for everything except batches that the caller holds: 268435456 or "256M"
            (default: half of the memory that this process may use; of several ranks that a launcher
            started on this host, each takes an equal part of it)

        rank, world_size: `world_size` iterators share each epoch, and this one is number `rank`, from 0. It
            gets the batches with g modulo world_size = rank, where g is the batch's number in the epoch. If
            `state` lies within an epoch, g is counted from the state's position in that epoch

        state: resume from this state (a result of state_dict())

        timeout_s: raise DeadlineError if no batch comes within this number of seconds (default: no limit)

        first_epoch: without a state, the first epoch to run; the last one is `epochs` - 1

        epoch: run this epoch alone; instead of `epochs` and `first_epoch`

        optimize: False runs the operators one by one, as written; the results are the same

        index_dir: directory of the sources' indexes (default: $CACHEW_INDEX_DIR, else ~/.cache/cachew/index)

        cache_dir: directory where elements at an operator `autocache` or `cache` are kept, for later epochs
            and other runs; the results are the same

        cache: which of the pipeline's operators `autocache` and `cache` is used: "auto" (default: Cachew
            chooses), "off" (none), or the operator's number among these operators, from 0

        cache_bytes: limit for the size of cache_dir in bytes, or as "10G" (default: the directory's present
            size plus half of the free disk space)
        """
        if epoch is not None:
            if epochs is not None or first_epoch != 0 or state is not None:
                raise wrong("epoch", epoch, "None with epochs, first_epoch or state")
            first_epoch = integer("epoch", epoch, 0, ENDLESS - 1)
            epochs = first_epoch + 1
        options = make_options(
            seed=seed,
            epochs=epochs,
            first_epoch=first_epoch,
            threads=threads,
            memory=memory,
            rank=rank,
            world_size=world_size,
            optimize=optimize,
            state=state,
            index_dir=index_dir,
        )
        return DatasetIterator(self, with_cache(options, cache_dir, cache, cache_bytes), timeout_s)

    def distribute(
        self,
        service: str,
        *,
        rank: int = 0,
        world_size: int = 1,
        seed: int | None = None,
        epochs: float | None = None,
        state: State | str | None = None,
        timeout_s: float | None = None,
        first_epoch: int = 0,
        sharding: str | None = None,
        **options: Unpack[ServiceOptions],
    ) -> DatasetIterator:
        """Runs the pipeline on the workers of a service. The batches are the same as those of `iterator`,
        even when workers fail during the run.

        service: "HOST:PORT" of the dispatcher, as `cachew up` prints it. "local": a service that this process
            starts at the first use. All datasets of the process share it, and it ends with the process

        job: the job's name in the service, the same for all ranks (default: a unique name)

        transport: how batches come from workers: "auto" (default: the fastest that works), "shm" (memory
            shared on this host), "unix" (a Unix socket on this host) or "tcp"

        token: the service's token (default: $CACHEW_TOKEN, if it is set)

        open_timeout_s: seconds within which a worker of the service must have opened the data (default 60);
            None: no limit

        tls_ca: use TLS; a PEM file with the certificate authority of the service, as `cachew keys init` makes
            it

        tls_cert, tls_key: this client's certificate and its key (PEM files), if the service requires them
            (--tls-mutual)

        workers: number of workers, if this call starts the service "local" (default 1, with all CPUs)

        order: "exact" (default): the order of `iterator`. "any": batches are delivered as soon as they are
            ready, so that a slow batch does not delay others

        guarantee: "exactly-once" (default): no element is lost or repeated. "at-most-once": elements that are
            lost when a worker fails are not computed again; `order` must then be "any", which is its default
            in this case

        sharding: as in the tf.data service. "dynamic" (default): the ranks share each epoch. "off": each rank
            gets the whole epoch, in a job of its own

        cut: where the pipeline is cut. The workers run the operators up to there, this process those after
            it, and the batches are the same. "worker" (default): the workers run all operators. "client": the
            workers run as few as possible, up to the last one that decides which elements there are and in
            which batch. "auto": where few bytes cross the network. Or an operator, by its number, from 0, or
            by its name, if it occurs once

        local_workers: number of workers that this process starts for the service on this host (default 0),
            each with one compute thread and low priority. "auto": one for each CPU that is idle now. They
            may serve all ranks of all jobs, and end with this process

        rank, world_size, seed, epochs, state, timeout_s, first_epoch: as for `iterator`
        """
        if service is None:
            raise wrong(
                "service",
                service,
                'HOST:PORT of its dispatcher, or "local"; without a service, iterator() runs the pipeline',
            )
        run = make_options(
            seed=seed, epochs=epochs, first_epoch=first_epoch, rank=rank, world_size=world_size, state=state
        )
        return DatasetIterator(
            self, with_sharding(with_service(run, service, **options), sharding), timeout_s
        )

    @property
    def epoch(self) -> int:
        """The epoch with which the next `for` loop over this dataset begins: 0 at first, and after each loop
        the next one. Only loops over the dataset itself count, not `iterator`, `distribute` and `peek`.
        """
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch with which the next `for` loop over this dataset begins."""
        object.__setattr__(self, "_epoch", integer("epoch", epoch, 0, ENDLESS - 1))

    def __iter__(self) -> DatasetIterator:
        """Each `for` loop over the dataset is the next epoch (the next `epochs` of `defaults`), with another
        order of `shuffle` and other random draws.
        """
        begin: int = self._epoch
        end = min(begin + self._head.get("defaults", {}).get("epochs", 1), ENDLESS)
        iterator = self.iterator(first_epoch=begin, epochs=end)
        object.__setattr__(self, "_epoch", min(end, ENDLESS - 1))
        return iterator

    def peek(self) -> Batch:
        """Runs the pipeline, and returns its first batch."""
        with self.iterator(epochs=1) as iterator:
            for batch in iterator:
                return batch
        raise DataError("the dataset has no batches")

    def show(self, n: int = 8) -> None:
        """Shows the first n elements of the next `for` loop: in a notebook as an HTML table with pictures,
        elsewhere as a table of text.
        """
        display(table(self, integer("n", n, 1, 10_000)))

    def describe(self, n: int = 1000, *, seed: int = 0) -> Description:
        """Statistics of each component: dtype, shapes, lengths, smallest and largest value, mean, standard
        deviation, share of NaN and of empty byte strings, and the most frequent values.

        n: number of elements that are read, at random; the first ones where the pipeline can't be shuffled,
            as after a `take` behind a filter

        seed: another seed gives another sample
        """
        return describe(self, n, seed)

    def _repr_html_(self) -> str:
        """What a notebook shows: the pipeline, the components, the next epoch and the number of elements.
        Opens the sources.
        """
        return dataset_html(self)

    def explain(
        self,
        run_s: float = 0.0,
        *,
        seed: int | None = None,
        threads: int | None = None,
        memory: int | str | None = None,
        optimize: bool = True,
        index_dir: Path | None = None,
    ) -> str:
        """A text that describes the pipeline: the types after each operator, the operators that run fused,
        and how workers can divide the data. With run_s, the pipeline also runs for that many seconds, and the
        text says where the time goes and what would make the pipeline faster.
        """
        limit = max(seconds("run_s", run_s), 0.0)
        options = make_options(
            seed=seed, threads=threads, memory=memory, optimize=optimize, index_dir=index_dir
        )
        pipeline = self._runnable() if limit else self._pipeline
        if _iterator.debugger is not None:
            return _iterator.debugger.call(lambda: pipeline.explain(options, limit, False))
        return pipeline.explain(options, limit, False)

    def materialize(
        self,
        path: Path,
        *,
        format: str = "cachew",
        shard_bytes: int | str = "256M",
        seed: int | None = None,
        progress: Callable[[int, int], object] | None = None,
        threads: int | None = None,
        memory: int | str | None = None,
        optimize: bool = True,
        index_dir: Path | None = None,
        service: str | None = None,
        **service_options: Unpack[ServiceOptions],
    ) -> dict[str, Any]:
        """Computes the elements of epoch 0 and writes them, in their order, to files in the directory
        `path`, which `Dataset.materialized(path)` reads. Batches are taken apart. Returns `{"shards",
        "elements", "bytes", "set_digest"}`. If the program ends before the data are complete, the same call
        continues after the last finished file.

        format: "cachew" (the fastest to read back), "tfrecord" (tf.train.Example) or "tar" (WebDataset)

        shard_bytes: a file ends with the element with which it has so many bytes: 1 << 26 or "64M"

        progress: called up to five times a second with the number of elements and of bytes that are written

        service: the address of a service, as for `distribute`: its workers compute the elements and write the
            files, so they must reach `path` too. Its further keywords are those of `distribute` but order,
            guarantee, cut and local_workers; `job` is the first part of the job's name
        """
        options = make_options(
            seed=seed, threads=threads, memory=memory, optimize=optimize, index_dir=index_dir
        )
        size = byte_count("shard_bytes", shard_bytes)
        for name in ("order", "guarantee", "cut", "local_workers"):
            if (value := service_options.get(name)) is not None:
                raise wrong(name, value, "None: materialize does not have it")
        options = _iterator.with_address(with_service(options, service, **service_options))
        pipeline = self._runnable(service is not None)

        def write() -> str:
            return pipeline.materialize(options, path, format, size, progress)

        debugger = _iterator.debugger
        return dict(json.loads(debugger.call(write) if debugger is not None else write()))


def _json(nodes: Iterable[Node], head: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps({"cachew": 1, "pipeline": nodes, **head}, indent=indent)


def _unpickled(text: str, base_dir: str, made_of: Mapping[str, tuple[str, Any]]) -> Dataset:
    root = json.loads(text)
    return Dataset._make(
        restored(root["pipeline"], made_of),
        {k: v for k, v in root.items() if k not in ("cachew", "pipeline")},
        base_dir,
    )


def _inputs(op: Operator, attribute: str, value: Iterable[Any]) -> list[Dataset]:
    inputs = [value] if isinstance(value, Dataset) else list(value)
    for i, d in enumerate(inputs):
        if not isinstance(d, Dataset):
            raise TypeError(f"{op.name}() takes a list of datasets; {attribute}[{i}] is a {type(d).__name__}")
    if not inputs:
        raise PipelineError(f"{op.name}: {attribute} is empty: expected at least one dataset")
    return inputs


def _common_head(op: Operator, inputs: list[Dataset]) -> dict[str, Any]:
    """The settings of the inputs (on_error, order, defaults). They apply to the whole pipeline, so all inputs
    must have the same ones; else PipelineError.
    """
    for i, d in enumerate(inputs):
        if d._head != inputs[0]._head:
            raise PipelineError(
                f"{op.name}: dataset {i} has other settings than dataset 0 ({d._head} and "
                f"{inputs[0]._head}): call on_error(), order() and defaults() on the result of "
                f"{op.name}() instead"
            )
    return inputs[0]._head
