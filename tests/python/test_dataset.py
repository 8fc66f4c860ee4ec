"""Datasets as values: methods, checks, repr, schema, length, text, pickles."""

import copy
import inspect
import json
import os
import pickle
import re
import subprocess
from pathlib import Path

import cachew
import numpy as np
import pytest
from cachew import Dataset, Field, PipelineError, col


def photos():
    return (
        Dataset.tfrecord("/nowhere/*.tfrecord")
        .parse_example({"image": "bytes", "label": "int64"})
        .decode_image("image")
    )


# ---- methods come from the table ----


def test_every_operator_is_a_method(command):
    table = json.loads(subprocess.run([command, "ops", "--json"], check=True, capture_output=True).stdout)[
        "ops"
    ]
    assert len(table) > 25
    for op in (op for op in table if not op.get("for_tests")):
        method = getattr(Dataset, "filter" if op["name"] == "filter_function" else op["name"])
        signature = inspect.signature(method)
        assert method.__name__ in (op["name"], "filter") and op["summary"][1:] in method.__doc__
        takes_function = any(a["kind"] == "function" for a in op["attributes"])
        for a in op["attributes"]:
            assert a["doc"] in method.__doc__
            if takes_function:
                assert a["kind"] == "function" or a["name"] in signature.parameters
            elif op["name"] not in ("assign", "arrays", "arrow"):
                assert signature.parameters[a["name"]].default == a.get("default", inspect.Parameter.empty)


def test_first_argument_is_the_component():
    ds = photos().random_resized_crop("image", size=(224, 224))
    assert json.loads(ds.to_json())["pipeline"][-1] == {
        "op": "random_resized_crop",
        "component": "image",
        "size": [224, 224],
    }
    assert str(inspect.signature(ds.random_resized_crop)).startswith("(component, size, *, scale=")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda d: d.batch(), "batch() lacks size"),
        (lambda d: d.batch(3, 4), "batch() takes 1 arguments without a name (size), 2 were given"),
        (lambda d: d.batch(3, size=4), "batch() got two values for size"),
        (lambda d: d.batch(size=3, drop_remander=True), "did you mean drop_remainder?"),
        (
            lambda d: d.shuffle(buffer=100),
            (
                "shuffle() has no argument buffer (it has by, window, reshuffle, seed); "
                "there is no buffer to size: shuffle() permutes all elements"
            ),
        ),
        (lambda d: d.assign(), "assign() lacks an expression"),
        (lambda d: d.assign("x"), "assign() takes expressions by name"),
        (lambda d: Dataset.concat([d, 3]), "inputs[1] is a int"),
        (lambda d: Dataset(), "a dataset begins with a source"),
    ],
)
def test_a_call_of_the_wrong_form_is_a_type_error(call, said):
    with pytest.raises(TypeError) as caught:
        call(Dataset.range(10))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("call", "operator", "attribute"),
    [
        (lambda: Dataset.range(10).batch(0), "batch", "size"),
        (lambda: Dataset.range(10).batch("many"), "batch", "size"),
        (lambda: Dataset.range(10).batch(object()), "batch", "size"),
        (lambda: Dataset.range(10).take({1: 2}), "take", "count"),
        (lambda: Dataset.range(2**70), "range", "stop"),
        (lambda: Dataset.range(10).take(float("nan")), "take", "count"),
        (lambda: photos().normalize("image", [float("inf")] * 3, [1, 2, 3]), "normalize", "mean"),
        (lambda: photos().random_resized_crop("image", (224, 224, 3)), "random_resized_crop", "size"),
        (
            lambda: photos().random_resized_crop("image", (224, 224), interpolation="bilinaer"),
            "random_resized_crop",
            "interpolation",
        ),
        (lambda: photos().resize("label", (3, 3)), "resize", "component"),
        (lambda: photos().resize("imgae", (3, 3)), "resize", "component"),
        (lambda: photos().filter(col("lable") > 3), "filter", "where"),
        (lambda: photos().filter("label > > 3"), "filter", "where"),
        (lambda: photos().assign(x=col("image") + col("label").length()), "assign", "set.x"),
        (lambda: photos().cast("label", "float31"), "cast", "dtype"),
        (lambda: photos().select(["image", "labels"]), "select", "components"),
        (lambda: photos().normalize("image", [1, 2], [1, 2, 3]), "normalize", None),
    ],
)
def test_what_is_wrong_is_named_where_it_is_written(call, operator, attribute):
    with pytest.raises(PipelineError) as caught:
        call()
    error = caught.value
    assert isinstance(error, ValueError) and error.kind == "pipeline"
    assert error.operator == operator and operator in str(error)
    if attribute:
        assert error.attribute == attribute


