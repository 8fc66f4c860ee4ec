#!/usr/bin/env python3
"""Checks that man/cachew.1 has the verbs and options that the command's --help lists, and no others.

The options of a verb are in sections "Of ... VERB ...", or in "Of several verbs".

usage: check_man.py COMMAND
"""

import re
import subprocess
import sys
from pathlib import Path

SEVERAL = "Of several verbs"


def listed(command: str, *words: str) -> str:
    return subprocess.run(
        [command, *words, "--help"], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def sections(page: str) -> dict[str, set[str]]:
    """Returns the options by the title of their section. An option counts only at the beginning of a
    paragraph, not where the text mentions it.
    """
    options = page.split(".SH OPTIONS")[1].split(".SH EXIT STATUS")[0].replace("\\-", "-")
    found = {}
    for part in options.split("\n.SS ")[1:]:
        title, text = part.split("\n", 1)
        found[title.strip()] = {
            option
            for line in re.findall(r"^\.TP\n(.*)$", text, re.MULTILINE)
            for option in re.findall(r"--([a-z-]+)", line)
        }
    return found


def check(page: str, options: dict[str, set[str]]) -> list[str]:
    wrong = []
    verbs = page.split(".SH VERBS")[1].split(".SH OPTIONS")[0]
    there = set(
        re.findall(
            r'^\.(?:B|BI|BR) "?([a-z]+)',
            "\n".join(re.findall(r"^\.TP\n(.*)$", verbs, re.MULTILINE)),
            re.MULTILINE,
        )
    )
    wrong += [f"verb {verb} is not in VERBS" for verb in sorted(set(options) - there)] + [
        f"there is no verb {verb}" for verb in sorted(there - set(options))
    ]
    by_title = sections(page)
    known = set().union(*options.values())
    for verb, names in options.items():
        has = set().union(
            *(
                found
                for title, found in by_title.items()
                if title == SEVERAL or verb in re.findall(r"[a-z]+", title)
            )
        )
        wrong += [f"--{name} of {verb} is missing" for name in sorted(names - has)]
    for title, found in by_title.items():
        meant = (
            known
            if title == SEVERAL
            else set().union(*(options.get(verb, set()) for verb in re.findall(r"[a-z]+", title)))
        )
        wrong += [f'"{title}": there is no --{name}' for name in sorted(found - meant)]
    return wrong


def main() -> int:
    command = sys.argv[1]
    page = (Path(__file__).resolve().parents[1] / "man" / "cachew.1").read_text()
    verbs = re.findall(r"^  ([a-z]+) ", listed(command), re.MULTILINE)
    options = {
        verb: set(re.findall(r"^  --([a-z-]+)", listed(command, verb), re.MULTILINE)) - {"help"}
        for verb in verbs
    }
    wrong = check(page, options)
    assert check(page.replace(".SS Of keys", ".SS Of nobody"), options) != wrong  # it finds what it should
    for line in wrong:
        print(f"man/cachew.1: {line}")
    print(f"man page: {len(verbs)} verbs, {sum(map(len, options.values()))} options, {len(wrong)} to mend")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
