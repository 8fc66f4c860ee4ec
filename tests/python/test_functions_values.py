"""What functions may return for what is declared, and what is said where it is something else."""

import logging
import math

import numpy as np
import pytest

import cachew
from cachew import Dataset

log = logging.getLogger(__name__)


def returned(value, outputs=None, kind="map"):
    ds = Dataset.range(stop=2)
    if kind == "map_batches":
        ds = ds.batch(2).map_batches(
            lambda batch: {"y": value}, **({"outputs": {"y": outputs}} if outputs else {})
        )
    elif kind == "filter":
        ds = ds.filter(value).batch(2)
    else:
        ds = getattr(ds, kind)(
            lambda e: {"y": value}, **({"outputs": {"y": outputs}} if outputs else {})
        ).batch(2)
    return next(iter(ds))["y"][0]


# ---- Python's own numbers ----


@pytest.mark.parametrize(
    ("value", "dtype", "taken"),
    [
        (0.1, "float32", np.float32(0.1)),
        (0.1, "float16", np.float16(0.1)),
        (0.1, "float64", 0.1),
        (3, "float32", 3.0),
        (16777217, "float32", 16777216.0),
        (math.inf, "float32", math.inf),
        (-math.inf, "float16", -math.inf),
        (1e-60, "float32", 0.0),
        (65504, "float16", 65504.0),
        (3.4028235e38, "float32", np.float32(3.4028235e38)),
        (255, "uint8", 255),
        (-128, "int8", -128),
        (2**64 - 1, "uint64", 2**64 - 1),
        (True, "bool", True),
    ],
)
def test_a_number_of_python_takes_the_declared_dtype(value, dtype, taken):
    got = returned(value, dtype)
    assert got.dtype == dtype and got == taken


def test_nan_of_python_takes_the_declared_dtype():
    assert np.isnan(returned(math.nan, "float32"))


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (1e300, "float32", 'returned 1e.300 as "y", which is out of range for float32'),
        (-1e5, "float16", 'returned -100000.0 as "y", which is out of range for float16'),
        (70000, "float16", 'returned 70000 as "y", which is out of range for float16'),
        (10**400, "float64", 'returned 1000.*[.][.][.] as "y", which is out of range for float64'),
        pytest.param(
            10**5000,
            "int64",
            'returned an int of 16610 bits as "y", which is out of range for int64',
            id="long",
        ),
        (256, "uint8", 'returned 256 as "y", which is out of range for uint8'),
        (-1, "uint64", 'returned -1 as "y", which is out of range for uint64'),
        (2.0, "int64", 'returned float as "y", expected int64'),
        (True, "int64", 'returned bool as "y", expected int64'),
        (True, "float32", 'returned bool as "y", expected float32'),
        (1, "bool", 'returned int as "y", expected bool'),
        (np.float64(0.5), "float32", 'returned float64.* as "y", expected float32'),
        (np.int32(1), "int64", 'returned int32.* as "y", expected int64'),
    ],
)
def test_a_number_that_does_not_fit_is_an_error_and_is_not_rounded_to_infinity(value, dtype, message):
    with pytest.raises(cachew.RecordError, match=message):
        returned(value, dtype)


# ---- arrays ----


@pytest.mark.parametrize("kind", ["map", "map_batches"])
@pytest.mark.parametrize("dtype", [">i4", ">f8", ">u2"])
def test_arrays_in_another_byte_order_are_what_they_say(dtype, kind):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    got = returned(array, kind=kind)
    assert (
        got.dtype == np.dtype(dtype).newbyteorder("=")
        and (got == (array if kind == "map" else array[0])).all()
    )


