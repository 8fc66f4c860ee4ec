"""tf.train.Example: the protobuf wire format, read and written by hand.

Example.features = 1; Features.feature = 1, a map of entries key = 1, value = 2; Feature is one of bytes_list
= 1, float_list = 2, int64_list = 3; each list is `repeated value = 1`, numbers packed or not.
"""

from __future__ import annotations

import struct

from .dtypes import RecordError

KINDS = {1: "bytes", 2: "float32", 3: "int64"}
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise RecordError("damaged varint")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, at
        shift += 7


def fields(data: bytes):
    """(field number, wire type, value) of a message; value is an int, or bytes where the wire has bytes."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise RecordError("field number 0")
        if wire == VARINT:
            value, at = read_varint(data, at)
        elif wire in (FIXED64, FIXED32, LENGTH):
            size = {FIXED64: 8, FIXED32: 4}.get(wire)
            if size is None:
                size, at = read_varint(data, at)
            if at + size > len(data):
                raise RecordError("field runs past the end")
            value, at = data[at : at + size], at + size
        else:
            raise RecordError("unknown wire type")
        yield number, wire, value


def signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def read_list(kind: str, data: bytes) -> list:
    values: list = []
    for number, wire, value in fields(data):
        if number != 1:
            continue
        if kind == "bytes" and wire == LENGTH:
            values.append(value)
        elif kind == "float32" and wire == FIXED32:
            values.append(struct.unpack("<f", value)[0])
        elif kind == "float32" and wire == LENGTH:
            if len(value) % 4:
                raise RecordError("packed floats of a length that is no multiple of 4")
            values += struct.unpack(f"<{len(value) // 4}f", value)
        elif kind == "int64" and wire == VARINT:
            values.append(signed(value))
        elif kind == "int64" and wire == LENGTH:
            at = 0
            while at < len(value):
                number64, at = read_varint(value, at)
                values.append(signed(number64))
        else:
            raise RecordError("a list holds a value of another wire type")
    return values


def read_feature(data: bytes) -> tuple[str, list] | None:
    """(kind, values), or None for a feature without any list."""
    found = None
    for number, wire, value in fields(data):
        if number in KINDS:
            if wire != LENGTH:
                raise RecordError("a feature's list is no message")
            kind = KINDS[number]
            before = found[1] if found and found[0] == kind else []
            found = (kind, before + read_list(kind, value))
    return found


def parse(data: bytes) -> dict[bytes, tuple[str, list] | None]:
    """Feature name -> (kind, values). Of features of the same name the last one holds."""
    result: dict[bytes, tuple[str, list] | None] = {}
    for number, wire, features in fields(data):
        if number != 1:
            continue
        if wire != LENGTH:
            raise RecordError("features is no message")
        for number2, wire2, entry in fields(features):
            if number2 != 1:
                continue
            if wire2 != LENGTH:
                raise RecordError("a feature's entry is no message")
            key, value = b"", b""
            for number3, wire3, part in fields(entry):
                if number3 in (1, 2) and wire3 != LENGTH:
                    raise RecordError("a feature's entry is damaged")
                if number3 == 1:
                    key = part
                elif number3 == 2:
                    value = part
            result[key] = read_feature(value)
    return result


def write_varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_bytes(number: int, data: bytes) -> bytes:
    return write_varint(number << 3 | LENGTH) + write_varint(len(data)) + data


def write_list(kind: str, values: list, packed: bool) -> bytes:
    if kind == "bytes":
        return b"".join(write_bytes(1, v) for v in values)
    if kind == "float32":
        if packed:
            return write_bytes(1, struct.pack(f"<{len(values)}f", *values))
        return b"".join(bytes([1 << 3 | FIXED32]) + struct.pack("<f", v) for v in values)
    if packed:
        return write_bytes(1, b"".join(write_varint(v) for v in values))
    return b"".join(bytes([1 << 3 | VARINT]) + write_varint(v) for v in values)


def write(features: dict[str, tuple[str, list]], packed: bool = True) -> bytes:
    numbers = {kind: number for number, kind in KINDS.items()}
    entries = b""
    for key, (kind, values) in features.items():
        feature = write_bytes(numbers[kind], write_list(kind, values, packed))
        entries += write_bytes(1, write_bytes(1, key.encode()) + write_bytes(2, feature))
    return write_bytes(1, entries)
