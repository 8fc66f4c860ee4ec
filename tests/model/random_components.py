"""Random attributes of the operators on components. Some are illegal: Plan refuses them."""

from __future__ import annotations

import random

from . import components
from .dtypes import FLOATS, INTEGERS, Type

WORDS = ["", "a", "b", "abc", "none", "0", "1", "größe"]


def of(rng: random.Random, kind: str, types: dict[str, Type]) -> dict | None:
    numbers = [n for n, t in types.items() if t.dtype != "bytes"]
    strings = [n for n, t in types.items() if t.dtype == "bytes"]
    if kind == "lookup":
        if not strings:
            return None
        given = {
            "component": rng.choice(strings),
            "vocabulary": rng.sample(WORDS, rng.randint(1, len(WORDS))),
        }
        return given | ({"default": rng.randint(-2, 9)} if rng.random() < 0.5 else {})
    if not numbers:
        return None
    if kind in components.JOINS:
        return join(rng, kind, types, numbers)
    name = rng.choice(numbers)
    if kind == "one_hot":
        integers = [n for n in numbers if types[n].dtype in (*INTEGERS, "bool")]
        if not integers:
            return None
        given = {"component": rng.choice(integers), "classes": rng.choice([1, 2, rng.randint(3, 40), 300])}
        return given | ({"dtype": rng.choice(["bool", *INTEGERS, *FLOATS])} if rng.random() < 0.6 else {})
    if kind == "bucketize":
        boundaries = sorted(
            {rng.choice([0, 1, 2.5, rng.randint(-9, 300), rng.gauss(0, 2)]) for _ in range(5)}
        )
        return {"component": name, "boundaries": boundaries}
    dims = types[name].dims
    if kind == "standardize":
        n = dims[-1] if dims and dims[-1] and rng.random() < 0.6 else 1
        mean, std = ([rng.uniform(1, 90) for _ in range(rng.choice([1, n]))] for _ in range(2))
        given = {"component": name, "mean": mean if len(mean) > 1 else mean[0], "std": std}
        return given | ({"dtype": rng.choice(FLOATS)} if rng.random() < 0.5 else {})
    if kind in ("flatten", "serialize_tensor"):
        return {"component": name}
    if kind == "pad":
        return pad(rng, name, types[name])
    return {"component": name, "shape": shape(rng, components.size(dims))}


def shape(rng: random.Random, n: int | None) -> list[int]:
    if n is None or n > 1000:
        return rng.choice([[-1], [-1, 1], [1, -1], [2, -1], [1]])
    fitting = [[a, n // a] for a in range(1, n + 1) if n % a == 0] or [[0, 1]]
    sizes = rng.choice([*fitting, [n], [1, n, 1]])
    if n and rng.random() < 0.5:
        sizes[rng.randrange(len(sizes))] = -1
    return sizes


def pad(rng: random.Random, name: str, type_: Type) -> dict:
    given = {"component": name}
    value = {"value": rng.choice([1, 7, 0.5] if type_.dtype in FLOATS else [1])} if rng.random() < 0.5 else {}
    if not type_.dims or rng.random() < 0.4:
        return given | value | {"to": (type_.dims[0] or 0 if type_.dims else 0) + rng.randint(0, 9)}
    sizes = [-1 if rng.random() < 0.2 else (d or 2) + rng.randint(0, 3) for d in type_.dims]
    return given | value | {"shape": sizes}


def join(rng: random.Random, kind: str, types: dict[str, Type], numbers: list[str]) -> dict:
    """Mostly components that fit: those of the dtype and the rank of one of them."""
    first = types[rng.choice(numbers)]
    alike = [
        n
        for n in numbers
        if types[n].dtype == first.dtype
        and (types[n].dims is None) == (first.dims is None)
        and len(types[n].dims or ()) == len(first.dims or ())
        and (kind != "stack" or types[n].dims == first.dims)
    ]
    given = {
        "components": [rng.choice(alike) for _ in range(rng.choice([1, 2, 2, 3]))],
        "name": rng.choice(["joined", "fresh", rng.choice(numbers)]),
    }
    return given | ({"axis": rng.choice([-1, 0, 1, 2])} if rng.random() < 0.5 else {})
