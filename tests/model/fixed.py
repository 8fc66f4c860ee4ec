"""Pipelines without randomness that every run compares: with the reference model, with a plain loop
(tests/test_plain_loop.py), with tf.data (bench/peer_batches.py).

Each has a part of the semantics in which an error of one element or one batch shows.
"""

from __future__ import annotations


def numbers(stop: int, start: int = 0, step: int = 1) -> dict:
    return {"op": "range", "stop": stop} | ({"start": start, "step": step} if (start, step) != (0, 1) else {})


def zeros(count: int) -> dict:
    return {"op": "synthetic", "count": count, "shape": [3], "fill": "none"}


def keep(where: str) -> dict:
    return {"op": "filter", "where": where}


def fail(where: str) -> dict:
    return {"op": "fail", "where": where}


def assign(**expressions: str) -> dict:
    return {"op": "assign", "set": expressions}


def take(count: int) -> dict:
    return {"op": "take", "count": count}


def skip(count: int) -> dict:
    return {"op": "skip", "count": count}


def repeat(count: int) -> dict:
    return {"op": "repeat", "count": count}


def mix(*inputs: list[dict]) -> dict:
    return {"op": "mix", "inputs": [*inputs], "weights": [k + 1 for k in range(len(inputs))]}


def concat(*inputs: list[dict]) -> dict:
    return {"op": "concat", "inputs": [*inputs]}


def batch(size: int, drop_remainder: bool = False) -> dict:
    return {"op": "batch", "size": size} | ({"drop_remainder": True} if drop_remainder else {})


def buckets(length: str, boundaries: list[int], sizes: list[int]) -> dict:
    return {"op": "bucket_by_length", "length": length, "boundaries": boundaries, "sizes": sizes}


