"""Dicts in dicts and tuples, in and out of functions, and None with a default."""

import numpy as np
import pytest

import cachew
from cachew import Dataset, PipelineError


def only(ds):
    (batch,) = ds.batch(3)
    return batch


def pair(element):
    n = int(element["value"])
    return {"a": {"x": np.float32(n), "y": np.arange(2, dtype=np.int64) + n}, "b": (n, b"%d" % n)}


PAIR = {"a": {"x": "float32", "y": ("int64", (2,))}, "b": ["int64", "bytes"]}


def test_components_of_a_structure_are_named_by_their_path():
    batch = only(Dataset.range(stop=3).map(pair, outputs=PAIR))
    assert sorted(batch) == ["a.x", "a.y", "b.0", "b.1"]
    assert batch["a.x"].tolist() == [0, 1, 2]
    assert batch["a.y"].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert batch["b.0"].tolist() == [0, 1, 2]
    assert batch["b.1"].tolist() == [b"0", b"1", b"2"]


def test_nest_gives_the_structure_back():
    batch = only(Dataset.range(stop=3).map(pair, outputs=PAIR))
    nested = cachew.nest(batch)
    assert nested["a"]["x"] is batch["a.x"] and nested["b"][1] is batch["b.1"]
    assert sorted(nested) == ["a", "b"] and type(nested["b"]) is tuple


def test_nest_of_numbers_alone_is_a_tuple_in_order():
    assert cachew.nest({str(i): i for i in reversed(range(11))}) == tuple(range(11))
    assert cachew.nest({"1": 1, "2": 2}) == {"1": 1, "2": 2}
    assert cachew.nest({"a": {"b": 1}}) == {"a": {"b": 1}}  # a value is no part of the structure
    assert cachew.nest({}) == {}


@pytest.mark.parametrize("names", [("a", "a.x"), ("a.x", "a")])
def test_nest_refuses_a_component_inside_another(names):
    with pytest.raises(ValueError, match='"a" is a component, and so is "a.x"'):
        cachew.nest(dict.fromkeys(names, 0))


def test_outputs_of_nested_dicts_are_found_by_a_first_call():
    ds = Dataset.range(stop=3).map(lambda e: {"a": {"x": np.float32(1)}, "size": (224, 224)})
    found = {n: (f.dtype, f.shape) for n, f in ds.schema.items()}
    assert found == {"a.x": ("float32", ()), "size": ("int64", (2,))}
    assert only(ds)["size"].tolist() == [[224, 224]] * 3


def test_a_tuple_as_a_whole_result_is_found_by_a_first_call():
    batch = only(Dataset.range(stop=3).map(lambda e: (e["value"], {"label": b"x"})))
    assert sorted(batch) == ["0", "1.label"]
    first, second = cachew.nest(batch)
    assert first.tolist() == [0, 1, 2] and second["label"].tolist() == [b"x"] * 3


def test_generators_give_tuples():
    ds = Dataset.iterable(
        lambda: ((i, {"label": i % 2}) for i in range(3)), outputs=["int64", {"label": "int64"}]
    )
    assert cachew.nest(only(ds))[1]["label"].tolist() == [0, 1, 0]


def test_batches_of_functions_have_structure():
    ds = Dataset.range(stop=3).batch(3).map_batches(lambda b: {"a": {"x": b["value"] * 2}})
    assert next(iter(ds))["a.x"].tolist() == [0, 2, 4]


def test_flat_map_gives_structures():
    ds = Dataset.range(stop=3).flat_map(lambda e: [{"a": {"x": e["value"]}}], outputs={"a": {"x": "int64"}})
    assert only(ds)["a.x"].tolist() == [0, 1, 2]


def test_arrays_in_nested_dicts():
    batch = only(Dataset.arrays({"a": {"x": np.arange(3), "y": [b"a", b"b", b"c"]}, "b": np.zeros(3)}))
    assert sorted(batch) == ["a.x", "a.y", "b"]
    assert batch["a.x"].tolist() == [0, 1, 2]


