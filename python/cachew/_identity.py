"""The identity of a Python function: a hash of its code, constants, defaults, closure, and the globals it
refers to. It is the same in every process. A hash of the function's pickle would not do: pickles of the same
function can differ between processes.

Functions and classes of installed packages count by name and version; those in the user's own files by their
content. If the code refers to names in a module of the user's (`helper.scale`), the values of those names
count; if it imports a module when it runs, the text of the module's file counts.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import io
import logging
import random
import sys
import types
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from pathlib import Path
from typing import Any

import numpy as np

from cachew._modules import (
    distribution,
    global_names,
    imports,
    imports_of,
    installed,
    sources,
    taken_whole,
    version,
)

# Types of random generators: only the type counts, because the state differs between processes.
_RANDOM = (
    random.Random,
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    np.random.SeedSequence,
)
_VIEWS = (KeysView, ValuesView, ItemsView)
# Members of a class that do not count: where it was written, and what Python stores in it. Some appear only
# when the class is used (pickling an instance sets __slotnames__).
_NOT_OF_A_CLASS = {
    "__dict__",
    "__weakref__",
    "__module__",
    "__doc__",
    "__firstlineno__",
    "__static_attributes__",
    "__slotnames__",
    "_abc_impl",
    "__annotations_cache__",
}


class Unidentified(TypeError):
    """A part of a function has no hash that would be the same in other processes. The text names the part."""


class Identity:
    """The hash of a function, and the names in the user's modules that it uses."""

    def __init__(self, function: Any) -> None:
        walk = _Walk()
        try:
            walk.add(("python", sys.version_info[:2]))  # bytecode differs between releases of Python
            walk.add(function)
        except RecursionError as problem:
            walk.problem = walk.problem or problem
        self.problem = walk.problem
        """Names the first part without a hash; None: all parts have one."""
        self.hash = walk.hash.hexdigest()
        """32 hexadecimal digits."""
        self.places = walk.places
        """The names in the user's modules that the function uses: (module, "name" or "Class.name")."""
        self.late = walk.late
        """Names of modules that the function imports when it runs, or uses as a whole."""


def identity_of(function: Any) -> str:
    """The hash of a function. Raises `Unidentified` if a part of the function has none."""
    identity = Identity(function)
    if identity.problem is not None:
        raise identity.problem
    return identity.hash


def digest_of(*values: Any) -> str:
    """A hash of values, as in identities: 32 hexadecimal digits."""
    return _alone(values).hex()


def files_of(module: str) -> str:
    """A hash of the user's files that run when a module is imported; "": there are no such files, or they
    can't be read.
    """
    walk = _Walk(versions=False)
    try:
        walk.source(module)
    except Unidentified:
        return ""
    return digest_of(sorted(walk.files.values())) if walk.files else ""


