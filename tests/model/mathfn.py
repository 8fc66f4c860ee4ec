"""exp, log, pow, sin and cos, bit for bit as docs/expressions.md defines them: double precision, every
operation rounded by itself.
"""

import math

LN2_HI, LN2_MID = float.fromhex("0x1.62e42fefa2000p-1"), float.fromhex("0x1.9ef35793c6000p-41")
LN2_LO, LN2_REST = float.fromhex("0x1.673007e5ed5e8p-81"), float.fromhex("0x1.9ef35793c7673p-41")
INV_LN2, SQRT2 = float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.6a09e667f3bcdp+0")
EXP_MOST, EXP_LEAST = float.fromhex("0x1.62e42fefa39efp+9"), -float.fromhex("0x1.74910d52d3052p+9")

Pair = tuple[float, float]  # an unevaluated sum


def constants(text: str) -> list[float]:
    return [float.fromhex(word) for word in text.split()]


EXP_TERMS = constants(
    "0x1p-1 0x1.5555555555557p-3 0x1.5555555555556p-5 0x1.11111111100dfp-7 0x1.6c16c16c162d6p-10 "
    "0x1.a01a01abe63b3p-13 "
    "0x1.a01a01a6d7883p-16 0x1.71de02372bdd3p-19 0x1.27e4db679bec4p-22 0x1.af4ddddcf06d6p-26 "
    "0x1.1f72fca58cc92p-29"
)
LOG_TERMS = constants(
    "0x1.5555555555558p-1 0x1.99999999952e1p-2 0x1.2492492df1681p-2 0x1.c71c62e558272p-3 "
    "0x1.7462b4b689086p-3 "
    "0x1.39fe5eebedfa5p-3 0x1.2b585ce66ecd3p-3"
)
PAIR_TERMS = constants(
    "0x1.2492492492492p-3 0x1.c71c71c71c822p-4 0x1.745d1745a3f56p-4 0x1.3b13b16b45d72p-4 "
    "0x1.1110f807a56acp-4 "
    "0x1.e1eff9bac08d5p-5 0x1.acf85f80ba021p-5 0x1.b2dfba17f7e19p-5"
)
THIRD, THIRD_LOW = constants("0x1.5555555555555p-2 0x1.5555555555555p-56")
FIFTH, FIFTH_LOW = constants("0x1.999999999999ap-3 -0x1.999999999999ap-57")


def fast_two_sum(a: float, b: float) -> Pair:
    s = a + b
    return s, b - (s - a)


def two_sum(a: float, b: float) -> Pair:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def halves(a: float) -> Pair:
    c = 134217729.0 * a
    high = c - (c - a)
    return high, a - high


def two_product(a: float, b: float) -> Pair:
    p = a * b
    ah, al = halves(a)
    bh, bl = halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def pair_product(a: Pair, b: Pair) -> Pair:
    p = two_product(a[0], b[0])
    return p[0], p[1] + (a[0] * b[1] + a[1] * b[0])


def horner(terms: list[float], x: float) -> float:
    q = terms[-1]
    for c in reversed(terms[:-1]):
        q = q * x + c
    return q


def exp_core(h: float, low: float) -> float:
    shift = float.fromhex("0x1.8p52")
    k = (h * INV_LN2 + shift) - shift
    r = two_sum(h - k * LN2_HI, -(k * LN2_MID))
    r = two_sum(r[0], r[1] + (low - k * LN2_LO))
    q = horner(EXP_TERMS, r[0])
    tail = r[0] * r[0] * q + (r[1] + r[1] * r[0])
    s = fast_two_sum(1.0, r[0])
    y = s[0] + (s[1] + tail)
    if k > 1023:
        return y * 2.0**1023 * 2.0 ** (k - 1023)
    if k < -1021:
        return y * 2.0 ** (k + 64) * 2.0**-64
    return y * 2.0**k


def exp(x: float) -> float:
    if math.isnan(x):
        return x
    if x > EXP_MOST:
        return math.inf
    return 0.0 if x < EXP_LEAST else exp_core(x, 0.0)


