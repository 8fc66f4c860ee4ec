#!/usr/bin/env python3
"""
Makes the pictures of docs/dashboard.md: a service that scales, a client whose demand doubles, a worker that is killed. Takes about two minutes, and little CPU: what workers
compute is waiting.

usage: dashboard_pictures.py [--build DIR] [--out DIR]     (needs chromium-headless-shell, fonts, and Pillow: the environment of the tests)
"""

import argparse
import base64
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
STEPS = [(0.15, 40), (0.075, 75)]  # of the client, and for how long
KILL_S = 85                        # after the start
END_S = 108
COLOURS = 256                      # of a picture: it has few, and is small then
PIPELINE = [{"op": "synthetic", "count": 8000, "shape": [64]}, {"op": "delay", "us": 40000}, {"op": "batch", "size": 8}]


def save(page, path):
    picture = Image.open(io.BytesIO(base64.b64decode(page.picture()))).convert("RGB")
    picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size} bytes")


def take(browser, service, out):
    for theme in ("light", "dark"):
        page = browser.page(width=1180, height=1420)
        page.call("Emulation.setScrollbarsHidden", hidden=True)
        page.theme(theme)
        page.open(f"http://{service.ready['http']}/")
        page.until("document.querySelector('#events li.loss') && document.querySelector('#operators tbody')?.rows.length")
        page.evaluate("document.querySelector('#events li.decision details')?.setAttribute('open', '')")
        save(page, out / f"dashboard-{theme}.png")
        page.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    args = parser.parse_args()
    os.environ["CACHEW"] = str(args.build / "cachew")
    from browser import Browser
    from daemons import Daemons
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for part in ("daemons", "browser"):
            (directory / part).mkdir()
        pipeline = directory / "pipeline.json"
        pipeline.write_text(json.dumps({"cachew": 1, "pipeline": PIPELINE}))
        daemons, browser = Daemons(directory / "daemons"), Browser(directory / "browser")
        try:
            service = daemons.start("up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--autoscale", "--workers", 8, "--memory", "512M", "--threads", 1)
            began = time.monotonic()
            trainer = subprocess.Popen([args.build / "bench" / "trainer", service.address, pipeline, "resnet-7", *(f"{step}:{seconds}" for step, seconds in STEPS)],
                                       stdout=subprocess.DEVNULL)
            time.sleep(KILL_S)
            os.kill(next(w["pid"] for w in service.json("/api/v1/workers") if w["state"] == "ready" and w["serves"]), signal.SIGKILL)
            time.sleep(max(0, END_S - (time.monotonic() - began)))
            take(browser, service, args.out)
            trainer.kill()
            trainer.wait()
        finally:
            browser.end()
            daemons.end()


if __name__ == "__main__":
    main()
