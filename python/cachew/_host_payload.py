"""Reads the bytes of a function, in a host process. _payload.py writes them."""

import base64
import mmap
import pickle
import struct
from typing import Any

MAGIC = b"CWPARTS1"
"""Begins the bytes of a pickle with parts: MAGIC, the number n of parts, n times (offset, size), and the
parts: the pickle, and the buffers that it refers to. Numbers are 64-bit, little-endian. A pickle begins with
0x80.
"""
PLACE = "file:"
"""Begins a text that is the path of the bytes, instead of the bytes in base64, which has no colon."""


def load(text: str) -> Any:
    """The function of a payload. It may change arrays that lie in shared memory: each process has its own
    changes.
    """
    if text.startswith(PLACE):
        with open(text[len(PLACE) :], "rb") as file:
            both = mmap.PROT_READ | mmap.PROT_WRITE
            data = memoryview(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=both))
    else:
        data = memoryview(bytearray(base64.b64decode(text)))
    if data[: len(MAGIC)] != MAGIC:
        return pickle.loads(data)
    (n,) = struct.unpack_from("<Q", data, 8)
    numbers = struct.unpack_from(f"<{2 * n}Q", data, 16)
    parts = [data[begin : begin + size] for begin, size in zip(numbers[::2], numbers[1::2])]
    return pickle.loads(parts[0], buffers=parts[1:])
