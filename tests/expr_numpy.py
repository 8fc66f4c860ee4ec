#!/usr/bin/env python3
"""Random expressions over all dtypes, evaluated by the engine (tests/unit/expr_tool.c) and by NumPy 2,
compared bit for bit.

exp, log and pow are compared exactly with the algorithms of docs/expressions.md written down in Python, and
within one unit in the last place with NumPy. bfloat16 takes part where ml_dtypes is installed.

usage: expr_numpy.py TOOL [--count N] [--seed S] [--show]
"""

import argparse
import json
import math
import random
import subprocess
import sys
import warnings

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

INTS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"] + (["bfloat16"] if bfloat16 else [])
DTYPES = ["bool"] + INTS + FLOATS
BF = np.dtype(bfloat16) if bfloat16 else None


def dt(name):
    return BF if name == "bfloat16" else np.dtype(name)


class Refused(Exception):
    """The expression is wrong: an error at compile time."""


class Fails(Exception):
    """The record fails."""


class Skip(Exception):
    """Outside what the test compares."""


# ---- exp, log, pow as docs/expressions.md gives them ----

H = float.fromhex
LN2_HI, LN2_MID, LN2_LO = H("0x1.62e42fefa2000p-1"), H("0x1.9ef35793c6000p-41"), H("0x1.673007e5ed5e8p-81")
LN2_REST, INV_LN2, SQRT2 = H("0x1.9ef35793c7673p-41"), H("0x1.71547652b82fep+0"), H("0x1.6a09e667f3bcdp+0")
EXP_P = [
    H(x)
    for x in """0x1p-1 0x1.5555555555557p-3 0x1.5555555555556p-5 0x1.11111111100dfp-7
    0x1.6c16c16c162d6p-10 0x1.a01a01abe63b3p-13 0x1.a01a01a6d7883p-16 0x1.71de02372bdd3p-19
    0x1.27e4db679bec4p-22 0x1.af4ddddcf06d6p-26 0x1.1f72fca58cc92p-29""".split()
]
LOG_P = [
    H(x)
    for x in """0x1.5555555555558p-1 0x1.99999999952e1p-2 0x1.2492492df1681p-2 0x1.c71c62e558272p-3
    0x1.7462b4b689086p-3 0x1.39fe5eebedfa5p-3 0x1.2b585ce66ecd3p-3""".split()
]
POW_P = [
    H(x)
    for x in """0x1.2492492492492p-3 0x1.c71c71c71c822p-4 0x1.745d1745a3f56p-4 0x1.3b13b16b45d72p-4
    0x1.1110f807a56acp-4 0x1.e1eff9bac08d5p-5 0x1.acf85f80ba021p-5 0x1.b2dfba17f7e19p-5""".split()
]


def fast_two_sum(a, b):
    s = a + b
    return s, b - (s - a)


