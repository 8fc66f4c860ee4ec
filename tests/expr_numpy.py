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
import xxhash
from expr_functions import exp, log, pow_
from expr_random import Generator, text

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

INTS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"] + (["bfloat16"] if bfloat16 else [])
DTYPES = ["bool"] + INTS + FLOATS
WORDS = [b"", b"cat", b"Cat ", b"a cat", b"\tDOG\n", b"category", b"  ", b"\xc3\x84rger", b"a" * 40]
BF = np.dtype(bfloat16) if bfloat16 else None


def dt(name):
    return BF if name == "bfloat16" else np.dtype(name)


class Refused(Exception):
    """The expression is wrong: an error at compile time."""


class Fails(Exception):
    """The record fails."""


class Skip(Exception):
    """Outside what the test compares."""


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


def add_up(name, v, axis):
    """sum and mean: integers wrap around; floating-point numbers in float64, in eight partial sums."""
    d = v.dtype
    if name == "sum" and not is_float(d):
        d = np.dtype(np.uint64 if d.kind == "u" else np.int64)
        result = np.asarray(np.sum(v, axis=axis))
        assert result.dtype == d
        return result
    d = d if is_float(d) else np.dtype(np.float64)
    wide = np.moveaxis(v.astype(np.float64), axis, -1) if axis is not None else v.astype(np.float64).ravel()
    s = [np.zeros(wide.shape[:-1]) for _ in range(8)]
    for i in range(wide.shape[-1]):
        s[i % 8] = s[i % 8] + wide[..., i]
    total = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    result = total / wide.shape[-1] if name == "mean" else total
    theirs = np.asarray(getattr(np, name)(v.astype(np.float64), axis=axis))
    bound = wide.shape[-1] * 2.0**-52 * np.abs(wide).sum(axis=-1)
    sure = np.isfinite(bound) & np.isfinite(result)
    assert (np.abs(result - theirs)[sure] <= bound[sure]).all(), (name, v, result, theirs)
    return cast(d.name if d != BF else "bfloat16", result)


def reduce(name, v, axis=None):
    v = np.asarray(strong(v))
    if axis is not None and not -v.ndim <= axis < v.ndim:
        raise Refused
    if name in ("sum", "mean"):
        if v.ndim == 0:
            return cast("float64" if name == "mean" and not is_float(v.dtype) else np.sum(v).dtype.name, v)
        return add_up(name, v, axis)
    if v.ndim == 0:
        return v
    if axis is not None and v.ndim > 1:
        moved = np.moveaxis(v, axis, -1)
        if moved.shape[-1] == 0 and moved.size == 0 and 0 not in moved.shape[:-1]:
            raise Fails("empty")
        rows = [reduce(name, row) for row in moved.reshape(-1, moved.shape[-1])] if moved.size else []
        return np.array(rows, v.dtype).reshape(moved.shape[:-1])
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


def index(v, items):
    """x[...]: each item an integer, a slice or an expression's value."""
    if isinstance(v, bytes):
        if len(items) > 1 or not isinstance(items[0], slice) or items[0].step not in (None, 1):
            raise Refused
        return v[items[0]]
    v = np.asarray(strong(v))
    if len(items) > v.ndim or any(isinstance(i, slice) and i.step == 0 for i in items):
        raise Refused
    for i in items:
        if not weak(i) and not isinstance(i, slice) and (np.ndim(i) or i.dtype.kind not in "iu"):
            raise Refused
    try:
        items = tuple(i if isinstance(i, slice) else int(np.int64(i)) for i in items)
        return np.asarray(v[items])
    except (IndexError, OverflowError):
        raise Fails("index") from None


def hash_of(v):
    if isinstance(v, bytes):
        return np.uint64(xxhash.xxh3_64_intdigest(v))
    v = np.asarray(strong(v))
    if is_float(v.dtype):
        raise Refused
    h = [xxhash.xxh3_64_intdigest(x.tobytes()) for x in v.ravel()]
    return np.array(h, np.uint64).reshape(v.shape)


def on_bytes(name, *values):
    if not all(isinstance(v, bytes) for v in values):
        raise Refused
    if name == "in":
        return np.bool_(values[0] in values[1])
    if name == "not in":
        return np.bool_(values[0] not in values[1])
    result = getattr(values[0], name)(*values[1:])
    return np.bool_(result) if isinstance(result, bool) else result


def isin(v, values):
    if isinstance(v, bytes) or any(isinstance(x, bytes) for x in values):
        return np.bool_(v in values)
    result = np.zeros(np.shape(v), bool)
    for x in values:
        result = result | binary("==", v, x)
    return np.asarray(result)


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


def evaluate(t, env):
    k = t[0]
    if k == "literal":
        return t[1]
    if k == "bool":
        return np.bool_(t[1])
    if k == "name":
        return env[t[1]]
    if k == "string":
        return t[1].encode()
    if k == "reduce":
        return reduce(t[1], evaluate(t[3], env), t[2])
    if k == "index":
        items = [slice(*i[1:]) if i[0] == "slice" else evaluate(i, env) for i in t[2]]
        return index(evaluate(t[1], env), items)
    if k == "bytes":
        return on_bytes(t[1], *(evaluate(v, env) for v in t[2]))
    if k == "isin":
        return isin(evaluate(t[1], env), [evaluate(v, env) for v in t[2]])
    if k == "hash":
        return hash_of(evaluate(t[1], env))
    if k == "isnan":
        v = strong(evaluate(t[1], env))
        return binary("!=", v, v)
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
        values = [evaluate(v, env) for v in t[1:]]
        if not all(isinstance(v, bytes) for v in values[1:]):
            return where(*values)
        if np.ndim(values[0]):
            raise Refused
        return values[1] if truth(values[0]) else values[2]
    if k == "cast":
        return cast(t[1], evaluate(t[2], env))
    v = evaluate(t[1], env)
    if isinstance(v, bytes):
        return np.int64(len(v))
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
    for name in ("b_word", "b_other"):
        c[name] = ("bytes", [], None)
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
        if dtype == "bytes":
            rows = [rng.choice(WORDS) for _ in range(n)]
            for i in range(n):
                env[i][name] = rows[i]
            columns[name] = {
                "dtype": dtype,
                "dims": dims,
                "rows": b"".join(rows).hex(),
                "ragged": True,
                "lengths": [len(r) for r in rows],
            }
            continue
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
        if not fixed and ("length" in request["expr"] or "known beforehand" in reply["error"]):
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
        elif reply["dtype"] == "bytes":
            if bytes.fromhex(reply["rows"][i]) != r:
                return f"row {i}: {reply['rows'][i]} instead of {r.hex()}"
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
    generator, columns = Generator(rng, DTYPES), columns_of(rng)
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
                    k: bytes.fromhex(c["rows"])
                    if c["dtype"] == "bytes"
                    else np.frombuffer(bytes.fromhex(c["rows"]), dt(c["dtype"])).tolist()
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
