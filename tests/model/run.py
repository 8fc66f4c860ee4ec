#!/usr/bin/env python3
"""From positions to batches, ranks and digests: docs/semantics.md, sections 5 to 7. Run as a script it is a
small `cachew run`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import digest as hashes

from model import philox
from model.dtypes import PlanError, RecordError, RunError, Type, Value, storage
from model.elements import MISSING, Element, Elements
from model.hosted import BatchMap
from model.plan import FILTERS, Node, Plan

PADDING = 2
PATIENCE = 20_000  # positions of an endless sequence without a batch


class Fruitless(Exception):
    """An endless sequence that gives nothing more."""


@dataclass
class Batch:
    epoch: int
    g: int
    rows: list[Element]
    key: int  # of its bucket
    components: list[hashes.Component] = field(default_factory=list)
    hash: int = 0
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def component(name: str, value: Value) -> hashes.Component:
    raw = value.raw()
    return name, value.dtype, value.shape, hashes.le64(len(raw)) + raw if value.dtype == "bytes" else raw


class Made:
    """What an iterator gives, for several who go through it from the start; and the error that it ends
    with.
    """

    def __init__(self, more: Iterator[Batch]):
        self.known: list[Batch] = []
        self.more = more
        self.error: Exception | None = None

    def items(self) -> Iterator[Batch]:
        at = 0
        while at < len(self.known) or self.advance():
            yield self.known[at]
            at += 1

    def advance(self) -> bool:
        if self.error:
            raise self.error
        try:
            batch = next(self.more, None)
        except (RunError, RecordError) as error:
            self.error = error
            raise
        if batch:
            self.known.append(batch)
        return batch is not None


class Run:
    """One run of a pipeline under a seed."""

    def __init__(self, pipeline: dict, base: Path, seed: int):
        self.plan = Plan(pipeline, base)
        self.seed = seed
        self.elements = Elements(self.plan, seed)
        self.made: dict[int, Made] = {}  # by epoch

    def finished(self, counts: dict) -> bool:
        """Whether nothing more can come: every source lies before a take that has all it wants and is not
        repeated.
        """

        batcher = self.plan.batcher
        size = (
            batcher.attrs["size"]
            if batcher and batcher.name == "batch" and batcher.attrs.get("drop_remainder")
            else 1
        )

        def enough(route: list[Node], n: Node) -> int:
            """Of the elements of a remainder that is dropped none is looked at, where nothing but takes and
            maps stand between.
            """
            behind = route[route.index(n) + 1 :]
            plain = all(m.name not in (*FILTERS, "skip", "repeat", "enumerate") for m in behind)
            return n.attrs["count"] - (n.attrs["count"] % size if plain and n in self.plan.chain else 0)

        def full(route: list[Node]) -> bool:
            return any(
                n.counting
                and (
                    n.name == "take"
                    and counts.get((n, ()), 0) >= enough(route, n)
                    or n.name == "take_while"
                    and (n, ()) in counts
                )
                for i, n in enumerate(route)
                if all(later.name != "repeat" for later in route[i:])
            )

        return all(full(route) for route in self.plan.routes)

    # ---- batches ----

    def batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch, each of which is made once, however often they are asked for."""
        if epoch not in self.made:
            self.made[epoch] = Made(self.delivered(epoch))
        return self.made[epoch].items()

    def delivered(self, epoch: int) -> Iterator[Batch]:
        """What the takes and skips that count batches let through. What is skipped is made all the same:
        what is wrong in it ends the run.
        """
        first, end = 0, math.inf
        for node in self.plan.after:
            if node.name == "take":
                end = min(end, first + node.attrs["count"])
            else:
                first = min(end, first + node.attrs["count"])
        complete = self.complete(epoch)
        seen = 0
        while seen < end and (made := next(complete, None)) is not None:
            batch = Batch(epoch, max(0, seen - first), *made)
            self.stack(batch)
            if seen >= first:
                yield batch
            seen += 1

    def complete(self, epoch: int) -> Iterator[tuple[list[Element | str], int]]:
        """The rows and the key of each batch, when the element that completes its group comes; MISSING where
        an element failed.
        """
        plan = self.plan
        waiting: dict[int, list] = {}
        counts: dict = {}
        idle = 0
        groups = plan.groups(self.seed, epoch)
        while not self.finished(counts) and (group := next(groups, None)):
            idle += len(group)
            if idle > PATIENCE and plan.n == math.inf:
                raise Fruitless
            for element in self.elements.of(group, epoch, counts):
                key = 0 if element is MISSING else element.key
                rows = waiting.setdefault(key, [])
                rows.append(element)
                if len(rows) == self.size(key) * self.group:
                    idle = 0
                    yield from self.full_group(waiting.pop(key), key)
        yield from self.rest(waiting)

    @property
    def group(self) -> int:
        return self.plan.batcher.attrs.get("group", 1) if self.plan.batcher else 1

    def full_group(self, rows: list, key: int) -> Iterator[tuple[list[Element | str], int]]:
        size = self.size(key)
        for i in range(0, len(rows), size):
            yield rows[i : i + size], key

    def rest(self, waiting: dict[int, list]) -> Iterator[tuple[list[Element | str], int]]:
        """The batches of the elements that wait at the end of an epoch."""
        attrs = self.plan.batcher.attrs if self.plan.batcher else {}
        keys = range(attrs.get("keys", len(attrs.get("sizes", [1]))))
        whole = attrs.get("drop_remainder", False)
        remainder = attrs.get("remainder", "pad")
        if self.group == 1 and remainder == "next":
            remainder = "pad"
        if remainder == "drop" or (whole and remainder == "pad"):
            return
        moved: list = []  # from smaller buckets
        for key in keys:
            rows, full = waiting.get(key, []) + moved, self.group * self.size(key)
            at = len(rows) // full * full
            yield from self.full_group(rows[:at], key)
            rows, moved = rows[at:], []
            if whole or (key < keys[-1] and (remainder == "next" or len(rows) < self.group)):
                moved = rows
            elif rows:
                for part in np.array_split(np.arange(len(rows)), min(self.group, len(rows))):
                    yield [rows[i] for i in part], key

    def size(self, key: int) -> int:
        batcher = self.plan.batcher
        if not batcher:
            return 1
        return batcher.attrs["sizes"][key] if "sizes" in batcher.attrs else batcher.attrs["size"]

    # ---- a batch's content ----

    def stack(self, batch: Batch) -> None:
        batch.rows = [row for row in batch.rows if row is not MISSING]
        n = len(batch.rows)
        longest = self.longest(batch.key)
        for row in batch.rows:
            if row.error:
                raise row.error
        for name, type_ in self.plan.types_of_rows.items():
            values = [row.components[name] for row in batch.rows]
            if not values:
                stacked = self.empty(name, type_, longest)
            elif not self.plan.batcher:
                stacked = component(name, values[0])
            elif type_.dtype == "bytes":
                lengths = hashes.le64(*(len(v.data) for v in values))
                stacked = (name, "bytes", (n,), lengths + b"".join(v.data for v in values))
            else:
                if pad := self.plan.pad.get(name):
                    values = pad.apply(name, values, longest)
                if len({v.shape for v in values}) > 1:
                    raise RunError(f"batch: {name} has elements of different shapes")
                stacked = (name, type_.dtype, (n, *values[0].shape), b"".join(v.raw() for v in values))
                for row, value in zip(batch.rows, values):
                    row.components = {**row.components, name: value}
            batch.components.append(stacked)
        for op in self.plan.batch_maps:
            self.map_batch(batch, op)
        batch.hash = hashes.batch_hash(batch.epoch, batch.g, n, batch.components)

    def map_batch(self, batch: Batch, op: BatchMap) -> None:
        """What a function makes of the whole batch; the rows stand for the records that they were."""
        given = {name: self.rows_of(dtype, dims, data) for name, dtype, dims, data in batch.components}
        key = philox.draw_key(self.seed, batch.epoch, op.salt)
        result = op.apply(given, key, [row.eid for row in batch.rows])
        batch.components = []
        for name, type_ in op.types.items():
            values = result[name]
            if type_.dtype == "bytes":
                stacked = (name, "bytes", (len(values),), hashes.le64(*map(len, values)) + b"".join(values))
            else:
                stacked = (name, type_.dtype, values.shape, values.tobytes())
            batch.components.append(stacked)
        for i, row in enumerate(batch.rows):
            row.components = {
                name: Value(t.dtype, result[name][i] if t.dtype == "bytes" else np.asarray(result[name][i]))
                for name, t in op.types.items()
            }

    @staticmethod
    def rows_of(dtype: str, dims: tuple[int, ...], data: bytes) -> np.ndarray | list[bytes]:
        """A component of a batch as its rows."""
        if dtype != "bytes":
            return np.frombuffer(data, storage(dtype)).reshape(dims)
        ends = np.cumsum(np.frombuffer(data[: 8 * dims[0]], np.uint64)).tolist()
        body = data[8 * dims[0] :]
        return [body[start:end] for start, end in zip([0, *ends], ends)]

    def longest(self, key: int) -> int | None:
        """The largest length of a bucket; None: it has no limit."""
        boundaries = self.plan.batcher.attrs.get("boundaries", []) if self.plan.batcher else []
        return max(0, boundaries[key] - 1) if key < len(boundaries) else None

    def empty(self, name: str, type_: Type, longest: int | None) -> hashes.Component:
        if type_.dtype == "bytes":
            return name, "bytes", (0,), b""
        if pad := self.plan.pad.get(name):
            return name, type_.dtype, (0, *pad.empty(type_, longest)), b""
        return name, type_.dtype, (0, *(d or 0 for d in type_.dims or ())), b""

    @staticmethod
    def element_hash(row: Element) -> int:
        return hashes.element_hash([component(name, value) for name, value in row.components.items()])


