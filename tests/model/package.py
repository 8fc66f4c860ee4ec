"""Cases through the Python package: whole, and once more with a stop on the way."""

from __future__ import annotations

import json
import os
import pickle
import random
from dataclasses import dataclass, field

import digest as hashes
import numpy as np
from deadlines import HANG_S

from .generate import Case
from .hosted import written_function

STATE_BYTES = 1024


@dataclass
class Taken:
    """What an iterator gave."""

    lines: list[dict] = field(default_factory=list)
    digest: int = 0
    set_digest: int = 0
    error: str | None = None
    wrong: list[str] = field(default_factory=list)  # what no batch may be, whatever is expected of it


def by_methods(chain: list[dict]):
    """The dataset of a chain, built with the methods of the package."""
    import cachew

    ds = None
    for written in chain:
        name = written["op"]
        given = {key: value for key, value in written.items() if key not in ("op", "inputs")}
        if "inputs" in written:
            given["inputs"] = [by_methods(c) for c in written["inputs"]]
        if "function" in given:
            given["version"] = given["function"]["identity"]  # what it would be without, it may be with
            function = written_function({"function": given.pop("function")})
            given[{"filter_function": "where", "iterable": "factory"}.get(name, "function")] = function
        if name == "assign":
            given = given["set"]
        if name in ("count", "delay", "fail"):  # for tests: they have no method
            ds = ds._for_tests(name, **given)
            continue
        method = getattr(cachew.Dataset if ds is None else ds, name.removesuffix("_function"))
        ds = method(**given)
    return ds


def dataset(case: Case, way: str):
    from cachew import Dataset

    if way == "load":
        return Dataset.load(case.path())
    if way == "from_json":
        return Dataset.from_json(case.path().read_text(), case.directory)
    os.chdir(case.directory)  # what paths are relative to
    ds = by_methods(case.pipeline["pipeline"])
    return ds.on_error(case.pipeline["on_error"]) if "on_error" in case.pipeline else ds


def components(batch, schema) -> list[hashes.Component]:
    """A batch as its arrays show it."""
    found = []
    for name, value in batch.items():
        dtype = schema[name].dtype
        if isinstance(value, np.ndarray):
            found.append((name, dtype, value.shape, value.tobytes()))
        elif isinstance(value, memoryview):
            found.append((name, dtype, (), hashes.le64(len(value)) + bytes(value)))
        else:
            strings = value.tolist()
            found.append((name, dtype, (len(strings),), hashes.le64(*map(len, strings)) + b"".join(strings)))
    return found


def take(taken: Taken, iterator, schema, limit: float) -> None:
    """Adds up to `limit` batches of an iterator."""
    import cachew

    while len(taken.lines) < limit:
        try:
            batch = iterator.next(timeout_s=HANG_S)
        except cachew.Error as error:
            taken.error = f"{type(error).__name__}: {error}"
            return
        if batch is None:
            return
        line = {key: getattr(batch, key) for key in ("epoch", "g", "records")}
        line |= {"n": batch.n_records, "flags": batch.record_flags, "hash": f"{batch.hash():032x}"}
        shown = hashes.batch_hash(batch.epoch, batch.g, batch.n_records, components(batch, schema))
        if shown != batch.hash():
            taken.wrong.append(
                f"batch {batch.g} of epoch {batch.epoch}: its arrays hash to {shown:032x}, "
                f"it says {batch.hash():032x}"
            )
        taken.lines.append(line)
        if not batch.is_padding:
            taken.digest = (taken.digest + batch.hash()) & hashes.MASK128
            taken.set_digest = (taken.set_digest + batch.set_hash()) & hashes.MASK128


def options(case: Case, threads: int) -> dict:
    return {
        "seed": case.run_seed,
        "epochs": case.epochs,
        "threads": threads,
        "rank": case.rank,
        "world_size": case.ranks,
        "optimize": case.optimize,
    }


def run(case: Case) -> Taken:
    """The whole case, from one of the ways to have its pipeline, then again with a stop."""
    rng = random.Random(case.seed)
    way = rng.choice(["load", "from_json", "methods"])
    ds = dataset(case, way)
    schema = ds.schema
    whole = Taken()
    with ds.iterator(**options(case, case.threads)) as iterator:
        take(whole, iterator, schema, case.batches)
    resumed = Taken()
    stop = rng.randint(0, len(whole.lines))
    with ds.iterator(**options(case, case.threads)) as iterator:
        take(resumed, iterator, schema, stop)
        state = json.dumps(iterator.state_dict())
    threads = rng.choice([t for t in (1, 2, 3, 8) if t != case.threads])
    if len(state) > STATE_BYTES:
        whole.wrong.append(f"the state after batch {stop} has {len(state)} bytes: {state}")
    with pickle.loads(pickle.dumps(ds)).iterator(**options(case, threads), state=state) as iterator:
        take(resumed, iterator, schema, case.batches)
    whole.wrong += resumed.wrong
    where = f"stopped after {stop} batches, went on with {threads} threads from {state}"
    if resumed.error != whole.error:
        whole.wrong.append(f"{where}: {resumed.error}, without a stop {whole.error}")
    if resumed.lines != whole.lines:
        at = next(
            (i for i, (a, b) in enumerate(zip(resumed.lines, whole.lines)) if a != b),
            min(len(resumed.lines), len(whole.lines)),
        )
        pair = [
            json.dumps(lines[at]) if at < len(lines) else "no batch" for lines in (whole.lines, resumed.lines)
        ]
        whole.wrong += [
            f"{where}: batch {at} differs",
            f"  without a stop {pair[0]}",
            f"  with one       {pair[1]}",
        ]
    return whole
