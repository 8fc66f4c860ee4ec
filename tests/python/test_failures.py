"""Exceptions in Python functions: what the error tells of the exception, of the place in the user's code, and
of the element.
"""

import asyncio
import traceback

import numpy as np
import pytest
from function_runs import run_python, values

import cachew
from cachew import Dataset


class Odd(Exception):
    """An exception that keeps more than its arguments."""

    def __init__(self, value, *, name):
        super().__init__(f"{name} is odd")
        self.value = value


def deeper(value):
    raise Odd(value, name="seven")  # the innermost line


def fails_at_seven(element):
    if element["value"] == 7:
        try:
            deeper(int(element["value"]))
        except Odd as problem:
            raise KeyError("outer", 7) from problem
    return {"value": element["value"]}


def raises_odd(element):
    if element["value"] == 7:
        deeper(7)
    return {"value": element["value"]}


def error_of(iterator):
    with iterator as batches, pytest.raises(cachew.Error) as caught:
        for _ in batches:
            pass
    return caught.value


def failing(function, **names):
    source = Dataset.range(20).assign(names) if names else Dataset.range(20)
    return source.map(function, outputs={"value": "int64"}).batch(4)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_error_has_the_traceback_and_the_cause(threads):
    error = error_of(failing(fails_at_seven).iterator(threads=threads))
    assert str(error).startswith("map: fails_at_seven: KeyError: ('outer', 7) (test_failures.py:")
    (note,) = error.__notes__
    assert 'raise Odd(value, name="seven")  # the innermost line' in note and ", in deeper" in note
    assert "Odd: seven is odd" in note and "direct cause" in note and note.endswith("KeyError: ('outer', 7)")
    assert "_host" not in note  # only the user's frames
    assert type(error.__cause__) is KeyError and error.__cause__.args == ("outer", 7)
    assert note in "".join(traceback.format_exception(error))


def test_the_cause_is_of_the_users_class():
    cause = error_of(failing(raises_odd).iterator()).__cause__
    assert type(cause) is Odd and cause.value == 7 and str(cause) == "seven is odd"


def test_the_error_has_the_element():
    shuffled = Dataset.range(20).shuffle()
    ds = shuffled.assign(half="value / 2").map(fails_at_seven, outputs={"value": "int64"}).batch(4)
    error = error_of(ds.iterator(seed=3, epoch=2))
    assert error.element.epoch == 2 and 0 <= error.element.position < 20
    components = error.element.components
    assert components["value"] == 7 and components["value"].dtype == np.int64
    assert components["half"] == 3.5
    at = error.element.position
    assert values(shuffled.skip(at).take(1), seed=3, epoch=2) == [7]


def test_large_components_are_described():
    arrays = {
        "large": np.zeros((2, 1000, 1000), "float32"),
        "small": np.arange(8).reshape(2, 4),
        "s": [b"ab", b"c" * 999],
    }

    def refuse(element):
        raise ValueError("x" * 100_000)

    error = error_of(Dataset.arrays(arrays).skip(1).map(refuse, outputs={"n": "int64"}).iterator())
    components = error.element.components
    assert components["large"] == "float32[1000, 1000]" and components["s"] == "999 bytes"
    assert components["small"].tolist() == [4, 5, 6, 7]
    assert len(error.__notes__[0]) < 8000  # the end of the traceback, which has the long message


def test_many_components_with_long_names():
    names = {"é" * 120 + str(i): "value * 1.5" for i in range(60)}
    error = error_of(Dataset.range(9).assign(names).map(raises_always, outputs={"n": "int64"}).iterator())
    described = error.element.components
    assert 2 < len(described) < 62 and described["..."] == f"{62 - len(described)} more components"
    assert ", in raises_always" in error.__notes__[0] and error.__cause__.args == ("always",)


def raises_always(element):
    raise ValueError("always")


def test_a_function_that_changed_its_element():
    def changes(element):
        element["value"], element["more"] = None, 1
        raise ValueError("changed")

    def changes_batch(batch):
        batch.clear()
        raise ValueError("changed")

    async def changes_later(element):
        changes(element)

    outputs = {"value": "int64"}
    for function in (changes, changes_later):
        error = error_of(Dataset.range(3).map(function, outputs=outputs).iterator())
        assert error.element.components == {"value": 0} and "in changes" in error.__notes__[0]
    error = error_of(Dataset.range(3).batch(2).map_batches(changes_batch, outputs=outputs).iterator())
    assert error.element.components["value"].tolist() == [0, 1]


class Counted(Exception):
    """Its argument is not that of its class."""

    def __init__(self, n):
        super().__init__(f"{n} found")