def two_sum(a, b):
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a, b):
    p = a * b
    c = 134217729.0 * a
    ah = c - (c - a)
    al = a - ah
    c = 134217729.0 * b
    bh = c - (c - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def pair_product(a, b):
    hi, lo = two_product(a[0], b[0])
    return hi, lo + (a[0] * b[1] + a[1] * b[0])


def horner(p, x):
    q = p[-1]
    for c in reversed(p[:-1]):
        q = q * x + c
    return q


def exp_core(h, low):
    k = (h * INV_LN2 + H("0x1.8p52")) - H("0x1.8p52")
    hi, lo = two_sum(h - k * LN2_HI, -(k * LN2_MID))
    hi, lo = two_sum(hi, lo + (low - k * LN2_LO))
    tail = hi * hi * horner(EXP_P, hi) + (lo + lo * hi)
    s, e = fast_two_sum(1.0, hi)
    y = s + (e + tail)
    k = int(k)
    if k > 1023:
        return y * 2.0**1023 * 2.0 ** (k - 1023)
    if k < -1021:
        return y * 2.0 ** (k + 64) * 2.0**-64
    return y * 2.0**k


def exp(x):
    if math.isnan(x):
        return x
    if x > H("0x1.62e42fefa39efp+9"):
        return math.inf
    if x < H("-0x1.74910d52d3052p+9"):
        return 0.0
    return exp_core(x, 0.0)


def split(x):
    m, e = math.frexp(x)  # [1/2, 1)
    m, e = m * 2, e - 1
    return (m * 0.5, e + 1) if m > SQRT2 else (m, e)


def log(x):
    if math.isnan(x) or x == math.inf:
        return x
    if x == 0:
        return -math.inf
    if x < 0:
        return math.nan
    m, k = split(x)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = z * horner(LOG_P, z)
    half = 0.5 * f * f
    return k * LN2_HI - ((half - (s * (half + r) + k * LN2_REST)) - f)


def log_pair(x):
    m, k = split(x)
    f = m - 1.0
    g = two_sum(m, 1.0)
    s = f / g[0]
    t = two_product(s, g[0])
    sl = (((f - t[0]) - t[1]) - s * g[1]) / g[0]
    z = two_product(s, s)
    z = z[0], z[1] + 2.0 * s * sl
    w = fast_two_sum(H("0x1.999999999999ap-3"), z[0] * horner(POW_P, z[0]))
    w = pair_product(z, (w[0], w[1] + H("-0x1.999999999999ap-57")))
    t = fast_two_sum(H("0x1.5555555555555p-2"), w[0])
    t = pair_product(z, (t[0], t[1] + (w[1] + H("0x1.5555555555555p-56"))))
    s, sl = 2.0 * s, 2.0 * sl
    t = pair_product((s, sl), t)
    w = fast_two_sum(s, t[0])
    w = w[0], w[1] + (t[1] + sl)
    a = two_sum(k * LN2_HI, w[0])
    return fast_two_sum(a[0], a[1] + (k * LN2_MID + (w[1] + k * LN2_LO)))


def pow_(x, y):
    if y == 0 or x == 1:
        return 1.0
    if math.isnan(x) or math.isnan(y):
        return math.nan
    ax, ay = abs(x), abs(y)
    if ay == math.inf:
        return 1.0 if ax == 1 else math.inf if (ax > 1) == (y > 0) else 0.0
    whole = y == math.floor(y)
    negative = math.copysign(1, x) < 0
    flip = negative and whole and math.fmod(y, 2) != 0
    if ax == 0 or ax == math.inf:
        r = 0.0 if (ax == 0) == (y > 0) else math.inf
        return -r if flip else r
    if negative and not whole:
        return math.nan
    if ax == 1 or ay < 2.0**-65:
        r = 1.0
    elif ay >= 2.0**64:
        r = math.inf if (ax > 1) == (y > 0) else 0.0
    else:
        pair = log_pair(ax)
        hi, lo = two_product(pair[0], y)
        lo = lo + pair[1] * y
        r = math.inf if hi > 710 else 0.0 if hi < -746 else exp_core(hi, lo)
    return -r if flip else r


def by_value(f, out, *arrays):
    """f over broadcast arrays in double precision, rounded once to dtype out."""
    arrays = np.broadcast_arrays(*[np.asarray(a).astype(np.float64) for a in arrays])
    r = np.array([f(*map(float, v)) for v in zip(*[a.ravel() for a in arrays])], np.float64).reshape(
        arrays[0].shape
    )
    return r.astype(out)


def ordinal(a):
    u = {2: np.int16, 4: np.int32, 8: np.int64}[a.dtype.itemsize]
    i = np.atleast_1d(a).view(u).astype(object)
    low = -(1 << (8 * a.dtype.itemsize - 1))
    return np.array([low - v if v < 0 else v for v in i.ravel()], object)


def near(ours, numpys):
    limit = 4 if ours.dtype == np.float32 else 1  # NumPy's own float32 exp and log are good to four
    ours, numpys = np.atleast_1d(ours), np.atleast_1d(np.asarray(numpys))
    nan = np.isnan(ours.astype(np.float64))
    if (nan != np.isnan(numpys.astype(np.float64))).any():
        return False
    d = np.abs(ordinal(ours) - ordinal(numpys))
    return all(x <= limit for x, skip in zip(d, nan.ravel()) if not skip)


# ---- the model: values are Python literals or NumPy arrays ----


def weak(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def strong(v):
    if not weak(v):
        return v
    if isinstance(v, float):
        return np.float64(v)
    if -(2**63) <= v < 2**63:
        return np.int64(v)
    if 0 <= v < 2**64:
        return np.uint64(v)
    raise Refused


def is_float(d):
    return d == BF or d.kind == "f"


def common(a, b):
    """numpy.result_type, and docs/expressions.md's rules for bfloat16."""
    kinds = [v if weak(v) else v.dtype for v in (a, b)]
    if BF is not None and BF in kinds:
        other = kinds[1] if kinds[0] == BF else kinds[0]
        if weak(other) or other == BF or other.kind in "biu":
            return BF
        return np.dtype(np.float64 if other == np.float64 else np.float32)
    if weak(a) and weak(b):
        return (
            np.dtype(np.float64)
            if isinstance(a, float) or isinstance(b, float)
            else np.result_type(strong(a), strong(b))
        )
    return np.result_type(a if weak(a) else a.dtype, b if weak(b) else b.dtype)


def fits(v, d):
    if weak(v) and isinstance(v, int) and d.kind in "iu":
        info = np.iinfo(d)
        if not info.min <= v <= info.max:
            raise Refused
    return v


def to(v, d):
    """A value in dtype d where d holds it by promotion."""
    if weak(v):
        fits(v, d)
        return np.asarray(float(v) if is_float(d) else v).astype(d)
    if d == BF and v.dtype.kind in "iu":
        return v.astype(np.float32).astype(d)
    return v.astype(d)


def shapes(*values):
    try:
        return np.broadcast_shapes(*[np.shape(v) for v in values])
    except ValueError:
        raise Fails("shape")


UFUNC = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "**": np.power,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "min": np.minimum,
    "max": np.maximum,
}
LITERAL = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}


