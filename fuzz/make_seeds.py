#!/usr/bin/env python3
"""Makes seed corpora for the fuzzers, except those that tests/make_data.py makes, and a dictionary of the pipeline
language.

usage: make_seeds.py DIR CACHEW      makes DIR/arrow, DIR/cache, DIR/csv, DIR/expr, DIR/frame, DIR/host, DIR/image, DIR/parquet,
DIR/pipeline, DIR/shard, DIR/state, DIR/workload and DIR/pipeline.dict
"""

import importlib.util
import io
import json
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import xxhash
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
EXPRESSIONS = """x % 2 == 0 and f > 0.5
abs(i) + min(x, w) * max(d, 1) // 3
not b or length(s) > 3
where(b, h, g) ** 2
float32(a) / 255 - m
sqrt(exp(log(d))) if b else 0
`image/encoded` == s
-v + ~u & 7 | 3 ^ 1 << 2
(c * c).sum()
round(r) + floor(f)
1 // (x - 3)
big + 1
1e308 * 1e308
0x7fffffffffffffff + 1""".splitlines()


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def images():
    gradient = Image.new("RGB", (37, 29))
    gradient.putdata([(x * 7 % 256, y * 9 % 256, x * y % 256) for y in range(29) for x in range(37)])
    exif = Image.Exif()
    exif[0x112] = 6
    for name, image, kind, options in (
        ("444.jpg", gradient, "JPEG", {"subsampling": 0}),
        ("422.jpg", gradient, "JPEG", {"subsampling": 1}),
        ("420.jpg", gradient, "JPEG", {"subsampling": 2}),
        ("progressive.jpg", gradient, "JPEG", {"progressive": True}),
        ("turned.jpg", gradient, "JPEG", {"exif": exif}),
        ("grey.jpg", gradient.convert("L"), "JPEG", {}),
        ("cmyk.jpg", gradient.convert("CMYK"), "JPEG", {}),
        ("restart.jpg", gradient, "JPEG", {"restart_marker_blocks": 2}),
        ("rgb.png", gradient, "PNG", {}),
        ("palette.png", gradient.convert("P"), "PNG", {}),
        ("bits.png", gradient.convert("1"), "PNG", {}),
        ("alpha.png", gradient.convert("RGBA"), "PNG", {}),
        ("wide.png", Image.new("I;16", (9, 5), 4000), "PNG", {}),
        ("lossy.webp", gradient, "WEBP", {"quality": 60}),
        ("lossless.webp", gradient, "WEBP", {"lossless": True}),
        ("alpha.webp", gradient.convert("RGBA"), "WEBP", {"lossless": True}),
        ("one.png", Image.new("L", (1, 1)), "PNG", {}),
    ):
        out = io.BytesIO()
        image.save(out, kind, **options)
        yield name, out.getvalue()


def tables():
    for name, text in (
        ("plain", b"\x04id,name\n1,a\n-2,b\n"),
        ("quoted", b'\x04id,name\r\n1,"a ""b"",\nc"\r\n2,"",\r\n\n3,x"y"z\r\n4,"a"b\r\n'),
        ("tab", b'\x09\xef\xbb\xbfx\ty\n"1\t2"\tNA\n 3 \ttrue'),
        ("open", b'\x06a;b\n1;"2\n3;4\n'),
    ):
        yield name, text