@pytest.mark.parametrize(
    "kind, argument",
    [(open, "/no/file"), (Counted, 3), (ValueError, "x" * 5000)],
    ids=["open", "own", "long"],
)
def test_the_cause_says_what_the_original_says(kind, argument):
    def raises(element):
        raise kind(argument)

    with pytest.raises(Exception) as original:
        raises(None)
    cause = error_of(Dataset.range(3).map(raises, outputs={"value": "int64"}).iterator()).__cause__
    said = str(original.value)
    assert type(cause) is original.type and str(cause) in (said, said[:1000] + "...")
    assert getattr(cause, "filename", None) == getattr(original.value, "filename", None)


def test_an_element_that_no_function_computed():
    ds = Dataset.arrays({"image": [b"no image"] * 3}).decode_image("image").batch(1)
    error = error_of(ds.iterator())
    assert error.element == cachew.FailedElement(0, 0, {})
    assert error.__cause__ is None and not hasattr(error, "__notes__")


def test_wrong_results_have_no_traceback():
    error = error_of(failing(lambda element: {"value": "no number"}).iterator())
    assert error.__cause__ is None and not hasattr(error, "__notes__")
    assert error.element.components == {"value": 0}


def test_batches_and_iterables():
    def whole(batch):
        raise ValueError("whole", len(batch["value"]))

    error = error_of(Dataset.range(20).batch(4).map_batches(whole, outputs={"value": "int64"}).iterator())
    assert error.__cause__.args == ("whole", 4) and "in whole" in error.__notes__[0]
    assert error.element.components["value"].tolist() == [0, 1, 2, 3]

    def stops():
        yield {"value": 1}
        raise OSError(5, "the disk")

    error = error_of(Dataset.iterable(stops, outputs={"value": "int64"}).batch(1).iterator())
    assert type(error.__cause__) is OSError and error.__cause__.errno == 5
    assert "in stops" in error.__notes__[0]

    def many(element):
        yield element
        raise RuntimeError("after one")

    error = error_of(Dataset.range(9).flat_map(many, outputs={"value": "int64"}).batch(1).iterator())
    assert type(error.__cause__) is RuntimeError and "in many" in error.__notes__[0]


def test_async_functions():
    async def waits(element):
        await asyncio.sleep(0)
        return fails_at_seven(element)

    error = error_of(failing(waits).iterator())
    assert type(error.__cause__) is KeyError and ", in waits" in error.__notes__[0]
    assert error.element.components == {"value": 7}


def test_the_first_call_which_finds_the_outputs():
    with pytest.raises(cachew.RecordError) as caught:
        Dataset.range(3).map(lambda element: {"value": element["missing"]})
    assert type(caught.value.__cause__) is KeyError and 'element["missing"]' in caught.value.__notes__[0]


def test_through_a_service(service):
    error = error_of(failing(fails_at_seven, half="value / 2").distribute(service.address))
    assert type(error.__cause__) is KeyError and "# the innermost line" in error.__notes__[0]
    assert error.element.position == 7 and error.element.components["half"] == 3.5


def test_through_the_thread_of_a_loader():
    pytest.importorskip("jax")
    from cachew.jax import loader

    with pytest.raises(cachew.RecordError) as caught:
        for _ in loader(failing(fails_at_seven)):
            pass
    assert type(caught.value.__cause__) is KeyError and caught.value.element.position == 7


def test_a_class_that_this_program_has_not_imported_is_left_out():
    """What a worker sends is no program: no module is imported, and only exceptions are made."""
    from cachew._failures import explain

    bad = (("os", "system"), ("subprocess", "Popen"), ("no.such", "Error"), ("builtins", "print"))
    for module, name in bad:
        error = cachew.RecordError("message")
        described = f'{{"module": "{module}", "name": "{name}", "args": ["x"], "attributes": {{}}}}'
        explain(error, f'{{"exception": {described}, "traceback": "a\\u001b\\nb"}}')
        assert error.__cause__ is None and error.__notes__ == ["In the function:\na\\x1b\nb"]
    for text in (
        "no JSON",
        "[" * 8000,
        "[1]",
        '{"components": [1]}',
        '{"exception": 1}',
        '{"exception": {}}',
    ):
        explain(error, text)  # nor does a text that can't be read raise


def test_what_a_function_prints_has_its_name_before_it():
    code = """if True:
        from cachew import Dataset
        def talks(element):
            print("value", element["value"])
            return element
        list(Dataset.range(3, start=1).map(talks, outputs={"value": "int64"}).batch(2))
    """
    said = run_python(code).stderr.splitlines()
    lines = [line.partition(", ")[2] for line in said if "value" in line]
    assert sorted(lines) == ["talks] value 1", "talks] value 2"]
