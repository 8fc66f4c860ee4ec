"""From a pipeline to its sequence of positions: docs/semantics.md, sections 2 to 4."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from . import (
    hosted,
    lines,
    materialized,
    mixed,
    mixup,
    needs,
    operators,
    padding,
    philox,
    rows,
    sources,
    tables,
    tar,
    windowed,
    zipped,
)
from .dtypes import PlanError, Type
from .sources import Source

INDEX = ("take", "skip", "repeat", "shuffle", "concat", "mix", "zip", "window", "enumerate", "interleave")
COUNTING = ("take", "skip", "enumerate")  # they count elements where their number is not known
JOINS = ("concat", "mix", "interleave")  # their elements are those of their inputs
KEYED = ("bucket_by_length", "group_by")  # batchers with a batch for each key
BATCHERS = ("batch", *KEYED)
BATCH_MAPS = ("map_batches", "mixup", "cutmix")
FILTERS = (
    "filter",
    "filter_function",
    "take_while",
    "resample",
    "flat_map",
    "unbatch",
    "pack",
)  # behind them the count is not known
JOINED = {"zip": zipped.Zipped, "window": windowed.Windowed}
REPLACE_POSITIONS = 4096  # a failed element is replaced by another of so many positions
ORDERED_CHUNK = 1024  # positions of a chunk of what is shuffled by record, or mixed
WINDOW_POSITIONS, WINDOW_BYTES = 1 << 20, 64 << 20  # of a window of a shuffle by chunk, at most
SOURCES = {
    "tfrecord": sources.TFRecord,
    "image_folder": sources.ImageFolder,
    "files": sources.Files,
    "fixed_length": sources.FixedLength,
    "text": lines.Text,
    "jsonl": lines.JsonLines,
    "csv": tables.Csv,
    "parquet": tables.Parquet,
    "arrow": tables.Arrow,
    "tar": tar.Tar,
    "materialized": materialized.Materialized,
    "materialized_stream": materialized.MaterializedStream,
    "range": sources.Range,
    "synthetic": sources.Synthetic,
    "iterable": hosted.Iterable,
}


@dataclass(frozen=True)
class Position:
    leaf: int  # which source
    row: int  # which of its records
    ordinals: tuple[int, ...] = ()  # one per repeat passed, innermost first
    places: tuple[tuple[str, int], ...] = ()  # by salt of each enumerate passed: the position there


@dataclass(eq=False)
class Node:
    name: str
    attrs: dict
    salt: str = ""
    inputs: list[list[Node]] = field(default_factory=list)
    leaf: int = -1  # of a source
    counting: bool = False  # it counts the elements that arrive
    bound: operators.Bound | None = None  # of a map or filter
    freeze: dict | None = None  # attributes of the first freezing cache point behind it


def with_words(chain: list[dict], base: Path) -> list[dict]:
    """The chain with the words of `lookup` in place of files that have them."""
    read = []
    for node in chain:
        if "inputs" in node:
            node = {**node, "inputs": [with_words(c, base) for c in node["inputs"]]}
        if node["op"] == "lookup" and "file" in node:
            words = (base / node["file"]).read_bytes().decode().split("\n")
            words = words[:-1] if words[-1] == "" else words
            node = {**node, "vocabulary": [word.removesuffix("\r") for word in words]}
        read.append(node)
    return read


def parse_chain(chain: list[dict], seen: dict[str, int]) -> list[Node]:
    """Nodes with defaults filled in; `seen` counts the occurrences of each name."""
    nodes = []
    for written in chain:
        attrs = {k: v for k, v in written.items() if k not in ("op", "inputs")}
        name = written["op"]
        if name not in operators.DEFAULTS:
            raise PlanError(f"unknown operator {name}")
        inputs = [parse_chain(c, seen) for c in written.get("inputs", [])]
        salt = f"{name}/{seen.get(name, 0)}"
        seen[name] = seen.get(name, 0) + 1
        nodes.append(Node(name, {**operators.DEFAULTS[name], **attrs}, salt, inputs))
        if name == "window":  # a source, made of what comes before it
            nodes[-1].inputs = [nodes[:-1]]
            nodes = nodes[-1:]
    return nodes


PASSES = Node("repeat", {"count": -1})  # on the way of what begins again in a mix


def restarts(node: Node) -> bool:
    """Whether its inputs begin again."""
    return node.name == "mix" and node.attrs["stop"] != "first"


def merge_types(inputs: list[dict[str, Type]]) -> dict[str, Type]:
    """Types after concat or mix: dimensions that differ vary."""
    merged = dict(inputs[0])
    for types in inputs[1:]:
        if types.keys() != merged.keys():
            raise PlanError("concat: inputs have different components")
        for name, other in types.items():
            mine = merged[name]
            if mine.dtype != other.dtype:
                raise PlanError(f"concat: {name} has different dtypes")
            if mine.dims is None or other.dims is None or len(mine.dims) != len(other.dims):
                merged[name] = Type(mine.dtype, None)
            else:
                merged[name] = Type(
                    mine.dtype, tuple(a if a == b else None for a, b in zip(mine.dims, other.dims))
                )
    return merged


def grouped(positions: Iterator[Position], size: int) -> Iterator[list[Position]]:
    while group := list(islice(positions, size)):
        yield group


class Plan:
    def __init__(self, pipeline: dict, base: Path):
        self.on_error = pipeline.get("on_error", "raise")
        self.base = base
        self.sources: list[Source] = []
        chain = parse_chain(with_words(pipeline["pipeline"], base), {})
        chain = rows.without_taken_batches(chain, Node, self.is_map)
        at = next((i for i, node in enumerate(chain) if node.name in BATCHERS), len(chain))
        before, after = chain[:at], chain[at + 1 :]
        self.batcher = chain[at] if at < len(chain) else None
        self.batch_size = 1
        if self.batcher:
            self.batch_size = max(self.batcher.attrs.get("sizes") or [self.batcher.attrs["size"]])
        self.refuse(before, after)
        self.restarts(chain)
        types = self.bind(before, None)
        if self.batcher and self.batcher.name in KEYED:
            attrs = self.batcher.attrs
            if attrs.get("remainder") == "pad" and attrs["drop_remainder"] and attrs["group"] > 1:
                raise PlanError("bucket_by_length: remainder pad with drop_remainder")
            self.batcher.bound = operators.bind(f"key of {self.batcher.name}", self.batcher.attrs, types)
            self.batcher.bound.before = types
        self.pad: dict[str, padding.Padding | None] = {}
        if self.batcher:
            types = self.bind_padding(types)
        maps_after = [n for n in after if n.name not in (*INDEX, *BATCH_MAPS)]
        self.types = self.types_of_rows = self.bind(maps_after, types)
        self.batch_maps: list[hosted.BatchMap | mixup.Mix] = []
        for node in after:
            if node.name in BATCH_MAPS:
                self.batch_maps.append(
                    hosted.BatchMap(node.attrs, self.types, node.salt)
                    if node.name == "map_batches"
                    else mixup.Mix(node.name, node.attrs, self.types, node.salt)
                )
                self.types = self.batch_maps[-1].types
        self.stream = any(source.stream for source in self.sources)
        self.mark_counting(before)
        self.chain = self.shuffles_before_endless_repeat(before)
        self.known = self.count_known(self.chain)
        self.after: list[Node] = []  # takes and skips that count batches
        if self.batcher:
            self.index_after_batcher([n for n in after if n.name in INDEX])
        if any(self.pad.values()):
            if any(n.name not in ("select", "drop", "rename") for n in maps_after):
                raise PlanError("an operator that computes, after a batcher that pads")
            for node in maps_after:
                self.pad = node.bound.apply(self.pad, None)
        if self.batcher and self.batcher.bound:
            maps_after = [self.batcher, *maps_after]
        self.chain += maps_after
        self.n = self.count(self.chain)
        self.window_size = self.compute_window_size()
        self.routes = []
        for leaf in range(len(self.sources)):
            self.freeze(self.route(self.chain, leaf), leaf)
        for leaf, source in enumerate(self.sources):
            route, source.needed = needs.prune(self.route(self.chain, leaf), set(source.types))
            self.routes.append(route)
            if isinstance(source, zipped.Zipped):
                source.prune()

    @classmethod
    def of_inputs(cls, base: Path, batch_size: int) -> Plan:
        """For inputs that stand side by side: what a source `Zipped` opens and binds."""
        plan = object.__new__(cls)
        plan.on_error, plan.base, plan.sources, plan.stream = "raise", base, [], False
        plan.chain, plan.batch_size = [], batch_size
        return plan

    def mark_counting_all(self, chains: list[list[Node]]) -> None:
        """Of inputs, once they are bound."""
        for chain in chains:
            self.mark_counting(chain)
        self.window_size = self.compute_window_size()

    def freeze(self, route: list[Node], leaf: int) -> None:
        """What stands before a cache point with `freeze` draws as the cache point says."""
        for at, node in enumerate(route):
            if node.attrs.get("freeze"):
                source = self.sources[leaf]
                inside = source.nodes() if isinstance(source, zipped.Zipped) else []
                for before in [*inside, *route[:at]]:
                    before.freeze = before.freeze or node.attrs

    # ---- what is in the chains ----

    def refuse(self, before: list[Node], after: list[Node]) -> None:
        """Functions where none may stand."""
        names = [node.name for node in after]
        if self.on_error == "replace" and (
            any(self.any_named(before, name) for name in ("flat_map", "unbatch", "pack"))
        ):
            raise PlanError("flat_map, unbatch or pack with on_error replace")
        if self.any_named(after, "window") or self.any_named(after, "enumerate"):
            raise PlanError("window or enumerate behind a batcher")
        if self.on_error == "replace" and any(self.any_named(before, n) for n in ("enumerate", "take_while")):
            raise PlanError("enumerate or take_while with on_error replace")
        if self.on_error == "replace" and self.any_named(before, "window"):
            raise PlanError("window with on_error replace")
        packs = [i for i, node in enumerate(before) if node.name == "pack"]
        if packs and (
            len(packs) > 1 or any(n.name in ("shuffle", "repeat") for n in [*before[packs[0] :], *after])
        ):
            raise PlanError("pack behind another one, or before shuffle or repeat")
        if packs and any(
            self.any_named(c, name) for c in before[0].inputs for name in ("flat_map", "window", "iterable")
        ):
            raise PlanError("pack behind inputs that give other elements than their records")
        if any(self.any_named(c, "pack") for n in before for c in n.inputs):
            raise PlanError("pack in an input")
        # positions that are packed among themselves
        self.group = before[packs[0]].attrs["window"] if packs else 1
        if any(self.any_named(before, name) for name in BATCH_MAPS) or {"map", *FILTERS} & set(names):
            raise PlanError("map_batches before the batcher, or another function behind it")
        first = next((i for i, name in enumerate(names) if name in BATCH_MAPS), len(names))
        if set(names[first:]) - {*BATCH_MAPS, "take", "skip", "repeat"}:
            raise PlanError("only its kind, take, skip and repeat may follow an operator on batches")

    @staticmethod
    def is_map(node: Node) -> bool:
        return node.name not in (*INDEX, *FILTERS, *BATCH_MAPS, *BATCHERS)

    def any_named(self, nodes: list[Node], name: str) -> bool:
        return any(n.name == name or any(self.any_named(c, name) for c in n.inputs) for n in nodes)

    def bind(self, nodes: list[Node], types: dict[str, Type] | None) -> dict[str, Type]:
        """Opens the sources and binds the maps and filters; the types after the last node."""
        for node, following in zip(nodes, [*nodes[1:], None]):
            self.reduce(node, following)
            if node.name in SOURCES:
                node.leaf = len(self.sources)
                self.sources.append(SOURCES[node.name](node.attrs, self.base))
                types = dict(self.sources[-1].types)
            elif node.name in JOINED:
                node.leaf = len(self.sources)
                inputs = Plan.of_inputs(self.base, self.batch_size)
                self.sources.append(JOINED[node.name](node, self.base, inputs))
                node.inputs = []
                types = dict(self.sources[-1].types)
            elif node.name in JOINS:
                types = merge_types([self.bind(c, None) for c in node.inputs])
            elif node.name == "enumerate":
                node.bound = operators.bind(node.name, node.attrs, types)
                types = node.bound.types
            elif node.name not in INDEX:
                node.bound = operators.bind(node.name, node.attrs, types)
                node.bound.before = types
                types = node.bound.types
        return types

    def reduce(self, node: Node, following: Node | None) -> None:
        """Tells a decode_image with scale "auto" which resize follows it."""
        if (
            node.name == "decode_image"
            and node.attrs["scale"] == "auto"
            and following
            and following.name in ("resize", "random_resized_crop")
            and following.attrs["component"] == node.attrs["component"]
        ):
            node.attrs["then"] = (following.name, following.attrs)
            node.salt = following.salt

    def bind_padding(self, types: dict[str, Type]) -> dict[str, Type]:
        """Sets `pad`. The types after the batcher: what is padded to a given size varies before."""
        name, attrs = self.batcher.name, self.batcher.attrs
        if isinstance(attrs["pad"], dict) and not set(attrs["pad"]) <= set(types):
            raise PlanError(f"{name}: pad names a component that does not exist")
        self.pad = {component: padding.of(name, attrs, component, t) for component, t in types.items()}
        after = dict(types)
        for component, p in self.pad.items():
            if p and p.to and types[component].dims:
                dims = tuple(None if t is not None else d for t, d in zip(p.to, types[component].dims))
                after[component] = Type(types[component].dtype, dims)
        return after

    def count_known(self, nodes: list[Node]) -> bool:
        return all(
            n.name not in FILTERS
            and not (n.leaf >= 0 and self.sources[n.leaf].stream)
            and all(self.count_known(c) for c in n.inputs)
            for n in nodes
        )

    def restarts(self, nodes: list[Node]) -> bool:
        """Whether an operator begins inputs again, and no other one may repeat what it gives."""
        inside = any([self.restarts(chain) for node in nodes for chain in node.inputs])
        here = any(restarts(node) for node in nodes)
        if inside and here or (inside or here) and any(node.name == "repeat" for node in nodes):
            raise PlanError("passes of a mix that begins inputs again")
        return inside or here

    def mark_counting(self, nodes: list[Node]) -> None:
        if self.stream and (
            any(n.name in ("repeat", *JOINS) for n in nodes) or sum(n.name == "shuffle" for n in nodes) > 1
        ):
            raise PlanError("repeat, concat, mix or a second shuffle of a stream")
        if self.stream and self.on_error == "replace":
            raise PlanError("a stream with on_error replace")
        if self.stream and any(n.name == "shuffle" and n.attrs["by"] == "chunk" for n in nodes):
            raise PlanError("shuffle by chunk of a stream")
        if any(n.name == "shuffle" and (n.attrs["window"] > 0) != self.stream for n in nodes):
            raise PlanError("a window where the count is known, or none behind a stream")
        for i, node in enumerate(nodes):
            for chain in node.inputs:
                self.mark_counting(chain)
            if node.name in COUNTING:
                node.counting = not self.count_known(nodes[:i])
            if node.name == "take_while":
                node.counting = True
            if node.name == "pack" and (self.stream or self.any_counting(nodes[:i])):
                raise PlanError("pack of a stream, or after an operator that counts")
            if node.name == "shuffle" and self.any_counting(nodes[:i]):
                raise PlanError("shuffle after an operator that counts")
            if (
                node.name == "shuffle"
                and not self.stream
                and node.attrs["seed"] >= 0
                and not self.record_by_record(node, nodes[:i])
            ):
                raise PlanError("a shuffle by chunk with a seed of its own")

    def shuffles_before_endless_repeat(self, nodes: list[Node]) -> list[Node]:
        """Each shuffle whose input is endless is moved before the repeat that makes it so."""
        moved: list[Node] = []
        for node in nodes:
            node.inputs = [self.shuffles_before_endless_repeat(c) for c in node.inputs]
            at = len(moved)
            if node.name == "shuffle" and self.count(moved) == math.inf:
                at = next(
                    (i for i, n in enumerate(moved) if n.name == "repeat" and n.attrs["count"] == -1), -1
                )
                if at < 0:
                    raise PlanError("shuffle after a concat with an endless input")
            moved.insert(at, node)
        return moved

    def any_counting(self, nodes: list[Node]) -> bool:
        return any(n.counting or any(self.any_counting(c) for c in n.inputs) for n in nodes)

    def index_after_batcher(self, nodes: list[Node]) -> None:
        """Where each batch is known, operators on batches move positions; else they count the batches that
        arrive.
        """
        size = self.batch_size
        if not self.known or self.batcher.name in KEYED:
            if any(node.name not in ("take", "skip") for node in nodes):
                raise PlanError("only take and skip may follow a batcher where the count is unknown")
            group = self.batcher.attrs.get("group", 1) if self.batcher else 1
            if any(node.name == "skip" and node.attrs["count"] % group for node in nodes):
                raise PlanError("a skip of a part of a group")
            self.after = nodes
            return
        for node in nodes:
            if node.name == "repeat":
                n = self.count(self.chain)
                if self.batcher.attrs["drop_remainder"] and n != math.inf:
                    self.chain.append(Node("take", {"count": n // size * size}))
                elif n != math.inf and n % size:
                    raise PlanError("repeat after a batch that may be short")
                self.chain.append(node)
            else:
                self.chain.append(Node(node.name, {"count": node.attrs["count"] * size}))

    def leaves(self, nodes: list[Node]) -> list[int]:
        return [n.leaf for n in nodes if n.leaf >= 0] + [
            leaf for n in nodes for c in n.inputs for leaf in self.leaves(c)
        ]

    def route(self, nodes: list[Node], leaf: int) -> list[Node]:
        """The operators a source's records pass, in order."""
        path = []
        for node in nodes:
            for chain in node.inputs:
                if leaf in self.leaves(chain):
                    path += self.route(chain, leaf)
                    path += [PASSES] if restarts(node) else []
            if node.name in ("repeat", "take", "skip") or node.bound:
                path.append(node)
        return path

    def count(self, nodes: list[Node]) -> float | int:
        """Positions after the nodes; takes and skips that count don't change it."""
        n: float | int = 0
        for node in nodes:
            if node.leaf >= 0:
                n = len(self.sources[node.leaf].records)
            elif node.name in ("concat", "interleave"):
                n = sum(self.count(c) for c in node.inputs)
            elif node.name == "mix":
                inputs = [self.count(c) for c in node.inputs]
                n = mixed.length(tuple(node.attrs["weights"]), node.attrs["stop"], inputs)
            elif node.name == "take" and not node.counting:
                n = min(n, node.attrs["count"])
            elif node.name == "skip" and not node.counting:
                n = max(0, n - node.attrs["count"])
            elif node.name == "repeat" and n:
                n = math.inf if node.attrs["count"] == -1 else n * node.attrs["count"]
        return n

    # ---- the sequence ----

    def chunks(
        self, nodes: list[Node], passes: list[tuple[int, int]], seed: int, epoch: int
    ) -> Iterator[list[Position]]:
        """The sequence in chunks. `passes` are (pass, count) of the repeats after the nodes, innermost
        first.
        """
        node, before = nodes[-1], nodes[:-1]
        if node.leaf >= 0:
            row = 0
            for length in self.sources[node.leaf].chunk_lengths:
                yield [Position(node.leaf, r) for r in range(row, row + length)]
                row += length
        elif node.name == "concat":
            for chain in node.inputs:
                yield from self.chunks(chain, passes, seed, epoch)
        elif node.name == "mix":
            inputs = [self.mixed_input(node, chain, passes, seed, epoch) for chain in node.inputs]
            turns = mixed.order(tuple(node.attrs["weights"])).items()
            left = self.count([node])
            while left > 0:
                size = min(left, ORDERED_CHUNK)
                yield [next(inputs[i]) for i in islice(turns, size)]
                left -= size
        elif node.name == "interleave":
            yield from grouped(self.interleaved(node, passes, seed, epoch), ORDERED_CHUNK)
        elif node.name == "repeat" and self.count(before) > 0:
            count = node.attrs["count"]
            k = 0
            while count == -1 or k < count:
                for chunk in self.chunks(before, [(k, count), *passes], seed, epoch):
                    yield [replace(p, ordinals=(*p.ordinals, k)) for p in chunk]
                k += 1
        elif node.name == "shuffle" and self.stream:
            yield from self.shuffled_stream(node, before, seed, epoch)
        elif node.name == "shuffle":
            yield from self.shuffled(node, before, passes, seed, epoch)
        elif node.name in ("take", "skip") and not node.counting:
            at, n = 0, node.attrs["count"]
            for chunk in self.chunks(before, passes, seed, epoch):
                cut = chunk[: max(0, n - at)] if node.name == "take" else chunk[max(0, n - at) :]
                at += len(chunk)
                if cut:
                    yield cut
                if node.name == "take" and at >= n:
                    return
        elif node.name == "enumerate" and not node.counting:
            at = 0
            for chunk in self.chunks(before, passes, seed, epoch):
                yield [replace(p, places=(*p.places, (node.salt, at + i))) for i, p in enumerate(chunk)]
                at += len(chunk)
        elif node.name != "repeat":
            yield from self.chunks(before, passes, seed, epoch)

    def interleaved(self, node: Node, passes: list, seed: int, epoch: int) -> Iterator[Position]:
        inputs = [
            (p for chunk in self.chunks(chain, passes, seed, epoch) for p in chunk) for chain in node.inputs
        ]
        while inputs:
            left = []
            for positions in inputs:
                block = list(islice(positions, node.attrs["block_length"]))
                yield from block
                left += [positions] if len(block) == node.attrs["block_length"] else []
            inputs = left

    def mixed_input(
        self, node: Node, chain: list[Node], passes: list, seed: int, epoch: int
    ) -> Iterator[Position]:
        """The positions of an input of `mix`."""
        if not restarts(node):
            for chunk in self.chunks(chain, passes, seed, epoch):
                yield from chunk
            return
        for k in range(1 << 32):
            for chunk in self.chunks(chain, [(k, -1)], seed, epoch):
                for p in chunk:
                    yield replace(p, ordinals=(*p.ordinals, k))

    def shuffled(
        self, node: Node, before: list[Node], passes: list, seed: int, epoch: int
    ) -> Iterator[list[Position]]:
        p, run_seed = 0, seed
        for ordinal, count in reversed(passes):
            p = ordinal + count * p
        seed, epoch_of_order, salt, p = self.draw_of(node, seed, epoch, p)
        chunks = list(self.chunks(before, passes, run_seed, epoch))
        key = philox.shuffle_key(seed, epoch_of_order, salt, p, 0, 0)
        if self.record_by_record(node, before):
            positions = [position for chunk in chunks for position in chunk]
            positions = [positions[k] for k in philox.permutation(key, len(positions))]
            for at in range(0, len(positions), ORDERED_CHUNK):
                yield positions[at : at + ORDERED_CHUNK]
            return
        sizes = [len(chunk) for chunk in chunks]
        order = philox.table(key, len(chunks))
        positions = [position for k in order for position in chunks[k]]
        shuffled = []
        for w in range(0, len(positions), self.window_size):
            window = positions[w : w + self.window_size]
            key = philox.shuffle_key(seed, epoch_of_order, salt, p, 1, w // self.window_size)
            shuffled += [window[k] for k in philox.table(key, len(window))]
        at = 0
        for size in sizes:
            yield shuffled[at : at + size]
            at += size

    @staticmethod
    def draw_of(node: Node, seed: int, epoch: int, p: int) -> tuple[int, int, str, int]:
        """The seed, the epoch, the salt and the pass of a shuffle's key."""
        epoch = epoch if node.attrs["reshuffle"] else 0
        if node.attrs["seed"] < 0:
            return seed, epoch, node.salt, p
        return node.attrs["seed"], epoch, "shuffle", p if node.attrs["reshuffle"] else 0

    def shuffled_stream(
        self, node: Node, before: list[Node], seed: int, epoch: int
    ) -> Iterator[list[Position]]:
        """Just the windows: what is not there yet can't be permuted."""
        positions = [p for chunk in self.chunks(before, [], seed, epoch) for p in chunk]
        seed, epoch_of_order, salt, _ = self.draw_of(node, seed, epoch, 0)
        for at in range(0, len(positions), self.window_size):
            window = positions[at : at + self.window_size]
            key = philox.shuffle_key(seed, epoch_of_order, salt, 0, 1, at // self.window_size)
            yield [window[k] for k in philox.table(key, len(window))]

    def record_by_record(self, node: Node, before: list[Node]) -> bool:
        below = [self.sources[leaf] for leaf in self.leaves(before)]
        if all(s.one_file_per_record for s in below):
            return True
        return all(s.random_access for s in below) and node.attrs["by"] == "record"

    def compute_window_size(self) -> int:
        """Positions of a window of a shuffle by chunk, or of a stream's shuffle."""
        if self.stream:
            return max((n.attrs["window"] for n in self.chain if n.name == "shuffle"), default=1)
        total = sum(s.source_bytes() for s in self.sources)
        records = sum(len(s.records) for s in self.sources)
        record = -(-total // max(1, records))
        limit = min(WINDOW_POSITIONS, WINDOW_BYTES // max(1, record))
        return max(limit // self.batch_size * self.batch_size, self.batch_size)

    # ---- an epoch ----

    def groups(self, seed: int, epoch: int) -> Iterator[list[tuple[Position, Window]]]:
        """The positions that are packed together; one by one where there is no `pack`."""
        positions = self.positions(seed, epoch)
        while group := list(islice(positions, self.group)):
            yield group

    def positions(self, seed: int, epoch: int) -> Iterator[tuple[Position, Window]]:
        """The positions of an epoch, each with the window from which it is replaced if it fails."""
        sequence = Sequence(p for chunk in self.chunks(self.chain, [], seed, epoch) for p in chunk)
        at = 0
        while sequence.reach(at + 1) > at:
            yield sequence.known[at], Window(sequence, at // REPLACE_POSITIONS * REPLACE_POSITIONS)
            at += 1
        for source in self.sources:
            if source.stream and source.broken:
                raise source.broken


class Sequence:
    """The positions of an epoch, taken as they are asked for: an endless one need not be known far ahead."""

    def __init__(self, positions: Iterator[Position]):
        self.positions = positions
        self.known: list[Position] = []

    def reach(self, n: int) -> int:
        """How many of the first n positions there are."""
        if n > len(self.known):
            self.known += islice(self.positions, n - len(self.known))
        return min(n, len(self.known))


class Window:
    """Up to REPLACE_POSITIONS positions of a sequence from `begin` on."""

    def __init__(self, sequence: Sequence, begin: int):
        self.sequence = sequence
        self.begin = begin

    def __len__(self) -> int:
        return self.sequence.reach(self.begin + REPLACE_POSITIONS) - self.begin

    def __getitem__(self, at: int) -> Position:
        return self.sequence.known[self.begin + at]
