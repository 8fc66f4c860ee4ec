"""Operators as methods: the class `Operators` gets one method for each operator of the library's table. For
type checkers and editors, tools/make_stubs.py writes the same methods into _methods.pyi.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from typing import Any

from cachew import _core
from cachew._calls import Unbuilt, checked
from cachew._functions import Functions
from cachew._memory import InMemory
from cachew._operators import TABLE, Operator


class Operators:
    """Base class of Dataset: has the operators as methods."""

    __slots__ = ()


class Source(classmethod):  # type: ignore[type-arg]
    """The method of an operator that begins a chain: a class method that can't be called on a dataset."""

    def __get__(self, dataset: Any, owner: type | None = None) -> Callable[..., Any]:
        if dataset is not None:
            raise AttributeError  # Python then calls Dataset.__getattr__, which raises the error for the user
        return super().__get__(None, owner)


def method_of(op: Operator) -> Any:
    """The method of an operator, with the signature and docstring of the table."""
    if op.begins:

        def method(cls: Any, /, *args: Any, **kwargs: Any) -> Any:
            arguments = op.arguments(args, kwargs)
            # While a host process imports the user's module, the module may get an `Unbuilt` instead of a
            # dataset (see _calls.py). If an operator joins several datasets, and one of them is an Unbuilt,
            # the result is that Unbuilt.
            unbuilt = [
                a
                for value in arguments.values()
                if isinstance(value, (list, tuple))
                for a in value
                if isinstance(a, Unbuilt)
            ]
            return unbuilt[0] if unbuilt else cls._begin(op, arguments)
    else:

        def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self._append(op, op.arguments(args, kwargs))

    method.__name__ = op.name
    method.__qualname__ = f"Dataset.{op.name}"
    method.__doc__ = op.docstring()
    method.__signature__ = op.signature()  # type: ignore[attr-defined]
    return Source(method) if op.begins else method


def read_table() -> None:
    """Gives `Operators` a method for each operator that has none yet. It is called at import, and when a
    plug-in may have added operators.
    """
    for entry in json.loads(_core.operators_json())["ops"]:
        if entry["name"] not in TABLE:
            op = TABLE[entry["name"]] = Operator(entry)
            # Operators gets no method for an operator for tests (see Dataset._for_tests), nor for one whose
            # method is written by hand in Functions or InMemory. The exception is `filter`: Functions.filter
            # calls Operators.filter for an expression.
            by_hand = hasattr(Functions, op.name) or hasattr(InMemory, op.name)
            if (
                not op.takes_function
                and not op.for_tests
                and (op.name == "filter" or not by_hand)
                and not hasattr(Operators, op.name)
            ):
                setattr(Operators, op.name, method_of(op))


def document(name: str, *operators: str) -> None:
    """Puts docstrings of operators, from the table, before that of a method of Functions or InMemory."""
    method = vars(Functions).get(name) or vars(InMemory)[name]
    function = getattr(method, "__func__", method)
    function.__doc__ = "\n\n".join(
        [*(TABLE[op].docstring() for op in operators), inspect.cleandoc(function.__doc__ or "")]
    )


@checked
def load_plugin(path: str | os.PathLike[str]) -> None:
    """Loads a C plug-in, a shared object with operators (docs/plugins.md). From then on the operators are
    methods of datasets. A plug-in is code that runs in this process: load only plug-ins that you trust.
    """
    _core.load_plugin(path)
    read_table()


read_table()
for _name in ("map", "flat_map", "map_batches", "iterable"):
    document(_name, _name)
document("filter", "filter", "filter_function")
for _name in ("arrays", "arrow"):
    document(_name, _name)