def literals(op, a, b):
    try:
        if op == "**":
            if isinstance(a, int) and isinstance(b, int) and b >= 0:
                if abs(a) > 1 and b > 80:
                    raise Skip
                r = a**b
            else:
                r = pow_(float(a), float(b))
        else:
            if op in ("<<", ">>") and isinstance(b, int) and abs(b) > 80:
                raise Skip
            r = float(a) / float(b) if op == "/" else LITERAL[op](a, b)
    except (ZeroDivisionError, TypeError, ValueError):
        raise Refused from None
    except OverflowError:
        raise Skip
    if isinstance(r, int) and abs(r) >= 2**100:
        raise Skip
    return r


def binary(op, a, b):
    if weak(a) and weak(b) and op not in ("min", "max"):
        if op in ("<", "<=", ">", ">=", "==", "!="):
            return np.bool_(
                {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[op]
            )
        return literals(op, a, b)
    if weak(a) and weak(b):
        if isinstance(a, float) or isinstance(b, float):
            a, b = float(a), float(b)
        a, b = strong(a), strong(b)
    shapes(a, b)
    d = common(a, b)
    if op == "**" and weak(b) and b == 2 and d != np.bool_:
        a = to(a, d)
        return binary("*", a, a)
    if d == BF:
        a, b = to(a, BF).astype(np.float32), to(b, BF).astype(np.float32)
        if op in ("&", "|", "^", "<<", ">>"):
            raise Refused
        if op == "**":
            return by_value(pow_, np.float64, a, b).astype(BF)
        r = np.asarray(UFUNC[op](b, a) if op in ("min", "max") else UFUNC[op](a, b))
        return r if r.dtype == np.bool_ else r.astype(BF)
    if BF is not None:
        a, b = (v.astype(np.float32) if not weak(v) and v.dtype == BF else v for v in (a, b))
    if op == "**" and is_float(d):
        r = by_value(pow_, d, to(a, d), to(b, d))
        sure = ~((to(a, d) == -np.inf) & (to(b, d) == 0.5))  # where NumPy takes the square root
        if not near(r[sure], np.power(to(a, d), to(b, d))[sure]):
            raise AssertionError(f"pow: {a!r} {b!r}: {r!r}")
        return r
    if op in ("//", "%", "**") and not is_float(d):
        fits(a, d), fits(b, d)
        if op == "**" and weak(b) and b < 0:
            raise Refused
        if 0 in np.broadcast_shapes(np.shape(a), np.shape(b)):
            pass
        elif (np.asarray(b) == 0).any() if op != "**" else (np.asarray(b) < 0).any():
            raise Fails("division")
    # bool beside a huge literal, which NumPy refuses and for int8 does not
    if op in ("<", "<=", ">", ">=", "==", "!=") and d == np.int64:
        a, b = (v.astype(np.int64) if not weak(v) and v.dtype == np.bool_ else v for v in (a, b))
    try:
        return np.asarray(UFUNC[op](a, b))
    except (TypeError, OverflowError):
        raise Refused from None


def truth(v):
    return (
        np.bool_(v != 0)
        if weak(v)
        else np.asarray(v.astype(np.float32) if v.dtype == BF else v).astype(np.bool_)
    )


def unary(op, v):
    if op == "not":
        return np.logical_not(truth(v))
    if weak(v):
        if op == "~" and isinstance(v, float):
            raise Refused
        return {"-": lambda: -v, "+": lambda: v, "~": lambda: ~v}[op]()
    f = {"-": np.negative, "+": np.positive, "~": np.invert}[op]
    try:
        if v.dtype == BF:
            return np.asarray(f(v.astype(np.float32))).astype(BF)
        return np.asarray(f(v))
    except TypeError:
        raise Refused from None


FUNCTIONS = {"abs": np.abs, "round": np.round, "floor": np.floor, "ceil": np.ceil, "sqrt": np.sqrt}


def function(name, v):
    v = strong(v)
    if name in FUNCTIONS:
        if v.dtype == BF:
            return np.asarray(FUNCTIONS[name](v.astype(np.float32))).astype(BF)
        return np.asarray(FUNCTIONS[name](v))
    d = (
        v.dtype
        if is_float(v.dtype)
        else np.dtype({1: np.float16, 2: np.float32}.get(v.dtype.itemsize, np.float64))
    )
    r = by_value(exp if name == "exp" else log, d, v)
    if d != BF and not near(r, getattr(np, name)(v)):
        raise AssertionError(f"{name}: {v!r}: {r!r}")
    return r


def reduce(name, v):
    v = np.asarray(strong(v))
    if v.ndim == 0:
        return v
    if v.size == 0:
        raise Fails("empty")
    if is_float(v.dtype):  # the sign of a zero is that of the first; NumPy's depends on the machine
        wide = v.astype(np.float64).ravel().tolist()
        r = wide[0]
        for x in wide[1:]:
            r = x if (x < r if name == "min" else x > r) else r
        r = np.asarray(math.nan if any(map(math.isnan, wide)) else r)
        assert math.isnan(r) or r == {"min": np.min, "max": np.max}[name](v.astype(np.float64))
        return r.astype(v.dtype)
    return np.asarray({"min": np.min, "max": np.max}[name](v))


def where(c, a, b):
    c = truth(c)
    d = common(a, b)
    shapes(a, b)
    shapes(c, a, b)
    a, b = to(a, d), to(b, d)
    return np.where(c, a, b)


def cast(name, v):
    d = dt(name)
    if weak(v):
        if d == np.bool_:
            return np.bool_(v != 0)
        if isinstance(v, int):
            return to(v, d)
        v = np.float64(v)
    v = np.asarray(v)
    if v.dtype == d:
        return v
    if d == np.bool_:
        return truth(v)
    if is_float(v.dtype) and d.kind in "iu":
        info = np.iinfo(d)
        wide = np.rint(v.astype(np.float64))
        out = [
            0 if math.isnan(x) else info.max if x >= info.max else info.min if x <= info.min else int(x)
            for x in wide.ravel().tolist()
        ]
        return np.array(out, d).reshape(v.shape)
    if d == BF:
        if v.dtype == np.float64:  # one rounding
            return np.array([round_bf(x) for x in v.ravel().tolist()], np.float32).reshape(v.shape).astype(BF)
        return v.astype(np.float32).astype(BF)
    if v.dtype == BF:
        return v.astype(np.float32).astype(d)
    return v.astype(d)


def round_bf(x):
    if math.isnan(x) or math.isinf(x) or x == 0:
        return x
    m, e = math.frexp(x)
    e = max(e, -125)
    with np.errstate(all="ignore"):
        return float(np.float32(round(x * 2.0 ** (8 - e)) * 2.0 ** (e - 8)))


# ---- random expressions ----


class Generator:
    def __init__(self, rng):
        self.rng = rng

    def literal(self):
        r = self.rng
        k = r.random()
        if k < 0.45:
            v = r.choice([0, 1, 2, 3, 5, 7, 10, 16, 64, 100, 127, 128, 255, 256, 1000])
        elif k < 0.6:
            v = r.choice(
                [2**15, 2**16 - 1, 2**24 + 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**70]
            )
        elif k < 0.9:
            v = r.choice([0.0, 0.5, 1.5, 2.0, 2.5, 3.0, 0.1, 1e-3, 1e3, 1e10, 1e300, 0.25])
        else:
            return ("bool", r.random() < 0.5)
        return ("literal", v)

    def name(self, columns):
        return ("name", self.rng.choice(columns))

    def tree(self, depth, columns):
        r = self.rng
        if depth == 0 or r.random() < 0.12:
            return self.name(columns) if r.random() < 0.72 else self.literal()
        k = r.random()
        sub = lambda: self.tree(depth - 1, columns)
        if k < 0.42:
            return (
                "binary",
                r.choice(
                    ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "+", "*", "//", "%"]
                ),
                sub(),
                sub(),
            )
        if k < 0.54:
            return (
                "compare",
                [r.choice(["<", "<=", ">", ">=", "==", "!="]) for _ in range(1 if r.random() < 0.8 else 2)],
                [sub(), sub(), sub()],
            )
        if k < 0.60:
            return ("logical", r.choice(["and", "or"]), sub(), sub())
        if k < 0.68:
            return ("unary", r.choice(["-", "+", "~", "not"]), sub())
        if k < 0.78:
            return ("function", r.choice(["abs", "round", "floor", "ceil", "sqrt", "exp", "log"]), sub())
        if k < 0.84:
            return ("minmax", r.choice(["min", "max"]), [sub() for _ in range(r.choice([1, 2, 2, 3]))])
        if k < 0.90:
            return ("where", sub(), sub(), sub())
        if k < 0.92:
            return ("length", sub())
        return ("cast", r.choice(DTYPES), sub())


