#!/usr/bin/env python3
"""Runs pipelines in the engine and in the reference model, and compares digests, logs and exit codes: the
fixed ones of fixed.py, and random ones.

The command runs each pipeline to its end, pipelines with cache points three times: without a cache, with an
empty one, and with what that left, damaged at random. Then it runs it with a stop after a random batch, and
goes on from the state as each of some ranks, with other numbers of threads, and in as little memory as it
accepts. With --package the Python package runs random pipelines, in the processes that compare, each with
hosts of its own, to the end and with a stop on the way. With --service workers of a service run them: to the
end, with a stop on the way, and as several ranks at a time. Each of these jobs is cut (`cachew run --cut`) at
a random place.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
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
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import digest as hashes
from deadlines import HANG_S, run_computing

from model.dtypes import PlanError, RecordError, RunError
from model.fixed import OWN, PIPELINES, positions
from model.generate import Case, Coverage, flat, generate, operator_table
from model.package import Taken
from model.package import run as run_package
from model.run import Result, Run, delivered

KEYS = ("epoch", "g", "n", "flags", "records", "hash")
MODEL_POSITIONS = 20_000  # of a fixed pipeline: the model takes 50 us for each
SERVED_S = 600  # a job of a service, of a pipeline that the model runs in a moment, hangs if it takes longer
ENDLESS_BATCHES = 40  # of an endless pipeline, over all ranks


def command(case: Case, binary: str, resumed: bool) -> list[str]:
    """What all runs of a case have in common."""
    words = [
        binary,
        "run",
        str(case.path()),
        "--wait",
        str(HANG_S),
        "--digest",
        "--json",
        "--log",
        str(case.directory / "log.jsonl"),
    ]
    return [
        *words,
        "--seed",
        str(case.run_seed),
        "--epochs",
        str(case.epochs),
        *([] if case.optimize else ["--no-optimize"]),
        *orders(case, resumed),
    ]


def orders(case: Case, resumed: bool) -> list[str]:
    """Every third case runs its operators in the order as written; another third when it goes on from a
    state.
    """
    written = case.seed % 3 == 0 or (resumed and case.seed % 3 == 1)
    return ["--operator-order", "written"] if written and not case.relaxed else []


def as_run(case: Case, binary: str) -> dict:
    """The pipeline that the model runs: in the order that `explain` names, if that decides the result."""
    if not case.relaxed:
        return case.pipeline
    words = [binary, "explain", str(case.path()), "--run", "0", "--json"]
    done = run_computing(words)
    operators = json.loads(done.stdout.splitlines()[-1])["operators"]
    written = [op.get("written", op["position"]) for op in operators]
    places = [sorted(written).index(position) for position in written]
    return case.pipeline | {"pipeline": [case.pipeline["pipeline"][place] for place in places]}


def share(rank: int, ranks: int, batches: float) -> list[str]:
    words = ["--rank", str(rank), "--world-size", str(ranks)] if ranks > 1 else []
    return words + (["--batches", str(batches)] if batches != math.inf else [])


def read_log(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def same_line(ours: dict, theirs: dict) -> bool:
    """`flags` of a log line are those of its rows, or all of them in one number."""
    flags = theirs.get("flags")
    mine = (
        ours["flags"]
        if isinstance(flags, list)
        else sum({1 << b for f in ours["flags"] for b in range(32) if f >> b & 1})
    )
    return mine == flags and all(ours[k] == theirs.get(k) for k in KEYS if k != "flags")


def different_lines(model: Result, log: list[dict]) -> list[str]:
    for at, (ours, theirs) in enumerate(zip(model.lines, log)):
        if not same_line(ours, theirs):
            found = {k: theirs.get(k) for k in KEYS}
            return [
                f"batch {at} differs",
                f"  expected {json.dumps(ours)}",
                f"  found    {json.dumps(found)}",
            ]
    if len(log) > len(model.lines) or not model.error and len(log) < len(model.lines):
        return [f"{len(log)} batches, expected {len(model.lines)}"]
    return []


def different_digests(model: Result, found: dict[str, tuple[str, str]]) -> list[str]:
    wanted = (f"{model.digest:032x}", f"{model.set_digest:032x}")
    return [
        f"{where}: digest and set digest {pair}, expected {wanted}"
        for where, pair in found.items()
        if pair != wanted
    ]


def differences(
    model: Result, done: subprocess.CompletedProcess, directory: Path, dump: Path | None
) -> list[str]:
    expected = 1 if model.error else 0
    if done.returncode != expected:
        return [f"exit code {done.returncode}, expected {expected} ({model.error or 'no error'})"]
    found = different_lines(model, read_log(directory / "log.jsonl"))
    if found or model.error:
        return found
    result = json.loads(done.stdout.splitlines()[-1])
    digests = {"run": (result["digest"], result["set_digest"])}
    if dump:
        digests["tests/digest.py"] = tuple(f"{d:032x}" for d in hashes.digests(sorted(dump.glob("*.npz"))))
    return different_digests(model, digests)


def package_differences(model: Result, taken: Taken) -> list[str]:
    found = different_lines(model, taken.lines) + taken.wrong
    if bool(model.error) != bool(taken.error):
        found.append(f"error {taken.error}, expected {model.error}")
    if found or model.error:
        return found
    return different_digests(model, {"package": (f"{taken.digest:032x}", f"{taken.set_digest:032x}")})


def has_cache_point(chain: list[dict]) -> bool:
    return any(op["op"] in ("autocache", "cache") for op in flat(chain))


def damage(directory: Path, rng: random.Random) -> None:
    """Some of a cache's files lose their end, or a bit changes, or they are gone."""
    for path in sorted(directory.glob("*/*.cws")):
        data = bytearray(path.read_bytes())
        kind = rng.choice(["", "", "", "flip", "flip", "cut", "remove"])
        if kind == "flip":
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        elif kind == "cut":
            path.write_bytes(data[: rng.randrange(len(data))])
        elif kind == "remove":
            path.unlink()


