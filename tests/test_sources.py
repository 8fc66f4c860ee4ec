"""Sources of files with many records each, black box: what a run gives, and what it says of bad input."""

import gzip
import io
import json
import tarfile

import numpy as np
import pytest
from command import BATCH, SHUFFLE, cachew, failed, run, write

pytestmark = pytest.mark.usefixtures("own_index_dir")


def batches(pipeline, tmp_path, *words, components=()):
    """Rows of all batches in order: for each component a list (numbers as NumPy has them, bytes as bytes)."""
    out = tmp_path / "dump"
    run(pipeline, "--dump", out, *words)
    rows = {name: [] for name in components}
    for path in sorted(out.glob("*.npz")):
        with np.load(path) as batch:
            for name in components:
                if f"{name}.lengths" in batch:
                    data, at = batch[name].tobytes(), 0
                    for length in batch[f"{name}.lengths"]:
                        rows[name].append(data[at : at + int(length)])
                        at += int(length)
                else:
                    rows[name] += batch[name].tolist()
        path.unlink()
    return rows


@pytest.mark.parametrize(
    ("name", "chain"),
    [
        ("text", [{"op": "text", "files": "a"}, BATCH]),
        ("jsonl", [{"op": "jsonl", "files": "a", "features": {"id": "int64"}}, BATCH]),
        ("tar", [{"op": "tar", "files": "a", "components": {"bin": "bytes"}}, BATCH]),
    ],
)
def test_index_made_beforehand_is_used(tmp_path, name, chain):
    if name == "tar":
        shard(tmp_path / "a", range(5))
    else:
        json_lines(tmp_path / "a", map(good_line, range(5)))
    words = ["index", tmp_path / "a", "--format", name, "--sidecar", "--json"]
    first, second = cachew(*words), cachew(*words)
    assert first.code == second.code == 0
    assert first.json["indexed"] == 1 and second.json["reused"] == 1 and second.json["records"] == 5
    pipeline = write(tmp_path / "p.json", chain)
    index = tmp_path / "a.cwx"
    assert run(pipeline, "--index-dir", tmp_path / "none")["elements"] == 5
    assert not (tmp_path / "none").exists()  # the sidecar did
    index.write_bytes(index.read_bytes()[:-1])
    assert run(pipeline, "--index-dir", tmp_path / "none")["elements"] == 5
    assert (tmp_path / "none").exists()


# ---- names of files ----


def test_patterns_of_shells(tmp_path):
    for name in ("a-008", "a-009", "a-010", "deep/er/b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    pipeline = write(
        tmp_path / "p.json", [{"op": "text", "files": ["a-{010..008}", "**/b", "~/a-009"]}, BATCH]
    )
    out = tmp_path / "dump"
    assert cachew("run", pipeline, "--dump", out, env={"HOME": str(tmp_path)}).code == 0
    with np.load(out / "00000000.npz") as batch:
        assert batch["text"].tobytes() == b"a-010a-009a-008deep/er/ba-009"


def test_an_address_that_is_no_path(tmp_path):
    error = failed(write(tmp_path / "p.json", [{"op": "text", "files": ["ftp://host/a/b/c"]}, BATCH]), 2)
    assert (
        error["kind"] == "pipeline" and error["attribute"] == "files" and "copy the files" in error["message"]
    )


# ---- text ----

LINES = [b"first", b"", b"third \xff\x00", b"last"]


@pytest.mark.parametrize(("name", "pack"), [("a.txt", bytes), ("a.txt.gz", gzip.compress)])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_text_is_lines(tmp_path, name, pack, end):
    (tmp_path / name).write_bytes(pack(end.join(LINES)))
    pipeline = write(tmp_path / "p.json", [{"op": "text", "files": name}, BATCH])
    assert batches(pipeline, tmp_path, components=["text"])["text"] == LINES


