"""Makes the user's own modules in host processes the same as in the program, as far as functions use them.

Hosts import these modules from their files, and may get other content than the program has: a file was edited
since the program imported it, or the program set a global or replaced a function. A *place* is a name in a
module that a function uses (`helper.SCALE`, `helper.Reader.read`). The program sends each place with a digest
and the content. A host whose own place has another digest sets the content before it loads the function. In
one host a place never changes again: a function that expects another content is loaded in another host.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib
import marshal
import pickle
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cachew._identity import contents, digest_of, files_of

LARGE = 1 << 20
"""A place whose pickle has more bytes than this is sent without its content: mostly it is a table that the
module makes when it is imported, which the host then has, too.
"""

# Kinds of places: functions, of which the code is set; all other values; the text of a module's files.
CODE, DATA, FILES = "code", "data", "files"


class Place(NamedTuple):
    module: str
    name: str
    """The name of the module's attribute, or of a class's: "Reader.read"; "" for FILES."""
    kind: str
    digest: str
    content: bytes | None
    """The pickled content; None: it is too large, or can't be pickled."""


class Differs(Exception):
    """A host can't give a place the content that a function expects. The text is the end of an error message
    that begins with "the function NAME can't be loaded in a host process".
    """


# ---- in the program ----


def gathered(places: Iterable[tuple[str, str]], late: Iterable[str], all_travel: bool) -> str:
    """The places of a function as a text for `adopt`; "": there are none. late: names of modules that the
    function imports when it runs. all_travel: every place in the text must have its content; places without
    content are left out, so hosts do not compare them.
    """
    import cloudpickle  # type: ignore[import-untyped]

    by_value = cloudpickle.list_registry_pickle_by_value()
    found = []
    # Modules that import each other can often be imported in one order only, so the host must import them in
    # the order in which the program did. sys.modules has modules in the order in which their imports ended.
    # Of modules that import each other, the import of the one that the program imported itself ends last. It
    # is sorted first here, and the host imports it first.
    done = {name: i for i, name in enumerate(sys.modules)}
    for module, name in sorted(places, key=lambda place: (-done[place[0]], place[1])):
        if sys.modules[module].__spec__ is None or any(
            module == m or module.startswith(m + ".") for m in by_value
        ):
            continue  # no host can import it, or cloudpickle sends the whole module
        try:
            place = _place(module, name, cloudpickle.dumps)
        except Exception:
            # the value has no hash, or code of its class, which hashing runs, raised
            continue
        if place.content is not None or not all_travel:
            found.append(place)
    for module in sorted(late):
        if files := files_of(module):
            found.append(Place(module, "", FILES, files, None))
    return base64.b64encode(pickle.dumps([tuple(p) for p in found])).decode() if found else ""


def _place(module: str, name: str, dumps: Any) -> Place:
    value = _at(module, name)
    functions = _functions_at(value, module, name)
    if functions:
        return Place(
            module,
            name,
            CODE,
            _code_digest(functions),
            dumps([(marshal.dumps(f.__code__), f.__defaults__, f.__kwdefaults__) for f in functions]),
        )
    try:
        content = dumps(value)
    except Exception:  # pickling runs the value's own code, which may raise any exception
        content = b""
    return Place(module, name, DATA, _data_digest(value), content if 0 < len(content) <= LARGE else None)


# ---- in the program and in a host ----


def _at(module: str, name: str) -> Any:
    """The value at a place, as it is stored (a staticmethod object, not its function). KeyError: none."""
    value: Any = sys.modules[module]
    for part in name.split("."):
        value = vars(value)[part]
    return value


def _functions_at(value: Any, module: str, name: str) -> list[types.FunctionType]:
    """The functions of the value at a place (see `_functions`), if the value is defined in that module; else,
    or if it has no functions, none.
    """
    functions = list(_functions(value, set()))
    home = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if functions and (
        home == (module, name) or any(f.__globals__ is vars(sys.modules[module]) for f in functions)
    ):
        return functions
    return []


