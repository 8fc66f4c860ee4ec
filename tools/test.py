#!/usr/bin/env python3
"""Runs the tests in one of two sizes. `./test` installs the packages that this program needs and runs it
(./test --help).

Every change must pass the sample: one build of all C code, with UBSan; every kind of test; a sample of the
tests with many parameters. --all runs everything: all parameters of all tests; the sample of those that find
more under AddressSanitizer and UBSan, or under ThreadSanitizer; the Python package as pip installs it.

Environment: BUILD is the prefix of the build directories (build), JOBS the number of processes at once (the
number of CPUs that this process may use), MESON and PYTHON the programs.
"""

import argparse
import functools
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import steps

ROOT = Path(__file__).resolve().parents[1]
MESON = os.environ.get("MESON", "meson")
BUILD = os.environ.get("BUILD", "build")
JOBS = os.environ.get("JOBS") or len(os.sched_getaffinity(0))
if not str(JOBS).isdigit() or int(JOBS) < 1:
    sys.exit(f"./test: JOBS is {JOBS}: expected a number of processes, 1 or more")
JOBS = int(JOBS)
PACKAGE_PYTHON = (3, 11)  # the tests of the Python package need this version or a later one
TEST_S = 1200  # after this time a test's process prints the stacks of its threads and ends
FAILURE_LINES = 150  # number of lines at the end of a failed step's output that are printed
# weight of the expected speed in Clock.left, as seconds of measured steps
PRIOR_S = 100
ENVIRONMENT = {
    # A sanitizer's report ends the program.
    "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",  # more threads of NumPy would waste CPU time: they spin while they wait
}
# gcc with -O1 takes half of the time that -O2, or clang with the same sanitizers, takes to compile, but gives
# wrong warnings about text that snprintf may cut.
QUICK = ["-Db_lundef=false", "-Doptimization=1", "-Dc_args=-g1 -Wno-format-truncation"]
# Name of a build: (compiler, options). AddressSanitizer would double the time of the tests.
BUILDS = {
    "sample": ("gcc", ["-Dpython=true", "-Db_sanitize=undefined", *QUICK]),
    "gcc": ("gcc", ["-Dpython=true"]),
    "asan": ("gcc", ["-Db_sanitize=address,undefined", *QUICK]),
    "tsan": (
        "clang",
        ["-Db_sanitize=thread", "-Db_lundef=false", "-Doptimization=1", "-Dc_args=-g1"],
    ),
}


@dataclass
class Step:
    """Commands that run one after the other, and what the run prints about them."""

    name: str
    what: str
    seconds: float  # expected on two idle cores
    commands: list
    env: dict = field(default_factory=dict)
    # narrow(words): the last command, for these tests alone; None: the words are appended to it
    narrow: object = None
    log: Path = None  # of meson test: what each program printed, whole

    def narrowed(self, words):
        return [*self.commands[:-1], self.narrow(words) if self.narrow else [*self.commands[-1], *words]]


# ---- kinds of steps ----


def directory(build):
    return ROOT / f"{BUILD}-{build}"


def python(venv):
    return str(ROOT / "build" / venv / "bin" / "python")


def compiled(build, seconds):
    compiler, options = BUILDS[build]
    options = [o for o in options if has_package() or o != "-Dpython=true"]
    there = str(directory(build))
    return Step(
        f"compile-{build}",
        f"{compiler} {' '.join(o for o in options if 'sanitize' in o)}",
        seconds,
        [
            ["tools/setup.sh", there, "--werror", "-Dcrash_points=true", *options],
            ["ninja", "-C", there, "all", "tests"],
        ],
        {"CC": compiler},
    )


def unit(build, name, seconds, *words, env=None):
    command = [
        MESON,
        "test",
        "-C",
        str(directory(build)),
        "--no-rebuild",
        "--num-processes",
        str(JOBS + 1),
        "--print-errorlogs",
        *words,
    ]
    return Step(
        name,
        "unit tests",
        seconds,
        [command],
        # meson would have malloc fill memory, and some tests allocate 100 MB that they hardly use
        {"MALLOC_PERTURB_": "0", **(env or {})},
        narrow=lambda names: [*command, *(re.sub("^test_", "", n) for n in names)],
        log=directory(build) / "meson-logs" / "testlog.json",
    )