def ways(case: Case) -> Iterator[list[str]]:
    """Options of the runs that are to give the same."""
    yield []
    if not has_cache_point(case.pipeline["pipeline"]):
        return
    directory, rng = case.directory / "cache", random.Random(case.seed)
    options = ["--cache-dir", str(directory)] + (["--cache", "0"] if rng.random() < 0.3 else [])
    yield options
    if rng.random() < 0.5:
        damage(directory, rng)
    yield options


def attempt(
    case: Case,
    binary: str,
    model: Result,
    options: list[str],
    state: bytes | None = None,
    least_memory: bool = False,
) -> list[str]:
    """What is wrong with one run, which goes on from `state`. With `least_memory`, in what the command says
    is enough.
    """
    memory = 1
    dump = case.directory / "dump" if "--dump" in options else None
    while True:
        (case.directory / "log.jsonl").unlink(missing_ok=True)
        (case.directory / "state").unlink(missing_ok=True)
        shutil.rmtree(case.directory / "dump", ignore_errors=True)
        if state is not None:
            (case.directory / "state").write_bytes(state)
        words = [
            *command(case, binary, state is not None),
            *options,
            *(["--memory", str(memory)] if least_memory else []),
        ]
        done = run_computing(words)
        error = json.loads(done.stdout.splitlines()[-1]).get("error", {}) if done.returncode == 2 else {}
        if not (
            least_memory and error.get("kind") == "budget" and int(error["expected"].split()[2]) > memory
        ):
            break
        memory = int(error["expected"].split()[2])
    found = differences(model, done, case.directory, dump)
    where = " ".join(words) + (f" (from the state {state.decode()})" if state is not None else "")
    return [*found, where, done.stdout[-2000:], done.stderr[-2000:]] if found else []


def whole(case: Case, binary: str, model: Result) -> list[str]:
    """What is wrong with the runs to the end."""
    options = [*share(case.rank, case.ranks, case.batches), "--threads", str(case.threads)]
    options += ["--dump", str(case.directory / "dump")] if case.dump else []
    for way in ways(case):
        if found := attempt(case, binary, model, options + way):
            return found
    return []