def test_a_declared_component_may_be_given_by_its_path_or_in_a_dict():
    ds = Dataset.range(stop=3).map(
        lambda e: {"a.x": e["value"]} if e["value"] % 2 else {"a": {"x": e["value"]}},
        outputs={"a.x": "int64"},
    )
    assert only(ds)["a.x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"a": {"x": 1, "z": 1}}, 'returned "a.z"; its outputs are a.x'),
        ({"a": {}}, 'did not return "a.x"; its outputs are a.x'),
        ({"a": {"x": 1}, "a.x": 1}, 'returned a dict in which "a.x" is there twice'),
        ({"a": 1}, 'returned "a"; its outputs are a.x'),
        ({"a": {"x": {"y": 1}}}, 'returned dict as "a.x", expected int64[]'),
        ([1], "returned list, expected a dict of a.x"),
        ({"a": {"x": None}}, 'returned None as "a.x", expected int64[]; give a default for None in outputs'),
    ],
)
def test_what_is_wrong_in_a_structure_is_named_by_its_path(result, said):
    with pytest.raises(cachew.RecordError) as raised:
        only(Dataset.range(stop=3).map(lambda e: result, outputs={"a": {"x": "int64"}}))
    assert said in str(raised.value)


def test_a_component_that_is_declared_twice_is_refused():
    with pytest.raises(PipelineError, match='outputs: "a.x" is there twice'):
        Dataset.range(stop=3).map(pair, outputs={"a": {"x": "int64"}, "a.x": "int64"})


# ---- None ----


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (("int64", (), -1), -1),
        (("float32", (), 0), 0.0),
        (("bool", (), True), True),
        (("int32", (2,), 7), [7, 7]),
        (("bytes", (), "none"), b"none"),
        (("bytes", (), b""), b""),
        ({"dtype": "int64", "default": 5}, 5),
    ],
)
@pytest.mark.parametrize("left_out", [False, True])
def test_none_gives_the_default(declared, value, left_out):
    def some(element):
        missing = {} if left_out else {"y": None}
        return {"v": element["value"], **({"y": given} if element["value"] == 1 else missing)}

    given = value
    if isinstance(value, (bytes, list)):
        given = b"given" if isinstance(value, bytes) else np.array(value, "int32")
    batch = only(Dataset.range(stop=3).map(some, outputs={"v": "int64", "y": declared}))
    assert batch["y"].tolist() == [value, b"given" if isinstance(value, bytes) else value, value]


def test_none_gives_nan_where_that_is_the_default():
    ds = Dataset.range(stop=3).map(lambda e: {"y": None}, outputs={"y": ("float32", (), float("nan"))})
    assert np.isnan(only(ds)["y"]).all()


def test_none_gives_an_empty_array_where_the_dimension_varies():
    def some(element):
        return {"y": None if element["value"] == 0 else np.arange(2)}

    ds = Dataset.range(stop=2).map(some, outputs={"y": ("int64", (None,), 0)})
    assert [len(e["y"]) for e in ds] == [0, 2]


def test_none_in_a_column_of_a_batch_gives_the_default():
    ds = (
        Dataset.range(stop=3)
        .batch(3)
        .map_batches(
            lambda b: {"y": [None, b"x", None], "z": [1, None, 3]},
            outputs={"y": ("bytes", (), "-"), "z": ("int64", (), 0)},
        )
    )
    batch = next(iter(ds))
    assert batch["y"].tolist() == [b"-", b"x", b"-"] and batch["z"].tolist() == [1, 0, 3]


def test_none_of_a_generator_gives_the_default():
    ds = Dataset.iterable(
        lambda: ({"y": None if i else i} for i in range(3)), outputs={"y": ("int64", (), 9)}
    )
    assert only(ds)["y"].tolist() == [0, 9, 9]


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (("int64", (), 1.5), "the default is 1.5: expected a value of int64"),
        (("uint8", (), 256), "the default is 256: expected a value of uint8"),
        (("int64", (), "x"), "the default is 'x': expected a value of int64"),
        (("bytes", (), 1), "the default is 1: expected a value of bytes"),
        (("bool", (), 1), "the default is 1: expected a value of bool"),
        (("int64", (), float("nan")), "the default is nan: expected a value of int64"),
    ],
)
def test_a_default_of_another_dtype_is_refused(declared, said):
    with pytest.raises(PipelineError) as raised:
        Dataset.range(stop=3).map(pair, outputs={"y": declared})
    assert said in str(raised.value)


def test_none_without_outputs_asks_for_a_default():
    with pytest.raises(cachew.Error, match="declare outputs, with a default"):
        Dataset.range(stop=3).map(lambda e: {"y": None})


def test_another_default_is_another_pipeline():
    def some(element):
        return {"y": None}

    state = {}
    for default in (1, 2):
        ds = Dataset.range(stop=9).map(some, outputs={"y": ("int64", (), default)}).batch(3)
        with ds.iterator() as it:
            next(it)
            state[default] = it.state_dict()
    with pytest.raises(cachew.StateError):
        ds.iterator(state=state[1])
