"""Source files that change, between runs and under a run, in ways that keep size and modification time: what
was indexed and what was kept is never taken for the new content, and no run mixes old and new."""

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile

import make_data
import pytest
from caches import run, same, words, write
from deadlines import HANG_S, wait_for

N = 5  # records of a file; of files and image_folder it is one
BATCH = {"op": "batch", "size": 2}


def tfrecords(version, n):
    return b"".join(make_data.record(b"%03d:%c" % (i, version) * 50) for i in range(n))


def damaged_tfrecords(version, n):
    """The data are others, their checksums are not: what `verify` would find."""
    return tfrecords(ord("a"), n).replace(b":a", b":%c" % version)


def lines(version, n):
    return b"".join(b'{"x": "%03d:%c"}\n' % (i, version) for i in range(n))


def tar(size):
    def make(version, n):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for i in range(n):
                member = tarfile.TarInfo(f"{i}.bin")
                member.size = size
                # the index reads the first 512 bytes of it, if that
                archive.addfile(member, io.BytesIO(bytes(size - 1) + b"%c" % version))
        return out.getvalue()

    return make


def large(version, n):
    """The file key covers the first and the last 64 KiB."""
    return bytes(100_000) + b"%c" % version + bytes(100_000) + bytes(n)


def packed(make):
    """Compressed so that the size stays the same."""
    return lambda version, n: gzip.compress(make(version, n), 0, mtime=0)


TAR = {"op": "tar", "files": "*.data", "components": {"bin": "bytes"}}
SOURCES = {
    "tfrecord": ({"op": "tfrecord", "files": "*.data"}, tfrecords),
    "tfrecord-gzip": ({"op": "tfrecord", "files": "*.data"}, packed(tfrecords)),
    "tfrecord-unverified": ({"op": "tfrecord", "files": "*.data", "verify": False}, damaged_tfrecords),
    "tfrecord-gzip-unverified": (
        {"op": "tfrecord", "files": "*.data", "verify": False},
        packed(damaged_tfrecords),
    ),
    "text": ({"op": "text", "files": "*.data"}, lines),
    "text-gzip": ({"op": "text", "files": "*.data"}, packed(lines)),
    "jsonl": ({"op": "jsonl", "files": "*.data", "features": {"x": "bytes"}}, lines),
    "tar": (TAR, tar(3000)),
    "tar-of-large-members": (TAR, tar(100_000)),
    "tar-gzip": (TAR, packed(tar(3000))),
    "files": ({"op": "files", "files": "*.data"}, large),
    "image_folder": ({"op": "image_folder", "root": "images"}, large),
    "zip": (
        {"op": "zip", "inputs": [[{"op": "text", "files": "*.data"}], [{"op": "range", "stop": 1000}]]},
        lines,
    ),
}


# What the file key, and so a comparison with the index under a run, covers only a part of.
PARTIAL = {
    "tfrecord-unverified",
    "tfrecord-gzip-unverified",
    "tar",
    "tar-of-large-members",
    "tar-gzip",
    "files",
    "image_folder",
}


def restore(path, was):
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def in_place(path, make):
    data, was = make(ord("b"), N), path.stat()
    assert len(data) == was.st_size
    with path.open("r+b") as f:
        f.write(data)
    restore(path, was)


def openly(path, make):
    """As programs do it: the modification time is another."""
    was = path.stat()
    with path.open("r+b") as f:
        f.write(make(ord("b"), N))
    wait_for(lambda: os.utime(path) or path.stat().st_mtime_ns != was.st_mtime_ns)


def by_another(path, make):
    new, was = path.with_name("new"), path.stat()
    new.write_bytes(make(ord("b"), N))
    restore(new, was)
    new.replace(path)


def appended(path, make):
    """And what was there is changed, too."""
    was = path.stat()
    with path.open("r+b") as f:
        f.write(make(ord("b"), N + 1))
    restore(path, was)


def cut(path, make):
    was, data = path.stat(), make(ord("b"), N - 1)
    with path.open("r+b") as f:
        f.write(data)
        f.truncate()
    restore(path, was)


CHANGES = [in_place, openly, by_another, appended, cut]


