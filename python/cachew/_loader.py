"""The common part of the loaders for torch and JAX: epochs, states, and prefetching.

A training loop iterates over a loader once per epoch: each `for batch in loader` is the next epoch. All
epochs come from one iterator without end, so that the first batches of the next epoch are computed while the
program uses the last batches of this epoch.
"""

from __future__ import annotations

import collections
import json
import math
import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar, cast

from cachew import _iterator
from cachew._batch import Batch
from cachew._calls import checked_methods
from cachew._errors import DeadlineError, Error, StateError, UsageError
from cachew._iterator import DatasetIterator
from cachew._options import (
    ENDLESS,
    LoaderOptions,
    Options,
    ServiceOptions,
    State,
    check_ranks,
    integer,
    make_options,
    seconds,
    state_text,
    with_cache,
    with_service,
    with_sharding,
    wrong,
)
from cachew.dataset import Dataset

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")


class Item(NamedTuple):
    """A converted batch that waits for its delivery."""

    value: Any
    """What the user gets, before `Loader._hand_over`."""
    epoch: int
    g: int
    """The batch's number in the epoch, over all ranks."""
    is_padding: bool
    state: str
    """The state of the iterator after this batch, as JSON."""


class Stream:
    """Items of an iterator, made on request.

    `get` leaves the item in `items`; the caller removes it in the step that delivers it to the user. If a
    signal handler raises before that step, the item is still there for the next call. `get` relies on Python
    not running signal handlers between two plain assignments.
    """

    def __init__(self, iterator: DatasetIterator, convert: Callable[[Batch], Any]) -> None:
        self.items: list[Item] = []
        self._iterator = iterator
        self._convert = convert
        self._batch: Batch | None = None  # of the item that is being made

    def get(self) -> Item | None:
        """The next item; the same one until the caller removes it from `items`. None at the end."""
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
    """The data that an AheadStream and its thread share. At most `limit` items wait in `items`. When no
    item is left, `late`, `failed` and `over`, in this order, say why.

    Each side wakes the other one with a lock used as an event: the waiting side acquires it, the other side
    releases it. If a signal handler ends a wait by raising, nothing shared has changed.
    """

    def __init__(self, stream: Stream, limit: int) -> None:
        self.stream = stream
        self.limit = limit
        self.items: collections.deque[Item] = collections.deque()
        self.late: DeadlineError | None = None  # no batch came in time; raised once, after the items
        self.failed: BaseException | None = None  # the exception that ended the thread's work
        self.over = False  # the thread has ended
        self.stopping = False  # the thread is to end
        self.using = threading.Lock()  # held while a thread uses `stream`
        # the user's thread waits for `news` (an item or an end), the prefetching thread for `room` in `items`
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
                except DeadlineError as late:  # not the end: the batch may still come
                    self.late = late.with_traceback(None)
                _wake(self.news)
                while (len(self.items) >= self.limit or self.late) and not self.stopping:
                    self.room.acquire()
        except BaseException as error:
            # An exception that closing causes is dropped: its traceback would keep this frame, and with it
            # the stream, alive.
            if not self.stopping:
                self.failed = error
        self.over = True
        _wake(self.news)


def _wake(lock: threading.Lock) -> None:
    """Ends the wait of the thread that waits for the lock. If no thread waits, the next wait ends at once."""
    try:
        lock.release()
    except RuntimeError:  # already released: the next wait ends at once
        pass


def _end(shared: _Ahead, thread: threading.Thread, owner: int) -> None:
    """Ends the prefetching thread and waits for its end. If a signal handler raised while the thread was
    being started, is_alive() may be false although the thread runs. It is then not waited for, but ends by
    itself, because `stopping` is set.
    """
    if owner != os.getpid():
        return
    shared.stopping = True
    shared.stream.close()
    _wake(shared.room)  # the thread may wait for room
    # the garbage collector may call this function on the prefetching thread itself
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join()


