"""cachew.demo: the photographs of the quickstart."""

import json
import subprocess

import cachew
import cachew.demo
import pytest

COUNT = 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "cachew"


def test_the_quickstart_is_the_demo_of_the_command(cache, command):
    directory = cachew.demo.photos(COUNT)
    assert directory == str(cache / f"photos-{COUNT}")
    ds = (
        cachew.Dataset.image_folder(directory)
        .decode_image("image")
        .random_resized_crop("image", size=(224, 224))
        .random_flip("image")
        .shuffle()
        .batch(64)
    )
    digest = sum(batch.hash() for batch in ds.iterator(epochs=2)) % 2**128
    ran = subprocess.run(
        [command, "demo", "--count", str(COUNT), "--json"], check=True, capture_output=True, text=True
    )
    assert json.loads(ran.stdout.splitlines()[-1])["digest"] == f"{digest:032x}"
    assert "from an earlier run" in ran.stderr


def test_a_directory_of_ones_own(tmp_path):
    directory = tmp_path / "-mine"
    assert cachew.demo.photos(3, directory) == str(directory)
    made = directory.stat().st_mtime_ns
    assert cachew.demo.photos(3, directory) == str(directory) and directory.stat().st_mtime_ns == made
    assert len(list(directory.rglob("*.jpg"))) == 3


def test_errors(tmp_path):
    with pytest.raises(cachew.OptionError, match="count"):
        cachew.demo.photos(0)
    (tmp_path / "mine").touch()
    with pytest.raises(cachew.OptionError, match="holds other files") as caught:
        cachew.demo.photos(3, tmp_path)
    assert caught.value.attribute == "DIR" and caught.value.value == str(tmp_path)
