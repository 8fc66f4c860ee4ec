"""Compressed data for tests: one function for each compression that Cachew reads. zstd is compressed by
the system's libzstd, which Cachew needs too; the others by Python's own modules."""

import bz2
import ctypes
import functools
import gzip
import lzma
import zlib

# Parameters of libzstd (ZSTD_cParameter in zstd.h).
LEVEL, WINDOW_LOG, CONTENT_SIZE, CHECKSUM = 100, 101, 200, 201
SKIPPABLE = bytes.fromhex("502a4d1804000000") + b"abcd"  # a frame of zstd without data, as pzstd writes it


@functools.cache
def libzstd():
    library = ctypes.CDLL("libzstd.so.1")
    for name, result, arguments in (
        ("ZSTD_createCCtx", ctypes.c_void_p, []),
        ("ZSTD_freeCCtx", ctypes.c_size_t, [ctypes.c_void_p]),
        ("ZSTD_CCtx_setParameter", ctypes.c_size_t, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]),
        ("ZSTD_compressBound", ctypes.c_size_t, [ctypes.c_size_t]),
        ("ZSTD_compress2", ctypes.c_size_t, [ctypes.c_void_p, *[ctypes.c_char_p, ctypes.c_size_t] * 2]),
        ("ZSTD_isError", ctypes.c_uint, [ctypes.c_size_t]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def zstd(data, level=3, checksum=True, parameters=()):
    """One frame. parameters: more pairs of a parameter and its value."""
    library = libzstd()
    context = library.ZSTD_createCCtx()
    out = ctypes.create_string_buffer(library.ZSTD_compressBound(len(data)))
    for parameter, value in ((LEVEL, level), (CHECKSUM, checksum), *parameters):
        assert not library.ZSTD_isError(library.ZSTD_CCtx_setParameter(context, parameter, int(value)))
    size = library.ZSTD_compress2(context, out, len(out), data, len(data))
    library.ZSTD_freeCCtx(context)
    assert not library.ZSTD_isError(size)
    return out.raw[:size]


def zstd_stored(data, window):
    """One frame of less than 128 KiB that is not compressed and asks for a window of 2^window bytes."""
    block = (len(data) << 3 | 1).to_bytes(3, "little")  # the last block, stored as it is
    return bytes.fromhex("28b52ffd00") + bytes([(window - 10) << 3]) + block + data


PACK = {
    "gzip": functools.partial(gzip.compress, mtime=0),
    "zlib": zlib.compress,
    "zstd": zstd,
    "bzip2": bz2.compress,
    "xz": functools.partial(lzma.compress, preset=0),
}


def xz_number(value):
    """A number as xz writes it: 7 bits a byte, the lowest first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def xz_records(index):
    """The bytes of an index of xz without its head, padding and checksum, if it has one record."""
    assert index[:2] == b"\0\1"
    at = 2
    for _ in range(2):
        while index[at] & 0x80:
            at += 1
        at += 1
    return index[2:at]


def xz_blocks(data, size):
    """One stream of xz with a block for every `size` bytes, as `xz -T` writes it: the blocks of streams with
    one block each, behind one header and before one index.
    """
    blocks, records = [], []
    for piece in pieces(data, size):
        stream = PACK["xz"](piece)
        index_size = (int.from_bytes(stream[-8:-4], "little") + 1) * 4
        blocks.append(stream[12 : -12 - index_size])
        records.append(xz_records(stream[-12 - index_size : -12]))
    index = b"\0" + xz_number(len(blocks)) + b"".join(records)
    index += bytes(-len(index) % 4)
    index += zlib.crc32(index).to_bytes(4, "little")
    backward = (len(index) // 4 - 1).to_bytes(4, "little") + stream[6:8]
    footer = zlib.crc32(backward).to_bytes(4, "little") + backward + b"YZ"
    return stream[:12] + b"".join(blocks) + index + footer


def pieces(data, size):
    """The data, cut every `size` bytes."""
    return [data[i : i + size] for i in range(0, len(data), size)] or [b""]


def packed(codec, data, size=None):
    """The data as one member, or as members of `size` bytes each."""
    return b"".join(map(PACK[codec], pieces(data, size or len(data) or 1)))
