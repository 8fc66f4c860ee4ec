"""What functions use of the user's own modules, as the program has it.

Hosts import these modules by themselves, and may find something else: a file that was edited since, a global
that the program sets, a function that it replaces. So each place of a module that a function uses
(`helper.SCALE`, `helper.Reader.read`) is sent with a digest, and with what stands there; a host whose own
has another digest puts it there before the function is loaded. A place holds one thing as long as a host
lives: a function that expects another one is loaded in another host.
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
"""Bytes of a pickle that do not travel with each function: a table that the module itself makes is rather
found there.
"""

CODE, DATA, FILES = "code", "data", "files"


class Place(NamedTuple):
    module: str
    name: str
    """Of an attribute of the module, or of a class in it: "Reader.read"."""
    kind: str
    digest: str
    content: bytes | None
    """Pickled; None: it can't travel."""


class Differs(Exception):
    """A host can't make a place what a function expects it to be."""


# ---- in the program ----


def gathered(places: Iterable[tuple[str, str]], late: Iterable[str], all_travel: bool) -> str:
    """As text for `adopt`; "": none. late: modules that are imported when the function runs. all_travel:
    what can't is left out.
    """
    import cloudpickle  # type: ignore[import-untyped]

    by_value = cloudpickle.list_registry_pickle_by_value()
    found = []
    # Modules that import each other may allow one order only. They stand there in the order in which they
    # were done, so those that the program asked for come last.
    done = {name: i for i, name in enumerate(sys.modules)}
    for module, name in sorted(places, key=lambda place: (-done[place[0]], place[1])):
        if sys.modules[module].__spec__ is None or any(
            module == m or module.startswith(m + ".") for m in by_value
        ):
            continue  # no host could import it; or it travels whole
        try:
            place = _place(module, name, cloudpickle.dumps)
        except Exception:
            # it has no identity, or the code of its class, which runs here, raises
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
    except Exception:  # pickling runs the value's own code, which may raise anything
        content = b""
    return Place(module, name, DATA, _data_digest(value), content if 0 < len(content) <= LARGE else None)


# ---- in either ----


def _at(module: str, name: str) -> Any:
    """What stands at a place, as it is kept there (a staticmethod, not its function). KeyError: nothing."""
    value: Any = sys.modules[module]
    for part in name.split("."):
        value = vars(value)[part]
    return value


def _functions_at(value: Any, module: str, name: str) -> list[types.FunctionType]:
    """The functions that a place is made of, if it is where they are defined; none of what is defined
    elsewhere, or is no function.
    """
    functions = list(_functions(value, set()))
    home = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if functions and (
        home == (module, name) or any(f.__globals__ is vars(sys.modules[module]) for f in functions)
    ):
        return functions
    return []


def _functions(value: Any, seen: set[int]) -> Iterator[types.FunctionType]:
    """Of a function, what it wraps (in its closure) too."""
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
    # what is defined elsewhere: it has a place of its own there
    if isinstance(value, (types.ModuleType, types.FunctionType, type)):
        name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
        code = digest_of(value.__code__) if isinstance(value, types.FunctionType) else ""
        return hashlib.blake2b(f"{name} {code}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return digest_of(value)


# ---- in a host ----

_adopted: dict[tuple[str, str], str] = {}


def adopt(text: str) -> None:
    """Makes the places what the function that is to be loaded expects. Raises Differs, and what importing a
    module raises.
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
                f"it expects another {place.module}.{place.name} than a function that this host has loaded"
            )


def _compare_files(place: Place) -> None:
    if files_of(place.module) != place.digest:
        raise Differs(
            f"the module {place.module}, which it imports when it runs, or one that this "
            f"imports, has another text here than where the dataset was "
            "made: was a file edited since? Make the dataset anew"
        )


def _import(place: Place) -> None:
    try:
        importlib.import_module(place.module)
    except ModuleNotFoundError as error:
        raise Differs(
            f"it uses {place.module}.{place.name}, and importing {place.module} here fails: "
            f"{error}: was a file deleted or moved since the program "
            "imported it?"
        ) from None


def _digest_at(place: Place) -> str | None:
    try:
        value = _at(place.module, place.name)
        functions = _functions_at(value, place.module, place.name)
        if bool(functions) != (place.kind == CODE):
            return None
        return _code_digest(functions) if functions else _data_digest(value)
    except Exception:  # nothing is there, or it has no identity here
        return None


def _put(place: Place) -> None:
    where = f"{place.module}.{place.name}"
    file = getattr(sys.modules[place.module], "__file__", None)
    if place.content is None:
        raise Differs(
            f"{where} is another one in the program than where {file} is imported anew, and too "
            f"large to travel (or can't be pickled): have the module "
            "make it, or give the function what it needs"
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
            f"{where} is another one in the program than where {file} is imported anew, and "
            f"can't be made the same ({type(error).__name__}: {error}): "
            "start the program anew"
        ) from None
