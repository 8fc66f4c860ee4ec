#!/usr/bin/env python3
"""Writes python/cachew/_methods.pyi, the operators as typed methods, from `cachew ops --json`: the
operators' own descriptions are the only source. With --check it writes nothing, and fails if the stub is not
current."""

import argparse
import json
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUB = ROOT / "python" / "cachew" / "_methods.pyi"

WIDTH = 110
DTYPES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
HEAD = """# Made by tools/make_stubs.py from `cachew ops --json`: change the operator's file, not this one.
import os
from collections.abc import {abc}
from typing import Any, Literal, TypeAlias

import numpy as np

from cachew.dataset import Dataset
from cachew.expr import Expr

_DType: TypeAlias = (
    Literal[
{dtypes}
    ]
    | np.dtype[Any]
    | type[Any]
)
_Expression: TypeAlias = Expr | str | bool | int | float
_Operators: TypeAlias = Callable[[Dataset], Dataset] | Sequence[Any]
_Path: TypeAlias = str | os.PathLike[str]

def read_table() -> None: ...
def load_plugin(path: _Path) -> None: ...

class Operators:
"""

# Annotations by the kind of an attribute.
TYPES = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "string": "str",
    "dtype": "_DType",
    "expr": "_Expression",
    "component": "str",
    "ints": "Sequence[int]",
    "floats": "Sequence[float]",
    "strings": "Sequence[str]",
    "object": "Mapping[str, Any]",
    "chains": "Sequence[Dataset]",
    "operators": "_Operators",
}
# One value instead of those; of an object: a number.
ONE = {"ints": "int", "floats": "float", "strings": "str", "object": "float"}
# Methods whose calls have a form of their own (cachew/_operators.py, FORMS).
FORMS = {"assign": ["self", "expressions: Mapping[str, _Expression] = ...", "/", "**named: _Expression"]}
# Written by hand, in cachew/_memory.py; those that take functions are in cachew/_functions.py.
BY_HAND = {"arrays", "arrow", "materialized"}


def annotation(a):
    choices = f"Literal[{', '.join(json.dumps(c) for c in a['choices'])}]" if "choices" in a else None
    if choices and a["kind"] == "string":
        return choices
    if a.get("path"):
        return "_Path" if a["kind"] == "string" else "_Path | Sequence[_Path]"
    name = TYPES[a["kind"]]
    one = ONE[a["kind"]] if a.get("scalar") else None
    return " | ".join(filter(None, [choices, one, name]))


def value(default):
    return json.dumps(default) if isinstance(default, str) else repr(default)


def parameters(op):
    if op["name"] in FORMS:
        return FORMS[op["name"]]
    first = "cls" if begins(op) else "self"
    positional = [a for a in op["attributes"] if "default" not in a] or op["attributes"][:1]
    named = [a for a in op["attributes"] if a not in positional]
    return [first, *map(parameter, positional), *(["*"] if named else []), *map(parameter, named)]


def parameter(a):
    return f"{a['name']}: {annotation(a)}" + (f" = {value(a['default'])}" if "default" in a else "")


def begins(op):
    return op["kind"] == "source" or any(a["kind"] == "chains" for a in op["attributes"])


def wrapped(text, indent=""):
    """Lines of a docstring; each could be one that stands alone between its quotes."""
    return textwrap.wrap(
        text,
        WIDTH - len('        """""""'),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def docstring(op):
    lines = wrapped(op["summary"][0].upper() + op["summary"][1:] + ".")
    if op.get("doc"):
        lines += ["", *wrapped(op["doc"])]
    if op["attributes"]:
        lines += [""]
        for a in op["attributes"]:
            lines += wrapped(f"{a['name']}: {a['doc']} ({a['allowed']})", "    ")
    if len(lines) == 1:
        return f'        """{lines[0]}"""'
    body = "\n".join(f"        {line}".rstrip() for line in lines[1:])
    return f'        """{lines[0]}\n{body}\n        """'


def method(op):
    decorator = "    @classmethod\n" if begins(op) else ""
    given = parameters(op)
    signature = f"    def {op['name']}({', '.join(given)}) -> Dataset:"
    if len(signature) > WIDTH:
        signature = (
            f"    def {op['name']}(\n" + "".join(f"        {p},\n" for p in given) + "    ) -> Dataset:"
        )
    return f"{decorator}{signature}\n{docstring(op)}\n"


def stub(table):
    table = [
        op
        for op in table
        if op["name"] not in BY_HAND
        and not op.get("for_tests")
        and not any(a["kind"] == "function" for a in op["attributes"])
    ]
    unknown = sorted({a["kind"] for op in table for a in op["attributes"]} - set(TYPES))
    if unknown:
        sys.exit(f"make_stubs: attribute kinds without an annotation: {', '.join(unknown)}")
    methods = "\n".join(method(op) for op in table)
    abc = ", ".join(name for name in ("Callable", "Mapping", "Sequence") if f"{name}[" in HEAD + methods)
    dtypes = "\n".join(f'        "{name}",' for name in DTYPES)
    return HEAD.replace("{abc}", abc).replace("{dtypes}", dtypes) + methods


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cachew", type=Path, default=ROOT / "build" / "cachew")
    parser.add_argument("--check", action="store_true", help="fail when the stub is stale")
    args = parser.parse_args()
    out = subprocess.run([args.cachew, "ops", "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    text = stub(json.loads(out)["ops"])
    if not args.check:
        STUB.write_text(text)
    elif not STUB.exists() or STUB.read_text() != text:
        sys.exit(f"{STUB.relative_to(ROOT)} is stale: run tools/make_stubs.py")


if __name__ == "__main__":
    main()
