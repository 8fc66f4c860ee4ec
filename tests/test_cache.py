"""The cache: what it keeps and reads; several runs on one directory; stores that are slow, hang or are full;
the quota; its command. The examples with it: test_cache_examples.py; runs that are killed:
test_cache_kills.py."""

import contextlib
import os
import random
import shutil
import subprocess

import pytest
from caches import REAL, SLEEPING, Running, cachew, left_over, run, same, segments, used_bytes, words, write
from deadlines import wait_for

ENDLESS = 1000000  # epochs or batches: more than any test waits for


@pytest.fixture
def synthetic(tmp_path):
    """Elements that take a while: 400 of 12 KiB."""
    chain = [
        {"op": "synthetic", "count": 400, "shape": [64, 64, 3], "dtype": "uint8"},
        {"op": "delay", "us": 200},
        {"op": "assign", "set": {"data": "255 - data"}},
        {"op": "cache"},
        {"op": "shuffle"},
        {"op": "random_flip", "component": "data"},
        {"op": "batch", "size": 8},
    ]
    return write(tmp_path / "synthetic.json", chain)


def test_nothing_is_computed_that_is_there(synthetic, tmp_path):
    first = run(synthetic, "--cache-dir", tmp_path / "c")
    assert (first["cache"]["hits"], first["cache"]["misses"]) == (0, 400)
    second = run(synthetic, "--cache-dir", tmp_path / "c", "--epochs", 2)
    assert (second["cache"]["hits"], second["cache"]["misses"], second["cache"]["bad"]) == (800, 0, 0)
    delayed = next(o for o in second["operators"] if o.get("op") == "delay")
    assert delayed["elements"] == 0


def test_segments_that_are_published_at_the_end_are_counted(synthetic, tmp_path):
    ran = run(synthetic, "--cache-dir", tmp_path / "c")
    assert ran["cache"]["published"] == len(segments(tmp_path / "c")) > 0
    assert ran["cache"]["kept"] == 400


def test_later_epochs_read_what_the_first_one_writes(synthetic, tmp_path):
    with Running(tmp_path, synthetic, "--cache-dir", tmp_path / "c", "--epochs", ENDLESS) as running:
        running.until(lambda: segments(tmp_path / "c"))
        running.batches(200)
        ran = running.end()
    assert ran["cache"]["hits"] > 0
    assert ran["digest"] == run(synthetic, "--epochs", ENDLESS, "--batches", ran["batches"])["digest"]


def test_damage_is_counted_and_mended(synthetic, tmp_path):
    wanted = same(synthetic)
    assert same(synthetic, "--cache-dir", tmp_path / "c") == wanted
    path = max(segments(tmp_path / "c"), key=lambda p: p.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 16
    path.write_bytes(data)
    report, _ = cachew("cache", "verify", tmp_path / "c", code=1)
    assert (report["bad_segments"], report["bad_entries"]) == (1, 1)
    ran = run(synthetic, "--cache-dir", tmp_path / "c")
    assert ran["digest"] == wanted[0]
    assert 1 <= ran["cache"]["bad"] <= 2
    assert ran["cache"]["misses"] >= 1
    report, _ = cachew("cache", "verify", tmp_path / "c", "--repair")
    assert report["repaired"]
    assert cachew("cache", "verify", tmp_path / "c")[0]["bad_segments"] == 0


def test_other_source_data_are_other_entries(tmp_path):
    data, cache = tmp_path / "lines.txt", tmp_path / "c"
    pipeline = write(
        tmp_path / "p.json",
        [
            {"op": "text", "files": "lines.txt"},
            {"op": "assign", "set": {"n": "length(text)"}},
            {"op": "autocache"},
            {"op": "batch", "size": 3},
        ],
    )
    for text in ("one\ntwo\nthree\n", "one\nTWO!\nthree\n"):
        data.write_text(text)
        wanted = same(pipeline)
        for _ in range(2):
            assert same(pipeline, "--cache-dir", cache) == wanted


def test_labels_follow_the_classes(tmp_path):
    """A new class in front gives other labels to images that did not change."""
    from PIL import Image

    pipeline = write(
        tmp_path / "p.json",
        [
            {"op": "image_folder", "root": "images"},
            {"op": "decode_image", "component": "image"},
            {"op": "autocache"},
            {"op": "select", "components": ["label"]},
            {"op": "batch", "size": 4},
        ],
    )
    for name in ("dogs", "eels", "cats"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), name_colour(name)).save(tmp_path / "images" / name / "0.png")
        wanted = same(pipeline)
        for _ in range(2):
            assert same(pipeline, "--cache-dir", tmp_path / "c") == wanted