def test_text_without_any_line(tmp_path):
    (tmp_path / "empty.txt").touch()
    assert run(write(tmp_path / "p.json", [{"op": "text", "files": "empty.txt"}, BATCH]))["batches"] == 0


def test_text_of_the_same_lines_in_another_file_has_other_records(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"same\n")
    (tmp_path / "b.txt").write_bytes(b"same\n")
    run(
        write(tmp_path / "p.json", [{"op": "text", "files": ["a.txt", "b.txt"]}, BATCH]),
        "--log",
        tmp_path / "log",
    )
    records = json.loads((tmp_path / "log").read_text().splitlines()[0])["records"]
    assert len(set(records)) == 2


def test_text_with_a_line_that_is_too_long(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"short\n" + b"x" * 5000 + b"\nshort\n")
    chain = [{"op": "text", "files": "a.txt", "max_line": 100}, BATCH]
    error = failed(write(tmp_path / "p.json", chain), 1)
    assert error["kind"] == "record" and error["file"].endswith("a.txt")
    assert "line 2 has 5000 bytes: expected at most max_line, 100" in error["message"]
    assert run(write(tmp_path / "p.json", chain, on_error="skip"))["elements"] == 2


def test_text_in_a_gzip_file_cut_off(tmp_path):
    packed = gzip.compress(b"line\n" * 10000, mtime=0)
    (tmp_path / "a.gz").write_bytes(packed[:-20])
    error = failed(write(tmp_path / "p.json", [{"op": "text", "files": "a.gz"}, BATCH]), 1)
    assert error["kind"] == "data" and error["file"].endswith("a.gz")


@pytest.mark.parametrize("source", ["text", "jsonl", "tar", "tfrecord"])
@pytest.mark.parametrize(
    ("codec", "data"),
    [
        ("lz4", b"\x04\x22\x4d\x18\x64\x40\xa7line\n"),
        ("zip", b"PK\x03\x04\x14\x00\x00\x00line\n"),
        ("7-Zip", b"7z\xbc\xaf\x27\x1c\x00\x04line\n"),
    ],
)
def test_a_compression_that_can_not_be_read_is_named(tmp_path, source, codec, data):
    """Once, the bytes of such a file were read as lines of text."""
    (tmp_path / "a.data").write_bytes(data)
    more = {"jsonl": {"features": {"id": "int64"}}, "tar": {"components": {"bin": "bytes"}}}.get(source, {})
    error = failed(write(tmp_path / "p.json", [{"op": source, "files": "a.data", **more}, BATCH]), 1)
    assert error["kind"] == "data" and error["file"].endswith("a.data")
    assert f"compressed with {codec}, which can't be read" in error["message"]


def test_text_file_that_changes_is_indexed_again(tmp_path):
    pipeline = write(tmp_path / "p.json", [{"op": "text", "files": "a.txt"}, BATCH])
    (tmp_path / "a.txt").write_bytes(b"a\nb\n")
    state = tmp_path / "state"
    assert run(pipeline, "--state", state, "--batches", "1")["elements"] == 2
    (tmp_path / "a.txt").write_bytes(b"a\nB\n")  # another content of the same size
    error = failed(pipeline, 2, "--state", state)
    assert error["kind"] == "state"
    assert batches(pipeline, tmp_path, components=["text"])["text"] == [b"a", b"B"]


# ---- jsonl ----

FEATURES = {
    "id": "int64",
    "name": {"dtype": "bytes", "default": "nobody"},
    "v": {"dtype": "float32", "shape": [2, 2]},
}


def json_lines(path, lines):
    path.write_text("".join(line + "\n" for line in lines))


def good_line(i):
    return json.dumps(
        {"id": i, "name": None if i % 3 == 0 else f"n\u00e4me {i}\n", "v": [[i, 0.5], [-1, 1e3]]}
    )


def jsonl_chain(*ops, **attributes):
    return [{"op": "jsonl", "files": "a.jsonl", "features": FEATURES, **attributes}, *ops, BATCH]


