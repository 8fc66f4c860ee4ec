"""Compressed sources, black box: what a run gives of each compression, and what it says of bad files."""

import io
import lzma
import re
import tarfile

import make_data
import compressed
import pytest
from command import BATCH, SHUFFLE, cachew, failed, run, write

pytestmark = pytest.mark.usefixtures("own_index_dir")
CODECS = [*compressed.PACK]
DETECTED = [codec for codec in CODECS if codec != "zlib"]  # in texts
MASK = (1 << 128) - 1


def lines(n):
    return b"".join(b"%d %s\n" % (i, b"%x" % (i * 2654435761 % 2**32) * (i % 90)) for i in range(n))


def tar(n):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for i in range(n):
            member = tarfile.TarInfo(f"{i:05}.bin")
            member.size = 100 + i % 7
            archive.addfile(member, io.BytesIO(b"%c" % (i % 256) * member.size))
    return out.getvalue()


SOURCES = {
    "text": ({"op": "text"}, lines),
    "jsonl": (
        {"op": "jsonl", "features": {"id": "int64"}},
        lambda n: b"".join(b'{"id": %d}\n' % i for i in range(n)),
    ),
    "tar": ({"op": "tar", "components": {"bin": "bytes"}}, tar),
    "tfrecord": (
        {"op": "tfrecord"},
        lambda n: b"".join(make_data.record(b"%d" % i * (i % 50)) for i in range(n)),
    ),
}


def text(path, data, *operators, **attributes):
    """Writes a file and a pipeline that reads its lines; returns the pipeline's path."""
    path.write_bytes(data)
    chain = [{"op": "text", "files": path.name, **attributes}, *operators, BATCH]
    return write(path.with_suffix(".json"), chain)


def added(*digests):
    return f"{sum(int(d, 16) for d in digests) & MASK:032x}"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("source", SOURCES)
