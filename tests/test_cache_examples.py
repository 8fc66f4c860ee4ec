"""Every example with cache points in it: batches are those of the example without, whatever there is of a
cache, whatever is wrong with it, whatever is decided meanwhile.
"""

import json
import os
import random

import pytest
from caches import cachew, content, run, same, segments
from example_data import EXAMPLES, FEWER

RANDOM = {"random_flip", "random_crop", "random_resized_crop"}
BATCHERS = {"batch", "bucket_by_length"}
GIVEN = ("--epochs", 2, "--seed", 3, "--threads", 3)
# Beside what is fewer in tests anyway, for an example is run a dozen times here.
STILL_FEWER = {"synthetic": ["0.count=6000"], "cheap": ["0.stop=20000"]}


def places(chain):
    """The first and the last place where a cache point can be used: behind the source, before what draws and
    before the batcher.
    """
    last = next(at for at, op in enumerate(chain) if op["op"] in RANDOM | BATCHERS)
    return 1, last


def with_operators(chain, at, *operators):
    return [*chain[:at], *operators, *chain[at:]]


def moved(setting, place):
    """A setting of a pipeline with one more operator at a place."""
    first, _, rest = setting.partition(".")
    return f"{int(first) + (int(first) >= place)}.{rest}"


def damage(directory, rng):
    """A bit, the end, or all of some segments; at least one loses a bit."""
    for k, path in enumerate(segments(directory)):
        data = bytearray(path.read_bytes())
        kind = "flip" if k == 0 else rng.choice(["", "flip", "cut", "gone"])
        if kind == "flip":
            data[rng.randrange(32, len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        elif kind == "cut":
            path.write_bytes(data[: rng.randrange(len(data))])
        elif kind == "gone":
            path.unlink()


class Example:
    """An example with two cache points, beside itself, for the sake of its relative paths."""

    def __init__(self, directory, name):
        original = json.loads((directory / f"{name}.json").read_text())
        self.chain, self.more = original.pop("pipeline"), original
        self.first, self.last = places(self.chain)
        self.settings = [*FEWER.get(name, []), *STILL_FEWER.get(name, [])]
        self.original = directory / f"{name}.json"
        self.marked = directory / f"marked-{os.getpid()}-{name}.json"
        both = with_operators(
            with_operators(self.chain, self.last, {"op": "autocache"}), self.first, {"op": "autocache"}
        )
        self.write(both)

    def write(self, chain):
        self.marked.write_text(json.dumps({**self.more, "pipeline": chain}))

    def set_in_original(self):
        return [word for setting in self.settings for word in ("--set", setting)]

    def set_in_marked(self, *more_places):
        """more_places: of further operators, in the order in which they went in."""
        settings = self.settings
        for place in (self.last, self.first, *more_places):
            settings = [moved(s, place) for s in settings]
        return [word for setting in settings for word in ("--set", setting)]

    def fill_half(self, cache_point, directory, elements):
        """Keeps what the first `elements` of an epoch leave at a cache point."""
        both = json.loads(self.marked.read_text())["pipeline"]
        behind = (self.first, self.last + 1)[cache_point] + 1
        self.write(with_operators(both, behind, {"op": "take", "count": elements}))
        cachew(
            "cache",
            "warm",
            self.marked,
            *self.set_in_marked(behind),
            "--seed",
            3,
            "--cache-dir",
            directory,
            "--cache",
            cache_point,
        )
        self.write(both)


def entries(directory):
    return cachew("cache", "stat", directory)[0]["entries"]


@pytest.mark.large
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_give_the_same_whatever_the_cache(examples, tmp_path, name):
    example, rng = Example(examples, name), random.Random(name)
    try:
        original = run(example.original, *example.set_in_original(), *GIVEN)
        wanted, marked = content(original), [example.marked, *example.set_in_marked(), *GIVEN]
        assert same(*marked) == wanted, "no cache"
        for cache_point in (0, 1):
            at, half = [*marked, "--cache", cache_point, "--cache-dir"], tmp_path / f"half-{cache_point}"
            assert same(*at, tmp_path / f"c-{cache_point}") == wanted, "empty"
            cachew(
                "cache",
                "warm",
                example.marked,
                *example.set_in_marked(),
                "--seed",
                3,
                "--cache",
                cache_point,
                "--cache-dir",
                tmp_path / f"c-{cache_point}",
            )
            full = run(*at, tmp_path / f"c-{cache_point}")
            assert content(full) == wanted, "full"
            assert (full["cache"]["misses"], full["cache"]["hits"] > 0) == (0, True)
            example.fill_half(cache_point, half, original["elements"] // 4)
            assert 0 < entries(half) < entries(tmp_path / f"c-{cache_point}")
            assert same(*at, half) == wanted, "half filled"
            damage(tmp_path / f"c-{cache_point}", rng)
            assert same(*at, tmp_path / f"c-{cache_point}") == wanted, "damaged"
            assert same(*at, tmp_path / f"c-{cache_point}") == wanted, "mended"
        for _ in range(2):  # which cache point is used, if any, changes from block to block
            got = run(*marked, "--cache-dir", tmp_path / "flipped", env={"CACHEW_MUTATE": "cache_point"})
            assert content(got) == wanted, "the choice changes"
            assert got["cache"]["hits"] + got["cache"]["misses"] > 0
            damage(tmp_path / "flipped", rng)
    finally:
        example.marked.unlink()
