"""`tokenize` against the package tokenizers itself: ids, special tokens, truncation; the tokenizer's file as
a part of the pipeline; errors; the command and services.
"""

import json
import os
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest
from deadlines import HANG_S

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

import cachew  # noqa: E402
from cachew import Dataset  # noqa: E402

SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
ALPHABETS = [
    "abcdefgh",
    "\u00e4\u00f6\u00fc\u00df\u00e9",
    "\u4f60\u597d\u4e16\u754c",
    "\U0001f600\U0001f680",
    "0123456789",
    "\n\t.,;!?'\"",
]


def random_texts(n, seed=1):
    rng = random.Random(seed)
    words = ["".join(rng.choices(rng.choice(ALPHABETS), k=rng.randint(1, 8))) for _ in range(300)]
    texts = [" ".join(rng.choices(words, k=rng.choice([0, 1, 5, rng.randint(0, 60)]))) for _ in range(n)]
    return ["", " ", "[SEP] text [CLS]", *texts]


TEXTS = random_texts(400)


def bpe():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, alphabet = pre_tokenizers.ByteLevel(), pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        ),
    )
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return t


def word_piece():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(
        TEXTS,
        trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False),
    )
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    # settings of the file that the operator ignores
    t.enable_truncation(5)
    t.enable_padding(pad_id=3, pad_token="[PAD]")
    return t


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizers")
    for make in (bpe, word_piece):
        make().save(str(directory / f"{make.__name__}.json"))
    lines = (json.dumps({"text": s, "number": i}) + "\n" for i, s in enumerate(TEXTS))
    (directory / "t.jsonl").write_text("".join(lines))
    return directory


def texts(files):
    return Dataset.jsonl(files / "t.jsonl", features={"text": "bytes", "number": "int64"})


def ids(dataset, name="text", **options):
    return [e[name].tolist() for e in dataset.iterator(**options)]


def expected(file, special=True, truncation=None):
    t = Tokenizer.from_file(str(file))
    t.no_padding()
    t.no_truncation()
    if truncation:
        t.enable_truncation(truncation)
    return [t.encode(s, add_special_tokens=special).ids for s in TEXTS]


@pytest.mark.parametrize("name", ["bpe", "word_piece"])
@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("truncation", [None, 1, 7])
def test_ids_are_those_of_the_package(files, name, special, truncation):
    more = {"add_special_tokens": False} if not special else {}
    more |= {"truncation": truncation} if truncation else {}
    ds = texts(files).tokenize("text", files / f"{name}.json", **more)
    assert ds.schema["text"].dtype == "int32" and ds.schema["text"].shape == (None,)
    assert ids(ds, threads=2) == expected(files / f"{name}.json", special, truncation)
    first = next(iter(ds))
    assert first["text"].dtype == np.int32 and int(first["number"]) == 0


def test_runs_resume_and_services_give_the_same(files, service):
    ds = texts(files).shuffle().tokenize("text", files / "bpe.json").pack("text", 32, separator=2).batch(8)
    whole = [b.hash() for b in ds.iterator(seed=4, epochs=2, threads=1)]
    assert [b.hash() for b in ds.iterator(seed=4, epochs=2, threads=3)] == whole
    with ds.iterator(seed=4, epochs=2) as it:
        head = [next(it).hash() for _ in range(11)]
        state = it.state_dict()
    assert head + [b.hash() for b in ds.iterator(seed=4, epochs=2, state=state)] == whole
    with ds.distribute(service.address, job="tokens", seed=4, epochs=2) as batches:
        assert [b.hash() for b in batches] == whole


def test_ids_are_cached(files, tmp_path):
    ds = texts(files).tokenize("text", files / "bpe.json").cache()
    first = ids(ds, cache_dir=tmp_path, epochs=2)
    assert first == 2 * expected(files / "bpe.json")
    assert ids(ds, cache_dir=tmp_path, epochs=1) == first[: len(TEXTS)]
    changed = tmp_path / "bpe.json"
    shutil.copy(files / "word_piece.json", changed)  # the same place of another file: nothing is read back
    moved = texts(files).tokenize("text", changed).cache()
    assert ids(moved, cache_dir=tmp_path) == expected(files / "word_piece.json")


def test_the_content_of_the_file_identifies_the_pipeline(files, tmp_path):
    copy = tmp_path / "copy.json"
    shutil.copy(files / "bpe.json", copy)
    before = texts(files).tokenize("text", files / "bpe.json")
    with before.iterator(seed=1) as it:
        next(it)
        state = it.state_dict()
    after = texts(files).tokenize("text", copy)
    assert ids(after, seed=1, state=state) == ids(before, seed=1)[1:]
    shutil.copy(files / "word_piece.json", copy)
    with pytest.raises(cachew.StateError):
        texts(files).tokenize("text", copy).iterator(seed=1, state=state)


