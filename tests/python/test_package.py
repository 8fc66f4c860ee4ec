"""The package as a whole: what importing it costs, types, stubs, the command."""

import subprocess
import sys
from pathlib import Path

import cachew
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PACKAGE = Path(cachew.__file__).parent


def test_importing_imports_little(script):
    ran = script("""
import sys, numpy
before = set(sys.modules)
import cachew
print(*sorted(m.split(".")[0] for m in set(sys.modules) - before))
""")
    new = set(ran.stdout.split())
    assert (
        not new & {"torch", "jax", "cloudpickle", "pyarrow", "ml_dtypes", "multiprocessing", "asyncio"}
        and len(new) < 20
    ), new


def test_importing_leaves_what_is_not_needed_yet(script):
    """Modules of the package that only some programs need are imported by the call that needs them.

    bench/python_cachew.py measures how long the import takes."""
    ran = script("""
import sys, numpy
import cachew
print(*(m for m in sys.modules if m.startswith("cachew.")))
""")
    late = {"torch", "jax", "_loader", "_service", "_identity", "_modules", "_places"}
    late |= {"_host", "_host_function", "_host_rows", "_host_values"}
    assert not set(ran.stdout.split()) & {f"cachew.{name}" for name in late}, ran.stdout


@pytest.mark.parametrize(
    "program", [[str(Path(sys.executable).parent / "cachew")], [sys.executable, "-m", "cachew"]]
)
def test_the_command(program):
    ran = subprocess.run([*program, "ops", "batch"], check=False, capture_output=True, text=True)
    assert ran.returncode == 0 and "drop_remainder" in ran.stdout
    assert subprocess.run([*program, "run"], check=False, capture_output=True).returncode == 2
    light = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import _cachew_command"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "numpy" not in light.stderr


def test_stubs_are_those_of_the_table(command):
    for tool in ("make_stubs.py", "make_operator_pages.py"):
        ran = subprocess.run(
            [sys.executable, ROOT / "tools" / tool, "--check", "--cachew", PACKAGE / "cachew-command"],
            check=False,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "_methods.pyi").read_text() == (
        ROOT / "python" / "cachew" / "_methods.pyi"
    ).read_text()


def mypy(tmp_path, *words):
    """For the oldest Python that the package works with."""
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10"]
    return subprocess.run(
        [*command, "--cache-dir", tmp_path / "cache", *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )


def test_the_package_and_what_users_write_are_typed_for_mypy(tmp_path):
    """All of the package but the program of the hosts. The examples have no errors, and a misspelt method is
    one. (One test, as both read the types of torch.)
    """
    pytest.importorskip("mypy")
    ran = mypy(tmp_path, "--exclude", r"/_host(_\w+)?\.py$", ROOT / "python" / "cachew")
    assert ran.returncode == 0, ran.stdout
    (tmp_path / "wrong.py").write_text(
        "from cachew import "
        'Dataset\nDataset.range(3).bacth(3)\nDataset.range(3).batch("x")\nDataset.range(3).shuffle(1)\n'
    )
    ran = mypy(tmp_path, "wrong.py", *EXAMPLES)
    errors = [line.split(":")[:2] for line in ran.stdout.splitlines() if ": error:" in line]
    assert errors == [["wrong.py", line] for line in "234"], ran.stdout


def test_examples_are_typed_for_pyright(tmp_path):
    pytest.importorskip("basedpyright")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    for file in EXAMPLES:
        (tmp_path / file.name).write_text(file.read_text())
    ran = subprocess.run(
        [Path(sys.executable).parent / "basedpyright", "--pythonpath", sys.executable, "-p", tmp_path],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stdout