# Where size, modification time and what the file key covers are the same, the next run notices.
NOTICED_AT_ONCE = [
    (source, change)
    for source in SOURCES
    for change in CHANGES
    if source not in PARTIAL or change not in (in_place, by_another)
]


class Data:
    """A data set of two files, of which the second is the one that changes."""

    def __init__(self, directory, name):
        self.op, self.make = SOURCES[name]
        self.dir = directory
        folder = name == "image_folder"
        self.names = (
            [directory / "images" / c / "0.png" for c in ("cat", "dog")]
            if folder
            else [directory / f"{i}.data" for i in range(2)]
        )
        self.write_again()
        self.pipeline = write(directory / "p.json", [self.op, {"op": "cache"}, BATCH])
        self.slow = write(
            directory / "slow.json", [self.op, {"op": "cache"}, {"op": "delay", "us": 2000}, BATCH]
        )

    def write_again(self):
        """The files with the content that they have at first."""
        for path in self.names:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.make(ord("a"), N))

    def words(self, cached):
        return ["--index-dir", self.dir / "index", *(["--cache-dir", self.dir / "cache"] if cached else [])]


@pytest.fixture
def data(tmp_path, request):
    return Data(tmp_path, request.param)


# Elements of zip are made of several records, and are not cached.
every_source = pytest.mark.parametrize(
    ("data", "cached"),
    [
        pytest.param(source, cached, id=f"{source}-{'cache' if cached else 'index'}")
        for source in SOURCES
        for cached in (False, True)
        if not (cached and source == "zip")
    ],
    indirect=["data"],
)
every_change = pytest.mark.parametrize("change", CHANGES)
with_and_without_a_cache = pytest.mark.parametrize("cached", [False, True], ids=["index", "cache"])


def reads_the_cache(ran):
    """Whether all elements of a run came from the cache. A run goes on without a cache that takes long to
    open or to write, as on a busy machine."""
    return ran["cache"]["hits"] == ran["elements"]


@every_source
@every_change
def test_nothing_of_the_old_content_is_read_after_a_change(data, change, cached, tmp_path):
    before = same(data.pipeline, *data.words(cached))
    wait_for(lambda: not cached or reads_the_cache(run(data.pipeline, *data.words(cached))))
    change(data.names[1], data.make)
    wanted = same(data.pipeline, "--index-dir", tmp_path / "fresh")
    assert wanted != before
    for _ in range(2):
        assert same(data.pipeline, *data.words(cached)) == wanted


class Running:
    """A slow run of many epochs, which is disturbed once its first epoch is over."""

    EPOCHS = 400
    ENDLESS = 10**12

    def __init__(self, data, cached, directory, kept=True, endless=False):
        """kept: the cache, if any, has all from the start, so that no file is open. endless: the run does
        not end by itself, however late it is disturbed."""
        expected, self.log, self.data = directory / "expected", directory / "log", data
        self.undisturbed = run(
            data.pipeline, "--log", expected, "--epochs", self.EPOCHS, *data.words(cached and kept)
        )
        self.wanted = self.batches(expected)
        epochs = self.ENDLESS if endless else self.EPOCHS
        given = ["--json", "--digest", "--log", self.log, "--epochs", epochs]
        self.words = words("run", data.slow, *given, *data.words(cached))

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.wait_for_an_epoch()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    @staticmethod
    def batches(log):
        return [(b["epoch"], b["g"], b["hash"]) for b in map(json.loads, log.read_text().splitlines())]

    def wait_for_an_epoch(self):
        lines = (
            len(self.wanted) // self.EPOCHS
            + 1
            + (self.log.read_text().count("\n") if self.log.exists() else 0)
        )
        wait_for(
            lambda: self.log.exists() and self.log.read_text().count("\n") > min(lines, len(self.wanted) - 1)
        )

    def end(self):
        """Exit code and what was printed; all that was handed out was as if nobody had touched the files."""
        out, _ = self.process.communicate(timeout=HANG_S)
        got = self.batches(self.log)
        if len(got) > len(self.wanted):
            self.data.write_again()
            expected = self.log.with_name("longer")
            given = ["--epochs", got[-1][0] + 1, "--index-dir", self.log.with_name("index of the longer")]
            run(self.data.pipeline, "--log", expected, *given)
            self.wanted = self.batches(expected)
        assert got == self.wanted[: len(got)]
        return self.process.returncode, json.loads(out)


