"""Cachew for PyTorch: batches as tensors.

from cachew.torch import loader

train = loader(ds, seed=1, device="cuda")
for epoch in range(90):
    for batch in train:
        loss = f(model(batch["image"]), batch["label"])
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import math
import os
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
import torch.utils.data

from cachew import _parts
from cachew._batch import Batch, Bytes
from cachew._calls import checked
from cachew._errors import RecordError
from cachew._iterator import DatasetIterator
from cachew._loader import Epoch, Loader, state_of
from cachew._options import (
    ENDLESS,
    LoaderOptions,
    State,
    check_ranks,
    integer,
    make_options,
    truth,
    wrong,
)
from cachew.dataset import Dataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["TorchIterable", "TorchLoader", "TorchMapStyle", "loader"]


class _Key(NamedTuple):
    """What `Batches` gives a torch DataLoader for a batch."""

    loop: object
    """The same object for all batches of one `for` loop."""
    number: int
    """The batch's number among this rank's batches of the epoch."""


class Batches(torch.utils.data.DistributedSampler[Any]):
    """`loader.sampler` and `loader.batch_sampler`: a key for each of this rank's batches of an epoch. It is a
    DistributedSampler, so that Lightning does not divide the batches among the ranks once more.
    """

    def __init__(self, loader: TorchLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[list[_Key]]:
        loop, n = object(), self._loader._batches()
        return ([_Key(loop, k)] for k in (itertools.count() if n is None else range(n)))

    def __len__(self) -> int:
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)


class Examples(torch.utils.data.Dataset[Any]):
    """`loader.dataset`: the elements of an epoch, of all ranks. A torch DataLoader over this object and
    `Batches` gives the loader's batches. Accelerate makes such a DataLoader to skip batches of an epoch.
    """

    def __init__(self, loader: TorchLoader) -> None:
        self._loader = loader
        self._loop: object = None  # of the last key
        self._batches: Epoch[Any] | None = None

    def __getitem__(self, i: Any) -> NoReturn:
        raise TypeError(
            f"the element {i!r:.60} can't be read alone: a loader gives whole batches, one after the other"
        )

    def __getitems__(self, keys: list[_Key]) -> Any:
        """The batch of a key. A loop may begin with any of its keys; the others follow without a gap."""
        (key,) = keys
        if self._batches is None or key.loop is not self._loop:
            dropped = self._loader._skip(key.number)
            self._loop, self._batches = key.loop, iter(self._loader)
            for _ in range(dropped):
                next(self._batches)
        return next(self._batches)


class CountedExamples(Examples):
    """Examples whose number is known beforehand."""

    def __len__(self) -> int:
        return self._loader._n_elements()


def _as_it_is(batch: Any) -> Any:
    return batch


class TorchLoader(Loader[Any], torch.utils.data.DataLoader[Any]):  # type: ignore[misc]
    """Batches of a dataset as dicts of tensors, one epoch per `for` loop. The function `loader` makes a
    TorchLoader. Components of bytes stay `cachew.Bytes`.

    `state_dict()` and `load_state_dict()` work like those of torchdata's StatefulDataLoader. A TorchLoader is
    a torch DataLoader without worker processes, so Hugging Face's Trainer, Accelerate, Lightning and Keras
    accept it. `len(loader.dataset)` is the number of elements of an epoch.
    """

    # what libraries read of a DataLoader. DataLoader.__init__ is not called: it would not allow batch_size
    # beside a batch_sampler
    num_workers = 0
    collate_fn = staticmethod(_as_it_is)
    drop_last = False
    prefetch_factor = None
    persistent_workers = False
    pin_memory = False  # tensors arrive as the loader's options say; no library has to pin them
    timeout = 0
    generator = None
    worker_init_fn = None
    _DataLoader__multiprocessing_context = None
    # Accelerator.prepare() returns the loader as it is, and save_state() saves its state
    _is_accelerate_prepared = True
    use_stateful_dataloader = True

    def __init__(
        self,
        dataset: Dataset,
        *,
        device: torch.device | None,
        pin_memory: bool,
        prefetch: int,
        rank: int | None,
        world_size: int | None,
        sharding: str | None,
        as_tuple: tuple[str, ...] | None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        self.device = device
        self._as_tuple = as_tuple
        Loader.__init__(
            self,
            dataset,
            _Converter(device, pin_memory),
            prefetch if device is not None or pin_memory else 0,
            lambda: _ranks(rank, world_size),
            sharding,
            **options,
        )

    @property
    def dataset(self) -> Examples:  # type: ignore[override]
        """The elements of an epoch. It has len() if their number is known beforehand."""
        try:
            len(self)
        except TypeError:
            return Examples(self)
        return CountedExamples(self)

    @property
    def sampler(self) -> Batches:  # type: ignore[override]
        return Batches(self)

    @property
    def batch_sampler(self) -> Batches:  # type: ignore[override]
        return Batches(self)

    def _n_elements(self) -> int:
        """The number of elements in the batches of an epoch, of all ranks."""
        ds = self._dataset
        before = itertools.takewhile(lambda node: node["op"] not in ("batch", "bucket_by_length"), ds._nodes)
        elements = ds._make(before, ds._head, ds._base_dir).n_batches()
        batches, size = ds.n_batches(), self.batch_size or 1
        if elements is None or batches is None:
            raise TypeError("the number of elements is not known beforehand")
        return min(elements, batches * size)

    def get_sampler(self) -> Batches:
        """The sampler, as Accelerate requests it."""
        return self.sampler

    def _hand_over(self, value: Any) -> Any:
        tensors = _arrived(*value)
        return tensors if self._as_tuple is None else tuple(tensors[name] for name in self._as_tuple)


@checked
def loader(
    dataset: Dataset,
    *,
    device: str | torch.device | None = None,
    pin_memory: bool | None = None,
    prefetch: int = 2,
    rank: int | None = None,
    world_size: int | None = None,
    sharding: str | None = None,
    as_tuple: Sequence[str] | None = None,
    **options: Unpack[LoaderOptions],
) -> TorchLoader:
    """Batches of a dataset as dicts of tensors: each `for batch in loader` is the next epoch.

    On the CPU, tensors lie in the engine's memory, without a copy. With a device, a thread copies batches to
    pinned memory and then to the device, before the program requests them.

    seed: seed of all randomness (default: set by Dataset.defaults, else 0)

    device: device of the tensors (default: the CPU)

    pin_memory: copy batches to pinned memory (default: True with a CUDA device, else False)

    prefetch: number of batches that are copied to the device before the program requests them

    rank, world_size: the number of this process, from 0, and how many processes share each epoch (default:
        those of torch.distributed if it is initialised, else 0 and 1)

    as_tuple: names of components. Each batch is then a tuple of their tensors, as Keras expects it:
        ("image", "label")

    threads, memory, timeout_s, index_dir, cache_dir, cache, cache_bytes: as for Dataset.iterator

    service: the service that computes the batches, with all other options of Dataset.distribute: job,
        transport, token, open_timeout_s, order, guarantee, sharding, tls_ca, tls_cert, tls_key, workers,
        cut, local_workers
    """
    if not isinstance(dataset, Dataset):
        raise TypeError(f"loader() takes a cachew.Dataset, not a {type(dataset).__name__}")
    check_ranks(rank, world_size)
    target = _device(device)
    pin = (
        (target is not None and target.type == "cuda")
        if pin_memory is None
        else truth("pin_memory", pin_memory)
    )
    # torch before 2.6 can pin memory only for CUDA
    if pin and not getattr(torch, "accelerator", torch.cuda).is_available():
        raise wrong(
            "pin_memory", pin_memory, "False: torch finds no device on this machine that uses pinned memory"
        )
    return TorchLoader(
        dataset,
        device=target,
        pin_memory=pin,
        prefetch=integer("prefetch", prefetch, 1, 1024),
        rank=rank,
        world_size=world_size,
        sharding=sharding,
        as_tuple=_names(dataset, as_tuple),
        **options,
    )


def _names(dataset: Dataset, names: Any) -> tuple[str, ...] | None:
    known = dataset.schema
    if names is None:
        return None
    if not isinstance(names, (list, tuple)) or not names or any(name not in known for name in names):
        raise wrong("as_tuple", names, f"a list of components, among {', '.join(known)}")
    return tuple(names)


def _device(device: Any) -> torch.device | None:
    """The checked device; None: the CPU."""
    try:
        found = None if device is None else torch.device(device)
    except (RuntimeError, TypeError) as problem:
        raise wrong(
            "device",
            device,
            f'None, a torch.device or its name, such as "cuda:1" ({str(problem).splitlines()[0]})',
        ) from None
    if found is not None and found.type == "cuda" and not torch.cuda.is_available():
        raise wrong("device", device, "another device: torch finds no CUDA on this machine")
    return None if found is not None and found.type == "cpu" else found


def _ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if (
        rank is None
        and world_size is None
        and torch.distributed.is_available()
        and torch.distributed.is_initialized()
    ):
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return rank or 0, world_size or 1


def as_tensor(value: Any) -> Any:
    """A NumPy array as a tensor over the same memory; other values are returned as they are."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return value
    if dtype.name == "bfloat16":  # torch does not know the NumPy dtype of ml_dtypes
        return torch.from_numpy(value.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(value)


class _Converter:
    """Converts a batch to a dict of tensors, and starts their copies to a device. Only one thread uses it.

    Copies to a CUDA device run on a separate CUDA stream. A call returns the tensors and a CUDA event that
    occurs when the copies are done (None if there are none).
    """

    def __init__(self, device: torch.device | None, pin_memory: bool) -> None:
        self._device = device
        self._pin = pin_memory
        self._stream: torch.cuda.Stream | None = None

    def __call__(self, batch: Batch) -> tuple[dict[str, Any], torch.cuda.Event | None]:
        if self._device is None or self._device.type != "cuda":
            return {name: self._move(as_tensor(value)) for name, value in batch.items()}, None
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            tensors = {name: self._move(as_tensor(value)) for name, value in batch.items()}
            return tensors, self._stream.record_event()

    def _move(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if self._pin:
            value = value.pin_memory()
        return value if self._device is None else value.to(self._device, non_blocking=self._pin)


def _arrived(tensors: dict[str, Any], event: torch.cuda.Event | None) -> dict[str, Any]:
    """Makes the user's current CUDA stream wait for the copies, and marks the tensors as used by that stream:
    torch then reuses their memory only after the work that the user queues there. event: as `_Converter`
    returns it.
    """
    if event is not None:
        for value in tensors.values():
            if isinstance(value, torch.Tensor):
                stream = torch.cuda.current_stream(value.device)
                stream.wait_event(event)
                value.record_stream(stream)
    return tensors


# ---- datasets for torch.utils.data.DataLoader ----


def _item(batch: Batch) -> dict[str, Any]:
    """A batch as tensors and bytes, in types that a DataLoader can collate and send between processes."""
    return {name: _value(value) for name, value in batch.items()}


def _value(value: Any) -> Any:
    if isinstance(value, Bytes):
        return value.tolist()
    return bytes(value) if isinstance(value, memoryview) else as_tensor(value)


class TorchMapStyle(torch.utils.data.Dataset[dict[str, Any]]):
    """A dataset with `len` and `[i]`, for torch.utils.data.DataLoader. `Dataset.as_map_style` makes it. Item
    i is element i of one epoch (after a batcher: batch i), as a dict of tensors; components of bytes are
    bytes.
    """

    def __init__(self, dataset: Dataset, epoch: int) -> None:
        self.dataset = dataset
        self.set_epoch(epoch)
        self._n, self._start = _parts.start_of(
            dataset, "as_map_style: the number of items", "a dataset of known length, or as_iterable()"
        )
        if self._n == ENDLESS:
            raise TypeError("as_map_style: the dataset has no end: expected one with a length")

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch whose order and random draws the items have. Call it before each loop over a
        DataLoader: worker processes that persist keep the epoch that they began with.
        """
        self.epoch = integer("epoch", epoch, 0, ENDLESS - 1)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int) -> dict[str, Any]:
        place = _parts.place_of(index, self._n)
        batch = _parts.batch_at(self.dataset, self._start, place, self.epoch)
        if batch.n_records == 0 and self.dataset.batch_size is None:
            raise RecordError(
                f'element {place} of epoch {self.epoch} failed, and on_error is "skip": expected '
                f'on_error("replace") or on_error("raise"), because an item can\'t be left out'
            )
        return _item(batch)


class TorchIterable(torch.utils.data.IterableDataset[dict[str, Any]]):
    """A dataset that torch.utils.data.DataLoader iterates over. `Dataset.as_iterable` makes it. Items are the
    elements (after a batcher: the batches), as dicts of tensors; components of bytes are bytes.

    Each loop is the next epoch, with worker processes too. The workers of a DataLoader divide the items of an
    epoch: each worker computes consecutive items. Where the number of items is not known beforehand, they
    divide the elements before the operator that leaves it open; each worker then makes its own batches. If
    the source is an iterable, or `take` or `skip` come after that operator, each worker computes all items,
    and gives its part of them. Elements that on_error("skip") leaves out are no items.
    """

    def __init__(self, dataset: Dataset, rank: int, world_size: int) -> None:
        self.dataset = dataset
        self.rank = rank
        self.world_size = world_size
        self._epochs = _Epochs(0)
        self._loops = 0  # begun in this process
        # of the last loop: process, epoch, iterator
        self._running: tuple[int, int, DatasetIterator] | None = None
        self._state: dict[str, Any] | None = None  # where the next loop begins, as state_dict() gave it

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": None}

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next loop."""
        self._epochs.set(integer("epoch", epoch, 0, ENDLESS - 1))

    def __len__(self) -> int:
        n = len(self.dataset)
        return n * (self.rank + 1) // self.world_size - n * self.rank // self.world_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # In a worker of a DataLoader the loop begins now, because torchdata saves its state before the first
        # item. Elsewhere it begins with its first item, because torchdata drops an iterator that has given
        # none when it loads the state of the end of an epoch.
        self._running = None
        return self._items(self._begin() if torch.utils.data.get_worker_info() else None)

    def _items(self, iterator: DatasetIterator | None) -> Iterator[dict[str, Any]]:
        left_out = self.dataset.batch_size is None  # a batch of no elements is an element that failed
        for batch in iterator or self._begin():
            if not batch.is_padding and (batch.n_records or not left_out):
                yield _item(batch)

    def _begin(self) -> DatasetIterator:
        """The iterator of a loop, which is counted as begun."""
        worker = torch.utils.data.get_worker_info()
        self._running = None  # frees an iterator that is not in use before the next one takes memory
        self._loops += 1
        loop = f"{worker.seed - worker.id}:{self._loops}" if worker else uuid.uuid4().hex
        epoch = self._epochs.begin(loop, worker.id if worker else 0)
        given, self._state = self._state, None
        if given is not None and _epoch_of(given) != epoch:  # set_epoch was called after load_state_dict
            given = None
        dataset, rank, world_size = self._part()
        with _sharing_the_host(worker.num_workers if worker else 1):
            iterator = dataset.iterator(
                epochs=epoch + 1,
                first_epoch=0 if given else epoch,
                state=given["cachew"] if given else None,
                rank=rank,
                world_size=world_size,
            )
        self._running = os.getpid(), epoch, iterator
        return iterator

    def _part(self) -> tuple[Dataset, int, int]:
        """What this process computes: a dataset, and the rank and the world_size of its iterator."""
        worker = torch.utils.data.get_worker_info()
        id, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        n, index = self.world_size * workers, self.rank * workers + id
        if n == 1:
            return self.dataset, 0, 1
        part = _parts.divided(self.dataset, n, index)
        return (self.dataset, index, n) if part is None else (part, 0, 1)

    def state_dict(self) -> dict[str, Any]:
        """The position after the item that was delivered last. torchdata's StatefulDataLoader calls this
        method in each process that iterates.
        """
        if self._running is not None and self._running[0] == os.getpid():
            _, epoch, iterator = self._running
            state = iterator.state_dict()
            # The workers of a loop end at different times. A worker that has ended gives no more items of
            # this epoch, while the others go on.
            ended = state["epoch"] > epoch and torch.utils.data.get_worker_info() is not None
            return {"cachew": state, "ended": True} if ended else {"cachew": state}
        if self._state is not None:
            return self._state
        return {"cachew": self._checked(first_epoch=self._epochs.next())}

    def load_state_dict(self, state_dict: State) -> None:
        """The next loop gives the rest of the state's epoch. The number of workers must be that of the run
        that saved the state.
        """
        state: dict[str, Any] = {"cachew": self._checked(state=state_of(state_dict))}
        if state_dict.get("ended"):
            state["ended"] = True
        self._state = state
        self._running = None
        self._epochs.set(_epoch_of(state))

    def _checked(self, **where: Any) -> dict[str, Any]:
        """The state where a run would begin. StateError: it does not fit."""
        dataset, rank, world_size = self._part()
        options = make_options(epochs=math.inf, rank=rank, world_size=world_size, **where)
        state: dict[str, Any] = json.loads(dataset._pipeline.state(options))
        return state


def _epoch_of(state: Mapping[str, Any]) -> int:
    """The epoch of the loop that a state of a TorchIterable is for. The position of a worker that has ended
    is the beginning of the next epoch.
    """
    return int(state["cachew"]["epoch"]) - bool(state.get("ended"))


@contextlib.contextmanager
def _sharing_the_host(workers: int) -> Iterator[None]:
    """The engine divides CPUs and memory of this host among its ranks; meanwhile, each worker counts as a
    rank.
    """
    before = os.environ.get(_LOCAL_RANKS)
    if workers > 1:
        os.environ[_LOCAL_RANKS] = str(int(before or 1) * workers)
    try:
        yield
    finally:
        if before is not None:
            os.environ[_LOCAL_RANKS] = before
        else:
            os.environ.pop(_LOCAL_RANKS, None)


_LOCAL_RANKS = "LOCAL_WORLD_SIZE"
"""The variable with the number of ranks on this host, among which the engine divides CPUs and memory."""


class _Epochs:
    """Numbers the epochs of a TorchIterable, for all processes that have a copy of it: the workers of one
    loop get the same number, and the next loop the next one. The copies share a file, to which they only
    append lines: "=N" says that the next loop is epoch N; "LOOP/WORKER" says that a worker began a loop.

    LOOP is the same text for all workers of a loop. Several loops have the same text if torch's seed was
    set to the same value before each: then the n-th line of a worker belongs to the n-th of these loops.
    """

    def __init__(self, epoch: int) -> None:
        file, self._path = tempfile.mkstemp(prefix="cachew-epochs-")
        os.close(file)
        self.set(epoch)
        weakref.finalize(self, _remove, self._path, os.getpid())

    def __reduce__(self) -> tuple[Any, ...]:
        """Only a process that is being started, such as a worker of a DataLoader, shares the file. Any other
        copy counts for itself.
        """
        if get_spawning_popen() is None:
            return _Epochs, (self.next(),)
        return _shared_epochs, (self._path,)

    def _append(self, line: str) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, f"{line}\n".encode())  # one call, so that lines of several processes do not mix
        finally:
            os.close(file)

    def _find(self, begun: str | None) -> int:
        """The epoch of the loop that the line `begun` names where it stands last. None: of the next loop."""
        first, found = 0, 0
        times: collections.Counter[str] = collections.Counter()  # by line
        epochs: dict[tuple[str, int], int] = {}  # by loop
        since = set[tuple[str, int]]()  # the loops from epoch `first` on
        with open(self._path) as file:
            for line in file.read().split():
                if line[0] == "=":
                    first, since = int(line[1:]), set()
                    continue
                loop = line.rpartition("/")[0], times[line]
                times[line] += 1
                epoch = epochs.setdefault(loop, first + len(since))
                if epoch >= first:  # else a worker is late: "=N" came after the beginning of its loop
                    since.add(loop)
                if line == begun:
                    found = epoch
        return first + len(since) if begun is None else found

    def set(self, epoch: int) -> None:
        self._append(f"={epoch}")

    def begin(self, loop: str, worker: int) -> int:
        line = f"{loop}/{worker}"
        self._append(line)
        return self._find(line)

    def next(self) -> int:
        return self._find(None)


def _shared_epochs(path: str) -> _Epochs:
    self = _Epochs.__new__(_Epochs)
    self._path = path
    return self


def _remove(path: str, owner: int) -> None:
    if owner == os.getpid():
        os.unlink(path)
