#!/usr/bin/env python3
"""Measures how well `shuffle` mixes data that is sorted by class, beside permutations by NumPy, and prints
the tables of docs/shuffling.md.

Each data set has one component, `row`: the place of its record before it is shuffled. A figure is within
noise where it is at most 4 standard errors from its mean over 10 to 32 permutations. The result depends on
the seed alone. Needs the Python package; exits with 1 where a figure of a shuffle by record is not within
noise.
"""

import argparse
import contextlib
import functools
import gzip
import logging
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import make_data

CHUNK_BYTES, CHUNK_RECORDS = 4 << 20, 1024
POSITIONS = (60_000, 70_000, 200_000, 1_000_000, 10_000_000)
BATCHES = (128, 256)
CLASSES = (2, 10, 1000)
ERRORS = 4  # standard errors that are noise
FILES = 4
DIGITS = 8  # of a row, where it is text
SLICE = 100_000  # records that are made at a time
WIDE_BYTES = 65_536  # of records of which a window has 1,024
READ = 8192  # batch size for reading an order that depends on no batch size


# ---- data sets ----


class Data:
    """A data set: `ends` are the cumulative record counts of its chunks."""

    def __init__(self, name, dataset, ends, rows=lambda batch: batch["row"]):
        self.name, self.dataset, self.ends, self.rows = name, dataset, ends, rows
        self.n = int(ends[-1])

    def order(self, batch, seed, epoch=0):
        """The rows of an epoch in the order in which they come."""
        out, at = np.empty(self.n, np.int64), 0
        for b in self.dataset.batch(batch).iterator(seed=seed, first_epoch=epoch, epochs=epoch + 1):
            rows = self.rows(b)
            out[at : at + len(rows)] = rows
            at += len(rows)
        if at != self.n or not (np.bincount(out, minlength=self.n) == 1).all():
            raise SystemExit(f"{self.name}: {self.n} records, and not every one came exactly once")
        return out

    def __getattr__(self, operator):
        """The data set with one more operator, under the same name."""
        return lambda *args, **attributes: Data(
            self.name, getattr(self.dataset, operator)(*args, **attributes), self.ends, self.rows
        )


def chunk_ends(n, records=CHUNK_RECORDS):
    return np.append(np.arange(records, n, records), n)