@pytest.mark.parametrize(("data", "change"), NOTICED_AT_ONCE, indirect=["data"])
@with_and_without_a_cache
def test_a_run_does_not_mix_old_and_new_content(data, change, cached, tmp_path):
    with Running(data, cached, tmp_path, endless=change is not by_another) as running:
        change(data.names[1], data.make)
        code, out = running.end()
    if change is by_another and code == 0:  # the file that was replaced was open all the time
        assert out["digest"] == running.undisturbed["digest"]
        return
    assert (code, out["error"]["kind"], out["error"]["file"]) == (1, "data", str(data.names[1]))
    assert "since it was indexed" in out["error"]["message"]


@pytest.mark.large
@every_source
def test_a_run_goes_on_after_chmod_a_new_link_and_renaming(data, cached, tmp_path):
    path = data.names[1]
    with Running(data, cached, tmp_path, kept=False) as running:
        path.chmod(0o400)
        running.wait_for_an_epoch()
        os.link(path, tmp_path / "link")
        running.wait_for_an_epoch()
        path.rename(tmp_path / "aside")
        (tmp_path / "aside").rename(path)
        running.wait_for_an_epoch()
        copy = tmp_path / "copy"
        shutil.copy2(path, copy)
        copy.replace(path)
        code, out = running.end()
    assert (code, out["digest"]) == (0, running.undisturbed["digest"])


@every_source
def test_a_file_that_is_deleted_under_a_run_is_read_on_or_missed_by_name(data, cached, tmp_path):
    with Running(data, cached, tmp_path) as running:
        data.names[1].unlink()
        code, out = running.end()
    if code != 0:  # it had not been opened, or had to be opened again
        assert (code, out["error"]["kind"], out["error"]["file"]) == (1, "data", str(data.names[1]))
        assert "was deleted since it was indexed" in out["error"]["message"]
    else:
        assert out["digest"] == running.undisturbed["digest"]


@pytest.mark.parametrize(
    ("data", "shared"),
    [
        ("tfrecord", True),
        ("text-gzip", True),
        ("tar", False),
        ("files", False),
        ("tfrecord-unverified", False),
    ],
    indirect=["data"],
)
def test_a_copy_shares_what_was_kept_where_the_file_key_covers_all(data, shared, tmp_path):
    ran = run(data.pipeline, *data.words(True))
    for path in [data.pipeline, *data.names]:
        (tmp_path / "copy").mkdir(exist_ok=True)
        shutil.copy2(path, tmp_path / "copy")
    wait_for(lambda: reads_the_cache(run(data.pipeline, *data.words(True))))
    copied = run(tmp_path / "copy" / "p.json", *data.words(True))
    assert copied["digest"] == ran["digest"]  # keys and order do not depend on times
    if shared:
        wait_for(lambda: reads_the_cache(run(tmp_path / "copy" / "p.json", *data.words(True))))
    else:
        assert copied["cache"]["hits"] == 0


@pytest.mark.parametrize("data", ["tfrecord", "text", "jsonl"], indirect=True)
def test_an_index_beside_a_copy_is_not_believed(data, tmp_path):
    """A copy with another content, and with the size and the modification time of the one that was indexed,
    as rsync -t and cp -p may leave it.
    """
    subprocess.run(
        words("index", *data.names, "--format", data.op["op"], "--sidecar"), check=True, capture_output=True
    )
    sidecar = data.names[1].with_suffix(".data.cwx")
    assert sidecar.exists()
    in_place(data.names[1], data.make)

    def records(name):
        run(data.pipeline, "--log", tmp_path / name, "--index-dir", tmp_path / f"{name}.index")
        return [json.loads(line)["records"] for line in (tmp_path / name).read_text().splitlines()]

    believed = records("first")
    sidecar.unlink()
    assert believed == records("second")
