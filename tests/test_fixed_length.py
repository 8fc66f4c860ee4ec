"""The source fixed_length, black box."""

import random

import pytest
from command import BATCH, SHUFFLE, failed, run, write
from rows import read_rows

pytestmark = pytest.mark.usefixtures("own_index_dir")


def source(**given):
    return {"op": "fixed_length", "files": "*.bin", **given}


def write_files(tmp_path, records, size, header, footer):
    rng = random.Random(7)
    found = []
    for k, n in enumerate(records):
        rows = [rng.randbytes(size) for _ in range(n)]
        found += rows
        (tmp_path / f"{k}.bin").write_bytes(rng.randbytes(header) + b"".join(rows) + rng.randbytes(footer))
    return found


@pytest.mark.parametrize(("size", "header", "footer"), [(1, 0, 0), (7, 16, 3), (5000, 0, 1)])
def test_records_in_order_and_shuffled(tmp_path, size, header, footer):
    wanted = write_files(tmp_path, [3, 0, 1500], size, header, footer)
    layout = {"record_bytes": size, "header_bytes": header, "footer_bytes": footer}
    pipeline = write(tmp_path / "p.json", [source(**layout), BATCH])
    assert read_rows(pipeline, tmp_path) == {"record": wanted}
    plain = run(pipeline, "--digest")
    for by in ("record", "chunk"):
        chain = [source(**layout), {**SHUFFLE, "by": by}, BATCH]
        digests = [run(write(tmp_path / "s.json", chain), "--digest", "--threads", n) for n in (1, 3)]
        assert digests[0]["digest"] == digests[1]["digest"] != plain["digest"]
        assert digests[0]["set_digest"] == plain["set_digest"]


def test_a_size_that_does_not_fit(tmp_path):
    write_files(tmp_path, [3], 7, 0, 0)
    for layout, words in (
        ({"record_bytes": 5}, ["0.bin has 21 bytes", "record_bytes = 5"]),
        ({"record_bytes": 7, "header_bytes": 3}, ["header_bytes + footer_bytes = 3"]),
        ({"record_bytes": 7, "header_bytes": 20, "footer_bytes": 8}, ["header_bytes + footer_bytes = 28"]),
    ):
        error = failed(write(tmp_path / "p.json", [source(**layout), BATCH]), 1)
        assert error["kind"] == "data" and all(word in error["message"] for word in words), error["message"]


@pytest.mark.parametrize("given", [{}, {"record_bytes": 0}, {"record_bytes": 1, "header_bytes": -1}])
def test_attributes_are_checked(tmp_path, given):
    (tmp_path / "0.bin").write_bytes(b"1")
    error = failed(write(tmp_path / "p.json", [source(**given), BATCH]), 2)
    assert error["operator"] == "fixed_length" and "bytes" in error["message"]


def test_another_layout_has_another_cache(tmp_path):
    """An entry is of records with the layout, not of the file's rows alone."""
    (tmp_path / "0.bin").write_bytes(bytes(range(240)))
    for size in (8, 16):
        chain = [source(record_bytes=size), {"op": "cache"}, BATCH]
        pipeline = write(tmp_path / "p.json", chain)
        words = ("--cache-dir", tmp_path / "cache")
        plain = run(write(tmp_path / "q.json", [source(record_bytes=size), BATCH]), "--digest")
        assert run(pipeline, "--digest", *words)["digest"] == plain["digest"]
        assert run(pipeline, "--digest", *words)["digest"] == plain["digest"]
