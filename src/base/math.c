/* exp, log, pow, sin and cos that give the same bits on every machine. They use only + - * / in double
 * precision and integer operations on the bits, no table and nothing from libm (docs/expressions.md).
 * Expressions, random draws and image operators call them. */
#include "base/math.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ln 2 in three parts: the first two have 40 significant bits each, so that their products with exponents (11
 * bits) are exact. */
#define LN2_HI 0x1.62e42fefa2000p-1
#define LN2_MID 0x1.9ef35793c6000p-41
#define LN2_LO 0x1.673007e5ed5e8p-81
#define LN2_REST 0x1.9ef35793c7673p-41 /* ln 2 - LN2_HI, rounded */
#define INV_LN2 0x1.71547652b82fep+0
#define SQRT2 0x1.6a09e667f3bcdp+0
#define INF __builtin_inf()
#define NOT_A_NUMBER __builtin_nan("")

static uint64_t double_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

static double double_from_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, 8);
    return x;
}

/* -1022 <= k <= 1023 */
static double double_power_of_two(int64_t k)
{
    return double_from_bits((uint64_t)(k + 1023) << 52);
}

static double double_magnitude(double x)
{
    return double_from_bits(double_bits(x) & ~(UINT64_C(1) << 63));
}

/* Returns the value at x of the polynomial with these n coefficients, the constant first. */
static inline double polynomial_at(const double *p, int n, double x)
{
    double q = p[n - 1];
    for (int i = n - 2; i >= 0; i--)
        q = q * x + p[i];
    return q;
}

/* A value as the unevaluated sum of two doubles. */
struct pair {
    double hi, lo;
};

static struct pair pair_fast_sum(double a, double b) /* |a| >= |b| or a = 0 */
{
    double s = a + b;
    return (struct pair){s, b - (s - a)};
}

static struct pair pair_sum(double a, double b)
{
    double s = a + b, t = s - a;
    return (struct pair){s, (a - (s - t)) + (b - t)};
}

