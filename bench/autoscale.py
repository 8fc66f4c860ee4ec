#!/usr/bin/env python3
"""
Autoscale on one machine, with workers that have a tenth of a core each: a client with a known demand, the right number of workers found by fixed ones in the same run, and
what a policy makes of it. Then demand doubles and halves, and a worker is killed.

With --shares: two jobs of weights 2:1 on one pool, both short of workers, and what each of them got.

usage: autoscale.py [--shares] [--build DIR] [--policy P] [--worker-cpus C] [--max N] [--step S] [--batch-cpu-ms MS] [--sweep-s S] [--settle-s S] [--json]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WAITING = 0.02  # part of the time that a client may wait and count as served


class Daemon:
    def __init__(self, args, *words):
        self.process = subprocess.Popen([args.build / "cachew", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"cachew {words[0]} did not start: exit code {self.process.wait()}")
        self.ready = json.loads(line)["ready"]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.process.stdout.close()


class Service:
    """A dispatcher with a policy, and a provisioner of throttled workers."""

    def __init__(self, args, policy, most):
        self.args = args
        self.dispatcher = Daemon(args, "dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--policy", policy)
        self.provisioner = Daemon(args, "provision", "--dispatcher", self.dispatcher.ready["address"], "--max-workers", most, "--worker-cpus", args.worker_cpus,
                                  "--", "--threads", "1", "--memory", "64M")

    def get(self, what):
        with urllib.request.urlopen(f"http://{self.dispatcher.ready['http']}/api/v1/{what}", timeout=60) as answer:
            return json.load(answer)

    def job(self):
        return next((j for j in self.get("jobs") if j["name"] == "job"), None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.provisioner.end()
        self.dispatcher.end()


class Trainer:
    """Steps of known length; `lines` is what it says once a second."""

    def __init__(self, args, service, *phases, job="job"):
        self.lines = []
        self.process = subprocess.Popen([args.build / "bench" / "trainer", service.dispatcher.ready["address"], args.pipeline, job, *phases], stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=lambda: self.lines.extend(map(json.loads, self.process.stdout)))
        self.thread.start()

    def waiting(self, since, until):
        """The part of the time between two moments of its run that it waited."""
        lines = [line for line in self.lines if line["t"] - line["seconds"] >= since and line["t"] <= until]
        return sum(line["waited_s"] for line in lines) / max(sum(line["seconds"] for line in lines), 1e-9)

    def end(self):
        self.process.kill()
        self.thread.join()
        self.process.stdout.close()
        self.process.wait()


def fixed(args, n, step):
    """The part of the time that a client waits with n workers, once what was computed ahead is used up."""
    with Service(args, f"fixed:{n}", n) as service:
        trainer = Trainer(args, service, f"{step}:{args.sweep_s}")
        trainer.thread.join()
        waiting = trainer.waiting(args.sweep_s / 2, args.sweep_s + 5)
        trainer.end()
    return waiting


def right_number(args, step):
    """The smallest number with which it waits less than 2 %: around what computing takes, one by one."""
    n = max(1, int(args.batch_cpu_ms / 1000 / args.worker_cpus / step) - 1)
    found = {}
    while n <= args.max:
        found[n] = fixed(args, n, step)
        print(f"    fixed:{n}: waits {found[n]:.1%}", flush=True)
        if found[n] < WAITING:
            return n, found
        n += 1
    return n, found


def follow(service, began, until):
    """What was wanted when, until then."""
    seen = []
    while time.monotonic() - began < until:
        job = service.job()
        if job:
            now = (round(time.monotonic() - began, 1), job["scaling"]["wanted"], job["scaling"]["running"])
            if not seen or now[1:] != seen[-1][1:]:
                seen.append(now)
        time.sleep(0.25)
    return seen


def scale(args, steps):
    """Demand as `steps` say, one after the other; then a worker is killed. What was decided in each phase, and when the last worker was there."""
    phases, result = [f"{step}:{args.settle_s}" for step in steps], {"phases": []}
    with Service(args, args.policy, args.max) as service:
        trainer = Trainer(args, service, *phases, f"{steps[-1]}:30")
        while not service.job():
            time.sleep(0.05)
        began = time.monotonic()
        for i, step in enumerate(steps):
            seen = follow(service, began, (i + 1) * args.settle_s)
            inside = [s for s in seen if s[0] >= i * args.settle_s]
            wanted = [n for k, (_, n, _) in enumerate(inside) if k == 0 or n != inside[k - 1][1]]
            result["phases"].append({"step_s": step, "workers": inside[-1][1], "settled_after_s": round(inside[-1][0] - i * args.settle_s, 1), "path": wanted,
                                     "waiting_at_the_end": trainer.waiting((i + 1) * args.settle_s - 15, (i + 1) * args.settle_s)})
            print(f"    step {step} s: {result['phases'][-1]}", flush=True)
        worker = next(w for w in service.get("workers") if w["state"] == "ready" and w["serves"])
        os.kill(worker["pid"], signal.SIGKILL)
        killed, n = time.monotonic(), service.job()["scaling"]["wanted"]
        while not any(w["id"] > worker["id"] and w["state"] == "ready" and w["serves"] for w in service.get("workers")) or service.job()["scaling"]["running"] < n:
            if time.monotonic() - killed > 30:
                sys.exit("a worker that was killed was not replaced within 30 s")
            time.sleep(0.01)
        result["replaced_after_s"] = round(time.monotonic() - killed, 2)
        result["decisions"] = [{"t": d["t"], "chosen": d["record"]["chosen"]["workers"], "why": d["record"]["why"]} for d in service.get("jobs/job/decisions")]
        trainer.end()
    return result


def shares(args):
    """Batches of two jobs that take all they can get, by the second."""
    with Service(args, "auto", 3) as service:
        trainers = {name: Trainer(args, service, f"0:{args.settle_s}", job=name) for name in ("a", "b")}
        while {j["name"] for j in service.get("jobs")} != set(trainers):
            time.sleep(0.05)
        subprocess.run([args.build / "cachew", "jobs", "--service", service.dispatcher.ready["address"], "--share", "a", "--weight", "2"], check=True, stdout=subprocess.DEVNULL)
        for trainer in trainers.values():
            trainer.thread.join()
        got = {}
        for name, trainer in trainers.items():
            lines = [line for line in trainer.lines if line["t"] >= args.settle_s * 2 / 3]
            got[name] = sum(line["batches"] for line in lines) / sum(line["seconds"] for line in lines)
            trainer.end()
    ratio = got["a"] / got["b"]
    print(f"two jobs of weights 2:1 on three workers: {got['a']:.2f} and {got['b']:.2f} batches/s, {ratio:.2f}:1")
    return 0 if 1.9 <= ratio <= 2.1 else 1


def main():
    parser = argparse.ArgumentParser(description="autoscale with throttled workers")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--shares", action="store_true", help="two jobs of weights 2:1 instead")
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--worker-cpus", type=float, default=0.1)
    parser.add_argument("--max", type=int, default=12)
    parser.add_argument("--step", type=float, default=0.1)
    parser.add_argument("--batch-cpu-ms", type=float, default=40)
    parser.add_argument("--sweep-s", type=float, default=30)
    parser.add_argument("--settle-s", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        args.pipeline = Path(folder) / "pipeline.json"
        args.pipeline.write_text(json.dumps({"cachew": 1, "pipeline": [{"op": "synthetic", "count": 4096, "cost_us": args.batch_cpu_ms * 1000 / 8}, {"op": "batch", "size": 8}]}))
        if args.shares:
            return shares(args)
        steps = [args.step, args.step / 2, args.step]
        right = {}
        for step in sorted(set(steps)):
            print(f"step {step} s:", flush=True)
            right[step], _ = right_number(args, step)
        print(f"{args.policy}:", flush=True)
        result = scale(args, steps)
    for phase in result["phases"]:
        phase["right"] = right[phase["step_s"]]
    print(f"a worker that was killed was replaced after {result['replaced_after_s']} s")
    if args.json:
        print(json.dumps(result))
    wrong = [p for p in result["phases"] if abs(p["workers"] - p["right"]) > 0 or len(p["path"]) > 4 or p["settled_after_s"] > 60]
    for p in wrong:
        print(f"step {p['step_s']} s: {p['workers']} workers ({' '.join(map(str, p['path']))}) after {p['settled_after_s']} s; right: {p['right']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
