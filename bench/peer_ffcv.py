"""FFCV: compiled pipeline on threads, from its own file format, written once beside the build (not
counted).
"""

import hashlib
import time
from pathlib import Path

import cv2
import numpy as np
from common import SIZE, Meter, Records, arguments, drain
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip
from ffcv.writer import DatasetWriter


class Decoded:
    """FFCV stores pictures from arrays; as JPEG at quality 93 they have the size of the originals."""

    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        data, label = self.records[i]
        return cv2.cvtColor(
            cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB
        ), label


def converted(args):
    stamps = [f"{f} {Path(f).stat().st_size} {Path(f).stat().st_mtime_ns}" for f in args.files]
    name = hashlib.sha256("\n".join(stamps).encode()).hexdigest()[:16]
    path = Path(__file__).resolve().parent.parent / "build" / "bench" / f"photos-{name}.beton"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=93), "label": IntField()}
        DatasetWriter(str(partial), fields, num_workers=args.threads).from_indexed_dataset(
            Decoded(Records(args.files))
        )
        partial.rename(path)
    return str(path)


def main():
    args = arguments(__doc__)
    start = time.monotonic()
    path = converted(args)
    meter = Meter("FFCV", not_counted=time.monotonic() - start)
    loader = Loader(
        path,
        batch_size=args.batch,
        num_workers=args.threads,
        order=OrderOption.RANDOM,
        os_cache=True,
        pipelines={
            "image": [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip()],
            "label": [IntDecoder()],
        },
    )

    def batches():
        for _ in range(args.epochs):
            yield from loader

    drain(meter, batches(), args.batches, lambda batch: len(batch[1]))


if __name__ == "__main__":
    main()