def test_errors_say_what_is_allowed():
    with pytest.raises(PipelineError) as caught:
        Dataset.range(10).batch(0)
    assert (caught.value.value, caught.value.expected) == ("0", "an integer, from 1 to 1048576")
    with pytest.raises(PipelineError, match='did you mean "image"|nearest|image'):
        photos().resize("imgae", (3, 3))


@pytest.mark.parametrize("size", [10_000, 0.5, True])
def test_shuffle_with_a_buffer_size_says_that_there_is_no_buffer(size):
    with pytest.raises(
        PipelineError,
        match=r'one of "record", "chunk"; there is no buffer to size: '
        r"shuffle\(\) permutes all elements",
    ):
        Dataset.range(10).shuffle(size)


def test_unknown_methods_have_suggestions():
    with pytest.raises(AttributeError, match="did you mean batch"):
        Dataset.range(3).bathc(3)
    with pytest.raises(AttributeError, match=r"tfrecord begins a dataset: Dataset.tfrecord"):
        Dataset.range(3).tfrecord("x")
    assert not hasattr(Dataset.range(3), "range")


def test_values_may_be_numpys_and_paths(tmp_path):
    ds = Dataset.files([tmp_path / "a*", "b*"]).take(np.int64(3))
    assert json.loads(ds.to_json())["pipeline"] == [
        {"op": "files", "files": [str(tmp_path / "a*"), "b*"]},
        {"op": "take", "count": 3},
    ]
    for dtype in (np.float32, np.dtype("float32"), "float32"):
        assert Dataset.range(3).cast("value", dtype).schema["value"].dtype == "float32"
    assert photos().resize("image", np.array([3, 4])).schema["image"].shape == (3, 4, 3)


# ---- values ----


def test_datasets_do_not_change():
    a = Dataset.range(10)
    b = a.batch(3)
    assert a.batch_size is None and b.batch_size == 3
    with pytest.raises(AttributeError, match="immutable"):
        a.x = 3
    with pytest.raises(AttributeError, match="immutable"):
        a._nodes = ()
    assert a == Dataset.range(10) != b and hash(a) == hash(Dataset.range(10))
    assert a and Dataset.range(0)


def test_repr_reads_as_the_pipeline():
    ds = (
        photos()
        .filter(col("label") >= 0)
        .assign(label=col("label") - 1)
        .shuffle()
        .batch(256)
        .on_error("skip")
        .defaults(seed=3)
    )
    assert (
        repr(ds)
        == """(
    Dataset.tfrecord('/nowhere/*.tfrecord')
    .parse_example({'image': 'bytes', 'label': 'int64'})
    .decode_image('image')
    .filter('label >= 0')
    .assign(label='label - 1')
    .shuffle()
    .batch(256)
).on_error('skip').defaults(seed=3)"""
    )
    joined = Dataset.concat([Dataset.range(3), Dataset.range(5, start=2)]).batch(2, drop_remainder=True)
    assert (
        repr(joined)
        == "Dataset.concat([Dataset.range(3), Dataset.range(5, start=2)]).batch(2, drop_remainder=True)"
    )
    for d in (ds, joined):
        assert eval(repr(d), {"Dataset": Dataset}) == d


def test_copies_and_pickles_are_equal():
    ds = photos().shuffle().batch(4).on_error("skip")
    for other in (
        pickle.loads(pickle.dumps(ds)),
        copy.copy(ds),
        copy.deepcopy(ds),
        Dataset.from_json(ds.to_json(), ds._base_dir),
    ):
        assert other == ds and repr(other) == repr(ds)


def test_a_pickle_finds_its_files_from_anywhere(tmp_path, script):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.bin").write_bytes(b"abc")
    os.chdir(tmp_path)
    (tmp_path / "p").write_bytes(pickle.dumps(Dataset.files("data/*")))
    ran = script(
        "import pickle, sys; print(bytes(pickle.load(open(sys.argv[1], 'rb')).peek()['data']))",
        tmp_path / "p",
        cwd="/",
    )
    assert ran.stdout.strip() == "b'abc'", ran.stderr


