#!/usr/bin/env python3
"""Digest and set digest of dumped batches (`cachew run --dump DIR`), from NumPy and xxhash alone.

A digest is the sum modulo 2^128 of the XXH3-128 of each batch; the set digest is the same over elements,
with neither epoch nor number. Prints both, as `cachew run --digest` does. Batches that only fill the last
round (flag bit 1) are left out.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import xxhash

MASK128 = (1 << 128) - 1
PADDING_FLAG = 2

# A component: (name, dtype name, dims, bytes). Of a batch, dims start with the number of rows; the bytes of a
# bytes component are the lengths as u64, then the strings.
Component = tuple[str, str, tuple[int, ...], bytes]


def le64(*values: int) -> bytes:
    return b"".join(int(v).to_bytes(8, "little") for v in values)


def content_hash(numbers: tuple[int, ...], components: list[Component]) -> int:
    """H(numbers, then per component in byte order of its name: len(name), name, len(dtype), dtype, ndim,
    dims, data).
    """
    parts = [le64(*numbers)]
    for name, dtype, dims, data in sorted(components, key=lambda c: c[0].encode()):
        parts += [
            le64(len(name.encode())),
            name.encode(),
            le64(len(dtype)),
            dtype.encode(),
            le64(len(dims), *dims),
            data,
        ]
    return xxhash.xxh3_128_intdigest(b"".join(parts))


def batch_hash(epoch: int, g: int, n: int, components: list[Component]) -> int:
    return content_hash((epoch, g, n), components)


def element_hash(components: list[Component]) -> int:
    return content_hash((1,), components)


def dtype_name(dtype: np.dtype) -> str:
    return "bfloat16" if dtype == np.dtype("V2") else dtype.name


def load(path: Path) -> tuple[list[int], list[list[Component]], list[Component], np.ndarray]:
    """(meta, components of each row, components of the batch, flags) of one file."""
    with np.load(path) as arrays:
        meta = [int(v) for v in arrays["__meta__"]]
        n, leading = meta[4], meta[5]
        rows: list[list[Component]] = [[] for _ in range(n)]
        batch = []
        names = [
            k
            for k in arrays.files
            if k not in ("__records__", "__flags__", "__meta__") and not k.endswith(".lengths")
        ]
        for name in names:
            data = arrays[name]
            if f"{name}.lengths" in arrays.files:
                lengths = [int(v) for v in arrays[f"{name}.lengths"]]
                joined = data.tobytes()
                batch.append((name, "bytes", (len(lengths),) if leading else (), le64(*lengths) + joined))
                at = 0
                assert len(lengths) == len(rows)
                for row, length in zip(rows, lengths):
                    row.append((name, "bytes", (), le64(length) + joined[at : at + length]))
                    at += length
                continue
            batch.append((name, dtype_name(data.dtype), data.shape, np.ascontiguousarray(data).tobytes()))
            for row, value in zip(rows, data if leading else [data]):
                value = np.asarray(value)
                dims = data.shape[1:] if leading else data.shape
                row.append((name, dtype_name(data.dtype), dims, np.ascontiguousarray(value).tobytes()))
        return meta, rows, batch, arrays["__flags__"]


def digests(files: list[Path]) -> tuple[int, int]:
    digest = set_digest = 0
    for path in files:
        (epoch, g, _split, _index, n, _leading), rows, batch, flags = load(path)
        if any(int(f) & PADDING_FLAG for f in flags):
            continue
        digest += batch_hash(epoch, g, n, batch)
        set_digest += sum(element_hash(row) for row in rows)
    return digest & MASK128, set_digest & MASK128


def epoch_of(path: Path) -> int:
    return int(path.name[1:].split("-")[0]) if path.name.startswith("E") else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--epoch", type=int, help="only this epoch")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    files = sorted(arguments.directory.glob("*.npz"))
    if arguments.epoch is not None:
        files = [f for f in files if epoch_of(f) == arguments.epoch]
    digest, set_digest = digests(files)
    if arguments.json:
        print(
            json.dumps(
                {"digest": f"{digest:032x}", "set_digest": f"{set_digest:032x}", "batches": len(files)}
            )
        )
    else:
        print(f"digest     {digest:032x}\nset_digest {set_digest:032x}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
