#!/usr/bin/env python3
"""Runs random pipelines in the engine and in the reference model, and compares digests, logs and exit codes.

The engine is run by the command, pipelines with markers three times: without a cache, with an empty one, and with what that left, damaged at random.
With --package by the Python package, in the processes that compare, each with hosts of its own, and every pipeline
is run a second time with a stop on the way.
"""
from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import digest as hashes
from deadlines import HANG_S

from model.dtypes import PlanError
from model.generate import Case, Coverage, flat, generate, operator_table
from model.package import Taken
from model.package import run as run_package
from model.run import Result, deliver

KEYS = ("epoch", "g", "split", "index", "n", "flags", "records", "hash")


def start(case: Case) -> tuple[int, int]:
    """What the state names after the first part; without one, or where that fails, the beginning."""
    if not case.before:
        return 0, 0
    ranks, rounds = case.before
    part = deliver(case.pipeline, case.directory, case.run_seed, case.epochs, 0, ranks, rounds)
    if part.error:
        case.before = None
    return (part.lines[-1]["epoch"], part.lines[-1]["g"] + ranks) if case.before and part.lines else (0, 0)


def run_model(case: Case) -> Result:
    return deliver(case.pipeline, case.directory, case.run_seed, case.epochs, case.rank, case.ranks, case.batches, start(case))


def common(case: Case, binary: str) -> list[str]:
    words = [binary, "run", str(case.path()), "--wait", str(HANG_S)]
    words += ["--seed", str(case.run_seed), "--epochs", str(case.epochs)]
    return words + (["--state", str(case.directory / "state")] if case.before else [])


def command_before(case: Case, binary: str) -> list[str]:
    ranks, rounds = case.before
    return common(case, binary) + ["--world-size", str(ranks), "--batches", str(rounds)]


def command(case: Case, binary: str) -> list[str]:
    words = common(case, binary) + ["--threads", str(case.threads), "--digest", "--json", "--log", str(case.directory / "log.jsonl")]
    if case.batches != math.inf:
        words += ["--batches", str(case.batches)]
    if case.dump:
        words += ["--dump", str(case.directory / "dump")]
    if not case.optimize:
        words += ["--no-optimize"]
    if case.ranks > 1:
        words += ["--rank", str(case.rank), "--world-size", str(case.ranks)]
    return words


