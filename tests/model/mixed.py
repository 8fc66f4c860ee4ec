"""`mix`: which input gives the next element: docs/semantics.md, section 3."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import count

from .dtypes import PlanError

LEAST_SHARE = 1e-6


def integers(weights: tuple[float, ...]) -> list[int]:
    for decimals in range(10):
        scaled = [weight * 10.0**decimals for weight in weights]
        whole = [round(s) for s in scaled]
        exact = all(w >= 1 and abs(s - w) <= s * 2.0**-51 for s, w in zip(scaled, whole))
        if exact and sum(whole) <= 2**53:
            break
    else:
        total = 0.0
        for weight in weights:
            total += weight
        whole = [max(1, round(weight / total * 2.0**60)) for weight in weights]
    if float(min(whole)) / float(sum(whole)) < LEAST_SHARE:
        raise PlanError("mix: a share is too small")
    return whole


def turns(weights: tuple[float, ...]) -> Iterator[int]:
    """The inputs whose elements come, without end."""
    whole = integers(weights)
    total, n = sum(whole), len(whole)
    parts = 2 * n - 2 if n > 1 else 2
    counts = [0] * n
    for place in count(1):
        chosen, soonest = -1, math.inf
        for i, weight in enumerate(whole):
            # the element may come once place * share - counts[i] is at least 1 / parts ...
            if (place * weight - counts[i] * total) * parts < total:
                continue
            # ... and is due at the first place where that is at least 1 - 1 / parts
            due = -((-counts[i] * parts - (parts - 1)) * total // (weight * parts))
            if due < soonest:
                chosen, soonest = i, due
        counts[chosen] += 1
        yield chosen


class Order:
    """The order of some weights, as far as it was asked for."""

    def __init__(self, weights: tuple[float, ...]):
        self.turns = turns(weights)
        self.known: list[int] = []

    def items(self) -> Iterator[int]:
        for place in count():
            if place == len(self.known):
                self.known.append(next(self.turns))
            yield self.known[place]


@lru_cache(maxsize=64)
def order(weights: tuple[float, ...]) -> Order:
    return Order(weights)


def length(weights: tuple[float, ...], stop: str, inputs: list[float]) -> float | int:
    """How many elements come of inputs with so many elements."""
    if stop != "first" and 0 in inputs:
        raise PlanError("mix: an empty input can't begin again")
    finite = [n for n in inputs if n < math.inf]
    if stop == "never" or not finite or (stop == "last" and len(finite) < len(inputs)):
        return math.inf
    counts = [0] * len(inputs)
    for n, chosen in enumerate(order(weights).items()):
        if stop == "first" and counts[chosen] == inputs[chosen]:
            return n
        counts[chosen] += 1
        if stop == "last" and all(came >= size for came, size in zip(counts, inputs)):
            return n + 1
    raise AssertionError("the order is endless")