CHAINS: dict[str, list[dict]] = {
    # the place of every batch is known beforehand
    "batches-of-one": [numbers(1_000), batch(1)],
    "no-batches": [numbers(500)],
    "short-last-batch": [numbers(10_007), batch(1_000)],
    "dropped-remainder": [numbers(10_007), assign(x="value * 3 + 1"), batch(100, drop_remainder=True)],
    "many-batches": [numbers(300_000), batch(64)],
    "skip-and-take": [numbers(5_000), skip(17), take(3_001), batch(16)],
    "batches-across-passes": [numbers(1_001), repeat(3), batch(10)],
    "concat": [concat([numbers(100)], [numbers(1_311, 11, 13)], [numbers(-70, 0, -1)]), batch(7)],
    "batches-skipped-and-taken": [numbers(1_000), batch(7), skip(3), take(50)],
    "zeros": [zeros(2_000), batch(9)],
    # filters
    "every-third": [numbers(3_000), keep("value % 3 == 0"), batch(7)],
    "rare": [numbers(20_000), keep("value % 997 == 3"), batch(4)],
    "dense": [numbers(300_000), keep("value % 10 != 0"), batch(1_000)],
    "nothing-behind-the-head": [numbers(100_000), keep("value < 33"), batch(10)],
    "nothing-before-the-tail": [numbers(15_000), keep("value >= 14950"), batch(16)],
    "runs": [numbers(200_000), keep("value // 1000 % 2 == 0"), batch(128)],
    "two-filters": [numbers(4_000), keep("value % 2 == 1"), assign(x="value // 2"), keep("x % 5 != 2"),
                    batch(6, drop_remainder=True)],
    "filtered-without-batches": [numbers(2_000), keep("value % 4 == 1")],
    "filtered-batches-of-one": [numbers(5_000), keep("value % 4 != 1"), batch(1)],
    "filtered-batches-across-passes": [numbers(777), keep("value % 4 != 1"), repeat(3), batch(10)],
    "filters-in-concat": [concat([numbers(900), keep("value % 7 < 3")], [numbers(50)],
                                 [numbers(900), keep("value > 850")]), batch(6)],
    "steps": [numbers(600_000, -150, 3), keep("value % 2 == 0"), batch(33)],
    "nothing-left-over": [numbers(2_000), keep("value % 2 == 0"), batch(10)],
    "nothing-to-drop": [numbers(2_000), keep("value % 2 == 0"), batch(10, drop_remainder=True)],
    "less-than-a-batch": [numbers(3_000), keep("value % 100 == 99"), batch(64)],
    # takes and skips that count
    "take": [numbers(5_000), keep("value % 3 == 1"), take(500), batch(7)],
    "take-of-whole-batches": [numbers(5_000), keep("value % 3 == 1"), take(490), batch(7)],
    "take-of-one": [numbers(5_000), keep("value % 1000 == 999"), take(1), batch(2)],
    "take-of-more-than-all": [numbers(3_000), keep("value % 5 == 4"), take(601), batch(8)],
    "take-of-all": [numbers(3_000), keep("value % 5 == 4"), take(600), batch(8)],
    "skip": [numbers(5_000), keep("value % 3 == 1"), skip(333), batch(10)],
    "skip-of-all-but-one": [numbers(3_000), keep("value % 5 == 4"), skip(599), batch(8)],
    "skip-then-take": [numbers(5_000), keep("value % 3 == 1"), skip(10), take(77), batch(8)],
    "take-between-filters": [numbers(5_000), keep("value % 3 == 1"), take(400), keep("value % 2 == 1"),
                             batch(8)],
    "take-in-each-pass": [numbers(2_000), keep("value % 3 == 1"), take(100), repeat(3), batch(9)],
    "take-in-concat": [concat([numbers(500), keep("value % 2 == 0"), take(99)],
                              [numbers(500), keep("value % 7 == 0"), skip(5)]), batch(10)],
    "take-of-an-endless-one": [numbers(700), keep("value % 3 == 2"), repeat(-1), take(3_000), batch(11)],
    "long-take": [numbers(300_000), keep("value % 2 == 0"), take(120_001), batch(1_000)],
    "take-of-filtered-batches": [numbers(3_000), keep("value % 3 == 0"), batch(8), take(21)],
    "skip-of-filtered-batches": [numbers(3_000), keep("value % 3 == 0"), batch(8), skip(5), take(40)],
    # buckets
    "buckets": [numbers(3_000), buckets("value % 40", [10, 20, 30], [8, 4, 2, 1])],
    "rare-bucket": [numbers(20_000), buckets("value % 1000", [999], [16, 4])],
    "sorted-by-length": [numbers(20_000), buckets("value // 500", [2, 10, 30], [5, 7, 64, 3])],
    "filtered-buckets": [numbers(100_000), keep("value % 3 != 0"),
                         buckets("value % 7", [2, 5], [100, 1_000, 33])],
    "many-buckets": [numbers(10_000), buckets("value * 31 % 97", [*range(6, 97, 6)], [32] * 17)],
    "hundred-buckets": [numbers(20_000),
                        buckets("value * 37 % 211", [*range(2, 200, 2)], [1 + k % 9 for k in range(100)])],
    "buckets-of-one-size": [numbers(150_000), buckets("value % 11", [3, 8], [64, 64, 64])],
    "buckets-never-full": [numbers(400), buckets("value % 3", [1, 2], [500, 7, 300])],
    "buckets-behind-a-take": [numbers(5_000), keep("value % 3 != 0"), take(1_000),
                              buckets("value % 40", [10, 20, 30], [8, 4, 2, 1])],
    "buckets-skipped-and-taken": [numbers(3_000), buckets("value % 40", [10, 30], [8, 4, 2]),
                                  skip(5), take(300)],
    # records that fail, and are left out
    "gaps": [numbers(3_000), fail("value % 7 == 3"), batch(5)],
    "failed-and-filtered": [numbers(3_000), fail("value % 7 == 3"), keep("value % 2 == 0"), batch(5)],
    "failed-then-taken": [numbers(3_000), fail("value % 7 == 3"), keep("value % 2 == 0"), take(500),
                          batch(5)],
    "failed-and-counted": [numbers(3_000), keep("value % 2 == 0"), fail("value % 7 == 3"), take(500),
                           batch(5)],
    "failed-and-skipped": [numbers(3_000), keep("value % 2 == 0"), fail("value % 7 == 3"), skip(101),
                           batch(5)],
    "failed-in-buckets": [numbers(3_000), fail("value % 7 == 3"), buckets("value % 5", [2], [6, 4])],
}  # fmt: skip


def large(count: int) -> list[dict]:
    """Elements of 256 KiB: a window of a shuffle by chunk has at most 256 of them."""
    return [{"op": "synthetic", "count": count, "shape": [256, 1024], "dtype": "uint8", "fill": "none"}]


def shuffle() -> dict:
    return {"op": "shuffle"}


def by_chunk() -> dict:
    return {"op": "shuffle", "by": "chunk"}