def text(t):
    k = t[0]
    if k == "literal":
        return repr(t[1])
    if k == "bool":
        return str(t[1])
    if k == "name":
        return t[1]
    if k in ("binary", "logical"):
        return f"({text(t[2])} {t[1]} {text(t[3])})"
    if k == "compare":
        s = text(t[2][0])
        for op, v in zip(t[1], t[2][1:]):
            s += f" {op} {text(v)}"
        return f"({s})"
    if k == "unary":
        return f"({t[1]} {text(t[2])})"
    if k in ("function", "cast"):
        return f"{t[1]}({text(t[2])})"
    if k == "minmax":
        return f"{t[1]}({', '.join(map(text, t[2]))})"
    if k == "where":
        return f"where({text(t[1])}, {text(t[2])}, {text(t[3])})"
    return f"length({text(t[1])})"


def evaluate(t, env):
    k = t[0]
    if k == "literal":
        return t[1]
    if k == "bool":
        return np.bool_(t[1])
    if k == "name":
        return env[t[1]]
    if k == "binary":
        return binary(t[1], evaluate(t[2], env), evaluate(t[3], env))
    if k == "logical":
        a, b = truth(evaluate(t[2], env)), truth(evaluate(t[3], env))
        shapes(a, b)
        return np.asarray((np.logical_and if t[1] == "and" else np.logical_or)(a, b))
    if k == "compare":
        values = [evaluate(v, env) for v in t[2][: len(t[1]) + 1]]
        r = binary(t[1][0], values[0], values[1])
        if len(t[1]) > 1:
            s = binary(t[1][1], values[1], values[2])
            shapes(r, s)
            r = np.asarray(np.logical_and(r, s))
        return r
    if k == "unary":
        return unary(t[1], evaluate(t[2], env))
    if k == "function":
        return function(t[1], evaluate(t[2], env))
    if k == "minmax":
        values = [evaluate(v, env) for v in t[2]]
        if len(values) == 1:
            return reduce(t[1], values[0])
        r = values[0]
        for v in values[1:]:
            r = binary(t[1], r, v)
        return r
    if k == "where":
        return where(*[evaluate(v, env) for v in t[1:]])
    if k == "cast":
        return cast(t[1], evaluate(t[2], env))
    v = evaluate(t[1], env)
    if np.ndim(v) == 0:
        raise Refused from None
    return np.int64(np.shape(v)[0])


