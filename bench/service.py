#!/usr/bin/env python3
"""
One measurement of the service on this machine: starts what it needs, prints a line of JSON, ends it.
bench/run.py runs them; bench/README.md says what is measured. A line {"left_out": REASON}: this machine
can't do it.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LARGE = 38_535_168  # 64 images of 224 x 224 x 3 as float32
RANGE = {"op": "range", "stop": 1 << 30}


class Skip(Exception):
    """This machine can't do it, because ..."""


def ready(process):
    line = process.stdout.readline()
    if not line:
        sys.exit(f"service: {process.args[1]} ended before it was ready")
    return json.loads(line)["ready"]


@contextlib.contextmanager
def daemon(*command):
    """A daemon that serves, with what it said in `ready` and the seconds it took in `took`."""
    began = time.monotonic()
    process = subprocess.Popen(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        process.ready = ready(process)
        process.took = time.monotonic() - began
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def up(args, *options):
    return daemon(args.cachew, "up", "--listen", "127.0.0.1:0", "--threads", args.threads, *options)


def run(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"service: {command[0]} failed ({done.returncode})")
    return json.loads(done.stdout.strip().splitlines()[-1])


def write(folder, *operators):
    path = Path(folder) / "pipeline.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": list(operators)}))
    return path


def take(args, folder, memory, *options, source=RANGE, service_options=()):
    """Batches of one array, from the operator `memory`, through a service."""
    plugin = args.build / "bench" / "memory_op.so"
    path = write(folder, source, {"op": "memory", **memory}, {"op": "batch", "size": 1})
    with up(args, "--plugin", plugin, *service_options) as service:
        return run(
            args.build / "bench" / "hand_over", service.ready["address"], path, "--plugin", plugin, *options
        )


# ---- measurements ----


def photos(args, _):
    with up(args) as service:
        return run(
            args.cachew,
            "run",
            args.pipeline,
            "--json",
            "--epochs",
            args.epochs,
            "--service",
            service.ready["address"],
            "--job",
            "photos",
        )


def small(args, folder):
    return take(args, folder, {"bytes": 4096}, "--batches", 300_000, "--skip", 20_000)


def medium(args, folder):
    return take(args, folder, {"bytes": 1 << 20}, "--batches", 300_000, "--skip", 20_000)


def large(args, folder):
    return take(args, folder, {"bytes": LARGE}, "--batches", 60_000, "--skip", 2_000)


def same_credits(args, folder, credits):
    """
    What a batch of 38 MB costs, by what one of 4 KiB does, with as many asked for ahead: a descriptor and an
    index cost the same, whatever lies behind. Else all is equal: ranges of 3 batches, which is what large
    ones have, and a memory budget that does not limit what is computed ahead (no page of it is touched).
    """
    source = {"op": "range", "stop": 768}
    rates = [
        take(
            args,
            folder,
            {"bytes": size},
            "--batches",
            60_000,
            "--skip",
            2_000,
            "--credits",
            credits,
            source=source,
            service_options=("--memory", "64G"),
        )
        for size in (4096, LARGE)
    ]
    rates = [rate["batches_per_s"] for rate in rates]
    return {"ratio": rates[0] / rates[1], "small_per_s": rates[0], "large_per_s": rates[1]}


def credits_4(args, folder):
    return same_credits(args, folder, 4)


def credits_6(args, folder):
    return same_credits(args, folder, 6)


def credits_8(args, folder):
    return same_credits(args, folder, 8)


def rewrite(args, folder):
    return take(args, folder, {"bytes": LARGE, "rewrite": True}, "--batches", 3_000, "--skip", 100, "--touch")


def memset(args, _):
    return run(args.build / "bench" / "hand_over", "--memset", LARGE, "--threads", 1)


def tcp(args, folder):
    return take(args, folder, {"bytes": 4 << 20}, "--batches", 4_000, "--skip", 100, "--transport", "tcp")