def pytest(build, venv, name, what, seconds, files, jobs=JOBS, words=(), env=None):
    command = [
        python(venv),
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "--durations",
        "25",
        "--durations-min",
        "2",
        "-n",
        str(jobs),
        "--dist",
        "worksteal",
        "-o",
        f"faulthandler_timeout={TEST_S}",
        "-o",
        "faulthandler_exit_on_timeout=true",
        *words,
    ]
    tools = directory(build)
    of_build = {
        "CACHEW": str(tools / "cachew"),
        "CACHEW_PIXEL_TOOL": str(tools / "tests" / "pixel_tool"),
    }
    return Step(
        name, what, seconds, [[*command, *files]], {**of_build, **(env or {})}, lambda ids: [*command, *ids]
    )


def model(build, venv, name, seconds, n, first, seed, words=(), env=None):
    command = [
        python(venv),
        "tests/model/compare.py",
        "--n",
        str(n),
        "--seed",
        str(first + 1000000 * (seed - 1)),
        "--jobs",
        str(JOBS),
        "--binary",
        str(directory(build) / "cachew"),
        *words,
    ]
    fixed = "" if "--package" in words else "the fixed and "
    return Step(
        name, f"{fixed}{n} random pipelines against the reference model", seconds, [command], env or {}
    )


def files(pattern, without=""):
    return sorted(
        str(p.relative_to(ROOT)) for p in ROOT.glob(pattern) if not without or not re.search(without, p.name)
    )


# Tests that wait more than they compute: many of them run at a time.
SERVICE = [
    "tests/service",
    "tests/test_autoscale.py",
    "tests/dashboard",
    "tests/test_decisions.py",
    "tests/test_monitoring.py",
]
OWN_STEP = "decisions|monitoring|autoscale|pixels"  # they have other steps


# ---- the two sizes ----


