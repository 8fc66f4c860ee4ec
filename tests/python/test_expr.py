"""Expressions built in Python are those written as text."""

import math
import operator
import random
from pathlib import Path

import cachew
import numpy as np
import pytest
from cachew import Dataset, col, where
from cachew.expr import Expr

A, B, F = col("a"), col("b"), col("f")


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (A + B * 2, "a + b * 2"),
        ((A + B) * 2, "(a + b) * 2"),
        (A - (B - 1), "a - (b - 1)"),
        (A - B - 1, "a - b - 1"),
        (1 - A, "1 - a"),
        (-(A**2), "-a ** 2"),
        ((-A) ** 2, "(-a) ** 2"),
        (A**B**2, "a ** b ** 2"),
        ((A**B) ** 2, "(a ** b) ** 2"),
        (2**-A, "2 ** -a"),
        (A**-1, "a ** -1"),
        (A * -3, "a * -3"),
        ((-3) ** A, "(-3) ** a"),
        (~(A > 1), "~(a > 1)"),
        (~A, "~a"),
        (+A, "+a"),
        (A // 2 % 3, "a // 2 % 3"),
        (7 / A, "7 / a"),
        ((A > 1) & (B <= 2) | (A == B), "(a > 1) & (b <= 2) | (a == b)"),
        ((A > 1) != (B > 1), "(a > 1) != (b > 1)"),
        (A & B ^ 3 | 1, "a & b ^ 3 | 1"),
        (A << 2 + B, "a << 2 + b"),
        ((A << 2) + B, "(a << 2) + b"),
        (1 << A, "1 << a"),
        (0 < A, "a > 0"),
        (A.abs() + abs(B), "abs(a) + abs(b)"),
        (round(F), "round(f)"),
        (math.floor(F), "floor(f)"),
        (math.ceil(F), "ceil(f)"),
        (F.sqrt().exp().log(), "log(exp(sqrt(f)))"),
        (A.min(B, 3), "min(a, b, 3)"),
        (A.max(), "max(a)"),
        (where(A > 1, A, -1), "where(a > 1, a, -1)"),
        (col("t").length(), "length(t)"),
        (A.cast("float32") / 255, "float32(a) / 255"),
        (A.cast(np.uint8), "uint8(a)"),
        (A.cast(bool), "bool(a)"),
        (A * np.float32(0.5), "a * float32(0.5)"),
        (np.int8(3) + A, "int8(3) + a"),
        (np.int64(3) < A, "a > int64(3)"),
        (A + True, "a + True"),
        (F * 1e-5, "f * 1e-05"),
        (F - -0.0, "f - -0.0"),
        (col("image/encoded").length(), "length(`image/encoded`)"),
        (col("and") + col("True") + col("größe"), "`and` + `True` + `größe`"),
        (A[0] + A[-1], "a[0] + a[-1]"),
        (A[1:3, ::-1, :], "a[1:3, ::-1, :]"),
        (A[B % 2], "a[b % 2]"),
        ((A + B)[0], "(a + b)[0]"),
        (A.sum() / A.mean(axis=0), "sum(a) / mean(a, axis=0)"),
        (A.min(axis=-1) - A.max(axis=np.int64(1)), "min(a, axis=-1) - max(a, axis=1)"),
        (A.isin([1, 2.5]), "isin(a, [1, 2.5])"),
        (col("n").lower().isin(["cat", b"dog"]), "isin(lower(n), ['cat', 'dog'])"),
        (F.isnan() | F.isin([]), "isnan(f) | isin(f, [])"),
        (col("n").hash() % 10, "hash(n) % 10"),
        (col("n").strip()[:2] == "ca", "strip(n)[:2] == 'ca'"),
        (col("n").startswith("a") & col("n").endswith("b"), "startswith(n, 'a') & endswith(n, 'b')"),
        (col("n").contains("cat") & (A > 1), "('cat' in n) & (a > 1)"),
        (col("in") + 1, "`in` + 1"),
        (col("n") == "cat", "n == 'cat'"),
        (col("n") != b"it's", 'n != "it\'s"'),
        (A + 2**100, f"a + {2**100}"),
    ],
)
def test_text(built, text):
    assert str(built) == text


OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
    operator.truediv,
]
SIGNS = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
    operator.truediv: "/",
    operator.neg: "-",
    operator.invert: "~",
}