def name_colour(name):
    return tuple(name.encode()[:3])


def test_freeze_is_the_same_with_and_without_a_cache(tmp_path):
    chain = [
        {"op": "synthetic", "count": 60, "shape": [6, 6, 3], "dtype": "uint8"},
        {"op": "random_crop", "component": "data", "size": [3, 3]},
        {"op": "autocache", "freeze": True, "reuse": 2},
        {"op": "random_flip", "component": "data"},
        {"op": "batch", "size": 7},
    ]
    pipeline = write(tmp_path / "p.json", chain)
    wanted = same(pipeline, "--epochs", 5)
    ran = run(pipeline, "--epochs", 5, "--cache-dir", tmp_path / "c")
    assert ran["digest"] == wanted[0]
    assert len(list((tmp_path / "c").glob("?" * 32))) == 3  # draws of epochs 0 and 1, 2 and 3, 4
    assert same(pipeline, "--epochs", 5, "--cache-dir", tmp_path / "c") == wanted
    assert same(pipeline, "--epochs", 5, "--seed", 1) != wanted
    for chain[2] in ({"op": "autocache", "freeze": True, "seed": 9},):
        pipeline = write(tmp_path / "seeded.json", [op for op in chain if op["op"] != "random_flip"])
        ones = {run(pipeline, "--seed", s, "--cache-dir", tmp_path / "d")["set_digest"] for s in (1, 2)}
        assert len(ones) == 1


def test_a_cache_point_behind_draws_is_not_used_and_says_so(tmp_path):
    chain = [
        {"op": "synthetic", "count": 20, "shape": [6, 6, 3], "dtype": "uint8"},
        {"op": "random_flip", "component": "data"},
        {"op": "autocache"},
        {"op": "batch", "size": 7},
    ]
    ran, said = cachew("run", write(tmp_path / "p.json", chain), "--digest", "--cache-dir", tmp_path / "c")
    assert "autocache (operator 2) is not used: the cache point comes after an operator that draws" in said
    assert ran["cache"]["misses"] == 0
    assert not segments(tmp_path / "c")
    explained, _ = cachew("explain", tmp_path / "p.json", "--run", 0)
    assert "draws" in explained["cache_points"][0]["inert"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["--cache-dir", "{c}", "--cache", "1"],
            "--cache 1: expected auto, off, or the number of a cache point: 0 to 0",
        ),
        (["--cache", "auto"], "expected --cache-dir DIR"),
        (["--cache-dir", "/proc/nowhere"], "can't make directory"),
        (["--cache-dir", "/etc/passwd"], "/etc/passwd: expected a directory"),
    ],
)
def test_wrong_options(synthetic, tmp_path, given, message):
    error, _ = cachew("run", synthetic, *[w.format(c=tmp_path / "c") for w in given], code=2)
    assert message in error["error"]["message"]


def test_wrong_attributes(tmp_path):
    pipeline = write(
        tmp_path / "p.json",
        [{"op": "range", "stop": 3}, {"op": "autocache", "reuse": 2}, {"op": "batch", "size": 1}],
    )
    error = cachew("run", pipeline, code=2)[0]["error"]
    assert (error["operator"], error["attribute"]) == ("autocache", "reuse")


def test_failed_records_stay_failed(records, tmp_path):
    """What fails is listed again each time, and is no entry."""
    pipeline = write(
        tmp_path / "p.json",
        [
            {"op": "range", "stop": 300},
            {"op": "fail", "where": "value % 7 == 3"},
            {"op": "filter", "where": "value % 2 == 0"},
            {"op": "autocache"},
            {"op": "batch", "size": 8},
        ],
        on_error="skip",
    )
    wanted = same(pipeline)
    assert wanted[2] > 0
    for _ in range(3):
        assert same(pipeline, "--cache-dir", tmp_path / "c") == wanted


