"""NVIDIA DALI's CPU path: its own thread pool and partial decode, whole batches in C++."""

import atexit
import struct
import tempfile
from pathlib import Path

from common import RATIO, SCALE, SIZE, Meter, arguments, drain
from nvidia.dali import fn, pipeline_def, tfrecord, types


def write_index(path, folder):
    """DALI's index of a TFRecord file: a line with offset and size of each record, framing included."""
    lines, at, data = [], 0, Path(path).read_bytes()
    while at < len(data):
        size = struct.unpack_from("<Q", data, at)[0] + 16
        lines.append(f"{at} {size}\n")
        at += size
    index = Path(folder) / (Path(path).name + ".idx")
    index.write_text("".join(lines))
    return str(index)


def main():
    args = arguments(__doc__)
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    indexes = [write_index(path, folder.name) for path in args.files]

    @pipeline_def(batch_size=args.batch, num_threads=args.threads, device_id=None, prefetch_queue_depth=2)
    def photos():
        features = {"image": tfrecord.FixedLenFeature((), tfrecord.string, "")}
        features["label"] = tfrecord.FixedLenFeature([1], tfrecord.int64, 0)
        files = fn.readers.tfrecord(
            path=args.files,
            index_path=indexes,
            features=features,
            random_shuffle=True,
            initial_fill=1024,
            name="reader",
        )
        pixels = fn.decoders.image_random_crop(
            files["image"], random_area=SCALE, random_aspect_ratio=RATIO, output_type=types.RGB
        )
        pixels = fn.resize(
            pixels, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=False, dtype=types.UINT8
        )
        return fn.flip(pixels, horizontal=fn.random.coin_flip()), files["label"]

    pipeline = photos()
    pipeline.build()
    count = pipeline.epoch_size("reader") * args.epochs

    def batches():
        for _ in range(-(-count // args.batch)):
            yield pipeline.run()

    drain(Meter("DALI"), batches(), args.batches, lambda batch: len(batch[0]))


if __name__ == "__main__":
    main()