def parts(case: Case, run: Run, binary: str) -> list[str]:
    """What is wrong with a run that is stopped after a random batch, and with those that go on from its
    state.
    """
    rng = random.Random(case.seed)
    endless = case.batches != math.inf
    n_batches = len(delivered(run, case.epochs, limit=ENDLESS_BATCHES if endless else math.inf).lines)
    ranks = case.some_ranks(rng, 1, 3)
    rounds = rng.randint(1, max(1, (n_batches - 1) // ranks))
    part = delivered(run, case.epochs, 0, ranks, rounds)
    state = ["--state", str(case.directory / "state")]
    if not part.error and delivered(run, case.epochs, ranks - 1, ranks, rounds).error:
        # a batch of another rank in the last round can't be made, and whether this rank finds out is left
        # open
        return []
    found = attempt(
        case,
        binary,
        part,
        [*share(0, ranks, rounds), *state, "--threads", str(rng.choice([1, 2, 8]))],
        None,
        rng.random() < 0.5,
    )
    if found or part.error or not part.lines:
        return found
    stopped = (case.directory / "state").read_bytes()
    start = part.lines[-1]["epoch"], part.lines[-1]["g"] + ranks
    ranks = case.some_ranks(rng, 1, 3)
    limit = max(1, (ENDLESS_BATCHES - start[1]) // ranks) if endless else math.inf
    for rank in range(ranks):
        model = delivered(run, case.epochs, rank, ranks, limit, start)
        options = [*share(rank, ranks, limit), *state, "--threads", str(rng.choice([1, 3, 8]))]
        if found := attempt(case, binary, model, options, stopped, rank == 0 and rng.random() < 0.5):
            return found
    return []


def cuts(case: Case, binary: str, address: str) -> list[str]:
    """All places where the pipeline may be cut. The error about a place that does not exist names them."""
    words = [binary, "run", str(case.path()), "--service", address, "--cut", "nowhere", "--json"]
    error = json.loads(run_computing(words).stdout.splitlines()[-1])["error"]
    assert error["attribute"] == "cut", error
    first, last = re.search(r"operator (?:from )?(\d+) \(\w+\)(?: to (\d+))?", error["expected"]).groups()
    return [str(i) for i in range(int(first), int(last or first) + 1)]


def served(case: Case, run: Run, binary: str, address: str) -> list[str]:
    """What is wrong with jobs of a service: one to the end; one that is stopped, and goes on; and ranks that
    run at a time.
    """
    rng = random.Random(case.seed)
    jobs = itertools.count()
    places = cuts(case, binary, address)
    cut_of_ranks = rng.choice(places)

    def job(name: str, rank: int, ranks: int, batches: float) -> list[str]:
        return [
            binary,
            "run",
            str(case.path()),
            "--service",
            address,
            "--job",
            f"{case.seed}-{name}",
            *share(rank, ranks, batches),
            "--wait",
            str(HANG_S),
            "--seed",
            str(case.run_seed),
            "--epochs",
            str(case.epochs),
            "--digest",
            "--json",
            "--cut",
            cut_of_ranks if ranks > 1 else rng.choice(places),
        ]

    def attempt(model: Result, words: list[str], where: Path) -> list[str]:
        log = where / "log.jsonl"
        where.mkdir(exist_ok=True)
        log.unlink(missing_ok=True)
        done = subprocess.run(
            [*words, "--log", str(log)], check=False, capture_output=True, text=True, timeout=SERVED_S
        )
        found = differences(model, done, where, None)
        return [*found, " ".join(words), done.stdout[-2000:], done.stderr[-2000:]] if found else []

    endless = case.batches != math.inf
    limit = min(case.batches, ENDLESS_BATCHES)
    model = delivered(run, case.epochs, limit=limit if endless else math.inf)
    found = attempt(
        model, job(f"whole{next(jobs)}", 0, 1, limit if endless else math.inf), case.directory / "whole"
    )
    if found or model.error or not model.lines:
        return found
    state, stop = case.directory / "served-state", rng.randint(1, len(model.lines))
    state.unlink(missing_ok=True)
    found = attempt(
        delivered(run, case.epochs, limit=stop),
        [*job("stopped", 0, 1, stop), "--state", str(state)],
        case.directory / "stopped",
    )
    if found:
        return found
    last = delivered(run, case.epochs, limit=stop).lines[-1]
    rest = limit - stop if endless else math.inf
    if rest > 0:
        resumed = delivered(run, case.epochs, 0, 1, rest, (last["epoch"], last["g"] + 1))
        found = attempt(
            resumed, [*job("resumed", 0, 1, rest), "--state", str(state)], case.directory / "resumed"
        )
    ranks = case.some_ranks(rng, 2, 4)
    rounds = max(1, limit // ranks) if endless else math.inf
    if found:
        return found
    with ThreadPoolExecutor(ranks) as pool:
        tried = [
            pool.submit(
                attempt,
                delivered(run, case.epochs, rank, ranks, rounds),
                job("ranks", rank, ranks, rounds),
                case.directory / f"rank{rank}",
            )
            for rank in range(ranks)
        ]
        return next((found for done in tried if (found := done.result())), [])


def check(case: Case, binary: str, package: bool, service: str | None = None) -> tuple[Result, list[str]]:
    try:
        run = Run(as_run(case, binary), case.directory, case.run_seed)
    except PlanError as error:
        raise AssertionError(f"generated an illegal pipeline: {error}") from error
    except (RunError, RecordError) as error:
        run, model = None, Result(error=str(error))
    if run:
        model = delivered(run, case.epochs, case.rank, case.ranks, case.batches)
    if package:
        return model, package_differences(model, run_package(case))
    if service:
        return model, served(case, run, binary, service) if run else []
    found = whole(case, binary, model)
    return model, found or (parts(case, run, binary) if run else [])


def fixed(name: str, directory: Path) -> Case:
    """A fixed pipeline as a case."""
    directory.mkdir(parents=True, exist_ok=True)
    seed = [*PIPELINES, *OWN].index(name)
    case = Case(seed, directory, (PIPELINES | OWN)[name], threads=[1, 2, 3, 8][seed % 4], dump=name in OWN)
    case.path().write_text(json.dumps(case.pipeline, indent=1) + "\n")
    return case


def one(arguments: tuple) -> tuple[Case | None, int, list[str]]:
    """One pipeline, by its seed, or its name if it is a fixed one."""
    table, pipeline, options, directory = arguments
    case, failed, directory = None, 0, directory / f"case-{pipeline}"
    try:
        case = (
            fixed(pipeline, directory)
            if isinstance(pipeline, str)
            else generate(table, pipeline, directory, options.functions)
        )
        model, found = check(case, options.binary, options.package, options.service)
        failed = model.failed
    except subprocess.TimeoutExpired as hang:
        found = [
            f"no end: no CPU time was used for {hang.timeout} s, or a job of a service ran longer",
            " ".join(hang.cmd),
            str(hang.stderr),
        ]
    except Exception:  # a fault of the model or the generator is one more result to show
        found = [traceback.format_exc()]
    if found:
        written = directory / "pipeline.json"
        found = [
            f"{pipeline} (again: --only {pipeline})",
            written.read_text() if written.exists() else "no pipeline",
            *found,
        ]
    return case, failed, found


def fixed_names(arguments: argparse.Namespace) -> list[str]:
    """The fixed pipelines that the model can run in a moment."""
    small = [
        name for name, pipeline in PIPELINES.items() if positions(pipeline["pipeline"]) <= MODEL_POSITIONS
    ]
    return [] if arguments.package else [*small, *OWN]


@contextlib.contextmanager
def service(arguments: argparse.Namespace, directory: Path) -> Iterator[str | None]:
    """The address of a service of so many workers, with 1, 2, 3 .. threads and unequal memory, of which
    every other one ends its ranges early; None without --service."""
    if not arguments.service:
        yield None
        return
    # for the next module, and for processes started from here
    os.environ["CACHEW"] = str(Path(arguments.binary).resolve())
    from daemons import Daemons

    (directory / "daemons").mkdir()
    daemons = Daemons(directory / "daemons")
    try:
        # test builds: many ranges end anywhere
        dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0", env={"CACHEW_MUTATE": "cut"})
        for i in range(arguments.service):
            daemons.start(
                "worker",
                "--dispatcher",
                dispatcher.address,
                "--threads",
                i + 1,
                "--memory",
                f"{64 << i}M",
                env={"CACHEW_RANGE_S": "0.001"} if i % 2 else None,
            )
        yield dispatcher.address
    finally:
        daemons.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first pipeline; the others follow")
    parser.add_argument("--only", help="just the pipeline of this seed, or the fixed one of this name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--binary", default="build/cachew")
    parser.add_argument(
        "--functions", action="store_true", help="pipelines with Python functions too; needs the package"
    )
    parser.add_argument(
        "--package", action="store_true", help="run them through the Python package in place of the command"
    )
    parser.add_argument(
        "--service", type=int, metavar="WORKERS", help="have so many workers of a service run them"
    )
    parser.add_argument("--keep", type=Path, help="leave pipelines, data and logs in this directory")
    parser.add_argument("--stop-after", type=int, default=1, help="mismatches after which to stop")
    arguments = parser.parse_args()
    table = operator_table(arguments.binary)
    coverage = Coverage(table, arguments.functions)
    spawn = multiprocessing.get_context("spawn")  # threads and hosts of an engine don't survive a fork
    pipelines = [*fixed_names(arguments), *range(arguments.seed, arguments.seed + arguments.n)]
    if arguments.only:
        pipelines = [int(arguments.only) if arguments.only.isdecimal() else arguments.only]
    passed = wrong = 0
    with (
        tempfile.TemporaryDirectory() as temporary,
        service(arguments, Path(temporary)) as address,
        ProcessPoolExecutor(arguments.jobs, spawn) as pool,
    ):
        arguments.service = address
        directory = (arguments.keep or Path(temporary)).resolve()
        jobs = ((table, pipeline, arguments, directory) for pipeline in pipelines)
        for case, failed, found in pool.map(one, jobs):
            if found:
                wrong += 1
                print("\n".join(found), flush=True)
                if wrong >= arguments.stop_after:
                    pool.shutdown(cancel_futures=True)
                    break
            else:
                passed += 1
                coverage.add(case, failed > 0)
    print("\n".join(coverage.report()))
    print(f"{passed} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