# ---- what is decided: by modelled costs (caches.py), so by what pipelines and stores state ----

NONE, CACHE_POINT = "cachew: cache: none: ", "cachew: cache: autocache (operator 2): "


@pytest.fixture
def dear(tmp_path):
    """Elements of 12 KiB that take a millisecond."""
    chain = [
        {"op": "synthetic", "count": 300, "shape": [64, 64, 3], "dtype": "uint8"},
        {"op": "delay", "us": 1000},
        {"op": "autocache"},
        {"op": "random_flip", "component": "data"},
        {"op": "batch", "size": 8},
    ]
    return write(tmp_path / "dear.json", chain)


def chosen(ran):
    return [d["record"]["chosen"]["cache"] for d in ran["cache"]["decisions"]]


def test_a_cache_that_pays_is_used(dear, tmp_path):
    """An element takes 1 ms to compute, and 0.1 ms to read."""
    given = ("--cache-dir", tmp_path / "c", "--epochs", ENDLESS, "--threads", 2)
    with Running(tmp_path, dear, *given, env={"CACHEW_CLOCK": "modelled,cache=100"}) as running:
        running.until(lambda: CACHE_POINT in running.err, most=5000)
        running.until(lambda: segments(tmp_path / "c"))
        running.batches(500)
        ran = running.end()
    assert ran["digest"] == run(dear, "--epochs", ENDLESS, "--batches", ran["batches"])["digest"]
    assert ran["cache"]["cache_point"] == 0
    assert ran["cache"]["hits"] > 0
    assert chosen(ran)[-1] == "autocache (operator 2)"
    none, cache_point = ran["cache"]["choices"]
    assert (none["cache_point"], cache_point["bytes"], cache_point["was_read"]) == (None, 64 * 64 * 3, True)
    assert none["compute_s"] == pytest.approx(0.0005, rel=0.05)
    assert 0.00005 <= cache_point["read_s"] < 0.00007  # with the copy and the flip, or without


def test_it_is_decided_by_the_third_batch_however_long_batches_take(dear, tmp_path):
    """Of a job that is long beside them: a batch takes 0.64 s."""
    ran = run(
        dear,
        "--cache-dir",
        tmp_path / "c",
        "--set",
        "0.count=100000",
        "--set",
        "1.us=10000",
        "--set",
        "4.size=512",
        "--threads",
        8,
        "--epochs",
        1000,
        "--batches",
        3,
    )
    assert chosen(ran)[0] == "autocache (operator 2)"


def test_a_store_that_is_too_slow_is_not_used(dear, tmp_path):
    (tmp_path / "speed").write_text("600000 0")  # 20 ms for an element
    slow = {"env": {"CACHEW_STORE": str(tmp_path / "speed")}}
    with Running(
        tmp_path, dear, "--cache-dir", tmp_path / "c", "--epochs", ENDLESS, "--threads", 2, **slow
    ) as running:
        running.until(lambda: segments(tmp_path / "c"))
        running.until(lambda: NONE in running.err, most=2000)
        ran = running.end()
    assert ran["digest"] == run(dear, "--epochs", ENDLESS, "--batches", ran["batches"])["digest"]
    assert ran["cache"]["cache_point"] is None
    assert ran["cache"]["hits"] < 300
    # the next one knows before it begins
    again = run(dear, "--cache-dir", tmp_path / "c", "--epochs", 2, "--threads", 2, **slow)
    assert chosen(again)[0] is None
    assert "an earlier run" in again["cache"]["decisions"][0]["record"]["why"]
    assert again["cache"]["hits"] < 50