def names(t, out):
    if t[0] == "name":
        out.add(t[1])
    for x in t[1:]:
        for y in x if isinstance(x, list) else [x]:
            if isinstance(y, tuple):
                names(y, out)
    return out


def random_values(rng, name, shape):
    d = dt(name)
    n = int(np.prod(shape, dtype=np.int64))
    if name == "bool":
        v = [rng.random() < 0.5 for _ in range(n)]
    elif name in INTS:
        info = np.iinfo(d)
        v = []
        for _ in range(n):
            k = rng.random()
            x = (
                rng.choice([0, 1, 2, 3, -1, -2, -3, 7, 10])
                if k < 0.6
                else rng.choice([info.min, info.max, info.max - 1, info.min + 1])
                if k < 0.75
                else rng.randint(info.min, info.max)
                if k < 0.9
                else rng.randint(0, 100)
            )
            v.append(min(max(x, info.min), info.max))
    else:
        v = []
        for _ in range(n):
            k = rng.random()
            v.append(
                rng.choice([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 2.0, -3.0])
                if k < 0.45
                else rng.choice([math.nan, math.inf, -math.inf])
                if k < 0.55
                else rng.uniform(-100, 100)
                if k < 0.8
                else rng.choice(
                    [1e-8, -6e-8, 65504.0, 1e5, 3e38, -1e39, 1e-40, 1e300, 1e-310, 2.0**63, 2.0**53]
                )
                if k < 0.9
                else rng.gauss(0, 1)
            )
    with np.errstate(all="ignore"):
        return np.array(v, np.float64 if d == BF else d).astype(d).reshape(shape)


