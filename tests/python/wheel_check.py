"""Run by tools/wheel.sh with the wheel installed and nothing else: the package works by itself. Needs no
file of the sources.
"""

import importlib.util
import json
import os
import struct
import subprocess
import sys
import urllib.request
import zlib
from importlib.metadata import distribution, requires
from pathlib import Path

import cachew
from cachew import Dataset, col

HANG_S = 900  # only a hang takes so long


def png(height, width):
    """A picture, made by hand."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(width * 3)) for y in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def main():
    for i in range(40):
        folder = Path("images") / f"class-{i % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.png").write_bytes(png(40 + i, 60))
    ds = (
        Dataset.image_folder("images")
        .decode_image("image")
        .random_resized_crop("image", size=(24, 24))
        .random_flip("image")
        .filter(col("label") != 3)
        .drop("path")
        .shuffle()
        .batch(8)
    )
    ds.save("pipeline.json")
    want = sum(b.hash() for b in ds.iterator(seed=1)) % 2**128
    command = Path(sys.executable).parent / "cachew"
    for words in ([command], [sys.executable, "-I", "-m", "cachew"]):
        ran = subprocess.run(
            [*words, "run", "pipeline.json", "--seed", "1", "--digest", "--json", "--wait", str(HANG_S)],
            check=True,
            capture_output=True,
            text=True,
        )
        assert json.loads(ran.stdout)["digest"] == f"{want:032x}"
    assert subprocess.run([command, "run", "none.json"], check=False, capture_output=True).returncode == 2

    # The dashboard is in the program.
    patient = {**os.environ, "CACHEW_SILENCE_S": str(HANG_S)}
    with subprocess.Popen(
        [command, "dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env=patient,
    ) as dispatcher:
        try:
            address = json.loads(dispatcher.stdout.readline())["ready"]["http"]
            with urllib.request.urlopen(f"http://{address}/app.js", timeout=HANG_S) as page:
                assert b"JobView" in page.read()
        finally:
            dispatcher.terminate()

    package = Path(cachew.__file__).parent
    assert (package / "py.typed").exists() and (package / "_methods.pyi").exists()
    hard = {r.split(">")[0] for r in requires("cachew") if "extra" not in r}
    assert hard == {"numpy", "cloudpickle"}, hard
    for name in ("torch", "jax", "pyarrow", "ml_dtypes"):
        assert importlib.util.find_spec(name) is None, f"{name} is here: this environment is not bare"

    # What is loaded comes from the wheel, or is in every Linux.
    assert distribution("cachew").locate_file("cachew.libs").exists()
    mapped = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
    native = [
        m for m in mapped if any(lib in m for lib in ("jansson", "xxhash", "libjpeg", "libpng", "webp"))
    ]
    assert len(native) >= 5 and all(os.path.realpath(sys.prefix) in os.path.realpath(m) for m in native), (
        native
    )
    print(
        f"cachew {cachew.__version__} on Python {sys.version.split()[0]}: {len(native)} libraries of its "
        f"own, digest {want:032x}"
    )


if __name__ == "__main__":
    main()
