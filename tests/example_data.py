"""The data of examples/pipelines, few of it, for tests of the command and of the Python package: conftest.py
makes fixtures of it.

CACHEW names the command (default build/cachew), MAKE_PHOTOS the tool that cuts photographs; without
photographs on this machine the pipelines over them are made of generated pictures."""

import fcntl
import io
import os
import subprocess
import sys
from pathlib import Path

import make_data
import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CACHEW = os.environ.get("CACHEW", str(ROOT / "build" / "cachew"))
MAKE_PHOTOS = os.environ.get("MAKE_PHOTOS", str(Path(CACHEW).parent / "tools" / "make_photos"))


def once(directory, name, make):
    """Makes directory/name in one process; the others wait."""
    directory.mkdir(exist_ok=True)
    with open(directory / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / f"{name}.done").exists():
            make(directory / name)
            (directory / f"{name}.done").touch()
    return directory / name


def generated_picture(rng, height, width, label=None):
    """Waves; with a label (one of ten) in a colour that tells it."""
    y, x = np.mgrid[:height, :width]
    planes = [
        127 + 100 * np.sin(x / rng.uniform(5, 40) + rng.uniform(0, 6)) * np.cos(y / rng.uniform(5, 40))
        for _ in range(3)
    ]
    colour = 0 if label is None else np.array([label % 3 - 1, label // 3 % 3 - 1, label // 9 - 0.5]) * 60
    return Image.fromarray(np.clip(np.stack(planes, -1) + colour, 0, 255).astype(np.uint8))


def jpeg(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90, **options)
    return out.getvalue()


def make_photos(out):
    """Photographs as the demo has them, but few."""
    cut_photos(out)
    subprocess.run(
        [sys.executable, ROOT / "tools" / "make_shards.py", out / "photos-folder", out / "photos-tar"],
        check=True,
    )


def cut_photos(out):
    photos, folder = out / "photos", out / "photos-folder"
    out.mkdir()
    if (
        subprocess.run(
            [MAKE_PHOTOS, "--out", photos, "--folder", folder, "--count", "200"],
            check=False,
            capture_output=True,
        ).returncode
        == 0
    ):
        return
    rng = np.random.default_rng(1)
    photos.mkdir(exist_ok=True)
    shards = [[] for _ in range(8)]
    for i in range(200):
        height, width = [(375, 500), (333, 500), (500, 375), (500, 500)][i % 4]
        data = jpeg(generated_picture(rng, height, width, i % 10))
        (folder / f"photo-{i % 10}").mkdir(parents=True, exist_ok=True)
        (folder / f"photo-{i % 10}" / f"{i:06}.jpg").write_bytes(data)
        shards[i % 8].append(
            make_data.example({"height": [height], "image": [data], "label": [i % 10], "width": [width]})
        )
    for k, payloads in enumerate(shards):
        make_data.write(photos / f"photos-{k:05}-of-00008.tfrecord", payloads)


# Where the counts of an example are meant for the whole data set.
FEWER = {
    "buckets": ["2.count=100"],
    "concat": ["0.inputs.0.2.count=80"],
    "evaluate": ["7.count=40"],
    "cheap": ["0.stop=100000"],
    "synthetic": ["0.cost_us=0"],
}
EXAMPLES = sorted(p.stem for p in (ROOT / "examples" / "pipelines").glob("*.json"))
