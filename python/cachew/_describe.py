"""Statistics of the components of a dataset, from a sample of its elements: `Dataset.describe`."""

from __future__ import annotations

import collections
import contextlib
import math
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cachew._errors import PipelineError
from cachew._operators import TABLE
from cachew._options import integer
from cachew._show import Table, elements, short, text_of

if TYPE_CHECKING:
    from cachew.dataset import Dataset, Field

T = TypeVar("T")

MOST_VALUES = 10_000
"""Different values of a component that are counted; more are "many"."""
TOP = 5
"""Number of most frequent values in a description."""
LONGEST_VALUE = 1 << 10
"""The longest byte string, in bytes, that counts as a value."""
PROGRESS_AFTER_S = 2.0


class Description:
    """What `Dataset.describe` returns: its text and its HTML are a table, `to_dict()` has all numbers."""

    def __init__(
        self, components: dict[str, dict[str, Any]], n: int, of: int | None, at_random: bool
    ) -> None:
        self._components = components
        self._n = n
        self._of = of
        self._at_random = at_random

    def to_dict(self) -> dict[str, Any]:
        """The statistics as plain values:

        n: number of elements in the sample; n_elements: of an epoch, None if it is not known beforehand;
        at_random: False: the sample is the first elements

        components: for each name a dict with these keys, None where one does not apply:

            dtype; shapes: [[shape, number of elements], ...], most frequent first; bytes: of all values

            length: {"min", "mean", "max"} of bytes, or of a first dimension that varies

            missing: share of values that are NaN, or of byte strings that are empty

            min, max, mean, std: of all numbers that are not NaN

            distinct: number of different values of scalars and byte strings, None if there are more than
            10,000; top: the most frequent ones, [[value, number of elements], ...]
        """
        return {
            "n": self._n,
            "n_elements": self._of,
            "at_random": self._at_random,
            "components": self._components,
        }

    def _title(self) -> str:
        of = "" if self._of is None else f" of {self._of}"
        return f"{'a sample of' if self._at_random else 'the first'} {self._n}{of} elements"

    def _table(self) -> Table:
        rows = [[(text, None) for text in (name, *_row(facts))] for name, facts in self._components.items()]
        return Table(
            (
                "component",
                "dtype",
                "shapes",
                "min",
                "max",
                "mean",
                "std",
                "missing",
                "distinct",
                "most frequent",
            ),
            rows,
        )

    def __repr__(self) -> str:
        return f"{self._title()}\n{self._table()!r}"

    def _repr_html_(self) -> str:
        return f"<p>{self._title()}</p>{self._table()._repr_html_()}"


def _row(facts: dict[str, Any]) -> Iterator[str]:
    yield facts["dtype"]
    length = facts["length"]
    if length is not None:
        yield f"length {length['min']} .. {length['max']}, mean {length['mean']:.4g}"
    else:
        shapes = [str(list(shape)) for shape, _ in facts["shapes"]]
        yield ", ".join(shapes[:2]) + (f", {len(shapes) - 2} more" if len(shapes) > 2 else "")
    for name in ("min", "max", "mean", "std"):
        yield "" if facts[name] is None else f"{facts[name]:.6g}"
    yield f"{facts['missing']:.1%}"
    yield "" if facts["distinct"] is None else str(facts["distinct"])
    # where every value is different, none is frequent
    yield (
        short(", ".join(f"{short(str(v))} ({k})" for v, k in facts["top"]))
        if any(k > 1 for _, k in facts["top"])
        else ""
    )


class Numbers:
    """Minimum, maximum, mean and standard deviation of numbers that come in several arrays."""

    def __init__(self) -> None:
        self.n = self.n_nan = 0
        self.mean = self.squares = 0.0  # squares: the sum of squared differences from the mean
        self.min: Any = None
        self.max: Any = None

    def add(self, array: np.ndarray[Any, Any]) -> None:
        values = array.astype(np.float64).reshape(-1)
        present = values[~np.isnan(values)]
        self.n_nan += values.size - present.size
        if not present.size:
            return
        # the extreme values of integers are exact, those of floats in the array's own precision
        low, high = (
            (array.min(), array.max()) if array.dtype.kind in "iub" else (present.min(), present.max())
        )
        self.min = low.item() if self.min is None else min(self.min, low.item())
        self.max = high.item() if self.max is None else max(self.max, high.item())
        with np.errstate(invalid="ignore"):  # infinite values make the mean infinite or NaN
            mean = float(present.mean())
            squares = float(((present - mean) ** 2).sum())
            n = self.n + present.size
            step = mean - self.mean
            self.squares += squares + step * step * self.n * present.size / n
            self.mean += step * present.size / n
            self.n = n


