"""./demo and ./test: what they say of words, failures and progress. Other tests run what they run."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from deadlines import HANG_S, wait_for

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))
import steps  # noqa: E402


def load(name):
    """tools/test.py has the name of a package of Python's own."""
    spec = importlib.util.spec_from_file_location(f"front_door_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


runner = load("test")
ARGUMENTS = SimpleNamespace(words=[], all=False, seed=7)


def front(script, *words, **env):
    return subprocess.run(
        [ROOT / script, *words],
        env={**os.environ, **env},
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        ("test", ["--steps"], "unknown option --steps"),
        ("test", ["--step", "nothing"], "--step nothing: expected one of "),
        ("test", ["test_memory"], "test_memory: expected exactly one --step"),
        ("test", ["--seed", "x"], "--seed: invalid int value: 'x'"),
        ("demo", ["--photo", "x"], "unknown word --photo"),
        ("demo", ["--photos"], "--photos: expected a directory"),
    ],
)
def test_a_wrong_word_is_named_before_anything_is_installed(script, words, said):
    done = front(script, *words, BASH_ENV="", JOBS="")
    assert done.returncode == 2 and done.stdout == "" and said in done.stderr


def test_a_list_of_steps_where_there_is_no_python(tmp_path):
    for tool in ("sh", "dirname", "readlink"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    done = front("test", "--list", PATH=str(tmp_path), PYTHON="python3")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "./test: python3 is not there, which --list needs: ./test installs it\n"


def test_what_failed_is_shown_although_leaks_fill_the_end_of_the_output(tmp_path, capsys):
    """A unit test that fails leaks what it has, and meson prints the end of what a program printed."""
    failed = {
        "name": "memory",
        "result": "FAIL",
        "stdout": "[ RUN ] a\n",
        "stderr": "[  ERROR   ] --- 1 != 2\n[   LINE   ] --- test_memory.c:5: error: Failure!\n"
        + "    #1 cw_open\n" * 500,
    }
    passed = {"name": "file", "result": "OK", "stdout": "", "stderr": "ERROR: as it should be\n"}
    (tmp_path / "testlog.json").write_text(f"{json.dumps(passed)}\n{json.dumps(failed)}\n")
    step = runner.Step("unit", "unit tests", 1, [], log=tmp_path / "testlog.json")
    runner.show_failure(
        ARGUMENTS, step, 1, " 1/59 unit - cachew:memory FAIL 1.00s\n" + "    #1 cw_open\n" * 100
    )
    shown = capsys.readouterr().out
    assert shown.endswith("""--- what failed ---
[  ERROR   ] --- 1 != 2
[   LINE   ] --- test_memory.c:5: error: Failure!

FAILED: unit (exit status 1, seed 7). To repeat: ./test --seed 7 --step unit memory

""")


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            "FAILED tests/test_x.py::test_a[1-b c] - assert 1\nERROR tests/test_x.py::test_b\n",
            "'tests/test_x.py::test_a[1-b c]' tests/test_x.py::test_b",
        ),
        ("12/59 unit+threads - cachew:net    TIMEOUT  3600.0s\n", "net"),
        ("to repeat: compare.py --only 13)\n", "-- --only 13"),
        ("killed\n", ""),
    ],
)
def test_the_command_that_repeats_a_failure(output, words):
    step = runner.Step("some", "", 1, [])
    assert runner.repeat_command(ARGUMENTS, step, output) == f"./test --seed 7 --step some {words}".strip()


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"[12/48] Compiling C object", 0.25),
        (b" 3/60 unit - cachew:net OK", 0.05),
        (b"1,500 of 3,000", 0.5),
        (b"....  [ 45%]", 0.45),
        (b"gcc 12/2", None),
        (b"0 of 0", None),
        (b"", None),
    ],
)
def test_the_part_that_is_done(line, part):
    assert steps.part_done(line) == part


INTERRUPTED = """
tests/test_x.py::test_a[1-b c]
tests/test_x.py::test_b
[gw1] [ 33%] FAILED tests/test_x.py::test_a[1-b c]
tests/test_x.py::test_hangs
[gw0] [ 66%] PASSED tests/test_x.py::test_b
"""


def test_an_interrupted_step_tells_what_failed_and_what_was_running(tmp_path, capsys):
    runner.show_interrupted(runner.Step("some", "", 1, []), INTERRUPTED)
    assert (
        capsys.readouterr().out
        == """
some was interrupted
  failed   tests/test_x.py::test_a[1-b c]
  running  tests/test_x.py::test_hangs
"""
    )
    (tmp_path / "said").write_text(INTERRUPTED)
    output = steps.Output((tmp_path / "said").open("rb"), tmp_path / "output")
    output.thread.join()
    assert (output.n_failed, output.part) == (1, 0.66)
    assert (
        steps.progress_text(60, output.part, 60, output.n_failed)
        == "66%, 60 s, about 31 s left in this step, 1 failed"
    )


def test_an_interrupted_step_ends_all_that_it_started(tmp_path):
    pid = tmp_path / "pid"

    def interrupt():
        if pid.exists() and pid.read_text().endswith("\n"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        steps.run(
            ["sh", "-c", f"sleep {HANG_S} & echo $! >'{pid}'; wait"],
            steps.Line("a step"),
            tmp_path / "output",
            poll=interrupt,
        )
    wait_for(
        lambda: (
            not Path(f"/proc/{int(pid.read_text())}/cmdline").exists()
            or not Path(f"/proc/{int(pid.read_text())}/cmdline").read_bytes()
        )
    )


@pytest.mark.parametrize("check", ["layers", "structure", "words"])
def test_the_checks_of_the_sources_need_no_other_program(check, tmp_path):
    """A fresh machine has no git. `lint` must pass there, too."""
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / f"check_{check}.py"],
        env={**os.environ, "PATH": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
