"""What no one should write, and someone will: an error of the package that names it, and nothing else
happens.
"""

import sys

import numpy as np
import pytest

import cachew
from cachew import Dataset
from cachew._identity import identity_of


@pytest.mark.parametrize(
    "value", [-1, 2**64, float("nan"), True, np.True_, b"3", "3", "x\0", "\ud800", [3], ""]
)
@pytest.mark.parametrize(
    "option",
    [
        "seed",
        "epochs",
        "threads",
        "rank",
        "world_size",
        "timeout_s",
        "first_epoch",
        "cache",
        "cache_bytes",
        "optimize",
        "state",
        "index_dir",
        "cache_dir",
    ],
)
def test_options_of_an_iterator(option, value, tmp_path, monkeypatch):
    """Those that are right for what they are do no harm."""
    monkeypatch.chdir(tmp_path)
    try:
        with Dataset.range(6).batch(2).iterator(**{option: value}) as it:
            assert len(list(it)) == 3
    except cachew.Error as error:
        assert error.attribute in (option, None, "cache-dir") and (
            isinstance(error, cachew.StateError)
            if option == "state"
            else isinstance(error, cachew.OptionError)
        )
        assert str(error).isprintable()
    else:
        assert (option, value) in {
            ("timeout_s", 2**64),
            ("optimize", True),
            ("index_dir", "3"),
            ("cache_dir", "3"),
            ("index_dir", b"3"),
            ("cache_dir", b"3"),
        }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1], [2, 3]], "differ in shape"),
        (["a", "\ud800"], "UTF-8"),
        (np.zeros(3, np.longdouble), "float128|float96|float64x"),
        (np.zeros((2,) + (1,) * 7), "7 dimensions: expected at most 6"),
        (np.zeros(3, complex), "complex"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64"),
        (np.array([1, None], object), "object"),
        (np.array(3), "single value"),
    ],
)
def test_arrays_that_are_no_component(value, message):
    with pytest.raises(cachew.PipelineError, match=f"arrays: x has .*({message})|arrays: x is .*({message})"):
        Dataset.arrays({"x": value})


@pytest.mark.parametrize("name", ["x\0y", "\ud800"])
def test_names_that_are_no_text(name):
    with pytest.raises(cachew.PipelineError, match="expected a text"):
        Dataset.arrays({name: np.arange(3)})


@pytest.mark.parametrize("place", ["lib/python3/dist-packages", "home/.local/lib/python3.11/site-packages"])
def test_packages_of_the_system_and_the_user_go_by_version(place, tmp_path, monkeypatch):
    """What is in them need not have a hash."""
    package = tmp_path / place / "cachew_test_of_packages"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import threading\n__version__ = '1.2'\nlock = "
        "threading.Lock()\ndef locked():\n    return lock.locked()\n"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    try:
        import cachew_test_of_packages

        assert len(identity_of(lambda e: {"value": cachew_test_of_packages.locked()})) == 32
    finally:
        sys.modules.pop("cachew_test_of_packages", None)


@pytest.mark.parametrize(
    ("value", "message"),
    [("/data/\udcff/a.txt", "UTF-8.* a pattern"), ("a\0b", "NUL"), ({"a\ud800": "1"}, "no text in UTF-8")],
)
def test_texts_that_json_does_not_hold(value, message):
    with pytest.raises(cachew.PipelineError, match=message) as error:
        Dataset.range(3).assign(value) if isinstance(value, dict) else Dataset.text(value)
    assert error.value.operator == ("assign" if isinstance(value, dict) else "text")


def test_a_file_whose_name_is_not_utf8_is_found_by_a_pattern(tmp_path):
    import os

    directory = os.fsencode(tmp_path) + b"/\xff\xfe"
    os.mkdir(directory)
    with open(directory + b"/a.txt", "w") as file:
        file.write("x\ny\n")
    assert Dataset.text(tmp_path / "*" / "a.txt").batch(2).peek()["text"].tolist() == [b"x", b"y"]


@pytest.mark.parametrize("how", ["pickle", "copy", "deepcopy"])
def test_what_runs_can_not_be_pickled_or_copied(how):
    import copy
    import pickle

    loader = pytest.importorskip("cachew.torch").loader(Dataset.range(4).batch(2))
    with Dataset.range(4).batch(2).iterator() as it:
        for running in (it, loader):
            with pytest.raises(TypeError, match="its dataset and its state_dict"):
                {"pickle": pickle.dumps, "copy": copy.copy, "deepcopy": copy.deepcopy}[how](running)


def masked(element):
    return {"a": np.ma.array([1, 2], mask=[False, True])}


def masked_batch(batch):
    return {"a": np.ma.array(batch["value"], mask=batch["value"] == 1)}


def number_for_a_name(element):
    return {1: element["value"]}


