"""x + 1 of each number by a Python function, in batches of 1,024: Grain in its fastest form here, or
DataLoader with worker processes.
"""

import argparse
import os
import sys

from common import Meter, drain


class Numbers:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i + 1


def grain_batches(args):
    import grain
    from absl import flags

    flags.FLAGS(sys.argv[:1])
    dataset = grain.MapDataset.range(args.numbers).map(lambda x: x + 1)
    if args.threads_only:
        return dataset.to_iter_dataset(grain.ReadOptions(args.threads, prefetch_buffer_size=4096)).batch(1024)
    return dataset.batch(1024).to_iter_dataset(grain.ReadOptions(1, prefetch_buffer_size=16))


def torch_batches(args):
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    return DataLoader(Numbers(args.numbers), batch_size=1024, num_workers=args.threads, prefetch_factor=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=["grain", "torch"])
    parser.add_argument("numbers", type=int)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--threads-only", action="store_true", help="Grain: element by element through reader threads"
    )
    args = parser.parse_args()
    batches = {"grain": grain_batches, "torch": torch_batches}[args.peer](args)
    drain(Meter(args.peer), iter(batches), 0, len)


if __name__ == "__main__":
    main()