def test_settings_of_the_pipeline():
    ds = Dataset.range(8).shuffle().batch(8)
    with pytest.raises(PipelineError) as caught:
        ds.on_error("ignore")
    assert caught.value.attribute == "on_error"
    assert ds.order("written").to_json().count('"order": "written"') == 1
    with pytest.raises(cachew.PipelineError, match=r'order is "quick": expected "strict"') as caught:
        ds.order("quick")
    assert caught.value.attribute == "order"
    seeded = ds.defaults(seed=7, epochs=2)
    assert [list(b["value"]) for b in seeded] == [list(b["value"]) for b in ds.iterator(seed=7, epochs=2)]
    with pytest.raises(PipelineError):
        ds.defaults(seed=-4)


# ---- files of pipelines ----


def test_load_and_save(tmp_path, command):
    (tmp_path / "data").mkdir()
    for i in range(5):
        (tmp_path / "data" / f"{i}.bin").write_bytes(bytes([i]) * i)
    (tmp_path / "p.json").write_text(
        '{"cachew": 1, "pipeline": [{"op": "files", "files": "data/*"}, '
        '{"op": "batch", "size": 2}], "on_error": "skip"}'
    )
    ds = Dataset.load(tmp_path / "p.json")
    assert repr(ds) == "Dataset.files('data/*').batch(2).on_error('skip')" and len(ds) == 3
    os.chdir("/")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for target in (tmp_path / "q.json", elsewhere / "q.json"):
        ds.save(target)
        assert Dataset.load(target).peek()["path"].tolist() == ds.peek()["path"].tolist()
        assert subprocess.run([command, "run", target], check=False, capture_output=True).returncode == 0
    assert json.loads((tmp_path / "q.json").read_text())["pipeline"][0]["files"] == "data/*"
    assert json.loads((elsewhere / "q.json").read_text())["pipeline"][0]["files"] == str(tmp_path / "data/*")


def test_parts_from_different_directories(tmp_path):
    parts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.bin").write_text(name)
        (tmp_path / name / "p.json").write_text(
            '{"cachew": 1, "pipeline": [{"op": "files", "files": "x.bin"}]}'
        )
        parts.append(Dataset.load(tmp_path / name / "p.json"))
    assert [bytes(e["data"]) for e in Dataset.concat(parts)] == [b"a", b"b"]
    with pytest.raises(PipelineError, match="other settings"):
        Dataset.concat([parts[0], parts[1].on_error("skip")])
    with pytest.raises(PipelineError, match="at least one"):
        Dataset.concat([])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"cachew": 2, "pipeline": []}',
        '{"cachew": 1, "pipeline": [{"op": "rnage", "stop": 3}]}',
        '{"cachew": 1}',
        '{"cachew": 1, "pipeline": [{"op": "range", "stop": 3}], "on_eror": "skip"}',
    ],
)
def test_bad_json_is_a_pipeline_error(text, tmp_path):
    with pytest.raises(PipelineError):
        Dataset.from_json(text)
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(PipelineError) as caught:
        Dataset.load(tmp_path / "p.json")
    assert caught.value.file == str(tmp_path / "p.json")


def test_load_of_nothing(tmp_path):
    with pytest.raises(cachew.Error, match="none.json"):
        Dataset.load(tmp_path / "none.json")


# ---- what is known beforehand ----


def test_schema():
    assert photos().schema == {"image": Field("uint8", (None, None, 3)), "label": Field("int64", ())}
    assert photos().random_resized_crop("image", (24, 32)).batch(4).schema["image"] == Field(
        "uint8", (24, 32, 3)
    )
    assert (
        list(Dataset.files("x").schema) == ["data", "path"]
        and Dataset.files("x").schema["data"].dtype == "bytes"
    )
    unknown = Dataset.tfrecord("x").parse_example({"a": {"dtype": "float32", "shape": [2], "variable": True}})
    assert unknown.schema["a"] == Field("float32", (None, 2))
    assert Dataset.range(3).schema == {"value": Field("int64", ())}


def test_schema_is_what_batches_have():
    ds = (
        Dataset.synthetic(20, shape=(3, 4), dtype="uint8")
        .assign(m="max(data)", f="data / 2", b="data > 3")
        .batch(8)
    )
    batch = ds.peek()
    assert list(batch) == list(ds.schema)
    for name, field in ds.schema.items():
        assert batch[name].dtype == field.dtype and batch[name].shape == (8, *field.shape)


