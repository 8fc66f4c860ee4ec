#!/usr/bin/env python3
"""
Measures the language-model recipe: three corpora mixed by weights, tokenized, packed into rows of 2,048
tokens, from Python in one process with all cores. In the same run, taking turns: the tokenizer's own
`encode_batch` on the same documents, which can't do more than that. Then elements per second of `mix`, `zip`
and `pack` on integers.

    bench/text.py [--megabytes 8] [--rounds 3]

The corpora are made of text that a machine has: sources of Python modules, documentation of packages, and
the documents of this project. Prints a table, and a line of JSON.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = {"code": 3, "packages": 2, "docs": 1}
LENGTH = 2048
CHARACTERS = 2000  # of a document, at most
AT_A_TIME = 1000  # documents in a call of encode_batch


def texts(directory, patterns):
    for pattern in patterns:
        for path in sorted(Path(directory).rglob(pattern)):
            if path.is_file():
                data = path.read_bytes()
                try:
                    yield (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
                except (UnicodeDecodeError, gzip.BadGzipFile):
                    continue


def corpus(name):
    """The documents of a corpus, each at most CHARACTERS long."""
    found = {
        "code": lambda: texts(sysconfig.get_path("stdlib"), ["*.py"]),
        "packages": lambda: texts("/usr/share/doc", ["changelog*", "copyright", "*.md", "*.txt"]),
        "docs": lambda: texts(ROOT, ["*.md", "*.h"]),
    }[name]
    for text in found():
        yield from (text[i : i + CHARACTERS] for i in range(0, len(text), CHARACTERS))


def write(directory, megabytes):
    """Writes the corpora as lines of JSON, each of this size (short ones are repeated); all documents."""
    documents = []
    for name in WEIGHTS:
        some, size = [], 0
        while size < megabytes << 20:
            before = size
            for text in corpus(name):
                some.append(text)
                size += len(text)
                if size >= megabytes << 20:
                    break
            if size == before:
                sys.exit(
                    f"bench/text.py: no text for the corpus {name}: expected files as Debian installs them"
                )
        with (directory / f"{name}.jsonl").open("w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in some)
        documents += some
    return documents


def train(documents, path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=16_000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(documents[:: max(len(documents) // 400, 1)], trainer)
    tokenizer.save(str(path))
    return tokenizer


def alone(tokenizer, documents):
    """Tokens per second of encode_batch, in calls of AT_A_TIME documents."""
    began, n = time.monotonic(), 0
    for i in range(0, len(documents), AT_A_TIME):
        n += sum(len(e.ids) for e in tokenizer.encode_batch(documents[i : i + AT_A_TIME]))
    return n / (time.monotonic() - began)


def recipe(directory, algorithm):
    """(tokens per second, with the start of the processes; share of the rows that tokens fill)."""
    from cachew import Dataset

    corpora = [
        Dataset.jsonl(str(directory / f"{name}.jsonl"), {"text": "bytes"}).shuffle() for name in WEIGHTS
    ]
    packed = (
        Dataset.mix(corpora, weights=list(WEIGHTS.values()), stop="first")
        .tokenize("text", str(directory / "tokenizer.json"))
        .pack("text", LENGTH, algorithm=algorithm)
        .batch(8)
    )
    began, n, places = time.monotonic(), 0, 0
    for batch in packed:
        n += int(np.count_nonzero(batch["segment_ids"]))
        places += batch["segment_ids"].size
    return n / (time.monotonic() - began), n / places


NUMBERS = {
    "mix": [
        {"op": "mix", "weights": [4, 2, 1], "stop": "first",
         "inputs": [[{"op": "range", "stop": 8_000_000}], [{"op": "range", "stop": 4_000_000}],
                    [{"op": "range", "stop": 2_000_000}]]},
        {"op": "batch", "size": 1024},
    ],
    "zip": [
        {"op": "zip", "inputs": [
            [{"op": "range", "stop": 10_000_000}],
            [{"op": "range", "stop": 10_000_000}, {"op": "rename", "names": {"value": "other"}}]]},
        {"op": "batch", "size": 1024},
    ],
    "pack": [
        {"op": "synthetic", "count": 2_000_000, "shape": [10], "dtype": "int32", "fill": "none"},
        {"op": "pack", "component": "data", "length": LENGTH},
        {"op": "batch", "size": 8},
    ],
}  # fmt: skip


def integers(name, command, directory):
    """Elements per second that a pipeline on integers takes; for pack: sequences of ten tokens."""
    path = directory / f"{name}.json"
    path.write_text(json.dumps({"cachew": 1, "pipeline": NUMBERS[name]}))
    done = subprocess.run([command, "run", path, "--json"], check=True, capture_output=True, text=True)
    line = json.loads(done.stdout.splitlines()[-1])
    taken = NUMBERS[name][0]["count"] if name == "pack" else line["elements"]
    return taken / line["seconds"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=8, help="of each corpus")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cachew", default=str(Path(sys.executable).parent / "cachew"), help="the command")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        documents = write(directory, args.megabytes)
        tokenizer = train(documents, directory / "tokenizer.json")
        rounds, fill = [], {}
        for _ in range(args.rounds):
            line = {"encode_batch": alone(tokenizer, documents)}
            for algorithm in ("next", "first_fit", "best_fit"):
                line[algorithm], fill[algorithm] = recipe(directory, algorithm)
            line |= {n: integers(n, args.cachew, directory) for n in NUMBERS}
            rounds.append(line)
    middle = {n: median(line[n] for line in rounds) for n in rounds[0]}
    print(
        f"{'':24}{'per second':>12}  {'of encode_batch':>15}  {'filled':>7}   load {os.getloadavg()[0]:.1f}"
    )
    for n, rate in middle.items():
        what = "tokens" if n in fill or n == "encode_batch" else "elements"
        ratio = median(line[n] / line["encode_batch"] for line in rounds)
        beside = f"  {ratio:15.2f}  {fill[n]:7.2%}" if n in fill else ""
        print(f"{n + ', ' + what:24}{rate:12,.0f}{beside}")
    print(json.dumps({"rates": middle, "filled": fill, "rounds": rounds}))


if __name__ == "__main__":
    main()
