"""Python functions for random pipelines: deterministic, of many types, and some of them fail. Hosts import
them from here, the model calls them itself.

Each is an object with `kind`, the operator that it is for; `of(rng, types)` makes one that applies to the
components, or None; `outputs(types)` says what it gives.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from dataclasses import dataclass

import numpy as np

from .dtypes import FLOATS, INTEGERS, Type

Types = dict[str, Type]
NARROW = ("float16", "bfloat16", "bool")  # of which some values are nothing to calculate with


def integers(types: Types) -> list[str]:
    return [n for n, t in types.items() if t.dtype in INTEGERS and t.dims == ()]


def numbers(types: Types) -> list[str]:
    return [n for n, t in types.items() if t.dtype in (*INTEGERS, *FLOATS) and t.dtype not in NARROW]


def arrays(types: Types) -> list[str]:
    return [n for n, t in types.items() if t.dtype != "bytes" and t.dims]


def strings(types: Types) -> list[str]:
    return [n for n, t in types.items() if t.dtype == "bytes"]


def pick(rng: random.Random, names: list[str]) -> str | None:
    return rng.choice(names) if names else None


def later(function):
    """The same as an `async def` function."""
    return (LaterDrawn if "rng" in inspect.signature(function).parameters else Later)(function)


class OfComponent:
    """Functions with one component that they look at and a number that says how."""

    kind = "map"
    applies = staticmethod(integers)

    def __init__(self, component: str, number: int):
        self.component, self.number = component, number

    @classmethod
    def of(cls, rng: random.Random, types: Types):
        component = pick(rng, cls.applies(types))
        return component and cls(component, rng.randint(2, 7))


class Later:
    """An `async def` function that gives what another function gives, some of it a moment later."""

    def __init__(self, function):
        self.function = function

    def outputs(self, types: Types) -> Types:
        return self.function.outputs(types)

    async def __call__(self, element):
        await asyncio.sleep(len(element) % 2 * 0.001)
        return self.function(element)


class LaterDrawn(Later):
    async def __call__(self, element, rng):
        await asyncio.sleep(0)
        return self.function(element, rng=rng)


# ---- map ----


class Scale(OfComponent):
    applies = staticmethod(numbers)

    def outputs(self, types: Types) -> Types:
        return types

    def __call__(self, element):
        with np.errstate(all="ignore"):
            return {**element, self.component: element[self.component] * self.number}


class Scribble(OfComponent):
    """Writes to what it is given, and gives back an array that it was given."""

    applies = staticmethod(arrays)

    def outputs(self, types: Types) -> Types:
        return types

    def __call__(self, element):
        array = element[self.component]
        array[:1] = 0
        return dict(element)


class Ragged(OfComponent):
    """Shapes and strings that vary, one of them with a rank that does."""

    def outputs(self, types: Types) -> Types:
        ragged = {
            "list": Type("int32", (None,)),
            "table": Type("float32", (None, 2)),
            "text": Type("bytes"),
            "any": Type("uint8", None),
        }
        return {self.component: types[self.component], **ragged}

    def __call__(self, element):
        value = element[self.component]
        n = int(value) % self.number
        return {
            self.component: value,
            "list": np.arange(n, dtype=np.int32),
            "table": np.full((n % 3, 2), n, np.float32),
            "text": "é" * n,
            "any": np.zeros((2,) * (n % 3), np.uint8),
        }


class Plain(OfComponent):
    """Python's own numbers, which become of the declared dtypes if they fit."""

    def outputs(self, types: Types) -> Types:
        return {
            "whole": Type("int64"),
            "part": Type("float64"),
            "small": Type("float32"),
            "truth": Type("bool"),
            "byte": Type("uint8"),
        }

    def __call__(self, element):
        value = int(element[self.component]) % 1000
        return {
            "whole": -value,
            "part": value / 8,
            "small": value,
            "truth": value % self.number == 0,
            "byte": value % (240 + self.number),
        }