def zipped(*inputs: list[dict]) -> dict:
    """Side by side, with components of their own."""
    named = [[*chain, {"op": "rename", "names": {"value": f"v{k}"}}] for k, chain in enumerate(inputs)]
    return {"op": "zip", "inputs": named}


def sequences(count: int) -> list[dict]:
    return [{"op": "synthetic", "count": count, "shape": [5], "dtype": "uint16"}]


def pack(length: int, **more) -> dict:
    return {"op": "pack", "component": "data", "length": length, **more}


ONE = [assign(n="1"), {"op": "select", "components": ["n"]}]
OWN_CHAINS: dict[str, list[dict]] = {
    "windows": [*large(1_500), *ONE, by_chunk(), batch(7)],
    "windows-of-one-batch": [*large(700), *ONE, by_chunk(), batch(300)],
    "windows-of-buckets": [*large(1_500), *ONE, by_chunk(), buckets("n", [1], [3, 100])],
    "zip": [zipped([numbers(3_000), shuffle()], [numbers(1_000), repeat(-1), skip(3)], [numbers(5_000)]),
            shuffle(), repeat(2), batch(7)],
    "zip-of-windows": [{"op": "zip", "inputs": [[*large(600), by_chunk(), *ONE], [numbers(700)]]},
                       by_chunk(), batch(10)],
    "pack": [*sequences(5_000), pack(64), batch(3)],
    "pack-whole": [*sequences(5_000), shuffle(), repeat(2), {"op": "filter", "where": "max(data) % 3 != 1"},
                   pack(17, split=False, separator=7, pad=9, window=100), batch(8)],
    "pack-and-take": [*sequences(20_000), pack(33, window=64), take(500), batch(8, drop_remainder=True)],
    "pack-into-buckets": [*sequences(9_000), pack(33, window=50),
                          buckets("max(data) % 4", [1, 2], [3, 5, 8])],
    # alternating sources, whose own operators differ
    "mix": [mix([numbers(9_000), assign(value="value * 2"), keep("value % 7 != 3")],
                [numbers(13_000, 9_000), shuffle()], [numbers(2_000), keep("value % 2 == 0")]),
            assign(n="value % 1000"), keep("n != 5"), batch(32)],
    "mix-in-known-batches": [mix([numbers(9_000)], [numbers(13_000, 9_000), assign(value="value + 1")]),
                             shuffle(), assign(n="value % 3"), batch(100)],
    "mix-into-buckets": [mix([numbers(9_000), assign(value="9 - value % 50")],
                             [numbers(900), keep("value > 5")]), buckets("value % 5", [2], [60, 40])],
    "pack-of-a-mix": [mix(sequences(3_000), [*sequences(6_000), shuffle(), keep("max(data) % 3 != 1")],
                          [concat(sequences(100), sequences(2_000)), shuffle()]),
                      pack(33, window=50), batch(8)],
    "windows-in-passes": [*large(600), *ONE, by_chunk(), repeat(2), batch(10)],
    # the take would come upon an element that fails, for a batch that is dropped
    "dropped-before-it-fails": [
        numbers(8),
        fail("value == 4"),
        keep("value >= 0"),
        take(5),
        batch(3, drop_remainder=True),
    ],
    "dropped-behind-a-skip": [
        numbers(20),
        fail("value == 7"),
        keep("value >= 0"),
        skip(0),
        take(8),
        batch(3, drop_remainder=True),
    ],
    "dropped-behind-a-take-in-concat": [
        concat([numbers(20), fail("value == 7"), keep("value >= 0"), take(9)], [numbers(3)]),
        take(8),
        batch(3, drop_remainder=True),
    ],
}  # fmt: skip


def on_error(chain: list[dict]) -> dict:
    return {"on_error": "skip"} if any(op["op"] == "fail" for op in chain) else {}


PIPELINES = {name: {"cachew": 1, "pipeline": chain, **on_error(chain)} for name, chain in CHAINS.items()}
# only the model has our shuffles, and our rules of what fails
OWN = {name: {"cachew": 1, "pipeline": chain} for name, chain in OWN_CHAINS.items()}


def positions(chain: list[dict]) -> int:
    """Positions of the sources, each once."""
    ops = [
        op
        for written in chain
        for op in (written, *(o for inner in written.get("inputs", []) for o in inner))
    ]
    return sum(
        op["count"]
        if op["op"] == "synthetic"
        else len(range(op.get("start", 0), op["stop"], op.get("step", 1)))
        for op in ops
        if op["op"] in ("range", "synthetic")
    )