class Component:
    """Collects the statistics of one component, element by element."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self._shapes: collections.Counter[tuple[int, ...]] = collections.Counter()
        self._numbers = Numbers()
        self._values: collections.Counter[Any] | None = collections.Counter()
        self._lengths: list[int] = []
        self._n = self._n_empty = self._bytes = 0
        shape = field.shape
        self._varies = field.dtype == "bytes" or shape is None or (len(shape) > 0 and shape[0] is None)
        if field.dtype != "bytes" and (shape != () or field.dtype not in _DISCRETE):
            self._values = None

    def add(self, value: Any) -> None:
        self._n += 1
        if self._field.dtype == "bytes":
            self._bytes += len(value)
            self._lengths.append(len(value))
            self._n_empty += len(value) == 0
            self._count(bytes(value) if len(value) <= LONGEST_VALUE else None)
            return
        array = np.asarray(value)
        self._bytes += array.nbytes
        self._shapes[array.shape] += 1
        if self._varies:
            self._lengths.append(array.shape[0] if array.ndim else 1)
        self._numbers.add(array)
        if self._values is not None:
            self._count(array.item())

    def _count(self, value: Any) -> None:
        """None: a value that is not counted, after which no number of different values is known."""
        if self._values is None:
            return
        self._values[value] += 1
        if value is None or len(self._values) > MOST_VALUES:
            self._values = None

    def facts(self) -> dict[str, Any]:
        numbers, lengths, values = self._numbers, self._lengths, self._values
        total = numbers.n + numbers.n_nan
        return {
            "dtype": self._field.dtype,
            "shapes": [[list(shape), n] for shape, n in self._shapes.most_common()],
            "bytes": self._bytes,
            "length": {"min": min(lengths), "mean": sum(lengths) / len(lengths), "max": max(lengths)}
            if lengths
            else None,
            "missing": self._n_empty / self._n
            if self._field.dtype == "bytes"
            else numbers.n_nan / max(total, 1),
            "min": numbers.min,
            "max": numbers.max,
            "mean": numbers.mean if numbers.n else None,
            "std": math.sqrt(numbers.squares / numbers.n) if numbers.n else None,
            "distinct": None if values is None else len(values),
            "top": [] if values is None else [[_plain(v), n] for v, n in values.most_common(TOP)],
        }


def _plain(value: Any) -> Any:
    return text_of(value) if isinstance(value, bytes) else value


_DISCRETE = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")


def describe(ds: Dataset, n: int, seed: int) -> Description:
    n = integer("n", n, 1, 2**40)
    seed = integer("seed", seed, 0, 2**62)
    sample, at_random = _sample(ds)
    collected = {name: Component(field) for name, field in ds.schema.items()}
    found = 0
    with sample.iterator(seed=seed, epochs=1) as iterator:
        for element in _with_progress(elements(sample, iterator), n):
            for name, component in collected.items():
                component.add(element[name])
            found += 1
            if found == n:
                break
    if not found:
        raise PipelineError("describe: the dataset has no element: expected at least one")
    of = ds.n_elements
    facts = {name: component.facts() for name, component in collected.items()}
    return Description(facts, found, of, at_random and of != found)


def _sample(ds: Dataset) -> tuple[Dataset, bool]:
    """The dataset with a `shuffle` before its batcher, and True; where no shuffle can be there, the dataset
    itself, and False.
    """
    kinds = [TABLE[node["op"]].kind for node in ds._nodes]
    at = kinds.index("batcher") if "batcher" in kinds else len(kinds)
    try:
        mixed = ds._make([*ds._nodes[:at], {"op": "shuffle"}, *ds._nodes[at:]], ds._head, ds._base_dir)
        mixed.n_batches()  # some reasons are found only when the sources are open
    except PipelineError:
        return ds, False
    return mixed, True


def _with_progress(items: Iterable[T], n: int) -> Iterator[T]:
    """The items, at most n, and a line on a terminal that shows how many there were, if they take long."""
    if not sys.stderr.isatty():
        yield from items
        return
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        yield from _plain_progress(items, n)
    else:
        with contextlib.closing(tqdm(items, desc="describe", total=n, delay=PROGRESS_AFTER_S)) as shown:
            yield from shown


def _plain_progress(items: Iterable[T], n: int) -> Iterator[T]:
    shown = False
    next_s = time.monotonic() + PROGRESS_AFTER_S
    try:
        for i, item in enumerate(items):
            if time.monotonic() >= next_s:
                print(f"\rdescribe: {i} of {n} elements", end="", file=sys.stderr, flush=True)
                shown, next_s = True, time.monotonic() + 0.5
            yield item
    finally:
        if shown:
            print(file=sys.stderr)
