"""Expressions to trees, by recursive descent with Python's precedence.

A tree is a tuple: ("number", value), ("string", text), ("name", text), ("unary", op, a), ("binary", op, a,
b), ("compare", op, a, b), ("not", a), ("and", a, b), ("or", a, b), ("call", function, [arguments]), ("call",
function, [argument], axis), ("list", [values]), ("index", a, [items]), where an item may be ("slice", [start,
stop, step]), with None for what is not written.
"""

from __future__ import annotations

import re

from .dtypes import PlanError

TOKEN = re.compile(
    r"""\s*(?: (?P<number>0[xX][\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+
                          |(?:[\d_]+\.[\d_]*|\.[\d_]+|\d[\d_]*)(?:[eE][+-]?\d+)?)
            | (?P<name>[A-Za-z_]\w*)
            | `(?P<quoted>[^`]+)`
            | '(?P<string>[^']*)' | "(?P<text>[^"]*)"
            | (?P<op>\*\*|//|<<|>>|<=|>=|==|!=|[-+*/%<>(),~&|^:=\[\]]) )""",
    re.VERBOSE | re.ASCII,
)
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "in")
LEVELS = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "//", "%"))


def tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise PlanError(f"expression: {text[at:]!r} not understood")
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return [*found, ("end", "")]


class Parser:
    def __init__(self, text: str):
        self.tokens = tokens(text)
        self.at = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at]

    def accept(self, *texts: str) -> str | None:
        kind, text = self.peek()
        if kind in ("op", "name") and text in texts:
            self.at += 1
            return text
        return None

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise PlanError(f"expression: expected {text!r}, found {self.peek()[1]!r}")

    def parse(self):
        tree = self.either()
        if self.peek()[0] != "end":
            raise PlanError(f"expression: unexpected {self.peek()[1]!r}")
        return tree

    def either(self):
        tree = self.both()
        while self.accept("or"):
            tree = ("or", tree, self.both())
        return tree

    def both(self):
        tree = self.negation()
        while self.accept("and"):
            tree = ("and", tree, self.negation())
        return tree

    def negation(self):
        return ("not", self.negation()) if self.accept("not") else self.comparison()

    def comparison(self):
        left = self.level(0)
        tree = None
        while op := self.comparison_op():
            right = self.level(0)
            pair = ("compare", op, left, right)
            tree, left = pair if tree is None else ("and", tree, pair), right
        return tree or left

    def comparison_op(self) -> str | None:
        if self.accept("not"):
            self.expect("in")
            return "not in"
        return self.accept(*COMPARISONS)

    def level(self, n: int):
        if n == len(LEVELS):
            return self.sign()
        tree = self.level(n + 1)
        while op := self.accept(*LEVELS[n]):
            tree = ("binary", op, tree, self.level(n + 1))
        return tree

    def sign(self):
        if op := self.accept("-", "+", "~"):
            return ("unary", op, self.sign())
        base = self.atom()
        while self.accept("["):
            base = ("index", base, self.items("]", self.item))
        return ("binary", "**", base, self.sign()) if self.accept("**") else base

    def items(self, close: str, item) -> list:
        """What stands between commas, past the closing bracket."""
        found = []
        while not self.accept(close):
            found.append(item())
            if not self.accept(","):
                self.expect(close)
                break
        return found

    def item(self):
        """An index or a slice."""
        parts = [self.bound()]
        while len(parts) < 3 and self.accept(":"):
            parts.append(self.bound())
        if len(parts) == 1:
            if parts[0] is None:
                raise PlanError("expression: an index is missing")
            return parts[0]
        return ("slice", [*parts, *[None] * (3 - len(parts))])

    def bound(self):
        return None if self.peek() in [("op", ":"), ("op", ","), ("op", "]")] else self.either()

    def atom(self):
        kind, text = self.peek()
        if self.accept("("):
            tree = self.either()
            self.expect(")")
            return tree
        self.at += 1
        if kind == "number":
            digits = text.replace("_", "")
            whole = re.fullmatch(r"\d+|0[xXoObB].*", digits)
            value = int(digits, 10 if digits.isdigit() else 0) if whole else float(digits)
            if value == float("inf"):
                raise PlanError(f"{text} is too large")
            return ("number", value)
        if kind in ("string", "text"):
            return ("string", text)
        if kind == "quoted":
            return ("name", text)
        if kind == "name" and text in ("True", "False", "true", "false"):
            return ("number", text in ("True", "true"))
        if (kind, text) == ("op", "["):
            return ("list", self.items("]", self.either))
        if kind == "name" and text not in ("and", "or", "not", "in"):
            if not self.accept("("):
                return ("name", text)
            axis = []
            arguments = self.items(")", lambda: self.argument(axis))
            return ("call", text, [a for a in arguments if a is not None], *axis)
        raise PlanError(f"expression: unexpected {text!r}")

    def argument(self, axis: list):
        """An argument; one that is named axis goes there, and None comes back."""
        if self.tokens[self.at : self.at + 2] == [("name", "axis"), ("op", "=")]:
            self.at += 2
            axis.append(self.either())
            return None
        return self.either()


def names(tree) -> set[str]:
    """The components that an expression reads."""
    if tree[0] == "name":
        return {tree[1]}
    parts = [p for part in tree[1:] for p in (part if isinstance(part, list) else [part])]
    return {name for part in parts if isinstance(part, tuple) for name in names(part)}
