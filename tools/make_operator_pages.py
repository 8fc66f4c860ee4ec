#!/usr/bin/env python3
"""Writes docs/operators.md from `cachew ops --json`: the operators' own descriptions are the only source.
With --check it writes nothing, and fails if the page is not current."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operators.md"

KINDS = [
    (
        "source",
        "Sources",
        "A pipeline starts with a source, or with `concat`, `mix` or `zip`. The sources are:",
    ),
    ("map", "Operators on elements", 'These operators (kind "map") make one element of each element:'),
    (
        "filter",
        "Filters",
        (
            "Filters keep or drop elements. The number of elements after a filter is not known in advance. "
            "The filters are:"
        ),
    ),
    (
        "flat_map",
        "One element in, any number out",
        (
            "These operators make any number of elements of each element, so the number of elements after "
            "them is not known in advance:"
        ),
    ),
    (
        "index",
        "Order and count",
        (
            'These operators (kind "index") decide which elements come, and in which order. They change '
            "indices, and move no data:"
        ),
    ),
    ("batcher", "Batchers", "A batcher joins elements into batches. A pipeline has at most one batcher:"),
    ("batch_map", "Operators on batches", "These operators come after `batch` or `bucket_by_length`:"),
]

HEAD = (
    "# Operators\n\n"
    "<!-- made by tools/make_operator_pages.py from `cachew ops --json`: "
    "change the operator's file, not this page -->\n"
    """
This page describes every operator and its attributes. The command
`cachew ops NAME` prints the description of one operator. These pages define details:

- [semantics.md](semantics.md): where in a pipeline each kind of operator is allowed, and the order of batches
- [pixels.md](pixels.md): the exact results of image operators
- [randomness.md](randomness.md): the random numbers of random operators
- [expressions.md](expressions.md): the language of attributes that are expressions

In Python, operators are methods of datasets, and attributes are their arguments.
[python.md](python.md#python-functions) describes operators that run Python functions.
"""
)


def cell(text):
    return text.replace("|", "\\|")


def default(attribute):
    if "default" not in attribute:
        return "required"
    return f"`{json.dumps(attribute['default'])}`"


def section(op):
    summary = f"`{op['name']}`: {op['summary']}."
    lines = [f"### `{op['name']}`", "", summary + (" " + op["doc"] if op["doc"] else "")]
    if op["random"]:
        certain = any(a["name"] == "p" and a.get("default") == 1 for a in op["attributes"])
        subject = "With `p` less than 1, this operator" if certain else "This operator"
        lines[-1] += f" {subject} is random: its results differ between epochs and between seeds."
    if op["attributes"]:
        lines += ["", f"| attribute of `{op['name']}` | default | allowed | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{a['name']}` | {default(a)} | {cell(a['allowed'])} | {cell(a['doc'])} |"
            for a in op["attributes"]
        ]
    return "\n".join(lines) + "\n"


def page(table):
    known = {kind for kind, _, _ in KINDS}
    unknown = sorted({op["kind"] for op in table} - known)
    if unknown:
        sys.exit(f"make_operator_pages: kinds without a section: {', '.join(unknown)}")
    parts = [HEAD]
    for kind, title, text in KINDS:
        ops = [op for op in table if op["kind"] == kind]
        names = ", ".join(f"[`{op['name']}`](#{op['name']})" for op in ops)
        parts += [f"## {title}\n\n{text} {names}\n", *map(section, ops)]
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cachew", type=Path, default=ROOT / "build" / "cachew")
    parser.add_argument("--check", action="store_true", help="fail when the page is stale")
    args = parser.parse_args()
    out = subprocess.run([args.cachew, "ops", "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    text = page(json.loads(out)["ops"])
    if not args.check:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        sys.exit(f"{PAGE.relative_to(ROOT)} is stale: run tools/make_operator_pages.py")


if __name__ == "__main__":
    main()
