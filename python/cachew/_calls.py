"""Calls with an unknown keyword raise a TypeError with the nearest name, as operators do. (Python's own
message has it from 3.13 on.)
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from cachew._errors import PipelineError

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])


def did_you_mean(name: str, known: Iterable[str], list_all: bool = True) -> str:
    """ "; did you mean size?", or else what there is."""
    known = list(known)
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"; did you mean {near[0]}?"
    return f" (it has {', '.join(known)})" if known and list_all else ""


class BeingImported(Exception):
    """A dataset needs its function run to know the outputs, while a host process imports the module: the
    next host would import it again, without end.
    """


def refuse_in_import() -> None:
    """Raises BeingImported where it holds."""
    if getattr(sys.modules.get("_host_function"), "loading", False):
        raise BeingImported


class Unbuilt:
    """What a module gets instead of a dataset while a host process imports it. The host needs only the
    module's functions; using this raises PipelineError.
    """

    def __getattr__(self, name: str) -> Callable[..., Unbuilt]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self

    def _refuse(self) -> NoReturn:
        raise PipelineError(
            "the dataset was made by a module while a host process imported it, before the "
            "outputs of its functions can be known: declare them, "
            "outputs={name: (dtype, shape)}, or make the dataset where it is used"
        )

    __iter__ = __next__ = __len__ = __enter__ = _refuse

    def __add__(self, other: Any) -> Unbuilt:
        return self

    __radd__ = __add__


def _keywords(function: Callable[..., Any]) -> list[str] | None:
    """What it takes by name; None: anything."""
    names = []
    for i, (name, p) in enumerate(inspect.signature(function).parameters.items()):
        if p.kind is p.VAR_KEYWORD:
            options = re.fullmatch(r"Unpack\[(\w+)\]", str(p.annotation))
            if not options:
                return None
            names += list(function.__globals__[options[1]].__annotations__)
        elif p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and not (i == 0 and name in ("self", "cls")):
            names.append(name)
    return names


def checked(function: F) -> F:
    """The function, which says of a keyword that it does not have which one may have been meant."""
    names = _keywords(function)
    if not names:
        return function
    known = frozenset(names)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in known:
                raise TypeError(f"{function.__name__}() has no argument {name}{did_you_mean(name, names)}")
        try:
            return function(*args, **kwargs)
        except BeingImported:
            return Unbuilt()

    return call  # type: ignore[return-value]


def checked_methods(cls: C) -> C:
    """The same for the public methods of a class."""
    for name, value in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if inspect.isfunction(value):
            setattr(cls, name, checked(value))
        elif type(value) is classmethod:
            setattr(cls, name, classmethod(checked(value.__func__)))
    return cls
