#!/usr/bin/env python3
"""
Compares Cachew with its peers on this machine and prints one table: everything is measured in this run, the
programs taking turns in each round, and every ratio is of medians over the rounds. See bench/README.md for
what is compared.

PEERS=none|tfdata|all in the environment selects the peers; without it tf.data, DataLoader and Grain.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from table import render

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
VENV = ROOT / "build" / "bench-venv"
PACKAGES = ["numpy", "pillow", "tokenizers", "xxhash"]
PEER_PACKAGES = {
    "tfdata": ["tensorflow-cpu"],
    "torch": ["torch==2.13.0"],  # one version, so that figures of different days compare
    "grain": ["grain", "opencv-python-headless"],
}
EXTRA = {
    "ffcv": "FFCV: apt-get install libopencv-dev libturbojpeg0-dev pkg-config, then {pip} install ffcv",
    "dali": "DALI: {pip} install nvidia-dali-cuda120",
}
MODULES = {"ffcv": "ffcv", "dali": "nvidia.dali"}
CACHE_ROUNDS = 3  # within each measurement
SELECTIONS = {"none": [], "tfdata": ["tfdata"], "": list(PEER_PACKAGES), "all": [*PEER_PACKAGES, *EXTRA]}


def say(text):
    print(text, file=sys.stderr, flush=True)


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cpus = len(os.sched_getaffinity(0))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--epochs", type=int, default=3, help="epochs over the photographs in each measurement"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=cpus,
        help=f"threads or worker processes of each program (default {cpus})",
    )
    parser.add_argument("--elements", type=int, default=20_000_000, help="elements of the cheap pipeline")
    parser.add_argument("--photos", type=Path, default=ROOT / "build" / "photos", help="made if absent")
    parser.add_argument("--cachew", type=Path, default=ROOT / "build" / "cachew")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    args = parser.parse_args()
    if min(args.rounds, args.epochs, args.threads, args.elements) < 1:
        parser.error("--rounds, --epochs, --threads and --elements must be at least 1")
    selected = os.environ.get("PEERS", "")
    if selected not in SELECTIONS:
        parser.error(f"PEERS={selected}: must be none, tfdata or all")
    args.peers = list(SELECTIONS[selected])
    return args


def prepare_venv(peers):
    """Makes the virtual environment, or adds what it lacks; returns its interpreter. Nothing is fetched
    twice.
    """
    python = VENV / "bin" / "python"
    if not (VENV / "bin" / "pip").exists():  # the last file that making one writes
        say(f"making {VENV}")
        venv.create(VENV, with_pip=True, clear=True)
    wanted = PACKAGES + [p for peer in peers for p in PEER_PACKAGES.get(peer, [])]
    stamp = VENV / "installed.json"
    there = json.loads(stamp.read_text()) if stamp.exists() else []
    missing = [p for p in wanted if p not in there]
    if missing:
        say("installing " + " ".join(missing))
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *missing]
        if subprocess.run(pip).returncode:
            sys.exit("bench: pip failed; PEERS=none runs without the peers, PEERS=tfdata with one")
        stamp.write_text(json.dumps(sorted({*there, *missing})))
    return python


def drop_unavailable(args, python):
    """Takes the peers that can't be imported from args.peers and says what they lack."""
    for peer in [p for p in args.peers if p in EXTRA]:
        if subprocess.run([python, "-c", f"import {MODULES[peer]}"], capture_output=True).returncode:
            say("left out " + EXTRA[peer].format(pip=VENV / "bin" / "pip"))
            args.peers.remove(peer)


def install_package(python):
    """The Python package into the virtual environment, again whenever a source of it is newer."""
    stamp = VENV / "package.stamp"
    sources = [
        p
        for folder in ("src", "include", "python")
        for p in (ROOT / folder).rglob("*")
        if p.suffix in (".c", ".h", ".py", ".build", ".in")
    ]
    if stamp.exists() and stamp.stat().st_mtime > max(p.stat().st_mtime for p in sources):
        return
    say("installing the package")
    if subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", ROOT]
    ).returncode:
        sys.exit("bench: the package can't be installed")
    stamp.touch()


