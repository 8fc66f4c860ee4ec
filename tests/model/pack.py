"""`pack`: rows of a fixed length from sequences of tokens, window by window."""

from __future__ import annotations

import numpy as np

from .dtypes import INTEGERS, PlanError, RecordError, Type, Value, storage

Row = list[tuple[int, int, int]]  # token, number of its segment, position in the segment


def append_segment(row: Row, tokens: list[int]) -> None:
    number = row[-1][1] + 1 if row else 1
    row += [(token, number, at) for at, token in enumerate(tokens)]


class Pack:
    """Attributes and types of the operator; `check` sees one element, `rows` those of a window."""

    def __init__(self, attrs: dict, types: dict[str, Type]):
        self.component, self.length, self.split = attrs["component"], attrs["length"], attrs["split"]
        separator = attrs["separator"]
        self.separator = separator if isinstance(separator, list) else [separator]
        self.pad = attrs["pad"]
        self.algorithm, self.bins = attrs["algorithm"], attrs["bins"]
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
        fill = self.next_rows if self.algorithm == "next" else self.fitted_rows
        return [self.components(row) for row in fill(sequences)]

    def next_rows(self, sequences: list[list[int]]) -> list[Row]:
        rows: list[Row] = []
        for tokens in sequences:
            while tokens:
                if not rows or len(rows[-1]) == self.length:
                    rows.append([])
                free = self.length - len(rows[-1])
                if not self.split and len(tokens) > free:
                    rows.append([])
                    free = self.length
                append_segment(rows[-1], tokens[:free])
                tokens = tokens[free:]
        return rows

    def fitted_rows(self, sequences: list[list[int]]) -> list[Row]:
        rows: list[Row] = []
        bins: list[Row] = []
        for tokens in sequences:
            for at in range(0, len(tokens), self.length):
                piece = tokens[at : at + self.length]
                fitting = [row for row in bins if len(row) + len(piece) <= self.length]
                if fitting:
                    row = max(fitting, key=len) if self.algorithm == "best_fit" else fitting[0]
                else:
                    rows.append(row := [])
                append_segment(row, piece)
                bins = [bin_ for bin_ in bins if len(bin_) < self.length]
                if not fitting and len(row) < self.length:
                    if len(bins) == self.bins:
                        fullest = max(bins, key=len)
                        bins = [bin_ for bin_ in bins if bin_ is not fullest]
                    bins.append(row)
        return rows

    def components(self, row: Row) -> dict[str, Value]:
        row = row + [(self.pad, 0, 0)] * (self.length - len(row))
        tokens, segments, positions = zip(*row)
        return {
            self.component: Value(self.dtype, np.array(tokens, dtype=storage(self.dtype))),
            "segment_ids": Value("int32", np.array(segments, dtype=np.int32)),
            "positions": Value("int32", np.array(positions, dtype=np.int32)),
        }
