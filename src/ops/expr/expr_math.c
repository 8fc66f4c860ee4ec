/* Kernels of expressions with more work per value: floored division, powers, functions. Stateless. */
#include <math.h>

#include "base/math.h"
#include "ops/expr/expr_impl.h"

#define BINARY(NAME, T, FUNCTION) \
    static unsigned NAME(void *restrict d_, const void *a_, const void *b_, size_t n, enum cw_mode mode) \
    { \
        T *restrict d = d_; \
        const T *a = a_, *b = b_; \
        size_t a_step = mode != CW_SV, b_step = mode != CW_VS; \
        unsigned bad = 0; \
        for (size_t i = 0; i < n; i++) \
            d[i] = FUNCTION(a[i * a_step], b[i * b_step], &bad); \
        return bad; \
    }

/* Records in *bad that an operand is not allowed, if `yes`. Returns `yes`. */
static inline bool math_refused(bool yes, unsigned *bad)
{
    *bad |= yes;
    return yes;
}

/* x^y modulo 2^64, hence modulo every smaller power of two. */
static inline uint64_t math_pow_bits(uint64_t x, uint64_t y)
{
    uint64_t r = 1;
    for (; y; y >>= 1, x *= x)
        if (y & 1)
            r *= x;
    return r;
}

static inline bool math_negative(int64_t v)
{
    return v < 0;
}

/* Floored division. -1 is handled by itself: the smallest integer has no positive counterpart, and the
 * processor would trap. */