def test_it_changes_its_mind_when_the_store_changes(tmp_path):
    chain = [
        {"op": "synthetic", "count": 200, "shape": [16, 16, 3], "dtype": "uint8"},
        {"op": "delay", "us": 1000},
        {"op": "autocache"},
        {"op": "repeat", "count": -1},
        {"op": "random_flip", "component": "data"},
        {"op": "batch", "size": 8},
    ]
    pipeline, speed = write(tmp_path / "p.json", chain), tmp_path / "speed"
    speed.write_text("192000 0")  # 4 ms for an element
    given = ("--threads", 2, "--batches", ENDLESS, "--cache-dir", tmp_path / "c")
    with Running(tmp_path, pipeline, *given, env={"CACHEW_STORE": str(speed)}) as running:
        running.until(lambda: segments(tmp_path / "c"))
        running.until(lambda: NONE in running.err, most=2000)
        speed.write_text("0 0")
        running.until(lambda: CACHE_POINT in running.err.split(NONE)[-1], most=50000)
        found = running.end()
    assert chosen(found)[-2:] == [None, "autocache (operator 2)"]
    assert found["digest"] == run(pipeline, "--batches", found["batches"])["digest"]


def test_cache_is_not_decided_about(synthetic, tmp_path):
    ran = run(synthetic, "--cache-dir", tmp_path / "c")
    assert "decisions" not in ran["cache"]


# ---- several runs ----


def look(fifo, running):
    """Waits until a run looks how fast its directory is, which is each time that it opens one or finds a
    segment.
    """

    def opened():
        with contextlib.suppress(OSError):
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        return None

    speed = wait_for(opened, lambda: running.process.poll() is None)
    os.mkfifo(fifo.with_suffix(".next"))
    fifo.with_suffix(".next").rename(fifo)  # it looks at another one the next time
    os.write(speed, b"0 0")
    os.close(speed)


@pytest.mark.large
def test_two_runs_at_once_share_what_they_compute(tmp_path):
    """The second one begins when the first one has published something, and the first one goes on when the
    second one has published the rest; each in its own order. A run that is held computes 64 MiB ahead, which
    is less than half of it."""
    chain = [
        {"op": "synthetic", "count": 12000, "shape": [64, 64, 3], "dtype": "uint8"},
        {"op": "cache"},
        {"op": "shuffle"},
        {"op": "batch", "size": 8},
    ]
    pipeline, cache, fifo = write(tmp_path / "p.json", chain), tmp_path / "c", tmp_path / "fifo"
    given = ("--threads", 1, "--cache-dir", cache)
    os.mkfifo(fifo)
    with Running(tmp_path, pipeline, "--seed", 0, *given, env={"CACHEW_STORE_DIR": str(fifo)}) as first:
        look(fifo, first)  # the directory
        look(fifo, first)  # the set
        first.batches(1)
        wait_for(lambda: segments(cache))
        own = set(segments(cache))
        with Running(tmp_path, pipeline, "--seed", 1, *given) as second:
            second.batches(1)
            wait_for(lambda: set(segments(cache)) - own)
            caches = [second.end(code=0)]
        # the first one, held, may have published more of its own meanwhile
        for _ in range(caches[0]["cache"]["published"]):
            look(fifo, first)
        caches.insert(0, first.end(code=0))
    assert [c["digest"] for c in caches] == [run(pipeline, "--seed", s)["digest"] for s in (0, 1)]
    caches = [c["cache"] for c in caches]
    # An element that the other run publishes while this one computes it is neither.
    assert all(11000 < c["hits"] + c["misses"] <= 12000 for c in caches), str(caches)
    assert caches[0]["hits"] > 0, "the first one read what the second one wrote"
    assert caches[1]["hits"] > 0, "and the other way round"
    assert cachew("cache", "verify", cache)[0]["bad_segments"] == 0
    assert not left_over(cache)


# ---- trouble ----


def test_storage_that_hangs_is_left_and_said(dear, tmp_path):
    """Reads do not come back: what is there is computed meanwhile. The run ends while they hang, too."""
    speed, cache = tmp_path / "speed", tmp_path / "c"
    run(dear, "--cache-dir", cache, "--cache", 0)
    speed.write_text("-1 0")
    hung, said = cachew(
        "run",
        dear,
        "--cache-dir",
        cache,
        "--cache",
        0,
        "--epochs",
        3,
        "--digest",
        env={"CACHEW_STORE": str(speed), **REAL},
    )
    assert hung["digest"] == run(dear, "--epochs", 3)["digest"]
    assert (hung["cache"]["hits"], hung["cache"]["late"] > 0) == (0, True)
    assert said.count("a read did not return") == 1


