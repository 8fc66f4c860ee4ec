#!/usr/bin/env python3
"""Writes a folder of labelled pictures (build/cachew photos) as tar files in the layout of
WebDataset, and as JSON lines.

usage: make_shards.py FOLDER OUT [--shards N]     gives OUT/photos-00000.tar ..., with NNNNNN.jpg and
NNNNNN.cls for each picture, and OUT/photos.jsonl with {"name", "label", "class", "bytes"} of each. Pictures
are distributed to the shards in turn."""

import argparse
import io
import json
import sys
import tarfile
from pathlib import Path


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)  # owner and time are 0, so the same folder gives the same bytes
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shards", type=int, default=4)
    args = parser.parse_args()
    classes = sorted(d for d in args.folder.iterdir() if d.is_dir())
    pictures = sorted((path.name, label, path) for label, d in enumerate(classes) for path in d.glob("*.jpg"))
    if not pictures:
        sys.exit(f"make_shards: no JPEG files below the directories of {args.folder}")
    args.out.mkdir(parents=True, exist_ok=True)
    lines = []
    for k in range(args.shards):
        with tarfile.open(args.out / f"photos-{k:05}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number, (_, label, path) in list(enumerate(pictures))[k :: args.shards]:
                add(tar, f"{number:06}.jpg", path.read_bytes())
                add(tar, f"{number:06}.cls", f"{label}\n".encode())
    for name, label, path in pictures:
        lines.append(
            json.dumps(
                {"name": name, "label": label, "class": path.parent.name, "bytes": path.stat().st_size}
            )
        )
    (args.out / "photos.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