class Noise(OfComponent):
    applies = staticmethod(list)

    def outputs(self, types: Types) -> Types:
        return {**types, "noise": Type("float64", (self.number,)), "die": Type("int64")}

    def __call__(self, element, rng):
        return {**element, "noise": rng.random(self.number), "die": rng.integers(6)}


class Raise(OfComponent):
    def outputs(self, types: Types) -> Types:
        return types

    def __call__(self, element):
        if int(element[self.component]) % (3 * self.number) == 1:
            raise ValueError(f"I don't like {element[self.component]}")
        return element


class Wrong(OfComponent):
    """Another dtype, shape or component than it declares, for some elements."""

    def outputs(self, types: Types) -> Types:
        return {
            self.component: types[self.component],
            "pair": Type("int64", (2,)),
            "name": Type("bytes"),
            "byte": Type("uint8"),
        }

    def __call__(self, element):
        value = element[self.component]
        right = {self.component: value, "pair": np.array([value, 1], np.int64), "name": b"right", "byte": 255}
        wrong = {
            0: {"pair": np.array([value, 1], np.int32)},
            1: {"pair": np.zeros(3, np.int64)},
            2: {"more": 1},
            3: {"name": 1},
            4: {"pair": [None, 1]},
            5: {"byte": 256},
            6: {"byte": 1.0},
        }
        return {**right, **wrong.get(int(value) % (7 * self.number), {})}


class Encode(OfComponent):
    applies = staticmethod(arrays)

    def outputs(self, types: Types) -> Types:
        return {**types, "raw": Type("bytes"), "size": Type("int64")}

    def __call__(self, element):
        raw = np.ascontiguousarray(element[self.component]).tobytes()
        return {**element, "raw": memoryview(raw), "size": len(raw)}


class Head(OfComponent):
    applies = staticmethod(strings)

    def outputs(self, types: Types) -> Types:
        return {
            self.component: types[self.component],
            "head": Type("bytes"),
            "length": Type("int32"),
            "codes": Type("uint8", (None,)),
        }

    def __call__(self, element):
        data = element[self.component]
        head = data[: self.number]
        return {
            self.component: data,
            "head": bytearray(head),
            "length": np.int32(len(data)),
            "codes": np.frombuffer(head, np.uint8),
        }


# ---- filter_function ----


class Every(OfComponent):
    kind = "filter_function"

    def __call__(self, element):
        return element[self.component] % self.number  # true or not, as numbers are


class Coin(OfComponent):
    kind = "filter_function"
    applies = staticmethod(list)

    def __call__(self, element, rng):
        return rng.random() < 0.7


class Ambiguous(OfComponent):
    """The truth of an array of several values is an error."""

    kind = "filter_function"
    applies = staticmethod(arrays)

    def __call__(self, element):
        return element[self.component] != 0 if element[self.component].size % self.number == 0 else "yes"


# ---- flat_map ----


class Pieces(OfComponent):
    kind = "flat_map"

    def outputs(self, types: Types) -> Types:
        return {**types, "piece": Type("int32")}

    def __call__(self, element):
        for i in range(int(element[self.component]) % self.number):
            yield {**element, "piece": np.int32(i)}


class Copies(OfComponent):
    """Elements drawn from one stream of random numbers."""

    kind = "flat_map"
    applies = staticmethod(list)

    def outputs(self, types: Types) -> Types:
        return {**types, "drawn": Type("float32", (2,))}

    def __call__(self, element, rng):
        return [{**element, "drawn": rng.random(2, np.float32)} for _ in range(rng.integers(4))]


class Rows(OfComponent):
    """The rows of an array; where it has none, the element is gone."""

    kind = "flat_map"

    @staticmethod
    def applies(types: Types) -> list[str]:
        return [n for n in arrays(types) if types[n].dims[0] is None or types[n].dims[0] <= 30]

    def outputs(self, types: Types) -> Types:
        type_ = types[self.component]
        return {"row": Type(type_.dtype, type_.dims[1:]), "at": Type("int64")}

    def __call__(self, element):
        return [{"row": row, "at": i} for i, row in enumerate(element[self.component][: self.number])]


