#!/usr/bin/env python3
"""
What a person sees of a service: starts one that scales and caches, and a training job on it; lets the job's
demand double; kills a worker with -9; and says where to look. Takes about two minutes, and little CPU: what
workers compute is waiting. The first epoch is computed, the second one is read from the cache.

usage: dashboard_demo.py [--build DIR] [--stay]        prints the address for a browser and what happens;
--stay: until Ctrl-C
       dashboard_demo.py [--build DIR] --pictures DIR  makes docs/dashboard-light.png and -dark.png anew
                                                       (needs chromium-headless-shell, fonts, and Pillow: the
                                                       environment of the tests)
"""

import argparse
import base64
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]
from service import daemon  # noqa: E402

STEPS = [(0.15, 30), (0.075, 1000000)]  # of the client, and for how long: its demand doubles
KILL_S = 45  # after the start, in the first epoch
END_S = 112  # in the second
# of the job: the first one is a thousandth of it, and counts nevertheless
EPOCHS = 1000
COLOURS = 256  # of a picture: it has few, and is small then
# An epoch of 800 batches: of 40 ms an element, and so 0.32 s a batch.
PIPELINE = [
    {"op": "synthetic", "count": 6400, "shape": [64]},
    {"op": "delay", "us": 40000},
    {"op": "autocache"},
    {"op": "batch", "size": 8},
]


def say(began, text):
    print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)


def sleep_until(began, seconds):
    time.sleep(max(0, seconds - (time.monotonic() - began)))


def url(service):
    return f"http://{service.ready['http']}/"


def save(page, path):
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(page.picture()))).convert("RGB")
    picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path}: {path.stat().st_size} bytes")


def take(service, directory, out):
    """The page as it is now, down to what its job's operators took."""
    from browser import Browser

    browser = Browser(directory)
    try:
        for theme in ("light", "dark"):
            page = browser.page(width=1180, height=900)
            page.call("Emulation.setScrollbarsHidden", hidden=True)
            page.theme(theme)
            page.open(url(service))
            page.until(
                "document.querySelector('#events li.loss') && document.querySelector('#cache_points "
                "tbody')?.rows.length"
            )
            page.until("document.querySelector('#operators tbody')?.rows.length")
            page.evaluate(
                "document.querySelector('#events').style.maxHeight = 'none'; "
                "document.querySelector('#events li details')?.setAttribute('open', '')"
            )
            page.size(
                1180,
                page.evaluate(
                    "Math.ceil(document.querySelector('#workers').getBoundingClientRect().top + scrollY)"
                ),
            )
            page.until("document.querySelector('.timeline .mark')")
            save(page, out / f"dashboard-{theme}.png")
            page.close()
    finally:
        browser.end()


def victim(service):
    with urllib.request.urlopen(f"{url(service)}api/v1/workers", timeout=30) as answer:
        return next(w for w in json.load(answer) if w["state"] == "ready" and w["serves"])


def play(service, directory, args):
    began = time.monotonic()
    address = service.ready["address"]
    pipeline = directory / "pipeline.json"
    pipeline.write_text(json.dumps({"cachew": 1, "defaults": {"epochs": EPOCHS}, "pipeline": PIPELINE}))
    say(began, f"the dashboard: {url(service)}")
    words = [
        args.build / "bench" / "trainer",
        address,
        pipeline,
        "resnet-7",
        *(f"{step}:{seconds}" for step, seconds in STEPS),
    ]
    trainer = subprocess.Popen([str(w) for w in words], stdout=subprocess.DEVNULL)
    try:
        say(began, "a job begins: its client takes a batch each 0.15 s, a worker computes one in 0.32 s")
        sleep_until(began, STEPS[0][1])
        say(began, "from now on it takes twice as many")
        sleep_until(began, KILL_S)
        worker = victim(service)
        os.kill(worker["pid"], signal.SIGKILL)
        say(began, f"worker {worker['id']} was killed")
        sleep_until(began, END_S)
        say(began, "cachew jobs explain resnet-7:")
        subprocess.run(
            [str(args.build / "cachew"), "jobs", "explain", "resnet-7", "--service", address], check=True
        )
        if args.pictures:
            take(service, directory / "browser", args.pictures)
        if args.stay:
            say(began, "it goes on until Ctrl-C")
            with contextlib.suppress(KeyboardInterrupt):
                trainer.wait()
    finally:
        trainer.kill()
        trainer.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--pictures", type=Path, metavar="DIR")
    parser.add_argument("--stay", action="store_true")
    args = parser.parse_args()
    if args.pictures:
        args.pictures.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["ninja", "-C", args.build, "cachew", "bench/trainer"], check=True, stdout=subprocess.DEVNULL
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with daemon(
            args.build / "cachew",
            "up",
            "--listen",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--autoscale",
            "--workers",
            8,
            "--memory",
            "512M",
            "--threads",
            1,
            "--cache-dir",
            directory / "cache",
        ) as service:
            play(service, directory, args)


if __name__ == "__main__":
    main()
