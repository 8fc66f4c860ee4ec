"""The dispatcher's journal on a disk that is full or damaged, with daemons as processes."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from command import cachew  # noqa: E402
from daemons import Daemons  # noqa: E402
from deadlines import HANG_S, started, wait_for  # noqa: E402
from example_data import CACHEW  # noqa: E402

pytestmark = pytest.mark.usefixtures("patience")


@pytest.fixture
def daemons(tmp_path):
    d = Daemons(tmp_path)
    yield d
    d.end()


@pytest.fixture
def pipeline(tmp_path):
    path = tmp_path / "p.json"
    path.write_text(
        json.dumps({"cachew": 1, "pipeline": [{"op": "range", "stop": 1000}, {"op": "batch", "size": 10}]})
    )
    return path


def journal_error(state):
    """What `cachew dispatcher` says that can't begin with this journal."""
    ran = subprocess.run(
        [CACHEW, "dispatcher", "--listen", "127.0.0.1:0", "--state-dir", state],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert ran.returncode == 1, (ran.returncode, ran.stderr)
    return ran.stderr


def test_a_full_disk_is_named_to_the_client_that_waits(small_disk, daemons, pipeline):
    dispatcher = daemons.start(
        "dispatcher", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--state-dir", small_disk / "state"
    )
    daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "256M")
    with (small_disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(bytes(4096))
    with started(
        [CACHEW, "run", pipeline, "--service", dispatcher.address, "--job", "one"],
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        wait_for(
            lambda: any(
                j.get("held", "").startswith("the dispatcher can't write its journal")
                for j in dispatcher.json("/api/v1/jobs")
            )
        )
        said = next(line for line in job.stderr if "has waited" in line)
        assert "No space left on device" in dispatcher.get("/readyz")[1]
        (small_disk / "filler").unlink()
        assert job.wait(HANG_S) == 0
    assert (
        "the dispatcher can't write its journal" in said
        and f"{small_disk}/state/journal.db" in said
        and "No space left on device" in said
    )


def test_damaged_entries_are_logged_with_the_file_and_what_to_do(daemons, pipeline, tmp_path):
    words = ["--listen", "127.0.0.1:0", "--state-dir", tmp_path / "state"]
    dispatcher = daemons.start("dispatcher", *words)
    daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "256M")
    for job in ("one", "t\u202ewo\n"):
        assert cachew("run", pipeline, "--service", dispatcher.address, "--job", job, "--json").code == 0
    daemons.end()
    path = tmp_path / "state" / "journal.db"
    with sqlite3.connect(path) as db:
        db.execute("UPDATE entries SET value = x'00' || substr(value, 2) WHERE substr(key, 1, 1) = x'66'")
    db.close()
    dispatcher = daemons.start("dispatcher", *words)
    daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "256M")
    assert (
        f'{path}: the damaged entry of job "one" is left out (its checksum does not match): the job starts'
        in dispatcher.err
    )
    assert f'{path}: the damaged entry of job "t\\u202ewo\\n" is left out' in dispatcher.err
    assert (
        f"{path}: 2 damaged entries of the journal were left out" in dispatcher.err
        and "restore the file from a copy" in dispatcher.err
    )
    assert cachew("run", pipeline, "--service", dispatcher.address, "--job", "one", "--json").code == 0


def test_jobs_are_listed_in_columns_of_characters_with_whole_names(daemons, pipeline):
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "256M")
    names = ["plain", "€" * 10, "€" * 30]
    for name in names:
        assert cachew("run", pipeline, "--service", dispatcher.address, "--job", name, "--json").code == 0
    lines = cachew("jobs", "--service", dispatcher.address).out.splitlines()
    for name in names:
        line = next(x for x in lines if x.startswith(f"{name} "))
        assert line.index("done") == max(len(name), 24) + 1, lines


@pytest.mark.parametrize("damage", ["garbage", "half", "page"])
def test_a_damaged_file_is_named_with_what_to_do(daemons, pipeline, tmp_path, damage):
    words = ["--listen", "127.0.0.1:0", "--state-dir", tmp_path / "state"]
    dispatcher = daemons.start("dispatcher", *words)
    daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "256M")
    assert cachew("run", pipeline, "--service", dispatcher.address, "--job", "one", "--json").code == 0
    daemons.end()
    path = tmp_path / "state" / "journal.db"
    content = path.read_bytes()
    if damage == "garbage":
        path.write_bytes(b"\x55" * len(content))
    elif damage == "half":
        path.write_bytes(content[: len(content) // 2])
    else:  # the number of cells of the page that has the entries
        path.write_bytes(content[:4099] + b"\x00\x01" + content[4101:])
    said = journal_error(tmp_path / "state")
    assert f"{path}: the dispatcher's journal is damaged" in said and "restore the file from a copy" in said
