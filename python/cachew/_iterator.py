"""Iterators: a dataset that runs."""

from __future__ import annotations

import json
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from cachew import _core
from cachew._batch import Batch
from cachew._calls import checked_methods
from cachew._errors import StateError, UsageError
from cachew._options import Options, State, seconds, state_text

if TYPE_CHECKING:
    from cachew._debugger import Debugger
    from cachew.dataset import Dataset

debugger: Debugger | None = None
"""What runs functions in this process, while `cachew.debug` is in use."""


def with_address(options: Options) -> Options:
    """The options with the address of the service "local", which is started if need be."""
    if options.service != "local":
        return options
    from cachew._service import local_address  # only here: its imports take time

    return options._replace(service=local_address())


@checked_methods
class DatasetIterator:
    """The batches of a dataset, one after the other. Threads of the iterator compute them in advance.
    `Dataset.iterator` and `Dataset.distribute` make iterators.

    An iterator is also a context manager: at the end of `with`, its threads have ended. Batches that the
    program holds stay valid. Only one thread at a time may use an iterator, except that any thread may call
    `close` at any time.
    """

    def __init__(self, dataset: Dataset, options: Options, timeout_s: float | None) -> None:
        self._timeout_s = seconds("timeout_s", timeout_s)
        self._dataset = dataset  # host processes that start later may map the memory of its functions
        if debugger is not None:
            options = debugger.options(options)
        self._pipeline = dataset._runnable(options.service is not None)
        self._options = options
        self._batched = dataset.batch_size is not None
        self._has_functions = any("function" in node for node in dataset._nodes)
        self._core = self._open(options)

    def _open(self, options: Options) -> _core.Iterator:
        options = with_address(options)
        if debugger is not None:
            return debugger.call(lambda: _core.open(self._pipeline, options))
        return _core.open(self._pipeline, options)

    def _wait(self, timeout_s: float) -> _core.Slab | None:
        """The slab of the next batch, the same until it is accepted; None at the end."""
        return self._core.next(timeout_s) if debugger is None else debugger.next(self._core, timeout_s)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an iterator can't be pickled or copied: its dataset and its state_dict() can")

    def __repr__(self) -> str:
        try:
            state = json.loads(self._core.state())
            where = f"epoch {state['epoch']}, next batch {state['g']}"
        except UsageError as problem:
            where = "closed" if "closed" in str(problem) else "in use by another thread or process"
        return f"<DatasetIterator of {self._dataset._short()}: {where}>"

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Batch:
        core = self._core
        slab = self._wait(self._timeout_s)
        if slab is None:
            self._warn()
            raise StopIteration
        batch = Batch._over(slab, self._batched)
        # Setting `accepted` moves the position past the batch. If a signal handler raises before this line,
        # the next call gives the same batch. After this line, until a `for` loop has assigned the batch to
        # its variable, Python runs no signal handlers, so an exception of a handler can't lose the batch.
        core.accepted = slab
        return batch

    def next(self, timeout_s: float | None = None) -> Batch | None:
        """The next batch, or None at the end. Raises `DeadlineError` if no batch comes within timeout_s
        seconds (None: no limit); the next call then waits for the same batch.
        """
        core = self._core
        slab = self._wait(seconds("timeout_s", timeout_s))
        if slab is None:
            return None
        batch = Batch._over(slab, self._batched)
        core.accepted = slab  # see __next__
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The position after the batch that was delivered last: a dict of plain values, at most 1 KB. A run
        that resumes from it may have another number of threads and ranks.
        """
        state: dict[str, Any] = json.loads(self._core.state())
        return state

    def load_state_dict(self, state: State | str) -> None:
        """Moves to the position of a state of the same pipeline, data and seed. Any other state raises
        `StateError` and changes nothing.
        """
        text = state_text(state)
        if text is None:
            raise StateError("state is None: expected what state_dict() gave, or its JSON")
        fresh = self._open(self._options._replace(state=text))
        self._core.close()
        self._core = fresh

    def profile(self) -> dict[str, Any]:
        """Where the time went so far: each operator's time in seconds and as a share, the bottleneck, bytes
        read, largest memory use, and the number of batches that the program holds.
        """
        profile: dict[str, Any] = json.loads(self._core.profile())
        return profile

    def quarantine(self) -> list[dict[str, Any]]:
        """The records that were skipped or replaced, with reasons, and the records for which a function gave
        two different results: at most 10,000 records, of the batches that were delivered so far.
        """
        # [2]: the records; before them come the numbers of skipped and of replaced records
        records: list[dict[str, Any]] = json.loads(self._core.quarantine()[2])
        return records

    def close(self) -> None:
        """Ends the iterator and its threads. A thread that waits for a batch gets a `UsageError`. Closing
        twice is allowed.
        """
        self._core.close()

    def _warn(self) -> None:
        """At the end of the run: warns about each function that gave two different results for one record."""
        seen = set()
        for entry in self.quarantine() if self._has_functions else ():
            if entry["action"] == "differs" and entry["reason"] not in seen:
                seen.add(entry["reason"])
                warnings.warn(
                    f"{entry['operator']}: {entry['reason']} (record {entry['record']})",
                    RuntimeWarning,
                    stacklevel=3,
                )

    def __enter__(self) -> DatasetIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