def iperf3(_args, _folder):
    program = shutil.which("iperf3")
    if not program:
        raise Skip("iperf3 is not there (package iperf3)")
    with subprocess.Popen(
        [program, "--server", "--one-off", "--forceflush", "--port", "5299"],
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        for line in server.stdout:
            if "listening" in line:
                break
        client = subprocess.run(
            [program, "--client", "127.0.0.1", "--port", "5299", "--time", "3", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        server.communicate()
    if client.returncode:
        sys.exit(f"service: iperf3 failed ({client.returncode})")
    return {"bytes_per_s": json.loads(client.stdout)["end"]["sum_received"]["bits_per_second"] / 8}


def job(args, _):
    """The second job: the workers have seen the data, but computed nothing of it, for its seed is another."""
    with up(args) as service:
        command = [
            args.cachew,
            "run",
            args.pipeline,
            "--json",
            "--batches",
            1,
            "--service",
            service.ready["address"],
        ]
        run(*command, "--job", "warm", "--seed", 1)
        return run(*command, "--job", "measured", "--seed", 2)


def start(args, _):
    with up(args) as service:
        return {"seconds": service.took}


# ---- half a core each ----


@contextlib.contextmanager
def half_a_core():
    """A cgroup whose processes share half a core. Returns the file that takes their ids."""
    parent = Path("/sys/fs/cgroup/cpu")
    parent = parent if parent.is_dir() else Path("/sys/fs/cgroup")
    folder = Path(tempfile.mktemp(prefix="cachew-bench-", dir=parent))
    try:
        folder.mkdir()
    except OSError as e:
        raise Skip(f"no cgroup can be made in {parent}: {e.strerror}") from e
    try:
        try:
            if (folder / "cpu.cfs_quota_us").exists():
                (folder / "cpu.cfs_period_us").write_text("20000")
                (folder / "cpu.cfs_quota_us").write_text("10000")
            else:
                (folder / "cpu.max").write_text("10000 20000")
        except OSError as e:
            raise Skip(f"{folder} limits no CPU time: {e.strerror}") from e
        yield folder / "cgroup.procs"
    finally:
        for _ in range(50):  # the kernel lets go of it a little after its last process
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)


def halves(args, folder, n):
    """n workers of half a core each, on elements of 1 ms, in ranges of 64."""
    path = write(folder, {"op": "synthetic", "count": 1 << 14, "cost_us": 1000}, {"op": "batch", "size": 4})
    with contextlib.ExitStack() as stack:
        groups = [stack.enter_context(half_a_core()) for _ in range(n)]
        dispatcher = stack.enter_context(daemon(args.cachew, "dispatcher", "--listen", "127.0.0.1:0"))
        address = dispatcher.ready["address"]
        for group in groups:
            worker = stack.enter_context(
                daemon(args.cachew, "worker", "--dispatcher", address, "--threads", 1, "--memory", "256M")
            )
            group.write_text(str(worker.pid))
        return run(args.build / "bench" / "hand_over", address, path, "--batches", 700 * n, "--skip", 100 * n)


def one_half(args, folder):
    return halves(args, folder, 1)


def two_halves(args, folder):
    return halves(args, folder, 2)


# ---- many workers, in order ----


def spread(args, path, n, memory, batches, skip):
    """n workers of one thread each; their elements sleep, so that a small machine has room for all of
    them.
    """
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(daemon(args.cachew, "dispatcher", "--listen", "127.0.0.1:0")).ready[
            "address"
        ]
        for _ in range(n):
            stack.enter_context(
                daemon(args.cachew, "worker", "--dispatcher", address, "--threads", 1, "--memory", memory)
            )
        return run(
            args.build / "bench" / "hand_over", address, path, "--batches", batches * n, "--skip", skip * n
        )


def photographs(folder):
    """JPEG that decodes to more than 30 times its size, in 2,048 records; elements of 110 KB in ranges
    of 80.
    """
    try:
        from PIL import Image
    except ImportError as e:
        raise Skip("Pillow is not there") from e
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    import make_data

    payloads = []
    for i in range(32):
        image = io.BytesIO()
        Image.linear_gradient("L").rotate(11 * i).resize((192, 192)).convert("RGB").save(
            image, "JPEG", quality=85
        )
        if len(image.getvalue()) * 30 > 192 * 192 * 3:
            sys.exit(f"service: a photograph of {len(image.getvalue())} bytes is too large")
        payloads.append(make_data.example({"image": [image.getvalue()]}))
    make_data.write(Path(folder) / "gradients.tfrecord", payloads * 64)
    return write(
        folder,
        {"op": "tfrecord", "files": "gradients.tfrecord"},
        {"op": "repeat", "count": 10},
        {"op": "parse_example", "features": {"image": "bytes"}},
        {"op": "decode_image", "component": "image"},
        {"op": "delay", "us": 16000},
        {"op": "shuffle"},
        {"op": "batch", "size": 8},
    )


TWO_SPLITS = 2 * 80 * 192 * 192 * 3


def expanded_one(args, folder):
    return spread(args, photographs(folder), 1, TWO_SPLITS, 100, 20)


def expanded_eight(args, folder):
    return spread(args, photographs(folder), 8, TWO_SPLITS, 100, 20)


def records(folder):
    """3,000 of them, in ranges of one batch."""
    return write(
        folder,
        {"op": "range", "stop": 3000},
        {"op": "delay", "us": 4000},
        {"op": "shuffle"},
        {"op": "batch", "size": 32},
    )


def records_one(args, folder):
    return spread(args, records(folder), 1, "64M", 94, 14)


def records_six(args, folder):
    return spread(args, records(folder), 6, "64M", 94, 14)


# ---- idle ----


def cpu_ns(pid):
    """Of all its threads, to the nanosecond."""
    return sum(int(p.read_text().split()[0]) for p in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def idle(args, folder):
    """A job that is there and asks for nothing: the busiest of dispatcher, worker and client, in percent of
    a core.
    """
    path = write(folder, {"op": "synthetic", "count": 1 << 20, "shape": [1024]}, {"op": "batch", "size": 32})
    with up(args) as service:
        client = subprocess.Popen(
            [
                args.build / "bench" / "hand_over",
                service.ready["address"],
                path,
                "--batches",
                "200",
                "--hold",
                "8",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        client.stdout.readline()
        time.sleep(1)  # what was under way comes to an end
        processes = {
            "dispatcher": service.ready["pid"],
            "worker": service.ready["workers"][0]["pid"],
            "client": client.pid,
        }
        before, began = {name: cpu_ns(pid) for name, pid in processes.items()}, time.monotonic_ns()
        time.sleep(5)
        took = time.monotonic_ns() - began
        percent = {name: 100 * (cpu_ns(pid) - before[name]) / took for name, pid in processes.items()}
        client.communicate()
    return {"percent": max(percent.values()), **percent}


MEASUREMENTS = {
    f.__name__: f
    for f in (
        photos,
        small,
        medium,
        large,
        credits_4,
        credits_6,
        credits_8,
        rewrite,
        memset,
        tcp,
        iperf3,
        one_half,
        two_halves,
        expanded_one,
        expanded_eight,
        records_one,
        records_six,
        job,
        start,
        idle,
    )
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measurement", choices=MEASUREMENTS)
    parser.add_argument(
        "--cachew",
        type=Path,
        required=True,
        help="the command; its build folder has bench/hand_over and bench/memory_op.so",
    )
    parser.add_argument(
        "--pipeline", type=Path, help="pipeline file over photographs, for `photos` and `job`"
    )
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of all workers together"
    )
    args = parser.parse_args()
    args.build = args.cachew.resolve().parent
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = MEASUREMENTS[args.measurement](args, folder)
        except Skip as skip:
            result = {"left_out": str(skip)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
