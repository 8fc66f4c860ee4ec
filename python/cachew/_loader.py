"""What the loaders of torch and JAX share: epochs, positions, and running ahead.

A loader is iterated once per epoch, as training loops do: each `for batch in loader` is the next epoch.
Behind it is one iterator without end, so that the next epoch's first batches are computed while the last
one's are used.
"""

from __future__ import annotations

import collections
import json
import math
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, Unpack, cast

from cachew._batch import Batch
from cachew._calls import checked_methods
from cachew._errors import DeadlineError, Error, StateError, UsageError
from cachew._iterator import DatasetIterator
from cachew._options import (
    LoaderOptions,
    Options,
    ServiceOptions,
    State,
    check_ranks,
    make_options,
    seconds,
    state_text,
    with_cache,
    with_service,
    with_sharding,
    wrong,
)
from cachew.dataset import Dataset

T = TypeVar("T")


class Item(NamedTuple):
    """A batch on its way: what the user gets, its place, and the state after it."""

    value: Any
    epoch: int
    g: int
    is_padding: bool
    state: str


class Stream:
    """Items of an iterator, made when they are asked for.

    The caller takes an item off `items` once the user has it: an exception that a signal raises before
    leaves it there for the next call. Python handles no signal between two plain assignments.
    """

    def __init__(self, iterator: DatasetIterator, convert: Callable[[Batch], Any]) -> None:
        self.items: list[Item] = []
        self._iterator = iterator
        self._convert = convert
        self._batch: Batch | None = None  # of the item that is being made

    def get(self) -> Item | None:
        """The next item, the same until it is taken off; None at the end."""
        if not self.items:
            if self._batch is None:
                for got in self._iterator:
                    self._batch = got
                    break
            batch = self._batch
            if batch is None:
                return None
            item = Item(
                self._convert(batch), batch.epoch, batch.g, batch.is_padding, self._iterator._core.state()
            )
            self._batch, self.items = None, [item]
        return self.items[0]

    def profile(self) -> dict[str, Any]:
        return self._iterator.profile()

    def quarantine(self) -> list[dict[str, Any]]:
        return self._iterator.quarantine()

    def close(self) -> None:
        self._iterator.close()


class _Ahead:
    """What an AheadStream and its thread share. Items wait in `items`, up to `limit`, and behind them why
    there are no more.

    They wake each other by a lock: the side that waits acquires it, the other side releases it. A call that
    a signal ends leaves no wrong count behind.
    """

    def __init__(self, stream: Stream, limit: int) -> None:
        self.stream = stream
        self.limit = limit
        self.items: collections.deque[Item] = collections.deque()
        self.late: DeadlineError | None = None  # nothing came in time: told once, behind the items
        self.failed: BaseException | None = None
        self.over = self.stopping = False
        self.using = threading.Lock()  # the stream: one thread at a time
        self.news, self.room = threading.Lock(), threading.Lock()

    def run(self) -> None:
        try:
            while not self.stopping:
                try:
                    with self.using:
                        item = self.stream.get()
                        if item is None:
                            break
                        self.stream.items.clear()
                    self.items.append(item)
                except DeadlineError as late:  # not the end: what was waited for may come yet
                    self.late = late.with_traceback(None)
                _wake(self.news)
                while (len(self.items) >= self.limit or self.late) and not self.stopping:
                    self.room.acquire()
        except BaseException as error:
            # one that comes of closing is dropped: its traceback would keep this frame, and so all there is
            # here
            if not self.stopping:
                self.failed = error
        self.over = True
        _wake(self.news)


def _wake(lock: threading.Lock) -> None:
    """Lets the present or next wait for the lock end, once."""
    try:
        lock.release()
    except RuntimeError:  # it is open already
        pass


def _end(shared: _Ahead, thread: threading.Thread, owner: int) -> None:
    """Ends what was started, and waits for that. One that a signal met as it started may not know yet that
    it runs: it ends by itself.
    """
    if owner != os.getpid():
        return
    shared.stopping = True
    shared.stream.close()
    _wake(shared.room)  # it may wait for that
    # which may be the one that collects what is no longer used
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join()