@pytest.mark.parametrize(
    ("ds", "n"),
    [
        (Dataset.range(0), 0),
        (Dataset.range(7), 7),
        (Dataset.range(7).batch(2), 4),
        (Dataset.range(7).batch(2, drop_remainder=True), 3),
        (Dataset.range(7).shuffle().repeat(3).batch(2), 11),
        (Dataset.concat([Dataset.range(3), Dataset.range(4)]).skip(1).batch(4), 2),
    ],
)
def test_length(ds, n):
    assert len(ds) == n == sum(1 for _ in ds) == ds.n_batches()
    for ranks in (2, 3):
        assert [sum(1 for _ in ds.iterator(rank=r, world_size=ranks)) for r in range(ranks)] == [
            ds.n_batches(world_size=ranks)
        ] * ranks


def test_no_length():
    ds = Dataset.range(10).filter("value > 3")
    with pytest.raises(TypeError, match="filter"):
        len(ds)
    assert ds.n_batches() is None and len(list(ds)) == 6
    with pytest.raises(TypeError, match="endless"):
        len(Dataset.range(10).repeat(-1))
    with pytest.raises(cachew.Error, match="nowhere"):
        len(Dataset.files("/nowhere/at/all/x"))


def test_peek():
    assert list(Dataset.range(10).batch(4).peek()["value"]) == [0, 1, 2, 3]
    with pytest.raises(cachew.DataError):
        Dataset.range(0).peek()


def test_explain(tmp_path, command):
    ds = (
        Dataset.synthetic(200, shape=(40, 40, 3), dtype="uint8")
        .random_crop("data", (20, 20))
        .random_flip("data")
        .shuffle()
        .batch(8)
    )
    ds.save(tmp_path / "p.json")
    want = subprocess.run(
        [command, "explain", tmp_path / "p.json", "--run", "0"], check=True, capture_output=True, text=True
    ).stdout
    assert ds.explain().split("\n")[1:] == want.split("\n")[1:] and "fused into" in want
    text = ds.explain(0.2, threads=1)
    assert (
        text.startswith("bottleneck: ")
        and ds.explain() in text
        and re.search(r"\nran \d+\.\d s on 1 threads", text)
    )
    assert "bottleneck: " in text and "set by itself:" in text
    with ds.iterator(threads=1) as it:
        tuned = {row["what"]: row["record"] for row in it.profile()["tuning"]}
    assert "threads" not in tuned and tuned["memory_bytes"]["chosen"]["memory_bytes"] > 0
    with pytest.raises(cachew.OptionError, match="run_s"):
        ds.explain(-1)
    with pytest.raises(cachew.DataError, match="no batches"):
        Dataset.range(9).filter("value > 9").explain(0.1)


def test_explain_runs_a_python_function():
    """tests/unit/test_explain.c tests with made-up measurements when such a function is the bottleneck."""

    def slow(e):
        return {"value": sum(range(20000)) + e["value"]}

    said = Dataset.range(1 << 20).map(slow, outputs={"value": "int64"}).batch(8).explain(0.2, threads=1)
    row = re.search(r"^ +1 map +\d+\.\d{3} +\d+\.\d% +\d+$", said, re.MULTILINE)
    assert said.startswith("bottleneck: ") and row, said


def test_explain_is_interrupted(script):
    ran = script("""
import cachew, os, signal, threading, time
def tasks():
    return len(os.listdir("/proc/self/task"))
def interrupt():
    while tasks() <= before + 1:  # with this thread: none computes yet
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
before = tasks()
threading.Thread(target=interrupt).start()
try:
    cachew.Dataset.range(3)._for_tests("fail", kind="hang").explain(1000)
except KeyboardInterrupt:
    print("interrupted")
""")
    assert ran.stdout == "interrupted\n", ran.stderr


def test_version_and_package_agree():
    meson = (Path(__file__).parents[2] / "meson.build").read_text()
    assert f"version: '{cachew.__version__}'" in meson


def test_dir_lists_what_a_dataset_can_do():
    ds = Dataset.range(10)
    names = dir(ds)
    assert all(hasattr(ds, name) for name in names)
    assert {"map", "batch", "shuffle", "epoch"} <= set(names)
    assert not {"tfrecord", "range", "concat", "delay", "fail", "count"} & set(names)
    assert {"tfrecord", "range", "concat"} <= set(dir(Dataset))


@pytest.mark.parametrize("op", ["delay", "fail", "count"])
def test_operators_for_tests_are_no_methods(op):
    with pytest.raises(AttributeError, match=f"the operator {op} is for tests"):
        getattr(Dataset.range(10), op)
    assert Dataset.from_json(
        '{"cachew": 1, "pipeline": [{"op": "range", "stop": 3}, {"op": "count"}]}'
    ).peek()
