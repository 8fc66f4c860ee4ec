"""Plug-ins, black box: what they may do, what they may not, and loading them. The example's and those of
plugins/ are compiled here.
"""

import json
import os
import shutil
import signal
import subprocess

import numpy as np
import pytest
from model import philox
from command import CACHEW, cachew, failed, range_chain, run, write
from deadlines import HANG_S, started, wait_for
from example_data import HERE, ROOT, once

pytestmark = pytest.mark.usefixtures("own_index_dir")
SOLARIZE = ROOT / "examples" / "plugin" / "negative.c"
ODD = HERE / "plugins" / "odd.c"
BATCH = {"op": "batch", "size": 8}
IMAGES = {"op": "synthetic", "count": 200, "dtype": "uint8", "shape": [6, 5, 3]}


def compiled(source, to, *words):
    subprocess.run(
        [
            *os.environ.get("CC", "cc").split(),
            "-std=gnu17",
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
            ROOT / "include",
            *words,
            "-o",
            to,
            source,
        ],
        check=True,
    )
    return to


@pytest.fixture(scope="session")
def plugins(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    shared = base.parent / "compiled" if "PYTEST_XDIST_WORKER" in os.environ else base / "compiled"

    def make(path):
        path.mkdir()
        compiled(SOLARIZE, path / "negative.so")
        compiled(ODD, path / "odd.so")

    return once(shared, "plugins", make)


@pytest.fixture
def negative(plugins):
    return "--plugin", plugins / "negative.so"


@pytest.fixture
def odd(plugins):
    return "--plugin", plugins / "odd.so"


def dump(tmp_path, pipeline, *words, code=0):
    """All batches, as dicts of arrays."""
    out = tmp_path / "dump"
    shutil.rmtree(out, ignore_errors=True)
    run(pipeline, "--dump", out, *words, code=code)
    return [dict(np.load(f)) for f in sorted(out.iterdir())]


def column(batches, name):
    return np.concatenate([b[name] for b in batches])


# ---- what they compute ----


def test_negative_is_what_the_expression_gives(tmp_path, negative):
    ours = write(
        tmp_path / "a.json",
        [IMAGES, {"op": "negative", "component": "data", "threshold": 90}, {"op": "shuffle"}, BATCH],
    )
    theirs = write(
        tmp_path / "b.json",
        [
            IMAGES,
            {"op": "assign", "set": {"data": "where(data < 90, data, 255 - data)"}},
            {"op": "shuffle"},
            BATCH,
        ],
    )
    want = run(theirs, "--digest")["digest"]
    for words in ([], ["--threads", 1], ["--threads", 4, "--memory", "4M"], ["--no-optimize"]):
        assert run(ours, "--digest", *negative, *words)["digest"] == want


def test_shapes_that_vary(tmp_path, negative):
    def picture(i):
        return np.random.default_rng(i).integers(0, 256, (3 + i % 4, 4, 3), np.uint8)

    from PIL import Image

    (tmp_path / "images").mkdir()
    for i in range(12):
        Image.fromarray(picture(i)).save(tmp_path / "images" / f"{i:02}.png")
    chain = [
        {"op": "files", "files": "images/*.png"},
        {"op": "decode_image", "component": "data"},
        {"op": "negative", "component": "data"},
    ]
    batches = dump(tmp_path, write(tmp_path / "p.json", chain), *negative)
    for i, b in enumerate(batches):
        p = picture(i)
        assert np.array_equal(b["data"], np.where(p < 128, p, 255 - p))


@pytest.mark.parametrize("seed,probability", [(0, 0.5), (7, 0.2)])
def test_draws_are_those_of_the_model(tmp_path, negative, seed, probability):
    """Per element, by its id, epoch and the operator's occurrence: never by thread or place in a batch."""
    op = {"op": "random_negative", "component": "data", "threshold": 0, "probability": probability}
    chain = [
        {**IMAGES, "shape": [], "fill": "none"},
        op,
        {"op": "assign", "set": {"once": "data"}},
        op,
        {"op": "shuffle"},
        BATCH,
    ]
    pipeline = write(tmp_path / "p.json", chain)
    batches = dump(tmp_path, pipeline, "--seed", seed, "--epochs", 2, "--threads", 3, *negative)
    hits = 0
    for b in batches:
        epoch = int(b["__meta__"][0])
        assert len(b["__records__"]) == len(b["once"]) == len(b["data"])
        for record, first, second in zip(b["__records__"], b["once"], b["data"]):
            key, row = record.decode().split(":")
            element = philox.element_id(int(key, 16), int(row), ())
            drawn = [
                philox.uniform(
                    philox.Draw(philox.draw_key(seed, epoch, f"random_negative/{i}"), element).word(0)
                )
                < probability
                for i in range(2)
            ]
            assert first == 255 * drawn[0] and second == 255 * (drawn[0] ^ drawn[1])
            hits += drawn[0]
    assert abs(hits / 400 - probability) < 0.12


def test_attributes_of_every_kind(tmp_path, odd):
    op = {
        "op": "kinds",
        "int": -5,
        "float": 0.25,
        "bool": True,
        "string": "s",
        "component": "any",
        "ints": 7,
        "floats": [1, 2.5],
        "strings": ["b", "c"],
    }
    batch = dump(tmp_path, write(tmp_path / "p.json", range_chain(5, op, BATCH)), *odd)[0]
    assert batch["numbers"].tolist() == [[-5, 100, 7]] * 5 and batch["floats"].tolist() == [[0.25, 3.5]] * 5
    assert batch["text"].tobytes() == b"s any b c" * 5
    assert batch["typed"].dtype == np.uint16 and batch["typed"].tolist() == [7] * 5
    del op["floats"], op["strings"], op["bool"]
    batch = dump(
        tmp_path, write(tmp_path / "p.json", range_chain(1, {**op, "ints": [1, 2, 3]}, BATCH)), *odd
    )[0]
    assert (
        batch["numbers"].tolist() == [[-5, -100, 123]]
        and batch["floats"].tolist() == [[0.25, 0]]
        and batch["text"].tobytes() == b"s any a"
    )


def test_filter(tmp_path, odd):
    pipeline = write(
        tmp_path / "p.json", range_chain(1000, {"op": "every", "n": 7}, {"op": "shuffle"}, BATCH)
    )
    expression = write(
        tmp_path / "q.json",
        range_chain(1000, {"op": "filter", "where": "value % 7 == 0"}, {"op": "shuffle"}, BATCH),
    )
    want = run(expression, "--digest")
    for n in (1, 3):
        got = run(pipeline, "--digest", "--threads", n, *odd)
        assert got["elements"] == 143 and got["digest"] == want["digest"]


def test_bytes_and_fixed_shapes(tmp_path, odd):
    batches = dump(tmp_path, write(tmp_path / "p.json", range_chain(30, {"op": "odd_run"}, BATCH)), *odd)
    assert column(batches, "out").tolist() == [[i, -i] for i in range(30)]
    assert column(batches, "text.lengths").tolist() == [i % 10 for i in range(30)]
    assert column(batches, "text").tobytes() == b"x" * sum(i % 10 for i in range(30))


def test_outputs_that_vary_and_outputs_that_nobody_needs(tmp_path, odd):
    def wanted(*ops):
        return dump(tmp_path, write(tmp_path / "p.json", range_chain(9, {"op": "varies"}, *ops)), *odd)

    for i, b in enumerate(wanted()):
        assert (
            b["list"].tolist() == list(range(i % 3))
            and b["any"].shape == (1,) * (i % 3)
            and b["any"].item() == i % 3
        )
        assert b["unused"] == 1 and b["wanted"] == 3
    for b in wanted({"op": "select", "components": ["wanted"]}):
        assert b["wanted"] == 1
    explained = cachew("explain", tmp_path / "p.json", "--run", 0, "--json", *odd).json
    assert explained["outputs"] == {"wanted": "int32"}
    assert explained["operators"][1]["outputs"] == {
        "any": "int32[...]",
        "list": "int32[?]",
        "unused": "int32",
        "wanted": "int32",
    }


def test_where_components_come_from_several_sources(tmp_path, odd, negative):
    chains = [range_chain(20, {"op": "every", "n": n}) for n in (2, 3)]
    pipeline = write(tmp_path / "p.json", [{"op": "concat", "inputs": chains}, {"op": "odd_run"}, BATCH])
    batches = dump(tmp_path, pipeline, *odd, *negative)
    assert column(batches, "out")[:, 0].tolist() == [*range(0, 20, 2), *range(0, 20, 3)]


def test_the_example_of_the_header(tmp_path):
    comment = (ROOT / "include" / "cachew" / "plugin.h").read_text().split("*/")[0]
    lines = [line.removeprefix(" *     ") for line in comment.splitlines() if line.startswith(" *     ")]
    code = [line for line in lines if not line.startswith(("cc ", "cachew "))]
    (tmp_path / "negative.c").write_text(
        "#include <cachew/plugin.h>\n#include <stdlib.h>\n" + "\n".join(code) + "\n"
    )
    plugin = compiled(tmp_path / "negative.c", tmp_path / "negative.so")
    ours = write(tmp_path / "a.json", [IMAGES, {"op": "negative", "component": "data"}, BATCH])
    theirs = write(tmp_path / "b.json", [IMAGES, {"op": "assign", "set": {"data": "255 - data"}}, BATCH])
    assert run(ours, "--digest", "--plugin", plugin)["digest"] == run(theirs, "--digest")["digest"]


# ---- elements that fail ----

MISUSES = {
    "fail": "value 9 is bad ?",
    "other shape": "the plug-in writes output 0 as int64[3]: bind declared int64[2]",
    "other rank": "the plug-in writes output 0 with 9 dimensions: bind declared int64[2]",
    "negative": "the plug-in writes output 0 as int64[?]: bind declared int64[2]",
    "not declared": "the plug-in writes output 2: bind declared 2 outputs",
    "as bytes": "the plug-in writes output 0 as bytes: bind declared int64[2]",
    "as an array": "the plug-in writes output 1 as an array: bind declared bytes",
    "draw": "the plug-in draws random numbers, but its descriptor does not set `random`",
    "drop": "the plug-in's run returned 1: expected CACHEW_OK, or the result of cachew_row_fail",
    "result": "the plug-in's run returned 77: expected CACHEW_OK, or the result of cachew_row_fail",
}


@pytest.mark.parametrize("how", MISUSES)
def test_elements_that_fail(tmp_path, odd, how):
    pipeline = write(tmp_path / "p.json", range_chain(60, {"op": "odd_run", "how": how}, BATCH))
    error = failed(pipeline, 1, *odd)
    assert (
        error["kind"] == "record"
        and error["operator"] == "odd_run"
        and error["message"] == "odd_run: " + MISUSES[how]
        and error["record"].endswith(":9")
    )
    batches = dump(tmp_path, pipeline, "--set", "on_error=skip", "--quarantine", tmp_path / "q", *odd)
    assert column(batches, "value").tolist() == [i for i in range(60) if i % 10 != 9]
    listed = [json.loads(line) for line in (tmp_path / "q").read_text().splitlines()]
    assert len(listed) == 6 and all(r["operator"] == "odd_run" and r["action"] == "skipped" for r in listed)
    digests = {
        run(pipeline, "--digest", "--set", "on_error=replace", "--threads", n, *odd)["digest"] for n in (1, 3)
    }
    assert len(digests) == 1
    out = column(dump(tmp_path, pipeline, "--set", "on_error=replace", *odd), "out")
    assert len(out) == 60 and all(a % 10 != 9 and b == -a for a, b in out)


@pytest.mark.parametrize("end", ["deadline", "interrupted"])
def test_what_ends_a_run_is_said_before_a_cache_waits_for_what_hangs(tmp_path, odd, end):
    """No thread that computes comes back, and so the run can't end."""
    pipeline = write(
        tmp_path / "p.json",
        range_chain(300, {"op": "odd_run", "how": "hang", "every": 200}, {"op": "cache"}, BATCH),
    )
    wait_s = 1 if end == "deadline" else HANG_S
    given = ["--cache-dir", tmp_path / "c", "--log", tmp_path / "log", "--wait", wait_s]
    given = ["run", pipeline, "--json", *given, *odd]
    with (
        open(tmp_path / "out", "wb") as out,
        open(tmp_path / "err", "wb") as err,
        started([CACHEW, *given], stdout=out, stderr=err) as child,
    ):
        if end == "interrupted":
            wait_for(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text())
            child.send_signal(signal.SIGTERM)
        wait_for(lambda: (tmp_path / "out").read_text().endswith("\n"))
        assert child.poll() is None
    said = json.loads((tmp_path / "out").read_text())
    assert said["cache"]["hits"] == 0
    assert (
        said["error"]["kind"] == "deadline"
        if end == "deadline"
        else "ended by SIGTERM" in (tmp_path / "err").read_text()
    )


def test_an_output_without_a_shape_has_the_declared_one(tmp_path, odd):
    assert (
        run(write(tmp_path / "p.json", range_chain(60, {"op": "odd_run", "how": "no shape"}, BATCH)), *odd)[
            "elements"
        ]
        == 60
    )


def test_an_output_that_is_not_written(tmp_path, odd):
    pipeline = write(tmp_path / "p.json", range_chain(4, {"op": "filter_nothing"}, BATCH))
    assert failed(pipeline, 2, *odd)["value"] == "filter_nothing"
    source = tmp_path / "lazy.c"
    source.write_text(
        ODD.read_text().replace(
            "    int64_t *out = cachew_row_output(row, 0, NULL, 0);\n",
            "    int64_t dummy[2], *out = dummy;\n",
        )
    )
    compiled(source, tmp_path / "lazy.so")
    error = failed(
        write(tmp_path / "p.json", range_chain(4, {"op": "odd_run"}, BATCH)),
        1,
        "--plugin",
        tmp_path / "lazy.so",
    )
    assert error["message"] == "odd_run: the plug-in did not write output 0"


@pytest.mark.parametrize("how,kind", [("too much", ("memory", "budget")), ("no memory", ("memory",))])
def test_want_of_memory_ends_the_run(tmp_path, odd, how, kind):
    pipeline = write(
        tmp_path / "p.json", range_chain(60, {"op": "odd_run", "how": how}, BATCH), on_error="skip"
    )
    ran = cachew("run", pipeline, "--json", *odd)
    assert ran.code in (1, 2) and ran.error["kind"] in kind and ran.error["operator"] == "odd_run"


def test_what_is_needed_stays_within_the_budget(tmp_path, odd):
    pipeline = write(
        tmp_path / "p.json",
        range_chain(5000, {"op": "every", "n": 3}, {"op": "odd_run"}, {"op": "shuffle"}, BATCH),
    )
    want = run(pipeline, "--digest", *odd)
    assert run(pipeline, "--digest", "--memory", "2M", "--threads", 4, *odd)["digest"] == want["digest"]


# ---- pipelines that are wrong ----

BINDS = {
    "unknown attribute": 'bind asks for an attribute "nothing" of kind string: the table has none of that '
    "name",
    "another kind": 'bind asks for an attribute "how" of kind float: the table has one of kind string',
    "past the end": 'bind asks for value 2 of the attribute "list", which has 2 values',
    "no component": 'odd_bind: there is no component "valeu"; did you mean "value"?; there are: value',
    "read late": 'bind reads "value" after it has written: expected all reads before the first write',
    "no reason": "bind failed with -77 and gave no reason",
    "negative size": 'bind writes "out" with dimension 1 of -2: expected at least 0, or CACHEW_VARIES',
    "no dtype": 'bind writes "out" with dtype 14 and 0 dimensions: expected a dtype',
    "much rank": 'bind writes "out" with dtype 8 and 7 dimensions: expected a dtype, and at most 6 '
    "dimensions",
    "bytes of rank 1": "none for bytes",
    "no name": 'bind writes the component "": expected a name of 1 to 255 bytes',
    "huge": 'bind writes "out" with a type that is too large for any memory',
    "own words": "odd_bind: not on a Monday ?",
    "own state": 'odd_bind: how is "own state": expected another one',
    "many": "bind reads more than 64 components",
}


@pytest.mark.parametrize("how", BINDS)
def test_binds_that_fail(tmp_path, odd, how):
    error = failed(write(tmp_path / "p.json", range_chain(4, {"op": "odd_bind", "how": how}, BATCH)), 2, *odd)
    assert (
        error["kind"] == "pipeline" and error["operator"] == "odd_bind" and BINDS[how] in error["message"]
    ), error


def test_bind_without_memory(tmp_path, odd):
    assert (
        failed(
            write(tmp_path / "p.json", range_chain(4, {"op": "odd_bind", "how": "no memory"}, BATCH)), 1, *odd
        )["kind"]
        == "memory"
    )


def test_a_filter_has_no_outputs(tmp_path, odd):
    error = failed(write(tmp_path / "p.json", range_chain(4, {"op": "filter_writes"}, BATCH)), 2, *odd)
    assert error["message"] == 'filter_writes (plug-in odd 1): bind writes "out": a filter has no outputs'


@pytest.mark.parametrize(
    "op,message",
    [
        (
            {"thresold": 3},
            (
                'negative: there is no attribute "thresold"; did you mean "threshold"?; it has: '
                "component, threshold"
            ),
        ),
        ({"threshold": 257}, "negative: threshold is 257: expected an integer, from 0 to 256"),
        ({"threshold": "a"}, 'negative: threshold is "a": expected an integer, from 0 to 256'),
        ({"component": None}, "negative: component is null: expected the name of a component"),
        ({"component": "label"}, 'negative: there is no component "label"; there are: value'),
        ({}, 'negative: component is "value": expected a uint8 component, but "value" is int64'),
    ],
)
def test_attributes_are_checked_as_the_table_says(tmp_path, negative, op, message):
    error = failed(
        write(tmp_path / "p.json", range_chain(4, {"op": "negative", "component": "value", **op}, BATCH)),
        2,
        *negative,
    )
    assert error["message"] == message and error["operator"] == "negative"


# ---- loading ----


def refused(path, *words, cwd=None):
    """The error of loading this, which no verb survives."""
    ran = cachew("ops", "--json", "--plugin", path, *words, cwd=cwd)
    assert ran.code == 2 and ran.error["kind"] == "option", (ran.code, ran.out, ran.err)
    assert ran.error["message"] in ran.err
    return ran.error


def test_files_that_are_no_plugins(tmp_path):
    error = refused(tmp_path / "none.so")
    assert "none.so can't be opened: No such file or directory: expected a shared object" in error["message"]
    assert error["attribute"] == "plugin" and error["file"] == str(tmp_path / "none.so")
    assert "is not a file: expected a shared object" in refused(tmp_path)["message"]
    (tmp_path / "text.so").write_text("int main;")
    assert (
        "can't be loaded" in refused(tmp_path / "text.so")["message"]
        and "expected a shared object" in refused(tmp_path / "text.so")["message"]
    )
    (tmp_path / "empty.so").touch()
    assert "can't be loaded" in refused(tmp_path / "empty.so")["message"]
    (tmp_path / "other.c").write_text("int cachew_plugins;")
    assert (
        "has no symbol cachew_plugin: expected a plug-in"
        in refused(compiled(tmp_path / "other.c", tmp_path / "other.so"))["message"]
    )
    (tmp_path / "open.c").write_text(
        "int missing_function(void); int cachew_plugin; int f(void) { return missing_function(); }"
    )
    assert (
        "undefined symbol: missing_function"
        in refused(compiled(tmp_path / "open.c", tmp_path / "open.so"))["message"]
    )
    whole = compiled(SOLARIZE, tmp_path / "cut.so").read_bytes()
    for size in (1, 63, 64, 200, 4095, 4096, len(whole) // 2, len(whole) * 3 // 4, len(whole) * 7 // 8):
        (tmp_path / "cut.so").write_bytes(whole[:size])
        ran = cachew("ops", "negative", "--plugin", tmp_path / "cut.so")
        assert ran.code in (0, 2) and (ran.code == 0 or "cut.so" in ran.err), (size, ran.code, ran.err)


def test_another_abi(tmp_path):
    error = refused(compiled(ODD, tmp_path / "later.so", "-DABI=2"))
    assert "later.so has ABI version 2: expected version 1: compile it against" in error["message"]


def test_a_wrong_descriptor(tmp_path):
    assert (
        'has the version "1 2": expected 1 to 48 letters'
        in refused(compiled(ODD, tmp_path / "v.so", '-DVERSION="1 2"'))["message"]
    )
    source = tmp_path / "wrong.c"
    source.write_text(ODD.read_text().replace('.def = "10",', '.def = "0",'))
    error = refused(compiled(source, tmp_path / "wrong.so"))
    assert "operator odd_run: attribute every: def is 0: expected an integer, at least 1" in error["message"]
    assert error["operator"] == "odd_run" and error["attribute"] == "every" and error["value"] == "0"


def test_names_are_taken_once(tmp_path, plugins):
    shutil.copy(plugins / "odd.so", tmp_path / "copy.so")
    error = refused(plugins / "odd.so", "--plugin", tmp_path / "copy.so")
    assert (
        'there is an operator "odd_bind" already, of plug-in odd 1: expected a name that no other operator '
        "has" in error["message"]
    )
    assert error["file"] == str(tmp_path / "copy.so")
    source = tmp_path / "clash.c"
    source.write_text(SOLARIZE.read_text().replace('"random_negative"', '"resize"'))
    assert (
        'there is an operator "resize" already, built in'
        in refused(compiled(source, tmp_path / "clash.so"))["message"]
    )
    source.write_text(SOLARIZE.read_text().replace('"random_negative"', '"negative"'))
    assert (
        'there is an operator "negative" already, of plug-in clash 1'
        in refused(compiled(source, tmp_path / "clash.so"))["message"]
    )


def test_one_file_may_be_loaded_twice(tmp_path, plugins):
    (tmp_path / "link.so").symlink_to(plugins / "odd.so")
    words = ["--plugin", plugins / "odd.so", "--plugin", tmp_path / "link.so", "--plugin", plugins / "odd.so"]
    ran = cachew("ops", "every", "--json", *words)
    assert ran.code == 0 and ran.json["ops"][0]["plugin"] == "odd 1"


def test_a_name_without_a_slash_is_a_path(plugins):
    assert cachew("ops", "negative", "--plugin", "negative.so", cwd=plugins).code == 0
    assert refused("libz.so.1", cwd=plugins)["message"].startswith("plug-in libz.so.1 can't be opened")


def test_ops_shows_them(negative):
    names = [o["name"] for o in cachew("ops", "--json", *negative).json["ops"]]
    assert names == sorted(names) and {"negative", "random_negative", "resize"} <= set(names)
    op = cachew("ops", "random_negative", "--json", *negative).json["ops"][0]
    assert op["plugin"] == "negative 1" and op["random"] and op["kind"] == "map"
    assert [a["name"] for a in op["attributes"]] == ["component", "threshold", "probability"]
    assert op["attributes"][1] | {"doc": ""} == {
        "name": "threshold",
        "kind": "int",
        "allowed": "an integer, from 0 to 256",
        "default": 128,
        "min": 0,
        "max": 256,
        "doc": "",
    }
    text = cachew("ops", "random_negative", *negative).out
    assert "From the plug-in negative 1." in text and "an integer, from 0 to 256; default 128" in text
    assert all("plugin" not in o for o in cachew("ops", "--json").json["ops"])
    assert cachew("ops", "negative").code == 2


def test_every_verb_that_reads_pipelines_takes_them(negative):
    pipeline = SOLARIZE.parent / "negative.json"
    assert run(pipeline, *negative)["elements"] == 512
    assert cachew("explain", pipeline, "--run", "0.1", *negative).code == 0
    assert cachew("bench", pipeline, "--seconds", "0.1", "--best-of", 1, *negative).code == 0
    error = failed(pipeline, 2)
    assert error["message"] == 'there is no operator "negative" (`cachew ops` lists all operators)'


def test_name_and_version_are_part_of_the_fingerprint(tmp_path, plugins):
    pipeline = write(tmp_path / "p.json", range_chain(200, {"op": "odd_run"}, BATCH))
    other = write(tmp_path / "q.json", range_chain(200, {"op": "count"}, BATCH))

    def fingerprint(plugin, of=pipeline):
        return cachew("explain", of, "--run", 0, "--json", "--plugin", plugin).json["fingerprint"]

    first = plugins / "odd.so"
    (tmp_path / "odd.so.1").write_bytes(first.read_bytes())
    (tmp_path / "even.so").write_bytes(first.read_bytes())
    second = compiled(ODD, tmp_path / "odd.so", '-DVERSION="1.1"')
    assert fingerprint(first) == fingerprint(tmp_path / "odd.so.1")
    assert len({fingerprint(first), fingerprint(tmp_path / "even.so"), fingerprint(second)}) == 3
    assert fingerprint(first, other) == fingerprint(second, other)
    # A state goes on with the same one, and with no other.
    whole = run(pipeline, "--digest", "--plugin", first)
    words = ["--state", tmp_path / "state", "--digest"]
    part = run(pipeline, "--batches", 10, *words, "--plugin", first)
    assert failed(pipeline, 2, *words, "--plugin", second)["kind"] == "state"
    rest = run(pipeline, *words, "--plugin", first)
    assert (int(part["digest"], 16) + int(rest["digest"], 16)) % (1 << 128) == int(whole["digest"], 16)


def test_the_header_is_c_and_cplusplus(tmp_path):
    (tmp_path / "h.c").write_text("#include <cachew/plugin.h>\n")
    for words in (["cc", "-std=c99", "-x", "c"], ["c++", "-std=c++11", "-x", "c++"]):
        if shutil.which(words[0]):
            subprocess.run(
                [
                    *words,
                    "-fsyntax-only",
                    "-Wall",
                    "-Wextra",
                    "-pedantic",
                    "-Wshadow",
                    "-Wcast-align",
                    "-Werror",
                    "-I",
                    ROOT / "include",
                    tmp_path / "h.c",
                ],
                check=True,
            )
