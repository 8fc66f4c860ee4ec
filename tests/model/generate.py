#!/usr/bin/env python3
"""Random legal pipelines on random data sets, from the operator table of `cachew ops --json`. Run as a
script it prints its coverage.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model import (
    annotations,
    audio,
    components,
    datasets,
    materialized,
    random_annotations,
    random_colours,
    random_components,
    random_functions,
    random_images,
    text,
)
from model import random_expressions as random_expr
from model.dtypes import FLOATS, INTEGERS, PlanError, Type
from model.plan import Plan
from model.run import Fruitless, deliver

MOST_POSITIONS = 3000
LARGE = 67_000  # more than are shuffled record by record; rare, and with little to compute
UNREACHED = {("fail", "kind")}  # its other kinds crash or hang
NOT_IN_FILES = {"arrays"}  # its data lie in the memory of the program that runs it
# of libraries that add floats in an order of their own; compared with bounds, tests/python/test_audio.py
NOT_EXACT = {"resample_audio", "mel_spectrogram"}
# Python's, which only a Python with the package can run
STREAMS = ("iterable", "materialized_stream")
FUNCTIONS = {"map", "filter_function", "flat_map", "map_batches", "iterable", "tokenize"}
ROWS = ["enumerate", "unbatch", "take_while", "resample"]  # operators on the rows of an epoch
IN_CHOICES = ("resize", "random_flip", "random_crop", "center_crop", "random_resized_crop", "pad", "cast")
COMPONENTS = [*components.ON_ONE, *components.JOINS]
TOKENIZERS = importlib.util.find_spec("tokenizers") is not None
SOURCES = (
    "tfrecord",
    "tfrecord",
    "tfrecord",
    "image_folder",
    "files",
    "text",
    "jsonl",
    "jsonl",
    "tar",
    "tar",
    "range",
    "range",
    "synthetic",
)


@dataclass
class Case:
    """One pipeline and how to run it."""

    seed: int
    directory: Path
    pipeline: dict = field(default_factory=dict)
    run_seed: int = 0
    epochs: int = 1
    threads: int = 1
    rank: int = 0
    ranks: int = 1
    batches: float = math.inf
    dump: bool = False
    optimize: bool = True
    damaged: bool = False
    relaxed: bool = False
    unknown: bool = False
    sources: int = 1

    def path(self) -> Path:
        return self.directory / "pipeline.json"

    def some_ranks(self, rng: random.Random, least: int, most: int) -> int:
        """A number of ranks that the pipeline can have."""
        group = next((op["group"] for op in self.pipeline["pipeline"] if "group" in op), 0)
        return rng.choice([n for n in range(least, most + 1) if group % n == 0] or [1])


class Generator:
    def __init__(self, table: list[dict], seed: int, directory: Path, functions: bool):
        self.functions = functions
        self.table = {op["name"]: {a["name"]: a for a in op["attributes"]} for op in table}
        self.rng = random.Random(seed)
        self.rows = random.Random(f"rows {seed}")  # its own, so that older seeds stay what they were
        self.case = Case(seed, directory)
        self.n_data = 0

    # ---- the whole ----

    def generate(self) -> Case:
        rng, case = self.rng, self.case
        case.directory.mkdir(parents=True, exist_ok=True)
        case.damaged = rng.random() < 0.45
        on_error = (
            rng.choice(["skip", "replace", "skip", "replace", "raise"])
            if case.damaged or rng.random() < 0.2
            else "raise"
        )
        self.on_error = on_error
        chain = self.head()
        if chain[0]["op"] in STREAMS and on_error == "replace":  # refused
            self.on_error = on_error = "skip"
        if rng.random() < 0.1:
            chain = self.extend(chain, lambda types, c: self.write("window", types, c))
        for _ in range(rng.randint(0, 6)):
            chain = self.extend(chain, self.operator_before)
        chain = self.batcher(chain)
        plan = self.plan(chain)
        if plan.n == math.inf and rng.random() < 0.5:
            chain = self.extend(chain, lambda types, after: {"op": "take", "count": rng.randint(1, 30)})
        case.pipeline = {"cachew": 1, "pipeline": chain}
        if on_error != "raise" or rng.random() < 0.1:
            case.pipeline["on_error"] = on_error
        if case.seed % 7 == 5:  # without a draw: other seeds stay what they were
            case.relaxed, case.pipeline["order"] = True, "relaxed"
        case.run_seed, case.epochs, case.threads = (
            rng.choice([0, 1, rng.getrandbits(63)]),
            rng.choice([1, 1, 2, 3]),
            rng.choice([1, 2, 3, 8]),
        )
        case.dump, case.optimize = rng.random() < 0.1, rng.random() < 0.8
        if self.plan(chain).n == math.inf:
            self.bound_endless(chain)
        elif rng.random() < 0.15:
            case.ranks = case.some_ranks(rng, 2, 4)
            case.rank = rng.randrange(case.ranks)
        plan = self.plan(chain)
        case.unknown, case.sources = not plan.known, len(plan.sources)
        case.path().write_text(json.dumps(case.pipeline, indent=1) + "\n")
        return case

    def bound_endless(self, chain: list[dict]) -> None:
        """Nobody waits for the end of an endless pipeline: it is run for some batches; one that stops giving
        any is made finite.
        """
        case = self.case
        try:
            probe = deliver(case.pipeline, case.directory, case.run_seed, limit=50)
            case.batches = self.rng.randint(1, 40) if len(probe.lines) == 50 else math.inf
        except Fruitless:
            for op in flat(chain):
                op |= {"count": 2} if op.get("count") == -1 else {}

    def plan(self, chain: list[dict]) -> Plan:
        return Plan({"pipeline": chain, "on_error": self.on_error}, self.case.directory)

    def types(self, chain: list[dict]) -> dict[str, Type]:
        return self.plan(chain).types

    def legal(self, chain: list[dict]) -> bool:
        try:
            plan = self.plan(chain)
        except PlanError:
            return False
        if len(plan.sources) == 1 and len(plan.sources[0].records) > MOST_POSITIONS:
            return plan.n <= LARGE and all(op["op"] in ("range", "shuffle", "count", "batch") for op in chain)
        return plan.n == math.inf or plan.n <= MOST_POSITIONS

    def extend(self, chain: list[dict], choose) -> list[dict]:
        """The chain with an operator that `choose` gives, or as it was where that would be illegal."""
        written = choose(self.types(chain), chain)
        if written is None:
            return chain
        longer = [*chain, written]
        return longer if self.legal(longer) else chain

    def finish(self, op: str, given: dict) -> dict:
        """Attributes that the table names and are left to chance: switches, choices."""
        attributes = self.table.get(op, {})
        given = {k: v for k, v in given.items() if k in attributes}
        for name, attribute in attributes.items():
            if name in given or "default" not in attribute or self.rng.random() < 0.6:
                continue
            if attribute["kind"] == "bool":
                given[name] = self.rng.random() < 0.5
            elif attribute["kind"] == "string" and attribute.get("choices") and op != "fail":
                given[name] = self.rng.choice(attribute["choices"])
        return {"op": op, **given}

    # ---- sources ----

    def head(self) -> list[dict]:
        rng = self.rng
        if self.case.seed % 11 == 4:  # without a draw: other seeds stay what they were
            return self.annotated_head()
        kind = self.kind()
        if self.functions and rng.random() < 0.12:
            return [self.finish("iterable", random_functions.iterable(rng, self.case.damaged))]
        if rng.random() < 0.15:
            return self.zip_head()
        if rng.random() < 0.25:
            profile = {"images": rng.random() < 0.3}
            inputs = []
            for _ in range(rng.choice([2, 2, 3])):
                chain = self.source(kind, **profile)
                if rng.random() < 0.6:
                    chain = self.extend(chain, self.operator_inside)
                inputs.append(chain)
            chain = [self.join(inputs)]
            return chain if self.legal(chain) else inputs[0]
        chain = self.source(kind, images=rng.random() < 0.3)
        if kind == "materialized" and self.case.seed % 10 == 5:  # without a draw
            chain[0]["op"] = "materialized_stream"
        return chain

    def annotated_head(self) -> list[dict]:
        """Images with annotations, and some operators that move both."""
        rng = self.rng
        chain = [random_annotations.source(rng)]
        for _ in range(rng.randint(1, 5)):
            kind = random_annotations.operator(rng)
            chain = self.extend(chain, lambda types, c, kind=kind: self.write(kind, types, c))
        return chain

    def kind(self) -> str:
        """The case's seed chooses what stands for text, jsonl and range, without a draw."""
        drawn = self.rng.choice(SOURCES)
        if drawn == "range" and self.case.seed % 5 == 0:
            return "materialized"
        columns = "arrow" if self.case.seed % 2 else "parquet"
        kinds = ("jsonl", "csv", columns if importlib.util.find_spec("pyarrow") else "jsonl")
        if drawn == "text" and self.case.seed % 2:
            return "fixed_length"
        return kinds[self.case.seed % 3] if drawn == "jsonl" else drawn

    def join(self, inputs: list[list[dict]]) -> dict:
        """One input after the other, or in turn. The case's seed chooses, without a draw: older seeds stay
        what they were.
        """
        rng = random.Random(self.case.seed)
        if self.rows.random() < 0.25:
            blocks = {"block_length": self.rows.choice([2, 3, 100])} if self.rows.random() < 0.5 else {}
            return {"op": "interleave", "inputs": inputs} | blocks
        if rng.random() < 0.4:
            return {"op": "concat", "inputs": inputs}
        weights = rng.choice([[1, 2, 1], [0.7, 0.25, 0.05], [rng.uniform(0.01, 1) for _ in range(3)]])
        stop = rng.choice(["first", "first", "last", "last", "never"])
        return {"op": "mix", "inputs": inputs, "weights": weights[: len(inputs)]} | (
            {"stop": stop} if stop != "first" else {}
        )

    def zip_head(self) -> list[dict]:
        """Inputs of any kinds, with names of their own."""
        rng = self.rng
        inputs: list[list[dict]] = []
        for k in range(rng.choice([1, 2, 2, 3])):
            chain = self.source(self.kind(), images=rng.random() < 0.2)
            for _ in range(rng.randint(0, 3)):
                longer = self.extend(chain, rng.choice([self.operator_before, self.operator_inside]))
                chain = longer if self.legal([{"op": "zip", "inputs": [longer]}]) else chain
            chain = [*chain, {"op": "rename", "names": {name: f"{name}_{k}" for name in self.types(chain)}}]
            if self.legal([{"op": "zip", "inputs": [*inputs, chain]}]):
                inputs.append(chain)
        if not inputs:
            return self.source("range", False)
        return [self.finish("zip", {"inputs": inputs})]

    def source(self, kind: str, images: bool) -> list[dict]:
        rng = self.rng
        name = f"data{self.n_data}"
        directory = self.case.directory / name
        self.n_data += 1
        if kind == "range" and rng.random() < 0.01:
            return [self.finish(kind, {"stop": rng.randint(65_530, 67_000)})]
        if kind == "range":
            start, step = rng.choice([0, 0, rng.randint(-50, 50)]), rng.choice([1, 1, 3, -2])
            count = rng.choice([0, 1, rng.randint(0, 50), rng.randint(0, 1200)])
            given = (
                {"stop": start + step * count}
                | ({"start": start} if start else {})
                | ({"step": step} if step != 1 else {})
            )
            return [self.finish(kind, given)]
        if kind == "synthetic":
            shape = rng.choice([[], [3], [2, 3], [5, 4, 3]])
            dtype = rng.choice(["bool", *INTEGERS, *FLOATS])
            if rng.random() < 0.03:  # elements so large that the limits on bytes count
                return [
                    self.finish(
                        kind,
                        {
                            "count": rng.randint(1, 300),
                            "shape": [256, 1024],
                            "dtype": "uint8",
                            "fill": "none",
                        },
                    )
                ]
            if "synthetic" not in self.__dict__:
                self.synthetic = {"shape": shape, "dtype": dtype}
            given = {"count": rng.choice([0, rng.randint(1, 40), rng.randint(1, 600)]), **self.synthetic}
            return [
                self.finish(kind, given | ({"cost_us": rng.randint(1, 20)} if rng.random() < 0.2 else {}))
            ]
        if kind == "files" and rng.random() < 0.3:
            audio.write(rng, directory, self.case.damaged)
            chain = [self.finish(kind, {"files": f"{name}/a/*.wav"})]
            return [*chain, self.finish("decode_audio", audio.decoding(rng))]
        if kind == "files":
            datasets.write_files(rng, directory)
            pattern = rng.choice(
                [
                    f"{name}/*/*.bin",
                    f"{name}/a/*.bin",
                    [f"{name}/b/*.bin", f"{name}/a/?.bin"],
                    f"{name}/a/0.bin",
                ]
            )
            return [self.finish(kind, {"files": pattern})]
        if kind == "fixed_length":
            layout = {"record_bytes": rng.choice([1, 3, 64]), "header_bytes": rng.choice([0, 5])}
            layout["footer_bytes"] = rng.choice([0, 2])
            datasets.write_fixed_length(
                rng, directory, layout["record_bytes"], layout["header_bytes"] + layout["footer_bytes"]
            )
            return [{"op": kind, "files": f"{name}/*.bin", **layout}]
        if kind in ("text", "jsonl"):
            return self.lines(kind, name)
        if kind == "materialized":
            if "materialized_types" not in self.__dict__:
                self.materialized_types = materialized.random_types(rng)
            materialized.write(rng, directory, self.materialized_types)
            return [self.finish(kind, {"path": name})]
        if kind == "csv":
            return self.csv(name)
        if kind in ("parquet", "arrow"):
            return self.columns(kind, name)
        if kind == "tar":
            return self.tar(name)
        if kind == "image_folder":
            datasets.write_image_folder(rng, directory, self.case.damaged)
            chain = [self.finish(kind, {"root": name})]
            return self.decode(chain, "image") if rng.random() < 0.8 else chain
        compression = self.compression()
        if rng.random() < 0.05 and "features" not in self.__dict__:
            return self.unusual_records(name, compression)
        datasets.write_tfrecords(rng, directory, compression, images, self.case.damaged)
        pattern = rng.choice([f"{name}/*.tfrecord", f"{name}/part-*.tfrecord", [f"{name}/part-0.tfrecord"]])
        given = {"files": pattern, "compression": rng.choice([compression, "auto"])}
        source = self.finish(kind, given)
        if source.get("compression") not in (compression, "auto"):
            source["compression"] = compression
        if rng.random() < 0.05:
            return [source]
        chain = self.parse(source, images)
        return self.decode(chain, "image") if images and rng.random() < 0.9 else chain

    def compression(self) -> str:
        """The case's seed chooses what stands for gzip, without a draw: older seeds stay what they were."""
        drawn = self.rng.choice(["none", "none", "gzip", "zlib"])
        return ("gzip", "bzip2", "xz")[self.case.seed % 3] if drawn == "gzip" else drawn

    def lines(self, kind: str, name: str) -> list[dict]:
        rng = self.rng
        directory = self.case.directory / name
        compression = self.compression()
        given = {
            "files": f"{name}/part-*",
            "compression": compression if compression == "zlib" or rng.random() < 0.4 else "auto",
        }
        if kind == "text":
            datasets.write_texts(rng, directory, compression)
            if self.case.damaged:
                given["max_line"] = rng.randint(1, 30)
            # for conditions to have something to say
            number = [{"op": "assign", "set": {"size": "length(text)"}}]
            return [{"op": kind, **given}, *(number if rng.random() < 0.9 else [])]
        datasets.write_json_lines(rng, directory, compression, self.case.damaged)
        if self.case.damaged and rng.random() < 0.3:
            given["max_line"] = rng.randint(150, 400)
        optional = {
            "label": {"dtype": "uint8", "default": 9},
            "wide": {"key": "label", "dtype": "uint64", "default": 3},
            "signed": rng.choice(["int8", "float64", "int32"]),
            "score": rng.choice(["float64", "float32" if not self.case.damaged else "bfloat16"]),
            "half": rng.choice(["float16", "bfloat16", "float32"]),
            "ok": "bool",
            "grid": {"dtype": rng.choice(["float32", "float64"]), "shape": [2, 3]},
            "tokens": {"dtype": rng.choice(["int64", "uint8", "float32"]), "variable": True}
            | ({"default": [4, 5]} if rng.random() < 0.3 else {}),
            "absent": rng.choice(
                [
                    {"dtype": "float16", "shape": [2], "default": [0.5, -1]},
                    {"dtype": "bytes", "default": "none"},
                ]
            ),
            "name/text": {"key": "text", "dtype": "bytes"},
            "rare": {"dtype": "int16", "default": rng.randint(-2, 9)},
        }
        if "json_features" not in self.__dict__:
            self.json_features = {"id": "int64", **{k: v for k, v in optional.items() if rng.random() < 0.5}}
        return [{"op": kind, **given, "features": self.json_features}]

    def csv(self, name: str) -> list[dict]:
        rng = self.rng
        if "csv_given" not in self.__dict__:
            optional = {
                "label": rng.choice(["uint8", "float32", "bytes"]),
                "score": rng.choice(["float64", "float32", "bytes"]),
                "half": rng.choice(["float16", "bfloat16"]),
                "ok": "bool",
                "text": "bytes",
            }
            names = ["id", *[column for column in datasets.CSV_COLUMNS if rng.random() < 0.8]]
            types = {name: dtype for name, dtype in optional.items() if name in names and rng.random() < 0.6}
            self.csv_given = {
                "delimiter": rng.choice([",", ",", "\t", ";", "|"]),
                "types": {"id": "int64", **types},
            }
            if rng.random() < 0.5:
                self.csv_given["columns"] = names
            else:
                names = datasets.CSV_COLUMNS
            self.csv_given["types"] |= {
                name: optional[name] for name in names if self.case.damaged and name in optional
            }
        compression = self.compression()
        given = {
            "files": f"{name}/part-*",
            "compression": compression if compression == "zlib" or rng.random() < 0.4 else "auto",
            **self.csv_given,
        }
        datasets.write_csvs(
            rng, self.case.directory / name, compression, self.case.damaged, given["delimiter"]
        )
        if self.case.damaged and rng.random() < 0.3:
            given["max_line"] = rng.randint(40, 200)
        return [{"op": "csv", **given}]

    def columns(self, kind: str, name: str) -> list[dict]:
        rng = self.rng
        if "columns_given" not in self.__dict__:
            columns = ["id", *[column for column in datasets.TABLE_COLUMNS if rng.random() < 0.7]]
            self.columns_given = {"columns": columns} if rng.random() < 0.6 else {}
            names = self.columns_given.get("columns", ["id", *datasets.TABLE_COLUMNS])
            # what `nulls` does not name fails where it is null
            defaults = {
                "score": rng.choice([-1, 0.5, "NaN"]),
                "text": "none",
                "tokens": rng.choice([7, [4, 5]]),
            }
            given = {
                k: v
                for k, v in defaults.items()
                if k in names and not (self.case.damaged and rng.random() < 0.3)
            }
            self.columns_given["nulls"] = given
        make = datasets.write_arrows if kind == "arrow" else datasets.write_parquets
        make(rng, self.case.directory / name)
        return [{"op": kind, "files": f"{name}/part-*", **self.columns_given}]

    def tar(self, name: str) -> list[dict]:
        rng = self.rng
        compression = self.compression()
        datasets.write_tars(rng, self.case.directory / name, compression, self.case.damaged)
        optional = {
            "cls": rng.choice(["uint8", "float16", {"dtype": "uint8"}]),
            "data": {"key": "png;jpg", "dtype": "bytes"},
            "box.txt": {"dtype": "float32", "shape": [2, 2]},
            "boxes": {"key": "box.txt", "dtype": "bfloat16", "shape": [2], "variable": True},
            "v": {"key": "v.npy", "dtype": "int16", "shape": [2, 3]},
            "tokens": {"key": "many.npy", "dtype": "float32", "variable": True},
            "rare": {"dtype": "int64", "default": rng.randint(-2, 9)},
            "absent": rng.choice(
                [
                    {"dtype": "float64", "shape": [2], "default": [0.5, -1]},
                    {"dtype": "bytes", "default": "none"},
                ]
            ),
            "__key__": "bytes",
        }
        if "components" not in self.__dict__:
            self.components = {
                "id": {"key": "id.txt", "dtype": "int64"},
                **{k: v for k, v in optional.items() if rng.random() < 0.5},
            }
        given = {
            "files": f"{name}/part-*",
            "compression": compression if compression == "zlib" or rng.random() < 0.4 else "auto",
        }
        return [{"op": "tar", **given, "components": self.components}]

    def unusual_records(self, name: str, compression: str) -> list[dict]:
        """Files with few, large records, or with many."""
        directory = self.case.directory / name
        source = {"files": f"{name}/*", "compression": compression, "verify": False}
        if self.rng.random() < 0.3:
            datasets.write_large_records(self.rng, directory, compression)
            return [self.finish("tfrecord", source)]
        datasets.write_many_records(self.rng, directory, compression)
        self.features = {"id": "int64"}
        return [self.finish("tfrecord", source), self.finish("parse_example", {"features": self.features})]

    def parse(self, source: dict, images: bool) -> list[dict]:
        rng = self.rng
        features = {"id": "int64"}
        optional = {
            "label": "int64",
            "score": rng.choice(["float32", {"dtype": "float32", "shape": []}]),
            "vector": {"dtype": "float32", "shape": [3]},
            "grid": {"dtype": "int64", "shape": [2, 2]},
            "tokens": {"dtype": "int64", "variable": True}
            | ({"default": [4, 5]} if rng.random() < 0.3 else {}),
            "pairs": {"key": "grid", "dtype": "int64", "shape": [2], "variable": True},
            "absent": rng.choice(
                [
                    {"dtype": "float32", "shape": [2], "default": [0.5, -1]},
                    {"dtype": "bytes", "default": "none"},
                ]
            ),
            "text": {"key": "name/text", "dtype": "bytes"},
            "name/text": "bytes",
            "rare": {"dtype": "int64", "default": rng.randint(-2, 9)},
        }
        if "features" not in self.__dict__:
            self.features = {**features, **{k: v for k, v in optional.items() if rng.random() < 0.5}}
        if images:
            self.features["image"] = "bytes"
        chain = [source]
        component = {}
        if rng.random() < 0.1:
            chain.append({"op": "rename", "names": {"record": "example"}})
            component = {"component": "example"}
        return [*chain, self.finish("parse_example", {"features": self.features, **component})]

    def decode(self, chain: list[dict], component: str) -> list[dict]:
        rng = self.rng
        if "decoded" not in self.__dict__:
            self.decoded = {}
            if rng.random() < 0.4:
                self.decoded = {"channels": rng.choice([0, 1, 4]), "dtype": rng.choice(["uint8", "uint16"])}
            self.sized = rng.choice(
                ["resize", "random_resized_crop", "random_resized_crop", "center_crop", "random_crop", None]
            )
            self.size = [rng.randint(1, 24), rng.randint(1, 24)]
            self.coloured = rng.choice([*random_colours.NAMES, *[None] * 3])
        given = {"component": component, **self.decoded}
        if rng.random() < 0.1:
            given["max_pixels"] = rng.randint(200, 1600)
        if rng.random() < 0.3:
            given["orientation"] = False
        chain = [*chain, self.finish("decode_image", given)]
        if self.sized:
            chain = [*chain, self.image(self.sized, component)]
        if self.coloured and rng.random() < 0.8 or self.coloured == "grayscale":
            chain = self.extend(chain, lambda types, c: self.write(self.coloured, types, c))
        return chain

    def image(self, op: str, component: str) -> dict:
        rng = self.rng
        given = {
            "component": component,
            "size": [rng.randint(1, 6), rng.randint(1, 6)]
            if "crop" in op and "resized" not in op
            else self.size,
        }
        if op == "random_resized_crop" and rng.random() < 0.4:
            given |= {"scale": [0.3, 0.9], "ratio": rng.choice([[1, 1], [0.2, 5], [3, 4]])}
        return self.finish(op, given)

    # ---- operators ----

    def operator_inside(self, types: dict[str, Type], chain: list[dict]) -> dict | None:
        """Inside an input of concat or mix: nothing that changes the components."""
        kinds = ["filter", "shuffle", "take", "skip", "repeat", "count", "random_flip", "autocache"]
        kind = self.rng.choice([*kinds, "filter_function"] if self.functions else kinds)
        return self.write(kind, types, chain, inside=True)

    def operator_on_rows(self, types: dict[str, Type], chain: list[dict]) -> dict | None:
        rng, names = self.rows, list(types)
        kind = rng.choice(ROWS)
        if kind == "enumerate":
            return (
                {"op": kind}
                | ({"name": rng.choice(["index", *names])} if rng.random() < 0.5 else {})
                | ({"start": rng.choice([-3, 5, 10**12])} if rng.random() < 0.5 else {})
            )
        numbers = [n for n in random_expr.scalars(types) if types[n].dtype in INTEGERS]
        if kind == "take_while":
            sieve = random_expr.sieve(rng, types)
            small = [f"{random_expr.quoted(n)} < {rng.randint(5, 300)}" for n in numbers]
            return {"op": kind, "where": f"({sieve}) or {rng.choice([*small, 'true', 'true', 'false'])}"}
        if kind == "resample" and "class" in types:
            classes = rng.choice([3, 3, 2])
            shares = [rng.choice([1, 2, 0.3, rng.uniform(0.1, 9)]) for _ in range(2 * classes)]
            return {"op": kind, "component": "class", "target": shares[:classes], "initial": shares[classes:]}
        if kind == "resample":
            if not numbers:
                return None
            return {"op": "assign", "set": {"class": f"{random_expr.quoted(rng.choice(numbers))} % 3"}}
        flat = [n for n, t in types.items() if t.dtype == "bytes" or t.dims == ()]
        if not flat:
            return {"op": kind}
        return {"op": "drop", "components": flat} if len(flat) < len(names) else None

    def choice(self, types: dict[str, Type], chain: list[dict]) -> dict | None:
        """one_of or maybe, around operators that leave the dtypes as they are."""
        rng = self.rng
        kinds = [*IN_CHOICES, *random_images.KINDS, *random_colours.NAMES]
        numbers = [n for n, t in types.items() if t.dtype in (*INTEGERS, *FLOATS)]
        lists: list[list[dict]] = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            operators: list[dict] = []
            for _ in range(rng.choice([0, 1, 2, 3])):
                if numbers and rng.random() < 0.5:
                    name = rng.choice(numbers)
                    quoted = random_expr.quoted(name)
                    written = {"op": "assign", "set": {name: f"{quoted} + {quoted}"}}
                else:
                    written = self.write_plain(rng.choice(kinds), types, chain, False)
                longer = [*operators, written] if written else operators
                given = {"op": "one_of", "choices": [longer, []]}
                operators = longer if self.legal([*chain, given]) else operators
            lists.append(operators)
        if len(lists) == 1 and lists[0]:
            return {"op": "maybe", "p": rng.choice([0.3, 0.8]), "operators": lists[0]}
        weights = {"weights": [rng.uniform(0.1, 3) for _ in lists]} if rng.random() < 0.5 else {}
        return {"op": "one_of", "choices": lists} | weights

    def operator_before(self, types: dict[str, Type], chain: list[dict]) -> dict | None:
        if self.case.seed % 7 == 3 and self.rng.random() < 0.4:  # other seeds stay what they were
            return self.choice(types, chain)
        if self.rows.random() < 0.15:
            return self.operator_on_rows(types, chain)
        kind = self.rng.choice(
            [
                "filter",
                "filter",
                "shuffle",
                "shuffle",
                "take",
                "skip",
                "repeat",
                "assign",
                "assign",
                "cast",
                "normalize",
            ]
            + [
                "resize",
                "random_flip",
                "transpose_image",
                "random_crop",
                "center_crop",
                "random_resized_crop",
                *random_images.KINDS,
            ]
            + [
                "select",
                "drop",
                "rename",
                "delay",
                "count",
                "fail",
                "autocache",
                "autocache",
                "autocache",
                "cache",
                "pack",
                "pack",
                "pack",
                "window",
            ]
            + COMPONENTS
            + [self.rng.choice(random_colours.NAMES)] * 3
            + list(audio.ON_ONE)
            + ["map", "map", "map", "filter_function", "filter_function", "flat_map", "flat_map", "flat_map"]
            * self.functions
            + ["tokenize", "tokenize"] * (self.functions and TOKENIZERS)
        )
        return self.write(kind, types, chain)

    def write(
        self, kind: str, types: dict[str, Type], chain: list[dict], inside: bool = False
    ) -> dict | None:
        written = self.write_plain(kind, types, chain, inside)
        if written and kind in annotations.MOVING and not inside:
            written |= random_annotations.attributes(self.rng, written["component"], types)
        return written

    def write_plain(self, kind: str, types: dict[str, Type], chain: list[dict], inside: bool) -> dict | None:
        rng = self.rng
        names = list(types)
        images = [
            n
            for n, t in types.items()
            if t.dims and len(t.dims) == 3 and t.dims[2] != 0 and t.dtype != "bytes"
        ]
        resizable = [n for n in images if types[n].dtype in ("uint8", "uint16", "float32", "float64")]
        endless = any(n.get("count") == -1 for n in flat(chain))
        if kind == "filter":
            return {"op": kind, "where": random_expr.sieve(rng, types)}
        elif kind == "fail":
            if self.case.damaged or rng.random() < 0.1:
                return self.finish(kind, {"where": random_expr.sieve(rng, types)})
        elif kind == "count":
            return {"op": kind}
        elif kind == "shuffle":
            keeps = {"reshuffle": False} if rng.random() < 0.2 else {}
            seeded = {"seed": rng.randint(0, 3)} if rng.random() < 0.2 else {}
            if chain[0]["op"] in STREAMS:
                return {"op": kind, "window": rng.randint(1, 50)} | keeps | seeded
            if rng.random() < 0.3:
                return {"op": kind, "by": "chunk"} | keeps
            return {"op": kind} | keeps | seeded
        elif kind in ("autocache", "cache"):
            if rng.random() < 0.6:
                return {"op": kind}
            return (
                {"op": kind, "freeze": True}
                | ({"reuse": rng.randint(1, 2)} if rng.random() < 0.6 else {})
                | ({"seed": rng.randint(0, 3)} if rng.random() < 0.3 else {})
            )
        elif kind == "delay":
            return self.finish(
                kind,
                {"us": rng.randint(0, 30)}
                | ({"where": random_expr.sieve(rng, types)} if rng.random() < 0.5 else {}),
            )
        elif kind in ("take", "skip"):
            n = self.plan(chain).n
            return {
                "op": kind,
                "count": rng.randint(0, int(min(n, 400)) + 1)
                if kind == "take" or n < 100
                else rng.randint(0, 60),
            }
        elif kind == "repeat":
            if not endless:
                return {"op": kind, "count": rng.choice([1, 2, 3, 3 if inside else -1])}
        elif kind == "assign":
            targets = rng.sample(["fresh", "other", "third", rng.choice(names)], rng.randint(1, 3))
            return {"op": kind, "set": {target: random_expr.value(rng, types) for target in targets}}
        elif kind == "cast":
            numbers = [n for n, t in types.items() if t.dtype != "bytes"]
            if numbers:
                return {
                    "op": kind,
                    "component": rng.choice(numbers),
                    "dtype": rng.choice(["bool", *INTEGERS, *FLOATS]),
                }
        elif kind == "normalize":
            fitting = [n for n in images if types[n].dims[2]]
            if fitting:
                name = rng.choice(fitting)
                channels = types[name].dims[2]
                given = {
                    "component": name,
                    "mean": [rng.uniform(0, 200) for _ in range(channels)],
                    "std": [rng.uniform(1, 90) for _ in range(channels)],
                }
                return self.finish(
                    kind,
                    given
                    | (
                        {"dtype": rng.choice(["float16", "bfloat16", "float64"])}
                        if rng.random() < 0.5
                        else {}
                    ),
                )
        elif kind in ("resize", "random_crop", "center_crop", "random_resized_crop"):
            if resizable:
                self.size = [rng.randint(1, 24), rng.randint(1, 24)]
                return self.image(kind, rng.choice(resizable))
        elif kind == "random_flip":
            if images:
                given = {"component": rng.choice(images)} | (
                    {"horizontal": 0.2, "vertical": 0.6} if rng.random() < 0.5 else {}
                )
                return self.finish(kind, given)
        elif kind == "sanitize_boxes":
            given = random_annotations.sanitizing(rng, types)
            return given and self.finish(kind, given)
        elif kind in random_images.KINDS or kind == "random_zoom_out":
            given = random_images.of(rng, kind, {n: types[n] for n in images})
            if given:
                return self.finish(kind, given)
        elif kind in ("mixup", "cutmix"):
            given = random_images.mixing(rng, kind, types)
            if given:
                return self.finish(kind, given)
        elif kind == "transpose_image":
            if images:
                return self.finish(kind, {"component": rng.choice(images)})
        elif kind == "select":
            return {"op": kind, "components": rng.sample(names, rng.randint(1, len(names)))}
        elif kind == "drop":
            if len(names) > 1:
                return {"op": kind, "components": rng.sample(names, rng.randint(1, len(names) - 1))}
        elif kind in ("map", "filter_function", "flat_map", "map_batches"):
            given = random_functions.of(rng, kind, types, rng.random() < (0.4 if self.case.damaged else 0.02))
            if given:
                return self.finish(kind, given)
        elif kind in audio.ON_ONE:
            given = audio.of(rng, kind, types)
            return given and self.finish(kind, given)
        elif kind == "tokenize":
            texts = [n for n, t in types.items() if t.dtype == "bytes"]
            if texts:
                given = {"component": rng.choice(texts), "tokenizer": text.write(self.case.directory)}
                return self.finish(
                    kind, given | ({"truncation": rng.choice([2, 3, [5], []])} if rng.random() < 0.6 else {})
                )
        elif kind == "window":
            numbers = [n for n, t in types.items() if t.dtype != "bytes" and t.dims is not None]
            covered = rng.sample(numbers, rng.randint(1, len(numbers))) if numbers else []
            if numbers:
                given = {"size": rng.choice([1, 2, 3, rng.randint(2, 12)])}
                given |= {"shift": rng.randint(1, 9)} if rng.random() < 0.6 else {}
                given |= {"stride": rng.randint(2, 4)} if rng.random() < 0.3 else {}
                if len(numbers) < len(types) or rng.random() < 0.3:
                    given["components"] = covered[0] if len(covered) == 1 else covered
                return self.finish(kind, given)
        elif kind == "pack":
            sequences = [
                n for n, t in types.items() if t.dtype in INTEGERS and (t.dims is None or len(t.dims) == 1)
            ]
            if sequences:
                given = {"component": rng.choice(sequences), "length": rng.choice([1, 3, rng.randint(2, 20)])}
                given |= {"window": rng.choice([1, 3, rng.randint(2, 90)])} if rng.random() < 0.7 else {}
                given |= {"separator": rng.choice([5, [100], []])} if rng.random() < 0.5 else {}
                if rng.random() < 0.5:
                    given["algorithm"] = rng.choice(["first_fit", "best_fit"])
                    given |= {"bins": rng.choice([1, 2, 5])} if rng.random() < 0.7 else {}
                if rng.random() < 0.2:
                    given |= {"split": False, "length": rng.randint(10, 40)}
                return self.finish(kind, given | ({"pad": rng.randint(0, 99)} if rng.random() < 0.3 else {}))
        elif kind in COMPONENTS:
            given = random_components.of(rng, kind, types)
            if kind == "lookup" and given and rng.random() < 0.3:
                given["file"] = self.words(given.pop("vocabulary"))
            return given and self.finish(kind, given)
        elif kind in random_colours.NAMES:
            given = random_colours.of(rng, kind, types)
            return given and self.finish(kind, given)
        elif kind == "rename":
            return {"op": kind, "names": {rng.choice(names): rng.choice(["renamed", "a/b", "x y"])}}
        return None

    def words(self, words: list[str]) -> str:
        """The words in a file."""
        self.n_data += 1
        name, end = f"words{self.n_data}.txt", self.rng.choice(["\n", "\r\n"])
        last = end if words[-1] == "" or self.rng.random() < 0.5 else ""
        (self.case.directory / name).write_bytes((end.join(words) + last).encode())
        return name

    # ---- batches ----

    def batcher(self, chain: list[dict]) -> list[dict]:
        rng = self.rng
        kind = rng.choice(["batch"] * 6 + ["bucket_by_length"] * 2 + [None] * 2)
        if kind is None:
            return chain
        size = rng.choice([1, 2, 3, rng.randint(4, 16), rng.randint(17, 64)])
        if kind == "batch":
            given = {"size": size} | ({"drop_remainder": True} if rng.random() < 0.3 else {})
            if rng.random() < 0.3 and (pad := self.pad(self.types(chain), False)) is not None:
                given["pad"] = pad
            elif rng.random() < 0.97:
                chain = self.only_fixed(chain)
            longer = [*chain, self.finish("rebatch" if self.rows.random() < 0.2 else kind, given)]
            longer = longer if self.legal(longer) else [*chain, {**longer[-1], "op": kind}]
            chain = longer if self.legal(longer) else [*self.only_fixed(chain), {"op": kind, "size": size}]
            for _ in range(rng.choice([0, 0, 0, 1, 2])):
                chain = self.extend(chain, self.operator_after)
            if self.rows.random() < 0.15:
                taker = self.rows.choice([{"op": "unbatch"}, {"op": "rebatch", "size": size}])
                chain = self.extend(chain, lambda types, c: taker)
            return self.map_batches(chain)
        types = self.types(chain)
        lengths = [f"length({random_expr.quoted(n)})" for n in random_expr.measurable(types)]
        lengths += [
            f"{random_expr.quoted(n)} % 9"
            for n in random_expr.scalars(types)
            if types[n].dtype in ("int64", "int32", "uint8")
        ]
        if not lengths or any(t.dims is None for t in types.values()):
            return chain
        boundaries = sorted(rng.sample(range(1, 10), rng.randint(1, 3)))
        if self.rows.random() < 0.3:
            keys = self.rows.choice([3, 9, 9])
            given = {"key": rng.choice(lengths), "keys": keys, "size": size}
            longer = [*self.only_fixed(chain), self.finish("group_by", given)]
            return longer if self.legal(longer) else chain
        given = {
            "length": rng.choice(lengths),
            "boundaries": boundaries,
            "sizes": [rng.randint(1, size) for _ in range(len(boundaries) + 1)],
        }
        if rng.random() < 0.6 and (pad := self.pad(types, True)) is not None:
            given["pad"] = pad
        if rng.random() < 0.5:
            given |= {"group": rng.choice([2, 2, 3, 4]), "remainder": rng.choice(["next", "pad", "drop"])}
        elif rng.random() < 0.2:
            given["drop_remainder"] = True
        longer = [*chain, self.finish(kind, given)]
        chain = longer if self.legal(longer) else chain
        for _ in range(rng.choice([0, 0, 1])):
            chain = self.extend(
                chain,
                lambda types, c: self.write(
                    rng.choice(["select", "drop", "rename", "take", "skip"]), types, c
                ),
            )
        return self.map_batches(chain)

    def pad(self, types: dict[str, Type], boundaries: bool) -> object:
        """How a batcher pads; None: nothing can be padded. Without boundaries, all that varies is padded."""
        rng = self.rng
        numeric = [n for n, t in types.items() if t.dtype in (*INTEGERS, *FLOATS) and t.dims]
        varying = [n for n in numeric if not types[n].fixed()]
        if not varying and not (numeric and boundaries) or any(t.dims is None for t in types.values()):
            return None
        targets = ["longest", *(["boundary"] * 3 if boundaries else [])]
        if rng.random() < 0.4:
            return rng.choice([*targets, 1, 7])
        pad: dict[str, object] = {}
        for name in varying or numeric[:1]:
            sizes = [rng.choice([None, (d or 0) + rng.randint(0, 60)]) for d in types[name].dims]
            pad[name] = rng.choice([1, 7, rng.choice(targets), {"value": 3}, {"to": sizes},
                                    {"value": 2, "to": rng.choice([*targets, sizes, sizes])}])  # fmt: skip
        return pad

    def map_batches(self, chain: list[dict]) -> list[dict]:
        """Some operators on whole batches at the end, and what may follow them."""
        if self.rng.random() < 0.25:
            kind = self.rng.choice(["mixup", "cutmix"])
            chain = self.extend(chain, lambda types, c: self.write(kind, types, c))
        if self.functions and self.rng.random() < 0.35:
            chain = self.extend(chain, lambda types, c: self.write("map_batches", types, c))
            for _ in range(self.rng.choice([0, 0, 1, 2])):
                chain = self.extend(
                    chain,
                    lambda types, c: self.write(
                        self.rng.choice(["map_batches", "take", "skip", "repeat"]), types, c
                    ),
                )
        return chain

    def only_fixed(self, chain: list[dict]) -> list[dict]:
        """The chain with its components of varying shape dropped, or resized where they are images."""
        types = self.types(chain)
        for name, type_ in types.items():
            if (
                type_.dims
                and len(type_.dims) == 3
                and type_.dims[2]
                and None in type_.dims[:2]
                and type_.dtype in ("uint8", "uint16", "float32")
            ):
                self.size = [self.rng.randint(1, 24), self.rng.randint(1, 24)]
                chain = [*chain, self.image(self.rng.choice(["resize", "random_resized_crop"]), name)]
        types = self.types(chain)
        fixed = [n for n, t in types.items() if t.fixed() or t.dtype == "bytes"]
        if len(fixed) == len(types):
            return chain
        if fixed:
            return [*chain, {"op": "select", "components": fixed}]
        return [*chain, {"op": "assign", "set": {"length": "1"}}, {"op": "select", "components": ["length"]}]

    def operator_after(self, types: dict[str, Type], chain: list[dict]) -> dict | None:
        kind = self.rng.choice(
            [
                "assign",
                "cast",
                "select",
                "rename",
                "normalize",
                "random_flip",
                self.rng.choice(random_colours.NAMES),
                "take",
                "skip",
                "repeat",
                "autocache",
                self.rng.choice(COMPONENTS),
            ]
        )
        return self.write(kind, types, chain)


