#!/usr/bin/env python3
"""Writes the table under "Limits" in docs/protocol.md from src/net/limits.h, which the code uses. With
--check it writes nothing, and fails if the table is not current."""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "src" / "net" / "limits.h"
PAGE = ROOT / "docs" / "protocol.md"
TABLE = re.compile(r"(?<=^## Limits\n\n)(?:\|.*\n)+", re.MULTILINE)
HEAD = "| receiving process | largest message | largest payload | queued for sender |\n|---|---|---|---|\n"


def value(text, constants):
    text = re.sub(r"\(size_t\)", "", text)
    return int(
        eval(
            re.sub(r"\bCW_\w+", lambda m: f"({constants[m.group()]})", text).replace("/", "//"),
            {"__builtins__": {}},
        )
    )


def size(n):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit and n % unit == 0:
            return f"{n // unit} {name}"
    return str(n)


def table(header):
    constants = {}
    rows = []
    header = re.sub(r"\s*\\\n\s*", " ", header)
    for name, text, who in re.findall(r"^#define (CW_\w+) (.*?)(?:\s*/\* (.*) \*/)?$", header, re.MULTILINE):
        if not text.startswith("{"):
            constants[name] = value(text, constants)
            continue
        message, payload, queued = (
            value(text_of, constants)
            for text_of in re.fullmatch(
                r"{\.message = (.*), \.payload = (.*), \.queued = (.*)}",
                text,
            ).groups()
        )
        rows.append(
            f"| {who} | {size(message)} | {size(payload)} | {size(queued) if queued else 'see the text'} |\n"
        )
    first = f"| any process, before the handshake is done | {size(constants['CW_HANDSHAKE_BYTES'])} | 0 | |\n"
    return HEAD + first + "".join(rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail when the table is stale")
    args = parser.parse_args()
    page = PAGE.read_text()
    if not TABLE.search(page):
        sys.exit(f'{PAGE.relative_to(ROOT)} has no table under "Limits"')
    made = TABLE.sub(lambda m: table(HEADER.read_text()), page)
    if not args.check:
        PAGE.write_text(made)
    elif made != page:
        sys.exit(f"{PAGE.relative_to(ROOT)}: the table of limits is stale: run tools/make_limits.py")


if __name__ == "__main__":
    main()