class _Walk:
    """Feeds a value, and all that it refers to, into a hash. An object that was seen before counts by its
    number, so references may form cycles.
    """

    def __init__(self, versions: bool = True) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        # whether versions count of installed packages that the code imports when it runs; finding them takes
        # tens of milliseconds
        self.versions = versions
        self.seen: dict[int, int] = {}  # id of an object -> its number
        self.kept: list[Any] = []  # objects in `seen`: kept alive, so that no other object gets the same id
        self.followed: set[tuple[int, tuple[str, ...]]] = set()  # (id of a module, names looked up in it)
        self.files: dict[str, tuple[str, bytes]] = {}  # path -> name of the module, hash of the text
        self.places: set[tuple[str, str]] = set()
        self.late: set[str] = set()
        # the first problem; the walk goes on after it, because `places` and `late` are needed all the same
        self.problem: Unidentified | RecursionError | None = None

    def text(self, *parts: object) -> None:
        for part in parts:
            data = (
                part if isinstance(part, (bytes, memoryview)) else str(part).encode("utf-8", "surrogatepass")
            )
            self.hash.update(len(data).to_bytes(8, "little"))
            self.hash.update(data)

    def add(self, value: Any) -> None:
        if (
            value is None
            or value is Ellipsis
            or value is NotImplemented
            or isinstance(value, (bool, int, float, complex, str, bytes, bytearray))
        ):
            # repr() refuses integers of more than 4,300 digits
            plain = isinstance(value, (bytes, bytearray)) or (
                type(value) is int and value.bit_length() > 10000
            )
            self.text(
                type(value).__name__,
                repr(value) if not plain else hex(value) if isinstance(value, int) else value,
            )
            return
        if id(value) in self.seen:
            self.text("seen", self.seen[id(value)])
            return
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        try:
            self.compound(value)
        except Unidentified as problem:
            self.problem = self.problem or problem
        except RecursionError:
            raise
        except Exception as problem:  # looking into an object runs its code, which may raise anything
            self.problem = self.problem or Unidentified(
                f"a {type(value).__qualname__} ({type(problem).__name__}: {problem})"
            )

    def compound(self, value: Any) -> None:
        if isinstance(value, types.ModuleType):
            self.module(value)
        elif isinstance(value, types.CodeType):
            self.code(value)
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, types.MethodType):
            self.all("method", value.__func__, value.__self__)
        elif isinstance(value, functools.partial):
            self.all("partial", value.func, value.args, value.keywords)
        elif isinstance(
            value,
            (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, np.ufunc),
        ):
            owner = getattr(value, "__self__", None)
            self.text("builtin", getattr(value, "__qualname__", value.__name__))
            if owner is not None and not isinstance(owner, types.ModuleType):
                self.add(owner)
        elif isinstance(value, (types.GenericAlias, types.UnionType)):  # annotations: list[int], int | None
            self.all("annotation", getattr(value, "__origin__", None), *value.__args__)
        elif isinstance(value, type):
            self.type(value)
        elif isinstance(value, memoryview):
            self.text("memoryview", value.format, value.shape, value.tobytes())
        elif isinstance(value, (tuple, list)) or isinstance(value, _VIEWS):
            self.all(type(value).__qualname__, *value)
        elif isinstance(value, (set, frozenset)):
            self.text(type(value).__name__, *sorted(_alone(item) for item in value))
        elif isinstance(value, Mapping) and not hasattr(value, "__dict__"):
            self.mapping(value)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self.text("array", value.dtype.str, value.shape)
            data = np.ascontiguousarray(value).reshape(-1)
            self.text(data.view(np.uint8).data if data.nbytes else b"")
        elif isinstance(value, (np.generic, np.dtype)):
            self.text(type(value).__name__, repr(value))
        elif isinstance(value, (logging.Logger, logging.LoggerAdapter)):  # logging does not change results
            self.text("logger")
        elif isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
            raise Unidentified(f"an open file ({getattr(value, 'name', type(value).__name__)})")
        elif isinstance(value, _RANDOM):
            self.text("random", type(value).__qualname__)
        elif isinstance(value, types.CellType):
            self.all("cell", *contents(value))
        elif isinstance(value, (classmethod, staticmethod)):
            self.all(type(value).__name__, value.__func__)
        elif isinstance(value, property):
            self.all("property", value.fget, value.fset, value.fdel)
        else:
            self.object(value)

    def all(self, kind: str, *values: Any) -> None:
        self.text(kind, len(values))
        for value in values:
            self.add(value)

    def mapping(self, value: Mapping[Any, Any]) -> None:
        """Adds the items of a mapping, sorted by the hash of the key."""
        self.text("mapping", len(value))
        for key, item in sorted(((_alone(k), v) for k, v in value.items()), key=lambda pair: pair[0]):
            self.text(key)
            self.add(item)

    def code(self, code: types.CodeType) -> None:
        self.text(
            "code",
            code.co_name,
            code.co_code,
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags,
        )
        self.text(*code.co_names, "", *code.co_varnames, "", *code.co_freevars, "", *code.co_cellvars)
        self.all("constants", *code.co_consts)

    def function(self, function: types.FunctionType) -> None:
        if installed(function.__module__):
            self.text("function", function.__module__, function.__qualname__, version(function.__module__))
            return
        self.all("function", function.__code__, function.__defaults__, function.__kwdefaults__)
        names, whole = tuple(sorted(set(_names(function.__code__)))), taken_whole(function.__code__)
        self.text("closure", len(function.__closure__ or ()))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self.used(*contents(cell), names=names, whole=name in whole)
        self.place(function.__module__, function.__qualname__)
        module = function.__globals__.get("__name__")
        own = module in sys.modules and vars(sys.modules[module]) is function.__globals__
        for name in sorted(global_names(function.__code__)):
            if name in function.__globals__:
                self.text("global", name)
                if own:
                    self.place(module, name)
                self.used(function.__globals__[name], names=names, whole=name in whole)
        for name in sorted(imports(function.__code__, function.__globals__.get("__package__") or "")):
            self.late.add(name)
            self.source(name)

    def place(self, module: str | None, name: str) -> None:
        """Notes that the function uses a name of a module of the user's that hosts import."""
        if (
            module in sys.modules
            and module not in ("__main__", "__mp_main__")
            and not installed(module)
            and "<locals>" not in name
        ):
            value: Any = sys.modules[module]
            for part in name.split("."):
                value = getattr(value, "__dict__", {}).get(part, self)
            if value is not self:
                self.places.add((module, name))

    def used(self, *values: Any, names: tuple[str, ...], whole: bool = False) -> None:
        """Adds values to which code refers. names: all names in that code. Of a module of the user's, only
        the attributes with these names count; and the text of its files, if the code uses the module as a
        whole (`whole`).
        """
        self.text("used", len(values))
        for value in values:
            if not isinstance(value, types.ModuleType) or installed(value.__name__):
                self.add(value)
                continue
            self.kept.append(value)
            self.text("module", value.__name__)
            if whole:
                self.module(value)
            if (id(value), names) in self.followed:
                continue
            self.followed.add((id(value), names))
            for name in names:
                if name in vars(value):
                    self.text("attribute", name)
                    self.place(value.__name__, name)
                    self.used(vars(value)[name], names=names)

    def module(self, module: types.ModuleType) -> None:
        """Adds a module that the code uses as a whole."""
        if installed(module.__name__):
            self.text("module", module.__name__, version(module.__name__))
        else:
            self.late.add(module.__name__)
            self.source(module.__name__)

    def source(self, name: str) -> None:
        """Adds a module that need not be imported yet: the text of its files, and of the user's modules that
        these files import.
        """
        files = sources(name)
        self.text("import", name, "" if files or not self.versions else distribution(name))
        for file in files or ():
            if file.path not in self.files:
                try:
                    text = Path(file.path).read_bytes()
                except OSError as error:
                    raise Unidentified(f"the module {file.name} ({error})") from None
                self.files[file.path] = file.name, hashlib.blake2b(text, digest_size=16).digest()
                self.text("file", file.name, text)
                for found in sorted(imports_of(file, text)):
                    self.source(found)

    def type(self, cls: type) -> None:
        self.text("class", cls.__qualname__)
        if installed(cls.__module__):
            self.text(cls.__module__, version(cls.__module__))
            return
        self.all("bases", *cls.__bases__)
        for name, member in sorted(vars(cls).items()):
            if name not in _NOT_OF_A_CLASS:
                self.text(name)
                self.place(cls.__module__, f"{cls.__qualname__}.{name}")
                self.add(member)

    def object(self, value: Any) -> None:
        """An instance: its class and its state."""
        self.text("object")
        self.add(type(value))
        registered = copyreg.dispatch_table.get(type(value))  # needed for re.Pattern
        if registered is not None:
            self.reduced(registered(value))
            return
        declared = [getattr(c, "__slots__", ()) for c in type(value).__mro__]
        slots = [name for names in declared for name in ([names] if isinstance(names, str) else names)]
        if hasattr(value, "__dict__") or slots:
            for name in slots:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    self.text(name)
                    self.add(getattr(value, name))
            for name, member in sorted(getattr(value, "__dict__", {}).items()):
                self.text(name)
                self.add(member)
            if isinstance(value, Mapping):
                self.mapping(value)
            return
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:
            raise Unidentified(f"a {type(value).__qualname__} ({error})") from None
        self.reduced(reduced)

    def reduced(self, reduced: str | tuple[Any, ...]) -> None:
        """Adds an object as pickle would: reduced is the result of __reduce_ex__."""
        if isinstance(reduced, str):
            self.text("name", reduced)
            return
        maker, arguments, *state = reduced
        self.all("reduced", maker, arguments, *(list(s) if isinstance(s, Iterator) else s for s in state[:3]))


def _alone(value: Any) -> bytes:
    walk = _Walk()
    walk.add(value)
    if walk.problem is not None:
        raise walk.problem
    return walk.hash.digest()


def contents(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _names(code: types.CodeType) -> Iterator[str]:
    """The names of globals, attributes and modules in the code, and in code nested in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
