"""What identities of functions (_identity.py) need to know about modules. A module of Python or of an
installed package is identified by its name and version; a module of the user's by the text of its files. A
function may import a module only when it is called: its files are found here without importing the module.
"""

from __future__ import annotations

import dis
import functools
import importlib.machinery
import importlib.util
import itertools
import os
import re
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import importlib.metadata

_INSTALLED = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)

_LOADS = (
    "LOAD_GLOBAL",
    "LOAD_NAME",
    "LOAD_DEREF",
    "LOAD_CLASSDEREF",
    "LOAD_FROM_DICT_OR_GLOBALS",
    "LOAD_FROM_DICT_OR_DEREF",
)
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR")

# In paths of installed packages outside _INSTALLED: those of the user, of Debian, of a parent environment.
_LIBRARIES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def _is_installed(file: str) -> bool:
    return file.startswith(_INSTALLED) or any(library in file for library in _LIBRARIES)


def _always_installed(name: str) -> bool:
    top = name.partition(".")[0]
    return top in ("builtins", "cachew") or top in sys.stdlib_module_names


@functools.cache
def installed(module: str | None) -> bool:
    """Whether a module that has been imported is part of Python or of an installed package."""
    if module is None or module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return _always_installed(module) or (file is not None and _is_installed(file))


@functools.cache
def version(module: str) -> str:
    """The version of the package that an imported module belongs to; "None" if it has none."""
    found = getattr(sys.modules.get(module.partition(".")[0]), "__version__", None)
    return str(found) if found is not None else distribution(module)


@functools.cache
def distribution(module: str) -> str:
    """The version of the package that has an installed module, imported or not; "None": unknown."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "None"
    import importlib.metadata  # not at the top: importing it takes long, and few functions need it

    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:  # the package has another name: cv2 is in opencv-python
        return next((d.version for d in importlib.metadata.distributions() if _brings(d, top)), "None")


def _brings(distribution: importlib.metadata.Distribution, top: str) -> bool:
    """Whether a distribution contains the top-level module `top`. importlib.metadata.packages_distributions()
    could tell, but it reads the metadata of all distributions, which takes 50 ms or more.
    """
    names = distribution.read_text("top_level.txt")
    if names is not None:
        return top in names.split()
    return (
        re.search(
            rf"(?m)^{re.escape(top)}(/|\.([^/,\n]+\.)?(py|so),)", distribution.read_text("RECORD") or ""
        )
        is not None
    )


class Source(NamedTuple):
    """A file of the user's that runs when a module is imported."""

    name: str
    """The module's name."""
    path: str
    """The path of its file."""
    package: str
    """The name of the package to which relative imports in the file refer."""


def sources(name: str) -> list[Source] | None:
    """The files that run when a module is imported: those of the packages that contain it, and its own. None:
    the module is part of Python or of an installed package.
    """
    if _always_installed(name):
        return None
    found = []
    for spec in _specs(name):
        if spec.origin is not None and spec.has_location:
            if _is_installed(spec.origin):
                return None
            found.append(Source(spec.name, spec.origin, spec.parent or ""))
    return found


def _specs(name: str) -> Iterator[importlib.machinery.ModuleSpec]:
    """The specs of a module: of the outermost package first, of the module last. It ends early where a module
    can't be found.
    """
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # ValueError: a module that a program made has no spec
        return
    while spec is not None:
        yield spec
        if not rest or spec.submodule_search_locations is None:
            return
        spec = importlib.machinery.PathFinder.find_spec(
            f"{spec.name}.{rest.pop(0)}", spec.submodule_search_locations
        )


def taken_whole(code: types.CodeType) -> set[str]:
    """Names of globals and closure variables that the code, or code nested in it, uses as a whole, not only
    for an attribute: `helper` in `run(helper)` or `getattr(helper, name)`, but not in `helper.scale`.
    """
    found: set[str] = set()
    instructions = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    for this, following in itertools.zip_longest(instructions, instructions[1:]):
        if this.opname in _LOADS and (following is None or following.opname not in _ATTRIBUTES):
            found.add(str(this.argval))
    return found.union(
        *(taken_whole(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    )


def imports(code: types.CodeType, package: str) -> set[str]:
    """Names of the modules that the code, or code nested in it, imports. `from a import b` may import a
    module a.b, so a.b is among the names, too.
    """
    found: set[str] = set()
    # arguments of the last two instructions: before IMPORT_NAME, the import's level and its names
    before: list[object] = [0, None]
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, names = before[-2:]
            base = _absolute(str(instruction.argval), level if isinstance(level, int) else 0, package)
            if base:
                found |= {
                    base,
                    *(
                        f"{base}.{name}"
                        for name in (names if isinstance(names, tuple) else ())
                        if name != "*"
                    ),
                }
        if instruction.opname != "EXTENDED_ARG":
            before = [before[-1], instruction.argval]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= imports(constant, package)
    return found


def global_names(code: types.CodeType) -> set[str]:
    """Names of globals that the code, or code nested in it, reads. The instructions are LOAD_GLOBAL,
    LOAD_NAME (in class bodies), and variants of LOAD_GLOBAL in some Python releases.
    """
    found = {
        str(i.argval) for i in dis.get_instructions(code) if "GLOBAL" in i.opname or i.opname == "LOAD_NAME"
    }
    return found.union(*(global_names(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def _absolute(name: str, level: int, package: str) -> str | None:
    if level == 0:
        return name
    try:
        return importlib.util.resolve_name("." * level + name, package)
    except ImportError:  # it leaves the topmost package: the import fails when it runs
        return None


def imports_of(source: Source, text: bytes) -> set[str]:
    """Names of the modules that a file imports; none if it is not Python source."""
    if not source.path.endswith(".py"):
        return set()
    try:
        return imports(compile(text, source.path, "exec", dont_inherit=True), source.package)
    except (SyntaxError, ValueError):  # importing it will raise the same error
        return set()
