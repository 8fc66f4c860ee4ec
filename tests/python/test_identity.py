"""What a function is known by, where modules of the user's own come in."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from cachew._modules import distribution
from deadlines import HANG_S

HELPER = """
import tools
K = 1
unused = 5
class Adder:
    def __call__(self, x): return x + 1
adder = Adder()
def g(x): return x + 1
def h(x): return tools.deep(x)
def late(x):
    import tools
    return tools.deep(x)
"""
TOOLS = "def deep(x): return x * 2\n"
PROGRAM = """
import sys
{}
if "first" in sys.argv:
    import helper, pack.inner, tools
from cachew._identity import identity_of
print(identity_of(f))
"""


@pytest.fixture
def identity(tmp_path):
    """The identity of f in a program beside helper.py, tools.py and a package, changed as is said:
    file=(text, text that takes its place).
    """

    def of(code, *arguments, **changes):
        files = {
            "helper": HELPER,
            "tools": TOOLS,
            "pack/__init__": "",
            "pack/inner": "from . import "
            "leaf\nunused = "
            "5\ndef g(x): return "
            "leaf.g(x)\ndef "
            "h(x): return x - 1\n",
            "pack/leaf": "def g(x): return x + 1\n",
            "program": PROGRAM.format(code),
        }
        (tmp_path / "pack").mkdir(exist_ok=True)
        for name, text in files.items():
            old, new = changes.get(name.replace("/", "_"), ("", ""))
            assert old in text
            (tmp_path / f"{name}.py").write_text(text.replace(old, new) if old else text)
        ran = subprocess.run(
            [sys.executable, "-B", tmp_path / "program.py", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            env={**os.environ, "PYTHONHASHSEED": "random"},
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return of


@pytest.mark.large
@pytest.mark.parametrize(
    ("code", "change", "other"),
    [
        (
            "import helper\ndef f(e): return helper.g(e)",
            {"helper": ("g(x): return x + 1", "g(x): return x + 2")},
            {"helper": ("unused = 5", "unused = 6")},
        ),
        (
            "import helper\ndef f(e): return helper.K",
            {"helper": ("K = 1", "K = 2")},
            {"helper": ("g(x): return x + 1", "g(x): return x + 2")},
        ),
        (
            "import helper\ndef f(e): return helper.h(e)",
            {"tools": ("* 2", "* 3")},
            {"tools": ("def deep", "# nothing\ndef deep")},
        ),
        (
            "import helper\ndef f(e): return helper.adder(e)",
            {"helper": ("__(self, x): return x + 1", "__(self, x): return x + 2")},
            {"tools": ("* 2", "* 3")},
        ),
        ("from helper import late as f", {"tools": ("* 2", "* 3")}, {"helper": ("K = 1", "K = 2")}),
        (
            "import pack.inner\ndef f(e): return pack.inner.g(e)",
            {"pack_leaf": ("+ 1", "+ 2")},
            {"pack_leaf": ("def g", "# nothing\ndef g")},
        ),
        (
            "def make():\n  import helper\n  return lambda e: helper.g(e)\nf = make()",
            {"helper": ("g(x): return x + 1", "g(x): return x + 2")},
            {"helper": ("unused = 5", "unused = 6")},
        ),
        (
            (
                "import pack.inner\ndef other(e): return pack.inner.h(e)\n"
                "def f(e): return other(pack.inner.g(e))"
            ),
            {"pack_inner": ("x - 1", "x - 2")},
            {"pack_inner": ("unused = 5", "unused = 6")},
        ),
        (
            "import helper\ndef run(m, e): return m.g(e)\ndef f(e): return run(helper, e)",
            {"helper": ("g(x): return x + 1", "g(x): return x + 2")},
            {},
        ),
        (
            "import helper\ndef f(e): return getattr(helper, 'g')(e)",
            {"helper": ("g(x): return x + 1", "g(x): return x + 2")},
            {},
        ),
        (
            "def make():\n  import helper\n  return lambda e: vars(helper)['g'](e)\nf = make()",
            {"helper": ("g(x): return x + 1", "g(x): return x + 2")},
            {},
        ),
    ],
)
def test_what_is_used_of_a_module_counts_and_nothing_else(identity, code, change, other):
    assert identity(code) == identity(code) == identity(code, **other) != identity(code, **change)


@pytest.mark.large
@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("def f(e):\n  import helper\n  return helper.g(e)", {"helper": ("x + 1", "x + 2")}),
        ("def f(e):\n  from helper import h\n  return h(e)", {"tools": ("* 2", "* 3")}),
        ("def f(e):\n  import pack.inner as p\n  return p.g(e)", {"pack_leaf": ("+ 1", "+ 2")}),
        (
            "def f(e):\n  from pack import inner\n  return inner.g(e)",
            {"pack_inner": ("leaf.g(x)", "leaf.g(x) + 1")},
        ),
        (
            (
                "import helper\nclass Keeps:\n  def __init__(s): s.m = helper\n"
                "  def __call__(s, e): return s.m.g(e)\nf = Keeps()"
            ),
            {"helper": ("x + 1", "x + 2")},
        ),
    ],
)
def test_a_module_that_is_imported_when_the_function_runs_counts_whole(identity, code, change):
    """Whether or not it is imported already."""
    assert identity(code) == identity(code, "first") != identity(code, **change)


def test_modules_that_are_not_there_or_installed_are_names(identity):
    code = "def f(e):\n  import numpy.linalg, pytest, nowhere.at_all\n  from . import beyond\n  return e"
    assert (
        identity(code)
        == identity(code + "\nimport numpy, pytest")
        != identity(code.replace("nowhere", "anywhere"))
    )


def test_what_comes_in_a_package_of_another_name_has_that_one_s_version():
    """An upgrade of what `import PIL` in a function means left the identity as it was."""
    assert distribution("PIL") == importlib.metadata.version("pillow")


def test_every_module_has_the_version_of_the_package_that_brings_it():
    """As the library finds it, which reads everything that is installed."""
    for module, packages in importlib.metadata.packages_distributions().items():
        if module.isidentifier() and module not in sys.stdlib_module_names:
            own = [p for p in packages if p == module]
            assert distribution(module) == importlib.metadata.version((own or packages)[0]), module