def flat(chain: list[dict]) -> list[dict]:
    """All operators of a chain, those in inputs of other ones included."""
    return [op for node in chain for op in [node, *(o for c in node.get("inputs", []) for o in flat(c))]]


class Coverage:
    def __init__(self, table: list[dict], functions: bool):
        left_out = NOT_IN_FILES | NOT_EXACT | (set() if functions else FUNCTIONS)
        self.table = [op for op in table if op["name"] not in left_out]
        self.operators: dict[str, int] = {}
        self.off_default: dict[tuple[str, str], int] = {}
        self.totals = dict.fromkeys(
            ["pipelines", "unknown count", "two sources", "skip or replace with damaged records"], 0
        )

    def add(self, case: Case, damaged: bool) -> None:
        self.totals["pipelines"] += 1
        self.totals["unknown count"] += case.unknown
        self.totals["two sources"] += case.sources > 1
        self.totals["skip or replace with damaged records"] += damaged and case.pipeline.get("on_error") in (
            "skip",
            "replace",
        )
        for op in flat(case.pipeline["pipeline"]):
            self.operators[op["op"]] = self.operators.get(op["op"], 0) + 1
            for attribute in next((o["attributes"] for o in self.table if o["name"] == op["op"]), []):
                name = attribute["name"]
                if name in op and ("default" not in attribute or op[name] != attribute["default"]):
                    self.off_default[op["op"], name] = self.off_default.get((op["op"], name), 0) + 1

    def report(self) -> list[str]:
        lines = [f"{name}: {n}" for name, n in self.totals.items()]
        missing = []
        for op in self.table:
            counts = {a["name"]: self.off_default.get((op["name"], a["name"]), 0) for a in op["attributes"]}
            lines.append(
                f"{op['name']}: {self.operators.get(op['name'], 0)}"
                + "".join(f", {k} {v}" for k, v in counts.items())
            )
            missing += [op["name"]] if op["name"] not in self.operators else []
            missing += [
                f"{op['name']}.{k}" for k, v in counts.items() if v == 0 and (op["name"], k) not in UNREACHED
            ]
        return [*lines, f"never off its default or never used: {', '.join(missing) or 'nothing'}"]


def operator_table(binary: str) -> list[dict]:
    return json.loads(
        subprocess.run([binary, "ops", "--json"], check=True, capture_output=True, text=True).stdout
    )["ops"]


def generate(table: list[dict], seed: int, directory: Path, functions: bool = False) -> Case:
    if directory.exists():
        shutil.rmtree(directory)
    return Generator(table, seed, directory, functions).generate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", default="build/cachew")
    parser.add_argument("--functions", action="store_true", help="Python functions too")
    parser.add_argument("--table", type=Path, help="an operator table in a file, in place of the binary's")
    arguments = parser.parse_args()
    table = (
        json.loads(arguments.table.read_text())["ops"]
        if arguments.table
        else operator_table(arguments.binary)
    )
    coverage = Coverage(table, arguments.functions)
    with tempfile.TemporaryDirectory() as directory:
        for k in range(arguments.n):
            case = generate(table, arguments.seed + k, Path(directory, "case"), arguments.functions)
            coverage.add(case, case.damaged)
    print("\n".join(coverage.report()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