def read_log(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def same_line(ours: dict, theirs: dict) -> bool:
    """`flags` of a log line are those of its rows, or all of them in one number."""
    flags = theirs.get("flags")
    mine = ours["flags"] if isinstance(flags, list) else sum({1 << b for f in ours["flags"] for b in range(32) if f >> b & 1})
    return mine == flags and all(ours[k] == theirs.get(k) for k in KEYS if k != "flags")


def different_lines(model: Result, log: list[dict]) -> list[str]:
    for at, (ours, theirs) in enumerate(zip(model.lines, log)):
        if not same_line(ours, theirs):
            found = {k: theirs.get(k) for k in KEYS}
            return [f"batch {at} differs", f"  expected {json.dumps(ours)}", f"  found    {json.dumps(found)}"]
    if len(log) > len(model.lines) or not model.error and len(log) < len(model.lines):
        return [f"{len(log)} batches, expected {len(model.lines)}"]
    return []


def different_digests(model: Result, found: dict[str, tuple[str, str]]) -> list[str]:
    wanted = (f"{model.digest:032x}", f"{model.set_digest:032x}")
    return [f"{where}: digest and set digest {pair}, expected {wanted}" for where, pair in found.items() if pair != wanted]


def differences(case: Case, model: Result, exit_code: int, stdout: str, log: list[dict]) -> list[str]:
    expected = 1 if model.error else 0
    if exit_code != expected:
        return [f"exit code {exit_code}, expected {expected} ({model.error or 'no error'})"]
    found = different_lines(model, log)
    if found or model.error:
        return found
    result = json.loads(stdout.splitlines()[-1])
    digests = {"run": (result["digest"], result["set_digest"])}
    if case.dump:
        files = sorted((case.directory / "dump").glob("*.npz"))
        digests["tests/digest.py"] = tuple(f"{d:032x}" for d in hashes.digests(files))
    return different_digests(model, digests)


def package_differences(model: Result, taken: Taken) -> list[str]:
    found = different_lines(model, taken.lines) + taken.wrong
    if bool(model.error) != bool(taken.error):
        found.append(f"error {taken.error}, expected {model.error}")
    if found or model.error:
        return found
    return different_digests(model, {"package": (f"{taken.digest:032x}", f"{taken.set_digest:032x}")})


def has_marker(chain: list[dict]) -> bool:
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
    if not has_marker(case.pipeline["pipeline"]):
        return
    directory, rng = case.directory / "cache", random.Random(case.seed)
    options = ["--cache-dir", str(directory)] + (["--cache", "0"] if rng.random() < 0.3 else [])
    yield options
    if rng.random() < 0.5:
        damage(directory, rng)
    yield options


def check(case: Case, binary: str, package: bool) -> tuple[Result, list[str]]:
    if package:
        case.before = None  # it is stopped and goes on by itself
    try:
        model = run_model(case)
    except PlanError as error:
        raise AssertionError(f"generated an illegal pipeline: {error}") from error
    if package:
        return model, package_differences(model, run_package(case))
    if case.before:
        before = subprocess.run(command_before(case, binary), check=False, capture_output=True, text=True, timeout=HANG_S)
        if before.returncode == 1:  # a record failed, in another rank's batch of that round, which is made too: there is nothing to go on from
            return model, []
        before.check_returncode()
    state = case.directory / "state"
    begun = state.read_bytes() if case.before else b""
    for options in ways(case):
        if case.before:
            state.write_bytes(begun)
        (case.directory / "log.jsonl").unlink(missing_ok=True)
        shutil.rmtree(case.directory / "dump", ignore_errors=True)
        done = subprocess.run([*command(case, binary), *options], check=False, capture_output=True, text=True, timeout=HANG_S)
        found = differences(case, model, done.returncode, done.stdout, read_log(case.directory / "log.jsonl"))
        if found:
            return model, [*found, " ".join(options), done.stdout[-2000:], done.stderr[-2000:]]
    return model, []


def one(arguments: tuple) -> tuple[int, Case | None, int, list[str]]:
    table, seed, options, directory = arguments
    case, failed = None, 0
    try:
        case = generate(table, seed, directory / f"case-{seed}", options.functions)
        model, found = check(case, options.binary, options.package)
        failed = model.failed
    except subprocess.TimeoutExpired:
        found = [f"no end after {HANG_S} s"]
    except Exception:  # a fault of the model or the generator is one more result to show
        found = [traceback.format_exc()]
    if found:
        pipeline = directory / f"case-{seed}" / "pipeline.json"
        where = [f"seed {seed} (again: --only {seed})", pipeline.read_text() if pipeline.exists() else "no pipeline"]
        found = where + ([" ".join(c(case, options.binary)) for c in (command_before, command) if case.before or c is command] if case else []) + found
    return seed, case, failed, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first pipeline; the others follow")
    parser.add_argument("--only", type=int, help="just the pipeline of this seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--binary", default="build/cachew")
    parser.add_argument("--functions", action="store_true", help="pipelines with Python functions too; needs the package")
    parser.add_argument("--package", action="store_true", help="run them through the Python package in place of the command")
    parser.add_argument("--keep", type=Path, help="leave pipelines, data and logs in this directory")
    parser.add_argument("--stop-after", type=int, default=1, help="mismatches after which to stop")
    arguments = parser.parse_args()
    table = operator_table(arguments.binary)
    coverage = Coverage(table, arguments.functions)
    spawn = multiprocessing.get_context("spawn")  # threads and hosts of an engine don't survive a fork
    seeds = [arguments.only] if arguments.only is not None else range(arguments.seed, arguments.seed + arguments.n)
    passed = wrong = 0
    with tempfile.TemporaryDirectory() as temporary, ProcessPoolExecutor(arguments.jobs, spawn) as pool:
        directory = (arguments.keep or Path(temporary)).resolve()
        jobs = ((table, seed, arguments, directory) for seed in seeds)
        for _, case, failed, found in pool.map(one, jobs):
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
