"""Random attributes of operators that run Python functions, with functions of functions.py. Only with these
is the package needed.
"""

from __future__ import annotations

import random

from . import functions
from .dtypes import Type

Types = dict[str, Type]


def attributes(rng: random.Random, kind: str, function, outputs: Types | None) -> dict:
    """As the package's methods write them, for JSON. Whether the function is deterministic is left to chance
    elsewhere: all are.
    """
    from cachew._functions import _Call

    timeout_s = rng.choice([300, 300, 600])
    memory = rng.choice([None, None, "2G"])
    version = rng.choice([None, None, "1"])
    operator = kind.removesuffix("_function")
    own = random.Random(rng.random())  # one draw, so that what follows does not depend on these choices
    asynchronous = kind != "iterable" and own.random() < 0.25
    concurrency = own.choice([None, 1, 3, 300]) if asynchronous and kind != "map_batches" else None
    given = _Call(
        operator,
        functions.later(function) if asynchronous else function,
        timeout_s,
        memory,
        True,
        version,
        concurrency,
    ).attributes()
    if outputs is not None:
        given["outputs"] = {
            name: {"dtype": t.dtype, "shape": t.dims and list(t.dims)} for name, t in outputs.items()
        }
        for output in given["outputs"].values():
            if output["shape"] == () and rng.random() < 0.5:
                del output["shape"]
            elif output["shape"] is not None:
                output["shape"] = list(output["shape"])
    return given


def of(rng: random.Random, kind: str, types: Types, failing: bool) -> dict | None:
    function = rng.choice(functions.THAT_FAIL[kind] if failing else functions.FUNCTIONS[kind]).of(rng, types)
    return function and attributes(
        rng, kind, function, None if kind == "filter_function" else function.outputs(types)
    )


def iterable(rng: random.Random, damaged: bool) -> dict:
    function = functions.Stream.of(rng, damaged)
    return attributes(rng, "iterable", function, function.outputs())