def test_storage_that_hangs_is_read_again_once_it_answers(dear, tmp_path):
    """In the middle of a run reads do not come back, and then they do: soon, or later on a machine that lets
    the thread that reads stand still.
    """
    speed = tmp_path / "speed"
    for batches in (400, 4000, 40000):
        cache = tmp_path / f"c{batches}"
        speed.write_text("0 0")
        given = [dear, "--cache-dir", cache, "--cache", 0, "--threads", 2, "--epochs", ENDLESS]
        with Running(tmp_path, *given, env={"CACHEW_STORE": str(speed), **REAL}) as running:
            running.until(lambda cache=cache: segments(cache))
            speed.write_text("-1 0")
            running.until(lambda running=running: "a read did not return" in running.err)
            speed.write_text("0 0")
            running.batches(batches)
            found = running.end()
        assert found["digest"] == run(dear, "--epochs", ENDLESS, "--batches", found["batches"])["digest"]
        assert found["cache"]["late"] > 0
        assert cachew("cache", "verify", cache)[0]["bad_segments"] == 0
        if found["cache"]["hits"] > 0:
            break
    assert found["cache"]["hits"] > 0


@pytest.mark.large
def test_what_is_cut_short_or_written_over_while_it_is_read_is_computed(tmp_path):
    """Again and again, of segments that are copied from memory all the time: nothing ends the process, and
    nothing of it is delivered.
    """
    chain = [
        {"op": "synthetic", "count": 400, "shape": [160, 160, 3], "dtype": "uint8"},
        {"op": "cache"},
        {"op": "shuffle"},
        {"op": "batch", "size": 8},
    ]
    pipeline, cache, rng = write(tmp_path / "p.json", chain), tmp_path / "c", random.Random(1)
    wanted = run(pipeline, "--epochs", 20)["digest"]
    run(pipeline, "--cache-dir", cache)
    with Running(tmp_path, pipeline, "--epochs", 20, "--cache-dir", cache) as running:
        for _ in range(60):
            path = rng.choice(segments(cache) or [None])
            with contextlib.suppress(OSError, TypeError), open(path, "r+b") as file:
                size = path.stat().st_size
                if rng.random() < 0.5:
                    file.truncate(rng.randrange(size // 2 + 1))
                else:
                    file.seek(rng.randrange(size + 1))
                    file.write(bytes(100000))
            running.batches(10)
        found = running.end(code=0)
    assert found["digest"] == wanted
    assert found["cache"]["bad"] + found["cache"]["gone"] > 0
    assert found["cache"]["hits"] > 0


def test_a_full_disk_is_said_once_and_the_run_goes_on(synthetic, small_disk):
    wanted = same(synthetic)
    for _ in range(2):
        ran, said = cachew(
            "run", synthetic, "--digest", "--cache-dir", small_disk / "c", "--cache-bytes", "1G"
        )
        assert ran["digest"] == wanted[0]
        assert ran["cache"]["refused"] > 0
        assert said.count("No space left on device; the run goes on without writing") == 1
    assert cachew("cache", "verify", small_disk / "c")[0]["bad_segments"] == 0
    assert not left_over(small_disk / "c")


def test_the_quota_holds_and_what_is_dear_pushes_out_what_is_cheap(tmp_path):
    quota = 1 << 20
    chain = [
        {"op": "synthetic", "count": 200, "shape": [64, 64], "dtype": "uint8"},
        {"op": "delay", "us": 20},
        {"op": "cache"},
        {"op": "batch", "size": 8},
    ]
    cheap = write(tmp_path / "cheap.json", chain)
    dear = write(tmp_path / "dear.json", [chain[0], {"op": "delay", "us": 3000}, *chain[2:]])
    digest = run(cheap)["digest"]
    given = ("--cache-dir", tmp_path / "c", "--cache-bytes", quota)

    for pipeline in (cheap, cheap, dear, dear, cheap):
        assert run(pipeline, *given)["digest"] == digest
        assert used_bytes(tmp_path / "c") <= quota + (64 << 10)
    assert run(dear, *given)["cache"]["hits"] == 200
    cachew("cache", "rm", tmp_path / "c", "--all")
    assert run(cheap, *given)["cache"]["misses"] == 200
    assert run(cheap, *given)["cache"]["hits"] == 200


def test_what_is_pinned_stays(tmp_path):
    chain = [
        {"op": "synthetic", "count": 200, "shape": [64, 64], "dtype": "uint8"},
        {"op": "cache"},
        {"op": "batch", "size": 8},
    ]
    cheap = write(tmp_path / "cheap.json", chain)
    dear = write(tmp_path / "dear.json", [chain[0], {"op": "delay", "us": 3000}, *chain[1:]])
    given = ("--cache-dir", tmp_path / "c", "--cache-bytes", 1 << 20)
    run(cheap, *given)
    kept, _ = cachew("cache", "ls", tmp_path / "c")
    assert kept[0]["entries"] == 200
    subprocess.run(words("cache", "pin", tmp_path / "c", kept[0]["set"][:6]), check=True)
    run(dear, *given)
    assert (
        next(s for s in cachew("cache", "ls", tmp_path / "c")[0] if s["set"] == kept[0]["set"])["entries"]
        == 200
    )
    assert run(cheap, *given)["cache"]["hits"] == 200
    subprocess.run(words("cache", "unpin", tmp_path / "c", "--all"), check=True)
    assert not any(s["pinned"] for s in cachew("cache", "ls", tmp_path / "c")[0])


# ---- cachew cache ----


def test_a_name_that_fits_several_sets_or_none_removes_nothing(tmp_path):
    cache = tmp_path / "c"
    for end in "12":
        (cache / ("ab" + "0" * 29 + end)).mkdir(parents=True)
    (cache / "lock").touch()
    assert "expected the first characters" in cachew("cache", "rm", cache, "", code=2)[0]["error"]["message"]
    for verb in ("rm", "pin", "unpin"):
        assert "2 sets of" in cachew("cache", verb, cache, "ab", code=2)[0]["error"]["message"]
    assert len(list(cache.glob("ab*"))) == 2
    assert cachew("cache", "rm", cache, "ab" + "0" * 29 + "1")[0]["removed"] == 1


def test_the_command(synthetic, tmp_path):
    cache = tmp_path / "c"
    warmed, _ = cachew("cache", "warm", synthetic, "--cache-dir", cache)
    assert warmed["kept"] == 400
    assert cachew("cache", "warm", synthetic, "--cache-dir", cache)[0] == {
        "kept": 0,
        "there": 400,
        "refused": 0,
        "evicted": 0,
        "bytes": 0,
    }
    listed, _ = cachew("cache", "ls", cache)
    assert [s["entries"] for s in listed] == [400]
    assert listed[0]["meta"]["components"] == {"data": "uint8[64,64,3]"}
    assert cachew("cache", "stat", cache)[0]["entries"] == 400
    assert cachew("cache", "verify", cache)[0]["entries"] == 400
    assert "expected the first characters" in cachew("cache", "rm", cache, code=2)[0]["error"]["message"]
    assert (
        'has no cached set whose name begins with "zz"'
        in cachew("cache", "rm", cache, "zz", code=2)[0]["error"]["message"]
    )
    assert cachew("cache", "rm", cache, listed[0]["set"][:5])[0]["removed"] == 1
    assert cachew("cache", "ls", cache)[0] == []
    assert "is not a cache" in cachew("cache", "ls", tmp_path, code=2)[0]["error"]["message"]
    assert "expected ls, stat" in cachew("cache", "dir", cache, code=2)[0]["error"]["message"]


def test_removing_all_sets_leaves_pinned_ones_and_says_so(synthetic, tmp_path):
    """They went without a word."""
    cache = tmp_path / "c"
    cachew("cache", "warm", synthetic, "--cache-dir", cache)
    (key,) = [s["set"] for s in cachew("cache", "ls", cache)[0]]
    other = cache / ("0" * 32)
    other.mkdir()
    subprocess.run(words("cache", "pin", cache, key), check=True)
    removed, _ = cachew("cache", "rm", cache, "--all")
    assert (removed["removed"], removed["pinned"]) == (1, 1)
    assert not other.exists()
    said = subprocess.run(
        words("cache", "rm", cache, "--all"), check=True, capture_output=True, text=True
    ).stdout
    assert said == "removed 0 sets, 0 bytes; 1 pinned set stays\n"
    assert cachew("cache", "rm", cache, key)[0]["removed"] == 1
    assert cachew("cache", "ls", cache)[0] == []


def test_warming_says_what_it_does_not_keep(tmp_path):
    """Elements that are larger than the queue were not counted, and with --cache off it crashed."""
    chain = [
        {"op": "synthetic", "count": 2, "shape": [33 << 20], "dtype": "uint8", "fill": "none"},
        {"op": "cache"},
        {"op": "batch", "size": 1},
    ]
    given = ["cache", "warm", write(tmp_path / "p.json", chain), "--cache-dir", tmp_path / "c"]
    warmed, _ = cachew(*given)
    assert (warmed["kept"], warmed["refused"]) == (0, 2)
    assert (
        "--cache off would cache nothing" in cachew(*given, "--cache", "off", code=2)[0]["error"]["message"]
    )


def test_warming_keeps_what_drop_remainder_leaves_out(tmp_path):
    """Each epoch leaves out other elements."""
    chain = [
        {"op": "synthetic", "count": 100, "shape": [200, 1000], "dtype": "uint8", "fill": "none"},
        {"op": "cache"},
        {"op": "shuffle"},
        {"op": "batch", "size": 60, "drop_remainder": True},
    ]
    pipeline, cache = write(tmp_path / "p.json", chain), tmp_path / "c"
    assert cachew("cache", "warm", pipeline, "--threads", 1, "--cache-dir", cache)[0]["kept"] == 100
    found = run(pipeline, "--cache-dir", cache, "--epochs", 5)
    assert found["elements"] == 5 * 60
    assert found["cache"]["misses"] == 0
    assert found["digest"] == run(pipeline, "--epochs", 5)["digest"]


@pytest.mark.large
def test_what_warming_wrote_itself_was_not_there_before(tmp_path):
    """Its second pass, over what the queue had no room for, found what the first one wrote."""
    (tmp_path / "speed").write_text("0 10000000")  # 4 s for all of it, of which 3 s fill the queue
    chain = [
        {"op": "synthetic", "count": 3400, "shape": [64, 64, 3], "dtype": "uint8"},
        {"op": "cache"},
        {"op": "batch", "size": 8},
    ]
    given = [
        "cache",
        "warm",
        write(tmp_path / "p.json", chain),
        "--cache-dir",
        tmp_path / "c",
        "--cache-bytes",
        "1G",
    ]
    assert cachew(*given, env={"CACHEW_STORE": str(tmp_path / "speed"), **SLEEPING})[0]["there"] == 0
    assert cachew(*given)[0]["there"] == 3400


def test_what_is_in_use_is_not_removed(tmp_path):
    chain = [
        {"op": "synthetic", "count": 50, "shape": [8], "dtype": "uint8"},
        {"op": "autocache"},
        {"op": "repeat", "count": -1},
        {"op": "batch", "size": 8},
    ]
    pipeline, cache = write(tmp_path / "p.json", chain), tmp_path / "c"
    with Running(tmp_path, pipeline, "--cache-dir", cache) as running:
        running.batches(1)
        assert cachew("cache", "rm", cache, "--all")[0] == {
            "removed": 0,
            "bytes": 0,
            "in_use": 1,
            "pinned": 0,
        }
        running.end()
    assert cachew("cache", "rm", cache, "--all")[0]["removed"] == 1
    shutil.rmtree(cache)


def test_a_cache_that_keeps_nothing_is_told(tmp_path):
    """Once, `cache` without a cache directory did nothing, and nothing told it."""

    def told(op, *words):
        chain = [{"op": "range", "stop": 100}, {"op": op}, {"op": "batch", "size": 10}]
        return cachew("run", write(tmp_path / "p.json", chain), *words)[1].count(
            "the operator cache keeps no elements"
        )

    assert told("cache", "--epochs", 3) == 1
    assert told("cache", "--cache-dir", tmp_path / "cache") == told("cache", "--cache", "off") == 0
    assert told("autocache") == 0