def test_a_tokenizer_is_the_one_that_the_iterator_began_with(files, tmp_path):
    file = tmp_path / "t.json"
    shutil.copy(files / "bpe.json", file)
    with texts(files).tokenize("text", file).iterator() as it:
        file.unlink()
        assert [e["text"].tolist() for e in it] == expected(files / "bpe.json")


def error_of(call, kind=cachew.PipelineError):
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_wrong_attributes_are_named(files, tmp_path):
    ds = texts(files)
    said = error_of(lambda: ds.tokenize("number", files / "bpe.json").schema)
    assert 'component is "number": expected texts (bytes), but "number" is int64' in said
    said = error_of(lambda: ds.tokenize("text", tmp_path / "absent.json").schema)
    assert "tokenizer is" in said and "absent.json" in said and "No such file or directory" in said
    said = error_of(lambda: ds.tokenize("text", tmp_path).schema)
    assert "not a regular file" in said
    said = error_of(lambda: ds.tokenize("text", files / "bpe.json", truncation=0).schema)
    assert "truncation is 0" in said
    for content in (b"{}", b"no JSON", b"\xff\xfe", b""):
        file = tmp_path / "bad.json"
        file.write_bytes(content)
        said = error_of(lambda file=file: list(ds.tokenize("text", file)))
        assert "tokenizer.json" in said and "bad.json" in said


def test_a_text_that_is_not_utf8_fails_its_record(files):
    strings = [b"good", b"bad \xff", b"good too"]
    ds = Dataset.arrays({"text": strings}).tokenize("text", files / "bpe.json")
    said = error_of(lambda: list(ds), cachew.RecordError)
    assert "the text is not valid UTF-8: invalid start byte at byte 4" in said and "bpe.json" in said
    t = Tokenizer.from_file(str(files / "bpe.json"))
    skipping = ds.on_error("skip").pack("text", 64).iterator()
    assert [e["text"][: sum(e["segment_ids"] > 0)].tolist() for e in skipping] == [
        t.encode("good").ids + t.encode("good too").ids
    ]


def test_tokenizing_in_this_process(files):
    with cachew.debug():
        ds = texts(files).take(20).tokenize("text", files / "bpe.json")
        assert ids(ds) == expected(files / "bpe.json")[:20]


def write_pipeline(directory, files):
    for name in ("t.jsonl", "bpe.json"):
        shutil.copy(files / name, directory)
    chain = [
        {"op": "jsonl", "files": "t.jsonl", "features": {"text": "bytes"}},
        {"op": "tokenize", "component": "text", "tokenizer": "bpe.json"},
        {"op": "pack", "component": "text", "length": 16},
        {"op": "batch", "size": 4},
    ]
    (directory / "p.json").write_text(json.dumps({"cachew": 1, "pipeline": chain}))
    return directory / "p.json"


def run(command, *words, **environment):
    done = subprocess.run(
        [command, "run", *map(str, words), "--json"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "CACHEW_PYTHON": sys.executable, **environment},
    )
    return done


def test_the_command_finds_a_python_with_the_package(files, tmp_path, command):
    pipeline = write_pipeline(tmp_path, files)
    done = run(command, pipeline, "--digest")
    assert done.returncode == 0, done.stderr
    digest = json.loads(done.stdout.splitlines()[-1])["digest"]
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "tokenizers.py").write_text('raise ImportError("none here")\n')
    path = f"{hidden}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = run(command, pipeline, PYTHONPATH=path)
    assert done.returncode != 0
    assert "the tokenizer bpe.json can't be loaded" in done.stderr
    assert "pip install tokenizers" in done.stderr and sys.executable in done.stderr
    it = Dataset.load(pipeline).iterator(epochs=1)
    total = sum(int(b.hash(), 16) if isinstance(b.hash(), str) else int(b.hash()) for b in it) % (1 << 128)
    assert f"{total:032x}" == digest


def test_workers_without_python_functions_tokenize(files, tmp_path):
    from conftest import Up

    ds = texts(files).tokenize("text", files / "bpe.json").pack("text", 16).batch(4)
    want = [b.hash() for b in ds]
    up = Up("--no-python")
    try:
        with ds.distribute(up.address, job="plain") as batches:
            assert [b.hash() for b in batches] == want
    finally:
        assert up.end() == 0


def test_workers_read_tokenizers_below_their_data_roots_only(files, tmp_path):
    from conftest import Up

    roots, elsewhere = tmp_path / "data", tmp_path / "other"
    for directory in (roots, elsewhere):
        directory.mkdir()
        for name in ("t.jsonl", "bpe.json"):
            shutil.copy(files / name, directory)
    up = Up("--data-root", str(roots))
    try:
        ds = texts(roots).take(8)
        with ds.tokenize("text", roots / "bpe.json").distribute(up.address, job="below") as batches:
            assert len(list(batches)) == 8
        with pytest.raises(cachew.Error, match="bpe.json.*below"):
            list(ds.take(3).tokenize("text", elsewhere / "bpe.json").distribute(up.address, job="beside"))
    finally:
        up.end()
