"""The data of examples/pipelines, few of it, for tests of the command and of the Python package: conftest.py
makes fixtures of it.

CACHEW names the command (default build/cachew)."""

import fcntl
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CACHEW = os.environ.get("CACHEW", str(ROOT / "build" / "cachew"))


def once(directory, name, make):
    """Makes directory/name in one process; the others wait."""
    directory.mkdir(exist_ok=True)
    with open(directory / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / f"{name}.done").exists():
            make(directory / name)
            (directory / f"{name}.done").touch()
    return directory / name


def generated_picture(rng, height, width):
    """Waves."""
    y, x = np.mgrid[:height, :width]
    planes = [
        127 + 100 * np.sin(x / rng.uniform(5, 40) + rng.uniform(0, 6)) * np.cos(y / rng.uniform(5, 40))
        for _ in range(3)
    ]
    return Image.fromarray(np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8))


def jpeg(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90, **options)
    return out.getvalue()


def make_photos(out, command=CACHEW):
    """Photographs as the demo has them, but few, and drawn."""
    folder = out / "photos-folder"
    for words in ([out / "photos", "--format", "tfrecord"], [folder]):
        subprocess.run([command, "photos", *words, "--count", "200"], check=True, capture_output=True)
    subprocess.run(
        [sys.executable, ROOT / "tools" / "make_shards.py", folder, out / "photos-tar"], check=True
    )


# Where the counts of an example are meant for the whole data set.
FEWER = {
    "buckets": ["2.count=100"],
    "concat": ["0.inputs.0.2.count=80"],
    "evaluate": ["7.count=40"],
    "cheap": ["0.stop=100000"],
    "synthetic": ["0.cost_us=0"],
}
EXAMPLES = sorted(p.stem for p in (ROOT / "examples" / "pipelines").glob("*.json"))