def pair(rng, depth):
    """An expression, and its text with parentheses around everything."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([(A, "a"), (B, "b"), (3, "3"), (7, "7")])
    if rng.random() < 0.15:
        e, text = pair(rng, depth - 1)
        if not isinstance(e, Expr):
            return e, text
        f = rng.choice([operator.neg, operator.invert])
        return f(e.cast("int32")), f"({SIGNS[f]}int32({text}))"
    (x, s), (y, t) = pair(rng, depth - 1), pair(rng, depth - 1)
    if not isinstance(x, Expr) and not isinstance(y, Expr):
        return x, s
    f = rng.choice(OPERATORS)
    if f in (operator.floordiv, operator.mod):  # not by 0
        y, t = (y if isinstance(y, Expr) else A).max(1), f"max({t if isinstance(y, Expr) else 'a'}, 1)"
    if not isinstance(x, Expr) and f in (operator.lt, operator.le, operator.gt, operator.ge):
        x, s = A, "a"
    return f(x, y), f"({s} {SIGNS[f]} {t})"


@pytest.mark.large
def test_the_same_values_as_the_fully_parenthesised_text():
    rng = random.Random(7)
    base = Dataset.range(40).assign(a="int32(value % 11 - 3)", b="int32(value * 7 % 13)")
    n = 0
    for _ in range(400):
        e, text = pair(rng, 4)
        if not isinstance(e, Expr):
            continue
        try:
            want = base.assign(x=text).batch(40)
        except cachew.PipelineError as error:  # ~ of float and the like: the same error
            with pytest.raises(cachew.PipelineError) as caught:
                base.assign(x=e)
            assert caught.value.operator == error.operator
            continue
        np.testing.assert_array_equal(base.assign(x=e).batch(40).peek()["x"], want.peek()["x"])
        n += 1
    assert n > 150


def test_numpys_scalars_keep_their_dtype():
    ds = (
        Dataset.range(5)
        .assign(a="uint8(value)")
        .assign(x=A * np.float32(0.1), y=A * 0.1, z=A + np.int64(1), w=A + 1)
        .batch(5)
    )
    values = np.arange(5, dtype=np.uint8)
    batch = ds.peek()
    for name, want in {
        "x": values * np.float32(0.1),
        "y": values * 0.1,
        "z": values + np.int64(1),
        "w": values + 1,
    }.items():
        assert batch[name].dtype == want.dtype
        np.testing.assert_array_equal(batch[name], want)


def test_names_of_functions_are_names():
    ds = (
        Dataset.range(3)
        .rename({"value": "min"})
        .assign({"where": col("min") + 1, "x y": "min"})
        .filter(col("where") > col("x y"))
    )
    assert list(ds.batch(3).peek()["where"]) == [1, 2, 3]


@pytest.mark.parametrize(
    "use",
    [
        lambda: A > 1 and B > 2,
        lambda: A > 1 or B > 2,
        lambda: not (A > 1),
        lambda: 0 < A < 9,
        lambda: 3 if A else 4,
        lambda: A in [1, 2],
        lambda: max(A, B),
        lambda: bool(A),
        lambda: any([A]),
        lambda: [1, 2].index(A),
    ],
)
def test_what_python_decides_itself_is_explained(use):
    with pytest.raises(TypeError, match=r"\(a > 1\) & \(b < 2\)"):
        use()


@pytest.mark.parametrize(
    "use",
    [
        lambda: 1 in A,
        lambda: list(A),
        lambda: len(A),
        lambda: int(A),
        lambda: float(A),
        lambda: A + [1],
        lambda: A == None,  # noqa: E711
        lambda: A < object(),
        lambda: round(F, 2),
        lambda: col(3),
        lambda: {A: 1},
        lambda: A + np.zeros(3),
        lambda: where(A, None, 3),
    ],
)
def test_misuse_is_a_type_error(use):
    with pytest.raises(TypeError):
        use()


@pytest.mark.parametrize(
    "use",
    [
        lambda: A + math.inf,
        lambda: A * math.nan,
        lambda: col(""),
        lambda: col("a`b"),
        lambda: A.cast("float31"),
        lambda: A == 'it\'s "it"',
        lambda: A == "a\nb",
    ],
)
def test_what_the_language_lacks_is_a_value_error(use):
    with pytest.raises(ValueError):
        use()


WORDS = Path(__file__).resolve().parents[2].joinpath("docs", "expressions.md").read_text().split()


def test_functions_of_bytes_give_what_pandas_gives():
    pandas = pytest.importorskip("pandas")
    words = pandas.Series(WORDS)
    w = col("w")
    batch = (
        Dataset.arrays({"w": WORDS})
        .assign(
            lower=w.lower(),
            strip=w.strip(),
            start=w[:3],
            end=w[-2:],
            starts=w.startswith("`"),
            ends=w.endswith(","),
            has=w.lower().contains("in"),
            known=w.isin(["the", "and", "of"]),
            n=w.length(),
        )
        .batch(len(WORDS))
        .peek()
    )
    raw = pandas.Series([word.encode() for word in WORDS])
    for name, want in {
        "lower": words.map(lambda s: "".join(c.lower() if c.isascii() else c for c in s).encode()),
        "strip": words.str.strip().str.encode("utf-8"),
        "start": raw.str.slice(0, 3),
        "end": raw.str.slice(-2),
        "starts": words.str.startswith("`"),
        "ends": words.str.endswith(","),
        "has": words.str.lower().str.contains("in", regex=False),
        "known": words.isin(["the", "and", "of"]),
        "n": raw.str.len(),
    }.items():
        assert list(batch[name]) == list(want), name


def test_hashes_are_xxh3():
    xxhash = pytest.importorskip("xxhash")
    numbers = np.arange(-5, 300, dtype=np.int16)
    batch = Dataset.arrays({"w": WORDS}).assign(b="hash(w)", k="int64(hash(w) % 10)").batch(len(WORDS)).peek()
    want = [xxhash.xxh3_64_intdigest(word.encode()) for word in WORDS]
    assert batch["b"].tolist() == want
    assert batch["k"].tolist() == [h % 10 for h in want]
    hashes = Dataset.arrays({"x": numbers[None]}).assign(x="hash(x)").batch(1).peek()["x"][0]
    assert hashes.tolist() == [xxhash.xxh3_64_intdigest(x.tobytes()) for x in numbers]


def test_parts_and_sums_of_images_give_what_numpy_gives():
    """On pixels of a photograph-like gradient: every form of index, and reductions along each axis."""
    y, x = np.mgrid[:48, :64]
    image = np.stack([x * 4, y * 5, (x * y) % 256], axis=-1).astype(np.uint8)
    images = np.stack([image, image[::-1], 255 - image])
    i = col("i")
    expressions = {
        "pixel": (i[3, -4], lambda a: a[3, -4]),
        "value": (i[47, 0, 2], lambda a: a[47, 0, 2]),
        "top": (i[:20], lambda a: a[:20]),
        "middle": (i[10:-10, 5:50:3], lambda a: a[10:-10, 5:50:3]),
        "mirrored": (i[:, ::-1], lambda a: a[:, ::-1]),
        "green": (i[:, :, 1], lambda a: a[:, :, 1]),
        "none": (i[30:10], lambda a: a[30:10]),
        "beyond": (i[40:100, :1], lambda a: a[40:100, :1]),
        "row": (i[col("k")], None),
        "sum": (i.sum(), lambda a: a.sum()),
        "rows": (i.sum(axis=0), lambda a: a.sum(axis=0)),
        "columns": (i.sum(axis=1), lambda a: a.sum(axis=1)),
        "channels": (i.max(axis=-1), lambda a: a.max(axis=-1)),
        "darkest": (i.min(axis=1).min(axis=0), lambda a: a.min(axis=(0, 1))),
        "mean": (i.mean(), lambda a: a.mean()),
        "means": (i.mean(axis=0).mean(axis=0), lambda a: a.mean(axis=0).mean(axis=0)),
    }
    k = np.array([5, -1, 47])
    batch = (
        Dataset.arrays({"i": images, "k": k})
        .assign({name: e for name, (e, _) in expressions.items()})
        .batch(3)
        .peek()
    )
    for name, (_, f) in expressions.items():
        want = np.stack([f(a) for a in images] if f else [a[n] for a, n in zip(images, k)])
        assert batch[name].dtype == want.dtype, name
        # sums of integers below 2^53 are exact in any order; a mean of means is rounded twice
        np.testing.assert_allclose(batch[name], want, rtol=4e-16 * (name == "means"), err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_floating_point_numbers_are_near_numpys(dtype):
    values = np.random.default_rng(3).normal(size=(4, 1001)).astype(dtype)
    batch = Dataset.arrays({"x": values}).assign(s="sum(x)", m="mean(x)").batch(4).peek()
    exact = np.array([math.fsum(map(float, row)) for row in values])
    bound = 1001 * 2.0**-52 * np.abs(values.astype(np.float64)).sum(axis=1)
    half = np.spacing(np.abs(exact).astype(dtype)).astype(np.float64)
    assert batch["s"].dtype == batch["m"].dtype == np.dtype(dtype)
    assert (np.abs(batch["s"] - exact) <= bound + half).all()
    assert (np.abs(batch["m"] - exact / 1001) <= (bound + half) / 1001 + half).all()


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda: A.isin("abc"), TypeError),
        (lambda: A[1.5], TypeError),
        (lambda: A[1.5:], TypeError),
        (lambda: A["x"], TypeError),
        (lambda: A.sum(axis="x"), TypeError),
    ],
)
def test_wrong_uses_of_indices_and_lists(use, error):
    with pytest.raises(error):
        use()
