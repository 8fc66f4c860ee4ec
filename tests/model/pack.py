"""`pack`: rows of a fixed length from sequences of tokens, window by window."""

from __future__ import annotations

import numpy as np

from .dtypes import INTEGERS, PlanError, RecordError, Type, Value, storage


class Pack:
    """Attributes and types of the operator; `check` sees one element, `rows` those of a window."""

    def __init__(self, attrs: dict, types: dict[str, Type]):
        self.component, self.length, self.split = attrs["component"], attrs["length"], attrs["split"]
        separator = attrs["separator"]
        self.separator = separator if isinstance(separator, list) else [separator]
        self.pad = attrs["pad"]
        if self.component not in types or self.component in ("segment_ids", "positions"):
            raise PlanError(f"pack: component {self.component}")
        type_ = types[self.component]
        if type_.dtype not in INTEGERS or type_.dims is not None and len(type_.dims) != 1:
            raise PlanError(f"pack: {self.component} is no sequence of integers")
        self.dtype = type_.dtype
        info = np.iinfo(storage(self.dtype))
        if any(not info.min <= token <= info.max for token in [self.pad, *self.separator]):
            raise PlanError("pack: pad or separator is beyond the dtype")
        numbers = Type("int32", (self.length,))
        self.types = {
            self.component: Type(self.dtype, (self.length,)),
            "segment_ids": numbers,
            "positions": numbers,
        }

    def check(self, components: dict[str, Value]) -> list[int]:
        """The tokens of an element, with the separator."""
        data = components[self.component].data
        if data.ndim != 1:
            raise RecordError(f"pack: {self.component} has {data.ndim} dimensions")
        tokens = [*data.tolist(), *self.separator]
        if not self.split and len(tokens) > self.length:
            raise RecordError(f"pack: {self.component} has {len(tokens)} tokens")
        return tokens

    def rows(self, sequences: list[list[int]]) -> list[dict[str, Value]]:
        rows: list[list[tuple[int, int, int]]] = []
        for tokens in sequences:
            while tokens:
                if not rows or len(rows[-1]) == self.length:
                    rows.append([])
                free = self.length - len(rows[-1])
                if not self.split and len(tokens) > free:
                    rows.append([])
                    free = self.length
                segment = rows[-1][-1][1] + 1 if rows[-1] else 1
                rows[-1] += [(token, segment, at) for at, token in enumerate(tokens[:free])]
                tokens = tokens[free:]
        return [self.components(row) for row in rows]

    def components(self, row: list[tuple[int, int, int]]) -> dict[str, Value]:
        row = row + [(self.pad, 0, 0)] * (self.length - len(row))
        tokens, segments, positions = zip(*row)
        return {
            self.component: Value(self.dtype, np.array(tokens, dtype=storage(self.dtype))),
            "segment_ids": Value("int32", np.array(segments, dtype=np.int32)),
            "positions": Value("int32", np.array(positions, dtype=np.int32)),
        }
