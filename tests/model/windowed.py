"""`window`: a source whose record w is made of several elements of its input."""

from __future__ import annotations

from itertools import islice
from math import ceil
from pathlib import Path

import numpy as np

from . import philox
from .dtypes import PlanError, RecordError, Type, Value
from .sources import CHUNK_RECORDS, Record
from .zipped import Zipped


class Windowed(Zipped):
    """`inputs` is a plan whose chain is a list of one chain."""

    def __init__(self, node, base: Path, inputs):
        self.attrs = attrs = node.attrs
        self.size, self.stride = attrs["size"], attrs["stride"]
        self.shift = attrs["shift"] or self.size
        super().__init__(node, base, inputs)
        if any(source.stream for source in inputs.sources):
            raise PlanError("window behind a stream")
        components = attrs["components"]
        components = components if isinstance(components, list) else [components]
        if not set(components) <= set(self.types):
            raise PlanError("window: a component that does not exist")
        self.covered = set(components or self.types)
        self.n_elements = self.n
        span = (self.size - 1) * self.stride + 1 if attrs["drop_remainder"] else 1
        self.n = max(0, (self.n_elements - span) // self.shift + 1) if self.n_elements else 0
        key = philox.hash64(node.salt.encode())
        self.records = [Record(key, i, 0, i) for i in range(self.n)]
        self.chunk_lengths = [min(CHUNK_RECORDS, self.n - i) for i in range(0, self.n, CHUNK_RECORDS)]
        for name in self.covered:
            type_ = self.types[name]
            if type_.dtype == "bytes" or len(type_.dims or ()) == 6:
                raise PlanError(f"window: {name} can't get one more dimension")
            first = self.size if attrs["drop_remainder"] else None
            dims = None if type_.dims is None else (first, *type_.dims)
            self.types[name] = Type(type_.dtype, dims)

    def source_bytes(self) -> int:
        source = self.inputs.sources[0]
        records = max(1, len(source.records))
        return self.n * self.size * ceil(source.source_bytes() / records)

    def zipped(
        self, row: int, passes: list[tuple[int, int]], seed: int, epoch: int, draw
    ) -> dict[str, Value]:
        key = seed, epoch, tuple(passes)
        if key not in self.positions:
            chunks = self.inputs.chunks(self.chains[0], passes, seed, epoch)
            self.positions[key] = [list(islice((p for c in chunks for p in c), self.n_elements))]
        positions = self.positions[key][0][row * self.shift :: self.stride][: self.size]
        elements = []
        for i, position in enumerate(positions):
            source = self.inputs.sources[position.leaf]
            if isinstance(source, Zipped):
                raise PlanError("window of zip, which this model does not do")
            element = source.element(source.records[position.row])
            for node in self.routes[0]:
                if node.bound:
                    element = node.bound.apply(element, draw(node, (i,)))
            elements.append(element)
        return {name: self.join(name, [e[name] for e in elements]) for name in sorted(self.needed)}

    def join(self, name: str, values: list[Value]) -> Value:
        if name not in self.covered:
            return values[0]
        if len({v.shape for v in values}) > 1:
            raise RecordError(f"window: {name} differs in shape")
        if len(values[0].shape) == 6:
            raise RecordError(f"window: {name} has too many dimensions")
        return Value(values[0].dtype, np.stack([np.asarray(v.data) for v in values]))
