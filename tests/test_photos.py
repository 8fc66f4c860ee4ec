"""`cachew photos` and `cachew demo`: sets of photographs, and the run over them."""

import io
import json
import re
import signal
import subprocess

import numpy as np
import pytest
from command import cachew, run, write
from deadlines import HANG_S, wait_for
from example_data import CACHEW, generated_picture, jpeg
from PIL import Image

pytestmark = pytest.mark.usefixtures("own_index_dir", "patience")

COUNT = 40


def failed(done, code):
    assert done.code == code, (done.code, done.out, done.err)
    return done.err


def photos(*words, count=COUNT):
    done = cachew("photos", *words, "--count", count)
    assert done.code == 0, done.err
    return done.out


def files(directory):
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("photos") / "folder"
    photos(directory)
    return directory


def test_the_same_options_give_the_same_bytes(tmp_path, folder):
    photos(tmp_path / "one/", "--threads", 1)
    photos(tmp_path / "seed", "--seed", 1)
    assert files(tmp_path / "one") == files(folder)
    assert not set(files(tmp_path / "seed").values()) & set(files(folder).values())


def test_the_pictures_are_like_photographs(folder):
    pictures = {name: data for name, data in files(folder).items() if name.endswith(".jpg")}
    labels = {}
    for name, data in pictures.items():
        image = np.asarray(Image.open(io.BytesIO(data)))
        assert image.ndim == 3 and 300 <= min(image.shape[:2]) and max(image.shape[:2]) <= 640
        labels.setdefault(name.split("/")[0], []).append(image.mean((0, 1)))
    assert len(pictures) == COUNT and sorted(labels) == ["photo-000", "photo-001"]
    assert 30_000 < sum(map(len, pictures.values())) / COUNT < 150_000
    first, second = (np.mean(means, 0) for means in labels.values())
    assert np.abs(first - second).max() > 10  # each label has its own colours


def test_records_and_files_hold_the_same_pictures(tmp_path, folder):
    photos(tmp_path / "records", "--format", "tfrecord", "--shards", 3)
    assert len(list((tmp_path / "records").glob("photos-0000?-of-00003.tfrecord"))) == 3
    of_files = write(
        tmp_path / "files.json",
        [{"op": "image_folder", "root": str(folder)}, {"op": "drop", "components": ["path"]}],
    )
    of_records = write(
        tmp_path / "records.json",
        [
            {"op": "tfrecord", "files": str(tmp_path / "records" / "*.tfrecord")},
            {"op": "parse_example", "features": {"image": "bytes", "label": "int64"}},
        ],
    )
    results = [run(path, "--digest") for path in (of_files, of_records)]
    assert [r["elements"] for r in results] == [COUNT, COUNT]
    assert results[0]["set_digest"] == results[1]["set_digest"]


def test_a_set_is_made_once(folder):
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    assert f"has these {COUNT} pictures already" in photos(folder)
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before
    done = cachew("photos", folder, "--count", COUNT + 1)
    error = failed(done, 2)
    assert str(folder) in error and f'"count": {COUNT + 1}' in error and f'"count": {COUNT},' in error


def test_a_directory_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    assert "holds other files" in failed(cachew("photos", tmp_path, "--count", 5), 2)
    assert "expected a directory" not in failed(cachew("photos", tmp_path / "mine", "--count", 5), 2)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_pictures_are_cut_out_of_photographs(tmp_path):
    sources = tmp_path / "sources"
    (sources / "below").mkdir(parents=True)
    rng = np.random.default_rng(5)
    grain = [
        np.asarray(generated_picture(rng, 900, 1200)) // 2 + rng.integers(0, 120, (900, 1200, 1))
        for _ in "ab"
    ]
    (sources / "a.jpg").write_bytes(jpeg(Image.fromarray(grain[0].astype(np.uint8))))
    Image.fromarray(grain[1].astype(np.uint8)).save(sources / "below" / "b.png")
    (sources / "c.jpg").write_bytes(b"\xff\xd8\xff" + b"damaged" * 20)
    (sources / "d.txt").write_text("no photograph")
    done = cachew("photos", tmp_path / "set", "--count", 12, "--source", sources)
    assert done.code == 0, done.err
    assert re.search(r"c\.jpg: .*; left out", done.err)
    assert sorted(p.name for p in (tmp_path / "set").iterdir() if p.is_dir()) == ["photo-000", "photo-001"]

    (sources / "a.jpg").write_bytes(jpeg(Image.fromarray(np.full((900, 1200, 3), 90, np.uint8))))
    (sources / "below" / "b.png").unlink()
    done = cachew("photos", tmp_path / "flat", "--count", 12, "--source", sources)
    assert "give only 0 of 12 pictures" in failed(done, 1)
    (sources / "a.jpg").unlink()
    (sources / "c.jpg").unlink()
    done = cachew("photos", tmp_path / "none", "--count", 12, "--source", sources)
    assert f"--source {sources}: expected a directory with photographs" in failed(done, 2)
    assert not list(tmp_path.glob("*.partial")) and not (tmp_path / "flat").exists()


def test_an_interrupted_run_leaves_nothing(tmp_path):
    words = [CACHEW, "photos", tmp_path / "set", "--count", "10000000"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: (tmp_path / "set.partial").exists())
        process.send_signal(signal.SIGINT)
        assert "ended by SIGINT" in process.communicate(timeout=HANG_S)[1]
    assert process.returncode == 130 and not list(tmp_path.iterdir())


def test_processes_that_make_one_set_wait_for_each_other(tmp_path, folder):
    (tmp_path / "set.partial").mkdir()
    (tmp_path / "set.partial" / "left").write_text("of a run that was killed")
    words = [CACHEW, "photos", tmp_path / "set", "--count", str(COUNT), "--threads", "1", "--json"]
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    results = [json.loads(process.communicate(timeout=HANG_S)[0]) for process in processes]
    assert sorted(result["existed"] for result in results) == [False, True, True, True]
    assert files(tmp_path / "set") == files(folder) and len(list(tmp_path.iterdir())) == 1


def test_the_demo_is_the_command_that_it_prints(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = cachew("demo", "--count", COUNT, "--json")
    assert done.code == 0, done.err
    printed = re.search(r"^cachew: cachew (run .*)$", done.err, re.MULTILINE)[1].split()
    result = json.loads(done.out.splitlines()[-1])
    assert result["elements"] == 2 * COUNT and list((tmp_path / "cachew" / "demo").glob("*.png"))
    again = cachew(*printed)
    assert json.loads(again.out.splitlines()[-1])["digest"] == result["digest"]


def test_without_a_place_for_photographs(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for verb in ("photos", "demo"):
        assert "expected" in failed(cachew(verb, "--count", 5), 2)
