"""Expressions: `col("label") % 2 == 0` builds the text `"label % 2 == 0"`, which operators such as `filter`
and `assign` take.

docs/expressions.md describes the operators and functions. The library finds dtypes and errors when an
expression is given to an operator. Python's `and`, `or`, `not`, `in` and chained comparisons can't build
expressions: write `&`, `|`, `~`, and each comparison in parentheses.
"""

from __future__ import annotations

import keyword
import math
import operator
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from cachew._calls import checked, checked_methods

# Levels of precedence, lowest first, as in the library's grammar: an operand of a lower level than its place
# allows is put in parentheses.
_COMPARE, _OR, _XOR, _AND, _SHIFT, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(10)

_WORDS = {"and", "or", "not", "in", "True", "False", "true", "false"}

_CASTS = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)

Operand: TypeAlias = "Expr | int | float | np.generic | str | bytes"


@checked_methods
class Expr:
    """An expression over the components of an element. It begins with `col(name)`; `str(expression)` is its
    text.
    """

    __slots__ = ("_level", "_text")
    __array_ufunc__ = None  # makes NumPy's operators call this class's operators
    __hash__ = None  # type: ignore[assignment]  # == builds an expression, so there is no hash
    __iter__ = None  # keeps Python from iterating with __getitem__ or for `in`

    def __init__(self, text: str, _level: int = _COMPARE - 1) -> None:
        self._text = text
        self._level = _level

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<expression {self._text}>"

    @property
    def __cachew_expression__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[Any, ...]:
        return Expr, (self._text, self._level)

    # ---- what Python would evaluate at once, which raises a TypeError ----

    def __bool__(self) -> bool:
        raise TypeError(
            f"the expression {self._text} has no truth value here: it is computed later, for each element. "
            f"Instead of `and`, `or`, `not` write "
            "(a > 1) & (b < 2), (a > 1) | (b < 2), ~(a > 1); instead of 0 < a < 9 write (a > 0) & (a < 9); "
            "instead of `in` write "
            "a.isin([1, 2]) or s.contains('cat'); instead of min(a, b) and max(a, b) write a.min(b) and "
            "a.max(b); instead of `if` write cachew.where(condition, a, b)"
        )

    def __contains__(self, item: object) -> bool:
        raise TypeError(
            f"`in` can't build an expression over {self._text}: write a.isin([1, 2]) or s.contains('cat')"
        )

    def __len__(self) -> int:
        raise TypeError(f"the length of {self._text} is not known here: write ({self._text}).length()")

    def __int__(self) -> int:
        raise TypeError(f"{self._text} has no value here; for a conversion write .cast('int64')")

    def __float__(self) -> float:
        raise TypeError(f"{self._text} has no value here; for a conversion write .cast('float64')")

    # ---- operators ----

    def __add__(self, other: Operand) -> Expr:
        return _binary(self, "+", other, _SUM)

    def __radd__(self, other: Operand) -> Expr:
        return _binary(other, "+", self, _SUM)

    def __sub__(self, other: Operand) -> Expr:
        return _binary(self, "-", other, _SUM)

    def __rsub__(self, other: Operand) -> Expr:
        return _binary(other, "-", self, _SUM)

    def __mul__(self, other: Operand) -> Expr:
        return _binary(self, "*", other, _PRODUCT)

    def __rmul__(self, other: Operand) -> Expr:
        return _binary(other, "*", self, _PRODUCT)

    def __truediv__(self, other: Operand) -> Expr:
        return _binary(self, "/", other, _PRODUCT)

    def __rtruediv__(self, other: Operand) -> Expr:
        return _binary(other, "/", self, _PRODUCT)

    def __floordiv__(self, other: Operand) -> Expr:
        return _binary(self, "//", other, _PRODUCT)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return _binary(other, "//", self, _PRODUCT)

    def __mod__(self, other: Operand) -> Expr:
        return _binary(self, "%", other, _PRODUCT)

    def __rmod__(self, other: Operand) -> Expr:
        return _binary(other, "%", self, _PRODUCT)

    def __pow__(self, other: Operand) -> Expr:
        return _power(self, other)

    def __rpow__(self, other: Operand) -> Expr:
        return _power(other, self)

    def __and__(self, other: Operand) -> Expr:
        return _binary(self, "&", other, _AND)

    def __rand__(self, other: Operand) -> Expr:
        return _binary(other, "&", self, _AND)

    def __or__(self, other: Operand) -> Expr:
        return _binary(self, "|", other, _OR)

    def __ror__(self, other: Operand) -> Expr:
        return _binary(other, "|", self, _OR)

    def __xor__(self, other: Operand) -> Expr:
        return _binary(self, "^", other, _XOR)

    def __rxor__(self, other: Operand) -> Expr:
        return _binary(other, "^", self, _XOR)

    def __lshift__(self, other: Operand) -> Expr:
        return _binary(self, "<<", other, _SHIFT)

    def __rlshift__(self, other: Operand) -> Expr:
        return _binary(other, "<<", self, _SHIFT)

    def __rshift__(self, other: Operand) -> Expr:
        return _binary(self, ">>", other, _SHIFT)

    def __rrshift__(self, other: Operand) -> Expr:
        return _binary(other, ">>", self, _SHIFT)

    def __neg__(self) -> Expr:
        return _prefix("-", self)

    def __pos__(self) -> Expr:
        return _prefix("+", self)

    def __invert__(self) -> Expr:
        return _prefix("~", self)

    def __lt__(self, other: Operand) -> Expr:
        return _compare(self, "<", other)

    def __le__(self, other: Operand) -> Expr:
        return _compare(self, "<=", other)

    def __gt__(self, other: Operand) -> Expr:
        return _compare(self, ">", other)

    def __ge__(self, other: Operand) -> Expr:
        return _compare(self, ">=", other)

    def __eq__(self, other: Operand) -> Expr:  # type: ignore[override]
        return _compare(self, "==", other)

    def __ne__(self, other: Operand) -> Expr:  # type: ignore[override]
        return _compare(self, "!=", other)

    # ---- functions ----

    def __abs__(self) -> Expr:
        return self.abs()

    def __round__(self, digits: None = None) -> Expr:
        if digits is not None:
            raise TypeError(
                f"round({self._text}, {digits}): expressions round to integers only; write (x "
                f"* 100).round() / 100"
            )
        return self.round()

    def __floor__(self) -> Expr:
        return self.floor()

    def __ceil__(self) -> Expr:
        return self.ceil()

    def abs(self) -> Expr:
        """The absolute value."""
        return _call("abs", self)

    def round(self) -> Expr:
        """The nearest integer, ties to even."""
        return _call("round", self)

    def floor(self) -> Expr:
        """The value rounded down to an integer."""
        return _call("floor", self)

    def ceil(self) -> Expr:
        """The value rounded up to an integer."""
        return _call("ceil", self)

    def sqrt(self) -> Expr:
        """The square root."""
        return _call("sqrt", self)

    def exp(self) -> Expr:
        """e to the power of the value."""
        return _call("exp", self)

    def log(self) -> Expr:
        """The natural logarithm."""
        return _call("log", self)

    def isnan(self) -> Expr:
        """Whether the value is NaN."""
        return _call("isnan", self)

    def min(self, *others: Operand, axis: int | None = None) -> Expr:
        """Without arguments: the smallest value of the array, or the smallest values along an axis. With
        arguments: at each index, the smallest of this value and the others.
        """
        return _call("min", self, *others, axis=axis)

    def max(self, *others: Operand, axis: int | None = None) -> Expr:
        """Without arguments: the largest value of the array, or the largest values along an axis. With
        arguments: at each index, the largest of this value and the others.
        """
        return _call("max", self, *others, axis=axis)

    def sum(self, axis: int | None = None) -> Expr:
        """The sum of the array's values, or the sums along an axis."""
        return _call("sum", self, axis=axis)

    def mean(self, axis: int | None = None) -> Expr:
        """The mean of the array's values, or the means along an axis."""
        return _call("mean", self, axis=axis)

    def isin(self, values: Iterable[Operand]) -> Expr:
        """Whether the value is equal to one of the values."""
        if isinstance(values, (str, bytes, Expr)):
            raise TypeError(f"isin({values!r}): expected a list of values")
        listed = ", ".join(str(literal(v)) for v in values)
        return Expr(f"isin({self._text}, [{listed}])", _ATOM)

    def hash(self) -> Expr:
        """A hash of the bytes, or of each integer, as uint64."""
        return _call("hash", self)

    def lower(self) -> Expr:
        """The bytes with the letters A to Z as a to z."""
        return _call("lower", self)

    def strip(self) -> Expr:
        """The bytes without white space at both ends."""
        return _call("strip", self)

    def startswith(self, prefix: Operand) -> Expr:
        """Whether the bytes start with other bytes."""
        return _call("startswith", self, prefix)

    def endswith(self, suffix: Operand) -> Expr:
        """Whether the bytes end with other bytes."""
        return _call("endswith", self, suffix)

    def contains(self, part: Operand) -> Expr:
        """Whether the bytes contain other bytes."""
        return Expr(f"{_operand(part, _OR)} in {_operand(self, _OR)}", _COMPARE)

    def __getitem__(self, key: Any) -> Expr:
        """A value or a part of the array, as `x[0]`, `x[1:3, ::-1]` or `x[col("i")]`; a part of the bytes."""
        items = key if isinstance(key, tuple) else (key,)
        return Expr(f"{_operand(self, _ATOM)}[{', '.join(map(_index, items))}]", _ATOM)

    def length(self) -> Expr:
        """The size of an array's first dimension, or the number of bytes of a byte string, as int64."""
        return _call("length", self)

    def cast(self, dtype: Any) -> Expr:
        """The values as another dtype ("float32", numpy.float32, bool ...)."""
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        if name not in _CASTS:
            raise ValueError(f"cast to {name!r}: expected one of {', '.join(_CASTS)}")
        return _call(name, self)


