"""Expressions: their type, and their value for one record, as NumPy 2 has it (literals are weak Python scalars)."""

import numpy as np

from . import mathfn
from .dtypes import DTYPES, FLOATS, INTEGERS, PlanError, RecordError, Type, Value, cast, from_numpy, to_numpy
from .parser import Parser

Operand = Value | bool | int | float
ARITHMETIC = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "//": np.floor_divide, "%": np.remainder}
BITS = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}
COMPARE = {"==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


def weak(operand: Operand) -> bool:
    return not isinstance(operand, Value)


def promote(a: Operand, b: Operand) -> str:
    """The dtype two operands meet in, at least one of which is a Value."""
    dtypes = [o.dtype for o in (a, b) if not weak(o)]
    if "bytes" in dtypes:
        raise PlanError("expression: bytes have no arithmetic")
    if "bfloat16" not in dtypes:
        return np.result_type(*(o if weak(o) else np.dtype(o.dtype) for o in (a, b))).name
    others = [d for d in dtypes if d in FLOATS and d != "bfloat16"]
    if not others:
        return "bfloat16"
    return "float32" if others[0] == "float16" else others[0]


def literal(value: bool | float) -> Value:
    """A literal by itself: what Python's types are in NumPy."""
    return from_numpy({bool: "bool", int: "int64", float: "float64"}[type(value)], np.asarray(value))


def at(operand: Operand, dtype: str) -> np.ndarray:
    """The operand as an array to compute with in dtype; bfloat16 is computed in float32."""
    target = np.dtype("float32" if dtype == "bfloat16" else dtype)
    if weak(operand):
        try:
            with np.errstate(all="ignore"):
                return np.array(operand, dtype=target)
        except OverflowError as error:
            raise PlanError(f"expression: {operand} does not fit {dtype}") from error
    with np.errstate(all="ignore"):
        return to_numpy(operand).astype(target)


class Expression:
    def __init__(self, text: str, types: dict[str, Type]):
        self.tree = Parser(text).parse()
        self.types = types
        self.checked = False  # no division fails while the type is found out
        ones = {n: Value("bytes", b"1") if t.dtype == "bytes" else cast(literal(1), t.dtype) for n, t in types.items()}
        self.type = Type(self.evaluate(ones).dtype, self.dims(self.tree))
        self.checked = True

    def evaluate(self, components: dict[str, Value]) -> Value:
        self.components = components
        with np.errstate(all="ignore"):
            result = self.value(self.tree)
        return literal(result) if weak(result) else result

    # ---- shapes ----

    def dims(self, tree) -> tuple | None:
        match tree:
            case ("number", _):
                return ()
            case ("name", name):
                return self.types[name].dims
            case ("unary", _, a) | ("not", a):
                return self.dims(a)
            case ("binary" | "compare", _, a, b) | ("and" | "or", a, b):
                return self.broadcast([self.dims(a), self.dims(b)])
            case ("call", "length", _):
                return ()
            case ("call", "min" | "max", [_]):
                return ()
            case ("call", _, arguments):
                return self.broadcast([self.dims(a) for a in arguments])

    @staticmethod
    def broadcast(shapes: list) -> tuple | None:
        known = [s for s in shapes if s != ()]
        if not known:
            return ()
        if None in known or len({len(s) for s in known}) > 1:
            return None
        return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*known))

    # ---- values ----

    def value(self, tree) -> Operand:
        match tree:
            case ("number", number):
                return number
            case ("name", name):
                if name not in self.components:
                    raise PlanError(f"expression: no component {name}")
                return self.components[name]
            case ("unary", op, a):
                return self.unary(op, self.value(a))
            case ("binary", op, a, b):
                return self.binary(op, self.value(a), self.value(b))
            case ("compare", op, a, b):
                return self.compare(op, self.value(a), self.value(b))
            case ("not", a):
                return Value("bool", np.logical_not(self.truth(self.value(a))))
            case ("and", a, b):
                return self.apply(np.logical_and, "bool", self.truth(self.value(a)), self.truth(self.value(b)))
            case ("or", a, b):
                return self.apply(np.logical_or, "bool", self.truth(self.value(a)), self.truth(self.value(b)))
            case ("call", name, arguments):
                return self.call(name, [self.value(a) for a in arguments])

    @staticmethod
    def truth(operand: Operand) -> np.ndarray:
        return np.asarray(bool(operand)) if weak(operand) else to_numpy(operand) != 0

    @staticmethod
    def apply(function, dtype: str, *arrays: np.ndarray) -> Value:
        try:
            return from_numpy(dtype, np.asarray(function(*arrays)))
        except ValueError as error:
            raise RecordError(f"expression: shapes that don't match: {error}") from error

    def unary(self, op: str, a: Operand) -> Operand:
        if weak(a):
            return {"-": lambda: -a, "+": lambda: +a, "~": lambda: ~a}[op]()
        function = {"-": np.negative, "+": np.positive, "~": np.invert}[op]
        return self.apply(function, a.dtype, at(a, a.dtype))

    def binary(self, op: str, a: Operand, b: Operand) -> Operand:
        if op in BITS or op in ("<<", ">>"):
            dtype = promote(a, b)
            return self.apply(BITS.get(op) or {"<<": np.left_shift, ">>": np.right_shift}[op], dtype, at(a, dtype), at(b, dtype))
        if weak(a) and weak(b):
            return self.python(op, a, b)
        dtype = promote(a, b)
        if op == "/" and dtype not in FLOATS:
            dtype = "float16" if dtype in ("int8", "uint8") else "float64"
            dtype = "float64"
        x, y = at(a, dtype), at(b, dtype)
        if op in ("//", "%") and dtype in INTEGERS and self.checked and np.any(y == 0):
            raise RecordError("integer division by zero")
        if op == "**":
            return self.power(dtype, x, y)
        return self.apply(ARITHMETIC[op], dtype, x, y)

    def python(self, op: str, a, b):
        try:
            match op:
                case "+":
                    return a + b
                case "-":
                    return a - b
                case "*":
                    return a * b
                case "/":
                    return a / b
                case "//":
                    return a // b
                case "%":
                    return a % b
                case "**":
                    return a**b
        except (ZeroDivisionError, OverflowError) as error:
            raise PlanError(f"expression: {error}") from error

    def power(self, dtype: str, x: np.ndarray, y: np.ndarray) -> Value:
        if dtype in FLOATS:
            return self.apply(np.vectorize(mathfn.power, otypes=[float]), dtype, x, y)
        if np.any(y < 0):
            raise RecordError("an integer to a negative power")
        return self.apply(np.power, dtype, x, y)

    def compare(self, op: str, a: Operand, b: Operand) -> Operand:
        if weak(a) and weak(b):
            return bool(COMPARE[op](a, b))
        dtypes = {o.dtype for o in (a, b) if not weak(o)}
        if dtypes <= set(INTEGERS) | {"bool"} and not any(isinstance(o, float) for o in (a, b)):
            x, y = (np.asarray(o, dtype=object) if weak(o) else o.data.astype(object) for o in (a, b))
            return self.apply(COMPARE[op], "bool", x, y)
        dtype = promote(a, b)
        return self.apply(COMPARE[op], "bool", at(a, dtype), at(b, dtype))

    def call(self, name: str, arguments: list[Operand]) -> Operand:
        first = arguments[0]
        if name == "length":
            return from_numpy("int64", np.asarray(len(first.data) if first.dtype == "bytes" else first.shape[0] if first.shape else 1))
        if name == "where":
            condition, a, b = arguments
            if weak(a) and weak(b):
                a = literal(a)
            dtype = promote(a, b)
            return self.apply(np.where, dtype, self.truth(condition), at(a, dtype), at(b, dtype))
        if name in ("min", "max"):
            return self.extreme(name, arguments)
        first = literal(first) if weak(first) else first
        if name in DTYPES:
            return cast(first, name)
        dtype = first.dtype
        if name == "abs":
            return self.apply(np.abs, dtype, at(first, dtype))
        if name in ("round", "floor"):
            if dtype not in FLOATS:
                return first
            return self.apply(np.rint if name == "round" else np.floor, dtype, at(first, dtype))
        functions = {"sqrt": np.sqrt, "exp": np.vectorize(mathfn.exp, otypes=[float]), "log": np.vectorize(mathfn.log, otypes=[float])}
        if name not in functions:
            raise PlanError(f"expression: unknown function {name}")
        dtype = dtype if dtype in FLOATS else "float64"
        return self.apply(functions[name], dtype, at(first, dtype).astype(np.float64))

    def extreme(self, name: str, arguments: list[Operand]) -> Operand:
        function = np.minimum if name == "min" else np.maximum
        if len(arguments) == 1:
            data = at(arguments[0], arguments[0].dtype)
            if data.size == 0:
                raise RecordError(f"{name} of nothing")
            return self.apply(function.reduce, arguments[0].dtype, data.reshape(-1))
        result = arguments[0]
        for other in arguments[1:]:
            if weak(result) and weak(other):
                result = literal(result)
            dtype = promote(result, other)
            result = self.apply(function, dtype, at(result, dtype), at(other, dtype))
        return result
