"""A table with columns of every type that files of columns have, and what a run must give of it."""

import random

import numpy as np
import pytest
from command import write
from rows import read_rows

pa = pytest.importorskip("pyarrow")

DEFAULTS = {"maybe": "NaN", "word": "-", "flag": False, "some": -1}
LISTS = ("ints", "four", "some")


def table(n, seed=0):
    rng, r = np.random.default_rng(seed), random.Random(seed)

    def lists(k):
        return rng.integers(0, 99, k).tolist()

    return pa.table(
        {
            "u8": pa.array(rng.integers(0, 256, n), pa.uint8()),
            "i16": pa.array(rng.integers(-(2**15), 2**15, n), pa.int16()),
            "u64": pa.array(rng.integers(0, 2**63, n).astype("u8") * 2 + 1, pa.uint64()),
            "i64": pa.array(np.arange(n)),
            "f16": pa.array(rng.normal(size=n).astype("f2")),
            "f32": pa.array(rng.normal(size=n).astype("f4")),
            "flag": pa.array([None if k % 11 == 5 else k % 3 == 0 for k in range(n)]),
            "text": pa.array([f"{'é' * (k % 4)}{k % 50}" for k in range(n)]),
            "blob": pa.array([r.randbytes(r.choice([0, 3, 40])) for _ in range(n)], pa.binary()),
            "six": pa.array([r.randbytes(6) for _ in range(n)], pa.binary(6)),
            "day": pa.array(rng.integers(-9999, 20000, n), pa.int32()).cast(pa.date32()),
            "time": pa.array(rng.integers(-(10**15), 10**15, n) * 1000, pa.timestamp("ns")),
            "struct": pa.array([{"x": k, "y": f"q{k % 3}"} for k in range(n)]),
            "kind": pa.array([["red", "green", "blue"][k % 3] for k in range(n)]).dictionary_encode(),
            "maybe": pa.array([None if k % 7 == 3 else k / 3 for k in range(n)]),
            "word": pa.array([None if k % 5 == 3 else f"n{k}" for k in range(n)]),
            "ints": pa.array([lists(k % 6) for k in range(n)], pa.list_(pa.int32())),
            "four": pa.array([rng.normal(size=4).tolist() for _ in range(n)], pa.list_(pa.float32(), 4)),
            "some": pa.array(
                [None if k % 5 == 3 else [] if k % 5 == 1 else [1, None, k] for k in range(n)],
                pa.list_(pa.int64()),
            ),
        }
    )


def expected(data, defaults):
    """By component, the values of the table's rows, with defaults in place of nulls."""

    def plain(value, default, is_list):
        if is_list and isinstance(default, list):
            return default if value is None else value
        if is_list:
            return [default if v is None else v for v in value or []]
        value = default if value is None else value
        value = float("nan") if value == "NaN" else value
        return value.encode() if isinstance(value, str) else value

    found = {}
    for name in data.column_names:
        column = data[name].combine_chunks()
        if pa.types.is_struct(column.type):
            found |= expected(pa.table({f"{name}.{f.name}": column.field(f.name) for f in column.type}), {})
            continue
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
        is_list = pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)
        found[name] = [plain(v, defaults.get(name), is_list) for v in column.to_pylist()]
    return found


def rows_of(tmp_path, chain, *words):
    return read_rows(write(tmp_path / "p.json", chain), tmp_path, *words)


def assert_same(found, wanted):
    assert sorted(found) == sorted(wanted)
    for name, values in wanted.items():
        assert repr(found[name]) == repr(values), name