def shards(n, multiple=CHUNK_RECORDS):
    """Where files begin and end: after whole chunks, so that all sets of small records have equal chunks."""
    return [min(k * -(-n // (FILES * multiple)) * multiple, n) for k in range(FILES + 1)]


def digits(begin, end):
    """Rows as text of DIGITS digits, one per line of an array of bytes."""
    places = 10 ** np.arange(DIGITS - 1, -1, -1)
    return (np.arange(begin, end)[:, None] // places % 10 + ord("0")).astype(np.uint8)


def numbers(begin, end):
    """The same with spaces in place of leading zeros."""
    text = digits(begin, end)
    leading = np.logical_and.accumulate(text == ord("0"), axis=1)
    leading[:, -1] = False
    text[leading] = ord(" ")
    return text


def write_lines(path, begin, end, lines, compress=False):
    """`lines(begin, end)` gives the bytes of records as lines of an array."""
    with gzip.open(path, "wb", 1) if compress else open(path, "wb") as f:
        for at in range(begin, end, SLICE):
            f.write(lines(at, min(at + SLICE, end)).tobytes())


def example_lines(begin, end):
    """TFRecords of Examples with `row` as a float (exact below 2^24), without the data's checksums."""
    value = struct.pack("<f", 1.0)
    record = make_data.record(make_data.example({"row": [1.0]}))
    lines = np.tile(np.frombuffer(record, np.uint8), (end - begin, 1))
    at = record.index(value)
    lines[:, at : at + 4] = np.arange(begin, end, dtype="<f4").view(np.uint8).reshape(-1, 4)
    return lines


def wide_records(begin, end):
    """TFRecords of WIDE_BYTES with `row` as a float, and a field of zeros, without the data's checksums."""
    header = struct.pack("<Q", WIDE_BYTES)
    for row in range(begin, end):
        payload = make_data.example({"row": [float(row)]}) + make_data.varint(15 << 3 | 2)
        payload += make_data.varint(WIDE_BYTES - len(payload) - 3)
        yield header + struct.pack("<I", make_data.masked(header)) + payload.ljust(WIDE_BYTES + 4, b"\0")


def json_lines(begin, end):
    before, after = b'{"row":', b"}\n"
    lines = np.tile(np.frombuffer(before + bytes(DIGITS) + after, np.uint8), (end - begin, 1))
    lines[:, len(before) : len(before) + DIGITS] = numbers(begin, end)
    return lines


def tar_lines(begin, end):
    """Samples with one file, ROW.row, whose content is its row."""
    header = bytearray(512)
    for at, field in (
        (DIGITS, b".row"),
        (100, b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % DIGITS + b"00000000000\0"),
        (156, b"0"),
        (257, b"ustar\x0000"),
    ):
        header[at : at + len(field)] = field
    lines = np.tile(np.frombuffer(bytes(header) + bytes(512), np.uint8), (end - begin, 1))
    lines[:, :DIGITS] = lines[:, 512 : 512 + DIGITS] = text = digits(begin, end)
    sums = sum(header) + 8 * ord(" ") + text.sum(axis=1, dtype=np.int64)
    lines[:, 148:154] = sums[:, None] // 8 ** np.arange(5, -1, -1) % 8 + ord("0")
    lines[:, 155] = ord(" ")
    return lines


def write_tar(path, begin, end):
    write_lines(path, begin, end, tar_lines)
    with open(path, "ab") as f:
        f.write(bytes(1024))  # the end of an archive


def rows_of_paths(batch):
    """Rows of paths, CLASS/ROW.jpg."""
    paths = batch["row"]
    text = np.asarray(paths.data[paths.offsets[0] : paths.offsets[-1]]).reshape(len(paths), -1)
    return (text[:, 2 : 2 + DIGITS].astype(np.int64) - ord("0")) @ 10 ** np.arange(DIGITS - 1, -1, -1)


def make_range(_, n):
    return dataset().range(n).rename({"value": "row"}), chunk_ends(n)


def make_arrays(_, n):
    return dataset().arrays({"row": np.arange(n)}), chunk_ends(n)


def make_concat(_, n):
    half = shards(n)[2]
    return dataset().concat(
        [dataset().range(half).rename({"value": "row"}), dataset().arrays({"row": np.arange(half, n)})]
    ), chunk_ends(n)


def make_tfrecord(directory, n, compress=False):
    suffix = ".gz" if compress else ""
    for k, (begin, end) in enumerate(zip(shards(n), shards(n)[1:])):
        write_lines(directory / f"part-{k}.tfrecord{suffix}", begin, end, example_lines, compress)
    records = dataset().tfrecord(str(directory / f"*.tfrecord{suffix}"), verify=False)
    return records.parse_example({"row": "float32"}), chunk_ends(n)


def make_gzip(directory, n):
    return make_tfrecord(directory, n, compress=True)


def make_jsonl(directory, n):
    for k, (begin, end) in enumerate(zip(shards(n), shards(n)[1:])):
        write_lines(directory / f"part-{k}.jsonl", begin, end, json_lines)
    return dataset().jsonl(str(directory / "*.jsonl"), features={"row": "int64"}), chunk_ends(n)


def make_tar(directory, n):
    for k, (begin, end) in enumerate(zip(shards(n), shards(n)[1:])):
        write_tar(directory / f"part-{k}.tar", begin, end)
    return dataset().tar(str(directory / "*.tar"), components={"row": "int64"}), chunk_ends(n)


def make_image_folder(directory, n):
    """Empty files in ten directories; only their paths are delivered."""
    for label in range(10):
        folder = directory / str(label)
        folder.mkdir()
        for row in range(label * n // 10, (label + 1) * n // 10):
            (folder / f"{row:0{DIGITS}}.jpg").touch()
    return (
        dataset().image_folder(str(directory)).select(["path"]).rename({"path": "row"}),
        chunk_ends(n, 1),
        rows_of_paths,
    )


def make_photos(directory, n, size=110_000):
    """TFRecords of the size of photographs: an unknown field of zeros, not stored, fills each."""
    for k, (begin, end) in enumerate(zip(shards(n, 1), shards(n, 1)[1:])):
        with open(directory / f"part-{k}.tfrecord", "wb") as f:
            for row in range(begin, end):
                payload = make_data.example({"row": [float(row)]}) + make_data.varint(15 << 3 | 2)
                payload += make_data.varint(size - len(payload) - 3)
                header = struct.pack("<Q", size)
                f.write(header + struct.pack("<I", make_data.masked(header)) + payload)
                f.seek(size - len(payload), 1)
                f.write(bytes(4))
    ends = np.concatenate(
        [
            begin + chunk_ends(end - begin, CHUNK_BYTES // size)
            for begin, end in zip(shards(n, 1), shards(n, 1)[1:])
        ]
    )
    return dataset().tfrecord(str(directory / "*.tfrecord"), verify=False).parse_example(
        {"row": "float32"}
    ), ends


MAKERS = {
    "range": make_range,
    "arrays": make_arrays,
    "concat": make_concat,
    "tfrecord": make_tfrecord,
    "jsonl": make_jsonl,
    "tar": make_tar,
    "image_folder": make_image_folder,
    "tfrecord.gz": make_gzip,
    "tfrecord, 110 kB": make_photos,
}
BY_RECORD = ["range", "arrays", "concat", "tfrecord", "jsonl", "tar", "image_folder"]
# The most positions that are measured: more files, or more samples of 1 KiB, take much room and time.
MOST = {"image_folder": 70_000, "tar": 1_000_000, "jsonl": 1_000_000}
# Shuffles by chunk that are measured: the source, how many positions, and `by` of each shuffle.
BY_CHUNK = [
    ("range", 70_000, ["chunk"]),
    ("range", 200_000, ["chunk"]),
    ("range", 1_000_000, ["chunk"]),
    ("range", 1_000_000, ["chunk", "chunk"]),
    ("range", 10_000_000, ["chunk"]),
    ("tfrecord, 110 kB", 100_000, ["chunk"]),
    ("tfrecord, 110 kB", 100_000, ["chunk", "chunk"]),
    ("tfrecord.gz", 70_000, ["record"]),
    ("tfrecord.gz", 1_000_000, ["record"]),
]


def dataset():
    from cachew import Dataset  # the package is not needed for the figures

    return Dataset


@contextlib.contextmanager
def made(name, n):
    with tempfile.TemporaryDirectory(prefix="cachew-mixing-") as directory:
        yield Data(name, *MAKERS[name](Path(directory), n))


# ---- figures ----


def groups(order, chunk_of, classes):
    """What each position belongs to: its chunk, or its class where classes are runs of equal length."""
    if classes is None:
        return chunk_of[order]
    return (order * classes // len(order)).astype(np.uint8 if classes <= 256 else np.uint16)


def of_batches(values, batch):
    """Means over whole batches: different values, sum of their squared shares, one value alone."""
    n = len(values) // batch
    rows = np.sort(values[: n * batch].reshape(n, batch), axis=1)
    new = np.ones((n, batch), bool)
    np.not_equal(rows[:, 1:], rows[:, :-1], out=new[:, 1:])
    runs = np.diff(np.append(np.flatnonzero(new), n * batch)).astype(float)
    return len(runs) / n, np.square(runs / batch).sum() / n, np.count_nonzero(runs == batch) / n


def figures(order, ends):
    """{(figure, batch size, classes): value}; None for what a figure does not depend on."""
    n = len(order)
    moved = np.abs(order - np.arange(n)).astype(float)
    chunk_of = np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0))
    chunks = groups(order, chunk_of, None)
    found = {
        ("mean displacement / N", None, None): moved.mean() / n,
        ("correlation", None, None): 1 - 6 * np.square(moved).sum() / (float(n) * (float(n) ** 2 - 1)),
        ("neighbours of one chunk", None, None): (chunks[1:] == chunks[:-1]).mean(),
    }
    for batch in BATCHES:
        found["chunks per batch", batch, None] = of_batches(chunks, batch)[0]
    for classes in CLASSES:
        labels = groups(order, None, classes)
        for batch in BATCHES:
            different, squares, single = of_batches(labels, batch)
            found["classes per batch", batch, classes] = different
            found["sd of a class's share", batch, classes] = max((squares - 1 / classes) / classes, 0) ** 0.5
            found["single-class batches", batch, classes] = single
    return found


class Reference:
    """The figures of permutations by NumPy: their mean, and the standard error of one more permutation."""

    def __init__(self, ends, seed):
        n = int(ends[-1])
        self.n, self.ends, self.count = n, ends, 32 if n <= 200_000 else 16 if n <= 1_000_000 else 10
        rng = np.random.default_rng(seed)
        seen = [figures(rng.permutation(n), ends) for _ in range(self.count)]
        self.mean = {key: float(np.mean([s[key] for s in seen])) for key in seen[0]}
        self.error = {
            key: float(np.std([s[key] for s in seen], ddof=1)) * (1 + 1 / self.count) ** 0.5
            for key in seen[0]
        }

    def within_noise(self, key, value):
        # Batches that lack a class may be so rare that no permutation had one: one such batch is noise.
        least = key[1] / self.n if key[0] == "classes per batch" else 0
        return abs(value - self.mean[key]) <= max(ERRORS * self.error[key], least, 1e-12)


# ---- tables ----


def percent(digits):
    return lambda value: f"{100 * value:.{digits}f} %"


SHOWN = [  # columns of the tables: key, title, text of a value
    (("mean displacement / N", None, None), "mean displacement / N", "{:.3f}".format),
    (("correlation", None, None), "correlation", "{:+.4f}".format),
    (("neighbours of one chunk", None, None), "neighbours of one chunk", percent(2)),
    (("chunks per batch", 256, None), "chunks", "{:.1f}".format),
    (("classes per batch", 256, 1000), "classes of 1,000", "{:.1f}".format),
    (("classes per batch", 256, 10), "classes of 10", "{:.2f}".format),
    (("sd of a class's share", 256, 2), "sd of a share", "{:.4f}".format),
    (("single-class batches", 256, 2), "one class alone", percent(1)),
]


def print_row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def print_head(*more):
    titles = ["positions", "order", *(title for _, title, _ in SHOWN), *more]
    print_row(*titles)
    print_row(*["---"] * len(titles))


def cells(values):
    return [form(values[key]) for key, _, form in SHOWN]


def print_all(name, found, reference):
    """Every figure beside that of a permutation."""
    for key, value in found.items():
        words = ", ".join(
            [key[0], *(f"{x} {what}" for x, what in ((key[1], "in a batch"), (key[2], "classes")) if x)]
        )
        verdict = "within noise" if reference.within_noise(key, value) else "NOT WITHIN NOISE"
        print(
            f"{name}, {reference.n:,}: {words}: {value:.6f},"
            f" a permutation {reference.mean[key]:.6f} +- {reference.error[key]:.6f}: {verdict}"
        )


@functools.lru_cache(maxsize=4)
def reference_of(ends, seed):
    return Reference(np.frombuffer(ends, np.int64), seed)


class Tables:
    def __init__(self, options):
        self.options, self.outside = options, []

    def reference(self, data):
        return reference_of(data.ends.astype(np.int64).tobytes(), self.options.seed)

    def wanted(self, name, n):
        return (not self.options.source or name in self.options.source) and (
            not self.options.positions or n in self.options.positions
        )

    def by_record(self):
        print_head("verdict")
        for n in POSITIONS:
            alike = []  # [order, reference, names]: the order depends on the number of records alone
            for name in (name for name in BY_RECORD if n <= MOST.get(name, n) and self.wanted(name, n)):
                with made(name, n) as data:
                    order, reference = data.shuffle().order(READ, self.options.seed), self.reference(data)
                same = [a for a in alike if a[1] is reference and np.array_equal(a[0], order)]
                if same:
                    same[0][2].append(f"`{name}`")
                else:
                    alike.append([order, reference, [f"`{name}`"]])
            for order, reference, names in alike:
                self.judge(order, reference, ", ".join(names))

    def judge(self, order, reference, names):
        found = figures(order, reference.ends)
        good = {key: reference.within_noise(key, value) for key, value in found.items()}
        self.outside += [(names, reference.n, key) for key in good if not good[key]]
        print_row(f"{reference.n:,}", "a permutation", *cells(reference.mean), "")
        print_row(
            "", f"`shuffle()` of {names}", *cells(found), f"{sum(good.values())} of {len(good)} within noise"
        )
        if self.options.all:
            print_all(names, found, reference)

    def by_chunk(self):
        print_head()
        for name, n, shuffles in (case for case in BY_CHUNK if self.wanted(*case[:2])):
            found = {}
            with made(name, n) as data:
                shuffled = functools.reduce(lambda d, by: d.shuffle(by), shuffles, data)
                for batch in BATCHES:  # windows depend on the batch size
                    all_found = figures(shuffled.order(batch, self.options.seed), data.ends)
                    found |= {key: value for key, value in all_found.items() if key[1] in (batch, None)}
            words = "".join('.shuffle(by="chunk")' if by == "chunk" else ".shuffle()" for by in shuffles)
            print_row(f"{n:,}", f"`{name}`, `{words}`", *cells(found))
            if self.options.all:
                print_all(name, found, self.reference(data))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--source", action="append", choices=MAKERS, help="this source alone (may be repeated)"
    )
    parser.add_argument(
        "--positions", action="append", type=int, help="this many positions alone (may be repeated)"
    )
    parser.add_argument("--table", choices=("record", "chunk"), help="this table alone")
    parser.add_argument(
        "--all", action="store_true", help="print all figures, for each batch size and number of classes"
    )
    options = parser.parse_args()
    logging.getLogger("cachew").setLevel(
        logging.ERROR
    )  # that shuffles by chunk mix less well is what is measured
    tables = Tables(options)
    if options.table != "chunk":
        tables.by_record()
        print()
    if options.table != "record":
        tables.by_chunk()
    for outside in tables.outside:
        print("not within noise:", *outside, file=sys.stderr)
    sys.exit(1 if tables.outside else 0)


if __name__ == "__main__":
    main()
