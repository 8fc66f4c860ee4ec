"""Random expressions over typed components. Some are illegal (a literal that does not fit a dtype, say):
Plan refuses them.
"""

from __future__ import annotations

import random

from .dtypes import FLOATS, INTEGERS, Type

WORDS = ("and", "or", "not", "in", "true", "false", "True", "False")
CASTS = ("bool", *INTEGERS, *FLOATS)


def quoted(name: str) -> str:
    return name if name.isidentifier() and name not in WORDS else f"`{name}`"


def scalars(types: dict[str, Type]) -> list[str]:
    return [n for n, t in types.items() if t.dims == () and t.dtype != "bytes"]


def arrays(types: dict[str, Type]) -> list[str]:
    return [n for n, t in types.items() if t.dims and t.dtype != "bytes"]


def strings(types: dict[str, Type]) -> list[str]:
    return [n for n, t in types.items() if t.dtype == "bytes"]


def measurable(types: dict[str, Type]) -> list[str]:
    """Components that have a length."""
    return strings(types) + arrays(types)


class Writer:
    """Writes expressions; `array` is the component that makes them arrays, or None for scalars."""

    def __init__(self, rng: random.Random, types: dict[str, Type], array: str | None = None):
        self.rng = rng
        self.types = types
        self.array = array

    def literal(self) -> str:
        return self.rng.choice(
            ["0", "1", "2", "3", "7", "0.5", "2.25", "100", "1e-3", "0x1f", "1_000", "True", "-1", "1e30"]
        )

    def strong(self) -> str:
        """Something with a dtype of its own."""
        if self.array and self.rng.random() < 0.7:
            return quoted(self.array)
        if scalars(self.types) and self.rng.random() < 0.8:
            return quoted(self.rng.choice(scalars(self.types)))
        dtype = self.rng.choice(["int64", "float32", "float64", "uint8", "bfloat16"])
        return f"{dtype}({self.rng.randint(0, 9)})"

    def number(self, depth: int = 2) -> str:
        rng = self.rng
        choices = ["literal", "strong", "strong", "strong"]
        choices += (
            ["binary", "binary", "binary", "call", "call", "unary", "where", "cast", "bits"] if depth else []
        )
        choices += ["length"] if measurable(self.types) else []
        fixed = [n for n in arrays(self.types) if self.types[n].fixed()]
        choices += ["reduce"] if fixed else []
        choices += ["index", "hash"] if arrays(self.types) or strings(self.types) else []
        kind = rng.choice(choices)
        if kind == "literal":
            return self.literal()
        elif kind == "length":
            return f"length({quoted(rng.choice(measurable(self.types)))})"
        elif kind == "reduce":
            return f"{rng.choice(['min', 'max', 'sum', 'mean'])}({quoted(rng.choice(fixed))})"
        elif kind == "index":
            return self.index(arrays(self.types))
        elif kind == "hash":
            return f"hash({self.bytes() if strings(self.types) else self.strong()}) % {rng.randint(1, 99)}"
        elif kind == "unary":
            return f"{rng.choice(['-', '-', '+', '~'])}{self.strong()}"
        elif kind == "where":
            return f"where({self.truth(depth - 1)}, {self.number(depth - 1)}, {self.strong()})"
        elif kind == "cast":
            return f"{rng.choice(CASTS)}({self.number(depth - 1)} {rng.choice('+*')} {self.strong()})"
        elif kind == "call":
            return self.call(depth)
        elif kind == "bits":
            return f"({self.number(depth - 1)} {rng.choice(['&', '|', '^', '<<', '>>'])} {self.strong()})"
        elif kind == "binary":
            return self.binary(depth)
        return self.strong()

    def index(self, names: list[str]) -> str:
        """A value of an array, or a sum; an array too where that is wanted."""
        rng = self.rng
        known = [n for n in names if self.types[n].dims]
        if not known:
            return f"length({self.bytes()})"
        name = rng.choice(known)
        dims = self.types[name].dims
        if self.array and rng.random() < 0.5:
            name, dims = self.array, self.types[self.array].dims
        if self.array and rng.random() < 0.5:
            if rng.random() < 0.3:
                return (
                    f"{rng.choice(['sum', 'mean', 'min', 'max'])}({quoted(name)}, axis={rng.choice([0, -1])})"
                )
            items = [
                rng.choice([":", "1:", ":2", "-2:", "::2", "::-1"]) for _ in range(rng.randint(1, len(dims)))
            ]
            return f"{quoted(name)}[{', '.join(items)}]"
        items = [str(rng.choice([0, 0, -1, 1])) for _ in dims]
        if scalars(self.types) and rng.random() < 0.1:
            items[0] = f"{quoted(rng.choice(scalars(self.types)))} % 2"
        return f"{quoted(name)}[{', '.join(items)}]"

    def bytes(self) -> str:
        """A component of bytes, or bytes made of it."""
        rng, name = self.rng, quoted(self.rng.choice(strings(self.types)))
        return rng.choice([name, name, f"lower({name})", f"strip({name})", f"{name}[:2]", f"{name}[1:]"])

    def binary(self, depth: int) -> str:
        rng = self.rng
        op = rng.choice(["+", "-", "*", "/", "//", "%", "**"])
        left = self.number(depth - 1)
        if op == "**":
            return f"(({left} + 0) ** {rng.choice(['2', '3', '0.5', '2.5', f'float64({self.strong()})'])})"
        if op in ("//", "%") and rng.random() < 0.6:
            right = rng.choice(["2", "3", "7", "2.5", "-4", "0.3"])
        else:
            right = self.strong()
        return f"({left} {op} {right})" if rng.random() < 0.7 else f"({right} {op} ({left}))"

    def call(self, depth: int) -> str:
        name = self.rng.choice(["abs", "round", "floor", "ceil", "sqrt", "exp", "log", "min", "max"])
        if name in ("min", "max"):
            return f"{name}({self.number(depth - 1)}, {self.strong()})"
        return f"{name}({self.strong()} {self.rng.choice('+*-')} {self.number(depth - 1)})"

    def truth(self, depth: int = 2) -> str:
        rng, kind = self.rng, self.rng.random()
        if depth and kind < 0.2:
            return f"({self.truth(depth - 1)} {rng.choice(['and', 'or'])} {self.truth(depth - 1)})"
        if depth and kind < 0.3:
            return f"not {self.truth(depth - 1)}"
        if kind < 0.36 and strings(self.types):
            other = (
                quoted(rng.choice(strings(self.types)))
                if rng.random() < 0.3
                else rng.choice(["'abc'", '""', "'a'"])
            )
            return f"{quoted(rng.choice(strings(self.types)))} {rng.choice(['==', '!='])} {other}"
        if kind < 0.42 and strings(self.types):
            other = rng.choice(["'a'", "''", "'0'", self.bytes()])
            return rng.choice(
                [
                    f"{other} {rng.choice(['in', 'not in'])} {self.bytes()}",
                    f"{rng.choice(['startswith', 'endswith'])}({self.bytes()}, {other})",
                    f"isin({self.bytes()}, ['abc', {other}])",
                ]
            )
        if kind < 0.46:
            return rng.choice([f"isnan({self.strong()})", f"isin({self.strong()}, [1, {self.literal()}, 3])"])
        op = rng.choice(["<", "<=", ">", ">=", "==", "!="])
        if kind < 0.5:
            return (
                f"{self.literal()} {op} {self.strong()} "
                f"{rng.choice(['<', '!='])} {self.number(min(depth, 1))}"
            )
        return f"{self.number(min(depth, 1))} {op} {self.strong()}"


