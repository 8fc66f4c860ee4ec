"""A peer that speaks the protocol as docs/protocol.md has it, by hand, and as badly as a test wants. Shares
no code with the project's.
"""

import socket
import struct
import sys
from pathlib import Path

import xxhash

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from make_data import field, varint  # noqa: E402

HEADER = struct.Struct("<4sIQQQ")
CLIENT, WORKER, ADMIN_CLIENT = 1, 2, 4
# numbers in Envelope
HELLO, FAILURE, PING, DONE, COMPLETED, REVOKE, GET, QUERY = 8, 10, 11, 12, 35, 43, 48, 64


def number(key, value):
    return varint(key << 3) + varint(value)


def envelope(kind, message=b"", request=0, answer=0):
    return (
        (number(1, request) if request else b"")
        + (number(2, answer) if answer else b"")
        + field(kind, message)
    )


def frame(message):
    check = xxhash.xxh3_64_intdigest(struct.pack("<QI", 0, len(message))) >> 48
    return HEADER.pack(b"CWF1", len(message), check << 48, xxhash.xxh3_64_intdigest(message), 0) + message


def hello(role, token="", host="nowhere"):
    said = (
        number(1, 1)
        + number(2, 1)
        + number(4, role)
        + field(5, token.encode())
        + field(6, b"raw")
        + field(8, bytes(range(16)))
        + field(9, host.encode())
    )
    return frame(envelope(HELLO, said, request=1 << 63 | 1))


def read_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(message):
    """[(number, value)]: an int, or bytes."""
    found, at = [], 0
    while at < len(message):
        key, at = read_varint(message, at)
        if key & 7 == 0:
            value, at = read_varint(message, at)
        else:
            size, at = (8, at) if key & 7 == 1 else (4, at) if key & 7 == 5 else read_varint(message, at)
            value, at = message[at : at + size], at + size
        found.append((key >> 3, value))
    return found


def frames(stream):
    """The envelopes of a stream of bytes, as far as they are whole: [(request, answer, kind, message)]."""
    found, at = [], 0
    while at + HEADER.size <= len(stream):
        magic, size, payload, _, _ = HEADER.unpack_from(stream, at)
        assert magic == b"CWF1", (at, bytes(stream[at : at + 16]))
        message = bytes(stream[at + HEADER.size : at + HEADER.size + size])
        if len(message) < size:
            break
        parts = fields(message)
        numbers = dict(p for p in parts if p[0] in (1, 2))
        found += [(numbers.get(1, 0), numbers.get(2, 0), kind, value) for kind, value in parts if kind > 2]
        at += HEADER.size + size + (payload & (1 << 48) - 1)  # above it are the check bits
    return found


def connect(address, timeout_s=900):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout_s)


def read_frames(sock):
    """Reads until an envelope is whole, or to the end. Returns what frames() makes of it."""
    data = b""
    try:
        while not frames(data) and (more := sock.recv(1 << 16)):
            data += more
    except ConnectionError:
        pass
    return frames(data)


def read_all(sock):
    """Until it is ended, by whatever."""
    data = b""
    try:
        while True:
            more = sock.recv(1 << 16)
            if not more:
                return data
            data += more
    except ConnectionError:
        return data