#define INTEGER(T, U, SIGNED) \
    static inline T floordiv_one_##T(T x, T y, unsigned *bad) \
    { \
        if (math_refused(y == 0, bad)) \
            return 0; \
        if (SIGNED && y == (T) - 1) \
            return (T)(0u - (U)x); \
        return (T)(x / y - (SIGNED && x % y != 0 && math_negative((int64_t)(x ^ y)))); \
    } \
    static inline T mod_one_##T(T x, T y, unsigned *bad) \
    { \
        if (math_refused(y == 0, bad) || (SIGNED && y == (T) - 1)) \
            return 0; \
        T r = (T)(x % y); \
        return (T)(SIGNED && r != 0 && math_negative((int64_t)(r ^ y)) ? r + y : r); \
    } \
    static inline T pow_one_##T(T x, T y, unsigned *bad) \
    { \
        return math_refused(SIGNED && math_negative((int64_t)y), bad) \
                   ? 0 \
                   : (T)math_pow_bits((uint64_t)x, (uint64_t)y); \
    } \
    BINARY(floordiv_##T, T, floordiv_one_##T) \
    BINARY(mod_##T, T, mod_one_##T) \
    BINARY(pow_##T, T, pow_one_##T)
INTEGER(int8_t, uint8_t, true)
INTEGER(int16_t, uint16_t, true)
INTEGER(int32_t, uint32_t, true)
INTEGER(int64_t, uint64_t, true)
INTEGER(uint8_t, uint8_t, false)
INTEGER(uint16_t, uint16_t, false)
INTEGER(uint32_t, uint32_t, false)
INTEGER(uint64_t, uint64_t, false)

/* NumPy's floor_divide and remainder (npy_divmod): the quotient is made from the exact remainder, then
 * snapped to an integer. fmod is exact, so that it is the same everywhere. */
#define DIVMOD(T, FMOD, FLOOR, COPYSIGN) \
    static inline T divmod_##T(T x, T y, T *ret_mod) \
    { \
        T mod = FMOD(x, y), div = (x - mod) / y, whole; \
        if (mod != 0) { \
            if ((y < 0) != (mod < 0)) { \
                mod += y; \
                div -= 1; \
            } \
        } else { \
            mod = COPYSIGN(0, y); \
        } \
        if (div != 0) { \
            whole = FLOOR(div); \
            if (div - whole > (T)0.5) \
                whole += 1; \
        } else { \
            whole = COPYSIGN(0, x / y); \
        } \
        *ret_mod = mod; \
        return whole; \
    } \
    static inline T floordiv_one_##T(T x, T y, unsigned *bad CW_UNUSED) \
    { \
        T mod; \
        return y == 0 ? x / y : divmod_##T(x, y, &mod); \
    } \
    static inline T mod_one_##T(T x, T y, unsigned *bad CW_UNUSED) \
    { \
        T mod = (T)NAN; \
        if (y != 0) \
            divmod_##T(x, y, &mod); \
        return mod; \
    } \
    BINARY(floordiv_##T, T, floordiv_one_##T) \
    BINARY(mod_##T, T, mod_one_##T)
DIVMOD(float, fmodf, floorf, copysignf)
DIVMOD(double, fmod, floor, copysign)

static inline float pow_one_float(float x, float y, unsigned *bad CW_UNUSED)
{
    return (float)cw_pow((double)x, (double)y);
}

static inline double pow_one_double(double x, double y, unsigned *bad CW_UNUSED)
{
    return cw_pow(x, y);
}
BINARY(pow_float, float, pow_one_float)
BINARY(pow_double, double, pow_one_double)

/* ---- divisors known at compile time ---- */

static unsigned math_log2_ceil(uint64_t d)
{
    return 64u - (unsigned)__builtin_clzll(d - 1);
} /* d >= 2 */

/* Granlund and Montgomery, "Division by Invariant Integers using Multiplication" (PLDI 1994): with 2^(l-1) <
 * d < 2^l, magic = ceil(2^(63+l) / d) is exact for dividends below 2^63; for 64-bit ones the magic has 65
 * bits, the highest implied. */
struct cw_divisor cw_divisor_make(uint64_t d, bool unsigned64)
{
    unsigned l = math_log2_ceil(d);
    unsigned __int128 one = 1;
    return (struct cw_divisor){
        .magic = (uint64_t)(unsigned64 ? (((one << l) - d) << 64) / d + 1 : ((one << (63 + l)) + d - 1) / d),
        .value = (int64_t)d,
        .shift = l - 1,
    };
}

static inline uint64_t math_high(uint64_t a, uint64_t b)
{
    return (uint64_t)(((unsigned __int128)a * b) >> 64);
}

/* Floored: for negative x, floor(x / d) = ~((~x) / d). */
#define BY_LOOP(NAME, T, RESULT, ...) /* the last arguments are those of RESULT */ \
    static unsigned NAME(void *restrict d_, const void *a_, const void *b_, size_t n, \
                         enum cw_mode mode CW_UNUSED) \
    { \
        T *restrict d = d_; \
        const T *a = a_; \
        struct cw_divisor by = *(const struct cw_divisor *)b_; \
        for (size_t i = 0; i < n; i++) { \
            __VA_ARGS__ \
            d[i] = (T)(RESULT); \
        } \
        return 0; \
    }
#define BY(T, S, PREPARE, QUOTIENT) \
    BY_LOOP(floordiv_by_##T, T, QUOTIENT, PREPARE) \
    BY_LOOP(mod_by_##T, T, (uint64_t)(S)a[i] - (QUOTIENT) * (uint64_t)by.value, PREPARE)
#define SIGN_APART \
    int64_t x = a[i]; \
    uint64_t t = (uint64_t)(x >> 63), u = (uint64_t)x ^ t;
#define BY_SIGNED(T) BY(T, int64_t, SIGN_APART, (math_high(u, by.magic) >> by.shift) ^ t)
#define BY_UNSIGNED(T) BY(T, uint64_t, uint64_t u = a[i];, math_high(u, by.magic) >> by.shift)
BY_SIGNED(int8_t)
BY_SIGNED(int16_t)
BY_SIGNED(int32_t)
BY_SIGNED(int64_t)
BY_UNSIGNED(uint8_t)
BY_UNSIGNED(uint16_t)
BY_UNSIGNED(uint32_t)
#define CARRY_APART uint64_t u = a[i], h = math_high(u, by.magic);
BY(uint64_t, uint64_t, CARRY_APART, (h + ((u - h) >> 1)) >> by.shift)

/* ---- functions of one value ---- */

#define UNARY(NAME, T, EXPR) \
    static unsigned NAME(void *restrict d_, const void *a_, const void *b_ CW_UNUSED, size_t n, \
                         enum cw_mode mode CW_UNUSED) \
    { \
        T *restrict d = d_; \
        const T *a = a_; \
        for (size_t i = 0; i < n; i++) { \
            T x = a[i]; \
            d[i] = (T)(EXPR); \
        } \
        return 0; \
    }
#define UNARY_UNSIGNED(T) \
    UNARY(neg_##T, T, 0u - x) \
    UNARY(invert_##T, T, ~x)
UNARY_UNSIGNED(uint8_t)
UNARY_UNSIGNED(uint16_t)
UNARY_UNSIGNED(uint32_t)
UNARY_UNSIGNED(uint64_t)
UNARY(abs_int8_t, int8_t, x < 0 ? 0u - (uint8_t)x : (uint8_t)x)
UNARY(abs_int16_t, int16_t, x < 0 ? 0u - (uint16_t)x : (uint16_t)x)
UNARY(abs_int32_t, int32_t, x < 0 ? 0u - (uint32_t)x : (uint32_t)x)
UNARY(abs_int64_t, int64_t, x < 0 ? 0u - (uint64_t)x : (uint64_t)x)
UNARY(not_bool, uint8_t, x == 0)

/* Adding 2^52 (float32: 2^23) removes the fraction, rounding to nearest, ties to even. floor and ceil differ
 * from that result by at most 1. */
#define ROUNDING(T, FABS, COPYSIGN, LIMIT) \
    static inline T round_one_##T(T x) \
    { \
        T a = FABS(x), r = (a + LIMIT) - LIMIT; \
        return COPYSIGN(a < LIMIT ? r : a, x); \
    } \
    static inline T floor_one_##T(T x) \
    { \
        T r = round_one_##T(x); \
        return COPYSIGN(r > x ? r - 1 : r, x); \
    } \
    static inline T ceil_one_##T(T x) \
    { \
        T r = round_one_##T(x); \
        return COPYSIGN(r < x ? r + 1 : r, x); \
    } \
    UNARY(round_##T, T, round_one_##T(x)) \
    UNARY(floor_##T, T, floor_one_##T(x)) \
    UNARY(ceil_##T, T, ceil_one_##T(x)) \
    UNARY(neg_##T, T, -x) \
    UNARY(abs_##T, T, FABS(x))
ROUNDING(float, fabsf, copysignf, 0x1p23f)
ROUNDING(double, fabs, copysign, 0x1p52)
UNARY(sqrt_float, float, sqrtf(x))
UNARY(sqrt_double, double, sqrt(x))
UNARY(exp_float, float, cw_exp((double)x))
UNARY(exp_double, double, cw_exp(x))
UNARY(log_float, float, cw_log((double)x))
UNARY(log_double, double, cw_log(x))

#define INTEGERS(P) \
    [CW_UINT8] = P##_uint8_t, [CW_UINT16] = P##_uint16_t, [CW_UINT32] = P##_uint32_t, \
    [CW_UINT64] = P##_uint64_t, [CW_INT8] = P##_int8_t, [CW_INT16] = P##_int16_t, [CW_INT32] = P##_int32_t, \
    [CW_INT64] = P##_int64_t
#define SIGNLESS(P) \
    [CW_UINT8] = P##_uint8_t, [CW_UINT16] = P##_uint16_t, [CW_UINT32] = P##_uint32_t, \
    [CW_UINT64] = P##_uint64_t, [CW_INT8] = P##_uint8_t, [CW_INT16] = P##_uint16_t, \
    [CW_INT32] = P##_uint32_t, [CW_INT64] = P##_uint64_t
#define FLOATS(P) [CW_FLOAT32] = P##_float, [CW_FLOAT64] = P##_double

static const cw_kernel kernels[CW_N_XOPS][CW_N_DTYPES + 1] = {
    [CW_X_FLOORDIV] = {INTEGERS(floordiv), FLOATS(floordiv)},
    [CW_X_MOD] = {INTEGERS(mod), FLOATS(mod)},
    [CW_X_POW] = {INTEGERS(pow), FLOATS(pow)},
    [CW_X_FLOORDIV_BY] = {INTEGERS(floordiv_by)},
    [CW_X_MOD_BY] = {INTEGERS(mod_by)},
    [CW_X_NEG] = {SIGNLESS(neg), FLOATS(neg)},
    [CW_X_INVERT] = {SIGNLESS(invert)},
    [CW_X_NOT] = {[CW_BOOL] = not_bool},
    [CW_X_ABS] = {[CW_INT8] = abs_int8_t,
                  [CW_INT16] = abs_int16_t,
                  [CW_INT32] = abs_int32_t,
                  [CW_INT64] = abs_int64_t,
                  FLOATS(abs)},
    [CW_X_ROUND] = {FLOATS(round)},
    [CW_X_FLOOR] = {FLOATS(floor)},
    [CW_X_CEIL] = {FLOATS(ceil)},
    [CW_X_SQRT] = {FLOATS(sqrt)},
    [CW_X_EXP] = {FLOATS(exp)},
    [CW_X_LOG] = {FLOATS(log)},
};

cw_kernel cw_kernel_find(enum cw_xop op, unsigned dtype)
{
    cw_kernel arithmetic = cw_kernel_arithmetic(op, dtype);
    if (arithmetic)
        return arithmetic;
    return kernels[op][dtype] ? kernels[op][dtype] : cw_kernel_bytes(op, dtype);
}
