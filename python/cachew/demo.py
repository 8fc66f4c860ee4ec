"""Photographs to try Cachew with.

import cachew.demo

ds = (cachew.Dataset.image_folder(cachew.demo.photos(1000))
      .decode_image("image")
      .random_resized_crop("image", size=(224, 224))
      .shuffle()
      .batch(64))
"""

from __future__ import annotations

import json
import os
import subprocess

from cachew._errors import from_core
from cachew._service import find_command

__all__ = ["photos"]


def photos(count: int = 1000, directory: str | os.PathLike[str] | None = None) -> str:
    """Makes JPEG photographs of landscapes, and returns the directory that holds them, for
    `Dataset.image_folder`. It holds a directory for each label. The pictures are drawn by the command
    `cachew photos`, the same ones on every machine; those of an earlier call are used again.

    count: how many pictures.
    directory: where to keep them; by default `~/.cache/cachew/photos-COUNT`.
    """
    words = [find_command(), "photos", "--json", "--count", str(count)]
    if directory is not None:
        words += ["--", os.fspath(directory)]
    ran = subprocess.run(words, check=False, capture_output=True, text=True)
    result = json.loads(ran.stdout.splitlines()[-1]) if ran.stdout else {}
    if ran.returncode == 0:
        return str(result["directory"])
    error = result.get("error", {"kind": "internal", "message": ran.stderr.strip()})
    names = ("operator", "attribute", "value", "expected", "file", "record")
    facts = [error[name].encode() if name in error else None for name in names]
    raise from_core(error["kind"].encode(), error["message"].encode(), 0, *facts)
