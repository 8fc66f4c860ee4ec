#!/usr/bin/env python3
"""From splits to batches, ranks and digests: docs/semantics.md, sections 6 to 8. Run as a script it is a small `cachew run`."""

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
from model.plan import Node, Plan, Position, Window

REPLACED, PADDING = 1, 2
MISSING = "missing"  # a failed element that keeps its place
DROPPED = "dropped"


PATIENCE = 20_000  # positions of an endless sequence without a batch


class Fruitless(Exception):
    """An endless sequence that gives nothing more."""


@dataclass
class Element:
    components: dict[str, Value]
    record: str
    flags: int = 0
    key: int = 0  # bucket
    error: RunError | None = None  # what ends the run if the element is delivered: a dropped remainder is not computed to the end


@dataclass
class Batch:
    epoch: int
    g: int
    split: int
    index: int
    rows: list[Element]
    components: list[hashes.Component] = field(default_factory=list)
    hash: int = 0
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def component(name: str, value: Value) -> hashes.Component:
    raw = value.raw()
    return name, value.dtype, value.shape, hashes.le64(len(raw)) + raw if value.dtype == "bytes" else raw


class Run:
    """One run of a pipeline under a seed; failed and replaced elements are counted."""

    def __init__(self, pipeline: dict, base: Path, seed: int):
        self.plan = Plan(pipeline, base)
        self.seed = seed
        self.failed = 0

    # ---- one element ----

    def draw(self, node: Node, element: int, epoch: int) -> philox.Draw:
        return philox.Draw(philox.draw_key(self.seed, epoch, node.salt), element)

    def identify(self, position: Position):
        record = self.plan.sources[position.leaf].records[position.row]
        printed = f"{record.file_key:016x}:{record.row}" + "".join(f".{o}" for o in position.ordinals)
        return record, printed, philox.element_id(record.file_key, record.row, position.ordinals)

    def compute(self, position: Position, epoch: int) -> Element | str:
        """An element through all maps and filters, without counting: the element, or DROPPED. Raises RecordError."""
        record, printed, eid = self.identify(position)
        components, key = self.plan.sources[position.leaf].element(record), 0
        for node in self.plan.routes[position.leaf]:
            if node.bound and node.name == "filter":
                if not node.bound.apply(components, None):
                    return DROPPED
            elif node.name == "bucket_by_length":
                key = self.bucket(node, components)
            elif node.bound:
                components = node.bound.apply(components, self.draw(node, eid, epoch))
        return Element(components, printed, 0, key)

    @staticmethod
    def bucket(node: Node, components: dict[str, Value]) -> int:
        length = node.bound.apply(components, None)
        return sum(1 for boundary in node.attrs["boundaries"] if boundary <= length)

    def replacement(self, position: Position, window: Window, epoch: int, wrong: RunError) -> Element:
        draw = philox.Draw(philox.draw_key(self.seed, epoch, "replace/0"), self.identify(position)[2])
        for k in range(64):
            try:
                found = self.compute(window[philox.integer(draw.word(4 * k), len(window))], epoch)
            except RecordError:
                continue
            if found is not DROPPED:
                found.flags |= REPLACED
                return found
        raise wrong

    def walk(self, position: Position, window: Window, epoch: int, counts: dict) -> Element | str:
        """An element on its way: an Element, MISSING where it leaves an empty place, or DROPPED."""
        plan = self.plan
        record, printed, eid = self.identify(position)
        route = plan.routes[position.leaf]
        if self.beyond(route, position, counts):
            return DROPPED
        components: dict[str, Value] | None = None
        result: Element | None = None  # of an element that failed and doesn't leave an empty place
        missing = False
        last_sieve = max((i for i, n in enumerate(route) if n.counting or n.name in ("filter", "bucket_by_length")), default=-2)

        def attempt(at: int, step):
            nonlocal missing, result
            try:
                return step()
            except RecordError as error:
                self.failed += 1
                if plan.on_error == "skip":
                    missing = True
                    return None
                try:
                    result = self.instead(position, window, epoch, error)
                except RunError as wrong:
                    if at <= last_sieve:
                        raise
                    result = Element({}, printed, error=wrong)
            return None

        components = attempt(-1, lambda: plan.sources[position.leaf].element(record))
        repeats = key = 0
        for at, node in enumerate(route):
            if node.name == "repeat":
                repeats += 1
            elif node.counting:
                if not self.arrive(node, position.ordinals[repeats:], counts):
                    return DROPPED
            elif node.bound and not result:
                if missing and node.name in ("filter", "bucket_by_length"):
                    return DROPPED
                if node.name == "filter":
                    passes = attempt(at, lambda node=node, c=components: node.bound.apply(c, None))
                    if missing or passes is False:
                        return DROPPED
                elif node.name == "bucket_by_length":
                    key = attempt(at, lambda node=node, c=components: self.bucket(node, c))
                    if missing:
                        return DROPPED
                elif not missing:
                    components = attempt(at, lambda node=node, c=components: node.bound.apply(c, self.draw(node, eid, epoch)))
        return result or (MISSING if missing else Element(components, printed, 0, key))

    def instead(self, position: Position, window: Window, epoch: int, error: RecordError) -> Element:
        """What takes a failed element's place."""
        wrong = RunError(f"{self.identify(position)[1]}: {error}")
        if self.plan.on_error == "raise":
            raise wrong from error
        return self.replacement(position, window, epoch, wrong)

    @staticmethod
    def arrive(node: Node, passes: tuple[int, ...], counts: dict) -> bool:
        """A take or skip that counts: whether the element goes on."""
        arrived = counts.get((node, passes), 0)
        counts[node, passes] = arrived + 1
        return arrived < node.attrs["count"] if node.name == "take" else arrived >= node.attrs["count"]

    def beyond(self, route: list[Node], position: Position, counts: dict) -> bool:
        """Whether a take that this element would pass has all it wants."""
        repeats = 0
        for node in route:
            repeats += node.name == "repeat"
            arrived = counts.get((node, position.ordinals[repeats:]), 0)
            if node.counting and node.name == "take" and arrived >= node.attrs["count"]:
                return True
        return False

    def finished(self, counts: dict) -> bool:
        """Whether nothing more can come: every source lies before a take that has all it wants and is not repeated."""

        def full(route: list[Node]) -> bool:
            return any(
                n.counting and n.name == "take" and counts.get((n, ()), 0) >= n.attrs["count"]
                for i, n in enumerate(route)
                if all(later.name != "repeat" for later in route[i:])
            )

        return all(full(route) for route in self.plan.routes)

    # ---- batches ----

    def batches(self, epoch: int) -> Iterator[Batch]:
        for g, (split, index, rows) in enumerate(self.taken(self.numbered(epoch))):
            batch = Batch(epoch, g, split, index, rows)
            self.stack(batch)
            yield batch

    def taken(self, numbered):
        """The takes and skips that count batches."""
        seen = [0] * len(self.plan.after)
        passed: dict[int, int] = {}
        if any(n.name == "take" and n.attrs["count"] == 0 for n in self.plan.after):
            return
        for split, rows in numbered:
            keep = True
            for k, node in enumerate(self.plan.after):
                seen[k] += 1
                keep = seen[k] <= node.attrs["count"] if node.name == "take" else seen[k] > node.attrs["count"]
                if not keep:
                    if node.name == "skip" and not any(row is not MISSING and row.error for row in rows):
                        self.stack(Batch(0, 0, split, 0, rows))  # it is made and counted: shapes that don't match end the run
                    break
            if keep:
                index = passed.get(split, 0)
                passed[split] = index + 1
                yield split, index, rows
            if any(n.name == "take" and seen[k] >= n.attrs["count"] for k, n in enumerate(self.plan.after)):
                return

    def numbered(self, epoch: int) -> Iterator[tuple[int, list[Element | str]]]:
        """(split, rows) of each batch; rows hold MISSING where an element failed."""
        plan = self.plan
        waiting: dict[int, list] = {}
        remnants: dict[int, list] = {}
        counts: dict = {}
        last = -1
        idle = 0
        for number, window in enumerate(plan.splits(self.seed, epoch)):
            split = 0 if plan.one_split else number
            last = split
            for position in window:
                if plan.one_split and self.finished(counts):
                    break
                idle += 1
                if idle > PATIENCE and plan.n == math.inf:
                    raise Fruitless
                element = self.walk(position, window, epoch, counts)
                if element is DROPPED:
                    continue
                key = 0 if element is MISSING else element.key
                rows = remnants.setdefault(key, [])
                rows.append(element)
                if len(rows) == self.size(key):
                    idle = 0
                    yield split, remnants.pop(key)
            if plan.one_split and self.finished(counts):
                break
            if not plan.one_split:
                yield from self.join(split, remnants, waiting)
                remnants = {}
        if plan.one_split:
            yield from self.join(0, remnants, waiting)
        if plan.batcher and not plan.batcher.attrs.get("drop_remainder", False):
            for key in sorted(waiting):
                if waiting[key]:
                    yield last, waiting[key]

    def join(self, split: int, remnants: dict[int, list], waiting: dict[int, list]):
        for key in sorted(remnants):
            rows = waiting.setdefault(key, [])
            rows += remnants[key]
            if len(rows) >= self.size(key):
                yield split, rows[: self.size(key)]
                waiting[key] = rows[self.size(key) :]

    def size(self, key: int) -> int:
        batcher = self.plan.batcher
        if not batcher:
            return 1
        return batcher.attrs["sizes"][key] if batcher.name == "bucket_by_length" else batcher.attrs["size"]

    # ---- a batch's content ----

    def stack(self, batch: Batch) -> None:
        batch.rows = [row for row in batch.rows if row is not MISSING]
        n = len(batch.rows)
        for row in batch.rows:
            if row.error:
                raise row.error
        for name, type_ in self.plan.types.items():
            values = [row.components[name] for row in batch.rows]
            if not values:
                stacked = self.empty(name, type_)
            elif not self.plan.batcher:
                stacked = component(name, values[0])
            elif type_.dtype == "bytes":
                lengths = hashes.le64(*(len(v.data) for v in values))
                stacked = (name, "bytes", (n,), lengths + b"".join(v.data for v in values))
            else:
                if self.plan.batcher.name == "bucket_by_length":
                    values = self.padded(name, values)
                if len({v.shape for v in values}) > 1:
                    raise RunError(f"batch: {name} has elements of different shapes")
                stacked = (name, type_.dtype, (n, *values[0].shape), b"".join(v.raw() for v in values))
                for row, value in zip(batch.rows, values):
                    row.components = {**row.components, name: value}
            batch.components.append(stacked)
        batch.hash = hashes.batch_hash(batch.epoch, batch.g, n, batch.components)

    @staticmethod
    def empty(name: str, type_: Type) -> hashes.Component:
        if type_.dtype == "bytes":
            return name, "bytes", (0,), b""
        return name, type_.dtype, (0, *(d or 0 for d in type_.dims or ())), b""

    def padded(self, name: str, values: list[Value]) -> list[Value]:
        if len({len(v.shape) for v in values}) > 1:
            raise RunError(f"bucket_by_length: {name} has elements of different ranks")
        shape = tuple(max(dims) for dims in zip(*(v.shape for v in values)))
        pad = self.plan.pad[name]
        result = []
        for value in values:
            data = np.full(shape, pad.data, dtype=storage(value.dtype))
            data[tuple(slice(d) for d in value.shape)] = value.data
            result.append(Value(value.dtype, data))
        return result

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
                "split": batch.split,
                "index": batch.index,
                "n": len(batch.rows),
                "flags": [row.flags | flags for row in batch.rows],
                "records": [row.record for row in batch.rows],
                "hash": f"{batch.hash:032x}",
            }
        )
        if flags & PADDING:
            return
        self.digest = (self.digest + batch.hash) & hashes.MASK128
        self.set_digest = (self.set_digest + sum(Run.element_hash(row) for row in batch.rows)) & hashes.MASK128


