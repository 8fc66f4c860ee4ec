"""Iterators: a dataset that runs."""

from __future__ import annotations

import json
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from cachew import _core
from cachew._batch import Batch
from cachew._calls import checked_methods
from cachew._errors import StateError
from cachew._options import Options, State, seconds, state_text

if TYPE_CHECKING:
    from cachew.dataset import Dataset


@checked_methods
class DatasetIterator:
    """The batches of a dataset, one after the other, computed ahead by threads of its own.
    `Dataset.iterator` makes it.

    It is also a context manager: at the end of `with` its threads are gone. Batches that are held stay
    valid. One thread may use it at a time.
    """

    def __init__(self, dataset: Dataset, options: Options, timeout_s: float | None) -> None:
        self._timeout_s = seconds("timeout_s", timeout_s)
        self._pipeline = dataset._runnable()
        self._options = options
        self._batched = dataset.batch_size is not None
        self._has_functions = any("function" in node for node in dataset._nodes)
        self._core = self._open(options)

    def _open(self, options: Options) -> _core.Iterator:
        if options.service == "local":
            from cachew._service import local_address  # and what that takes, where it is wanted

            options = options._replace(service=local_address())
        return _core.open(self._pipeline, options)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an iterator can't be pickled or copied: its dataset and its state_dict() can")

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Batch:
        core = self._core
        slab = core.next(self._timeout_s)
        if slab is None:
            self._warn()
            raise StopIteration
        batch = Batch._over(slab, self._batched)
        # What a signal raises before this line leaves the batch to the next call. Between it and what follows
        # `in` of a `for` Python looks for no signals.
        core.accepted = slab
        return batch

    def next(self, timeout_s: float | None = None) -> Batch | None:
        """The next batch, or None at the end. `DeadlineError` if none comes within timeout_s; nothing is
        lost then.
        """
        core = self._core
        slab = core.next(seconds("timeout_s", timeout_s))
        if slab is None:
            return None
        batch = Batch._over(slab, self._batched)
        core.accepted = slab  # see __next__
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The position after the batch that was handed out last: at most 1 KB, plain values. Any number of
        threads and ranks may go on from it.
        """
        state: dict[str, Any] = json.loads(self._core.state())
        return state

    def load_state_dict(self, state: State | str) -> None:
        """Goes on from a state of the same pipeline, data and seed, as if nothing had come between. A state
        that does not fit changes nothing.
        """
        text = state_text(state)
        if text is None:
            raise StateError("state is None: expected what state_dict() gave, or its JSON")
        fresh = self._open(self._options._replace(state=text))
        self._core.close()
        self._core = fresh

    def profile(self) -> dict[str, Any]:
        """Where the time went so far: seconds and share of each operator, the bottleneck, bytes read, peak
        of memory, batches held.
        """
        profile: dict[str, Any] = json.loads(self._core.profile())
        return profile

    def quarantine(self) -> list[dict[str, Any]]:
        """The records of batches handed out so far that could not be computed (the first 10,000), with
        reasons.
        """
        records: list[dict[str, Any]] = json.loads(self._core.quarantine()[2])
        return records

    def close(self) -> None:
        """Ends it and its threads, now. From another thread it ends a wait. Closing twice is fine."""
        self._core.close()

    def _warn(self) -> None:
        """At the end: about each function that gave two results for one record."""
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