def columns_of(rng):
    """name -> (dtype, dims or None, shape of a row)"""
    c = {}
    for d in DTYPES:
        c["s_" + d] = (d, [], lambda: ())
        c["t_" + d] = (d, [], lambda: ())
    for d in DTYPES:
        c["a_" + d] = (d, [3], lambda: (3,))
        c["m_" + d] = (d, [2, 3], lambda: (2, 3))
        c["o_" + d] = (d, [2, 1], lambda: (2, 1))
        c["v_" + d] = (d, [-1], lambda: (rng.choice([0, 1, 3, 3, 3, 4]),))
        c["w_" + d] = (d, [-1, 3], lambda: (rng.choice([1, 2, 2, 2]), 3))
        c["u_" + d] = (d, None, lambda: rng.choice([(3,), (2, 3), (1,), (3, 1)]))
    for d in ("int32", "uint8", "float32"):  # larger than what is computed at once
        c["l_" + d] = (d, [1100], lambda: (1100,))
        c["k_" + d] = (d, [-1], lambda: (rng.choice([1030, 2048]),))
    return c


def canonical(a):
    a = np.asarray(a)
    if is_float(a.dtype):
        a = a.copy()
        nan = np.isnan(a.astype(np.float64))
        if a.ndim == 0:
            return np.asarray(np.nan).astype(a.dtype) if nan else a
        a[nan] = np.asarray(np.nan).astype(a.dtype)
    return a


def hex_of(a):
    return np.ascontiguousarray(a).tobytes().hex()


def same(ours, model):
    a, b = canonical(ours), canonical(model)
    return a.dtype == b.dtype and a.shape == b.shape and hex_of(a) == hex_of(b)