@pytest.mark.parametrize("outputs", [None, {"a": ("int64", (2,))}])
def test_masked_arrays_do_not_lose_their_masks_in_silence(outputs):
    with pytest.raises(cachew.RecordError, match='masked array as "a"'):
        Dataset.range(3).map(masked, outputs=outputs).batch(3).peek()
    with pytest.raises(cachew.RecordError, match='masked array as "a"'):
        Dataset.range(3).batch(3).map_batches(masked_batch, outputs=outputs and {"a": "int64"}).peek()


def test_components_have_texts_for_names():
    with pytest.raises(cachew.RecordError, match="of the name 1, a int: expected a text"):
        Dataset.range(3).map(number_for_a_name)


def test_the_copy_of_a_host_writes_nothing():
    """A function that forks, and comes back in the child too: what the host computes meanwhile is left
    alone.
    """
    import os

    def fork(element):
        if element["value"] == 50:
            os.fork()
        return {"value": element["value"]}

    ds = Dataset.range(2000).map(fork, outputs={"value": "int64"}).batch(10)
    for _ in range(12):
        assert [v for b in ds.iterator(threads=1) for v in b["value"].tolist()] == list(range(2000))


def loaders():
    pytest.importorskip("torch"), pytest.importorskip("jax")
    import cachew.jax
    import cachew.torch

    return cachew.torch.loader, cachew.jax.loader


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("rank", "x", "an integer from 0, less than world_size"),
        ("rank", -1, "an integer"),
        ("rank", 1.0, "an integer"),
        ("world_size", 0, "an integer from 1"),
        ("timeout_s", "x", "seconds"),
        ("memory", 1.5, "bytes"),
        ("cache", "x", '"auto", "off"'),
        ("cache", 1.5, '"auto", "off"'),
    ],
)
def test_loaders_refuse_wrong_options_when_they_are_made(option, value, expected):
    """Not at the first batch."""
    for loader in loaders():
        with pytest.raises(cachew.OptionError, match=f"option {option} is .*: expected {expected}"):
            loader(Dataset.range(4).batch(2), **{option: value})


def test_devices_that_are_not_there_are_refused_when_a_loader_is_made():
    loader, jax_loader = loaders()
    import torch

    ds = Dataset.range(4).batch(2)
    with pytest.raises(cachew.OptionError, match="option device is 'gpu': expected .*cuda"):
        loader(ds, device="gpu")
    with pytest.raises(cachew.OptionError, match="option pin_memory is 'x': expected True or False"):
        loader(ds, pin_memory="x")
    with pytest.raises(cachew.OptionError, match="option sharding is 3: expected a jax.sharding.Sharding"):
        jax_loader(ds, sharding=3)
    if not torch.cuda.is_available():
        with pytest.raises(
            cachew.OptionError, match="option device is 'cuda': expected another device: torch finds no CUDA"
        ):
            loader(ds, device="cuda")
    if not torch.accelerator.is_available():
        with pytest.raises(cachew.OptionError, match="option pin_memory is True: expected False"):
            loader(ds, pin_memory=True)


def test_states_of_something_else_say_of_what():
    loader = loaders()[0](Dataset.range(4).batch(2))
    it = Dataset.range(4).batch(2).iterator()
    with pytest.raises(cachew.StateError, match=r'that of a loader: .* state\["cachew"\]'):
        it.load_state_dict(loader.state_dict())
    with pytest.raises(cachew.StateError, match="that of an iterator: expected .* of a loader"):
        loader.load_state_dict(it.state_dict())
    with pytest.raises(cachew.StateError, match="state is None"):  # it began anew, without a word
        it.load_state_dict(None)
    it.load_state_dict(loader.state_dict()["cachew"])
    assert next(it).g == 0


def test_no_service_is_no_way_to_run_here():
    with pytest.raises(cachew.OptionError, match="option service is None: expected HOST:PORT .* iterator"):
        Dataset.range(4).batch(2).distribute(None)


@pytest.mark.parametrize("token", [3, "", "sec\0ret"])
def test_a_wrong_token_is_not_shown(token):
    with pytest.raises(
        cachew.OptionError, match="option token is (a int|empty, or has a NUL): expected a text, not empty"
    ) as error:
        Dataset.range(4).batch(2).distribute("127.0.0.1:1", token=token)
    assert "sec" not in str(error.value) + error.value.value


def test_byte_strings_say_that_they_are_no_array():
    strings = Dataset.arrays({"s": ["a", "bcd"]}).batch(2).peek()["s"]
    for take in (np.asarray, np.array):
        with pytest.raises(TypeError, match="byte strings of varying length are no array: take .data"):
            take(strings)
    with pytest.raises(BufferError, match="byte strings of varying length are no array"):
        np.from_dlpack(strings)
    for i in (1.0, "a", [0, 1], None):
        with pytest.raises(TypeError, match="expected an integer or a slice"):
            strings[i]
    assert bytes(strings[np.int64(-1)]) == b"bcd"
