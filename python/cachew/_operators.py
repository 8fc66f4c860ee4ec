"""Operators as the library's table describes them: which arguments their methods take, and how a call becomes
JSON. Here only the form of a call is checked; the library checks the attributes' values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cachew import _foreign
from cachew._calls import did_you_mean
from cachew._errors import PipelineError
from cachew._values import plain
from cachew.expr import literal

_REQUIRED = inspect.Parameter.empty


class Attribute:
    """One attribute of an operator, as the table describes it."""

    __slots__ = ("name", "kind", "default", "allowed", "doc", "path")

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.name: str = entry["name"]
        self.kind: str = entry["kind"]
        self.default: Any = entry.get("default", _REQUIRED)
        self.allowed: str = entry["allowed"]
        self.doc: str = entry.get("doc", "")
        self.path: bool = entry.get("path", False)

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED


class Operator:
    """One operator of the table: the signature and docstring of its method, and how a call becomes
    attributes.

    Attributes without a default may be given by position, in the table's order (if all attributes have a
    default: the first one). All others must be given by name.
    """

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.name: str = entry["name"]
        self.kind: str = entry["kind"]
        self.summary: str = entry["summary"]
        self.doc: str = entry.get("doc", "")
        self.hint: str = entry.get("hint", "")
        self.random: bool = entry["random"]
        self.for_tests: bool = entry.get("for_tests", False)
        self.attributes = {a.name: a for a in map(Attribute, entry["attributes"])}
        self.required = [a.name for a in self.attributes.values() if a.required]
        self.positional = self.required or list(self.attributes)[:1]
        self.takes_function = any(a.kind == "function" for a in self.attributes.values())
        if self.takes_function:
            self.positional = ["function"]  # not `outputs`, which has no default either
        # "chains": the attribute is a list of pipelines, as in concat([a, b])
        self.takes_datasets = any(a.kind == "chains" for a in self.attributes.values())

    @property
    def begins(self) -> bool:
        """Whether the operator is the first of a chain: a source, or one that joins several datasets."""
        return self.kind == "source" or self.takes_datasets

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes that a call gives. A call of the wrong form raises TypeError, as in Python."""
        if self.name in FORMS:
            return FORMS[self.name](args, kwargs)
        if len(args) > len(self.positional):
            raise TypeError(
                f"{self.name}() takes {len(self.positional)} arguments without a name "
                f"({', '.join(self.positional)}), {len(args)} were given"
            )
        given = dict(zip(self.positional, args))
        for name, value in kwargs.items():
            if name in given:
                raise TypeError(f"{self.name}() got two values for {name}")
            if name not in self.attributes:
                instead = _foreign.argument(name) or did_you_mean(name, self.attributes) + self._hint()
                raise TypeError(f"{self.name}() has no argument {name}{instead}")
            given[name] = value
        missing = [name for name in self.required if name not in given]
        if missing:
            raise TypeError(f"{self.name}() lacks {', '.join(missing)}{self._hint()}")
        return given

    def _hint(self) -> str:
        return f"; {self.hint}" if self.hint else ""

    def signature(self) -> inspect.Signature:
        """The signature of the method: (self, /, component, size, *, ...)."""
        parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
        if self.name == "assign":
            parameters.append(inspect.Parameter("expressions", inspect.Parameter.POSITIONAL_ONLY, default={}))
            parameters.append(inspect.Parameter("named", inspect.Parameter.VAR_KEYWORD))
            return inspect.Signature(parameters)
        for name in self.positional:
            parameters.append(
                inspect.Parameter(
                    name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=self.attributes[name].default
                )
            )
        for name, a in self.attributes.items():
            if name not in self.positional:
                parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=a.default))
        return inspect.Signature(parameters)

    def docstring(self) -> str:
        lines = [self.summary[0].upper() + self.summary[1:] + "."]
        if self.doc:
            lines += ["", self.doc]
        if self.random:
            certain = "p" in self.attributes and self.attributes["p"].default == 1
            subject = "With p less than 1, the operator" if certain else "The operator"
            lines += ["", f"{subject} uses random numbers: its results differ between epochs and seeds."]
        if self.attributes:
            lines.append("")
            lines += [f"{a.name}: {a.doc} ({a.allowed})" for a in self.attributes.values()]
        return "\n".join(lines)


def assigned(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a call assign(x="a + 1"), or assign({"x": "a + 1"}), which allows names that are not
    identifiers.
    """
    if len(args) > 1 or (args and not isinstance(args[0], Mapping)):
        raise TypeError("assign() takes expressions by name, assign(x=col('a') + 1), or one dict of them")
    if not args and not kwargs:
        raise TypeError("assign() lacks an expression: assign(x=col('a') + 1)")
    return {"set": {name: _expression(e) for name, e in {**(args[0] if args else {}), **kwargs}.items()}}


def _expression(value: Any) -> Any:
    """Numbers and truth values become expressions; all else is returned as it is."""
    return str(literal(value)) if isinstance(value, (bool, int, float, np.generic)) else value


# Operators whose calls have a special form: a function that makes attributes of a call's arguments.
FORMS: dict[str, Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]] = {"assign": assigned}


TABLE: dict[str, Operator] = {}
"""All operators by name."""


def value_of(op: Operator, attribute: str, value: Any) -> Any:
    """The value of an attribute as JSON's types. Raises PipelineError for a value that JSON can't hold."""
    try:
        return plain(_expression(value) if op.attributes[attribute].kind == "expr" else value)
    except TypeError as problem:
        error = PipelineError(f"{op.name}: {attribute}: {problem}")
        error.operator, error.attribute, error.value = op.name, attribute, repr(value)
        raise error from None