def test_jsonl_gives_components(tmp_path):
    json_lines(tmp_path / "a.jsonl", map(good_line, range(10)))
    rows = batches(write(tmp_path / "p.json", jsonl_chain()), tmp_path, components=["id", "name", "v"])
    assert rows["id"] == list(range(10))
    assert rows["name"] == [b"nobody" if i % 3 == 0 else f"n\u00e4me {i}\n".encode() for i in range(10)]
    assert rows["v"] == [[[i, 0.5], [-1, 1e3]] for i in range(10)]


BAD_LINES = {
    "syntax": ('{"id": 5, "v": [[1, 2], [3, 4]]', "malformed JSON: expected"),
    "no object": ("[5]", "malformed JSON: expected an object"),
    "empty": ("", "expected an object, but the text is empty"),
    "not UTF-8": ('{"id": 5, "name": "\udcff", "v": [[1, 2], [3, 4]]}', "not UTF-8"),
    "fraction": ('{"id": 1.5, "v": [[1, 2], [3, 4]]}', '"id" holds 1.5, which is not an integer for int64'),
    "out of range": ('{"id": 9223372036854775808, "v": [[1, 2], [3, 4]]}', "out of range for int64"),
    "missing": ('{"v": [[1, 2], [3, 4]]}', '"id" (int64) is missing'),
    "null": ('{"id": null, "v": [[1, 2], [3, 4]]}', '"id" (int64) is null'),
    "another type": ('{"id": "5", "v": [[1, 2], [3, 4]]}', '"id" holds a string, expected int64'),
    "shape": ('{"id": 5, "v": [[1, 2], [3]]}', '"v" has an array of 1 values where 2 are expected'),
    "deep": ('{"id": 5, "v": ' + "[" * 100000 + "]" * 100000 + "}", "nested too deeply"),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_jsonl_with_a_bad_line_in_the_middle(tmp_path, kind):
    line, reason = BAD_LINES[kind]
    lines = [good_line(i) if i != 5 else line for i in range(10)]
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    error = failed(write(tmp_path / "p.json", jsonl_chain()), 1)
    assert error["kind"] == "record" and error["operator"] == "jsonl"
    assert error["file"].endswith("a.jsonl") and error["record"].endswith(":5")
    assert "line 6: " in error["message"] and reason in error["message"]
    rows = batches(write(tmp_path / "p.json", jsonl_chain(), on_error="skip"), tmp_path, components=["id"])
    assert rows["id"] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    ran = run(write(tmp_path / "p.json", jsonl_chain(), on_error="replace"))
    assert ran["elements"] == 10 and ran["replaced"] == 1


def test_jsonl_reads_only_what_somebody_needs(tmp_path):
    json_lines(tmp_path / "a.jsonl", ['{"id": 1, "v": "nonsense"}'])
    chain = jsonl_chain({"op": "select", "components": ["id"]})
    assert batches(write(tmp_path / "p.json", chain), tmp_path, components=["id"])["id"] == [1]


def test_jsonl_shuffled_is_the_same_set(tmp_path):
    json_lines(tmp_path / "a.jsonl", map(good_line, range(300)))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes(), mtime=0))
    for name in ("a.jsonl", "b.jsonl.gz"):
        chain = jsonl_chain(SHUFFLE, files=name)
        rows = batches(write(tmp_path / "p.json", chain), tmp_path, "--seed", "3", components=["id"])
        assert rows["id"] != sorted(rows["id"]) and sorted(rows["id"]) == list(range(300))


def test_jsonl_features_are_checked(tmp_path):
    error = failed(write(tmp_path / "p.json", jsonl_chain(features={"id": "int65"})), 2)
    assert error["operator"] == "jsonl" and error["attribute"] == "features"


# ---- tar ----

