"""PyTorch's DataLoader with Pillow, one worker process per core: what most training scripts do."""

import io
import random

import numpy as np
import torch
from common import SIZE, Meter, Records, arguments, crop_box, drain
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        data, label = self.records[i]
        image = Image.open(io.BytesIO(data)).convert("RGB")
        x, y, w, h = crop_box(*image.size, random.uniform)
        image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.asarray(image), label


def collate(samples):
    pixels = torch.empty((len(samples), SIZE, SIZE, 3), dtype=torch.uint8)
    rows = pixels.numpy()
    for row, (image, _) in zip(rows, samples):
        row[:] = image
    return pixels, torch.tensor([label for _, label in samples])


def main():
    args = arguments(__doc__)
    torch.set_num_threads(1)
    loader = DataLoader(
        Photos(Records(args.files)),
        batch_size=args.batch,
        shuffle=True,
        num_workers=args.threads,
        collate_fn=collate,
        persistent_workers=True,
        prefetch_factor=2,
    )

    def batches():
        for _ in range(args.epochs):
            yield from loader

    drain(Meter("DataLoader"), batches(), args.batches, lambda batch: len(batch[1]))


if __name__ == "__main__":
    main()
