"""Writes small random data sets: TFRecord files of Examples, image folders, plain files, texts, JSON lines,
tar archives. Some records are damaged on request.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import math
import random
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from . import example
from .sources import masked_crc

LARGE_RECORD = 100_000  # bytes; their CRC is not computed, so they are read without checking it
DAMAGE = ("crc", "cut", "missing", "kind", "empty")


def tfrecord_bytes(records: list[bytes], bad_crc: set[int] = frozenset()) -> bytes:
    out = bytearray()
    for row, record in enumerate(records):
        length = struct.pack("<Q", len(record))
        crc = masked_crc(record) ^ (row in bad_crc) if len(record) < LARGE_RECORD else 0
        out += length + struct.pack("<I", masked_crc(length)) + record + struct.pack("<I", crc)
    return bytes(out)


def compress(data: bytes, compression: str) -> bytes:
    if compression == "gzip":
        return gzip.compress(data, mtime=0)
    if compression == "bzip2":
        return bz2.compress(data)
    if compression == "xz":
        return lzma.compress(data, preset=0)
    return zlib.compress(data) if compression == "zlib" else data


def random_features(rng: random.Random, number: int, images: bool) -> dict[str, tuple[str, list]]:
    features = {
        "id": ("int64", [number]),
        "label": ("int64", [rng.randint(-3, 12)]),
        "score": ("float32", [rng.choice([rng.uniform(-4, 4), 0.0, 1.5, 1e20])]),
        "vector": ("float32", [rng.gauss(0, 1) for _ in range(3)]),
        "grid": ("int64", [rng.randint(-(2**62), 2**62) for _ in range(4)]),
        "tokens": ("int64", [rng.randint(0, 99) for _ in range(rng.choice([0, 1, 3, rng.randint(0, 12)]))]),
        "name/text": ("bytes", [bytes(rng.choices(b"abcxyz \xff\0", k=rng.randint(0, 9)))]),
    }
    if rng.random() < 0.3:
        features["rare"] = ("int64", [rng.randint(0, 5)])
    if images:
        features["image"] = ("bytes", [random_image(rng)])
    return features


def random_example(rng: random.Random, number: int, images: bool, damage: str | None) -> bytes:
    features = random_features(rng, number, images)
    if damage == "missing":
        del features["id"]
    elif damage == "kind":
        features["id"] = ("bytes", [b"7"])
    elif damage == "empty":
        features["id"] = ("int64", [])
    data = example.write(features, packed=rng.random() < 0.7)
    if rng.random() < 0.1:
        data += example.write_bytes(15, b"unknown field")
    return data[: -rng.randint(1, 5)] if damage == "cut" else data


def write_tfrecords(
    rng: random.Random, directory: Path, compression: str, images: bool, damaged: bool
) -> None:
    """part-K.tfrecord files in the directory; with `damaged` at least one record fails where CRCs are
    verified.
    """
    directory.mkdir(parents=True)
    most = 12 if images else rng.choice([3, 60, 400])
    number = 0
    files = rng.randint(1, 4)
    sure = rng.randrange(files)
    for k in range(files):
        n = rng.randint(1 if damaged and k == sure else 0, most)
        bad = (
            set(rng.sample(range(n), min(n, rng.randint(1, 1 + n // 10)))) if damaged and k == sure else set()
        )
        records, bad_crc = [], set()
        for row in range(n):
            kind = rng.choice(DAMAGE) if row in bad else None
            if kind == "crc":
                bad_crc.add(row)
            records.append(random_example(rng, number, images, kind))
            number += 1
        (directory / f"part-{k}.tfrecord").write_bytes(
            compress(tfrecord_bytes(records, bad_crc), compression)
        )


def write_large_records(rng: random.Random, directory: Path, compression: str) -> None:
    """Records so large that chunks are closed by their bytes."""
    directory.mkdir(parents=True)
    records = [
        bytes([row]) * rng.choice([10, 1_000_000, 2_500_000, 5_000_000]) for row in range(rng.randint(3, 12))
    ]
    (directory / "part-0.tfrecord").write_bytes(compress(tfrecord_bytes(records), compression))


def write_many_records(rng: random.Random, directory: Path, compression: str) -> None:
    """A file of more records than a chunk holds."""
    directory.mkdir(parents=True)
    records = [example.write({"id": ("int64", [row])}) for row in range(rng.randint(1_020, 2_500))]
    (directory / "part-0.tfrecord").write_bytes(compress(tfrecord_bytes(records), compression))


def write_texts(rng: random.Random, directory: Path, compression: str) -> None:
    """part-K.txt files of short lines with either end, empty ones too."""
    directory.mkdir(parents=True)
    for k in range(rng.randint(1, 3)):
        lines = [
            bytes(rng.choices(b"abc \xff\0\r", k=rng.choice([0, 1, 5, rng.randint(0, 40)])))
            for _ in range(rng.choice([0, 3, 80, 1500]))
        ]
        end = rng.choice([b"\n", b"\r\n"])
        data = end.join(lines) + (end if rng.random() < 0.7 else b"")
        (directory / f"part-{k}.txt").write_bytes(compress(data, compression))


CSV_COLUMNS = ["label", "score", "half", "ok", "text", "f6"]
CSV_DAMAGE = ("few", "many", "quote", "number", "missing", "range")


def csv_field(rng: random.Random, text: str, delimiter: str) -> str:
    """The text as a field, in quotes where it must be and sometimes where it need not be."""
    if any(c in text for c in ('"', "\n", "\r", delimiter)) or rng.random() < 0.1:
        return '"' + text.replace('"', '""') + '"'
    return text


def csv_row(rng: random.Random, number: int, damage: str | None, delimiter: str) -> str:
    words = ["", "NA", "a", 'say "so"', "two\nlines", "x;y|z,w\tv", "\u00e9", "5'", "\r\n"]
    values = {
        "id": str(number),
        "label": str(rng.randint(0, 255)),
        "score": rng.choice(["0", "-1.5", "1e20", "nan", "", "0.1", " 7 ", "+3.25", repr(rng.gauss(0, 1))]),
        "half": rng.choice(["0", "1.1", "65504", "NA", "null"]),
        "ok": rng.choice(["true", "False", "TRUE"]),
        "text": rng.choice(words),
        "": rng.choice(["1", "2"]),
    }
    if damage == "number":
        values["id"] = rng.choice(["x", "1.5", "1e400"])
    elif damage in ("missing", "range"):
        values["id"] = rng.choice(["", "NA"]) if damage == "missing" else "9223372036854775808"
    row = [csv_field(rng, text, delimiter) for text in values.values()]
    if damage == "quote":
        row[5] = '"a"b'
    return delimiter.join(row[:-1] if damage == "few" else [*row, "more"] if damage == "many" else row)


def write_csvs(rng: random.Random, directory: Path, compression: str, damaged: bool, delimiter: str) -> None:
    """part-K.csv files with a header, the last column without a name; with `damaged` some rows fail."""
    directory.mkdir(parents=True)
    number = 0
    for k in range(rng.randint(1, 3)):
        rows = [delimiter.join(["id", *CSV_COLUMNS[:-1], ""])]
        for _ in range(rng.choice([0, 1, 30, 60, 200, 1100]) if k else rng.choice([3, 40, 1100])):
            damage = rng.choice(CSV_DAMAGE) if damaged and rng.random() < 0.1 else None
            rows.append(csv_row(rng, number, damage, delimiter))
            number += 1
            if rng.random() < 0.05:
                rows.append("")
        end = rng.choice(["\n", "\r\n"])
        data = end.join(rows) + (end if rng.random() < 0.7 else "")
        mark = b"\xef\xbb\xbf" if rng.random() < 0.2 else b""
        (directory / f"part-{k}.csv").write_bytes(compress(mark + data.encode(), compression))


TABLE_COLUMNS = ["label", "wide", "score", "half", "ok", "text", "tokens"]


def random_tables(rng: random.Random) -> list:
    """Tables of which score, text and tokens have nulls."""
    import pyarrow as pa  # takes a while, and few pipelines need it

    tables, number = [], 0
    for k in range(rng.randint(1, 3)):
        n = rng.choice([0, 1, 30, 200, 1100]) if k else rng.choice([3, 40, 1100])
        tokens = [
            [rng.randint(0, 99) for _ in range(rng.choice([0, 1, 3, rng.randint(0, 12)]))] for _ in range(n)
        ]
        columns = {
            "id": pa.array(range(number, number + n), pa.int64()),
            "label": pa.array([rng.randint(0, 255) for _ in range(n)], pa.uint8()),
            "wide": pa.array([rng.getrandbits(64) for _ in range(n)], pa.uint64()),
            "score": pa.array(
                [rng.choice([None, 0.0, 1.5, rng.gauss(0, 1)]) for _ in range(n)], pa.float32()
            ),
            "half": pa.array(np.array([rng.gauss(0, 1) for _ in range(n)], np.float16)),
            "ok": pa.array([rng.random() < 0.5 for _ in range(n)], pa.bool_()),
            "text": pa.array([rng.choice([None, "", "é", f"x{i}"]) for i in range(n)], pa.string()),
            "tokens": pa.array([None if rng.random() < 0.1 else t for t in tokens], pa.list_(pa.int32())),
        }
        number += n
        tables.append(pa.table(columns))
    return tables


def write_parquets(rng: random.Random, directory: Path) -> None:
    """part-K.parquet files."""
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    for k, table in enumerate(random_tables(rng)):
        pq.write_table(
            table,
            directory / f"part-{k}.parquet",
            compression=rng.choice(["none", "snappy", "gzip", "zstd"]),
            use_dictionary=rng.random() < 0.5,
            row_group_size=rng.choice([7, 100, 100000]),
            data_page_size=rng.choice([100, 100000]),
            data_page_version=rng.choice(["1.0", "2.0"]),
        )


def write_arrows(rng: random.Random, directory: Path) -> None:
    """part-K.arrow files, IPC files or streams, or part-K.zstd.arrow."""
    import pyarrow as pa

    directory.mkdir(parents=True)
    compression = rng.choice([None, None, "zstd"])
    for k, table in enumerate(random_tables(rng)):
        if rng.random() < 0.3:
            column = table.schema.get_field_index("text")
            table = table.set_column(column, "text", table["text"].dictionary_encode())
        make = rng.choice([pa.ipc.new_file, pa.ipc.new_stream])
        chosen = rng.choice([None, compression])
        options = pa.ipc.IpcWriteOptions(compression=chosen)
        with make(
            directory / f"part-{k}{'.zstd' if chosen else ''}.arrow", table.schema, options=options
        ) as writer:
            writer.write_table(table, max_chunksize=rng.choice([7, 100, 100000]))


JSON_DAMAGE = ("syntax", "empty", "range", "fraction", "kind", "missing", "null", "shape", "list")


def random_json(rng: random.Random, number: int, damage: str | None) -> str:
    numbers = [0, -1, 1.5, 1e-3, 2.0, 1e20, 12345678901234567890, 0.1]
    members = {
        "id": number,
        "label": rng.randint(0, 255),
        "signed": rng.choice([0, -128, 127, 5.0]),
        "score": rng.choice([*numbers, rng.uniform(-4, 4), math.nan, math.inf]),
        "half": rng.choice([0, 1.1, 65504, 1e-8, rng.gauss(0, 1)]),
        "ok": rng.random() < 0.5,
        "grid": [[rng.choice(numbers) for _ in range(3)] for _ in range(2)],
        "tokens": [rng.randint(0, 99) for _ in range(rng.choice([0, 1, 3, rng.randint(0, 12)]))],
        "text": "".join(rng.choices('abc \u00e9\u20ac\U0001f600"\\\n\0', k=rng.randint(0, 9))),
        "more": {"a": [1, {"b": None}], "id": 7},
    }
    if damage == "range":
        members["label"] = rng.choice([256, -1, 10**30, 1e300])
    elif damage == "fraction":
        members["label"] = 1.5
    elif damage == "kind":
        members["id"] = rng.choice(["7", True, [7], {}])
    elif damage == "missing":
        del members["id"]
    elif damage == "null":
        members["id"] = None
    elif damage == "shape":
        members["grid"] = rng.choice([[[1, 2, 3]], [[1, 2, 3], [1, 2]], [1, 2], 3])
    for name in ("label", "tokens"):
        if rng.random() < 0.1:
            members[name] = None
    if rng.random() < 0.3:
        members["rare"] = rng.randint(0, 5)
    items = list(members.items())
    rng.shuffle(items)
    text = json.dumps(
        dict(items),
        ensure_ascii=rng.random() < 0.5,
        separators=rng.choice([(",", ":"), (", ", ": "), (" ,  ", "\t:")]),
    )
    if rng.random() < 0.1:  # of a key that comes twice the last one counts
        text = '{"id": "first", ' + text[1:]
    if damage == "syntax":
        return rng.choice(
            [text[:-1], text + "}", text.replace(":", "", 1), "{,}", '{"id": 01}', '{"id": nil}']
        )
    elif damage == "empty":
        return ""
    elif damage == "list":
        return f"[{text}]"
    return text


def write_json_lines(rng: random.Random, directory: Path, compression: str, damaged: bool) -> None:
    """part-K.jsonl files; with `damaged` some lines fail where what is wrong with them is needed."""
    directory.mkdir(parents=True)
    number = 0
    for k in range(rng.randint(1, 3)):
        lines = []
        for _ in range(rng.choice([1, 3, 60, 300])):
            lines.append(
                random_json(rng, number, rng.choice(JSON_DAMAGE) if damaged and rng.random() < 0.1 else None)
            )
            number += 1
        data = "\n".join(lines).encode() + b"\n"
        (directory / f"part-{k}.jsonl").write_bytes(compress(data, compression))


TAR_DAMAGE = ("range", "word", "missing", "twice", "numpy", "few")


def numpy_bytes(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def random_sample(rng: random.Random, number: int, damage: str | None) -> list[tuple[str, bytes]]:
    """(extension, data) of one sample's files."""
    files = [
        ("id.txt", str(number).encode()),
        ("cls", rng.choice(["%d", " %d\n", "%d.0"]).encode() % rng.randint(0, 255)),
        (
            rng.choice(["jpg", "png", "JPG"]),
            rng.randbytes(rng.choice([0, 1, 511, 512, 513, rng.randint(0, 3000)])),
        ),
        ("box.txt", " ".join(str(rng.choice([0, -1.5, 1e3, 2])) for _ in range(4)).encode()),
        (
            "v.npy",
            numpy_bytes(np.array([[rng.randint(-99, 99) for _ in range(3)] for _ in range(2)], dtype="<i2")),
        ),
        ("many.NPY", numpy_bytes(np.array([rng.random() for _ in range(rng.randint(0, 4))], dtype="<f4"))),
    ]
    if rng.random() < 0.3:
        files.append(("rare", str(rng.randint(0, 5)).encode()))
    if damage == "range":
        files[1] = ("cls", rng.choice([b"256", b"-1", b"1.5"]))
    elif damage == "word":
        files[1] = ("cls", rng.choice([b"seven", b"", b"1 2"]))
    elif damage == "missing":
        del files[0]
    elif damage == "twice":
        files.append(("id.txt", b"0"))
    elif damage == "numpy":
        files[4] = (
            "v.npy",
            rng.choice(
                [
                    b"",
                    b"no array",
                    numpy_bytes(np.zeros((2, 3), ">i2")),
                    numpy_bytes(np.zeros((3, 2), "<i2")),
                    numpy_bytes(np.zeros((2, 3))),
                ]
            ),
        )
    elif damage == "few":
        files[3] = ("box.txt", b"1 2 3")
    rng.shuffle(files)
    return files


