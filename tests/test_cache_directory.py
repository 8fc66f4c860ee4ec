"""What else may be the matter with a cache directory: it does not answer, is full, can only be read, or
things lie in it that are none of ours.
"""

import fcntl
import os
import re
import shutil
import socket
import stat
import subprocess

import pytest
from caches import REAL, SLEEPING, Running, cachew, run, same, segments, used_bytes, words, write

TAKES_LONGER = "takes longer than 2 s; going on without the cache until this ends"
# What does not end, as the command has it; the store's thread may not have come so far in the 2 s.
WAITING = "({}|waiting for a CPU) {}"


def chain(us=200):
    return [
        {"op": "synthetic", "count": 400, "shape": [64, 64, 3], "dtype": "uint8"},
        {"op": "delay", "us": us},
        {"op": "cache"},
        {"op": "shuffle"},
        {"op": "batch", "size": 8},
    ]


@pytest.fixture
def pipeline(tmp_path):
    """Elements that take a while: 400 of 12 KiB."""
    return write(tmp_path / "p.json", chain())


@pytest.fixture
def kept(pipeline, tmp_path):
    """A cache that has all of them, and what a run gives."""
    wanted = same(pipeline, "--cache-dir", tmp_path / "c")
    return tmp_path / "c", wanted


def the_set(cache):
    return next(p for p in cache.glob("?" * 32) if not p.is_symlink())


# ---- a directory that does not answer ----


@pytest.mark.parametrize("where", ["lock", "used"])
def test_a_directory_that_hangs_from_the_start_does_not_hold_up_a_run(pipeline, kept, where):
    cache, wanted = kept
    path = cache / "lock" if where == "lock" else the_set(cache) / "used"
    with path.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ran, said = cachew("run", pipeline, "--digest", "--cache-dir", cache, env=REAL)
    assert (ran["digest"], ran["cache"]["hits"]) == (wanted[0], 0)
    assert said.count(TAKES_LONGER) == 1
    assert re.search(
        WAITING.format(
            "waiting for the lock of the cache directory" if where == "lock" else "opening a set",
            "does not end",
        ),
        said,
    ), said
    assert run(pipeline, "--cache-dir", cache)["cache"]["hits"] == 400


def test_storage_that_hangs_from_the_start_does_not_hold_up_a_run(pipeline, kept, tmp_path):
    (tmp_path / "speed").write_text("-1 -1")
    ran, said = cachew(
        "run",
        pipeline,
        "--digest",
        "--cache-dir",
        kept[0],
        env={"CACHEW_STORE_DIR": str(tmp_path / "speed"), **REAL},
    )
    assert ran["digest"] == kept[1][0]
    assert len(re.findall(WAITING.format("opening the directory", TAKES_LONGER), said)) == 1, said