class AheadStream:
    """The same on a thread of its own, up to `ahead` items before they are asked for.

    The thread does not have this object, and ends with it: also with one that a signal left unfinished, when
    the thread may run already.
    """

    def __init__(self, stream: Stream, ahead: int) -> None:
        self._shared = _Ahead(stream, ahead)
        self.items = self._shared.items
        self._owner = os.getpid()
        self._thread = threading.Thread(target=self._shared.run, name="cachew-loader", daemon=True)
        self.close = weakref.finalize(self, _end, self._shared, self._thread, self._owner)
        self._thread.start()

    def _check_owner(self) -> None:
        if self._owner != os.getpid():
            raise UsageError(
                f"this loader runs in process {self._owner}; in a forked child (process "
                f"{os.getpid()}) make a new one from the dataset"
            )

    def get(self) -> Item | None:
        self._check_owner()
        shared = self._shared
        while True:
            _wake(shared.room)  # for what was taken off since
            over, late = shared.over, shared.late
            if self.items:
                return self.items[0]
            if late is not None:
                shared.late = None
                _wake(shared.room)
                raise late
            if over and shared.stopping:
                raise UsageError("the loader was closed while a batch was waited for")
            if shared.failed is not None:
                raise shared.failed
            if over:
                return None
            shared.news.acquire()

    def profile(self) -> dict[str, Any]:
        self._check_owner()
        with self._shared.using:
            return self._shared.stream.profile()

    def quarantine(self) -> list[dict[str, Any]]:
        self._check_owner()
        with self._shared.using:
            return self._shared.stream.quarantine()


class Epoch(Generic[T]):
    """The batches of one epoch of a loader."""

    def __init__(self, loader: Loader[T], turn: int, last_g: int | None) -> None:
        self._loader = loader
        self.turn = turn
        self.last_g = last_g

    def __iter__(self) -> Epoch[T]:
        return self

    def __next__(self) -> T:
        return self._loader._next(self)


