"""The Python in README.md and docs/ runs.

The blocks of a page marked ```python are one program, in their order, each line at its own number, so that a
traceback names the place in the page. It runs in a directory of its own that holds build/photos and
build/photos-folder as the demo has them, few of them. Four comments may stand before a block:

    <!-- not run: why -->       only its syntax is looked at: other people's code, or what needs a machine
    that is not here <!-- needs: torch -->       left out where that is not installed; the test then says so
    <!-- fails: StateError -->  it must raise that exception
    <!-- file: train.py -->     it is that file, and no part of the program; the test_*.py among the files of
    a page are run by pytest, beside the others

A print that is a line of its own with a comment behind it must print what the comment says.
"""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deadlines import HANG_S

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:<!-- *(?P<kind>not run|needs|fails|file): *(?P<word>[^>]*?) "
    r"*-->\n+)?^```python\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PAGES = [
    p for p in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if BLOCK.search(p.read_text())
]

# What the program begins with, on its first line: opening a service may take HANG_S, and a print compares.
PRELUDE = (
    f"""
import sys
sys.path += [{str(Path(__file__).parent)!r}, {str(ROOT / "tests")!r}]
import waiting
waiting.open_patiently()
del sys.path[-2:]
del sys, waiting
"""
    """
def compared(*values, _print=print, _file=__file__, _lines=open(__file__).read().splitlines(), **options):
    import sys
    caller = sys._getframe(1)
    if caller.f_code.co_filename != _file:  # a library prints
        return _print(*values, **options)
    text = " ".join(map(str, values))
    line = _lines[caller.f_lineno - 1]
    said = line.partition(")  # ")[2] if line.startswith("print(") else ""
    if said and text != said:
        raise AssertionError(f"printed {text!r}, and the page says {said!r}")
    _print(text)
__builtins__.print = compared
del compared
"""
)


def program(page):
    """The page's blocks as a program of as many lines, and what was left out of it."""
    text = page.read_text()
    lines = [""] * (text.count("\n") + 1)
    left_out = []
    for block in BLOCK.finditer(text):
        code, kind, word = block["code"], block["kind"], block["word"]
        first = text.count("\n", 0, block.start("code"))
        ast.parse(code, f"{page}:{first + 1}")
        if kind in ("not run", "file"):
            continue
        if kind == "needs" and importlib.util.find_spec(word) is None:
            left_out.append(f"line {first + 1} needs {word}")
            continue
        body = code.splitlines()
        if kind == "fails":  # in the same number of lines
            body = [f"with __import__('pytest').raises({word}):", *("    " + line for line in body)]
            first -= 1  # where the ``` stands
        lines[first : first + len(body)] = body
    lines[0] = f"exec(compile({PRELUDE!r}, 'print', 'exec'))"  # the title's line
    return "\n".join(lines), left_out


@pytest.fixture
def photos(tmp_path, examples):
    """A directory with photographs where the pages look for them."""
    (tmp_path / "build").symlink_to(examples.parents[1] / "build")
    return tmp_path


def environment(**more):
    """Of the programs of a page. One that ends with a finished iterator waits a third of CACHEW_SILENCE_S
    for the service, which may have ended before it. Several threads of PyTorch would wait busily for each
    other on a loaded machine.
    """
    return {**os.environ, "CACHEW_SILENCE_S": "30", "OMP_NUM_THREADS": "1", **more}


@pytest.mark.large(keep=0)
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_python_of_a_page_runs(page, photos, shared_dir):
    code, left_out = program(page)
    script = photos / f"page_{page.stem}.py"  # lightning.py would hide the library
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=photos,
        env=environment(XDG_CACHE_HOME=str(shared_dir / "cache")),  # for cachew.demo.photos
    )
    assert done.returncode == 0, f"{page.relative_to(ROOT)}: in the lines of {script}:\n{done.stderr[-3000:]}"
    if left_out:
        pytest.skip("all but: " + "; ".join(left_out))


def test_the_notebook_has_the_blocks_of_the_tutorial():
    page = ROOT / "docs" / "tutorial.md"
    cells = json.loads((ROOT / "examples" / "tutorial.ipynb").read_text())["cells"]
    first, *others = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert "os.chdir" in first
    assert others == [block["code"].strip() for block in BLOCK.finditer(page.read_text())]


def files(page):
    return {
        block["word"]: block["code"] for block in BLOCK.finditer(page.read_text()) if block["kind"] == "file"
    }


@pytest.mark.parametrize("page", [p for p in PAGES if files(p)], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_files_of_a_page_pass_their_tests(page, photos, command):
    for name, code in files(page).items():
        (photos / name).write_text(code)
    path = f"{Path(command).parent}:{os.environ['PATH']}"
    tests = sorted(name for name in files(page) if name.startswith("test_"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=photos,
        env=environment(PATH=path),
    )
    assert done.returncode == 0 and f"{len(tests)} passed" in done.stdout, done.stdout[-3000:]


def test_what_a_page_promises_is_compared(tmp_path):
    """The check itself: a wrong comment behind a print is noticed, with the page's line."""
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n```python\nx = 2\nprint(x + 1)  # 3\n```\n\nText.\n\n```python\nprint(x)  # 3\n```\n"
    )
    script = tmp_path / "page.py"
    script.write_text(program(page)[0])
    done = subprocess.run(
        [sys.executable, script], check=False, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 1
    assert "line 11" in done.stderr and "printed '2', and the page says '3'" in done.stderr