def test_a_directory_that_answers_late_is_used_from_then_on(tmp_path):
    endless = [*chain()[:3], {"op": "repeat", "count": -1}, *chain()[3:]]
    pipeline, cache = write(tmp_path / "p.json", endless), tmp_path / "c"
    cache.mkdir()
    with (cache / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with Running(tmp_path, pipeline, "--cache-dir", cache, env=REAL) as running:
            running.batches(10)
            assert TAKES_LONGER in running.err
            fcntl.flock(held, fcntl.LOCK_UN)
            running.until(lambda: segments(cache))
            running.end()


# ---- a disk that is full, or can only be read ----


@pytest.fixture
def disk_size():
    return "8m"


def fill_up(directory):
    filler = os.open(directory / "filler", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space"):
        while True:
            os.write(filler, bytes(4096))
    os.close(filler)


@pytest.mark.parametrize("there", ["nothing", "directory", "lock"])
def test_a_disk_that_is_full_from_the_start_is_said_once_and_gone_without(pipeline, small_disk, there):
    wanted = same(pipeline)
    if there != "nothing":
        (small_disk / "c").mkdir()
    if there == "lock":
        (small_disk / "c" / "lock").touch()
    inodes = "nr_inodes=" + str(len(list(small_disk.rglob("*"))) + 2)
    fill_up(small_disk)
    subprocess.run(["mount", "-o", f"remount,size=8m,{inodes}", small_disk], check=True)
    ran, said = cachew("run", pipeline, "--digest", "--cache-dir", small_disk / "c", "--cache-bytes", "1G")
    assert (ran["digest"], ran["cache"]["kept"]) == (wanted[0], 0)
    assert said.count("No space left on device") == 1


def test_a_disk_that_was_full_from_the_start_is_used_once_there_is_room(small_disk, tmp_path):
    """Without --cache-bytes: the bound was half of what was free when the run began, for ever."""
    endless = [*chain(us=1000)[:3], {"op": "repeat", "count": -1}, *chain()[3:]]
    pipeline, cache = write(tmp_path / "p.json", endless), small_disk / "c"
    cache.mkdir()
    (cache / "lock").touch()
    fill_up(small_disk)
    with Running(tmp_path, pipeline, "--cache-dir", cache) as running:
        running.batches(1)
        (small_disk / "filler").unlink()
        running.until(lambda: segments(cache))
        running.end()


def test_a_directory_that_can_only_be_read_is_read(pipeline, small_disk, tmp_path):
    run(pipeline, "--cache-dir", small_disk / "c", "--cache-bytes", "1G")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    ran, said = cachew("run", pipeline, "--digest", "--cache-dir", small_disk / "c")
    assert (ran["digest"], ran["cache"]["hits"]) == (same(pipeline)[0], 400)
    other = write(tmp_path / "other.json", chain(us=201))
    ran, said = cachew("run", other, "--digest", "--cache-dir", small_disk / "c")
    assert (ran["digest"], ran["cache"]["kept"]) == (same(other)[0], 0)
    assert said.count("Read-only file system") == 1


# ---- what is none of ours ----


def make_fifo(path, _):
    os.mkfifo(path)


def make_socket(path, _):
    here = os.open(path.parent, os.O_RDONLY)  # the path may be too long for one
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def make_device(path, _):
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero: it never ends
    except PermissionError:
        pytest.skip("devices can't be made here")


def make_link(path, outside):
    path.symlink_to(outside)


def make_directory(path, _):
    path.mkdir()


MAKE = {f.__name__[5:]: f for f in (make_fifo, make_socket, make_device, make_link, make_directory)}


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize(
    "name", ["segment", "another-1.cws", "tmp-0123456789abcdef", "meta.json", "profile.json", "used", "pin"]
)
def test_what_is_no_file_is_gone_without(pipeline, kept, tmp_path, kind, name):
    cache, wanted = kept
    outside = tmp_path / "outside"
    outside.write_text("mine")
    path = segments(cache)[0] if name == "segment" else the_set(cache) / name
    path.unlink(missing_ok=True)
    MAKE[kind](path, outside)
    for _ in range(2):
        ran, said = cachew("run", pipeline, "--digest", "--cache-dir", cache, "--cache-bytes", "3M")
        assert ran["digest"] == wanted[0]
        assert said.count("it is not a regular file; the run goes on without it") == (
            name in ("segment", "another-1.cws", "used")
        )
    for verb in (["ls", cache], ["verify", cache, "--repair"] if kind != "directory" else ["stat", cache]):
        cachew("cache", *verb)
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("kind", ["file", "lock", *MAKE])
def test_a_set_that_is_no_directory_is_gone_without_and_said_once(pipeline, kept, tmp_path, kind):
    """Or one that leads elsewhere; or the directory's lock is none."""
    cache, wanted = kept
    at = cache / "lock" if kind == "lock" else the_set(cache)
    if kind == "lock":
        at.unlink()
        at.symlink_to(tmp_path / "outside")
    else:
        shutil.rmtree(at)
        MAKE.get(kind, lambda path, _: path.touch())(at, tmp_path / "outside")
    (tmp_path / "outside").mkdir()
    keep = ["--set", "1.us=201"] if kind == "lock" else []  # else there is nothing to write
    ran, said = cachew("run", pipeline, "--digest", "--cache-dir", cache, *keep)
    assert ran["digest"] == wanted[0]
    if kind != "directory":
        assert said.count("goes on without") == 1
    assert not list((tmp_path / "outside").iterdir())


# ---- what leads elsewhere stays there ----


@pytest.fixture
def outside(kept, tmp_path):
    """A directory that looks like a set, with a segment in it; a set and a segment of the cache lead
    there.
    """
    cache, _ = kept
    directory = tmp_path / "outside"
    shutil.copytree(the_set(cache), directory)
    (cache / ("0" * 32)).symlink_to(directory)
    (the_set(cache) / "0-0.cws").symlink_to(next(directory.glob("*.cws")))
    return directory


def content(directory):
    return {p.name: p.read_bytes() for p in directory.iterdir()}


def test_removing_follows_no_links(kept, outside):
    cache, _ = kept
    before = content(outside)
    assert [s["set"] for s in cachew("cache", "ls", cache)[0]] == [the_set(cache).name]
    subprocess.run(words("cache", "pin", cache, "--all"), check=True)
    assert "has no cached set" in cachew("cache", "rm", cache, "000", code=2)[0]["error"]["message"]
    assert cachew("cache", "rm", cache, the_set(cache).name)[0]["removed"] == 1
    assert content(outside) == before


def test_repairing_follows_no_links(kept, outside):
    cache, _ = kept
    next(outside.glob("*.cws")).write_bytes(b"damaged")
    before = content(outside)
    cachew("cache", "verify", cache, "--repair")
    assert content(outside) == before
    assert cachew("cache", "verify", cache)[0]["bad_segments"] == 0


def test_what_gives_way_is_not_what_a_link_leads_to(kept, outside, tmp_path):
    cache, _ = kept
    before = content(outside)
    dear = write(tmp_path / "dear.json", chain(us=2000))
    ran = run(dear, "--cache-dir", cache, "--cache-bytes", used_bytes(cache) // 2)
    assert ran["cache"]["evicted"] > 0
    assert content(outside) == before


def test_removing_leaves_a_set_with_something_of_somebody_else(kept):
    cache, _ = kept
    (the_set(cache) / "notes.txt").write_text("mine")
    before = content(the_set(cache))
    error = cachew("cache", "rm", cache, "--all", code=1)[0]["error"]
    assert "notes.txt: is not a file of a cache" in error["message"]
    assert content(the_set(cache)) == before


# ---- what is compressed ----


@pytest.mark.large
def test_what_is_compressed_on_a_slow_store_is_the_same(tmp_path):
    """Text on a store of 4 MB/s; noise beside it stays as it is."""
    (tmp_path / "speed").write_text("4000000 4000000")
    slow = {"env": {"CACHEW_STORE": str(tmp_path / "speed"), **SLEEPING}}
    (tmp_path / "lines.txt").write_text("".join(f"{'the words of line ' * 200}{i}\n" for i in range(3000)))
    text = write(
        tmp_path / "text.json",
        [
            {"op": "text", "files": "lines.txt"},
            {"op": "cache"},
            {"op": "shuffle"},
            {"op": "batch", "size": 8},
        ],
    )
    noise = write(tmp_path / "noise.json", chain(us=1000))
    for pipeline, epochs in ((text, 3), (noise, 3)):
        wanted = same(pipeline, "--epochs", epochs)
        for _ in range(2):
            assert (
                same(
                    pipeline, "--epochs", epochs, "--cache-dir", tmp_path / "c", "--cache-bytes", "1G", **slow
                )
                == wanted
            )
    ratios = {
        s["meta"]["operators"][0]["op"]: s["content_bytes"] / s["stored_bytes"]
        for s in cachew("cache", "ls", tmp_path / "c")[0]
    }
    assert ratios["text"] > 2
    assert ratios["synthetic"] == 1
    assert cachew("cache", "verify", tmp_path / "c")[0]["bad_segments"] == 0
