"""Checks around calls of public methods: a call with an unknown keyword raises a TypeError that suggests the
most similar keyword (Python itself does so from 3.13 on). Also `Unbuilt`, what a module gets instead of a
dataset while a host process imports the module. Host processes run Python functions (docs/hosts.md).
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from cachew import _foreign
from cachew._errors import PipelineError

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])


def did_you_mean(name: str, known: Iterable[str], list_all: bool = True) -> str:
    """The end of an error message: "; did you mean size?" if a known name is similar, else, with list_all, a
    list of the known names.
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"; did you mean {near[0]}?"
    return f" (it has {', '.join(known)})" if known and list_all else ""


class BeingImported(Exception):
    """A host process is importing a module that makes a dataset, and the function's outputs are not declared.
    To find them the function would have to run in another host, which would import the module again, without
    end.
    """


def refuse_in_import() -> None:
    """Raises BeingImported if this process is a host process that is importing the user's modules."""
    if getattr(sys.modules.get("_host_function"), "loading", False):
        raise BeingImported


class Unbuilt:
    """What a module gets instead of a dataset while a host process imports the module. The host needs only
    the module's functions, so all methods accept any call and return this object. Iterating over it, or using
    it in another way, raises PipelineError.
    """

    def __getattr__(self, name: str) -> Callable[..., Unbuilt]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self

    def _refuse(self) -> NoReturn:
        raise PipelineError(
            "a module made this dataset while a host process imported the module, before the "
            "outputs of its functions can be known: declare the outputs, "
            "outputs={name: (dtype, shape)}, or make the dataset in a function that the import does not run"
        )

    __iter__ = __next__ = __len__ = __enter__ = _refuse

    def __add__(self, other: Any) -> Unbuilt:
        return self

    __radd__ = __add__


def _keywords(function: Callable[..., Any]) -> list[str] | None:
    """The names of the function's parameters that can be given by name; None: it accepts any name."""
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
    """Wraps the function: an unknown keyword raises a TypeError that suggests the most similar one. Where the
    function raises BeingImported, the call returns an `Unbuilt`.
    """
    names = _keywords(function)
    if not names:
        return function
    known = frozenset(names)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in known:
                instead = _foreign.argument(name) or did_you_mean(name, names)
                raise TypeError(f"{function.__name__}() has no argument {name}{instead}")
        try:
            return function(*args, **kwargs)
        except BeingImported:
            return Unbuilt()

    return call  # type: ignore[return-value]


def checked_methods(cls: C) -> C:
    """Applies `checked` to the public methods of a class, which it changes and returns."""
    for name, value in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if inspect.isfunction(value):
            setattr(cls, name, checked(value))
        elif type(value) is classmethod:
            setattr(cls, name, classmethod(checked(value.__func__)))
    return cls
