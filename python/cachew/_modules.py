"""Modules as identities know them. Those of Python and of installed packages go by name and version; of the
user's own it is the files that count, also of those that a function imports when it is called, which need
not be imported yet, and are not imported here."""

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

# the user's own, Debian's, those of an environment below this one
_LIBRARIES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def _is_installed(file: str) -> bool:
    return file.startswith(_INSTALLED) or any(library in file for library in _LIBRARIES)


def _always_installed(name: str) -> bool:
    top = name.partition(".")[0]
    return top in ("builtins", "cachew") or top in sys.stdlib_module_names


@functools.cache
def installed(module: str | None) -> bool:
    """Whether a module that is imported is part of Python or of an installed package, which its version
    identifies.
    """
    if module is None or module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return _always_installed(module) or (file is not None and _is_installed(file))


@functools.cache
def version(module: str) -> str:
    """Of the package that an imported module belongs to."""
    found = getattr(sys.modules.get(module.partition(".")[0]), "__version__", None)
    return str(found) if found is not None else distribution(module)


@functools.cache
def distribution(module: str) -> str:
    """The version of an installed package, imported or not."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "None"
    import importlib.metadata  # not at import: it brings much with it, and few functions need it

    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:  # cv2 comes with opencv-python
        return next((d.version for d in importlib.metadata.distributions() if _brings(d, top)), "None")


def _brings(distribution: importlib.metadata.Distribution, top: str) -> bool:
    """Whether a module is one of a distribution's. As importlib.metadata.packages_distributions() finds it,
    which reads all of all of them: 50 ms, and more with much installed.
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
    """A file of the user's that is run when a module is imported."""

    name: str
    path: str
    package: str
    """That its relative imports are relative to."""


def sources(name: str) -> list[Source] | None:
    """The files of a module: those of the packages that it lies in, and its own. None: it is an
    installed one.
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
    """As far as there are any: what is imported need not be there."""
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # a module that was made by hand has none
        return
    while spec is not None:
        yield spec
        if not rest or spec.submodule_search_locations is None:
            return
        spec = importlib.machinery.PathFinder.find_spec(
            f"{spec.name}.{rest.pop(0)}", spec.submodule_search_locations
        )


def taken_whole(code: types.CodeType) -> set[str]:
    """Names of globals and of variables around the code, of which it, or the code inside it, takes more than
    attributes: `run(helper)`, `getattr(helper, name)`.
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
    """What the code, and the code inside it, imports. `from a import b` may mean a module a.b, so it is
    named too.
    """
    found: set[str] = set()
    before: list[object] = [0, None]  # what IMPORT_NAME takes: the level and the names
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
    """Names of globals that the code, and the code inside it, reads: LOAD_GLOBAL; LOAD_NAME in the bodies of
    classes; and what releases make of them.
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
    except ImportError:  # beyond the topmost package: it fails when it is run
        return None


def imports_of(source: Source, text: bytes) -> set[str]:
    """What a file imports, if it is one of Python."""
    if not source.path.endswith(".py"):
        return set()
    try:
        return imports(compile(text, source.path, "exec", dont_inherit=True), source.package)
    except (SyntaxError, ValueError):  # importing it will raise the same error
        return set()