def package_in_build(build):
    """Makes a build's Python package importable, and its command callable, in the environment of the tests:
    what pip does, without compiling again."""
    there = directory(build)
    root = there / "package"
    subprocess.run(
        [
            MESON,
            "install",
            "-C",
            str(there),
            "--no-rebuild",
            "--tags",
            "python-runtime",
            "--destdir",
            str(root),
            "--quiet",
        ],
        check=True,
    )
    package = next(root.rglob("cachew/__init__.py")).parents[1]
    interpreter = Path(python("venv"))
    site = subprocess.run(
        [interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()
    Path(site, "cachew-build.pth").write_text(f"{package}\n")
    command = interpreter.with_name("cachew")
    command.write_text(f"#!{interpreter}\nfrom _cachew_command import main\nmain()\n")
    command.chmod(0o755)


@functools.cache
def has_package():
    """Whether PYTHON, which makes the environments of the tests, is new enough for the Python package."""
    words = [os.environ.get("PYTHON", "python3"), "-c", "import sys; print(*sys.version_info[:2])"]
    version = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return tuple(map(int, version.split())) >= PACKAGE_PYTHON


def sample_size(seed):
    return {"CACHEW_TEST_SIZE": "sample", "CACHEW_TEST_SEED": str(seed)}


def sample(seed):
    # malloc fills memory with this byte when it allocates and frees it: a use of such memory shows
    size = {**sample_size(seed), "MALLOC_PERTURB_": "165"}
    build, venv = "sample", "venv"
    yield Step("environment", "Python packages for the tests", 32, [["tools/venv.sh"]])
    yield compiled(build, 60)
    yield Step(
        "lint",
        "layers, words, Python, man page, scripts",
        4,
        [["tools/lint.sh"]],
        {"CACHEW": str(directory(build) / "cachew")},
    )
    yield unit(build, "unit", 58, env=sample_size(seed))
    yield pytest(build, venv, "model-itself", "tests of the reference model", 2, ["tests/model"], env=size)
    yield model(build, venv, "model", 25, 60, 1, seed)
    yield Step(
        "expressions",
        "random expressions against NumPy",
        1,
        [
            [
                python(venv),
                "tests/expr_numpy.py",
                str(directory(build) / "tests" / "expr_tool"),
                "--count",
                "1000",
            ]
        ],
    )
    yield pytest(
        build,
        venv,
        "pixels",
        "image kernels against Pillow and NumPy",
        7,
        files("tests/test_pixels*.py"),
        env=size,
    )
    yield Step(
        "installed",
        "the installed files, the C example, the plug-in",
        5,
        [["sh", "tests/test_install.sh", str(directory(build))]],
        {"CC": "gcc -fsanitize=undefined"},
    )
    yield pytest(
        build,
        venv,
        "command-line",
        "the command, black box",
        105,
        files("tests/test_*.py", OWN_STEP),
        2 * JOBS,
        env=size,
    )
    yield pytest(build, venv, "simulator", "the simulator and its policies", 19, ["tests/sim"], env=size)
    yield pytest(
        build,
        venv,
        "service",
        "dispatcher, workers, clients, with faults",
        80,
        SERVICE,
        4 * JOBS,
        env=size,
    )
    if has_package():
        yield Step(
            "package",
            "the Python package of this build",
            1,
            [[sys.executable, __file__, "--package-in", build]],
        )
        yield pytest(build, venv, "python", "the Python package", 108, ["tests/python"], 2 * JOBS, env=size)
        yield model(build, venv, "model-functions", 12, 25, 300001, seed, ["--functions", "--package"], size)


def everything(seed):
    size, sanitized = {"CACHEW_TEST_SIZE": "all"}, {"CACHEW_SANITIZED": "1", **sample_size(seed)}
    build, venv = "gcc", "venv-all"
    yield Step(
        "environment",
        "Python packages for the tests",
        130,
        [["tools/venv.sh", "all", "tests/requirements-all.txt"]],
    )
    yield compiled("gcc", 130)
    yield compiled("asan", 100)
    yield compiled("tsan", 100)
    yield Step(
        "lint",
        "layers, words, Python, man page, scripts",
        8,
        [["tools/lint.sh"]],
        {"VENV": str(ROOT / "build" / venv), "CACHEW": str(directory(build) / "cachew")},
    )
    yield Step(
        "installed",
        "the installed files, the C example, the plug-in",
        3,
        [["sh", "tests/test_install.sh", str(directory(build))]],
    )
    yield unit("asan", "unit-asan", 80, env=sample_size(seed))
    yield model("asan", venv, "model-asan", 60, 60, 100001, seed)
    yield pytest(
        "asan",
        venv,
        "command-line-asan",
        "the command, black box",
        65,
        [
            *files("tests/test_cli*.py"),
            *(f"tests/test_{n}.py" for n in ("plugins", "sources", "daemons", "cache")),
            "tests/sim",
        ],
        2 * JOBS,
        words=["-k", "not example and not parts_add_up"],
        env=sanitized,
    )
    yield unit("tsan", "unit-tsan", 80, "--suite", "threads", env=sample_size(seed))
    yield model("tsan", venv, "model-tsan", 50, 35, 200001, seed)
    yield pytest(build, venv, "model-itself", "tests of the reference model", 10, ["tests/model"], env=size)
    yield model(build, venv, "model", 60, 220, 1, seed)
    yield model(build, venv, "model-service", 35, 50, 400001, seed, ["--service", "4"])
    yield Step(
        "expressions",
        "random expressions against NumPy",
        5,
        [
            [
                python(venv),
                "tests/expr_numpy.py",
                str(directory(build) / "tests" / "expr_tool"),
                "--count",
                "6000",
            ]
        ],
    )
    yield pytest(
        build,
        venv,
        "pixels",
        "image kernels against Pillow and NumPy",
        17,
        files("tests/test_pixels*.py"),
        env=size,
    )
    yield pytest(
        build,
        venv,
        "command-line",
        "the command, black box",
        230,
        files("tests/test_*.py", OWN_STEP),
        2 * JOBS,
        env=size,
    )
    yield pytest(build, venv, "simulator", "the simulator and its policies", 30, ["tests/sim"], env=size)
    yield pytest(
        build, venv, "service", "dispatcher, workers, clients, with faults", 250, SERVICE, 4 * JOBS, env=size
    )
    if has_package():
        pip = [
            python(venv),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-build-isolation",
            "--config-settings=build-dir=" + f"{BUILD}-python",
            ".",
        ]
        yield Step(
            "package",
            "the Python package, installed by pip",
            90,
            [pip],
            {"PATH": f"{Path(python(venv)).parent}:{os.environ['PATH']}"},
        )
        yield pytest(build, venv, "python", "the Python package", 700, ["tests/python"], 3 * JOBS, env=size)
        yield model(build, venv, "model-functions", 60, 140, 300001, seed, ["--functions", "--package"])


# ---- running them ----

# Lines of sanitizers, cmocka and pytest that say what failed.
REPORT = re.compile(
    r"ERROR: (Address|Leak|Thread|Undefined)|WARNING: Thread|runtime error:|^SUMMARY: "
    r"|^\[  (ERROR|FAILED) |  LINE   \]|^(FAILED|ERROR):? |^E   "
)
# Lines of pytest -v with several processes, and of meson test.
PYTEST_BEGUN = re.compile(r"^(tests/\S+?::.*?) *$", re.MULTILINE)
PYTEST_ENDED = re.compile(r"^\[gw\d+\] \[ *\d+%\] (\w+) (tests/\S+?::.*?) *$", re.MULTILINE)
MESON_FAILED = re.compile(r"^ *\d+/\d+ .*?:(\S+) +(?:FAIL|TIMEOUT|ERROR)", re.MULTILINE)
NO_TEST = re.compile(r"^=* ?no tests ran|does not match any test", re.MULTILINE)  # of pytest, of meson test
WORDS = "a unit test (test_memory) or a pytest node id (tests/test_cli.py::test_help)"
COUNTS = re.compile(r"(passed|failed|equal|agree)|^Ok:|test_install|lint: ok")


def counts(output):
    """Returns the line in which a command prints the number of its tests; "" if there is none."""
    found = [line.strip(" =") for line in output.splitlines() if COUNTS.search(line)]
    return re.sub(r"^Ok: *(\d+).*", r"\1 programs passed", found[-1]) if found else ""


def failed_tests(output):
    """Returns the arguments that limit a step to tests that failed, at most three of them."""
    pipelines = re.findall(r"--only (\S+)\)", output)  # of compare.py
    if pipelines:
        return ["--", "--only", pipelines[0]]
    failed = re.findall(r"^(?:FAILED|ERROR) (tests/\S+?::.*?)(?: - |$)", output, re.MULTILINE)  # of pytest
    return list(dict.fromkeys(failed or MESON_FAILED.findall(output)))[:3]


def repeat_command(arguments, step, output):
    """Returns the command that runs only the failed tests, or, if they are not known, the step with its given
    arguments.
    """
    words = ["./test", *["--all"] * arguments.all]
    words += ["--seed", str(arguments.seed)] if arguments.seed != 1 else []
    words += ["--step", step.name, *(failed_tests(output) or arguments.words)]
    return " ".join(map(shlex.quote, words))


def failed_programs_lines(step):
    """Returns all lines that failed unit tests printed. Meson itself prints only their last lines, which may
    be nothing but a report of LeakSanitizer, because a test that fails does not free its memory."""
    if not step.log or not step.log.exists():
        return []
    programs = [json.loads(line) for line in step.log.read_text().splitlines()]
    failed = [program for program in programs if program["result"] not in ("OK", "SKIP")]
    return [
        line
        for program in failed
        for name in ("stdout", "stderr")
        for line in program.get(name, "").splitlines()
    ]


def show_failure(arguments, step, status, output):
    if arguments.words and NO_TEST.search(output):
        print(
            f"./test: {' '.join(arguments.words)}: the step {step.name} has no such test; expected {WORDS}",
            file=sys.stderr,
        )
        sys.exit(2)
    lines = output.splitlines()
    print("\n".join(lines[-FAILURE_LINES:]))
    reports = [line for line in failed_programs_lines(step) or lines if REPORT.search(line)][:30]
    if reports:
        print("\n--- what failed ---\n" + "\n".join(reports))
    again = repeat_command(arguments, step, output)
    print(
        f"\nFAILED: {step.name} (exit status {status}, seed {arguments.seed}). To repeat: {again}\n",
        flush=True,
    )
    return f"{step.name}: {again}"


def show_interrupted(step, output):
    """Prints the tests of an interrupted step that had failed, and those that were running: often one of
    these hangs.
    """
    results = {name: result for result, name in PYTEST_ENDED.findall(output)}
    failed = [
        name for name, result in results.items() if result in ("FAILED", "ERROR")
    ] + MESON_FAILED.findall(output)
    running = [name for name in PYTEST_BEGUN.findall(output) if name not in results]
    print(f"\n{step.name} was interrupted")
    print(
        "".join(
            [*(f"  failed   {name}\n" for name in failed), *(f"  running  {name}\n" for name in running)]
        ),
        end="",
    )


class Clock:
    """Estimates how long the rest of the run takes, from the time that the steps took so far."""

    def __init__(self, run):
        self.began, self.run, self.expected = time.monotonic(), run, 0.0

    def left(self, at):
        rest = sum(step.seconds for step in self.run[at:])
        taken = time.monotonic() - self.began
        return rest * (taken + PRIOR_S) / (self.expected + PRIOR_S)


def prepares(step):
    """Whether later steps need the results of this step."""
    return step.name.startswith(("environment", "compile", "package"))


def chosen(run, names):
    """Returns the named steps, and the steps before them that prepare the environments and builds that they
    use, so that changes are compiled before they are tested.
    """
    last = max(number for number, step in enumerate(run) if step.name in names)
    wanted = [
        step for number, step in enumerate(run) if step.name in names or (number < last and prepares(step))
    ]
    used = " ".join(f"{step.commands} {step.env}" for step in wanted if not step.name.startswith("compile-"))
    return [
        step
        for step in wanted
        if step.name in names
        or not step.name.startswith("compile-")
        or str(directory(step.name.removeprefix("compile-"))) in used
    ]


def cpu_seconds():
    """CPU time of all processes that this program has run and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_all(arguments, run, work):
    env = {**ENVIRONMENT, "CACHEW_INDEX_DIR": str(work / "index"), "CACHEW_TEST_DATA": str(work / "data")}
    clock, failures, total = Clock(run), [], 0
    for number, step in enumerate(run, 1):
        line = steps.Line(f"[{number:2}/{len(run)}] {step.name:18} {step.what:48.48}")
        status, output, kept, used = 0, "", work / "output", cpu_seconds()
        narrow = arguments.words and step.name in arguments.step
        for command in step.narrowed(arguments.words) if narrow else step.commands:
            try:
                status = steps.run(command, line, kept, {**env, **step.env})
            except KeyboardInterrupt:
                show_interrupted(step, kept.read_text(errors="replace"))
                raise
            output += kept.read_text(errors="replace")
            if status:
                break
        clock.expected += step.seconds
        left = f"; about {steps.duration(clock.left(number))} left" if number < len(run) else ""
        seconds = line.seconds()
        cpus = f"{(cpu_seconds() - used) / seconds:.1f} CPUs" if seconds >= 2 else " " * 8
        line.end(f"{'ok' if status == 0 else 'FAILED':6} {seconds:4.0f} s {cpus}  {counts(output)}{left}")
        if arguments.verbose:
            print(output, end="")
        if status:
            failures.append(show_failure(arguments, step, status, output))
            if prepares(step):
                print(f"The steps after {step.name} were not run, because they need its results.")
                break
        total += sum(
            int(n) for n in re.findall(r"(\d+) (?:tests |programs )?(?:passed|expressions)", counts(output))
        )
    return failures, total, time.monotonic() - clock.began


def parse():
    """`./test --help` explains the options."""
    parser = argparse.ArgumentParser(
        prog="./test", usage="./test [OPTION...]    (./test --help lists them)", add_help=False
    )
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--step", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--check", action="store_true")  # check the arguments and do nothing
    parser.add_argument("--package-in")  # a command of the step `package`
    parser.add_argument("words", nargs="*")
    return parser, parser.parse_args()


def main():
    os.chdir(ROOT)
    parser, arguments = parse()
    if arguments.package_in:
        package_in_build(arguments.package_in)
        return 0
    run = list((everything if arguments.all else sample)(arguments.seed))
    names = [step.name for step in run]
    unknown = [name for name in arguments.step if name not in names]
    if unknown:
        parser.error(f"--step {unknown[0]}: expected one of {', '.join(names)}")
    if arguments.words and len(arguments.step) != 1:
        parser.error(f"{arguments.words[0]}: expected exactly one --step, to which this test belongs")
    if arguments.step:
        run = chosen(run, arguments.step)
    if arguments.check:
        return 0
    if arguments.list:
        print("\n".join(f"{step.name:18} {step.what:48} {step.seconds:4.0f} s" for step in run))
        return 0
    if not has_package():
        print(
            f"The Python package needs Python {'.'.join(map(str, PACKAGE_PYTHON))} or later: its tests are "
            f"not run here."
        )
    with tempfile.TemporaryDirectory(prefix="cachew-test-") as work:
        work = Path(work)
        failures, total, seconds = run_all(arguments, run, work)
    if failures:
        print(f"{len(failures)} of {len(run)} steps failed, after {seconds:.0f} s:")
        print("\n".join(f"  {failure}" for failure in failures))
        return 1
    print(f"All steps passed ({len(run)}): {total} tests and comparisons, in {seconds:.0f} s.")
    return 0


if __name__ == "__main__":
    steps.end_by_signals()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        sys.exit(f"\n./test: {error}")