def prepare_photos(args):
    files = sorted(args.photos.glob("*.tfrecord"))
    if not files:
        words = ["--format", "tfrecord", "--count", "3000", "--source", "/usr/share/backgrounds"]
        if subprocess.run([args.cachew, "photos", args.photos, *words]).returncode:
            sys.exit("bench: no photographs to measure with")
        files = sorted(args.photos.glob("*.tfrecord"))
    return files


def prepare_raw_decode():
    program, source = ROOT / "build" / "bench" / "raw_decode", BENCH / "raw_decode.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-std=gnu17", "-D_GNU_SOURCE", "-O2", "-pthread"]
        compiler = os.environ.get("CC", "cc").split()
        if subprocess.run([*compiler, *flags, source, "-o", program, "-ljpeg", "-lm"]).returncode:
            sys.exit("bench: raw_decode does not compile (package libjpeg-dev)")
    return program


def built(args, *programs):
    """Whether programs that measure could be built, in the build folder of the command."""
    return (
        subprocess.run(["ninja", "-C", args.cachew.parent, *programs], stdout=subprocess.DEVNULL).returncode
        == 0
    )


def pipelines(folder, files, elements):
    """Writes the pipeline files: those of bench/pipelines with absolute paths, by name."""
    paths = {}
    for template in sorted((BENCH / "pipelines").glob("*.json")):
        pipeline = json.loads(template.read_text())
        for node in pipeline["pipeline"]:
            if node["op"] == "tfrecord":
                node["files"] = [str(f.resolve()) for f in files]
            if node["op"] == "range":
                node["stop"] = elements
        paths[template.stem] = folder / template.name
        paths[template.stem].write_text(json.dumps(pipeline))
    return paths


def service_commands(args, python, paths):
    """{name: command} of what is measured of the service (bench/service.py)."""
    if not built(args, "bench/hand_over", "bench/memory_op.so", "bench/dispatcher_load"):
        say(
            "left out the service: bench/hand_over, bench/memory_op.so and bench/dispatcher_load can't be "
            "built"
        )
        return {}
    result = {}
    for name in (
        "photos",
        "small",
        "medium",
        "large",
        "credits_4",
        "credits_6",
        "credits_8",
        "rewrite",
        "memset",
        "tcp",
        "iperf3",
        "one_half",
        "two_halves",
        "expanded_one",
        "expanded_eight",
        "records_one",
        "records_six",
        "job",
        "start",
        "idle",
    ):
        result[f"service_{name}"] = [
            python,
            BENCH / "service.py",
            name,
            "--cachew",
            args.cachew,
            "--threads",
            str(args.threads),
        ]
    result["service_photos"] += ["--pipeline", paths["photos"], "--epochs", str(args.epochs)]
    result["service_job"] += ["--pipeline", paths["photos_first"]]
    for kind in ("worker", "dispatcher", "drain"):
        result[f"pause_{kind}"] = [
            python,
            BENCH / "pauses.py",
            kind,
            "--faults",
            "4",
            "--cachew",
            args.cachew,
        ]
    for what in ("auto", "all", "page", "caches"):
        result[f"overhead_{what}"] = [python, BENCH / "overhead.py", what, "--cachew", args.cachew]
    return result


def cache_commands(args, python, threads):
    if not built(args, "bench/raw_read"):
        say("left out the cache: bench/raw_read can't be built")
        return {}
    script = [python, BENCH / "cache.py"]
    given = ["--cachew", args.cachew, "--photos", args.photos, "--rounds", str(CACHE_ROUNDS), *threads]
    return {"cache_read": [*script, "read", *given], "cache_write": [*script, "write", *given]}