def _functions(value: Any, seen: set[int]) -> Iterator[types.FunctionType]:
    """The functions that a value consists of: itself; functions in its closure, which a decorator wraps;
    those of a property, method, partial or functools.cache.
    """
    if id(value) in seen:
        return
    seen.add(id(value))
    parts: list[Any] = []
    if isinstance(value, types.FunctionType):
        yield value
        parts = [
            p
            for c in value.__closure__ or ()
            for p in contents(c)
            if isinstance(p, (types.FunctionType, functools.partial))
        ]
    elif isinstance(value, property):
        parts = [value.fget, value.fset, value.fdel]
    elif isinstance(value, (classmethod, staticmethod)):
        parts = [value.__func__]
    elif isinstance(value, (functools.partialmethod, functools.partial)):
        parts = [value.func]
    elif not isinstance(value, type):
        parts = [getattr(value, "__dict__", {}).get("__wrapped__")]  # functools.cache
    for part in parts:
        yield from _functions(part, seen)


def _code_digest(functions: Iterable[types.FunctionType]) -> str:
    return digest_of(*((f.__code__, f.__defaults__, f.__kwdefaults__) for f in functions))


def _data_digest(value: Any) -> str:
    # A module or class is compared by its name, because its attributes that the function uses are places of
    # their own. A function here is defined in another module; it is compared by its name and its code.
    if isinstance(value, (types.ModuleType, types.FunctionType, type)):
        name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
        code = digest_of(value.__code__) if isinstance(value, types.FunctionType) else ""
        return hashlib.blake2b(f"{name} {code}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return digest_of(value)


# ---- in a host ----

_adopted: dict[tuple[str, str], str] = {}


def adopt(text: str) -> None:
    """Gives the places the content that a function expects, before the function is loaded. Raises Differs,
    and any exception of importing a module.
    """
    for place in (Place(*p) for p in pickle.loads(base64.b64decode(text))):
        key = place.module, place.name
        if key not in _adopted:
            if place.kind == FILES:
                _compare_files(place)
            else:
                _import(place)
                if _digest_at(place) != place.digest:
                    _put(place)
            _adopted[key] = place.digest
        elif _adopted[key] != place.digest:
            raise Differs(
                f"the function expects another value of {place.module}.{place.name} than a function that "
                f"this host process loaded before"
            )


def _compare_files(place: Place) -> None:
    if files_of(place.module) != place.digest:
        raise Differs(
            f"the file of the module {place.module}, which the function imports when it runs, or of a module "
            f"that this module imports, differs from the file when the dataset was made: if it was edited "
            f"since, make the dataset anew"
        )


def _import(place: Place) -> None:
    try:
        importlib.import_module(place.module)
    except ModuleNotFoundError as error:
        raise Differs(
            f"the function uses {place.module}.{place.name}, and importing {place.module} in the host "
            f"process fails: {error}: was a file deleted or moved since the program imported it?"
        ) from None


def _digest_at(place: Place) -> str | None:
    try:
        value = _at(place.module, place.name)
        functions = _functions_at(value, place.module, place.name)
        if bool(functions) != (place.kind == CODE):
            return None
        return _code_digest(functions) if functions else _data_digest(value)
    except Exception:  # the module lacks the name, or its value has no hash
        return None


def _put(place: Place) -> None:
    where = f"{place.module}.{place.name}"
    file = getattr(sys.modules[place.module], "__file__", None)
    if place.content is None:
        raise Differs(
            f"{where} has another value in the program than after importing {file} anew, and the value "
            f"is too large to send (or can't be pickled): let the module compute it, or pass the "
            f"function only what it needs"
        )
    owner: Any = sys.modules[place.module]
    *path, name = place.name.split(".")
    try:
        for part in path:
            owner = vars(owner)[part]
        content = pickle.loads(place.content)
        if place.kind == DATA:
            setattr(owner, name, content)
        elif name not in vars(owner):
            ((code, defaults, keywords),) = content
            function = types.FunctionType(
                marshal.loads(code), vars(sys.modules[place.module]), name, defaults
            )
            function.__kwdefaults__, function.__module__, function.__qualname__ = (
                keywords,
                place.module,
                place.name,
            )
            setattr(owner, name, function)
        else:
            functions = list(_functions(vars(owner)[name], set()))
            for function, (code, defaults, keywords) in zip(functions, content, strict=True):
                function.__code__, function.__defaults__, function.__kwdefaults__ = (
                    marshal.loads(code),
                    defaults,
                    keywords,
                )
    except Exception as error:
        raise Differs(
            f"{where} has another value in the program than after importing {file} anew, and a host process "
            f"can't set it ({type(error).__name__}: {error}): start the program anew"
        ) from None