def split(x: float) -> tuple[float, float]:
    m, k = math.frexp(x)
    m, k = m * 2, k - 1
    return (m * 0.5, float(k + 1)) if m > SQRT2 else (m, float(k))


def log(x: float) -> float:
    if math.isnan(x) or x == math.inf:
        return x
    if x <= 0:
        return -math.inf if x == 0 else math.nan
    m, k = split(x)
    f = m - 1
    s = f / (2 + f)
    z = s * s
    q = horner(LOG_TERMS, z)
    half = 0.5 * f * f
    r = z * q
    return k * LN2_HI - ((half - (s * (half + r) + k * LN2_REST)) - f)


def log_pair(x: float) -> Pair:
    m, k = split(x)
    f = m - 1
    g = two_sum(m, 1.0)
    high = f / g[0]
    t = two_product(high, g[0])
    s = (high, (((f - t[0]) - t[1]) - high * g[1]) / g[0])
    z = two_product(s[0], s[0])
    z = (z[0], z[1] + 2 * s[0] * s[1])
    q = horner(PAIR_TERMS, z[0])
    w = fast_two_sum(FIFTH, z[0] * q)
    w = pair_product(z, (w[0], w[1] + FIFTH_LOW))
    t = fast_two_sum(THIRD, w[0])
    t = pair_product(z, (t[0], t[1] + (w[1] + THIRD_LOW)))
    s = (2 * s[0], 2 * s[1])
    t = pair_product(s, t)
    w = fast_two_sum(s[0], t[0])
    w = (w[0], w[1] + (t[1] + s[1]))
    a = two_sum(k * LN2_HI, w[0])
    return fast_two_sum(a[0], a[1] + (k * LN2_MID + (w[1] + k * LN2_LO)))


def power(x: float, y: float) -> float:
    """pow of C, with the special cases of its Annex F."""
    if y == 0 or x == 1:
        return 1.0
    if math.isnan(x) or math.isnan(y):
        return math.nan
    odd = abs(y) < 2.0**53 and y == math.floor(y) and int(y) % 2 == 1
    sign = -1.0 if odd and math.copysign(1.0, x) < 0 else 1.0
    size = abs(x)
    if math.isinf(y):
        return 1.0 if size == 1 else math.inf if (size > 1) == (y > 0) else 0.0
    if size == 0 or size == math.inf:
        return sign * (0.0 if (size == 0) == (y > 0) else math.inf)
    if x < 0 and y != math.floor(y):
        return math.nan
    if size == 1:
        return sign
    if abs(y) >= 2.0**64:
        return sign * (math.inf if (size > 1) == (y > 0) else 0.0)
    if abs(y) < 2.0**-65:
        return sign
    low = log_pair(size)
    p = two_product(low[0], y)
    p = (p[0], p[1] + low[1] * y)
    if p[0] > 710:
        return sign * math.inf
    return sign * (0.0 if p[0] < -746 else exp_core(*p))


HALF_PI = [float.fromhex(h) for h in ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2e037073p-69")]
INV_HALF_PI = float.fromhex("0x1.45f306dc9c883p-1")
SIN_TERMS = [(-1.0) ** (k + 1) / math.factorial(2 * k + 3) for k in range(8)]
COS_TERMS = [(-1.0) ** k / math.factorial(2 * k + 4) for k in range(8)]


def sin(x: float, quarter: int = 0) -> float:
    k = float(round(x * INV_HALF_PI))
    a = two_sum(x, -(k * HALF_PI[0]))
    b = two_sum(a[0], -(k * HALF_PI[1]))
    r = two_sum(b[0], b[1] + (a[1] - k * HALF_PI[2]))
    quadrant = int(k) + quarter
    if quadrant % 2 == 0:
        z = r[0] * r[0]
        y = r[0] + (r[0] * z * horner(SIN_TERMS, z) + r[1] * (1 - 0.5 * z))
    else:
        high, low = two_product(r[0], r[0])
        s = fast_two_sum(1.0, -(0.5 * high))
        y = s[0] + (s[1] + (high * high * horner(COS_TERMS, high) - (r[0] * r[1] + 0.5 * low)))
    return -y if quadrant % 4 >= 2 else y


def cos(x: float) -> float:
    return sin(x, 1)
