"""What the peers share: arguments, a TFRecord reader, and how a run is measured and reported."""

import argparse
import glob
import json
import mmap
import os
import struct
import time
from pathlib import Path

SIZE = 224
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)


def arguments(description, *flags):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("shards", help="glob of TFRecord shards of tf.train.Example with image and label")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads or worker processes"
    )
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--batches", type=int, default=0, help="stop after this many batches (0: all)")
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    args.files = sorted(glob.glob(args.shards))
    if not args.files:
        parser.error(f"{args.shards}: no such file")
    return args


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _fields(data, at, end):
    """(number, from, to) of each length-delimited field of a protobuf message, and (number, value, None) of
    varints.
    """
    while at < end:
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 2:
            yield tag >> 3, at, at + value
            at += value
        else:
            yield tag >> 3, value, None


def _example(data, at, end):
    """({name: (from, to)} of the first bytes, {name: value} of the first integers) of a tf.train.Example."""
    places, numbers = {}, {}
    for _, features, features_end in _fields(data, at, end):
        for _, entry, entry_end in _fields(data, features, features_end):
            (_, key, key_end), (_, value, value_end) = _fields(data, entry, entry_end)
            name = data[key:key_end].decode()
            kind, first, last = next(_fields(data, value, value_end))
            _, first, last = next(_fields(data, first, last))
            if kind == 1:
                places[name] = (first, last)
            elif kind == 3:
                numbers[name] = first if last is None else _varint(data, first)[0]
    return places, numbers


class Records:
    """Random access to the records of TFRecord shards: (JPEG bytes, label). Opens the files anew in each
    process.
    """

    def __init__(self, files):
        self.files = list(files)
        self.index = []
        for number in range(len(self.files)):
            data, at = self._map(number), 0
            while at < len(data):
                (length,) = struct.unpack_from("<Q", data, at)
                places, numbers = _example(data, at + 12, at + 12 + length)
                self.index.append((number, *places["image"], numbers["label"]))
                at += length + 16
        self.maps = {}

    def _map(self, number):
        with open(self.files[number], "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __getstate__(self):
        return {"files": self.files, "index": self.index, "maps": {}}

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        number, start, end, label = self.index[i]
        if number not in self.maps:
            self.maps[number] = self._map(number)
        return self.maps[number][start:end], label


def crop_box(width, height, uniform):
    """torchvision's RandomResizedCrop; uniform(low, high) draws. Returns x, y, width, height."""
    for _ in range(10):
        area = width * height * uniform(*SCALE)
        ratio = RATIO[0] * (RATIO[1] / RATIO[0]) ** uniform(0, 1)
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            return int(uniform(0, width - w + 1)), int(uniform(0, height - h + 1)), w, h
    return 0, 0, width, height


def age():
    """Seconds since this process was started."""
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start


def _kib(path, key):
    try:
        return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(key))
    except (OSError, StopIteration):
        return 0  # a process that has just ended


def _descendants(pid):
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue  # a thread that has just ended
        for child in children:
            yield child
            yield from _descendants(child)


class Meter:
    """
    Counts batches. The rate is taken from the first batch to the last, without the first one's images:
    starting an interpreter's worker processes is not what is compared (and is seen in first_batch_s). What
    was prefetched by then counts in the peer's favour.
    """

    def __init__(self, peer, not_counted=0):
        self.peer = peer
        self.not_counted = not_counted  # seconds of preparation before the first batch
        self.images = self.first_images = 0
        self.first = self.last = self.first_age = self.peak = self.looked = 0

    def batch(self, images):
        now = time.monotonic()
        if not self.first:
            self.first, self.first_images, self.first_age = now, images, age()
        self.images += images
        self.last = now
        if now - self.looked > 1:
            self.looked = now
            self._look()

    def _look(self):
        """With worker processes the sum of what each holds, shared pages divided; it takes about 5 ms a
        second.
        """
        children = list(_descendants(os.getpid()))
        if children:
            total = sum(_kib(Path(f"/proc/{p}/smaps_rollup"), "Pss:") for p in ["self", *children])
            self.peak = max(self.peak, total * 1024)

    def seconds(self):
        return self.last - self.first

    def report(self, **more):
        seconds = self.seconds()
        self._look()
        counted = self.images - self.first_images
        line = {
            "peer": self.peer,
            "images": self.images,
            "seconds": round(seconds, 4),
            "images_per_s": round(counted / seconds, 1) if seconds else 0,
            "peak_rss_bytes": max(self.peak, _kib(Path("/proc/self/status"), "VmHWM:") * 1024),
            "first_batch_s": round(self.first_age - self.not_counted, 3),
        }
        print(json.dumps(line | more), flush=True)


def drain(meter, batches, limit, size=len):
    """Takes every batch (at most limit, if that is not 0) and reports."""
    for n, batch in enumerate(batches, 1):
        meter.batch(size(batch))
        if n == limit:
            break
    meter.report()