def commands(args, python, files, paths):
    """{name: command} of everything that is measured, in the order in which it runs in each round."""
    shards, threads = str(args.photos / "*.tfrecord"), ["--threads", str(args.threads)]
    raw = [prepare_raw_decode(), *threads, "--epochs", str(args.epochs), *files]
    result = {"raw_decode": raw}
    if args.cachew.exists():
        run = [args.cachew, "run", "--json", *threads]
        epochs = ["--epochs", str(args.epochs)]
        result["cachew"] = [*run, *epochs, paths["photos"]]
        result["cachew_antialias"] = [*run, *epochs, paths["photos_antialias"]]
        result["cachew_first"] = [*run, "--batches", "1", paths["photos_first"]]
        result["cachew_cheap"] = [*run, paths["cheap"]]
        result |= service_commands(args, python, paths)
        result |= cache_commands(args, python, threads)
        script = [python, BENCH / "python_cachew.py"]
        result["python"] = [*script, "pipeline", paths["photos"], *threads, *epochs]
        result["python_first"] = [*script, "pipeline", paths["photos_first"], *threads, "--batches", "1"]
        result["python_photographs"] = [*script, "photographs", shards, *threads, *epochs]
        result["python_photographs_first"] = [
            *script,
            "photographs",
            shards,
            *threads,
            "--batch",
            "32",
            "--batches",
            "1",
        ]
        result["raw_function"] = [python, BENCH / "raw_function.py", shards, *threads, *epochs]
        result["python_import"] = [*script, "import", "cachew"]
        result["python_numbers"] = [*script, "numbers", str(args.elements // 10), *threads]
    else:
        say(f"{args.cachew} is missing: only the peers are measured")
    for peer in args.peers:
        script = [python, BENCH / f"peer_{peer}.py", shards, *threads]
        result[peer] = [*script, "--epochs", str(args.epochs)]
        result[f"{peer}_first"] = [*script, "--batch", "32", "--batches", "1"]
    if "tfdata" in args.peers:
        script = [python, BENCH / "peer_cheap_tfdata.py", *threads]
        result["tfdata_cheap"] = [*script, "--form", "vectorised", "--stop", str(args.elements)]
        # Element by element tf.data is some hundred times slower: a smaller range takes as long.
        result["tfdata_cheap_natural"] = [
            *script,
            "--form",
            "natural",
            "--stop",
            str(min(args.elements, 200_000)),
        ]
    # As many as take some seconds each.
    if "torch" in args.peers:
        result["torch_numbers"] = [
            python,
            BENCH / "peer_numbers.py",
            "torch",
            str(args.elements // 10),
            *threads,
        ]
    if "grain" in args.peers:
        result["grain_numbers"] = [
            python,
            BENCH / "peer_numbers.py",
            "grain",
            str(args.elements // 100),
            *threads,
        ]
    return result


def turns(todo):
    """The order of one round: what is compared to a few hundredths takes turns three times."""
    close = [
        ("cachew", "python", "service_photos"),
        ("service_tcp", "service_iperf3"),
        ("service_rewrite", "service_memset"),
    ]
    repeated = [name for group in close for name in group * 3 if name in todo]
    return repeated + [name for name in todo if name not in repeated]


def measure(name, command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        say(f"bench: {name} failed ({done.returncode}):\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return None
    return json.loads(lines[-1])


def machine(args):
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"cpu": model, "threads": args.threads, "load": os.getloadavg()[0]}


def main():
    args = options()
    python = prepare_venv(args.peers)
    install_package(python)
    drop_unavailable(args, python)
    files = prepare_photos(args)
    with tempfile.TemporaryDirectory() as folder:
        paths = pipelines(Path(folder), files, args.elements)
        todo = commands(args, python, files, paths)
        # the index is made here, once: what is compared is a data set that has been used before
        if "cachew" in todo:
            subprocess.run([args.cachew, "index", paths["photos"]], capture_output=True)
        figures, about, failed, left_out = {name: [] for name in todo}, machine(args), set(), set()
        for r in range(args.rounds):
            for name in turns(todo):
                if name in failed or name in left_out:
                    continue
                say(f"round {r + 1} of {args.rounds}: {name}")
                one = measure(name, todo[name])
                if one is None:
                    failed.add(name)
                elif "left_out" in one:
                    say(f"left out {name}: {one['left_out']}")
                    left_out.add(name)
                else:
                    figures[name].append(one)
    about |= {"elements": args.elements, "rounds": args.rounds, "epochs": args.epochs}
    text, rows = render(figures, about)
    print(text)
    if args.json:
        args.json.write_text(json.dumps({"machine": about, "rows": rows, "runs": figures}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
