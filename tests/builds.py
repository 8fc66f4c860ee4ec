#!/usr/bin/env python3
"""Compares two builds of the command `cachew`, for example before and after a refactoring.

    tests/builds.py record FILE --cachew OLD
    tests/builds.py compare FILE --cachew NEW

`record` runs OLD and writes the results to FILE. It writes the data, pipelines and states that it uses to
the folder FILE.d. `compare` runs NEW on the same folder, prints every difference, and exits with 1 if there
is one. The folder must stay where it is: error messages and record ids depend on the absolute paths of the
data. FILE may be copied.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(HERE / "sim")]

import example_data  # noqa: E402
import workloads  # noqa: E402
from deadlines import HANG_S, run_computing  # noqa: E402
from model.compare import share  # noqa: E402
from model.generate import Case, generate, operator_table  # noqa: E402

FORMAT = 1  # of a record file
POLICIES = ("auto", "cachew-atc22", "cachew-atc22-code", "hpa", "fixed:4", "oracle")
RANDOM_WORKLOADS = 40  # of each kind; they run with the policy `auto` only
MEMORY = ["--memory", "1G"]  # fixed, so that no result depends on the memory of the machine
# The results of `cachew run` that are the same in every run of a pipeline. The numbers of skipped and
# replaced records are not: they depend on how far a run prefetches.
STEADY = ("batches", "elements", "bytes", "digest", "set_digest")
LOG_KEYS = ("epoch", "g", "n", "flags", "records", "hash")
STATE_VERSIONS = ("cachew_state", "plan")
MEASURED = ("reading",)  # in what `cachew explain` prints without a run
MOST_VALUES = 10  # printed of one result that differs
MOST_CHARACTERS = 300  # printed of one value
MOST_RANKS = 3

# Where an example of bench/pipelines finds its data, and how much of it is used.
BENCH_SETTINGS = {"cheap": ["0.stop=200000"]}
BENCH_PHOTOS = "0.files=../../build/photos/photos-*.tfrecord"


@dataclass
class Pipeline:
    """A pipeline and how to run it. `limit` is the number of batches to take if it is endless, else
    infinite.
    """

    name: str
    words: list[str]
    threads: int = 2
    rank: int = 0
    ranks: int = 1
    limit: float = math.inf

    def run(self) -> list[str]:
        """The words of the whole run, without the command."""
        return [*self.words, *share(self.rank, self.ranks, self.limit), "--threads", str(self.threads)]


# ---- running a build ----


@dataclass
class Build:
    """A binary, and the folder with the data, pipelines and states of a record. With `recording`, the states
    that the binary writes are kept in the folder; else those that are there are resumed.
    """

    binary: Path
    folder: Path
    recording: bool

    def run(self, words: list[str], temporary: Path) -> tuple[dict, dict]:
        """Runs the command. Returns the part of the result that does not depend on what was printed (the
        exit status, the error or what a crash left on stderr), and the JSON object that was printed.
        """
        try:
            done = run_computing([str(self.binary), *words])
        except subprocess.TimeoutExpired as hang:
            return {"exit": f"no end: used no CPU time for {hang.timeout} s"}, {}
        out = done.stdout.replace(str(temporary), "TEMPORARY")
        try:
            printed = json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            return {"exit": done.returncode, "stderr": done.stderr[-1000:]}, {}
        result = {"exit": done.returncode}
        if "error" in printed:
            result["error"] = printed["error"]
        return result, printed

    def run_pipeline(self, words: list[str], temporary: Path) -> dict:
        """Runs `cachew run`. A failed run has the error only: how many batches were handed out before
        depends on the threads.
        """
        log = temporary / "log.jsonl"
        log.unlink(missing_ok=True)
        index = temporary / "index"  # an index is made by the build that reads it
        more = ["--wait", str(HANG_S), "--index-dir", str(index), "--digest", "--json", "--log", str(log)]
        result, printed = self.run([*words, *MEMORY, *more], temporary)
        if result["exit"] != 0:
            return result
        result.update({key: printed.get(key) for key in STEADY})
        lines = log.read_text().splitlines() if log.exists() else []
        logged = [[batch.get(key) for key in LOG_KEYS] for batch in map(json.loads, lines)]
        result["log"] = hashlib.sha256(json.dumps(logged).encode()).hexdigest()[:32]
        return result

    def resume(self, words: list[str], state: bytes, temporary: Path) -> dict:
        path = temporary / "resumed"
        path.write_bytes(state)
        return self.run_pipeline([*words, "--state", str(path)], temporary)

    def write_state(self, item: dict, temporary: Path) -> tuple[dict, bytes]:
        """Runs the first batches of a pipeline, and the rest from the state that this leaves."""
        path = temporary / "state"
        first = self.run_pipeline([*item["words"], "--state", str(path)], temporary)
        if not path.exists():
            return {"first": first}, b""
        state = path.read_bytes()
        rest = self.resume(item["rest"], state, temporary)
        return {"first": first, "state": json.loads(state), "rest": rest}, state

    def results(self, item: dict) -> dict[str, dict]:
        """The results of one item of a record, by kind."""
        kind = item["kind"]
        with tempfile.TemporaryDirectory() as name:
            temporary = Path(name)
            if kind == "digests":
                return {kind: self.run_pipeline(item["words"], temporary)}
            if kind == "states":
                written, state = self.write_state(item, temporary)
                kept = self.folder / item["state"]
                if self.recording:
                    kept.write_bytes(state)
                    read = written.get("rest", {})
                else:
                    read = self.resume(item["rest"], kept.read_bytes(), temporary)
                return {"states written": written, "states read": read}
            result, printed = self.run(item["words"], temporary)
            return {kind: {**result, "printed": {k: v for k, v in printed.items() if k not in MEASURED}}}


def run_all(
    build: Build, items: list[dict], jobs: int, each: Callable[[dict, dict[str, dict]], None]
) -> None:
    """Calls `each` with every item and its results, in their order."""
    with ThreadPoolExecutor(jobs) as pool:
        for item, results in zip(items, pool.map(build.results, items)):
            each(item, results)


# ---- what a record contains ----


def make_examples(build: Build) -> list[Pipeline]:
    """Copies the pipelines of examples/ and bench/ to the folder, makes small data where they look for it,
    and returns them.
    """
    # the old build may lack the verb photos
    command = next(iter(sorted(ROOT.glob("build*/cachew"))), build.binary)
    example_data.make_photos(build.folder / "build", os.environ.get("CACHEW", command))
    found = []
    for place in ("examples", "bench"):
        pipelines = build.folder / place / "pipelines"
        shutil.copytree(ROOT / place / "pipelines", pipelines)
        for path in sorted(pipelines.glob("*.json")):
            settings = (
                example_data.FEWER.get(path.stem, [])
                if place == "examples"
                else BENCH_SETTINGS.get(path.stem, [BENCH_PHOTOS])
            )
            words = ["run", str(path), *(word for text in settings for word in ("--set", text))]
            found.append(Pipeline(f"{place}/{path.stem}", words))
    return found


def generated(arguments: tuple[list[dict], int, Path]) -> Case:
    table, seed, folder = arguments
    return generate(table, seed, folder / str(seed))


def make_random(build: Build, seed: int, n: int, jobs: int) -> list[Pipeline]:
    """Writes n random pipelines of the reference model's generator, with their data, to the folder."""
    table = operator_table(str(build.binary))
    folder = build.folder / "random"
    wanted = [(table, k, folder) for k in range(seed, seed + n)]
    found = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for case in pool.map(generated, wanted, chunksize=8):
            words = ["run", str(case.path()), "--seed", str(case.run_seed), "--epochs", str(case.epochs)]
            words += [] if case.optimize else ["--no-optimize"]
            found.append(
                Pipeline(f"random/{case.seed}", words, case.threads, case.rank, case.ranks, case.batches)
            )
    return found


