"""Who gives too little memory is told how much is enough. That it is: with any number of threads, each time,
and with more than that too.

CACHEW_REPEATS: how often each (50 says more than the default)."""

import gzip
import json
import math
import os

import pytest
from command import SANITIZED, cachew, run
from example_data import CACHEW, ROOT
from model.generate import generate, operator_table

REPEATS = int(os.environ.get("CACHEW_REPEATS", "2"))
THREADS = (1, 2, 8)
# Records differ in size, or in what is to be decoded: a larger one that comes later may need more than what
# was there to be seen at first.
TRIES = 4

pytestmark = pytest.mark.skipif(SANITIZED, reason="what the sanitizers see of this is in test_memory.c")


def outcome(ran):
    """What must not depend on memory: how it ended, and with what."""
    return (
        ran.code,
        ran.json.get("digest"),
        ran.json.get("batches"),
        ran.json.get("error", {}).get("record"),
    )


def enough_for(pipeline, *words, threads=1):
    """What the command names, told what it named before, until that is enough: each time it is more."""
    memory, named = 1, []
    while True:
        ran = cachew("run", pipeline, "--json", "--digest", "--memory", memory, "--threads", threads, *words)
        if ran.code != 2:
            return memory, len(named), outcome(ran)
        error = ran.error
        assert (
            error["kind"] == "budget" and error["attribute"] == "memory" and error["value"] == str(memory)
        ), error
        larger = int(error["expected"].split()[2])
        assert error["message"].endswith(f"expected at least {larger}")
        assert larger > memory, (memory, named, error)
        memory = larger
        named.append(memory)


def check(pipeline, *words):
    want = outcome(cachew("run", pipeline, "--json", "--digest", "--memory", "1G", *words))
    enough, tries, got = enough_for(pipeline, *words)
    assert got == want and tries <= TRIES
    for n in range(REPEATS):
        memory = enough + enough * n // 32
        for threads in THREADS:
            ran = cachew(
                "run", pipeline, "--json", "--digest", "--memory", memory, "--threads", threads, *words
            )
            assert outcome(ran) == want, (memory, enough, threads, ran.out[-1000:], ran.err[-1000:])


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (ROOT / "examples" / "pipelines").glob("*.json"))
)
def test_of_an_example(examples, name):
    small = {
        "cheap": ["--set", "0.stop=60000"],
        "synthetic": ["--set", "0.count=3000", "--set", "0.cost_us=0"],
    }
    check(examples / f"{name}.json", "--seed", 7, *small.get(name, []))


@pytest.mark.parametrize("seed", range(40, 52))
def test_of_a_random_pipeline(tmp_path, seed):
    case = generate(operator_table(CACHEW), seed, tmp_path / "case")
    words = [
        "--seed",
        case.run_seed,
        "--epochs",
        case.epochs,
        "--rank",
        case.rank,
        "--world-size",
        case.ranks,
    ]
    if case.batches != math.inf:
        words += ["--batches", case.batches]
    check(case.path(), *words)


def test_elements_larger_than_the_rest(tmp_path):
    """What one of them takes on its way is far more than a batch of what comes of them."""
    pipeline = tmp_path / "p.json"
    pipeline.write_text(
        '{"cachew": 1, "pipeline": [{"op": "synthetic", "count": 24, "shape": [700, 700, '
        '3], "dtype": "uint8"}, '
        '{"op": "resize", "component": "data", "size": [32, 32]}, {"op": "batch", "size": '
        "4}]}"
    )
    memory, tries, _ = enough_for(pipeline)
    assert tries == 1 and memory > 700 * 700 * 3
    assert run(pipeline, "--memory", memory, "--threads", 8)["batches"] == 6


def test_a_window_larger_than_memory(tmp_path):
    """Records of a compressed file, some of them as large as a thousand others: what is loaded together is
    divided until it fits.
    """
    small, large = (
        b"".join(b"%d\n" % i for i in range(500)),
        b"".join(b"x" * 3_000_000 + b"%d\n" % i for i in range(40)),
    )
    (tmp_path / "lines.txt.gz").write_bytes(gzip.compress(small + large + small))
    chain = [{"op": "text", "files": "lines.txt.gz", "max_line": 4_000_000}, {"op": "shuffle"}]
    (tmp_path / "p.json").write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    whole = run(tmp_path / "p.json", "--digest", "--memory", "1G")
    for memory in ("80M", "40M"):
        assert run(tmp_path / "p.json", "--digest", "--memory", memory)["digest"] == whole["digest"]


def test_a_rank_that_holds_its_batch(tmp_path):
    """A rank holds its batch until those of the other ranks are made: it waited for ever where memory
    sufficed for one.
    """
    pipeline = tmp_path / "large.json"
    wide = {"op": "assign", "set": {"wide": "sqrt(float64(data))"}}
    pipeline.write_text(
        json.dumps(
            {
                "cachew": 1,
                "pipeline": [
                    {"op": "synthetic", "count": 24, "shape": [256, 1024], "dtype": "uint8", "fill": "none"},
                    wide,
                ],
            }
        )
    )
    check(pipeline, "--rank", 0, "--world-size", 2)
    check(pipeline, "--rank", 2, "--world-size", 3)