class RaiseLater(OfComponent):
    """Some elements fail after having given others: nothing is left of them."""

    kind = "flat_map"

    def outputs(self, types: Types) -> Types:
        return types

    def __call__(self, element):
        yield element
        if int(element[self.component]) % (2 * self.number) == 1:
            raise KeyError("half-way")
        yield element


# ---- map_batches ----


class Permute(OfComponent):
    kind = "map_batches"
    applies = staticmethod(list)

    def outputs(self, types: Types) -> Types:
        return types

    def __call__(self, batch, rng):
        order = rng.permutation(len(batch[self.component]))
        return {
            n: v[order] if isinstance(v, np.ndarray) else [v[int(i)] for i in order] for n, v in batch.items()
        }


class Total(OfComponent):
    kind = "map_batches"

    def outputs(self, types: Types) -> Types:
        return {self.component: types[self.component], "total": Type("int64"), "text": Type("bytes")}

    def __call__(self, batch):
        values = batch[self.component]
        with np.errstate(all="ignore"):
            total = values.astype(np.int64).sum()
        return {
            self.component: values,
            "total": np.full(len(values), total),
            "text": [b"%d" % (v % self.number) for v in values.tolist()],
        }


class Flatten(OfComponent):
    """Another shape, and one that varies from batch to batch."""

    kind = "map_batches"

    @staticmethod
    def applies(types: Types) -> list[str]:
        return [n for n in arrays(types) if types[n].fixed() and types[n].size()]

    def outputs(self, types: Types) -> Types:
        return {"flat": Type(types[self.component].dtype, (None,)), "rows": Type("uint16", (None, 1))}

    def __call__(self, batch):
        values = batch[self.component]
        n = len(values)
        return {
            "flat": values.reshape(n, -1 if n else 1),
            "rows": np.full((n, n % self.number, 1), n, np.uint16),
        }


class RaiseBatch(OfComponent):
    kind = "map_batches"

    def outputs(self, types: Types) -> Types:
        return types

    def __call__(self, batch):
        if int(batch[self.component].astype(np.int64)[:1].sum()) % (20 * self.number) == 9:
            raise RuntimeError("not this batch")
        return batch


# ---- iterable ----


@dataclass
class Stream:
    """n elements; one in `wrong` is not as declared, and after `broken` of them comes an exception (0:
    never).
    """

    n: int
    wrong: int = 0
    broken: int = 0

    kind = "iterable"

    @classmethod
    def of(cls, rng: random.Random, damaged: bool):
        n = rng.choice([0, rng.randint(1, 60), rng.randint(60, 900)])
        return cls(
            n,
            rng.randint(5, 50) if damaged else 0,
            rng.randint(1, n + 1) if n and damaged and rng.random() < 0.3 else 0,
        )

    def outputs(self) -> Types:
        return {
            "id": Type("int64"),
            "label": Type("uint8"),
            "list": Type("float32", (None,)),
            "text": Type("bytes"),
        }

    def __call__(self):
        for i in range(self.n):
            if self.broken and i >= self.broken:
                raise OSError("the tap is dry")
            wrong = self.wrong and i % self.wrong == 1
            yield {
                "id": i * 7 % 100,
                "label": np.uint8(i % 11),
                "list": np.full(i % 4, i, np.float32),
                "text": i if wrong else b"t" * (i % 5),
            }


FUNCTIONS = {
    "map": (Scale, Scribble, Ragged, Plain, Noise, Encode, Head),
    "filter_function": (Every, Coin),
    "flat_map": (Pieces, Copies, Rows),
    "map_batches": (Permute, Total, Flatten),
}
THAT_FAIL = {
    "map": (Raise, Wrong),
    "filter_function": (Ambiguous,),
    "flat_map": (RaiseLater,),
    "map_batches": (RaiseBatch,),
}
