"""What tests of batches from a service share."""

import cachew
import pytest
from cachew import Dataset

MASK128 = (1 << 128) - 1


def runs(pid):
    """Whether a process is there, and not merely not yet reaped."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def place(b):
    return b.epoch, b.g, b.flags, b.n_records


def all_of(iterator):
    """Everything that a user sees of batches."""
    found = []
    for b in iterator:
        arrays = {
            name: v.tolist()
            if isinstance(v, cachew.Bytes)
            else bytes(v)
            if isinstance(v, memoryview)
            else (v.dtype.name, v.shape, v.tobytes())
            for name, v in b.items()
        }
        found.append((place(b), b.hash(), b.records, b.record_flags, arrays))
    return found


def values(batches):
    return [list(map(int, b["value"])) for b in batches]


def doubled(element):
    return {"value": element["value"] * 2, "text": str(int(element["value"])).encode() * 3}


def stuck():
    return Dataset.range(8)._for_tests("fail", "true", kind="hang").batch(4)


def error_of(call):
    with pytest.raises(cachew.Error) as caught:
        call()
    return caught.value