def test_gives_what_the_plain_file_gives(tmp_path, source, codec):
    """Read in order, from one member and from several, with the compression named."""
    op, make = SOURCES[source]
    data = make(700)
    (tmp_path / "plain").write_bytes(data)
    (tmp_path / "one").write_bytes(compressed.packed(codec, data))
    (tmp_path / "many").write_bytes(compressed.packed(codec, data, len(data) // 5))
    (tmp_path / "tiny").write_bytes(
        compressed.packed(codec, data[: data.index(data[:1], 1)], 3)
        + compressed.packed(codec, data[data.index(data[:1], 1) :])
    )
    digests = {
        name: run(
            write(tmp_path / "p.json", [{**op, "files": name, "compression": compression}, BATCH]), "--digest"
        )["digest"]
        for name, compression in (("plain", "none"), ("one", codec), ("many", codec), ("tiny", codec))
    }
    assert len(set(digests.values())) == 1, digests


@pytest.mark.parametrize("codec", DETECTED)
def test_is_detected(tmp_path, codec):
    data = lines(100)
    plain = run(text(tmp_path / "plain", data), "--digest")["digest"]
    for name, more in (("packed", b""), ("empty-first", compressed.packed(codec, b""))):
        assert (
            run(text(tmp_path / name, more + compressed.packed(codec, data)), "--digest")["digest"] == plain
        )


def test_a_frame_without_data_is_passed_over(tmp_path):
    """pzstd writes one before each frame."""
    data = lines(100)
    frames = b"".join(
        compressed.SKIPPABLE + compressed.zstd(piece) for piece in compressed.pieces(data, 1000)
    )
    plain = run(text(tmp_path / "plain", data), "--digest")["digest"]
    assert run(text(tmp_path / "packed", frames + compressed.SKIPPABLE), "--digest")["digest"] == plain


@pytest.mark.parametrize("codec", CODECS)
def test_zero_bytes_after_the_data_are_passed_over(tmp_path, codec):
    data = lines(100)
    plain = run(text(tmp_path / "plain", data), "--digest")["digest"]
    path = text(tmp_path / "packed", compressed.packed(codec, data) + bytes(512), compression=codec)
    assert run(path, "--digest")["digest"] == plain


def test_xz_streams_may_have_zero_bytes_between_them(tmp_path):
    data = lines(100)
    one, two = map(compressed.PACK["xz"], (data[:999], data[999:]))
    plain = run(text(tmp_path / "plain", data), "--digest")["digest"]
    assert run(text(tmp_path / "packed", one + bytes(8) + two), "--digest")["digest"] == plain


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("members", [1, 7])
def test_shuffled_and_resumed(tmp_path, codec, members):
    """Several chunks, read in another order and by several threads: the digest is that of zlib's file. A run
    that stops and resumes gives the rest.
    """
    data = lines(6_000)
    reference = text(tmp_path / "reference", compressed.packed("zlib", data), SHUFFLE, compression="zlib")
    wanted = run(reference, "--digest", "--seed", 5)
    size = -(-len(data) // members)
    path = text(tmp_path / "packed", compressed.packed(codec, data, size), SHUFFLE, compression=codec)
    words = ["--digest", "--seed", 5, "--state", tmp_path / "state"]
    begun = run(path, *words, "--batches", wanted["batches"] // 3)
    rest = run(path, *words, "--threads", 3)
    assert added(begun["digest"], rest["digest"]) == wanted["digest"]
    assert begun["elements"] + rest["elements"] == wanted["elements"] == 6_000


@pytest.mark.parametrize("codec", CODECS)
def test_one_record_is_read_by_itself(tmp_path, codec):
    """A record in the middle: decompression begins at a restart point, where the file has one."""
    data = lines(6_000)
    path = text(
        tmp_path / "packed",
        compressed.packed(codec, data, 300_000),
        {"op": "skip", "count": 4_000},
        {"op": "take", "count": 3},
        compression=codec,
    )
    run(path, "--dump", tmp_path / "dump")
    want = data.splitlines()[4_000:4_003]
    (dumped,) = (tmp_path / "dump").glob("*.npz")
    assert b"".join(want) in dumped.read_bytes()


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_file_is_named_with_the_place(tmp_path, codec):
    data = lines(2000)
    good = compressed.packed(codec, data)
    for at in (len(good) // 3, len(good) // 2, len(good) - 3):
        bad = bytearray(good)
        bad[at] ^= 0x20
        error = failed(text(tmp_path / "a.data", bytes(bad), compression=codec), 1)
        assert error["kind"] == "data" and error["file"].endswith("a.data"), error
        assert f"a.data: damaged {codec} data near byte " in error["message"], error
    error = failed(text(tmp_path / "a.data", good + b"other data, no member", compression=codec), 1)
    found = re.search(rf"a\.data: damaged {codec} data near byte (\d+) of the file", error["message"])
    assert found and len(good) <= int(found[1]) <= len(good) + 12, error
    if codec != "xz":
        error = failed(text(tmp_path / "a.data", good + b"\0\0other", compression=codec), 1)
        assert f"a.data: other data after the {codec} data, at byte {len(good) + 2}" in error["message"]


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_that_is_cut_is_named_with_the_place(tmp_path, codec):
    """Also where the cut is in the second member."""
    data = lines(2000)
    good = compressed.packed(codec, data, len(data) // 2 + 1)
    second = len(compressed.packed(codec, data[: len(data) // 2 + 1]))
    for cut in (second // 2, second - 1, second + 5, (second + len(good)) // 2, len(good) - 1):
        error = failed(text(tmp_path / "a.data", good[:cut], compression=codec), 1)
        assert error["kind"] == "data" and error["file"].endswith("a.data"), error
        assert f"a.data: the file ends at byte {cut} inside its {codec} data" in error["message"], error


@pytest.mark.parametrize("codec", CODECS)
def test_a_plain_file_is_not_of_the_named_compression(tmp_path, codec):
    error = failed(text(tmp_path / "a.data", b"a text\n" * 20, compression=codec), 1)
    assert error["kind"] == "data" and f"damaged {codec} data near byte " in error["message"], error


def large_window(codec):
    """A file of one line that takes 64 MiB to decompress."""
    if codec == "zstd":
        return compressed.zstd_stored(b"line\n", 26)
    return lzma.compress(b"line\n", preset=9)


@pytest.mark.parametrize("codec", ["zstd", "xz"])
def test_a_window_larger_than_the_memory_budget(tmp_path, codec):
    """When the file is indexed, and when the index, which then exists, says what reading takes."""
    path = text(tmp_path / "a.data", large_window(codec))
    error = failed(path, 2, "--memory", "64M")
    assert (error["kind"], error["attribute"]) == ("budget", "memory") and error["file"].endswith("a.data")
    taken = (64 << 20) + (1 << 20)
    assert (
        f"decompressing the {codec} data of " in error["message"] and "a.data (at byte " in error["message"]
    )
    assert error["message"].endswith(f"takes {taken} bytes; expected at least {taken}")
    assert error["value"] == str(64 << 20) and error["expected"] == f"at least {taken} bytes"
    assert run(path, "--memory", 2 * taken)["elements"] == 1
    error = failed(path, 2, "--memory", "64M")
    assert (error["kind"], error["attribute"]) == ("budget", "memory")
    assert run(path, "--memory", error["expected"].split()[2])["elements"] == 1


def test_a_window_of_terabytes(tmp_path):
    error = failed(text(tmp_path / "a.data", compressed.zstd_stored(b"line\n", 41)), 2)
    assert error["kind"] == "budget" and str((1 << 41) + (1 << 20)) in error["message"], error


def test_files_with_large_windows_are_indexed_one_at_a_time(tmp_path):
    """Each takes more than its share of the memory budget, and all of them together more than the budget."""
    for k in range(6):
        (tmp_path / f"{k}.data").write_bytes(large_window("xz"))
    path = write(tmp_path / "p.json", [{"op": "text", "files": "*.data"}, BATCH])
    assert run(path, "--memory", "100M", "--threads", 6)["elements"] == 6


@pytest.mark.parametrize("codec", ["zstd", "bzip2", "xz"])
def test_the_index_is_used_again(tmp_path, codec):
    """Whether the compression was detected or named."""
    data = lines(5000)
    (tmp_path / "a.data").write_bytes(compressed.packed(codec, data, 50_000))
    words = ["index", tmp_path / "a.data", "--format", "text", "--sidecar", "--json"]
    first, again = cachew(*words), cachew(*words, "--compression", codec)
    other = cachew(*words, "--compression", "gzip")
    assert first.json["indexed"] == 1 and again.json["reused"] == 1 and again.json["records"] == 5000
    assert other.code == 1 and "damaged gzip data" in other.error["message"]
    path = write(tmp_path / "p.json", [{"op": "text", "files": "a.data"}, SHUFFLE, BATCH])
    before = run(path, "--digest")
    assert not list((tmp_path).glob("**/*.cwx.*"))
    (tmp_path / "a.data.cwx").unlink()
    assert run(path, "--digest")["digest"] == before["digest"]


@pytest.mark.parametrize("codec", ["zstd", "bzip2", "xz"])
def test_explain_says_when_much_is_decompressed_to_reach_a_chunk(tmp_path, codec):
    data = b"%s\n" % (b"x" * (1 << 20)) * 24
    for size, told in ((len(data), True), (4 << 20, False)):
        path = text(tmp_path / "a.data", compressed.packed(codec, data, size))
        explained = cachew("explain", path, "--run", 0)
        says = "source 0: to read a part of a.data, up to 20 MiB before it are decompressed and discarded"
        assert explained.code == 0 and (says in explained.out) == told, explained.out
        (source,) = cachew("explain", path, "--run", 0, "--json").json["sources"]
        assert ("says" in source) == told and (source["discarded_bytes"] > 16 << 20) == told


def test_blocks_of_xz_are_restart_points(tmp_path):
    """Blocks of one stream, as `xz -T` writes them."""
    data = b"%s\n" % (b"x" * (1 << 20)) * 24
    blocks = compressed.xz_blocks(data, 4 << 20)
    assert lzma.decompress(blocks) == data
    for name, content, few in (("whole", compressed.packed("xz", data), False), ("blocks", blocks * 2, True)):
        path = text(tmp_path / name, content)
        (source,) = cachew("explain", path, "--run", 0, "--json").json["sources"]
        assert (source["discarded_bytes"] < 4 << 20) == few
    plain = run(text(tmp_path / "plain", data * 2), "--digest")["digest"]
    assert run(tmp_path / "blocks.json", "--digest")["digest"] == plain


@pytest.mark.parametrize("members", [1, 12])
def test_a_stream_that_is_kept_is_given_up_for_memory(tmp_path, members):
    """Files without restart points, side by side, in as little memory as the error says is enough."""
    data = b"".join(b"%d %s\n" % (i, b"x" * 1000) for i in range(6_000))
    size = -(-len(data) // members)
    for name in ("a", "b"):
        (tmp_path / f"{name}.data").write_bytes(compressed.packed("zstd", data, size))
    inputs = [
        [{"op": "text", "files": "a.data"}],
        [{"op": "text", "files": "b.data"}, {"op": "rename", "names": {"text": "other"}}],
    ]
    path = write(tmp_path / "p.json", [{"op": "zip", "inputs": inputs}, BATCH])
    whole, memory = run(path, "--digest")["digest"], "100K"
    for _ in range(4):
        ran = cachew("run", path, "--json", "--digest", "--threads", 3, "--memory", memory)
        if ran.code == 0:
            break
        memory = re.search(r"expected at least (\d+)$", ran.error["message"])[1]
    assert ran.json["digest"] == whole


@pytest.mark.parametrize("codec", ["zstd", "xz"])
def test_workers_read_compressed_files(daemons, tmp_path, codec):
    """Two workers, each of which begins its ranges somewhere in the files."""
    data = lines(6_000)
    for k in range(2):
        (tmp_path / f"{k}.data").write_bytes(compressed.packed(codec, data))
    path = write(tmp_path / "p.json", [{"op": "text", "files": "*.data"}, SHUFFLE, BATCH])
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    for _ in range(2):
        daemons.start("worker", "--dispatcher", dispatcher.address, "--memory", "80M")
    served = run(path, "--digest", "--service", dispatcher.address, "--job", "job")
    assert served["digest"] == run(path, "--digest")["digest"] and served["elements"] == 12_000