def columns():
    """Small Arrow and Parquet files, if pyarrow is there."""
    if not importlib.util.find_spec("pyarrow"):
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "i": [1, None, 3],
            "s": ["a", "bc", None],
            "d": pa.array(["x", "y", "x"]).dictionary_encode(),
            "v": pa.array(["a string that is long", "b", "c"], pa.string_view()),
            "l": [[1], [], [2, None]],
            "f": pa.array([[True, False]] * 3, pa.list_(pa.bool_(), 2)),
            "t": [{"x": 1}, None, {"x": 2}],
        }
    )
    for name, make in (("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream)):
        for compression in (None, "lz4", "zstd"):
            for k, part in enumerate((table, table.select(["i", "s"]), table.select(["d", "v"]))):
                out = io.BytesIO()
                options = pa.ipc.IpcWriteOptions(compression=compression)
                with make(out, part.schema, options=options) as writer:
                    writer.write_table(part, max_chunksize=2)
                yield "arrow", f"{name}-{compression}-{k}", out.getvalue()
    for compression in ("none", "snappy", "zstd", "gzip"):
        out = io.BytesIO()
        pq.write_table(table.drop_columns(["v"]), out, compression=compression)
        yield "parquet", compression, out.getvalue()


def answers():
    """Answers of host processes (docs/hosts.md), after the three bytes from which fuzz_host takes the type and
    the counts that it expects.
    """
    for code, (dtype, kind) in enumerate([("<i8", 0), ("u1", 0), ("<f4", 1), ("bytes", 2), ("<i2", 3)]):
        n = 3
        parts = bytearray(8 * (16 + 2 * 4))
        status = len(parts)
        parts += bytes(64)
        table, data = len(parts), len(parts) + 8 * 8 * n
        if kind == 1:
            entries = [w for i in range(n) for w in (data + 16 * i, 1, 4, 0, 0, 0, 0, 0)]
        elif kind == 3:
            entries = [2, n, 4] + [0] * (8 * n - 3)
        else:
            entries = [0, 5, 5, 16] + [0] * (8 * n - 4)
        parts += b"".join(e.to_bytes(8, "little") for e in entries) + bytes(range(96))
        head = [n, status, status, 0, 0, 2] + [0] * 10 + [kind, data, table, 8] * 2
        parts[: 8 * len(head)] = b"".join(w.to_bytes(8, "little") for w in head)
        for type_byte in {
            "<i8": [8 | 1 << 4],
            "u1": [1 | 2 << 4, 1 | 1 << 4],
            "<f4": [11 | 2 << 4 | 0x80],
            "bytes": [13],
            "<i2": [6 | 2 << 4],
        }[dtype]:
            for counted in (0, 0x40):
                yield f"{code}-{type_byte}-{counted}", bytes([type_byte, n | counted, 0]) + bytes(parts)


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def messages():
    """An Envelope of every kind, with all fields of the .proto, after its frame header."""
    text = re.sub(r"//.*", "", (ROOT / "src" / "proto" / "cachew.proto").read_text()).replace(
        "oneof of {", ""
    )
    enums = re.findall(r"enum (\w+)", text)
    fields = {
        name: re.findall(r"(repeated )?(\w+) \w+ = (\d+);", body)
        for name, body in re.findall(r"message (\w+) \{(.*?)\}", text, re.DOTALL)
    }

    def value(kind, number):
        if kind in fields or kind in ("string", "bytes"):
            data = (
                b"".join(value(k, n) * (2 if repeated else 1) for repeated, k, n in fields[kind])
                if kind in fields
                else b"some text"
            )
            return varint(int(number) << 3 | 2) + varint(len(data)) + data
        if kind in ("fixed64", "double"):
            return varint(int(number) << 3 | 1) + bytes(range(8))
        assert kind in enums or kind in ("uint32", "uint64", "sint32", "sint64", "int32", "int64", "bool"), (
            kind
        )
        return varint(int(number) << 3) + varint(1 if kind in enums or kind == "bool" else 300 + int(number))

    for _, kind, number in fields["Envelope"]:
        if kind in fields:
            message = value("uint64", 1) + value("uint64", 2) + value(kind, number)
            check = xxhash.xxh3_64_intdigest(struct.pack("<QI", 5, len(message))) >> 48
            yield (
                kind,
                b"CWF1" + struct.pack("<IQ", len(message), 5 | check << 48) + bytes(16) + message + b"12345",
            )


def segments(cachew):
    """Segments of a cache with small elements, some of which a filter dropped, profiles with measurements of
    runs, and handmade segments with one entry each.
    """
    with tempfile.TemporaryDirectory() as directory:
        path, cache = Path(directory) / "p.json", Path(directory) / "c"
        chain = [
            {"op": "range", "stop": 5},
            {"op": "filter", "where": "value != 3"},
            {"op": "autocache"},
            {"op": "batch", "size": 2},
        ]
        path.write_text(json.dumps({"cachew": 1, "pipeline": chain}))
        subprocess.run(
            [cachew, "run", path, "--epochs", "3", "--cache-dir", cache], check=True, capture_output=True
        )
        for found in [*cache.glob("*/*.cws"), *cache.glob("*/profile.json")]:
            data = found.read_bytes()
            yield "found" + found.suffix, b"\3" + data if found.suffix == ".json" else b"\0" + data
    key = struct.pack("<QQQ", 1, 2, 3)
    frame = bytes.fromhex("28b52ffd60f4004d00001000000100ef2ac002")
    for stored, length in ((frame, 500), (b"some content", 12)):
        entry = (
            struct.pack("<QHHI24sII", 0, 0x4543, 0, 5, key, length, len(stored))
            + stored
            + bytes(-len(stored) % 8)
        )
        row, trailer = (
            struct.pack("<24sQIIII", key, 0, length, len(stored), 0, 0),
            struct.pack("<QQQQQQ", 1, 0, 5, 0, 0, 0),
        )
        yield f"entry of {len(stored)}", b"\2" + bytes(32) + entry + row + trailer


def elements():
    """An element of the schema of fuzz_shard.c as a record of each format."""
    sys.path.insert(0, str(ROOT / "tests"))
    from model import materialized
    from model.dtypes import Type, array

    types = {
        "b": Type("bytes"),
        "f": Type("float32", (2,)),
        "h": Type("float16", (None, 3)),
        "i": Type("int16", None),
        "u": Type("uint8"),
    }
    element = {name: array(t.dtype, np.arange(6)) for name, t in types.items() if name != "b"}
    shapes = {"f": (2,), "h": (2, 3), "i": (1, 3, 2), "u": ()}
    for name, shape in shapes.items():
        values = element[name].data[: int(np.prod(shape))].reshape(shape)
        element[name] = array(types[name].dtype, values)
    element = {"b": materialized.Value("bytes", b"seven"), **element}
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        materialized.to_tar(archive, 7, element)
    yield "cachew", b"\0" + materialized.to_cachew(types, element)
    yield "tfrecord", b"\1" + materialized.to_example(types, element)
    yield "tar", b"\2" + held.getvalue()[: 5 * 1024]


def main():
    out, cachew = Path(sys.argv[1]), sys.argv[2]
    frames = dict(messages())
    packed = b"CWF2" + bytes(4) + (500).to_bytes(8, "little") + bytes(16)
    frames["stored block"] = packed + (0x80000000 | 500).to_bytes(4, "little") + bytes(500)
    frames["compressed block"] = (
        packed + (19).to_bytes(4, "little") + bytes.fromhex("28b52ffd60f4004d00001000000100ef2ac002")
    )
    for name, data in [*frames.items(), ("all", b"".join(frames.values())), ("pings", frames["Ping"] * 5)]:
        put(out / "frame" / name, data)
    for name, data in segments(cachew):
        put(out / "cache" / name, data)
    for name, data in answers():
        put(out / "host" / name, data)
    for name, data in elements():
        put(out / "shard" / name, data)
    for name, data in tables():
        put(out / "csv" / name, data)
    for kind, name, data in columns():
        put(out / kind / name, data)
    for i, text in enumerate(EXPRESSIONS):
        for use in range(3):
            put(out / "expr" / f"{i}-{use}", bytes([use]) + text.encode())
    for i, (name, data) in enumerate(images()):
        for options in (0, 1, 8 + i % 4):
            put(out / "image" / f"{options}-{name}", bytes([options, 40, 60, 99, 120, 0, 0, 0]) + data)
    pipelines = [
        *(ROOT / "examples" / "pipelines").glob("*.json"),
        *(ROOT / "bench" / "pipelines").glob("*.json"),
    ]
    for path in pipelines:
        put(out / "pipeline" / path.name, path.read_bytes())
    for path in (ROOT / "examples" / "workloads").glob("*.json"):
        put(out / "workload" / path.name, path.read_bytes())
    ops = json.loads(
        subprocess.run([cachew, "ops", "--json"], check=True, capture_output=True, text=True).stdout
    )["ops"]
    words = {
        "cachew",
        "pipeline",
        "on_error",
        "defaults",
        "seed",
        "epochs",
        "raise",
        "skip",
        "replace",
        "op",
        "value",
        "data",
        "image",
        "record",
    }
    for op in ops:
        words.add(op["name"])
        attributes = {"op": op["name"]}
        for a in op["attributes"]:
            words |= {a["name"], *a.get("choices", [])}
            attributes[a["name"]] = a.get(
                "default",
                {
                    "int": 1,
                    "float": 1,
                    "ints": [2, 2],
                    "floats": [1.0],
                    "component": "data",
                    "dtype": "float32",
                    "expr": "value > 1",
                    "strings": ["data"],
                    "object": {"x": "value"},
                    "chains": [[{"op": "range", "stop": 5}]],
                }.get(a["kind"], "data"),
            )
        chain = (
            [attributes]
            if op["kind"] == "source" or any(a["kind"] == "chains" for a in op["attributes"])
            else [{"op": "synthetic", "count": 9, "shape": [4, 4, 3], "dtype": "uint8"}, attributes]
        )
        put(
            out / "pipeline" / f"op-{op['name']}.json",
            json.dumps({"cachew": 1, "pipeline": [*chain, {"op": "batch", "size": 2}]}).encode(),
        )
    put(out / "pipeline.dict", "".join(f'"\\"{w}\\""\n' for w in sorted(words)).encode())
    with tempfile.TemporaryDirectory() as directory:
        for kind, ops in enumerate(([], [{"op": "filter", "where": "value % 3 != 0"}])):
            path, state = Path(directory) / "p.json", Path(directory) / "state"
            path.write_text(
                json.dumps(
                    {
                        "cachew": 1,
                        "pipeline": [{"op": "range", "stop": 100}, *ops, {"op": "batch", "size": 4}],
                    }
                )
            )
            for n in (0, 3, 10):
                state.unlink(missing_ok=True)
                subprocess.run(
                    [cachew, "run", path, "--batches", str(n), "--state", state],
                    check=True,
                    capture_output=True,
                )
                for which in range(3):
                    put(
                        out / "state" / f"{kind}-{n}-{which}",
                        bytes([0x42 + which + (3 - 0x42 % 3) % 3]) + state.read_bytes(),
                    )
        put(
            out / "state" / "remnants",
            b"\x42" + json.dumps({**json.loads(state.read_text()), "remnants": "0:1:2 2:0:1"}).encode(),
        )


if __name__ == "__main__":
    main()
