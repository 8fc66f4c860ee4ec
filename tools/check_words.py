#!/usr/bin/env python3
"""Checks the text of the sources: forbidden functions (tools/banned.txt), tabs, spaces at ends
of lines, setjmp outside decoders, cleanup attributes beside setjmp. Lists C files of more than 500 lines.

usage: check_words.py [ROOT]
"""

import re
import sys
from pathlib import Path

MAX_LINES = 500
SUFFIXES = {
    ".c",
    ".h",
    ".py",
    ".sh",
    ".md",
    ".json",
    ".build",
    ".txt",
    ".1",
    ".js",
    ".css",
    ".html",
    ".svg",
    ".yml",
}
SKIPPED = {".git", "build", "shared", "__pycache__", "corpus"}
DECODERS = re.compile(r"src/formats/image_\w+\.c$")
# cmocka.h needs setjmp.h
MAY_SETJMP = re.compile(r"src/formats/image_\w+\.c$|^tests/|^tools/|^fuzz/|^bench/")
TOOLS = re.compile(r"^(tests|tools|fuzz|bench|examples)/")  # may wait, and end themselves
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def banned() -> dict[str, str]:
    lines = (Path(__file__).parent / "banned.txt").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def files(root: Path):
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if any(p in SKIPPED or p.startswith("build-") for p in relative.parts):
            continue
        if path.is_file() and (path.suffix in SUFFIXES or path.name == "Makefile"):
            yield relative.as_posix(), path


def code_only(text: str) -> str:
    """Comments and strings are blanked; lines stay where they are."""
    return COMMENT_OR_STRING.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def check_c(name: str, text: str, words: dict[str, str], call: re.Pattern) -> list[str]:
    found = []
    code = code_only(text)
    for number, line in enumerate(code.splitlines(), 1):
        for word in call.findall(line):
            if word in ("setjmp", "longjmp") and MAY_SETJMP.search(name):
                continue
            if word not in ("setjmp", "longjmp") and TOOLS.search(name):
                continue
            found.append(f"{name}:{number}: {word}: use {words[word]}")
        if re.match(r"\s*#\s*include\s*<setjmp.h>", line) and not MAY_SETJMP.search(name):
            found.append(f"{name}:{number}: setjmp.h is for src/formats/image_*.c only")
    if re.search(r"\bsetjmp\s*\(", code) and DECODERS.search(name) and "_cleanup_" in code:
        found.append(f"{name}: has setjmp and _cleanup_ variables: a jump passes over the clean-up")
    return found


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    words = banned()
    call = re.compile(r"(?<![\w.>])(" + "|".join(map(re.escape, words)) + r")\s*\(")
    assert call.findall("strcpy(a, b); x.strcpy(a); my_strcpy(a); return strtok (s)") == ["strcpy", "strtok"]
    found, long, n = [], [], 0
    for name, path in files(root):
        text = path.read_text(errors="replace")
        n += 1
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip():
                found.append(f"{name}:{number}: spaces at the end of the line")
            if "\t" in line and path.name != "Makefile" and path.suffix != ".1":
                found.append(f"{name}:{number}: a tab")
        if text and not text.endswith("\n"):
            found.append(f"{name}: does not end with a newline")
        if path.suffix in (".c", ".h"):
            found += check_c(name, text, words, call)
            lines = text.count("\n")
            if lines > MAX_LINES and name.startswith("src/"):
                long.append(f"{name}: {lines} lines")
    for line in found:
        print(line)
    for line in long:
        print(f"long: {line}")
    print(f"words: {n} files, {len(found)} to mend, {len(long)} of more than {MAX_LINES} lines")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
