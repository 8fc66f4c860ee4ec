#!/usr/bin/env python3
"""Makes examples/tutorial.ipynb, the tutorial as a Jupyter notebook, from docs/tutorial.md."""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?=[a-z-]+\.md)")  # to another page of docs/
COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)  # for the test that runs the page
FIRST = """# The paths of the tutorial begin in the project's directory, where ./demo has made build/photos.
import os

while not os.path.isdir("build/photos") and os.getcwd() != "/":
    os.chdir("..")
"""


def cell(number, kind, text):
    lines = text.strip().splitlines(True)
    made = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
    return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def notebook(page):
    # re.split puts the text of a block, the group, between the texts around it
    parts = [
        ("code", text) if i % 2 else ("markdown", LINK.sub("](../docs/", COMMENT.sub("", text)))
        for i, text in enumerate(BLOCK.split(page))
    ]
    parts.insert(1, ("code", FIRST))
    cells = [cell(i, kind, text) for i, (kind, text) in enumerate(parts) if text.strip()]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the notebook is stale")
    args = parser.parse_args()
    text = json.dumps(notebook(PAGE.read_text()), indent=1, ensure_ascii=False) + "\n"
    if not args.check:
        NOTEBOOK.write_text(text)
    elif not NOTEBOOK.exists() or NOTEBOOK.read_text() != text:
        sys.exit(f"{NOTEBOOK.relative_to(ROOT)} is stale: run tools/make_notebook.py")


if __name__ == "__main__":
    main()
