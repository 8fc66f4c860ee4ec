"""`zip`: a source whose record i is made of element i of each input."""

from __future__ import annotations

from itertools import islice
from math import inf
from pathlib import Path

from . import needs, philox
from .dtypes import PlanError, Value
from .sources import CHUNK_RECORDS, Record, Source


class Zipped(Source):
    """`inputs` is a plan whose chain is a list of chains, each with one source."""

    def __init__(self, node, base: Path, inputs):
        self.inputs, self.chains = inputs, node.inputs
        for k, chain in enumerate(self.chains):
            if chain[0].inputs or not inputs.count_known(chain):
                raise PlanError(f"zip: input {k} is no source with an index, index operators and maps")
            if any(n.name == "enumerate" for n in chain):
                raise PlanError(f"zip: input {k} has an enumerate")
            if any(n.name in ("autocache", "cache") for n in chain):
                raise PlanError(f"zip: input {k} has a cache point")
        self.types, self.types_of = {}, []
        for chain in self.chains:
            types = inputs.bind(chain, None)
            if twice := self.types.keys() & types.keys():
                raise PlanError(f"zip: {twice} in two inputs")
            self.types |= types
            self.types_of.append(types)
        inputs.mark_counting_all(self.chains)
        self.chains = [inputs.shuffles_before_endless_repeat(chain) for chain in self.chains]
        self.random_access = all(s.random_access for s in inputs.sources)
        self.n = min(inputs.count(chain) for chain in self.chains)
        if self.n == inf:
            raise PlanError("zip: all inputs are endless, which this model does not do")
        key = philox.hash64(node.salt.encode())
        self.records, self.chunk_lengths = [Record(key, i, 0, i) for i in range(self.n)], []
        for at in range(0, self.n, CHUNK_RECORDS):
            self.chunk_lengths.append(min(CHUNK_RECORDS, self.n - at))
        self.positions: dict[tuple, list[list]] = {}  # by seed, epoch and passes: of each input
        self.routes: list[list] | None = None

    def source_bytes(self) -> int:
        return sum(s.source_bytes() for s in self.inputs.sources)

    def nodes(self) -> list:
        return [node for chain in self.chains for node in chain]

    def prune(self) -> None:
        """Leaves out of the inputs what nobody needs."""
        self.routes = []
        for leaf, chain in enumerate(self.chains):
            source = self.inputs.sources[leaf]
            needed = self.needed & self.types_of[leaf].keys()
            route, source.needed = needs.prune(self.inputs.route(chain, leaf), set(source.types), needed)
            self.routes.append(route)

    def zipped(
        self, row: int, passes: list[tuple[int, int]], seed: int, epoch: int, draw
    ) -> dict[str, Value]:
        """draw(node): the draws of the element for a node."""
        key = seed, epoch, tuple(passes)
        if key not in self.positions:
            self.positions[key] = [
                list(islice((p for c in self.inputs.chunks(chain, passes, seed, epoch) for p in c), self.n))
                for chain in self.chains
            ]
        components: dict[str, Value] = {}
        for leaf, route in enumerate(self.routes):
            position = self.positions[key][leaf][row]
            source = self.inputs.sources[position.leaf]
            mine = source.element(source.records[position.row])
            for node in route:
                if node.bound:
                    mine = node.bound.apply(mine, draw(node))
            components |= mine
        return components
