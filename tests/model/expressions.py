"""Expressions: their type, and their value for one record, as docs/expressions.md has it. Literals are plain
Python numbers until they meet a dtype.
"""

from __future__ import annotations

from typing import Union

import numpy as np

from . import across, mathfn
from .dtypes import (
    DTYPES,
    FLOATS,
    INTEGERS,
    PlanError,
    RecordError,
    Type,
    Value,
    array,
    cast,
    float_value,
    to_numpy,
)
from .parser import Parser

Operand = Union[Value, int, float, bytes]
ARITHMETIC = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
}
BITS = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}
MOST_DIMS = 6
COMPARE = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
PYTHON = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}


def literal(operand: Operand) -> bool:
    return isinstance(operand, (int, float))


def settle(operand: Operand) -> Value:
    """A literal that meets nothing gets a dtype."""
    if not literal(operand):
        return operand
    if isinstance(operand, float):
        return array("float64", operand)
    if -(2**63) <= operand < 2**63:
        return array("int64", operand)
    if 0 <= operand < 2**64:
        return array("uint64", operand)
    raise PlanError(f"expression: {operand} fits no dtype")


def common(a: str, b: str) -> str:
    """numpy.result_type, and bfloat16's rules."""
    if "bytes" in (a, b):
        raise PlanError("expression: bytes have no arithmetic")
    if "bfloat16" not in (a, b):
        return np.result_type(np.dtype(a), np.dtype(b)).name
    other = b if a == "bfloat16" else a
    return {"float16": "float32", "float32": "float32", "float64": "float64"}.get(other, "bfloat16")


def adapt(number: float, dtype: str) -> Value:
    """A literal beside an operand of a dtype."""
    if isinstance(number, float):
        target = dtype if dtype in FLOATS else "float64"
        return cast(array("float64", number), target)
    if dtype in FLOATS:
        return cast(array("float64", float(number)), dtype)
    target = "int64" if dtype == "bool" else dtype
    info = np.iinfo(target)
    if not int(info.min) <= number <= int(info.max):
        raise PlanError(f"expression: {number} does not fit {target}")
    return array(target, number)


def meet(a: Operand, b: Operand) -> tuple[Value, Value]:
    """Both operands as values of their common dtype."""
    if literal(a) and literal(b):
        both_integers = isinstance(a, int) and isinstance(b, int)
        a, b = (settle(o if both_integers else float(o)) for o in (a, b))
    elif literal(a):
        a = adapt(a, b.dtype)
    elif literal(b):
        b = adapt(b, a.dtype)
    dtype = common(a.dtype, b.dtype)
    return cast(a, dtype), cast(b, dtype)