@checked_methods
class Loader(Generic[T]):
    """Epochs of converted batches, with a position that can be saved. Each `for batch in loader` is the next
    epoch.
    """

    def __init__(
        self,
        dataset: Dataset,
        convert: Callable[[Batch], Any],
        ahead: int,
        ranks: Callable[[], tuple[int, int]],
        sharding: str | None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        self.dataset = dataset
        self.batch_size = dataset.batch_size
        self._convert = convert
        self._ahead = ahead
        self._ranks = ranks
        self._timeout_s = options.get("timeout_s")
        seconds("timeout_s", self._timeout_s)
        self._sharding = sharding
        self._options = _options(options)
        if sharding is not None and self._options.service is None:
            raise wrong("sharding", sharding, 'a service too: HOST:PORT of its dispatcher, or "local"')
        with_sharding(self._options, sharding)  # that it is one; what it makes of ranks depends on them
        self._stream: Stream | AheadStream | None = None
        self._state: str | None = None  # after the batch that was handed out last, or as loaded
        self._loaded = False  # the stream to be opened goes on from _state
        self._inside = False  # an epoch has begun and is not over
        self._turn = 0  # of the epoch that is iterated now; older ones are over
        self._length: tuple[tuple[int, int], int | None] | None = None
        self.epoch = -1
        """The epoch of the batch that was handed out last, from 0; -1 before the first."""
        self.is_padding = False
        """Whether that batch repeats another one, so that all ranks get equally many."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("a loader can't be pickled or copied: its dataset and its state_dict() can")

    # ---- one epoch ----

    def __iter__(self) -> Epoch[T]:
        if self._inside:  # the last one was left before its end
            self._close_stream()
            self._inside = False
        if self._stream is None:
            self._open(self.epoch + 1)
        self._turn += 1
        return Epoch(self, self._turn, self._last_g())

    def _next(self, epoch: Epoch[T]) -> T:
        if epoch.turn != self._turn or self._stream is None:
            raise StopIteration
        stream = self._stream
        item = stream.get()
        if item is None or (self._inside and item.epoch != self.epoch):
            self._end_epoch()
            raise StopIteration
        value, last = self._hand_over(item.value), item.g == epoch.last_g
        # What a signal raises before this line leaves the item to the next call. From here to what follows
        # `in` of a `for` Python looks for no signals.
        self._state, self.epoch, self.is_padding = item.state, item.epoch, item.is_padding
        self._inside, self._turn = not last, self._turn + last
        del stream.items[0]
        return value

    def _end_epoch(self) -> None:
        self._inside = False
        self._turn += 1

    def _hand_over(self, value: Any) -> T:
        """What the user gets, made on the user's thread."""
        return cast(T, value)

    def _open(self, epoch: int) -> None:
        options = self._first()._replace(first_epoch=epoch, state=self._state if self._loaded else None)
        iterator = DatasetIterator(self.dataset, options, self._timeout_s)
        # asked for later, another iterator would take over this one's job
        if not self._loaded and self.epoch < 0:
            self._state = iterator._core.state()
        stream = Stream(iterator, self._convert)
        self._stream = AheadStream(stream, self._ahead) if self._ahead else stream
        self._loaded = False

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Ends its threads. The next `for batch in loader` begins the next epoch."""
        self._close_stream()

    # ---- length ----

    def _batches(self) -> int | None:
        ranks = self._ranks()
        if self._options.service is not None:  # the data are where the workers are
            return None
        if self._length is None or self._length[0] != ranks:
            self._length = ranks, self.dataset.n_batches(rank=ranks[0], world_size=ranks[1])
        return self._length[1]

    def _batches_here(self) -> int | None:
        """With a service: as this process sees the data, if it does."""
        options = self._first()
        try:
            return self.dataset.n_batches(rank=options.rank, world_size=options.world_size)
        except Error as error:
            raise TypeError(
                f"the number of batches is not known here: the data are where the workers are ({error})"
            ) from None

    def _last_g(self) -> int | None:
        """g of this rank's last batch of an epoch, where it is known beforehand."""
        n = self._batches()
        rank, world_size = self._ranks()
        return None if n is None else rank + (n - 1) * world_size

    def __len__(self) -> int:
        """Batches of an epoch, for this rank. TypeError where they are not known beforehand."""
        n = self._batches() if self._options.service is None else self._batches_here()
        return len(self.dataset) if n is None else n  # the dataset says why not

    def __bool__(self) -> bool:
        return True

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """The position after the batch that was handed out last; not what was prepared ahead. Good for any
        number of ranks and threads.
        """
        return {"cachew": json.loads(self._begins(None) if self._state is None else self._state)}

    def load_state_dict(self, state_dict: State) -> None:
        """Goes on from a state: the next `for batch in loader` gives the rest of its epoch (the next epoch,
        if that is over).
        """
        state = state_dict.get("cachew") if isinstance(state_dict, dict) else None
        if not isinstance(state, dict):
            what = (
                "that of an iterator"
                if isinstance(state_dict, dict) and "cachew_state" in state_dict
                else f"{state_dict!r:.60}"
            )
            raise StateError(f"state is {what}: expected what state_dict() of a loader gave")
        text = state_text(state)
        self._begins(text)  # it fits
        self._close_stream()
        self._end_epoch()
        self._state, self._loaded = text, True
        self.epoch = int(state["epoch"]) - 1 if state.get("g") == 0 else int(state["epoch"])

    def _begins(self, state: str | None) -> str:
        """The state of the first iterator before its first batch: without its threads and processes, for a
        handler of a signal may ask again and again.
        """
        options = self._first()._replace(state=state)
        if options.service is None:
            return self.dataset._runnable().state(options)
        with DatasetIterator(self.dataset, options, None) as iterator:  # the data are where the workers are
            return iterator._core.state()

    def _first(self) -> Options:
        """Options of the first iterator, for the ranks that there are now."""
        rank, world_size = self._ranks()
        check_ranks(rank, world_size)
        return with_sharding(self._options._replace(rank=rank, world_size=world_size), self._sharding)

    # ---- what it does ----

    def profile(self) -> dict[str, Any]:
        """Where the time went so far, as `DatasetIterator.profile`, since the `for` that began the present
        iterator: the first one, or that after one that was left early. It waits for the batch that is
        computed at the moment."""
        return self._running().profile()

    def quarantine(self) -> list[dict[str, Any]]:
        """The records that could not be computed (the first 10,000), with reasons, as
        `DatasetIterator.quarantine`, since then.
        """
        return self._running().quarantine()

    def _running(self) -> Stream | AheadStream:
        if self._stream is None:
            raise UsageError("the loader runs nothing at the moment: expected a `for` over it before")
        return self._stream


def _options(given: LoaderOptions) -> Options:
    options = make_options(
        seed=given.get("seed"),
        epochs=math.inf,
        threads=given.get("threads"),
        memory=given.get("memory"),
        index_dir=given.get("index_dir"),
    )
    options = with_cache(options, given.get("cache_dir"), given.get("cache"), given.get("cache_bytes"))
    service = cast(
        ServiceOptions,
        {name: value for name, value in given.items() if name in ServiceOptions.__annotations__},
    )
    return with_service(options, given.get("service"), **service)