def make_workloads(build: Build, seed: int) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Writes the workloads to the folder. Yields their names, paths and policies."""
    shutil.copytree(ROOT / "examples" / "workloads", build.folder / "workloads")
    for path in sorted((build.folder / "workloads").glob("*.json")):
        yield f"examples/{path.stem}", path, POLICIES
    made = [(f"published/{name}", w, POLICIES) for name, w in workloads.published().items()]
    made += [(f"modelled/{name}", w, POLICIES) for name, w in workloads.modelled().items()]
    for make in (
        workloads.random_workload,
        workloads.random_job,
        workloads.random_curve,
        workloads.random_pools,
    ):
        kind = make.__name__.replace("_", "/")
        made += [(f"{kind} {k}", make(k), POLICIES[:1]) for k in range(seed, seed + RANDOM_WORKLOADS)]
    for number, (name, workload, policies) in enumerate(made):
        path = build.folder / "workloads" / f"made-{number:04}.json"
        path.write_text(json.dumps(workload))
        yield name, path, policies


def item_of_state(number: int, pipeline: Pipeline, batches: int, rng: random.Random) -> dict:
    """A run that stops after some of the `batches` of a pipeline, and one that goes on from its state. Each
    is one rank of some: a state may be resumed with another number of ranks. An endless pipeline has one
    rank.
    """
    endless = pipeline.limit != math.inf
    most = 1 if endless else min(MOST_RANKS, batches - 1)
    ranks = rng.randint(1, most)
    rounds = rng.randint(1, (batches - 1) // ranks)
    rest_ranks = rng.randint(1, most)
    rest = share(rng.randrange(rest_ranks), rest_ranks, batches - rounds if endless else math.inf)
    threads = (str(rng.choice([1, 2, 8])) for _ in range(2))
    return {
        "kind": "states",
        "name": f"{number:03} of {pipeline.name}",
        "words": [*pipeline.words, *share(0, ranks, rounds), "--threads", next(threads)],
        "rest": [*pipeline.words, *rest, "--threads", next(threads)],
        "state": f"states/{number:03}.json",
    }


def items_of_states(pipelines: list[Pipeline], items: list[dict], seed: int, n: int) -> list[dict]:
    """n stops, of the examples first, then of random pipelines, of which the run gave two batches or
    more.
    """
    results = {item["name"]: item["results"]["digests"] for item in items if item["kind"] == "digests"}
    rng = random.Random(seed)
    found = [p for p in pipelines if p.ranks == 1 and results[p.name].get("batches", 0) > 1]
    examples = [p for p in found if not p.name.startswith("random/")]
    others = [p for p in found if p.name.startswith("random/")]
    order = [*examples, *rng.sample(others, len(others))]
    return [
        item_of_state(k, pipeline, results[pipeline.name]["batches"], rng)
        for k, pipeline in enumerate(order[k % len(order)] for k in range(n if order else 0))
    ]


def first_items(build: Build, arguments: argparse.Namespace) -> tuple[list[Pipeline], list[dict]]:
    """The pipelines, and all items but the states, which need the results of these."""
    examples = make_examples(build)
    pipelines = [*examples, *make_random(build, arguments.seed, arguments.n, arguments.jobs)]
    items = [{"kind": "digests", "name": p.name, "words": p.run()} for p in pipelines]
    for name, path, policies in make_workloads(build, arguments.seed):
        for policy in policies:
            words = ["simulate", str(path), "--policy", policy, "--json"]
            items.append({"kind": "decisions", "name": f"{name}, {policy}", "words": words})
    items.append({"kind": "operators", "name": "ops --json", "words": ["ops", "--json"]})
    for p in examples:
        # Without a run nothing is measured.
        words = ["explain", *p.words[1:], "--run", "0", "--threads", "2", *MEMORY, "--json"]
        items.append({"kind": "explanations", "name": p.name, "words": words})
    return pipelines, items


# ---- differences ----


def named(value: object) -> object:
    """A list of objects with different names as one object, so that a new entry does not shift the others."""
    if isinstance(value, list) and all(isinstance(v, dict) and isinstance(v.get("name"), str) for v in value):
        by_name = {v["name"]: v for v in value}
        return by_name if len(by_name) == len(value) else value
    return value


def children(value: object) -> dict[str, object] | None:
    """The entries of an object or a list; None for any other value."""
    if isinstance(value, dict):
        return {f".{key}": entry for key, entry in value.items()}
    if isinstance(value, list):
        return {f"[{k}]": entry for k, entry in enumerate(value)}
    return None


ABSENT = object()


def differing(was: object, now: object, where: str = "") -> Iterator[tuple[str, object, object]]:
    """The smallest parts that differ: their paths, what was and what is."""
    if was == now:
        return
    old, new = children(named(was)), children(named(now))
    if old is None or new is None or isinstance(was, dict) != isinstance(now, dict):
        yield where.lstrip("."), was, now
        return
    for key in {**old, **new}:
        yield from differing(old.get(key, ABSENT), new.get(key, ABSENT), where + key)


def shown(value: object) -> str:
    if value is ABSENT:
        return "absent"
    text = json.dumps(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def version_error(result: dict) -> str | None:
    """The message, if the build refused the state because another version wrote it."""
    error = result.get("error", {})
    refused = error.get("kind") == "state" and re.search(r"\bversions?\b", error.get("message", ""))
    return error["message"] if refused else None


def comparable(kind: str, was: dict, now: dict) -> tuple[dict, dict]:
    """Both results without the contents of the states, if they are of different versions."""
    if kind == "states written" and "state" in was and "state" in now:
        if any(was["state"].get(key) != now["state"].get(key) for key in STATE_VERSIONS):
            return {**was, "state": None}, {**now, "state": None}
    return was, now


class Comparison:
    """Counts and prints the differences between the results of a record and those of a build."""

    def __init__(self):
        self.equal = collections.Counter()
        self.different = collections.Counter()
        self.refused = collections.Counter()
        self.reasons = set()

    def add(self, item: dict, results: dict[str, dict]) -> None:
        for kind, recorded in item["results"].items():
            reason = version_error(results[kind]) if kind == "states read" else None
            if reason and not version_error(recorded):
                self.refused[kind] += 1
                self.reasons.add(reason)
                continue
            found = list(differing(*comparable(kind, recorded, results[kind])))
            (self.different if found else self.equal)[kind] += 1
            for where, was, now in found[:MOST_VALUES]:
                print(f"{kind}: {item['name']}: {where} was {shown(was)}, is {shown(now)}", flush=True)
            if len(found) > MOST_VALUES:
                print(f"{kind}: {item['name']}: {len(found) - MOST_VALUES} more values differ", flush=True)

    def report(self, kinds: list[str]) -> None:
        for kind in kinds:
            text = f"{kind}: {self.equal[kind]:,} equal, {self.different[kind]:,} different"
            if self.refused[kind]:
                text += f", {self.refused[kind]:,} refused because of their version"
            print(text)
        for reason in sorted(self.reasons):
            print(f"version error: {reason}")


# ---- verbs ----


def record(arguments: argparse.Namespace) -> int:
    folder = Path(f"{arguments.file}.d").resolve()
    if arguments.file.exists() or folder.exists():
        print(f"builds: {arguments.file} or {folder} exists: remove both, or name another", file=sys.stderr)
        return 2
    (folder / "states").mkdir(parents=True)
    build = Build(arguments.cachew, folder, recording=True)
    pipelines, items = first_items(build, arguments)
    run_all(build, items, arguments.jobs, lambda item, results: item.update(results=results))
    states = items_of_states(pipelines, items, arguments.seed, arguments.states)
    run_all(build, states, arguments.jobs, lambda item, results: item.update(results=results))
    items += states
    arguments.file.write_text(
        json.dumps({"builds": FORMAT, "folder": str(folder), "items": items}, indent=1) + "\n"
    )
    for kind, statuses in exits(items).items():
        failed = "".join(
            f", {n:,} with exit status {status}" for status, n in statuses.items() if status != 0
        )
        print(f"{kind}: {sum(statuses.values()):,} recorded{failed}")
    return 0


def exits(items: list[dict]) -> dict[str, collections.Counter]:
    """How often each exit status occurs, by kind."""
    found = collections.defaultdict(collections.Counter)
    for item in items:
        for kind, result in item["results"].items():
            found[kind][result.get("first", result).get("exit")] += 1
    return found


def compare(arguments: argparse.Namespace) -> int:
    recorded = json.loads(arguments.file.read_text())
    folder = Path(recorded["folder"])
    if recorded["builds"] != FORMAT or not folder.is_dir():
        print(
            f"builds: {arguments.file}: expected format {FORMAT} and the folder {folder}; record again",
            file=sys.stderr,
        )
        return 2
    build, comparison = Build(arguments.cachew, folder, recording=False), Comparison()
    run_all(build, recorded["items"], arguments.jobs, comparison.add)
    comparison.report(list(exits(recorded["items"])))
    return 1 if comparison.different else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, does in (("record", "Run a build and write the results"), ("compare", "Run another build")):
        sub = verbs.add_parser(verb, help=does, description=does)
        sub.add_argument("file", type=Path, metavar="FILE", help="the record")
        sub.add_argument("--cachew", type=Path, required=True, metavar="BINARY", help="the build to run")
        sub.add_argument(
            "--jobs",
            type=int,
            default=len(os.sched_getaffinity(0)),
            help="run so many commands at a time (default: the CPUs, %(default)s)",
        )
        if verb == "record":
            sub.add_argument("--n", type=int, default=1000, help="random pipelines (default %(default)s)")
            sub.add_argument("--states", type=int, default=100, help="states (default %(default)s)")
            sub.add_argument(
                "--seed", type=int, default=1, help="of the first random pipeline (default %(default)s)"
            )
    arguments = parser.parse_args()
    arguments.cachew = arguments.cachew.resolve()
    if not arguments.cachew.is_file():
        parser.error(f"--cachew: there is no file {arguments.cachew}")
    return arguments


def main() -> int:
    arguments = parse()
    for name in [name for name in os.environ if name.startswith("CACHEW")]:
        del os.environ[name]  # they change what a build does
    start = time.monotonic()
    code = record(arguments) if arguments.verb == "record" else compare(arguments)
    print(f"{time.monotonic() - start:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
