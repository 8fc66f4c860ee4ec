#!/usr/bin/env python3
"""Shows the dashboard of a service at work. Starts a service that scales and caches, and a training job;
doubles the job's demand; kills a worker with SIGKILL; and prints the address of the dashboard and what
happens. Takes about two minutes and little CPU, because the workers only wait instead of computing. The first
epoch is computed, the second one is read from the cache.

usage: dashboard_demo.py [--build DIR] [--stay]        prints the dashboard's address and what happens;
                                                       --stay: goes on until Ctrl-C
       dashboard_demo.py [--build DIR] --pictures DIR  makes dashboard-light.png, dashboard-dark.png and
                                                       narrow ones, as in docs/ (needs
                                                       chromium-headless-shell, fonts, and Pillow, as the
                                                       environment of the tests has them)
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

# (seconds from batch to batch of the client, seconds for which this lasts): its demand doubles after 30 s
STEPS = [(0.15, 30), (0.075, 1000000)]
KILL_S = 45  # seconds from the start until a worker is killed, in the first epoch
END_S = 112  # seconds from the start until the end, in the second epoch
# of the job; many, so that the policy expects a long job and scales although the first epoch is a thousandth
# of it
EPOCHS = 1000
WIDE, NARROW = 1180, 400  # pixels of the pictures, the second as on a phone
COLOURS = 256  # of a picture, which has few colours; so its file is small
# An epoch of 800 batches. An element takes 40 ms, so a batch of 8 takes 0.32 s.
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
    """Takes pictures of the page as it is now: wide ones with all about the job, narrow ones up to its time
    line."""
    from browser import Browser

    browser = Browser(directory)
    try:
        for theme in ("light", "dark"):
            for name, width, end in (
                ("dashboard", WIDE, "#workers"),
                ("dashboard-narrow", NARROW, "#events"),
            ):
                page = browser.page(width=width, height=900)
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
                    width,
                    page.evaluate(
                        f"Math.ceil(document.querySelector('{end}').getBoundingClientRect().top + scrollY)"
                    ),
                )
                page.until("document.querySelector('.timeline .mark')")
                save(page, out / f"{name}-{theme}.png")
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
        say(began, "a job begins: its client takes a batch every 0.15 s, a worker computes one in 0.32 s")
        sleep_until(began, STEPS[0][1])
        say(began, "from now on the client takes twice as many batches")
        sleep_until(began, KILL_S)
        worker = victim(service)
        os.kill(worker["pid"], signal.SIGKILL)
        say(began, f"worker {worker['id']} was killed")
        sleep_until(began, END_S)
        say(began, "cachew jobs explain resnet-7:")
        subprocess.run(
            [str(args.build / "cachew"), "jobs", "explain", "resnet-7", "--verbose", "--service", address],
            check=True,
        )
        if args.pictures:
            take(service, directory / "browser", args.pictures)
        if args.stay:
            say(began, "the service runs until Ctrl-C")
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
