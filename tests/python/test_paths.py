"""Names of files as people type them: patterns, home directories, and what no path is; and the exceptions for
files that are missing or may not be read.
"""

import pickle
from pathlib import Path

import pytest
from function_runs import run_python

import cachew
from cachew import Dataset

WITHOUT_RIGHTS = """
import ctypes, sys
# root may read every file, unless it gives up this right; for others nothing changes
assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0
import cachew
try:
    len(cachew.Dataset.files(sys.argv[1]))
except PermissionError as error:
    print(type(error).__name__, error.errno, isinstance(error, cachew.StorageError), error)
"""


def names(ds):
    return [bytes(batch["path"]).decode() for batch in ds.iterator()]


@pytest.fixture()
def shards(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("train/b-008", "train/b-009", "train/b-010", "val/b-008", "deep/1/2/b-1", "home/x", "{1,2}"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("train/b-{008..010}", ["b-008", "b-009", "b-010"]),
        ("{val,train}/b-*", ["val/b-008", "train/b-008", "train/b-009", "train/b-010"]),
        ("**/b-008", ["train/b-008", "val/b-008"]),
        ("deep/**/b*", ["1/2/b-1"]),
        ("~/x", ["x"]),
        ("{1,2}", ["{1,2}"]),
    ],
)
def test_patterns(shards, pattern, expected):
    assert names(Dataset.files(pattern)) == expected
    assert [bytes(b["text"]).decode() for b in Dataset.text(pattern).iterator()]  # another source of files


def test_home_directories_in_a_saved_pipeline(shards):
    Dataset.files("~/x").save(shards / "val/p.json")
    assert "~/x" in (shards / "val/p.json").read_text()
    assert names(Dataset.load(shards / "val/p.json")) == ["x"]
    (shards / "home/classes/one").mkdir(parents=True)
    (shards / "home/classes/one/i.jpg").write_bytes(b"")
    assert len(Dataset.image_folder("~/classes")) == 1


def test_a_number_without_a_file_is_an_error(shards):
    with pytest.raises(FileNotFoundError, match="no file matches .*/train/b-011$"):
        len(Dataset.files("train/b-{008..011}"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: len(Dataset.tfrecord("none-*.tfrecord")),
        lambda: len(Dataset.image_folder("none")),
        lambda: Dataset.load("none.json"),
        lambda: cachew.load_plugin("./none.so"),
    ],
)
def test_what_is_missing_is_a_file_not_found(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="none") as caught:
        make()
    assert isinstance(caught.value, cachew.Error) and caught.value.errno == 2
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and str(again) == str(caught.value)


def test_a_missing_file_stays_a_pipeline_error(tmp_path):
    with pytest.raises(cachew.PipelineError, match="^no file matches") as caught:
        len(Dataset.text(tmp_path / "none"))
    assert isinstance(caught.value, ValueError) and caught.value.kind == "pipeline"


def test_a_file_that_may_not_be_read(tmp_path):
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0)
    done = run_python(WITHOUT_RIGHTS, str(path))
    assert done.stdout.startswith("StoragePermissionError 13 True"), done.stdout + done.stderr
    assert "secret" in done.stdout


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("file:///data/a.tar", "leave out file://"),
        ("ftp://host/a", "copy the files"),
        ("C:\\data\\a.tar", "/mnt/c"),
        ("d:/data/a.tar", "/mnt/c"),
    ],
)
def test_what_is_no_path_of_this_system(path, instead):
    for make in (Dataset.tfrecord, lambda p: Dataset.text(["good", p]), Dataset.image_folder):
        with pytest.raises(cachew.PipelineError) as caught:
            make(path)
        assert instead in str(caught.value) and caught.value.attribute in ("files", "root")


def test_strange_names_are_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a:b", "c:", "x~", "{", "a,b}"):
        Path(name).write_text("1")
        assert names(Dataset.files(name)) == [name]