def value(rng: random.Random, types: dict[str, Type]) -> str:
    """What `assign` may be given: a number, a truth, a component, over scalars or a whole array."""
    known = [n for n in arrays(types) if types[n].dims is not None]
    writer = Writer(rng, types, rng.choice(known) if known and rng.random() < 0.5 else None)
    kind = rng.random()
    if kind < 0.2:
        return writer.truth()
    if kind < 0.25:
        return quoted(rng.choice(list(types)))
    if kind < 0.3 and strings(types):
        return writer.bytes()
    return writer.number(rng.choice([1, 2, 3]))


def sieve(rng: random.Random, types: dict[str, Type]) -> str:
    """A condition that some elements meet and some don't, as far as that can be said beforehand."""
    integers = [n for n in scalars(types) if types[n].dtype in ("int64", "int32", "int16")]
    if integers and rng.random() < 0.7:
        modulus = rng.randint(2, 7)
        return (
            f"{quoted(rng.choice(integers))} % {modulus} "
            f"{rng.choice(['!=', '!=', '==', '<'])} {rng.randint(0, modulus - 1)}"
        )
    if measurable(types) and rng.random() < 0.5:
        return f"length({quoted(rng.choice(measurable(types)))}) % 3 != {rng.randint(0, 2)}"
    return Writer(rng, types).truth()