class Expression:
    def __init__(self, text: str, types: dict[str, Type]):
        self.tree = Parser(text).parse()
        self.types = types
        self.checked = False  # no record fails while the type is found out
        ones = {
            n: Value("bytes", b"1") if t.dtype == "bytes" else cast(array("int8", 1), t.dtype)
            for n, t in types.items()
        }
        dims = self.dims(self.tree)
        self.type = Type(self.evaluate(ones).dtype, dims)
        self.checked = True

    def evaluate(self, components: dict[str, Value]) -> Value:
        self.components = components
        with np.errstate(all="ignore"):
            return settle(self.value(self.tree))

    # ---- shapes ----

    def dims(self, tree) -> tuple | None:
        kind, *rest = tree
        if kind in ("number", "string"):
            return ()
        if kind == "name":
            (name,) = rest
            if name not in self.types:
                raise PlanError(f"expression: no component {name}")
            return self.types[name].dims
        if kind in ("unary", "not"):
            return self.dims(rest[-1])
        if kind in ("binary", "compare", "and", "or"):
            return self.broadcast([self.dims(a) for a in rest[-2:]])
        if kind == "list":
            raise PlanError("expression: a list outside isin")
        if kind == "index":
            return self.dims_of_index(*rest)
        name, arguments, *axis = rest  # a call
        if axis:
            return self.dims_of_reduction(name, arguments, axis[0])
        if name in ("lower", "strip", "startswith", "endswith"):
            return ()
        if name == "isin":
            self.values_of(arguments)
            return self.dims(arguments[0])
        if name == "length":
            (a,) = arguments
            if self.dims(a) == () and a[0] == "name" and self.types[a[1]].dtype != "bytes":
                raise PlanError("expression: length of a scalar")
            return ()
        if name in across.REDUCTIONS and len(arguments) == 1:
            return ()
        return self.broadcast([self.dims(a) for a in arguments])

    def dims_of_index(self, base, items: list) -> tuple | None:
        dims = self.dims(base)
        if dims is None:
            raise PlanError("expression: an index of an array of unknown rank")
        if self.is_bytes(base):
            if len(items) != 1 or items[0][0] != "slice" or across.bounds(items[0])[2] != 1:
                raise PlanError("expression: bytes have slices only")
            return ()
        sizes = []
        if len(items) > len(dims) or not items:
            raise PlanError("expression: too many indices")
        for item, size in zip(items, dims):
            if item[0] == "slice":
                bounds = across.bounds(item)
                sizes.append(None if size is None else len(range(size)[slice(*bounds)]))
                continue
            if self.dims(item) != ():
                raise PlanError("expression: an index must be a scalar")
            k = across.whole(item)
            if k is not None and size is not None and not -size <= k < size:
                raise PlanError("expression: index out of range")
        return (*sizes, *dims[len(items) :])

    def dims_of_reduction(self, name: str, arguments: list, axis) -> tuple:
        dims, at = self.dims(arguments[0]), across.whole(axis)
        if name not in across.REDUCTIONS or len(arguments) != 1 or dims is None or at is None:
            raise PlanError("expression: axis=")
        if not -len(dims) <= at < len(dims):
            raise PlanError("expression: no such axis")
        return tuple(size for k, size in enumerate(dims) if k != at % len(dims))

    @staticmethod
    def values_of(arguments: list) -> list:
        """The values of the list of isin."""
        if len(arguments) != 2 or arguments[1][0] != "list":
            raise PlanError("expression: isin needs a list")
        return arguments[1][1]

    def is_bytes(self, tree) -> bool:
        kind, *rest = tree
        if kind == "name":
            return self.types[rest[0]].dtype == "bytes"
        if kind == "index":
            return self.is_bytes(rest[0])
        if kind == "call":
            return rest[0] in ("lower", "strip") or rest[0] == "where" and self.is_bytes(rest[1][1])
        return kind == "string"

    @staticmethod
    def broadcast(shapes: list) -> tuple | None:
        if None in shapes:
            return None
        result = []
        for k in range(max(len(s) for s in shapes)):
            sizes = {s[-1 - k] for s in shapes if len(s) > k} - {1}
            known = sizes - {None}
            if len(known) > 1:
                raise PlanError("expression: shapes that don't match")
            result.append(known.pop() if known else None if sizes else 1)
        return tuple(reversed(result))

    # ---- values ----

    def value(self, tree) -> Operand:
        kind, *rest = tree
        if kind == "number":
            (number,) = rest
            return array("bool", number) if isinstance(number, bool) else number
        if kind == "string":
            return Value("bytes", rest[0].encode())
        if kind == "name":
            return self.components[rest[0]]
        if kind == "index":
            items = [across.slice_of(i) if i[0] == "slice" else self.value(i) for i in rest[1]]
            return across.index(self.value(rest[0]), items, self.checked)
        if kind == "call" and rest[0] == "isin":
            first = self.value(rest[1][0])
            result = self.compare("!=" if self.is_bytes(rest[1][0]) else "<", first, first)
            for other in self.values_of(rest[1]):
                one = self.compare("==", first, self.value(other))
                result = Value("bool", np.logical_or(result.data, one.data))
            return result
        if kind == "call":
            name, arguments, *axis = rest
            if axis:
                return self.along(name, self.value(arguments[0]), across.whole(axis[0]))
            return self.call(name, [self.value(a) for a in arguments])
        if kind == "not":
            return Value("bool", np.logical_not(self.truth(self.value(rest[0]))))
        if kind in ("and", "or"):
            a, b = (self.truth(self.value(operand)) for operand in rest)
            return self.apply(np.logical_and if kind == "and" else np.logical_or, "bool", a, b)
        op, *operands = rest
        return {"unary": self.unary, "binary": self.binary, "compare": self.compare}[kind](
            op, *map(self.value, operands)
        )

    @staticmethod
    def truth(operand: Operand) -> np.ndarray:
        operand = settle(operand)
        if operand.dtype == "bytes":
            raise PlanError("expression: bytes are neither true nor false")
        return to_numpy(operand) != 0

    @staticmethod
    def apply(function, dtype: str, *arrays: np.ndarray) -> Value:
        try:
            result = np.asarray(function(*arrays))
        except ValueError as error:
            raise RecordError(f"expression: shapes that don't match: {error}") from error
        return float_value(dtype, result) if dtype in FLOATS else Value(dtype, result.astype(dtype))

    def compute(self, function, *operands: Value) -> Value:
        """An operation in the operands' dtype; half precisions are computed in float32."""
        dtype = operands[0].dtype
        arrays = [to_numpy(o).astype(np.float32) if dtype == "float16" else to_numpy(o) for o in operands]
        return self.apply(function, dtype, *arrays)

    def fail_where(self, wrong: np.ndarray, why: str, *beside: np.ndarray) -> None:
        """The record fails where `wrong` holds, unless another operand is an empty array: then there is no
        value to compute.
        """
        if self.checked and np.any(wrong) and all(a.size for a in beside):
            raise RecordError(why)

    def unary(self, op: str, a: Operand) -> Operand:
        if literal(a):
            if op == "~" and isinstance(a, float):
                raise PlanError("expression: ~ of a floating number")
            return {"-": lambda: -a, "+": lambda: a, "~": lambda: ~a}[op]()
        if a.dtype == "bytes" or a.dtype == "bool" and op != "~" or a.dtype in FLOATS and op == "~":
            raise PlanError(f"expression: {op} of {a.dtype}")
        return self.compute({"-": np.negative, "+": np.positive, "~": np.invert}[op], a)

    def binary(self, op: str, a: Operand, b: Operand) -> Operand:
        if literal(a) and literal(b):
            return self.literals(op, a, b)
        square = op == "**" and isinstance(b, int) and b == 2
        if op == "**" and literal(b) and b < 0 and a.dtype not in FLOATS and isinstance(b, int):
            raise PlanError("expression: an integer to a negative power")
        x, y = meet(a, b)
        if op == "/" and x.dtype not in FLOATS:
            x, y = cast(x, "float64"), cast(y, "float64")
        if x.dtype == "bool":
            if op == "-":
                raise PlanError("expression: - of bool")
            if op in ("//", "%", "**", "<<", ">>"):
                x, y = cast(x, "int8"), cast(y, "int8")
        if op in BITS or op in ("<<", ">>"):
            if x.dtype in FLOATS:
                raise PlanError(f"expression: {op} of {x.dtype}")
            return self.compute(BITS[op], x, y) if op in BITS else self.shift(op, x, y)
        if op in ("//", "%") and x.dtype in INTEGERS:
            self.fail_where(y.data == 0, "integer division by zero", x.data)
        if op == "**" and not square:
            return self.power(x, y)
        return self.compute(ARITHMETIC["*" if op == "**" else op], x, x if square else y)

    @staticmethod
    def literals(op: str, a: float, b: float) -> float:
        if op in ("&", "|", "^", "<<", ">>") and not (isinstance(a, int) and isinstance(b, int)):
            raise PlanError(f"expression: {op} of a floating number")
        if op == "/" or isinstance(a, float) or isinstance(b, float):
            a, b = float(a), float(b)
        try:
            result = PYTHON[op](a, b)
            if not literal(result):
                raise PlanError(f"expression: {a} {op} {b} is no real number")
            return result
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise PlanError(f"expression: {error}") from error

    def shift(self, op: str, x: Value, y: Value) -> Value:
        bits = np.iinfo(x.dtype).bits
        far = (y.data < 0) | (y.data >= bits)
        count = np.where(far, 0, y.data).astype(x.dtype)

        def shifted(value: np.ndarray, by: np.ndarray, beyond: np.ndarray) -> np.ndarray:
            if op == "<<":
                return np.where(beyond, 0, np.left_shift(value, by))
            # uint64 with int64 would be float64
            return np.where(beyond, np.where(value < 0, -1, 0).astype(value.dtype), np.right_shift(value, by))

        return self.apply(shifted, x.dtype, x.data, count, far)

    def power(self, x: Value, y: Value) -> Value:
        if x.dtype in FLOATS:
            return self.doubles(mathfn.power, x, y)
        self.fail_where(y.data < 0, "an integer to a negative power", x.data)
        return self.compute(np.power, x, y)

    def doubles(self, function, *operands: Value) -> Value:
        """Computed in double precision, value by value, and rounded once."""
        return self.apply(
            np.vectorize(function, otypes=[float]),
            operands[0].dtype,
            *(to_numpy(o).astype(np.float64) for o in operands),
        )

    def compare(self, op: str, a: Operand, b: Operand) -> Operand:
        dtypes = [o.dtype for o in (a, b) if not literal(o)]
        if "bytes" in dtypes:
            if dtypes != ["bytes", "bytes"] or op not in ("==", "!=", "in", "not in"):
                raise PlanError("expression: bytes can be compared with bytes, for equality")
            if op in ("in", "not in"):
                return array("bool", (a.data in b.data) == (op == "in"))
            return array("bool", (a.data == b.data) == (op == "=="))
        if op in ("in", "not in"):
            raise PlanError("expression: in is for bytes")
        if (
            all(d in INTEGERS or d == "bool" for d in dtypes)
            and not isinstance(a, float)
            and not isinstance(b, float)
        ):
            x, y = (np.asarray(o if literal(o) else o.data.astype(object), dtype=object) for o in (a, b))
        else:
            x, y = (to_numpy(o) for o in meet(a, b))
        return self.apply(COMPARE[op], "bool", x, y)

    def call(self, name: str, arguments: list[Operand]) -> Operand:
        first = arguments[0]
        if name in DTYPES and name != "bytes":
            if literal(first):
                settled = (
                    adapt(first, name)
                    if isinstance(first, int) or name in FLOATS
                    else array("float64", first)
                )
                if (
                    name in INTEGERS
                    and not np.iinfo(name).min <= np.rint(settled.data.astype(float)) <= np.iinfo(name).max
                ):
                    raise PlanError(f"expression: {first} does not fit {name}")
                return cast(settled, name)
            return cast(first, name)
        if name == "where":
            a, b = arguments[1:]
            if all(not literal(o) and o.dtype == "bytes" for o in (a, b)):
                condition = self.truth(first)
                if condition.ndim:
                    raise PlanError("expression: where of bytes by an array")
                return a if condition else b
            a, b = meet(a, b)
            return self.apply(
                lambda c, x, y: np.where(c, x, y), a.dtype, self.truth(first), to_numpy(a), to_numpy(b)
            )
        first = settle(first)
        if name == "length":
            if first.dtype != "bytes" and not first.shape:
                self.fail_where(np.asarray(True), "length of a scalar")
                return array("int64", 1)
            return array("int64", len(first.data))
        if name in across.TEXT:
            return across.text(name, [settle(a) for a in arguments])
        if first.dtype == "bytes":
            raise PlanError(f"expression: {name} of bytes")
        if name == "isnan":
            return self.compare("!=", first, first)
        if name in ("sum", "mean"):
            return across.add(name, first)
        if name in ("min", "max"):
            return self.extreme(name, arguments)
        if name in ("sqrt", "exp", "log"):
            return self.real_function(name, first)
        if name == "abs":
            return self.compute(np.abs, first)
        if name in ("round", "floor", "ceil"):
            if name == "round" and first.dtype == "bool":
                return cast(first, "float16")
            if first.dtype not in FLOATS:
                return first
            return self.compute({"round": np.rint, "floor": np.floor, "ceil": np.ceil}[name], first)
        raise PlanError(f"expression: unknown function {name}")

    def real_function(self, name: str, x: Value) -> Value:
        if x.dtype not in FLOATS:
            small = {
                "bool": "float16",
                "int8": "float16",
                "uint8": "float16",
                "int16": "float32",
                "uint16": "float32",
            }
            x = cast(x, small.get(x.dtype, "float64"))
        if name == "sqrt":
            return self.compute(np.sqrt, x)
        return self.doubles(mathfn.exp if name == "exp" else mathfn.log, x)

    def extreme(self, name: str, arguments: list[Operand]) -> Value:
        if len(arguments) == 1:
            return self.extreme_of(name, settle(arguments[0]))
        result = arguments[0]
        for other in arguments[1:]:
            x, y = meet(result, other)
            first_of_equals = x.dtype in ("float16", "bfloat16")

            def choose(p: np.ndarray, q: np.ndarray, first_of_equals=first_of_equals) -> np.ndarray:
                before = p < q if name == "min" else p > q
                before = before | (p == q) if first_of_equals else before
                return (
                    np.where(np.isnan(p), p, np.where(before, p, q))
                    if p.dtype.kind == "f"
                    else np.where(before, p, q)
                )

            result = self.compute(choose, x, y)
        return result

    def along(self, name: str, value: Operand, axis: int) -> Value:
        """A reduction along an axis."""
        value = settle(value)
        if not self.checked and value.data.ndim <= axis % MOST_DIMS:
            return self.call(name, [value])  # only the dtype counts
        data = np.moveaxis(value.data, axis, -1)
        if name in ("min", "max") and data.shape[-1] == 0 and 0 not in data.shape[:-1]:
            raise RecordError(f"{name} of nothing")
        rows = [
            self.call(name, [Value(value.dtype, row)]) for row in data.reshape(-1, max(data.shape[-1], 1))
        ]
        if data.size == 0:
            ones = self.call(
                name, [Value(value.dtype, np.zeros(0 if name in ("sum", "mean") else 1, data.dtype))]
            )
            return Value(ones.dtype, np.full(data.shape[:-1], ones.data))
        return Value(rows[0].dtype, np.array([r.data for r in rows]).reshape(data.shape[:-1]))

    def extreme_of(self, name: str, x: Value) -> Value:
        """The smallest or largest value of an array: the first of equals, NaN if there is one."""
        data = to_numpy(x).reshape(-1)
        if data.size == 0:
            raise RecordError(f"{name} of nothing")
        best = data[0]
        for v in data:
            if np.isnan(best):
                break
            if np.isnan(v) or (v < best if name == "min" else v > best):
                best = v
        return self.apply(lambda v: v, x.dtype, np.asarray(best))