COMPONENTS = {
    "key": {"key": "__key__", "dtype": "bytes"},
    "label": {"key": "cls", "dtype": "uint8"},
    "data": {"key": "png;bin", "dtype": "bytes"},
}
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def add_member(tar, name, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    tar.addfile(info, io.BytesIO(data))


def shard(path, samples, form=tarfile.USTAR_FORMAT, directory=""):
    """Samples number, number + 1, ... with a label and some bytes."""
    with tarfile.open(path, "w", format=form) as tar:
        for i in samples:
            add_member(tar, f"{directory}{i:05}.bin", bytes([i % 256]) * (i * 37 % 1500))
            add_member(tar, f"{directory}{i:05}.cls", f"{i % 256}\n".encode())
    return path.read_bytes()


def tar_chain(*ops, files="a.tar", components=COMPONENTS, **attributes):
    return [{"op": "tar", "files": files, "components": components, **attributes}, *ops, BATCH]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("directory", ["", "d/", "x" * 120 + "/" + "y" * 30 + "/", "\u00e4" * 20 + "/"])
def test_tar_of_every_format(tmp_path, form, directory):
    if form == "ustar" and not directory.isascii():
        pytest.skip("ustar has no such names")
    shard(tmp_path / "a.tar", range(40), FORMATS[form], directory)
    rows = batches(write(tmp_path / "p.json", tar_chain()), tmp_path, components=["key", "label", "data"])
    assert rows["key"] == [f"{directory}{i:05}".encode() for i in range(40)]
    assert rows["label"] == list(range(40))
    assert rows["data"] == [bytes([i]) * (i * 37 % 1500) for i in range(40)]


def test_tar_shuffled_plain_and_compressed(tmp_path):
    packed = gzip.compress(shard(tmp_path / "a.tar", range(500)), mtime=0)
    (tmp_path / "b.tar.gz").write_bytes(packed)
    for name in ("a.tar", "b.tar.gz"):
        chain = tar_chain(SHUFFLE, files=name)
        rows = batches(
            write(tmp_path / "p.json", chain), tmp_path, "--seed", "3", components=["key", "label"]
        )
        assert rows["key"] != sorted(rows["key"]) and sorted(rows["key"]) == [b"%05d" % i for i in range(500)]
        assert rows["label"] == [int(key) % 256 for key in rows["key"]]


def test_tar_passes_over_directories_links_and_files_without_extension(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add_member(tar, "d.1", type=tarfile.DIRTYPE)
        add_member(tar, "0.cls", b"1")
        add_member(tar, "README", b"text")
        add_member(tar, "0.link", type=tarfile.SYMTYPE, linkname="../../etc/passwd")
        add_member(tar, "0.bin", b"data")
        add_member(tar, "1.cls", b"2")
        add_member(tar, "1.bin", b"more")
    rows = batches(write(tmp_path / "p.json", tar_chain()), tmp_path, components=["key", "label", "data"])
    assert rows == {"key": [b"0", b"1"], "label": [1, 2], "data": [b"data", b"more"]}


def test_tar_numpy_members(tmp_path):
    values = np.arange(6, dtype="<f4").reshape(2, 3)
    out = io.BytesIO()
    np.save(out, values)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add_member(tar, "0.x.npy", out.getvalue())
    good = {"x": {"key": "x.npy", "dtype": "float32", "shape": [2, 3]}}
    assert batches(write(tmp_path / "p.json", tar_chain(components=good)), tmp_path, components=["x"])[
        "x"
    ] == [values.tolist()]
    for wrong, text in (
        ({"shape": [3, 2]}, "is float32[2,3], expected float32[3,2]"),
        ({"dtype": "float64"}, "is float32[2,3], expected float64[2,3]"),
    ):
        error = failed(write(tmp_path / "p.json", tar_chain(components={"x": {**good["x"], **wrong}})), 1)
        assert error["kind"] == "record" and text in error["message"]


def test_tar_with_a_bad_sample_in_the_middle(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(10):
            add_member(tar, f"{i}.cls", b"256" if i == 5 else b"%d" % i)
    components = {"label": {"key": "cls", "dtype": "uint8"}}
    error = failed(write(tmp_path / "p.json", tar_chain(components=components)), 1)
    assert error["kind"] == "record" and error["operator"] == "tar" and error["file"].endswith("a.tar")
    assert 'sample "5": "cls" holds "256", which is out of range for uint8' in error["message"]
    rows = batches(
        write(tmp_path / "p.json", tar_chain(components=components), on_error="skip"),
        tmp_path,
        components=["label"],
    )
    assert rows["label"] == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def bad_tar(tmp_path, data, *parts):
    (tmp_path / "a.tar").write_bytes(data)
    error = failed(write(tmp_path / "p.json", tar_chain()), 1)
    assert error["kind"] == "data" and error["file"].endswith("a.tar") and error["operator"] == "tar"
    for part in ("a.tar: the member at byte ", *parts):
        assert part in error["message"]


def test_tar_truncated(tmp_path):
    data = shard(tmp_path / "a.tar", range(3))
    used = len(data.rstrip(b"\0"))
    for cut in (0, 100, 512, 1000, 2000, used // 512 * 512, used):
        bad_tar(tmp_path, data[:cut], "truncated")


def test_tar_truncated_and_compressed(tmp_path):
    data = shard(tmp_path / "a.tar", range(3))
    bad_tar(tmp_path, gzip.compress(data[:2000], mtime=0), "truncated")


def test_tar_with_a_flipped_bit_in_a_header(tmp_path):
    data = bytearray(shard(tmp_path / "a.tar", range(3)))
    data[512 + 3] ^= 4
    bad_tar(tmp_path, bytes(data), "byte 512: the checksum of its header does not match")


def test_not_a_tar(tmp_path):
    bad_tar(
        tmp_path,
        b"This is a text and nothing else.\n" * 100,
        "byte 0: the checksum of its header",
        "not a tar archive",
    )


@pytest.mark.parametrize("name", ["../x.cls", "a/../../x.cls", "/etc/passwd.cls", "..", "a/.."])
@pytest.mark.parametrize("form", FORMATS)
def test_tar_with_a_member_name_escaping_its_directory(tmp_path, name, form):
    with tarfile.open(tmp_path / "a.tar", "w", format=FORMATS[form]) as tar:
        add_member(tar, "0.cls", b"1")
        add_member(tar, name, b"2")
    bad_tar(tmp_path, (tmp_path / "a.tar").read_bytes(), f'its name "{name}" ')


def test_tar_with_a_size_beyond_the_file(tmp_path):
    data = bytearray(shard(tmp_path / "a.tar", range(3)))
    info = tarfile.TarInfo("0.cls")
    for size in (1 << 20, 8 << 30, 1 << 60):  # the last two in base 256
        info.size = size
        data[:512] = info.tobuf(tarfile.GNU_FORMAT)[:512]
        bad_tar(tmp_path, bytes(data), f"byte 0: its {size} bytes of data run past the end of the file")


def test_tar_with_a_negative_size_in_base_256(tmp_path):
    data = bytearray(shard(tmp_path / "a.tar", range(3)))
    data[124:136] = b"\xff" * 12
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    bad_tar(tmp_path, bytes(data), "its size is not a number below 2^62")


def test_tar_with_a_sparse_file_and_devices(tmp_path):
    for kind, text in (
        (tarfile.GNUTYPE_SPARSE, "a sparse file"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.FIFOTYPE, "a named pipe"),
    ):
        with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as tar:
            add_member(tar, "0.cls", type=kind)
        bad_tar(tmp_path, (tmp_path / "a.tar").read_bytes(), f"byte 0: it is {text}")


def test_several_tars_in_one_file(tmp_path):
    data = shard(tmp_path / "a.tar", range(3))
    bad_tar(tmp_path, data + data, f"byte {len(data)}: there are data after the end of the archive")