@dataclass
class Result:
    lines: list[dict] = field(default_factory=list)
    digest: int = 0
    set_digest: int = 0
    error: str | None = None
    failed: int = 0  # records

    def add(self, batch: Batch, flags: int = 0, g: int | None = None) -> None:
        self.lines.append(
            {
                "epoch": batch.epoch,
                "g": batch.g if g is None else g,
                "n": len(batch.rows),
                "flags": [row.flags | flags for row in batch.rows],
                "records": [row.record for row in batch.rows],
                "hash": f"{batch.hash:032x}",
            }
        )
        if flags & PADDING:
            return
        self.digest = (self.digest + batch.hash) & hashes.MASK128
        self.set_digest = (
            self.set_digest + sum(Run.element_hash(row) for row in batch.rows)
        ) & hashes.MASK128


def delivered(
    run: Run,
    epochs: int,
    rank: int = 0,
    ranks: int = 1,
    limit: float = math.inf,
    start: tuple[int, int] = (0, 0),
) -> Result:
    """What rank `rank` of `ranks` receives, up to `limit` batches, when it goes on from a state that names
    `start`: epoch and g.
    """
    result = Result()
    try:
        for epoch in range(start[0], epochs):
            if len(result.lines) >= limit:
                break
            rounds_from = start[1] if epoch == start[0] else 0
            first: list[Batch] = []
            total = 0
            for batch in run.batches(epoch):
                total += 1
                if len(first) < ranks:
                    first.append(batch)
                if batch.g >= rounds_from and (batch.g - rounds_from) % ranks == rank:
                    result.add(batch)
                    if len(result.lines) >= limit:
                        break
            filled = rounds_from + -(-max(total - rounds_from, 0) // ranks) * ranks
            for g in range(max(total, rounds_from), filled):
                if (g - rounds_from) % ranks == rank and len(result.lines) < limit:
                    pad = first[(g - total) % total]
                    pad = Batch(epoch, g, pad.rows, pad.key, pad.components)
                    pad.hash = hashes.batch_hash(epoch, g, len(pad.rows), pad.components)
                    result.add(pad, PADDING)
    except (RunError, RecordError) as error:
        result.error = str(error)
    result.failed = run.elements.failed
    return result


def deliver(pipeline: dict, base: Path, seed: int, epochs: int = 1, rank: int = 0, ranks: int = 1,
            limit: float = math.inf, start: tuple[int, int] = (0, 0)) -> Result:  # fmt: skip
    """The same of a pipeline that is run for this alone."""
    try:
        run = Run(pipeline, base, seed)
    except (RunError, RecordError) as error:
        return Result(error=str(error))
    return delivered(run, epochs, rank, ranks, limit, start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--batches", type=float, default=math.inf)
    parser.add_argument("--log", type=Path)
    arguments = parser.parse_args()
    pipeline = json.loads(arguments.pipeline.read_text())
    defaults = pipeline.get("defaults", {})
    seed = defaults.get("seed", 0) if arguments.seed is None else arguments.seed
    epochs = defaults.get("epochs", 1) if arguments.epochs is None else arguments.epochs
    base = arguments.pipeline.resolve().parent
    try:
        result = deliver(
            pipeline, base, seed, epochs, arguments.rank, arguments.world_size, arguments.batches
        )
    except PlanError as error:
        print(json.dumps({"error": {"message": str(error)}}))
        return 2
    if arguments.log:
        arguments.log.write_text("".join(json.dumps(line) + "\n" for line in result.lines))
    summary = {
        "batches": len(result.lines),
        "digest": f"{result.digest:032x}",
        "set_digest": f"{result.set_digest:032x}",
    }
    print(json.dumps(summary | ({"error": {"message": result.error}} if result.error else {})))
    return 1 if result.error else 0


if __name__ == "__main__":
    sys.exit(main())
