"""The fixed pipelines (model/fixed.py) against a plain Python loop: generators, one inside the other, that
know nothing of positions, ranges or threads.
"""

import json
import math
import os
import random
from dataclasses import dataclass, field
from itertools import count, islice

import numpy as np
from command import cachew, read_log, run
from digest import batch_hash
from model.fixed import CHAINS, PIPELINES, positions

PADDING = 2
SAMPLE_POSITIONS = 20_000  # of a pipeline that the sample runs several times


@dataclass
class Row:
    """An element on its way: its record, and what expressions may read."""

    number: int
    names: dict
    ordinals: tuple = ()
    failed: bool = False

    @property
    def record(self):
        return ".".join(map(str, (self.number, *self.ordinals)))


@dataclass
class Loop:
    """One pipeline, run front to back."""

    chain: list
    n_failed: int = 0
    batched: bool = field(init=False)

    def __post_init__(self):
        self.batched = any(op["op"] in ("batch", "bucket_by_length") for op in self.chain)

    def batches(self):
        """The rows of each batch."""
        for rows in self.after(self.chain):
            kept = rows if self.batched else [rows]
            yield [row for row in kept if not row.failed]

    def after(self, chain):
        """What there is behind a chain: rows, or lists of them."""
        op, before = chain[-1], chain[:-1]
        return getattr(self, "op_" + op["op"])(op, before)

    def op_range(self, op, _):
        for number, value in enumerate(range(op.get("start", 0), op["stop"], op.get("step", 1))):
            yield Row(number, {"value": value})

    def op_synthetic(self, op, _):
        for number in range(op["count"]):
            yield Row(number, {"data": np.zeros(op["shape"], np.float32)})

    def op_concat(self, op, _):
        for chain in op["inputs"]:
            yield from self.after(chain)

    def op_repeat(self, op, before):
        for turn in count() if op["count"] == -1 else range(op["count"]):
            for row in self.after(before):
                yield Row(row.number, row.names, (*row.ordinals, turn), row.failed)

    def op_take(self, op, before):
        return islice(self.after(before), op["count"])

    def op_skip(self, op, before):
        return islice(self.after(before), op["count"], None)

    def op_filter(self, op, before):
        return (row for row in self.after(before) if not row.failed and eval(op["where"], {}, row.names))

    def op_assign(self, op, before):
        for row in self.after(before):
            row.names = {**row.names, **{name: eval(text, {}, row.names) for name, text in op["set"].items()}}
            yield row

    def op_fail(self, op, before):
        for row in self.after(before):
            row.failed = bool(eval(op["where"], {}, row.names))
            self.n_failed += row.failed
            yield row

    def op_batch(self, op, before):
        rows = iter(self.after(before))
        while together := list(islice(rows, op["size"])):
            if len(together) == op["size"] or not op.get("drop_remainder"):
                yield together

    def op_bucket_by_length(self, op, before):
        waiting = [[] for _ in op["sizes"]]
        for row in self.after(before):
            if row.failed:
                continue
            length = eval(op["length"], {}, row.names)
            bucket = sum(length >= boundary for boundary in op["boundaries"])
            waiting[bucket].append(row)
            if len(waiting[bucket]) == op["sizes"][bucket]:
                yield waiting[bucket]
                waiting[bucket] = []
        yield from filter(None, waiting)


def content(g, rows, batched):
    """The hash of the batch that these rows make."""
    components = []
    for name in rows[0].names if rows else []:
        values = np.array([row.names[name] for row in rows])
        values = values if batched else values[0]
        components.append((name, str(values.dtype), values.shape, values.tobytes()))
    # the shape of none is not known here
    return f"{batch_hash(0, g, len(rows), components):032x}" if rows else None


def expected(chain):
    """The lines of the log, as far as they tell what is in the batches, and how many records failed."""
    loop = Loop(chain)
    return [
        (g, [row.record for row in rows], content(g, rows, loop.batched))
        for g, rows in enumerate(loop.batches())
    ], loop.n_failed


def delivered(path):
    """The same of a log, without the batches that fill up the last round."""
    lines = [line for line in read_log(path) if not any(flag & PADDING for flag in line["flags"])]
    return [
        (line["g"], [record.split(":")[1] for record in line["records"]], line["hash"] if line["n"] else None)
        for line in lines
    ]


def difference(want, got):
    for line, found in zip(want, got):
        if line != found:
            return f"expected {str(line)[:400]}, found {str(found)[:400]}"
    return f"{len(got)} batches, expected {len(want)}" if len(want) != len(got) else None


def written(directory, name):
    path = directory / f"{name}.json"
    path.write_text(json.dumps(PIPELINES[name]))
    return path


def each(check, most_positions=math.inf):
    """Every pipeline is checked, in the sample too; what is wrong is told of all."""
    wrong = {
        name: problem
        for name, chain in CHAINS.items()
        if positions(chain) <= most_positions and (problem := check(name, chain))
    }
    assert not wrong, "\n" + "\n".join(f"{name}: {problem}" for name, problem in wrong.items())


def test_batches_of_one_run(tmp_path):
    def check(name, chain):
        want, n_failed = expected(chain)
        log = tmp_path / f"{name}.log"
        told = run(written(tmp_path, name), "--threads", 3, "--log", log)
        # what a take leaves out may be computed, and fail
        most = math.inf if any(op["op"] == "take" for op in chain) else n_failed
        problem = difference(want, delivered(log))
        if problem or n_failed <= told["skipped"] <= most:
            return problem
        return f"{told['skipped']} records were skipped, expected {n_failed}"

    each(check)


def test_batches_of_a_run_that_is_stopped_and_goes_on_as_three_ranks(tmp_path):
    rng = random.Random(1)

    def check(name, chain):
        want, _ = expected(chain)
        path, log, state = written(tmp_path, name), tmp_path / f"{name}.log", tmp_path / f"{name}.state"
        stop = rng.randint(1, max(1, len(want) - 1))
        run(path, "--batches", stop, "--state", state, "--log", log)
        problem = difference(want[:stop], delivered(log))
        log.unlink()
        saved = state.read_text()
        for rank in range(3) if not problem else []:
            state.write_text(saved)
            ran = cachew("run", path, "--state", state, "--rank", rank, "--world-size", 3, "--log", log)
            assert ran.code == 0, (name, ran.err)
        return (
            problem or difference(want[stop:], sorted(delivered(log), key=lambda line: line[0]))
            if len(want) > stop
            else problem
        )

    each(check, SAMPLE_POSITIONS if os.environ.get("CACHEW_TEST_SIZE") == "sample" else math.inf)