static struct pair pair_of_product(double a, double b) /* Dekker; |a|, |b| < 2^995 */
{
    double p = a * b;
    double ca = 0x1.0000002p+27 * a, ah = ca - (ca - a), al = a - ah;
    double cb = 0x1.0000002p+27 * b, bh = cb - (cb - b), bl = b - bh;
    return (struct pair){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}

static struct pair pair_product(struct pair a, struct pair b)
{
    struct pair p = pair_of_product(a.hi, b.hi);
    p.lo = p.lo + (a.hi * b.lo + a.lo * b.hi);
    return p;
}

/* e^(h + l) for |h| < 746 and |l| below an ulp of h. Maximum error 0.53 ulp where the result is normal. */
static double exp_core(double h, double l)
{
    /* (exp(r) - 1 - r) / r^2 on |r| <= ln(2)/2: interpolation at Chebyshev points, error below 2^-61 */
    static const double p[11] = {
        0x1p-1,
        0x1.5555555555557p-3,
        0x1.5555555555556p-5,
        0x1.11111111100dfp-7,
        0x1.6c16c16c162d6p-10,
        0x1.a01a01abe63b3p-13,
        0x1.a01a01a6d7883p-16,
        0x1.71de02372bdd3p-19,
        0x1.27e4db679bec4p-22,
        0x1.af4ddddcf06d6p-26,
        0x1.1f72fca58cc92p-29,
    };
    double k = (h * INV_LN2 + 0x1.8p52) - 0x1.8p52; /* to nearest, ties to even */
    struct pair r = pair_sum(h - k * LN2_HI, -(k * LN2_MID));
    r = pair_sum(r.hi, r.lo + (l - k * LN2_LO)); /* l may be large beside the remainder */
    double tail = r.hi * r.hi * polynomial_at(p, 11, r.hi) + (r.lo + r.lo * r.hi);
    struct pair s = pair_fast_sum(1.0, r.hi);
    double y = s.hi + (s.lo + tail);
    int64_t e = (int64_t)k;
    if (e > 1023)
        return y * double_power_of_two(1023) * double_power_of_two(e - 1023);
    if (e < -1021) /* one rounding, in the last multiplication */
        return y * double_power_of_two(e + 64) * 0x1p-64;
    return y * double_power_of_two(e);
}

double cw_exp(double x)
{
    if (x != x)
        return x + x;
    if (x > 0x1.62e42fefa39efp+9)
        return INF;
    if (x < -0x1.74910d52d3052p+9)
        return 0.0;
    return exp_core(x, 0.0);
}

/* x > 0, finite: x = m * 2^result, m in (sqrt(1/2), sqrt(2)]. */
static int64_t pair_split(double x, double *ret_m)
{
    int64_t e = -1023;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        e -= 54;
    }
    uint64_t u = double_bits(x);
    e += (int64_t)(u >> 52);
    double m = double_from_bits((u & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52);
    if (m > SQRT2) {
        m *= 0.5;
        e += 1;
    }
    *ret_m = m;
    return e;
}

double cw_log(double x)
{
    /* (2 atanh(s) - 2 s) / s^3 as polynomial in s^2, s^2 <= 0.0295: interpolation at Chebyshev points, error
     * below 2^-57 of the result */
    static const double p[7] = {
        0x1.5555555555558p-1, 0x1.99999999952e1p-2, 0x1.2492492df1681p-2, 0x1.c71c62e558272p-3,
        0x1.7462b4b689086p-3, 0x1.39fe5eebedfa5p-3, 0x1.2b585ce66ecd3p-3,
    };
    if (x != x || x == INF)
        return x + x;
    if (x == 0.0)
        return -INF;
    if (x < 0.0)
        return NOT_A_NUMBER;
    double m, k = (double)pair_split(x, &m);
    double f = m - 1.0, s = f / (2.0 + f), z = s * s;
    double half = 0.5 * f * f, r = z * polynomial_at(p, 7, z);
    return k * LN2_HI - ((half - (s * (half + r) + k * LN2_REST)) - f);
}

/* log(x) for x > 0, finite, with a relative error below 2^-65. */
static struct pair log_pair(double x)
{
    /* (atanh(s) - s - s^3/3 - s^5/5) / s^7 as polynomial in s^2, error below 2^-71 of atanh(s) */
    static const double p[8] = {
        0x1.2492492492492p-3, 0x1.c71c71c71c822p-4, 0x1.745d1745a3f56p-4, 0x1.3b13b16b45d72p-4,
        0x1.1110f807a56acp-4, 0x1.e1eff9bac08d5p-5, 0x1.acf85f80ba021p-5, 0x1.b2dfba17f7e19p-5,
    };
    double m, k = (double)pair_split(x, &m);
    double f = m - 1.0;
    struct pair g = pair_sum(m, 1.0), s, t;
    s.hi = f / g.hi;
    t = pair_of_product(s.hi, g.hi);
    s.lo = (((f - t.hi) - t.lo) - s.hi * g.lo) / g.hi;
    struct pair z = pair_of_product(s.hi, s.hi);
    z.lo = z.lo + 2.0 * s.hi * s.lo;
    struct pair w = pair_fast_sum(0x1.999999999999ap-3, z.hi * polynomial_at(p, 8, z.hi)); /* 1/5 */
    w.lo = w.lo + -0x1.999999999999ap-57;
    w = pair_product(z, w);
    t = pair_fast_sum(0x1.5555555555555p-2, w.hi); /* 1/3 */
    t.lo = t.lo + (w.lo + 0x1.5555555555555p-56);
    t = pair_product(z, t);
    s.hi = 2.0 * s.hi;
    s.lo = 2.0 * s.lo;
    t = pair_product(s, t);
    w = pair_fast_sum(s.hi, t.hi);
    w.lo = w.lo + (t.lo + s.lo);
    struct pair sum = pair_sum(k * LN2_HI, w.hi);
    sum.lo = sum.lo + (k * LN2_MID + (w.lo + k * LN2_LO));
    return pair_fast_sum(sum.hi, sum.lo);
}

/* 0: no integer, 1: odd, 2: even. */
static int double_integer_kind(double y)
{
    double a = double_magnitude(y);
    if (a >= 0x1p53)
        return 2;
    int64_t i = (int64_t)a;
    return (double)i != a ? 0 : i & 1 ? 1 : 2;
}

double cw_pow(double x, double y)
{
    if (y == 0.0 || x == 1.0)
        return 1.0;
    if (x != x || y != y)
        return x + y;
    double ax = double_magnitude(x), ay = double_magnitude(y);
    int kind = double_integer_kind(y);
    bool negative = double_bits(x) >> 63, flip = negative && kind == 1;
    if (ax == 0.0 || ax == INF) {
        double r = (ax == 0.0) == (y > 0.0) ? 0.0 : INF;
        return flip ? -r : r;
    }
    if (negative && kind == 0)
        return NOT_A_NUMBER;
    double r;
    if (ax == 1.0 || ay < 0x1p-65) {
        r = 1.0;
    } else if (ay >= 0x1p64) { /* |log x| >= 2^-53: far beyond what doubles hold */
        r = (ax > 1.0) == (y > 0.0) ? INF : 0.0;
    } else {
        struct pair l = log_pair(ax), p = pair_of_product(l.hi, y);
        p.lo = p.lo + l.lo * y;
        if (p.hi > 710.0)
            r = INF;
        else if (p.hi < -746.0)
            r = 0.0;
        else
            r = exp_core(p.hi, p.lo);
    }
    return flip ? -r : r;
}

/* pi/2 in three parts: the first two have 33 significant bits each, so that their products with integers
 * below 2^20 are exact. */
#define HALF_PI_HI 0x1.921fb544p+0
#define HALF_PI_MID 0x1.0b4611a6p-34
#define HALF_PI_LO 0x1.3198a2e037073p-69
#define INV_HALF_PI 0x1.45f306dc9c883p-1

/* Returns x - k pi/2 for the nearest integer k, and sets *ret_k to k mod 4. */
static struct pair pair_quadrant(double x, int *ret_k)
{
    double k = (x * INV_HALF_PI + 0x1.8p52) - 0x1.8p52;
    struct pair r = pair_sum(x, -(k * HALF_PI_HI)), s = pair_sum(r.hi, -(k * HALF_PI_MID));
    *ret_k = (int)((int64_t)k & 3);
    return pair_sum(s.hi, s.lo + (r.lo - k * HALF_PI_LO));
}

/* sin(r) for |r| <= pi/4, from its Taylor series. */
static double pair_sin(struct pair r)
{
    static const double p[8] = {
        -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000,
    };
    double z = r.hi * r.hi;
    return r.hi + (r.hi * z * polynomial_at(p, 8, z) + r.lo * (1.0 - 0.5 * z));
}

/* cos(r) for |r| <= pi/4, from its Taylor series. */
static double pair_cos(struct pair r)
{
    static const double p[8] = {
        1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
        1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000,
    };
    struct pair z = pair_of_product(r.hi, r.hi), s = pair_fast_sum(1.0, -(0.5 * z.hi));
    return s.hi + (s.lo + (z.hi * z.hi * polynomial_at(p, 8, z.hi) - (r.hi * r.lo + 0.5 * z.lo)));
}

static double double_sin_cos(double x, int quarter)
{
    int k;
    if (!(double_magnitude(x) <= 0x1p20))
        return NOT_A_NUMBER;
    struct pair r = pair_quadrant(x, &k);
    k += quarter;
    double y = k & 1 ? pair_cos(r) : pair_sin(r);
    return k & 2 ? -y : y;
}

double cw_sin(double x)
{
    return double_sin_cos(x, 0);
}

double cw_cos(double x)
{
    return double_sin_cos(x, 1);
}
