"""The cut: workers run a pipeline up to an operator, and the client the rest. The result is the same wherever
the pipeline is cut.

CACHEW names the command (default build/cachew)."""

import json
import random
import subprocess

import pytest
from deadlines import HANG_S
from example_data import CACHEW
from workbench import FILTER, SHUFFLE, numbers, slow

IMAGES = [
    {"op": "synthetic", "count": 300, "shape": [20, 24, 3], "dtype": "uint8", "fill": "random"},
    {"op": "enumerate", "name": "label"},
    SHUFFLE,
    {"op": "filter", "where": "data[0,0,0] % 3 != 0"},
    {"op": "random_crop", "component": "data", "size": [16, 16]},
    {"op": "random_flip", "component": "data"},
    {"op": "normalize", "component": "data", "mean": [1, 2, 3], "std": [3, 4, 5]},
    {"op": "batch", "size": 8},
    {"op": "rename", "names": {"data": "image"}},
    {"op": "transpose_image", "component": "image"},
    {"op": "mixup", "component": "image", "label": "label", "classes": 300},
    {"op": "cutmix", "component": "image", "label": "label", "classes": 300},
]
LISTS = [
    {"op": "jsonl", "files": "lists.jsonl", "features": {"tokens": {"dtype": "int64", "variable": True}}},
    {"op": "enumerate"},
    SHUFFLE,
    {"op": "assign", "set": {"score": "100 // (index % 7)", "tokens": "float32(tokens / 3)"}},
    {"op": "random_gain", "component": "tokens"},
    {"op": "pad", "component": "tokens", "to": 12, "value": 1},
    {"op": "batch", "size": 8},
    {"op": "cast", "component": "tokens", "dtype": "float64"},
]
SMALLER = {"op": "cast", "component": "value", "dtype": "uint8"}
LARGER = {"op": "assign", "set": {"value": "value * 3.5", "other": "value - 1"}}


