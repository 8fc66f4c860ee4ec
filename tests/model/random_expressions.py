"""Random expressions over typed components, such as have a result on every path but division by zero."""

import random

from .dtypes import FLOATS, INTEGERS, Type


def quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def scalars(types: dict[str, Type]) -> list[str]:
    return [n for n, t in types.items() if t.dims == () and t.dtype != "bytes"]


def measurable(types: dict[str, Type]) -> list[str]:
    """Components that have a length."""
    return [n for n, t in types.items() if t.dtype == "bytes" or t.dims]


def number(rng: random.Random, types: dict[str, Type], depth: int = 2) -> str:
    """A scalar number."""
    choices = ["literal"]
    if depth:
        choices += ["binary", "binary", "call", "unary", "where"]
    if scalars(types):
        choices += ["name"] * 4
    if measurable(types):
        choices += ["length"]
    vectors = [n for n, t in types.items() if t.dims and t.dtype != "bytes" and t.fixed() and 0 not in t.dims]
    if vectors:
        choices += ["reduce"]

    def deeper() -> str:
        return number(rng, types, depth - 1)

    match rng.choice(choices):
        case "literal":
            return rng.choice(["0", "1", "2", "3", "7", "0.5", "2.25", "100"])
        case "name":
            return quoted(rng.choice(scalars(types)))
        case "length":
            return f"length({quoted(rng.choice(measurable(types)))})"
        case "reduce":
            return f"{rng.choice(['min', 'max'])}({quoted(rng.choice(vectors))})"
        case "unary":
            return f"-({deeper()} + 0)" if rng.random() < 0.5 else f"(-{strong(rng, types)})"
        case "where":
            return f"where({truth(rng, types, depth - 1)}, {deeper()}, {strong(rng, types)})"
        case "call":
            return call(rng, types, deeper)
    op = rng.choice(["+", "-", "*", "+", "-", "*", "/", "//", "%"])
    right = strong(rng, types) if op in ("+", "-", "*") else rng.choice(["2", "3", "7", "2.5", "-4"])
    return f"({deeper()} {op} {right})"


def strong(rng: random.Random, types: dict[str, Type]) -> str:
    """A number with a dtype of its own: one that is no literal."""
    if scalars(types) and rng.random() < 0.8:
        return quoted(rng.choice(scalars(types)))
    return f"{rng.choice(['int64', 'float32', 'float64'])}({rng.randint(0, 9)})"


def call(rng: random.Random, types: dict[str, Type], deeper) -> str:
    name = rng.choice(["abs", "round", "floor", "sqrt", "exp", "log", "min", "max", "cast"])
    if name == "cast":
        return f"{rng.choice([*INTEGERS, *FLOATS])}({deeper()})"
    if name in ("min", "max"):
        return f"{name}({deeper()}, {strong(rng, types)})"
    if name == "exp":
        return f"exp(min(float64({deeper()}), 20.0))"
    return f"{name}({strong(rng, types)} + 0)"


def truth(rng: random.Random, types: dict[str, Type], depth: int = 2) -> str:
    kind = rng.random()
    if depth and kind < 0.2:
        return f"({truth(rng, types, depth - 1)} {rng.choice(['and', 'or'])} {truth(rng, types, depth - 1)})"
    if depth and kind < 0.3:
        return f"not {truth(rng, types, depth - 1)}"
    op = rng.choice(["<", "<=", ">", ">=", "==", "!="])
    return f"{number(rng, types, min(depth, 1))} {op} {strong(rng, types)}"


def sieve(rng: random.Random, types: dict[str, Type]) -> str:
    """A condition that some elements meet and some don't, as far as that can be said beforehand."""
    integers = [n for n in scalars(types) if types[n].dtype in ("int64", "int32", "int16")]
    if integers and rng.random() < 0.7:
        modulus = rng.randint(2, 7)
        return f"{quoted(rng.choice(integers))} % {modulus} {rng.choice(['!=', '!=', '==', '<'])} {rng.randint(0, modulus - 1)}"
    if measurable(types) and rng.random() < 0.5:
        return f"length({quoted(rng.choice(measurable(types)))}) % 3 != {rng.randint(0, 2)}"
    return truth(rng, types)