def deliver(pipeline: dict, base: Path, seed: int, epochs: int = 1, rank: int = 0, ranks: int = 1, limit: float = math.inf) -> Result:
    """What rank `rank` of `ranks` receives, up to `limit` batches."""
    result, run = Result(), None
    try:
        run = Run(pipeline, base, seed)
        for epoch in range(epochs):
            if len(result.lines) >= limit:
                break
            first: list[Batch] = []
            total = 0
            for batch in run.batches(epoch):
                total += 1
                if len(first) < ranks:
                    first.append(batch)
                if batch.g % ranks == rank:
                    result.add(batch)
                    if len(result.lines) >= limit:
                        break
            filled = -(-total // ranks) * ranks
            for g in range(total, filled):
                if g % ranks == rank and len(result.lines) < limit:
                    pad = first[(g - total) % total]
                    pad = Batch(epoch, g, pad.split, pad.index, pad.rows, pad.components)
                    pad.hash = hashes.batch_hash(epoch, g, len(pad.rows), pad.components)
                    result.add(pad, PADDING)
    except (RunError, RecordError) as error:
        result.error = str(error)
    if run:
        result.failed = run.failed
    return result


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
        result = deliver(pipeline, base, seed, epochs, arguments.rank, arguments.world_size, arguments.batches)
    except PlanError as error:
        print(json.dumps({"error": {"message": str(error)}}))
        return 2
    if arguments.log:
        arguments.log.write_text("".join(json.dumps(line) + "\n" for line in result.lines))
    summary = {"batches": len(result.lines), "digest": f"{result.digest:032x}", "set_digest": f"{result.set_digest:032x}"}
    print(json.dumps(summary | ({"error": {"message": result.error}} if result.error else {})))
    return 1 if result.error else 0


if __name__ == "__main__":
    sys.exit(main())