class AheadStream:
    """A Stream whose items are made on a separate thread, up to `ahead` items before they are requested.

    The thread holds no reference to this object, and ends when this object is freed. That also works if a
    signal handler raises in the constructor after the thread was started.
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
            _wake(shared.room)  # the caller may have removed an item since the last call
            over, late = shared.over, shared.late
            if self.items:
                return self.items[0]
            if late is not None:
                shared.late = None
                _wake(shared.room)
                raise late
            if over and shared.stopping:
                raise UsageError("the loader was closed while this thread waited for a batch")
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
    """The batches of one epoch of a loader.

    turn: the number of the `for` loop over the loader; an Epoch of an earlier loop gives no more batches.
    last_g: g of this rank's last batch of the epoch; None if it is not known beforehand.
    """

    def __init__(self, loader: Loader[T], turn: int, last_g: int | None) -> None:
        self._loader = loader
        self.turn = turn
        self.last_g = last_g

    def __repr__(self) -> str:
        return f"<one epoch of {self._loader!r}>"

    def __iter__(self) -> Epoch[T]:
        return self

    def __next__(self) -> T:
        return self._loader._next(self)


@checked_methods
class Loader(Generic[T]):
    """Converted batches, one epoch per `for batch in loader`, and the position as a state. At the end of a
    `with` block the loader's threads have ended.

    convert: converts a batch to the value that is prefetched. ahead: number of prefetched items; 0: no
    thread. ranks: gives (rank, world_size) when the loader runs. sharding: the keyword of
    `Dataset.distribute`.
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
        self._dataset = dataset
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
        with_sharding(self._options, sharding)  # only checks it; _first applies it, when the ranks are known
        self._stream: Stream | AheadStream | None = None
        self._state: str | None = None  # JSON: after the batch that was delivered last, or as loaded
        self._loaded = False  # _state was loaded, and no batch was delivered since
        self._wanted: int | None = None  # the epoch of the next loop, set during a loop
        self._inside = False  # an epoch has begun and is not over
        self._turn = 0  # number of the present `for` loop; see Epoch
        self._length: tuple[tuple[int, int], int | None] | None = None  # (ranks, batches of an epoch), kept
        self.epoch = -1
        """The epoch of the batch that was delivered last, from 0; -1 before the first batch.
        load_state_dict() sets it to the epoch of the state."""
        self.is_padding = False
        """Whether that batch repeats another one, so that all ranks get the same number of batches."""

    def __repr__(self) -> str:
        if self._inside and self._state is not None:
            where = f"epoch {self.epoch}, next batch {json.loads(self._state)['g']}"
        else:
            where = f"before epoch {self.epoch + 1}"
        return f"<{type(self).__name__} of {self._dataset._short()}: {where}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a loader can't be pickled or copied: its dataset and its state_dict() can")

    # ---- one epoch ----

    def __iter__(self) -> Epoch[T]:
        if self._inside:  # the last `for` loop was left before the end of its epoch
            self._close_stream()
            self._inside = False
        if self._wanted is not None:
            self.set_epoch(self._wanted)
        if self._stream is None:
            self._open(self.epoch + 1)
        self._turn += 1
        return Epoch(self, self._turn, self._last_g())

    def _next(self, epoch: Epoch[T]) -> T:
        if epoch.turn != self._turn:
            raise StopIteration
        if self._stream is None:  # the loop had delivered nothing yet when the position was changed
            self._open(self.epoch + 1)
        stream = cast("Stream | AheadStream", self._stream)
        item = stream.get()
        if item is None or (self._inside and item.epoch != self.epoch):
            self._loaded = False
            self._end_epoch()
            raise StopIteration
        value, last = self._hand_over(item.value), item.g == epoch.last_g
        # If a signal handler raises before this line, the next call gives the item again. From here until a
        # `for` loop has assigned the batch to its variable, CPython runs no signal handlers.
        self._state, self.epoch, self.is_padding = item.state, item.epoch, item.is_padding
        self._inside, self._turn, self._loaded = not last, self._turn + last, False
        del stream.items[0]
        return value

    def _end_epoch(self) -> None:
        self._inside = False
        self._turn += 1

    def _hand_over(self, value: Any) -> T:
        """The last step of the conversion, on the user's thread."""
        return cast(T, value)

    def _open(self, epoch: int) -> None:
        options = self._first()._replace(first_epoch=epoch, state=self._state if self._loaded else None)
        iterator = DatasetIterator(self._dataset, options, self._timeout_s)
        # The state is taken now. Later, state_dict() would have to open a second iterator, and in a service
        # that would take over the job of this one.
        if self._state is None:
            self._state = iterator._core.state()
        stream = Stream(iterator, self._convert)
        # the debugger runs functions on the thread that takes the batches
        ahead = 0 if _iterator.debugger is not None else self._ahead
        self._stream = AheadStream(stream, ahead) if ahead else stream

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Ends the loader's threads. The next `for batch in loader` begins the next epoch."""
        self._turn += 1
        self._close_stream()

    # ---- length ----

    def _batches(self) -> int | None:
        ranks = self._ranks()
        if self._options.service is not None:  # this process may not have the data, which the workers read
            return None
        if self._length is None or self._length[0] != ranks:
            self._length = ranks, self._dataset.n_batches(rank=ranks[0], world_size=ranks[1])
        return self._length[1]

    def _batches_here(self) -> int | None:
        """With a service: the number of batches, if this process can read the data too; else TypeError."""
        options = self._first()
        try:
            return self._dataset.n_batches(rank=options.rank, world_size=options.world_size)
        except Error as error:
            raise TypeError(
                f"the number of batches is not known here: only the workers can read the data ({error})"
            ) from None

    def _last_g(self) -> int | None:
        """g of this rank's last batch of an epoch; None if it is not known beforehand."""
        n = self._batches()
        rank, world_size = self._ranks()
        return None if n is None else rank + (n - 1) * world_size

    def __len__(self) -> int:
        """This rank's number of batches per epoch. Raises TypeError if that is not known beforehand."""
        n = self._batches() if self._options.service is None else self._batches_here()
        return len(self._dataset) if n is None else n  # len() of the dataset raises the TypeError

    def __bool__(self) -> bool:
        return True

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """The position after the batch that was delivered last; prefetched batches do not count. A run that
        resumes from this state may have another number of ranks and threads.
        """
        return {"cachew": json.loads(self._begins(None) if self._state is None else self._state)}

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch with which the next `for` loop begins, or the present one, if it has not delivered a
        batch yet. If that loop begins with this epoch anyway, also in the middle of the epoch because of a
        loaded state, nothing changes.
        """
        epoch = integer("epoch", epoch, 0, ENDLESS - 1)
        self._wanted = epoch if self._inside else None
        if not self._inside and epoch != self._next_epoch():
            self._move(None, epoch - 1)

    def _next_epoch(self) -> int:
        """The epoch with which the next `for` loop begins."""
        return self.epoch if self._resumes() else self.epoch + 1

    def _resumes(self) -> bool:
        """Whether the next `for` loop begins in the middle of an epoch, with the loaded state."""
        return self._loaded and self._state is not None and json.loads(self._state)["g"] > 0

    def _move(self, state: str | None, epoch: int) -> None:
        """Moves to the position of a state, or without one to the epoch after `epoch`."""
        self._close_stream()
        if self._inside:
            self._end_epoch()
        self._wanted = None
        self._state, self._loaded, self.epoch = state, state is not None, epoch

    def _skip(self, n: int) -> int:
        """Makes the next `for` loop begin with this rank's batch n of its epoch, where the position of that
        batch is known beforehand. A loaded state within the epoch stays as it is: it is the position after
        the batches that were delivered. Returns how many batches the caller must take and drop.
        """
        batches = self._batches()
        epoch = self._next_epoch() if self._wanted is None else self._wanted
        if n == 0 or self._resumes():
            return 0
        if batches is None or n >= batches:
            return n
        self._move(None, epoch - 1)
        state = json.loads(self._begins(None))
        g = n * self._ranks()[1]
        # docs/semantics.md, section 8: in a counted pipeline, batch g begins at position g * batch size
        text = json.dumps({**state, "g": g, "position": g * (self.batch_size or 1)})
        try:
            self._begins(text)
        except StateError:  # the pipeline counts batches, but not elements
            return n
        self._move(text, epoch)
        return 0

    def load_state_dict(self, state_dict: State) -> None:
        """Moves to the position of a state: the next `for batch in loader` gives the rest of the state's
        epoch, or the next epoch, if that epoch is over.
        """
        state = state_of(state_dict)
        text = state_text(state)
        self._begins(text)  # raises StateError if the state does not fit
        self._move(text, int(state["epoch"]) - 1 if state.get("g") == 0 else int(state["epoch"]))

    def _begins(self, state: str | None) -> str:
        """The state of a new iterator before its first batch. Without a service it is found without starting
        threads or processes, because a signal handler may call state_dict() often.
        """
        options = self._first()._replace(state=state, first_epoch=self.epoch + 1)
        if options.service is None:
            return self._dataset._runnable().state(options)
        with DatasetIterator(self._dataset, options, None) as iterator:  # only the workers may have the data
            return iterator._core.state()

    def _first(self) -> Options:
        """Options of a new iterator, with the present rank and world_size."""
        rank, world_size = self._ranks()
        check_ranks(rank, world_size)
        return with_sharding(self._options._replace(rank=rank, world_size=world_size), self._sharding)

    # ---- what it does ----

    def profile(self) -> dict[str, Any]:
        """Where the time went so far: `DatasetIterator.profile` of the loader's present iterator. A loader
        has one iterator for all epochs, but a new one after a `for` loop was left early. If a batch is being
        computed, the call waits for it.
        """
        return self._running().profile()

    def quarantine(self) -> list[dict[str, Any]]:
        """`DatasetIterator.quarantine` of the loader's present iterator (see `profile`): at most 10,000
        records that were skipped or replaced, with reasons.
        """
        return self._running().quarantine()

    def _running(self) -> Stream | AheadStream:
        if self._stream is None:
            raise UsageError("the loader has no running iterator: expected a `for` loop over it before")
        return self._stream


def state_of(state_dict: State) -> dict[str, Any]:
    """The state of the iterator in that of a loader."""
    state = state_dict.get("cachew") if isinstance(state_dict, dict) else None
    if not isinstance(state, dict):
        what = (
            "that of an iterator"
            if isinstance(state_dict, dict) and "cachew_state" in state_dict
            else f"{state_dict!r:.60}"
        )
        raise StateError(f"state is {what}: expected what state_dict() of a loader gave")
    return state


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
