"""Random chains in the orders strict, written and relaxed: strict gives what written gives, and relaxed what
the chain gives in the order that `explain` names.
"""

import json
import random

import cachew
import pytest
from cachew._options import make_options
from function_runs import digest

CHAINS = 10  # per seed
IMAGE = {"component": "data"}
SOURCE = {"op": "synthetic", "count": 40, "shape": [13, 12, 3], "dtype": "uint8"}
KEYS_FIRST = {"op": "assign", "set": {"k": "max(data) % 3"}}
POOL = [
    {"op": "random_flip", **IMAGE, "vertical": 0.5},
    {"op": "random_crop", **IMAGE, "size": [9, 8]},
    {"op": "center_crop", **IMAGE, "size": [10, 9]},
    {"op": "resize", **IMAGE, "size": [7, 8]},
    {"op": "random_resized_crop", **IMAGE, "size": [6, 6]},
    {"op": "normalize", **IMAGE, "mean": 100, "std": 50},
    {"op": "cast", **IMAGE, "dtype": "float32"},
    {"op": "cast", **IMAGE, "dtype": "uint8"},
    {"op": "cast", **IMAGE, "dtype": "float16"},
    {"op": "grayscale", **IMAGE},
    {"op": "random_grayscale", **IMAGE, "p": 0.5},
    {"op": "solarize", **IMAGE, "threshold": 99, "p": 0.5},
    {"op": "invert", **IMAGE, "p": 0.5},
    {"op": "color_jitter", **IMAGE, "brightness": 0.4, "contrast": 0.4},
    {"op": "autocontrast", **IMAGE, "p": 0.5},
    {"op": "gaussian_blur", **IMAGE, "kernel_size": 3},
    {"op": "random_rotation", **IMAGE, "degrees": 45},
    {"op": "random_erasing", **IMAGE},
    {"op": "trivial_augment", **IMAGE},
    {"op": "transpose_image", **IMAGE},
    {"op": "flatten", **IMAGE},
    {"op": "standardize", **IMAGE},
    {"op": "filter", "where": "k != 1"},
    {"op": "filter", "where": "id % 5 != 2"},
    {"op": "filter", "where": "mean > 100"},
    {"op": "one_hot", "component": "k", "classes": 3},
    {"op": "assign", "set": {"mean": "mean * 2", "x": "k + 1"}},
    {"op": "assign", "set": {"x": "3"}},
    {"op": "select", "components": ["data", "id", "k", "mean"]},
    {"op": "drop", "components": "id"},
    {"op": "rename", "names": {"id": "name"}},
    {"op": "shuffle"},
    {"op": "autocache"},
    {"op": "take", "count": 25},
    {"op": "count"},
]


def dataset(chain, order):
    return cachew.Dataset.from_json(json.dumps({"cachew": 1, "order": order, "pipeline": chain}))


def random_chain(rng):
    """A chain that runs: operators that do not fit are left out."""
    keys = {"op": "assign", "set": {"mean": "mean(data)", "id": "hash(k)"}}
    chain, batch = [SOURCE, KEYS_FIRST, keys], {"op": "batch", "size": 7}
    for _ in range(rng.randint(4, 12)):
        op = dict(rng.choice(POOL))
        if rng.random() < 0.05:
            op["keep_position"] = True
        try:
            next(iter(dataset([*chain, op, batch], "written")), None)
        except (cachew.PipelineError, cachew.RecordError):
            continue
        chain.append(op)
    return [*chain, batch]


def as_run(ds, chain):
    operators = json.loads(ds._pipeline.explain(make_options(), 0.0, True))["operators"]
    return [chain[op.get("written", op["position"])] for op in operators]


@pytest.mark.large(keep=2)
@pytest.mark.parametrize("seed", range(5))
def test_random_chains(seed):
    rng, moved = random.Random(seed), {"strict": 0, "relaxed": 0}
    for number in range(CHAINS):
        chain = random_chain(rng)
        options = {"seed": number, "epochs": 1}
        written = digest(dataset(chain, "written"), **options, threads=1)
        strict, relaxed = dataset(chain, "strict"), dataset(chain, "relaxed")
        assert digest(strict, **options, threads=rng.choice([1, 3])) == written, chain
        run = as_run(relaxed, chain)
        wanted = digest(dataset(run, "written"), **options, threads=1)
        assert digest(relaxed, **options, threads=rng.choice([1, 3])) == wanted, (chain, run)
        moved["strict"] += as_run(strict, chain) != chain
        moved["relaxed"] += run != chain
    assert moved["strict"] >= 2 and moved["relaxed"] >= 2, moved