@checked
def col(name: str) -> Expr:
    """An expression: the component with that name."""
    if not isinstance(name, str):
        raise TypeError(f"col({name!r}): expected the name of a component")
    if not name or "`" in name:
        raise ValueError(
            f"col({name!r}): expected the name of a component; a name is not empty and has no backquote"
        )
    plain = name.isascii() and name.isidentifier() and name not in _WORDS and not keyword.iskeyword(name)
    return Expr(name if plain else f"`{name}`", _ATOM)


@checked
def where(condition: Operand, a: Operand, b: Operand) -> Expr:
    """At each index, `a` where the condition is true (not 0), else `b`. Both are computed at all indices."""
    return _call("where", condition, a, b)


def literal(value: Any) -> Expr:
    """A number, a truth value or a text as an expression. NumPy scalars keep their dtype."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, np.bool_)):
        return Expr(str(bool(value)), _ATOM)
    if isinstance(value, np.generic) and value.dtype.name in _CASTS:
        return _call(value.dtype.name, literal(value.item()))
    if isinstance(value, int):
        return Expr(str(value), _ATOM if value >= 0 else _SIGN)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} can't be part of an expression: expected a finite number")
        return Expr(repr(value), _ATOM if math.copysign(1.0, value) > 0 else _SIGN)
    if isinstance(value, (str, bytes)):
        return _text(value)
    raise TypeError(
        f"{value!r} is a {type(value).__name__}: an expression is made of col(...), numbers, "
        f"truth values and texts"
    )


def _text(value: str | bytes) -> Expr:
    text = value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")
    if not text.isprintable():
        raise ValueError(
            f"the text {value!r} can't be part of an expression: it has unprintable characters, and "
            f"expressions have no escapes"
        )
    for quote in "'\"":
        if quote not in text:
            return Expr(f"{quote}{text}{quote}", _ATOM)
    raise ValueError(
        f"the text {value!r} can't be part of an expression: it has both kinds of quotes, and "
        f"expressions have no escapes"
    )


def _operand(value: Any, level: int) -> str:
    e = literal(value)
    return e._text if e._level >= level else f"({e._text})"


def _usable(*values: Any) -> bool:
    return all(isinstance(v, (Expr, bool, int, float, np.generic, str, bytes)) for v in values)


def _binary(a: Any, sign: str, b: Any, level: int) -> Expr:
    if not _usable(a, b):
        return NotImplemented  # type: ignore[no-any-return]
    return Expr(f"{_operand(a, level)} {sign} {_operand(b, level + 1)}", level)


def _compare(a: Any, sign: str, b: Any) -> Expr:
    if not _usable(a, b):
        raise TypeError(f"{a} {sign} {b!r}: a {type(b).__name__} can't be part of an expression")
    return Expr(f"{_operand(a, _OR)} {sign} {_operand(b, _OR)}", _COMPARE)


def _power(a: Any, b: Any) -> Expr:
    if not _usable(a, b):
        return NotImplemented  # type: ignore[no-any-return]
    return Expr(f"{_operand(a, _ATOM)} ** {_operand(b, _SIGN)}", _POWER)


def _prefix(sign: str, a: Expr) -> Expr:
    return Expr(f"{sign}{_operand(a, _SIGN)}", _SIGN)


def _index(item: Any) -> str:
    """An index or a slice between brackets."""
    if not isinstance(item, slice):
        if not isinstance(item, Expr):
            item = operator.index(item)
        return str(literal(item))
    start, stop, step = (
        "" if x is None else str(operator.index(x)) for x in (item.start, item.stop, item.step)
    )
    return f"{start}:{stop}" + (f":{step}" if step else "")


def _call(function: str, *arguments: Any, axis: int | None = None) -> Expr:
    texts = [str(literal(a)) for a in arguments]
    if axis is not None:
        texts.append(f"axis={operator.index(axis)}")
    return Expr(f"{function}({', '.join(texts)})", _ATOM)
