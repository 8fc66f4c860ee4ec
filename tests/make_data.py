#!/usr/bin/env python3
"""Writes small TFRecord files of tf.train.Examples, plain, gzip and zlib. Pure Python: shares no code with
the engine.

As a program: make_data.py DIR [--records N] writes
    DIR/plain-0[0-2].tfrecord, DIR/gzip-0[0-2].tfrecord.gz, DIR/zlib-0[0-2].tfrecord.z   the same N records
    in three files each DIR/empty.tfrecord
    no record DIR/damaged/...                                                                      one kind
    of damage each, see damaged()
Each Example has: id (int64), name (bytes), weight (float), vector (4 floats), tokens (0-9 int64), blob
(bytes of varying size). With --seeds it writes the seed corpus of the fuzzers instead: DIR/tfrecord,
DIR/example, DIR/index, DIR/jsonl, DIR/tar. As a module: record, example, write, expected.
"""

import argparse
import gzip
import io
import os
import struct
import tarfile
import zlib

import compressed

_TABLE = []
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = (_c >> 1) ^ (0x82F63B78 if _c & 1 else 0)
    _TABLE.append(_c)


def crc32c(data):
    c = 0xFFFFFFFF
    for byte in data:
        c = _TABLE[(c ^ byte) & 0xFF] ^ (c >> 8)
    return c ^ 0xFFFFFFFF


