"""What `shuffle` does to data that is sorted by class, as users see it: batches hold all classes, each record
comes once, and the order depends on seed, epoch and number of records alone. Where it is by chunk, the
command says so, and how well that mixes."""

import gzip
import re

import mixing
import numpy as np
import pytest
from command import SHUFFLE, cachew, read_log, run, write

N = 70_000  # more than the 65,536 positions up to which a permutation is a table
BATCH = {"op": "batch", "size": 256}
BY_CHUNK = {"op": "shuffle", "by": "chunk"}
RANGE = [{"op": "range", "stop": N}, {"op": "rename", "names": {"value": "row"}}]
# Of records of 64 KiB a window of a shuffle by chunk, which has 64 MiB, has 1,024. Their contents are not
# computed.
N_WIDE = 6_000


def wide(count=N_WIDE, size=mixing.WIDE_BYTES):
    return [
        {"op": "synthetic", "count": count, "shape": [size], "dtype": "uint8", "fill": "none"},
        {"op": "assign", "set": {"row": "1"}},
        {"op": "select", "components": ["row"]},
    ]


WIDE = wide()
PARSE = {"op": "parse_example", "features": {"row": "float32"}}


def tfrecord(directory, compress=False):
    """Two files, sorted by class over both."""
    suffix = ".gz" if compress else ""
    for k, (begin, end) in enumerate([(0, N // 3), (N // 3, N)]):
        mixing.write_lines(
            directory / f"part-{k}.tfrecord{suffix}", begin, end, mixing.example_lines, compress
        )
    return [{"op": "tfrecord", "files": f"part-*.tfrecord{suffix}", "verify": False}, PARSE]


def jsonl(directory):
    mixing.write_lines(directory / "rows.jsonl", 0, N, mixing.json_lines)
    return [{"op": "jsonl", "files": "rows.jsonl", "features": {"row": "int64"}}]


def tar(directory):
    mixing.write_tar(directory / "rows.tar", 0, N)
    return [{"op": "tar", "files": "rows.tar", "components": {"row": "int64"}}]


def concat(directory):
    mixing.write_lines(directory / "rows.tfrecord", 0, N // 2, mixing.example_lines)
    rest = [
        {"op": "range", "start": N // 2, "stop": N},
        {"op": "assign", "set": {"row": "float32(value)"}},
        {"op": "drop", "components": ["value"]},
    ]
    return [
        {
            "op": "concat",
            "inputs": [[{"op": "tfrecord", "files": "rows.tfrecord", "verify": False}, PARSE], rest],
        }
    ]


SOURCES = {"range": lambda _: RANGE, "tfrecord": tfrecord, "jsonl": jsonl, "tar": tar, "concat": concat}


def batches(directory, chain, *words, code=0):
    """Rows of all batches, one line each."""
    dump = directory / "dump"
    run(write(directory / "p.json", chain), "--dump", dump, *words, code=code)
    return [np.load(file)["row"].astype(np.int64) for file in sorted(dump.glob("*.npz"))]


def order(directory, chain, *words):
    """Rows of the log, in the order of delivery: one array for each epoch. For data of one file or none."""
    log = directory / "log"
    log.unlink(missing_ok=True)
    run(write(directory / "p.json", chain), "--log", log, *words)
    epochs = {}
    for line in read_log(log):
        epochs.setdefault(line["epoch"], []).extend(
            int(re.split("[:.]", record)[1]) for record in line["records"]
        )
    return [np.array(epochs[e]) for e in sorted(epochs)]


# ---- a permutation of all records ----


@pytest.mark.parametrize("name", SOURCES)
def test_batches_of_sorted_data_are_mixed(tmp_path, name):
    """Two classes, one after the other: no batch lacks one, and their shares vary as chance has it."""
    rows = np.concatenate(batches(tmp_path, [*SOURCES[name](tmp_path), SHUFFLE, BATCH]))
    assert np.array_equal(np.sort(rows), np.arange(N))
    found = mixing.figures(rows, mixing.chunk_ends(N))
    assert found["single-class batches", 256, 2] == 0
    standard_error = 0.0014  # of 273 batches
    assert found["sd of a class's share", 256, 2] == pytest.approx(0.5 / 256**0.5, abs=4 * standard_error)
    assert found["classes per batch", 256, 10] > 9.9
    assert found["classes per batch", 256, 1000] == pytest.approx(226.3, abs=1)
    assert found["chunks per batch", 256, None] == pytest.approx(67.2, abs=0.5)
    assert abs(found["correlation", None, None]) < 4 / N**0.5


IN_FRONT = {
    "take": [{"op": "range", "stop": 3 * N}, {"op": "take", "count": N}],
    "skip": [{"op": "range", "stop": N + 5}, {"op": "skip", "count": 5}],
    "concat": [
        {"op": "concat", "inputs": [[{"op": "range", "stop": 1000}], [{"op": "range", "stop": N - 1000}]]}
    ],
    "repeat": [{"op": "range", "stop": N // 10}, {"op": "repeat", "count": 10}],
    "shuffle": [{"op": "range", "stop": N}, BY_CHUNK],
}


@pytest.mark.parametrize("name", IN_FRONT)
def test_what_stands_before_changes_nothing(tmp_path, name):
    """The permutation is that of the positions of a plain source, whatever made them."""
    at = {
        "take": np.arange(N),
        "skip": np.arange(N) + 5,
        "concat": np.r_[:1000, : N - 1000],
        "repeat": np.arange(N) % (N // 10),
    }
    (plain,) = order(tmp_path, [*RANGE, SHUFFLE, BATCH], "--seed", 5)
    (got,) = order(tmp_path, [*IN_FRONT[name], SHUFFLE, BATCH], "--seed", 5)
    if name == "shuffle":  # its salt is another one: a second shuffle adds nothing, and takes nothing
        assert np.array_equal(np.sort(got), np.arange(N)) and not np.array_equal(got, plain)
        assert mixing.figures(got, mixing.chunk_ends(N))["single-class batches", 256, 2] == 0
    else:
        assert np.array_equal(got, at[name][plain])


def test_reshuffle_false_keeps_one_order(tmp_path):
    kept = {"op": "shuffle", "reshuffle": False}
    first, second = order(tmp_path, [*RANGE, kept, BATCH], "--epochs", 2, "--seed", 1)
    (other,) = order(tmp_path, [*RANGE, kept, BATCH], "--seed", 2)
    anew = order(tmp_path, [*RANGE, SHUFFLE, BATCH], "--epochs", 2, "--seed", 1)
    assert np.array_equal(first, second) and np.array_equal(first, anew[0])
    assert not np.array_equal(first, other) and not np.array_equal(first, anew[1])


# ---- by chunk ----


def explain(path):
    told = cachew("explain", path, "--run", 0, "--json")
    assert told.code == 0, told.err
    return told.json["by_chunk"]


def test_by_chunk_is_another_order_of_the_same_records(tmp_path):
    by_record, by_chunk = (order(tmp_path, [*WIDE, s, BATCH])[0] for s in (SHUFFLE, BY_CHUNK))
    assert np.array_equal(np.sort(by_chunk), np.arange(N_WIDE)) and not np.array_equal(by_record, by_chunk)
    ends = mixing.chunk_ends(N_WIDE)
    assert mixing.figures(by_chunk, ends)["chunks per batch", 256, None] < 3
    assert mixing.figures(by_record, ends)["chunks per batch", 256, None] == pytest.approx(6, abs=0.1)


def test_by_chunk_of_one_window_mixes_as_by_record(tmp_path):
    (by_chunk,) = order(tmp_path, [*RANGE, BY_CHUNK, BATCH])
    assert np.array_equal(np.sort(by_chunk), np.arange(N))
    assert mixing.figures(by_chunk, mixing.chunk_ends(N))["chunks per batch", 256, None] == pytest.approx(
        67.2, abs=0.5
    )


@pytest.mark.parametrize("size, shuffles", [(16, 1), (128, 1), (8, 2), (16, 2)])
def test_explain_knows_how_well_chunks_mix(tmp_path, size, shuffles):
    """Its estimate against what comes, of windows of 72 to 128 positions."""
    source = wide(20_000, 900_000)
    chain = [*source, *[BY_CHUNK] * shuffles, {"op": "batch", "size": size}]
    (told,) = explain(write(tmp_path / "p.json", chain))
    assert (
        told["position"] == len(source) + shuffles - 1
        and told["because"] == "by"
        and told["batch"] == size
        and told["chunks"] == 20
    )
    (got,) = order(tmp_path, chain)
    different = [len(set(got[i : i + size] // 1024)) for i in range(0, len(got) - size + 1, size)]
    assert told["chunks_per_batch"] == pytest.approx(np.mean(different), rel=0.25)
    (perfect,) = order(tmp_path, [*source, SHUFFLE, chain[-1]])
    different = [len(set(perfect[i : i + size] // 1024)) for i in range(0, len(perfect) - size + 1, size)]
    assert told["chunks_by_record"] == pytest.approx(np.mean(different), rel=0.02)


def test_says_that_compressed_files_are_shuffled_by_chunk(tmp_path):
    """explain and run say it once, with the same words and the name of the file."""
    for k, (begin, end) in enumerate([(0, 500), (500, 1_500)]):
        (tmp_path / f"part-{k}.tfrecord.gz").write_bytes(
            gzip.compress(b"".join(mixing.wide_records(begin, end)), 1)
        )
    source = [{"op": "tfrecord", "files": "part-*.tfrecord.gz", "verify": False}, PARSE]
    path = write(tmp_path / "p.json", [*source, SHUFFLE, BATCH])
    wanted = (
        r"shuffle \(operator 2\) is by chunk, because part-0\.tfrecord\.gz is compressed: "
        r"a batch of 256 comes from about \d+ of \d+ chunks of "
        r"\d+ records \(shuffled by record: from 2\d\); write the files uncompressed, or in random order"
    )
    ran = cachew("run", path, "--batches", 3)
    assert ran.code == 0 and re.fullmatch(f"cachew: {wanted}\n", ran.err), ran.err
    text = cachew("explain", path, "--run", 0)
    assert text.code == 0 and len(re.findall(f"^  {wanted}$", text.out, re.MULTILINE)) == 1, text.out
    (told,) = explain(path)
    assert (
        told["because"] == "compressed"
        and told["file"].endswith("part-0.tfrecord.gz")
        and re.fullmatch(wanted, told["says"])
    )


def test_names_the_file_that_is_compressed(tmp_path):
    """It may be one of many, and in one of several inputs."""
    data = b"".join(mixing.wide_records(0, 400))
    for name, compress in (("a-0", False), ("a-1", True), ("b-0", False)):
        (tmp_path / f"{name}.tfrecord").write_bytes(gzip.compress(data, 1) if compress else data)
    inputs = [[{"op": "tfrecord", "files": f"{name}-*.tfrecord", "verify": False}] for name in "ba"]
    (told,) = explain(
        write(tmp_path / "p.json", [{"op": "concat", "inputs": inputs}, SHUFFLE, {"op": "batch", "size": 8}])
    )
    assert told["file"].endswith("a-1.tfrecord")


def test_says_that_chunks_were_asked_for(tmp_path):
    path = write(tmp_path / "p.json", [*WIDE, BY_CHUNK, BATCH])
    wanted = (
        r'cachew: shuffle \(operator 3\) is by chunk, because by="chunk" is set: a batch of 256 comes from '
        r"about "
        r"\d of 6 chunks of 1000 records \(shuffled by record: "
        r"from 6\); this is good enough if neighbouring records have nothing in common\n"
    )
    ran = cachew("run", path, "--batches", 3)
    assert ran.code == 0 and re.fullmatch(wanted, ran.err), ran.err
    batchless = cachew("run", write(path, [*WIDE, BY_CHUNK]), "--batches", 3)
    assert ": 256 consecutive elements come from about " in batchless.err


@pytest.mark.parametrize(
    "chain",
    [
        [*WIDE, SHUFFLE, BATCH],
        [*WIDE, BATCH],
        [*WIDE, BY_CHUNK, SHUFFLE, BATCH],
        [*WIDE, SHUFFLE, {"op": "take", "count": N_WIDE}, BY_CHUNK, BATCH],
        [*WIDE, {"op": "take", "count": 1_024}, BY_CHUNK, BATCH],  # one window
        [*RANGE, BY_CHUNK, BATCH],  # and here
        [*WIDE, {"op": "take", "count": 0}, BY_CHUNK, BATCH],
    ],
    ids=lambda chain: "-".join(op["op"] for op in chain),
)
def test_says_nothing_of_a_permutation_of_all(tmp_path, chain):
    path = write(tmp_path / "p.json", chain)
    ran = cachew("run", path, "--batches", 3)
    assert ran.code == 0 and ran.err == "" and explain(path) == []


def test_a_worker_logs_that_chunks_are_shuffled(tmp_path, daemons):
    """A client of a service has no data to look at; the log of each worker that opens them says it once."""
    dispatcher, (worker,) = daemons.service()
    path = write(tmp_path / "p.json", [*WIDE, BY_CHUNK, BATCH])
    run(path, "--service", dispatcher.address, "--epochs", 2)
    (told,) = explain(path)
    assert worker.err.count(told["says"]) == 1


# ---- threads and memory ----


@pytest.mark.parametrize(
    "source, n, shuffle",
    [(RANGE, N, SHUFFLE), (RANGE, N, BY_CHUNK), (WIDE, N_WIDE, BY_CHUNK)],
    ids=["record", "chunk", "windows"],
)
def test_threads_and_memory_change_nothing(tmp_path, source, n, shuffle):
    path = write(tmp_path / "p.json", [*source, shuffle, BATCH])
    wanted = run(path, "--digest", "--threads", 1)
    assert run(path, "--digest", "--threads", 4)["digest"] == wanted["digest"]
    memory, ran = 1, None
    while ran is None or ran.code == 2:  # what it names as enough
        ran = cachew("run", path, "--json", "--digest", "--threads", 3, "--memory", memory)
        if ran.code == 2:
            memory = int(ran.error["expected"].split()[2])
    assert ran.code == 0 and ran.json["digest"] == wanted["digest"] and ran.json["elements"] == n


# ---- what mixing.py measures ----


def test_figures_of_orders_that_are_known():
    ends = mixing.chunk_ends(2048)
    sorted_ = mixing.figures(np.arange(2048), ends)
    assert sorted_["correlation", None, None] == 1 and sorted_["mean displacement / N", None, None] == 0
    assert (
        sorted_["neighbours of one chunk", None, None] == 2046 / 2047
        and sorted_["chunks per batch", 256, None] == 1
    )
    assert sorted_["single-class batches", 256, 2] == 1 and sorted_["sd of a class's share", 256, 2] == 0.5
    turns = mixing.figures(np.arange(2048).reshape(2, 1024).T.ravel(), ends)
    assert turns["neighbours of one chunk", None, None] == 0 and turns["chunks per batch", 128, None] == 2
    assert turns["single-class batches", 256, 2] == 0 and turns["sd of a class's share", 256, 2] == 0


def test_permutations_are_within_noise_and_windows_are_not():
    reference, rng = mixing.Reference(mixing.chunk_ends(20_000), 1), np.random.default_rng(2)
    good = mixing.figures(rng.permutation(20_000), reference.ends)
    assert all(reference.within_noise(key, value) for key, value in good.items())
    windows = mixing.figures(
        rng.permuted(rng.permutation(20_000 // 10).repeat(10).reshape(-1, 2000), axis=1).ravel(),
        reference.ends,
    )
    assert not all(reference.within_noise(key, value) for key, value in windows.items())
