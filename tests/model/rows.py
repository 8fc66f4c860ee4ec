"""`unbatch` and `rebatch`: the rows of elements as elements."""

from __future__ import annotations

from .dtypes import PlanError, RecordError, Type, Value

TAKERS = ("unbatch", "rebatch")  # a batcher before them is left out


def unbatch_types(types: dict[str, Type]) -> dict[str, Type]:
    if any(t.dtype == "bytes" or t.dims == () for t in types.values()):
        raise PlanError("unbatch: a component without a first dimension")
    return {name: Type(t.dtype, t.dims and t.dims[1:]) for name, t in types.items()}


def unbatch(components: dict[str, Value]) -> list[dict[str, Value]]:
    if any(v.shape == () for v in components.values()):
        raise RecordError("unbatch: a component without dimensions")
    if len({v.shape[0] for v in components.values()}) > 1:
        raise RecordError("unbatch: components with different numbers of rows")
    n = min(v.shape[0] for v in components.values())
    return [{name: Value(v.dtype, v.data[i]) for name, v in components.items()} for i in range(n)]


def without_taken_batches(chain: list, make, maps) -> list:
    """The chain with `rebatch` written as unbatch and batch, and without batches that are taken apart again.
    make(name, attrs) gives a node, maps(node) says whether it is an operator on elements.
    """
    kept, at = [], 0
    batchers = ("batch", "bucket_by_length", "group_by", "rebatch")
    rows = False  # the elements are those of a batcher that was left out
    while at < len(chain):
        node = chain[at]
        node.inputs = [without_taken_batches(c, make, maps) for c in node.inputs]
        taker = next((i for i in range(at + 1, len(chain)) if chain[i].name in TAKERS), None)
        if node.name == "rebatch" and not rows or node.name == "unbatch" and not rows:
            kept.append(make("unbatch", {}))
        if node.name in batchers and taker is not None:
            if (
                node.name in ("bucket_by_length", "group_by")
                or node.attrs["drop_remainder"]
                or node.attrs["pad"] != {}
                or not all(maps(n) for n in chain[at + 1 : taker])
            ):
                raise PlanError("an operator takes batches that are not merely elements")
            kept += chain[at + 1 : taker]
            rows = True
            at = taker
            continue
        if node.name == "rebatch":
            kept.append(make("batch", node.attrs))
        elif node.name != "unbatch":
            kept.append(node)
        rows = False
        at += 1
    return kept