def make(rng, generator, all_columns):
    kind = rng.random()
    prefixes = (
        "sl"
        if kind < 0.02
        else "sak"
        if kind < 0.03
        else "st"
        if kind < 0.55
        else "stamo"
        if kind < 0.8
        else "stavwu"
    )
    some = rng.sample(DTYPES, 3) if rng.random() < 0.7 else DTYPES
    if kind < 0.03:
        some = ["int32", "uint8", "float32"]
    choice = [n for n in all_columns if n[0] in prefixes and n[2:] in some]
    tree = generator.tree(rng.choice([1, 1, 2, 2, 3]), choice)
    n = rng.choice([1, 3, 4, 7])
    env, columns = [{} for _ in range(n)], {}
    for name in sorted(names(tree, set())):
        dtype, dims, shape = all_columns[name]
        rows = [random_values(rng, dtype, shape()) for _ in range(n)]
        for i in range(n):
            env[i][name] = rows[i]
        ragged = dims is None or -1 in dims or rng.random() < 0.2
        columns[name] = {
            "dtype": dtype,
            "dims": dims,
            "rows": b"".join(np.ascontiguousarray(r).tobytes() for r in rows).hex(),
            "ragged": ragged,
            "shapes": [list(r.shape) for r in rows],
        }
    request = {"expr": text(tree), "n": n, "columns": columns}
    if rng.random() < 0.2:
        request["ok"] = "".join(rng.choice(["00", "01"]) for _ in range(n))
    return tree, env, request


def check(tree, env, request, reply):
    """None, or what is wrong."""
    n, results = request["n"], []
    ok = bytes.fromhex(request["ok"]) if "ok" in request else b"\1" * n
    fixed = all(c["dims"] is not None and -1 not in c["dims"] for c in request["columns"].values())
    for e in env:
        try:
            results.append(strong(evaluate(tree, e)))
        except Fails as why:
            results.append(why)
        except Refused:
            results.append(None)
        except Skip:
            return None
    if "error" in reply:
        if reply["kind"] != "pipeline":
            return "unexpected kind of error"
        if all(r is None or isinstance(r, Fails) for r in results):
            return None  # wrong for every record: found before the first
        if not fixed and "length" in request["expr"]:
            return None
        return "refused, but NumPy computes it"
    if any(r is None for r in results):
        if not fixed or any(isinstance(r, Fails) for r in results):
            return None
        return "computed, but NumPy refuses it"
    for i, r in enumerate(results):
        failed = str(i) in reply["failed"]
        if not ok[i]:
            if failed:
                return f"row {i} fails, but it is not ok"
        elif isinstance(r, Fails):
            if not failed:
                return f"row {i} must fail: {r}"
        elif failed:
            return f"row {i} fails: {reply['failed'][str(i)]}"
        else:
            d = dt(reply["dtype"])
            ours = np.frombuffer(bytes.fromhex(reply["rows"][i]), d).reshape(reply["shapes"][i])
            if not same(ours, r):
                return f"row {i}: {ours!r} but NumPy {np.asarray(r)!r}"
            if is_float(d) and tree[0] != "name" and hex_of(ours) != hex_of(canonical(ours)):
                return f"row {i}: a NaN is not the canonical one"
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tool")
    p.add_argument("--count", type=int, default=4000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=10, help="differences shown")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    rng = random.Random(a.seed)
    generator, columns = Generator(rng), columns_of(rng)
    cases = []
    while len(cases) < a.count:
        case = make(rng, generator, columns)
        try:
            for e in case[1]:
                evaluate(case[0], e)
        except Skip:
            continue
        except (Fails, Refused):
            pass
        cases.append(case)
    done = subprocess.run(
        [a.tool], input="".join(json.dumps(c[2]) + "\n" for c in cases), capture_output=True, text=True
    )
    replies = done.stdout.splitlines()
    if done.returncode or len(replies) != len(cases):
        print(done.stderr[-3000:], file=sys.stderr)
        print(
            f"the tool ended with {done.returncode} after {len(replies)} answers: "
            f"{cases[min(len(replies), len(cases) - 1)][2]}",
            file=sys.stderr,
        )
        return 1
    wrong = refused = rows = failed = 0
    for (tree, env, request), line in zip(cases, replies):
        reply = json.loads(line)
        refused += "error" in reply
        failed += len(reply.get("failed", {}))
        rows += request["n"]
        why = check(tree, env, request, reply)
        if why:
            wrong += 1
            if wrong <= a.show:
                columns = {
                    k: np.frombuffer(bytes.fromhex(c["rows"]), dt(c["dtype"])).tolist()
                    for k, c in request["columns"].items()
                }
                print(
                    f"{request['expr']}\n   {why}\n   {reply.get('error', '')} {reply.get('dtype')} {columns}"
                )
    print(
        f"{len(cases)} expressions, {rows} rows: {refused} refused, {failed} rows failed, {wrong} different"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