def masked(data):
    c = crc32c(data)
    return (((c >> 15) | (c << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    """One framed record."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def varint(v):
    v &= (1 << 64) - 1
    out = bytearray()
    while v >= 0x80:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    out.append(v)
    return bytes(out)


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(values, packed=True):
    """A Feature: of bytes, floats or ints, by the type of the first value; an empty list gives an empty
    Feature.
    """
    if not values:
        return b""
    if isinstance(values[0], (bytes, str)):
        return field(1, b"".join(field(1, v.encode() if isinstance(v, str) else v) for v in values))
    if isinstance(values[0], float):
        if packed:
            return field(2, field(1, struct.pack("<%df" % len(values), *values)))
        return field(2, b"".join(varint(1 << 3 | 5) + struct.pack("<f", v) for v in values))
    if packed:
        return field(3, field(1, b"".join(varint(v) for v in values)))
    return field(3, b"".join(varint(1 << 3 | 0) + varint(v) for v in values))


def example(features, packed=True):
    """An Example from {name: list of values}, in the order of the dict."""
    return field(
        1,
        b"".join(
            field(1, field(1, name.encode()) + field(2, feature(values, packed)))
            for name, values in features.items()
        ),
    )


def write(path, payloads, compression="none", members=1):
    """A TFRecord file of the payloads; gzip and zlib in so many members."""
    frames = [record(p) for p in payloads]
    with open(path, "wb") as f:
        if compression == "none":
            f.write(b"".join(frames))
            return
        step = -(-len(frames) // members) or 1
        for i in range(0, max(len(frames), 1), step):
            part = b"".join(frames[i : i + step])
            f.write(gzip.compress(part, 6, mtime=0) if compression == "gzip" else zlib.compress(part, 6))


def expected(i):
    """Features of record i of the standard files."""
    return {
        "id": [i],
        "name": ["record %d" % i],
        "weight": [i / 4.0],
        "vector": [float(i), -float(i), i * 0.5, 1e-3],
        "tokens": [(i * 7 + k) * (-1) ** k for k in range(i % 10)],
        "blob": [bytes((i * 31 + k * k) & 0xFF for k in range(i * 13 % 257))],
    }


def damaged(directory):
    """Files with one fault each; all have ten records unless the fault takes some away."""
    os.makedirs(directory, exist_ok=True)
    payloads = [example(expected(i)) for i in range(10)]
    frames = [record(p) for p in payloads]
    good = b"".join(frames)
    start5 = sum(len(f) for f in frames[:5])

    def put(name, data):
        with open(os.path.join(directory, name), "wb") as f:
            f.write(data)

    def flipped(at):
        return good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :]

    put("truncated-data.tfrecord", good[:-20])
    put("truncated-header.tfrecord", good[: start5 + 7])
    put("flipped-length.tfrecord", flipped(start5))
    put("flipped-length-crc.tfrecord", flipped(start5 + 9))
    put("flipped-data.tfrecord", flipped(start5 + 40))
    put("flipped-data-crc.tfrecord", flipped(start5 + len(frames[5]) - 1))
    huge = struct.pack("<Q", 1 << 63)
    put("length-2^63.tfrecord", good[:start5] + huge + struct.pack("<I", masked(huge)) + good[start5:])
    wrong = dict(expected(5), id=["five"])
    put("wrong-type.tfrecord", b"".join(frames[:5] + [record(example(wrong))] + frames[6:]))
    missing = {k: v for k, v in expected(5).items() if k != "id"}
    put("missing-feature.tfrecord", b"".join(frames[:5] + [record(example(missing))] + frames[6:]))
    put(
        "wrong-count.tfrecord",
        b"".join(frames[:5] + [record(example(dict(expected(5), vector=[1.0, 2.0])))] + frames[6:]),
    )
    put("malformed-example.tfrecord", b"".join(frames[:5] + [record(b"\x0a\xff\x01broken")] + frames[6:]))
    packed = gzip.compress(good, 6, mtime=0)
    put("truncated.tfrecord.gz", packed[:-30])
    put(
        "flipped.tfrecord.gz",
        packed[: len(packed) // 2] + bytes([packed[len(packed) // 2] ^ 1]) + packed[len(packed) // 2 + 1 :],
    )
    put("trailing.tfrecord.gz", packed + b"\0\0more")
    put("not-tfrecord.txt", b"This is a text file and nothing else.\n")


def seeds(directory):
    """One small file of each kind per parser; the first byte of tfrecord and index seeds is the fuzzer's
    choice of mode.
    """

    def put(kind, name, data):
        os.makedirs(os.path.join(directory, kind), exist_ok=True)
        with open(os.path.join(directory, kind, name), "wb") as f:
            f.write(data)

    payloads = [example(expected(i), packed=i % 2 == 0) for i in range(4)]
    for i, payload in enumerate(payloads):
        put("example", "example-%d" % i, payload)
    put("example", "merged", example({"a": [1]}) + example({"a": [2.0], "b": []}) + field(9, b"unknown"))
    good = b"".join(record(p) for p in payloads)
    put("tfrecord", "plain", b"\1" + good)
    put("tfrecord", "auto", b"\0" + good)
    put("tfrecord", "gzip", b"\2" + gzip.compress(good, 6, mtime=0) + gzip.compress(good, 1, mtime=0))
    put("tfrecord", "zlib", b"\3" + zlib.compress(good, 6))
    for number, codec in enumerate(("zstd", "bzip2", "xz"), 4):
        half = len(good) // 2
        put("tfrecord", codec, b"%c" % number + compressed.packed(codec, good, half))
        put("tfrecord", codec + "-auto", b"\0" + compressed.packed(codec, good))
    put("tfrecord", "zstd-skippable", b"\4" + compressed.SKIPPABLE + compressed.zstd_stored(good, 20))
    put("tfrecord", "xz-blocks", b"\6" + compressed.xz_blocks(good, half))
    put("tfrecord", "empty", b"\1")
    huge = struct.pack("<Q", 1 << 63)
    put("tfrecord", "huge", b"\1" + huge + struct.pack("<I", masked(huge)))

    lines = (
        b'{"id": 1, "s": "caf\\u00e9 \\ud83d\\ude00\\n", "v": [[1, 2.5], [-3e2, 0]]}\r\n\n'
        b'{"ok": true, "no": null, "x": NaN}\nnot json\n{"a": {"b": [{}]}}'
    )
    put("jsonl", "plain", b"\1" + lines)
    put("jsonl", "auto", b"\0" + lines)
    put("jsonl", "gzip", b"\2" + gzip.compress(lines, 6, mtime=0) + gzip.compress(lines, 1, mtime=0))
    put("jsonl", "zlib", b"\3" + zlib.compress(lines, 6))
    for number, codec in enumerate(("zstd", "bzip2", "xz"), 4):
        put("jsonl", codec, b"%c" % number + compressed.packed(codec, lines, 50))
    put("jsonl", "empty", b"\1")

    for form, name in (
        (tarfile.USTAR_FORMAT, "ustar"),
        (tarfile.GNU_FORMAT, "gnu"),
        (tarfile.PAX_FORMAT, "pax"),
    ):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as tar:
            for member in (
                "a/0.jpg",
                "a/0.cls",
                "README",
                "a/1.seg.npy",
                "long" * 20 + "/" + "name" * 10 + ".txt",
            ):
                header = b"{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n"
                data = (
                    b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + b"abcd"
                    if member.endswith("npy")
                    else b"7\n"
                )
                info = tarfile.TarInfo(
                    member
                    if name == "ustar"
                    else member.replace("a/", "\u00e4" * (60 if member == "a/1.seg.npy" else 1) + "/")
                )
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            info = tarfile.TarInfo("directory")
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        archive = out.getvalue().rstrip(b"\0")
        archive += bytes(-len(archive) % 512 + 512)  # little after the end: the fuzzer's inputs are small
        put("tar", name, b"\x09" + archive)
        put("tar", name + "-gzip", b"\2" + gzip.compress(archive, 6, mtime=0))
        put("tar", name + "-xz", b"\6" + compressed.PACK["xz"](archive))
    put("tar", "empty", b"\x09" + bytes(512))

    def column(form, values):
        data = struct.pack("<%d%s" % (len(values), form), *values)
        return data + bytes(-len(data) % 8)

    def segment(codec, lengths, restarts, windows):
        offsets = [sum(lengths[:i]) + 16 * i for i in range(len(lengths))]
        stream = sum(lengths) + 16 * len(lengths)
        size = stream if codec == 1 else 100
        body = struct.pack(
            "<QqqQQQQQQQQQ",
            size,
            7,
            8,
            99,
            codec,
            stream,
            0 if codec == 1 else 1 << 17,
            len(lengths),
            1 if lengths else 0,
            len(restarts),
            len(windows),
            2,
        )
        body += (
            column("Q", offsets)
            + column("Q", lengths)
            + column("I", [5] * len(lengths))
            + column("Q", [len(lengths)][: len(lengths)])
        )
        base = 32 + len(body) + 32 * len(restarts)
        for out, into, bits, window, at in restarts:
            body += struct.pack("<QQIIQ", out, into, bits, window, base + at)
        return body + column("B", windows) + b"a\0" + bytes(6)

    def text_segment(offsets, lengths, stream):
        body = struct.pack(
            "<QqqQQQQQQQQQ", stream, 7, 8, 99, 1, stream, 0, len(lengths), 1 if lengths else 0, 0, 0, 2
        )
        body += (
            column("Q", offsets)
            + column("Q", lengths)
            + column("Q", [77])
            + column("Q", [len(lengths)][: len(lengths)])
        )
        return body + b"a\0" + bytes(6)

    put("index", "lines", b"\x02" + text_segment([0, 4, 6], [3, 0, 5], 11))
    put("index", "lines-empty", b"\x02" + text_segment([], [], 0))
    put("index", "tar", b"\x03" + text_segment([512, 4096], [1024, 2048], 10240))
    put("index", "segment", b"\0" + segment(1, [3, 0, 100], [], b""))
    put("index", "segment-empty", b"\0" + segment(1, [], [], b""))
    put(
        "index",
        "segment-gzip",
        b"\0" + segment(2, [30, 40], [(20, 10, 0, 8, 0), (50, 20, 3, 12, 8)], bytes(20)),
    )
    names = b"/r/a.jpg\0/r/b.jpg\0"
    files = struct.pack("<QQ", 2, len(names)) + column("Q", [10, 20, 1, 2, 3, 4, 77, 78, 0, 9, 3, 3]) + names
    put("index", "files", b"\1" + files)
    put("index", "files-unsealed", b"\x15" + files)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory")
    parser.add_argument("--records", type=int, default=300)
    parser.add_argument("--seeds", action="store_true")
    args = parser.parse_args()
    if args.seeds:
        return seeds(args.directory)
    os.makedirs(args.directory, exist_ok=True)
    payloads = [example(expected(i), packed=i % 2 == 0) for i in range(args.records)]
    third = -(-len(payloads) // 3)
    for k in range(3):
        part = payloads[k * third : (k + 1) * third]
        for name, compression, members in (
            ("plain-%02d.tfrecord", "none", 1),
            ("gzip-%02d.tfrecord.gz", "gzip", k + 1),
            ("zlib-%02d.tfrecord.z", "zlib", 1),
        ):
            write(os.path.join(args.directory, name % k), part, compression, members)
    write(os.path.join(args.directory, "empty.tfrecord"), [])
    damaged(os.path.join(args.directory, "damaged"))


if __name__ == "__main__":
    main()
