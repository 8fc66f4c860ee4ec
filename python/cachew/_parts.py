"""Parts of a dataset: one batch at a place, slices, random splits and shards. A part is a dataset made with
the operators `shuffle`, `skip` and `take`, so no data are read or copied for it.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cachew._batch import Batch
from cachew._chain import Node
from cachew._errors import PipelineError, StateError
from cachew._operators import TABLE
from cachew._options import ENDLESS, integer, make_options, wrong

if TYPE_CHECKING:
    from cachew.dataset import Dataset


def unknown_since(nodes: Iterable[Node], batches: bool) -> str | None:
    """The operator after which the number of elements (batches: of batches) is not known before the run.
    None: there is none.
    """
    for node in nodes:
        inside = [unknown_since(chain, batches) for chain in node.get("inputs", ())]
        found = next((name for name in inside if name), None)
        name: str = node["op"]
        kind = TABLE[name].kind if name in TABLE else ""
        if kind in ("filter", "flat_map") or name == "iterable" or (batches and name == "bucket_by_length"):
            return "filter" if name == "filter_function" else name
        if found:
            return found
    return None


def start_of(ds: Dataset, what: str, expected: str) -> tuple[int, dict[str, Any]]:
    """The number of batches of an epoch (ENDLESS if it has no end), and the state before the first batch.
    Opens the sources. TypeError: the number is not known beforehand; what, expected: parts of its message.
    """
    n = ds._pipeline.batches(make_options())
    if n is None:
        name = unknown_since(ds._nodes, True)
        raise TypeError(f"{what} is not known beforehand, because of {name}: expected {expected}")
    return (ENDLESS if n < 0 else n), json.loads(ds._pipeline.state(make_options()))


def index_of(key: Any) -> int:
    try:
        return operator.index(key)
    except TypeError:
        advice = "; ds.select(name) keeps one component" if isinstance(key, str) else ""
        raise TypeError(
            f"the index {key!r:.60} of a dataset is a {type(key).__name__}: expected an integer or a slice"
            f"{advice}"
        ) from None


def place_of(key: Any, n: int) -> int:
    """The place that an index means, from 0. n: number of batches of an epoch, or ENDLESS."""
    i = index_of(key)
    place = i + n if i < 0 and n != ENDLESS else i
    if not 0 <= place < n:
        length = "has no end" if n == ENDLESS else f"has {n}"
        raise IndexError(f"ds[{i}] does not exist: an epoch of this dataset {length}")
    return place


def batch_at(ds: Dataset, start: dict[str, Any], place: int, epoch: int) -> Batch:
    """The batch at a place of an epoch: the first one of a run that resumes there."""
    state = {**start, "epoch": epoch, "g": place, "position": place * (ds.batch_size or 1)}
    threads = 1 if ds.batch_size is None else None  # one element is computed on one thread
    with ds.iterator(state=state, epochs=epoch + 1, threads=threads) as iterator:
        return next(iterator)


def item(ds: Dataset, key: Any) -> Batch:
    """ds[key], for one place. The start is kept, because finding it opens the sources."""
    if ds._start is not None:
        try:
            return batch_at(ds, ds._start[1], place_of(key, ds._start[0]), ds.epoch)
        except StateError:  # the data have changed since
            pass
    start = start_of(ds, f"ds[{key!r:.60}]", "a slice, which computes all before it, as in ds[5:6].peek()")
    object.__setattr__(ds, "_start", start)
    return batch_at(ds, start[1], place_of(key, start[0]), ds.epoch)


def cut(ds: Dataset, key: slice) -> Dataset:
    """ds[key], for a slice."""
    if key.step is not None and index_of(key.step) != 1:
        raise ValueError(f"a slice of a dataset has step {key.step}: expected 1")
    start = 0 if key.start is None else index_of(key.start)
    stop = None if key.stop is None else index_of(key.stop)
    if start < 0 or (stop is not None and stop < 0):
        n = start_of(ds, "the end of the dataset, from which the slice counts,", "bounds >= 0")[0]
        if n == ENDLESS:
            raise IndexError(
                "a slice of a dataset without end can't count from the end: expected bounds >= 0"
            )
        start, stop, _ = slice(start, stop).indices(n)
    if start > 0:
        ds = ds.skip(start)
    return ds if stop is None else ds.take(max(stop - start, 0))


def count(ds: Dataset, what: str) -> int:
    """The number of batches of an epoch; without a batcher, of elements. PipelineError: it is not known, or
    the epoch has no end.
    """
    n = ds._pipeline.batches(make_options())
    if n is None:
        name = unknown_since(ds._nodes, True)
        raise PipelineError(
            f"{what}: the number of elements is not known after {name}: call {what} before it"
        )
    if n < 0:
        raise PipelineError(f"{what}: the number of elements is infinite: call {what} before repeat")
    return n


def random_split(ds: Dataset, parts: Sequence[float], seed: int) -> list[Dataset]:
    seed = integer("seed", seed, 0, 2**62)
    if ds.batch_size is not None:
        raise PipelineError("random_split: comes after a batcher: call random_split before it")
    sizes = list(parts)
    if not sizes or not all(isinstance(p, (int, float, np.integer, np.floating)) and p > 0 for p in sizes):
        raise wrong("parts", sizes, "fractions or numbers of elements, all greater than 0")
    count(ds, "random_split")  # an error about ds is clearer than one about its shuffle
    mixed = ds.shuffle(seed=seed, reshuffle=False)
    n = count(mixed, "random_split")
    if all(isinstance(p, (int, np.integer)) for p in sizes):
        ends = [int(sum(sizes[: k + 1])) for k in range(len(sizes))]
        if ends[-1] != n:
            raise wrong("parts", sizes, f"numbers that add up to {n}, the number of elements, or fractions")
    elif math.isclose(math.fsum(sizes), 1, abs_tol=1e-6):
        ends = [round(n * math.fsum(sizes[: k + 1])) for k in range(len(sizes) - 1)] + [n]
    else:
        raise wrong("parts", sizes, "fractions that add up to 1")
    return [
        _run(mixed, begin, end, f"part {k} of the split {sizes}")
        for k, (begin, end) in enumerate(zip([0, *ends], ends))
    ]


def shard(ds: Dataset, num_shards: int, index: int) -> Dataset:
    num_shards = integer("num_shards", num_shards, 1, 2**31)
    index = integer("index", index, 0, num_shards - 1)
    return _run(ds, *_bounds(count(ds, "shard"), num_shards, index), f"shard {index} of {num_shards}")


def divided(ds: Dataset, n: int, index: int) -> Dataset | None:
    """Part number `index` of n parts that processes compute separately, which may have no element; None: the
    pipeline can't be divided before it is computed.
    """
    nodes = ds._nodes
    at = next((i for i, node in enumerate(nodes) if unknown_since([node], True)), len(nodes))
    total = ds._make(nodes[:at], ds._head, ds._base_dir)._pipeline.batches(make_options()) if at else None
    if total == -1:  # it has no end: the parts are those of the elements that are repeated
        at = next((i for i, node in enumerate(nodes) if node["op"] == "repeat" and node["count"] == -1), 0)
    if at == 0 or any(node["op"] in ("take", "skip") for node in nodes[at:]):
        return None
    before = ds._make(nodes[:at], ds._head, ds._base_dir)
    begin, end = _bounds(count(before, "as_iterable"), n, index)
    after = nodes[at:] if begin < end else ()  # a part without elements can't be repeated without end
    return ds._make([*before[begin:end]._nodes, *after], ds._head, ds._base_dir)


def _bounds(n: int, num_shards: int, index: int) -> tuple[int, int]:
    return n * index // num_shards, n * (index + 1) // num_shards


def _run(ds: Dataset, begin: int, end: int, what: str) -> Dataset:
    """Elements [begin, end) of ds. PipelineError: there is none."""
    if begin == end:
        raise PipelineError(f"{what} has no element: expected more elements, or fewer parts")
    return (ds.skip(begin) if begin else ds).take(end - begin)
