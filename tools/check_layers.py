#!/usr/bin/env python3
"""Checks which folders include headers of which: a folder of src/ may use only itself and the folders before
it in LAYERS, and the Python extension (python/src) only the public headers.

usage: check_layers.py [ROOT]     (without ROOT: checks this repository, after a test of the check itself)
"""

import re
import sys
import tempfile
from pathlib import Path

LAYERS = [
    *("base", "data", "objects", "storage", "formats", "proto", "net", "host", "policy"),
    *("pipeline", "dataset", "ops", "cache", "optimize", "exec", "engine", "order"),
    *("session", "explain", "remote", "api"),
    *("service/fleet", "service/worker", "service/dispatcher", "sim", "cli"),
]
GROUPS = ("service",)  # folders that contain only folders of LAYERS
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def room(path: str) -> str:
    """The room of a file, given relative to src/: its first folder, or its first two in a group."""
    words = path.split("/")
    return "/".join(words[: 2 if words[0] in GROUPS else 1])


def violations(src: Path) -> list[str]:
    found = []
    for folder in sorted({room(str(p.relative_to(src))) for p in src.rglob("*.[ch]")}):
        if folder not in LAYERS:
            found.append(f"{src / folder}: a folder without a place among the layers")
    for path in sorted(src.rglob("*.[ch]")):
        folder = room(str(path.relative_to(src)))
        if folder not in LAYERS:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            included = match.group(1)
            if "/" not in included:  # generated, or beside the file
                if not (path.parent / included).exists() and not (path.parent / f"{included}.in").exists():
                    found.append(f'{path}:{number}: "{included}" is not beside it: write the folder too')
                continue
            target = room(included)
            if target == "cachew":  # the public header: only for who implements it
                if folder != "api":
                    found.append(f"{path}:{number}: {folder}/ includes the public header")
            elif target not in LAYERS:
                found.append(f'{path}:{number}: "{included}": no such layer')
            elif LAYERS.index(target) > LAYERS.index(folder):
                found.append(f'{path}:{number}: {folder}/ includes "{included}", which lies above it')
    return found


def extension_violations(src: Path) -> list[str]:
    """The extension module sees the public header, as <cachew/cachew.h>, and its own files."""
    found = []
    for path in sorted(src.glob("*.[ch]")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and not (path.parent / match.group(1)).exists():
                found.append(
                    f'{path}:{number}: "{match.group(1)}" is not beside it: the extension uses '
                    f"<cachew/cachew.h> and Python alone"
                )
    return found


def test() -> None:
    """The check finds what it should, and nothing else."""
    with tempfile.TemporaryDirectory() as directory:
        src = Path(directory)
        files = {
            "base/a.h": "",
            "base/a.c": '#include "base/a.h"\n#include "data/b.h"\n',
            "data/b.h": '#include "base/a.h"\n',
            "ops/kernels/k.c": '#include "engine/e.h"\n',
            "ops/o.c": '#include "ops/kernels/k.h"\n#include <stdio.h>\n  # include "cli/c.h"\n',
            "engine/e.h": '#include "ops/o.h"\n',
            "odd/x.c": "",
        }
        extension = {
            "core.h": "#include <cachew/cachew.h>\n",
            "a.c": '#include "core.h"\n#include "data/b.h"\n',
        }
        for name, text in files.items():
            (src / name).parent.mkdir(parents=True, exist_ok=True)
            (src / name).write_text(text)
        found = [v.removeprefix(str(src) + "/").split(": ")[0] for v in violations(src)]
        assert found == ["odd", "base/a.c:2", "ops/kernels/k.c:1", "ops/o.c:3"], found
    with tempfile.TemporaryDirectory() as directory:
        for name, text in extension.items():
            (Path(directory) / name).write_text(text)
        found = extension_violations(Path(directory))
        assert len(found) == 1 and "a.c:2" in found[0], found


def main() -> int:
    test()
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    found = violations(root / "src") + extension_violations(root / "python" / "src")
    for line in found:
        print(line)
    n = sum(1 for _ in [*(root / "src").rglob("*.[ch]"), *(root / "python" / "src").glob("*.[ch]")])
    print(f"layers: {n} files, {len(found)} arrows the wrong way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
