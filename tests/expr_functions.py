"""exp, log and pow, by the algorithms of docs/expressions.md."""

import math

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