@pytest.fixture
def lists(tmp_path):
    draw = random.Random(5)
    lines = [{"tokens": [draw.randrange(100) for _ in range(draw.randrange(12))]} for _ in range(250)]
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(directory, chain, *words, code=0, **beside):
    path = directory / "pipeline.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": chain, **beside}))
    ran = subprocess.run(
        [CACHEW, "run", str(path), "--digest", "--json", "--wait", str(HANG_S), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert ran.returncode == code, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def same(result, local):
    return [result[key] == local[key] for key in ("digest", "elements", "skipped")]


@pytest.mark.large
@pytest.mark.parametrize(
    "chain, first, transport",
    [(IMAGES, 3, "auto"), (IMAGES, 3, "tcp"), (LISTS, 1, "auto")],
    ids=["images", "images by tcp", "lists"],
)
def test_every_cut_gives_the_same(daemons, tmp_path, lists, chain, first, transport):
    """Draws, components whose shape varies, records that fail, and operators on batches."""
    local = run(tmp_path, chain, "--epochs", 2, on_error="skip")
    address = daemons.service(workers=2)[0].address
    for cut in ["worker", "client", *range(first, len(chain))]:
        words = ["--service", address, "--epochs", 2, "--cut", cut, "--transport", transport]
        result = run(tmp_path, chain, *words, on_error="skip")
        assert all(same(result, local)), cut
        assert result["cut"] >= (first if isinstance(cut, str) else cut)
    assert run(tmp_path, chain, *words[:2], "--cut", "client", on_error="skip")["cut"] < len(chain) - 1


@pytest.mark.large
@pytest.mark.parametrize("order", ["exact", "any"])
def test_ranks_and_early_ends_of_ranges(daemons, tmp_path, order):
    """Batches of several parts, which the client joins before it runs operators on them."""
    chain = numbers(700, SHUFFLE, slow(100), FILTER, LARGER, {"op": "batch", "size": 16}, LARGER)
    local = run(tmp_path, chain)
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0", env={"CACHEW_MUTATE": "cut"})
    for _ in range(2):
        daemons.start("worker", "--dispatcher", dispatcher.address)
    path = tmp_path / "pipeline.json"
    words = ["--service", dispatcher.address, "--job", "job", "--world-size", "2", "--order", order]
    ranks = [
        subprocess.Popen(
            [CACHEW, "run", path, "--digest", "--json", "--cut", "client", "--rank", str(rank), *words],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    results = [json.loads(rank.communicate(timeout=HANG_S)[0].splitlines()[-1]) for rank in ranks]
    assert sum(r["elements"] for r in results) == local["elements"]
    assert sum(int(r["digest"], 16) for r in results) % 2**128 == int(local["digest"], 16)


def test_a_state_goes_on_with_another_cut(daemons, tmp_path):
    """The same job, too."""
    local = run(tmp_path, IMAGES, "--epochs", 2)
    address = daemons.service(workers=1)[0].address
    digest = 0
    for cut, batches in [("client", 7), ("6", 9), ("worker", 5), (None, 3), ("mixup", 1000)]:
        words = ["--service", address, "--job", "job", "--state", tmp_path / "state", "--epochs", 2]
        words += ["--cut", cut] if cut else []
        digest += int(run(tmp_path, IMAGES, *words, "--batches", batches)["digest"], 16)
    assert f"{digest % 2**128:032x}" == local["digest"]


@pytest.mark.large
def test_workers_are_killed(bench):
    chain = numbers(2400, slow(1500), FILTER, SHUFFLE, LARGER, {"op": "batch", "size": 8}, SMALLER)
    bench.cluster.start(3)
    ranks = bench.ranks(chain, world=2, words=["--cut", "client"], held=10)
    bench.cluster.wait_lines(ranks[0], 10)
    bench.cluster.workers["w0"].kill9()
    for r in ranks:
        r.finish()
    bench.judge(chain, (2, None, ranks))


@pytest.mark.parametrize("cut", ["client", "0"])
def test_a_record_that_fails_ends_the_run(daemons, tmp_path, cut):
    chain = numbers(200, {"op": "assign", "set": {"x": "1000 // (value - 77)"}}, {"op": "batch", "size": 8})
    address = daemons.service(workers=1)[0].address
    error = run(tmp_path, chain, "--service", address, "--cut", cut, code=1)["error"]
    local = run(tmp_path, chain, code=1)["error"]
    assert [error[k] for k in ("kind", "message", "operator", "record")] == [
        local[k] for k in ("kind", "message", "operator", "record")
    ]
    assert error["record"].endswith(":77")


def test_skipped_records_are_listed(daemons, tmp_path):
    chain = numbers(40, {"op": "assign", "set": {"x": "1000 // (value % 8)"}}, {"op": "batch", "size": 4})
    address = daemons.service(workers=1)[0].address
    listed = []
    for words in ([], ["--service", address, "--cut", "client"]):
        run(tmp_path, chain, "--quarantine", tmp_path / "listed", *words, on_error="skip")
        lines = [json.loads(line) for line in (tmp_path / "listed").read_text().splitlines()]
        (tmp_path / "listed").unlink()
        listed.append(sorted((line["record"], line["operator"], line["reason"]) for line in lines))
    assert listed[0] == listed[1] and len(listed[0]) == 5


@pytest.mark.parametrize(
    "chain, cut, beside, says",
    [
        (IMAGES, "1", {}, 'cut is "1", but an operator after it decides'),
        (IMAGES, "13", {}, "but operators are counted from 0 and there are fewer"),
        (IMAGES, "x", {}, "which is no operator of the pipeline"),
        (IMAGES, "sort", {}, "expected auto, worker, client, or an operator from 3 (filter) to 11 (cutmix)"),
        (
            numbers(9, LARGER, LARGER, {"op": "batch", "size": 2}),
            "assign",
            {},
            "the name of several operators of the pipeline",
        ),
        (numbers(9, LARGER), "client", {"on_error": "replace"}, None),
        (numbers(9, LARGER), "0", {"on_error": "replace"}, 'but on_error "replace" replaces a failed record'),
        (
            numbers(9, LARGER, {"op": "cache"}, LARGER, {"op": "batch", "size": 2}),
            "1",
            {},
            "operator from 2 (cache) to 4 (batch)",
        ),
        (
            numbers(9, {"op": "bucket_by_length", "length": "value", "boundaries": [4], "sizes": [2, 2]}),
            "0",
            {},
            "or operator 1 (bucket_by_length), the only place",
        ),
    ],
)
def test_places_that_are_none(daemons, tmp_path, chain, cut, beside, says):
    address = daemons.service(workers=1)[0].address
    words = ["--service", address, "--cut", cut]
    if not says:  # all operators run on workers then
        assert run(tmp_path, chain, *words, **beside)["cut"] == len(chain) - 1
        return
    error = run(tmp_path, chain, *words, code=2, **beside)["error"]
    assert (error["attribute"], error["value"]) == ("cut", cut) and says in error["message"]


def test_a_cut_needs_a_service(tmp_path):
    assert (
        "--cut client needs --service"
        in run(tmp_path, numbers(9), "--cut", "client", code=2)["error"]["message"]
    )


def test_auto_cuts_where_few_bytes_cross(daemons, tmp_path):
    """uint8 crosses the network, not float32. Memory that the workers share has no such cost."""
    chain = [*IMAGES[:-2], {"op": "assign", "set": {"double": "image * 2"}}]
    address = daemons.service(workers=1)[0].address
    local = run(tmp_path, chain)
    words = ["--service", address, "--cut", "auto", "--transport"]
    for transport, cut in [("auto", len(chain) - 1), ("tcp", 5)]:
        result = run(tmp_path, chain, *words, transport)
        assert (result["cut"], all(same(result, local))) == (cut, True)
    (tmp_path / "texts.jsonl").write_text('{"t": "x"}\n{"t": "yz"}\n')
    texts = [{"op": "jsonl", "files": "texts.jsonl", "features": {"t": "bytes"}}]
    texts += [{"op": "assign", "set": {"u": "t"}}, {"op": "select", "components": "t"}]
    assert run(tmp_path, texts, *words, "tcp")["cut"] == 2  # nothing would be saved


@pytest.mark.large
def test_auto_keeps_the_cut_of_a_job(bench):
    """A rank that joins a job, and one that comes with another cut."""
    chain = numbers(2000, slow(200), LARGER, {"op": "batch", "size": 8}, SMALLER)
    bench.cluster.start(2)
    path = bench.pipeline(chain)
    first, second, third = (
        bench.cluster.rank(path, "job", rank=rank, world_size=2, words=["--cut", cut], held=5)
        for rank, cut in [(0, "2"), (1, "client"), (1, "auto")]
    )
    first.start()
    bench.cluster.wait_job(first, lambda jobs: jobs and jobs[0]["ranks"][0]["attached"])
    refused = second.start().finish(code=3, alone=True)["error"]
    assert refused["attribute"] == "pipeline" and "option cut" in refused["message"]
    third.start()
    assert (first.finish()["cut"], third.finish()["cut"]) == (3, 3)  # after batch
    bench.judge(chain, (2, None, [first, third]))
