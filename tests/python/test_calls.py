"""Keywords that nobody knows: a TypeError that names the one that was meant, wherever a user may write
one.
"""

import re

import numpy as np
import pytest

import cachew
from cachew import Dataset, col

ds = Dataset.range(20).batch(4)


def same(element):
    return element


def torch_loader(**options):
    pytest.importorskip("torch")
    from cachew.torch import loader

    return loader(ds, **options)


def jax_loader(**options):
    pytest.importorskip("jax")
    from cachew.jax import loader

    return loader(ds, **options)


CALLS = {
    "iterator": (ds.iterator, {"sed": 1}, "seed"),
    "iterator, of a service": (ds.iterator, {"world_sise": 2}, "world_size"),
    "distribute": (lambda **o: ds.distribute("localhost:1", **o), {"garantee": "exactly-once"}, "guarantee"),
    "distribute, of iterator": (
        lambda **o: ds.distribute("localhost:1", **o),
        {"first_epoc": 1},
        "first_epoch",
    ),
    "torch loader": (torch_loader, {"pin_memori": True}, "pin_memory"),
    "torch loader, of a service": (torch_loader, {"transprt": "tcp"}, "transport"),
    "jax loader": (jax_loader, {"shardin": None}, "sharding"),
    "jax loader, of iterator": (jax_loader, {"cache_dirs": "/tmp"}, "cache_dir"),
    "n_batches": (ds.n_batches, {"wordl_size": 1}, "world_size"),
    "explain": (ds.explain, {"zzz": 1}, None),
    "defaults": (ds.defaults, {"epoch": 1}, "epochs"),
    "on_error": (ds.on_error, {"actoin": "skip"}, "action"),
    "order": (ds.order, {"oder": "strict"}, "order"),
    "to_json": (ds.to_json, {"indnt": 1}, "indent"),
    "from_json": (Dataset.from_json, {"tekst": ds.to_json()}, "text"),
    "load": (Dataset.load, {"pat": "x"}, "path"),
    "save": (ds.save, {"paht": "x"}, "path"),
    "map": (lambda **o: Dataset.range(3).map(same, **o), {"output": {"value": "int64"}}, "outputs"),
    "filter": (lambda **o: Dataset.range(3).filter("value > 1", **o), {"time_out_s": 3}, "timeout_s"),
    "flat_map": (lambda **o: Dataset.range(3).flat_map(same, **o), {"determinstic": True}, "deterministic"),
    "map_batches": (lambda **o: ds.map_batches(same, **o), {"hostmemory": 1}, "host_memory"),
    "iterable": (lambda **o: Dataset.iterable(lambda: [], **o), {"versions": "1"}, "version"),
    "sequence": (lambda **o: Dataset.sequence([{"a": 1}], **o), {"outputz": {}}, "outputs"),
    "arrays": (Dataset.arrays, {"component": {"a": np.zeros(3)}}, "components"),
    "arrow": (Dataset.arrow, {"flies": None}, "files"),
    "an operator": (lambda **o: Dataset.range(3).take(**o), {"cuont": 1}, "count"),
    "a source": (Dataset.range, {"stopp": 3}, "stop"),
    "next": (lambda **o: ds.iterator().next(**o), {"timeout": 3}, "timeout_s"),
    "load_state_dict": (lambda **o: ds.iterator().load_state_dict(**o), {"stat": {}}, "state"),
    "cast": (lambda **o: col("a").cast(**o), {"dtyp": "int8"}, "dtype"),
    "where": (cachew.where, {"conditoin": col("a")}, "condition"),
    "col": (col, {"nam": "a"}, "name"),
    "load_plugin": (cachew.load_plugin, {"pth": "x.so"}, "path"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_keyword_that_is_misspelt(name):
    call, wrong, meant = CALLS[name]
    (keyword,) = wrong
    expected = rf"\w+\(\) has no argument {keyword}" + (
        rf"; did you mean {meant}\?$" if meant else r" \(it has "
    )
    with pytest.raises(TypeError) as error:
        call(**wrong)
    assert re.match(expected, str(error.value)), str(error.value)


def test_checks_of_keywords_do_not_hide_signatures():
    import inspect

    assert list(inspect.signature(Dataset.iterator).parameters)[:3] == ["self", "seed", "epochs"]
    assert (
        Dataset.iterator.__name__ == "iterator"
        and "threads: number of compute threads" in Dataset.iterator.__doc__
    )
