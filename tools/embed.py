#!/usr/bin/env python3
"""Writes files as C arrays, for src/service/dispatcher/web.h.

usage: embed.py OUTPUT FILE...
"""

import sys
from pathlib import Path

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def main() -> None:
    output, *files = map(Path, sys.argv[1:])
    arrays, rows = [], []
    for i, path in enumerate(files):
        data = path.read_bytes()
        assert data and 0 not in data, f"{path}: expected text"
        lines = (", ".join(map(str, data[at : at + 32])) for at in range(0, len(data), 32))
        arrays.append(
            f"static const unsigned char file_{i}[] = {{\n"
            + ",\n".join(f"    {line}" for line in lines)
            + "\n};\n"
        )
        rows.append(
            f'    {{"/{"" if path.name == "index.html" else path.name}", "{TYPES[path.suffix]}", '
            f"file_{i}, sizeof(file_{i})}},\n"
        )
    output.write_text(
        '#include "service/dispatcher/web.h"\n\n' + "".join(arrays) + f"\nconst struct cw_web_file "
        f"cw_web_files[] = "
        f"{{\n{''.join(rows)}}};\n"
        f"const size_t cw_n_web_files = {len(files)};\n"
    )


if __name__ == "__main__":
    main()