@pytest.mark.parametrize("outputs", [None, "int64", ("int64", (2,))])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            [[1], [1, 2]],
            'returned a? ?list as "y", which NumPy can.t convert to an array [(]ValueError: setting an array',
        ),
        (None, 'returned None as "y", .*default'),
        (
            np.array([None, 1], object),
            '(returned object.* as "y", expected int64|returned "y" of dtype object)',
        ),
        (np.zeros(2, [("a", "i4")]), 'returned .*"y"'),
        (1j, 'returned .*"y"'),
        (np.datetime64("2020-01-01"), 'returned .*"y"'),
        (np.longdouble(1), 'returned .*"y"'),
        ({1, 2}, 'returned .*"y"'),
        (
            np.zeros((1,) * 7),
            (
                '(returned float64.* as "y", expected int64|'
                'returned "y" of shape .*, expected at most 6 dimensions)'
            ),
        ),
        (np.ma.masked_array([1, 2], mask=[True, False]), 'returned a masked array as "y"'),
    ],
)
def test_what_is_no_array_is_named(value, outputs, message):
    with pytest.raises(
        cachew.RecordError, match=f"map: returned.<locals>.<lambda>: (TypeError: )?{message}"
    ) as error:
        returned(value, outputs)
    assert error.value.record


class Raises:
    def __array__(self, *_, **__):
        raise OSError("no longer open")


@pytest.mark.parametrize("outputs", [None, "int64"])
def test_what_raises_when_numpy_asks_for_its_array_is_named(outputs):
    with pytest.raises(
        cachew.RecordError,
        match='Raises as "y", which NumPy can.t convert to an array .OSError: no longer open',
    ):
        returned(Raises(), outputs)


def test_a_text_without_utf8_is_named():
    with pytest.raises(
        cachew.RecordError,
        match='returned a str as "y" that can.t be written in UTF-8 .*expected bytes or a text',
    ):
        returned("a\ud800", "bytes")


@pytest.mark.parametrize("name", ["", "n" * 300, "a\0b", "\ud800", 1])
def test_the_name_of_a_component_that_is_none_is_the_functions_mistake(name):
    with pytest.raises(cachew.RecordError, match="<lambda>: TypeError: returned a component of the name"):
        Dataset.range(stop=2).map(lambda e: {name: 1})


def test_a_dict_of_nothing_is_the_functions_mistake():
    with pytest.raises(cachew.RecordError, match="<lambda>: TypeError: returned a dict without components"):
        Dataset.range(stop=2).map(lambda e: {})


# ---- what has not run, and what is no list ----


async def coroutine(e):
    return True


def generator(e):
    yield True


@pytest.mark.parametrize("function", [lambda e: coroutine(e), generator])
def test_a_filter_that_has_not_run_kept_everything(function):
    with pytest.raises(
        cachew.RecordError,
        match=f"{function.__name__}: returned (coroutine|generator), expected a value that is true or false",
    ):
        returned(function, kind="filter")


@pytest.mark.parametrize("outputs", [None, {"y": "int64"}])
@pytest.mark.parametrize("value", [None, {"y": 1}])
def test_flat_map_that_returns_no_list_says_what_it_takes(value, outputs):
    with pytest.raises(
        cachew.RecordError,
        match="returned a? ?(NoneType|dict), expected a list of dicts, or a generator of them",
    ):
        Dataset.range(stop=2).flat_map(lambda e: value, outputs=outputs).batch(2).peek()


# ---- what functions have with them ----


def test_a_function_that_logs_has_an_identity():
    """A logger has locks and handlers, which are no part of what is computed."""

    def logs(e):
        log.debug("%s", e)
        return {"y": 1}

    assert next(iter(Dataset.range(stop=2).map(logs).batch(2)))["y"].tolist() == [1, 1]


def test_a_function_with_an_open_file_gave_each_host_a_copy_to_read():
    with open(__file__, encoding="utf-8") as file:
        with pytest.raises(
            cachew.PipelineError,
            match="refers to an open file .*test_functions_values.py.*, which has no hash",
        ):
            Dataset.range(stop=2).map(lambda e: {"y": len(file.read())})
