"""Converts Python values to the JSON of pipelines: tuples become lists, paths and expressions become texts,
NumPy scalars become numbers, dtypes become names. Also converts sizes such as "256M" to numbers of bytes.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_BYTES = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)(?:I?B)?\s*", re.IGNORECASE)


def plain(value: Any) -> Any:
    """The value of an attribute in types that JSON has. Raises TypeError if it can't be converted."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise TypeError(f"{value!r} is out of range: expected an integer of 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{value!r} is not a number that a pipeline can hold: expected a finite one")
    if isinstance(value, str) and not is_text(value):
        raise TypeError(
            f"{value!r} can't be written in UTF-8, or has a NUL: expected a text; for a path with such "
            f"bytes, use a pattern (* or ?)"
        )
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {_key(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type):  # np.float32, ml_dtypes.bfloat16, bool, int, float
        return np.dtype(value).name
    if type(value).__name__ in ("dtype", "DType"):  # of torch and of TensorFlow
        return str(getattr(value, "name", value)).removeprefix("torch.")
    text = getattr(value, "__cachew_expression__", None)
    if text is not None:
        return text
    raise TypeError(
        f"{value!r} is a {type(value).__name__}: expected numbers, texts, lists, dicts, dtypes or expressions"
    )


def _key(key: Any) -> str:
    if not isinstance(key, str) or not is_text(key):
        raise TypeError(
            f"the key {key!r} is "
            f"{'no text in UTF-8' if isinstance(key, str) else f'a {type(key).__name__}'}: "
            f"expected a text"
        )
    return key


def is_text(text: str) -> bool:
    """Whether C code can get the text as UTF-8: it has no NUL and no lone surrogates. (Python decodes bytes
    of a file name that are not UTF-8 to lone surrogates.)
    """
    if "\0" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def shown_bytes(size: float) -> str:
    """A number of bytes for people, as the library prints it: "900 bytes", "65.9 kB", "446 MB"."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
    unit = 0
    while size >= (999.5 if unit else 1000) and unit + 1 < len(units):
        size, unit = size / 1000, unit + 1
    return f"{size:.{int(unit > 0 and size < 99.95)}f} {units[unit]}"


def bytes_of(text: str) -> int | None:
    """The number of bytes that a text such as "256M", "1.5 GiB" or "4194304" means; else None."""
    match = _BYTES.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2].upper()]) if match else None
