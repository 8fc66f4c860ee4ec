#!/usr/bin/env python3
"""
Measures what metrics, profiles and the policy cost a dispatcher. 1,000 simulated workers of one job (`load/`)
report each second what six operators computed, and what two caches hold and would save. The result is the
dispatcher's CPU time as a part of one core, once all workers are connected.

    bench/overhead.py auto

The policy gives the job as many workers as it needs.

    bench/overhead.py all

All workers serve the job.

    bench/overhead.py page

As `all`, with the dashboard open: its requests at the page's intervals, and Prometheus scrapes.

    bench/overhead.py caches

No policy for workers: all serve, and the dispatcher decides where they cache.

Prints a line of JSON.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

from service import cpu_ns, daemon

POLICIES = {
    "auto": ["--policy", "auto"],
    "all": ["--policy", "fixed:{n}"],
    "page": ["--policy", "fixed:{n}"],
    "caches": [],
}
SETTLE_S = 3  # after the last worker has connected
START_S = 8  # from the first worker until then
PAGE_S, SHARE = 2, 10  # as src/service/dispatcher/web/service.js has them
SCRAPE_S = 15


def ask(connection, path):
    connection.request("GET", path)
    return connection.getresponse().read()


def look(address, stop, looked):
    """Sends the requests of the dashboard at its intervals. Appends the seconds of each round to `looked`."""
    connection, scraped = http.client.HTTPConnection(address, timeout=30), 0
    wait = 0
    while not stop.wait(wait):
        began = time.monotonic()
        rows = {
            what: ask(connection, f"/api/v1/{what}")
            for what in ("status", "jobs", "workers", "pools", "streams")
        }
        job = urllib.parse.quote(json.loads(rows["jobs"])[0]["name"], safe="")
        for what in ("history", "decisions"):
            ask(connection, f"/api/v1/jobs/{job}/{what}")
        took = time.monotonic() - began
        looked.append(took)
        if began - scraped >= SCRAPE_S:
            ask(connection, "/metrics")
            scraped = began
        wait = max(PAGE_S, SHARE * took)


def there(address):
    """Workers that are known, once there is a job: then all of them are."""
    connection = http.client.HTTPConnection(address, timeout=30)
    jobs = json.loads(ask(connection, "/api/v1/jobs"))
    return (
        json.loads(ask(connection, "/api/v1/status"))["workers"]
        if jobs and jobs[0]["state"] == "running"
        else 0
    )


def measure(args):
    policy = [word.format(n=args.workers) for word in POLICIES[args.what]]
    with daemon(
        args.cachew, "dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *policy
    ) as dispatcher:
        address = dispatcher.ready["http"]
        words = [
            args.cachew.parent / "bench" / "dispatcher_load",
            "scaling",
            dispatcher.ready["address"],
            "--workers",
            args.workers,
            "--seconds",
            args.seconds + START_S,
        ]
        load = subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, text=True)
        stop, looked = threading.Event(), []
        looker = threading.Thread(target=look, args=(address, stop, looked))
        try:
            while there(address) < args.workers:
                if load.poll() is not None:
                    sys.exit("overhead: the simulated workers ended")
                time.sleep(0.5)
            if args.what == "page":
                looker.start()
            time.sleep(SETTLE_S)
            before, began = cpu_ns(dispatcher.pid), time.monotonic_ns()
            time.sleep(args.seconds)
            percent = 100 * (cpu_ns(dispatcher.pid) - before) / (time.monotonic_ns() - began)
            if args.what == "page" and len(looked) < args.seconds / (4 * PAGE_S):
                sys.exit(
                    f"overhead: the dispatcher was asked {len(looked)} times in {args.seconds} s: "
                    f"expected one each {PAGE_S} s"
                )
            said = json.loads(load.communicate()[0])
            return {
                "percent": percent,
                "workers": args.workers,
                "heartbeats_per_s": said["heartbeats_per_s"],
                "load": os.getloadavg()[0],
            }
        finally:
            stop.set()
            if looker.is_alive():
                looker.join()
            load.kill()
            load.wait()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=POLICIES)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10, help="duration of the measurement")
    parser.add_argument(
        "--cachew", type=Path, default=Path(__file__).resolve().parents[1] / "build" / "cachew"
    )
    args = parser.parse_args()
    print(json.dumps(measure(args)))


if __name__ == "__main__":
    main()