def write_tars(rng: random.Random, directory: Path, compression: str, damaged: bool) -> None:
    """part-K.tar archives in every format; with `damaged` some samples fail where what is wrong with them is
    needed.
    """
    directory.mkdir(parents=True)
    number = 0
    for k in range(rng.randint(1, 3)):
        out = io.BytesIO()
        form = rng.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
        with tarfile.open(fileobj=out, mode="w", format=form) as tar:
            for _ in range(rng.choice([0, 1, 5, 60])):
                below = rng.choice(["", "a/", "./b.c/", "d" * 90 + "/" + "e" * 60 + "/"])
                files = random_sample(
                    rng, number, rng.choice(TAR_DAMAGE) if damaged and rng.random() < 0.15 else None
                )
                for extension, data in files:
                    info = tarfile.TarInfo(f"{below}{number:04d}.{extension}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
                    if rng.random() < 0.05:  # passed over
                        other = tarfile.TarInfo(f"{below}{rng.choice(['directory.d', 'link.txt'])}")
                        other.type = tarfile.DIRTYPE if "directory" in other.name else tarfile.SYMTYPE
                        other.linkname = "elsewhere"
                        tar.addfile(other)
                    if rng.random() < 0.05:
                        readme = tarfile.TarInfo(f"{below}{rng.choice(['README', '.hidden.txt'])}")
                        readme.size = 5
                        tar.addfile(readme, io.BytesIO(b"hello"))
                number += 1
        (directory / f"part-{k}.tar").write_bytes(compress(out.getvalue(), compression))


def write_image_folder(rng: random.Random, directory: Path, damaged: bool) -> None:
    classes = [f"class{k}" for k in range(rng.randint(1, 3))]
    sure = rng.choice(classes)
    for name in classes:
        (directory / name).mkdir(parents=True)
        n = rng.randint(1, 10)
        bad = rng.sample(range(n), rng.randint(1, 1 + n // 4)) if damaged and name == sure else []
        for k in range(n):
            data = random_image(rng)
            ending = {b"\x89": "png", b"R": "webp"}.get(data[:1], "jpg")
            if k in bad:
                data = damage_image(rng, data)
            (directory / name / f"{k:02d}.{ending}").write_bytes(data)


def write_files(rng: random.Random, directory: Path) -> None:
    for part in ("a", "b"):
        (directory / part).mkdir(parents=True)
        for k in range(rng.randint(1, 20)):
            (directory / part / f"{k}.bin").write_bytes(
                rng.randbytes(rng.choice([1, 7, 300, 140_000 if k == 0 else 9]))
            )


def write_fixed_length(rng: random.Random, directory: Path, size: int, around: int) -> None:
    """K.bin files of records of `size` bytes, and `around` bytes that belong to none."""
    directory.mkdir(parents=True)
    for k in range(rng.randint(1, 4)):
        (directory / f"{k}.bin").write_bytes(rng.randbytes(around + size * rng.choice([0, 1, 40, 1200])))


def random_pixels(rng: random.Random, mode: str, width: int, height: int) -> Image.Image:
    """Smooth, so that lossy formats have something to do, with some noise."""
    bands = len(Image.new(mode, (1, 1)).getbands())
    small = Image.frombytes(mode, (3, 3), rng.randbytes(9 * bands)).resize(
        (width, height), Image.Resampling.BILINEAR
    )
    data = bytearray(small.tobytes())
    for _ in range(len(data) // 8):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return Image.frombytes(mode, (width, height), bytes(data))


def random_image(rng: random.Random) -> bytes:
    width, height = (rng.choice([1, 2, 7, 8, 16, 17, rng.randint(1, 40)]) for _ in range(2))
    out = io.BytesIO()
    kind = rng.choice(["jpeg", "jpeg", "jpeg", "png", "png16", "palette", "webp"])
    if kind == "jpeg":
        mode = rng.choice(["RGB", "RGB", "RGB", "L", "CMYK"])
        options = {"quality": rng.randint(40, 98), "progressive": rng.random() < 0.3}
        if mode == "RGB":
            options["subsampling"] = rng.choice(["4:4:4", "4:2:2", "4:2:0"])
        if mode != "CMYK" and rng.random() < 0.4:
            exif = Image.Exif()
            exif[0x0112] = rng.randint(1, 8)
            options["exif"] = exif
        random_pixels(rng, mode, width, height).save(out, "JPEG", **options)
        out.write(rng.choice([b"", b"", b"trailing bytes"]))
    elif kind == "png":
        random_pixels(rng, rng.choice(["L", "LA", "RGB", "RGBA"]), width, height).save(out, "PNG")
    elif kind == "palette":
        image = random_pixels(rng, "RGB", width, height).quantize(rng.randint(2, 16))
        image.save(out, "PNG", **({"transparency": 0} if rng.random() < 0.3 else {}))
    elif kind == "png16":
        return png16(rng, width, height)
    else:
        random_pixels(rng, rng.choice(["RGB", "RGBA"]), width, height).save(
            out, "WEBP", lossless=rng.random() < 0.5
        )
    return out.getvalue()


def png16(rng: random.Random, width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    colour, channels = rng.choice([(0, 1), (2, 3), (4, 2), (6, 4)])
    lines = b"".join(bytes([rng.randrange(5)]) + rng.randbytes(width * channels * 2) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


def damage_image(rng: random.Random, data: bytes) -> bytes:
    """Damage about which there are no two opinions: no image at all, cut in two, a PNG's checksum."""
    at = data.find(b"IDAT")
    if at > 0 and rng.random() < 0.6:
        at += 4 + rng.randrange(4)
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    return rng.choice([b"", b"no image", data[: len(data) // 2]])
