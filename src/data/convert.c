/* Loops that convert between all pairs of dtypes; stateless, any thread. The loops have no calls and no
 * branches, so that the compiler can vectorise them. */
#include "data/convert.h"

#include <string.h>

typedef void (*convert_fn)(void *restrict dst, const void *restrict src, size_t n);

/* ---- scalars ---- */

/* Rounds half to even without a call: after adding 2^52, a double has no bits for a fraction. */
static inline double convert_round_even(double x)
{
    double a = __builtin_fabs(x), r = (a + 0x1p52) - 0x1p52;
    return __builtin_copysign(a < 0x1p52 ? r : a, x);
}

#define SATURATE(T, LOW, HIGH) \
    static inline T to_##T(double x) \
    { \
        double r = x == x ? convert_round_even(x) : 0.0; \
        r = r < LOW ? LOW : r; \
        r = r > HIGH ? HIGH : r; \
        return (T)r; \
    }
SATURATE(int8_t, -128.0, 127.0)
SATURATE(int16_t, -32768.0, 32767.0)
SATURATE(int32_t, -0x1p31, 0x1.fffffffcp30)
SATURATE(uint8_t, 0.0, 255.0)
SATURATE(uint16_t, 0.0, 65535.0)
SATURATE(uint32_t, 0.0, 0x1.fffffffep31)

static inline int64_t convert_to_int64_t(double x)
{
    double r = x == x ? convert_round_even(x) : 0.0;
    return r >= 0x1p63 ? INT64_MAX : r <= -0x1p63 ? INT64_MIN : (int64_t)r;
}

static inline uint64_t convert_to_uint64_t(double x)
{
    double r = x == x ? convert_round_even(x) : 0.0;
    return r >= 0x1p64 ? UINT64_MAX : r <= 0.0 ? 0 : (uint64_t)r;
}

static inline uint32_t convert_float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float convert_bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float convert_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, m = (uint32_t)(h & 0x7fffu) << 13;
    /* An exact multiplication corrects the exponent, and normalises subnormals, too. */
    uint32_t finite = convert_float_bits(convert_bits_float(m) * 0x1p112f);
    return convert_bits_float(sign | (m >= 0x0f800000u ? m | 0x7f800000u : finite));
}

static inline uint16_t convert_float_to_half(float f)
{
    uint32_t u = convert_float_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    /* rounding may carry into the exponent, up to infinity */
    uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
    /* adding 0.5 rounds to a multiple of the smallest subnormal half, which is the last place of 0.5 */
    uint32_t small = convert_float_bits(convert_bits_float(a) + 0.5f) - 0x3f000000u;
    uint32_t r = a < 0x38800000u ? small : normal;
    r = a >= 0x47800000u ? 0x7c00u : r;
    r = a > 0x7f800000u ? 0x7e00u : r;
    return (uint16_t)(sign | r);
}

/* Rounds a double to a float ("round to odd") such that rounding the float to fewer than 23 bits gives the
 * same result as rounding the double directly. */
static inline float convert_double_to_odd(double d)
{
    float f = (float)d;
    double back = (double)f;
    uint32_t u = convert_float_bits(f);
    if (back == d || d != d || (u & 0x7f800000u) == 0x7f800000u)
        return f;
    if (!(u & 1u)) /* even and inexact: take the odd neighbour on d's side */
        u = __builtin_fabs(back) < __builtin_fabs(d) ? u + 1 : u - 1;
    return convert_bits_float(u);
}

static inline uint16_t convert_double_to_half(double d)
{
    return convert_float_to_half(convert_double_to_odd(d));
}

static inline uint16_t convert_float_to_bfloat(float f)
{
    uint32_t u = convert_float_bits(f);
    uint32_t nan = (u >> 16) | 0x40u, rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)(f != f ? nan : rounded);
}

/* Near the largest float, round to odd keeps a double on its side of the bound at which bfloat16 becomes
 * infinite. */
static inline uint16_t convert_double_to_bfloat(double d)
{
    return convert_float_to_bfloat(convert_double_to_odd(d));
}

/* ---- loops ---- */

#define LOOP(NAME, S, T, EXPR) \
    static void NAME(void *restrict dst, const void *restrict src, size_t n) \
    { \
        T *restrict d = dst; \
        const S *restrict s = src; \
        for (size_t i = 0; i < n; i++) { \
            S x = s[i]; \
            d[i] = (T)(EXPR); \
        } \
    }

/* The loops from an integer type S. Conversions wrap around: C defines that for unsigned types, gcc and clang
 * for signed types. */
#define FROM_INTEGER(S) \
    LOOP(S##_bool, S, uint8_t, x != 0) \
    LOOP(S##_1, S, uint8_t, x) \
    LOOP(S##_2, S, uint16_t, x) \
    LOOP(S##_4, S, uint32_t, x) \
    LOOP(S##_8, S, uint64_t, x) \
    LOOP(S##_float, S, float, x) \
    LOOP(S##_double, S, double, x)
FROM_INTEGER(int8_t)
FROM_INTEGER(int16_t)
FROM_INTEGER(int32_t)
FROM_INTEGER(int64_t)
FROM_INTEGER(uint8_t)
FROM_INTEGER(uint16_t)
FROM_INTEGER(uint32_t)
FROM_INTEGER(uint64_t)

#define FROM_FLOAT(S) \
    LOOP(S##_bool, S, uint8_t, x != 0) \
    LOOP(S##_uint8_t, S, uint8_t, to_uint8_t((double)x)) \
    LOOP(S##_uint16_t, S, uint16_t, to_uint16_t((double)x)) \
    LOOP(S##_uint32_t, S, uint32_t, to_uint32_t((double)x)) \
    LOOP(S##_uint64_t, S, uint64_t, convert_to_uint64_t((double)x)) \
    LOOP(S##_int8_t, S, int8_t, to_int8_t((double)x)) \
    LOOP(S##_int16_t, S, int16_t, to_int16_t((double)x)) \
    LOOP(S##_int32_t, S, int32_t, to_int32_t((double)x)) \
    LOOP(S##_int64_t, S, int64_t, convert_to_int64_t((double)x)) \
    LOOP(S##_float, S, float, x) \
    LOOP(S##_double, S, double, x)
FROM_FLOAT(float)
FROM_FLOAT(double)

LOOP(half_float, uint16_t, float, convert_half_to_float(x))
LOOP(float_half, float, uint16_t, convert_float_to_half(x))
LOOP(double_half, double, uint16_t, convert_double_to_half(x))
LOOP(bfloat_float, uint16_t, float, convert_bits_float((uint32_t)x << 16))
LOOP(float_bfloat, float, uint16_t, convert_float_to_bfloat(x))
LOOP(double_bfloat, double, uint16_t, convert_double_to_bfloat(x))

#define INTEGER_ROW(S) \
    { \
        [CW_BOOL] = S##_bool, [CW_UINT8] = S##_1,       [CW_INT8] = S##_1,         [CW_UINT16] = S##_2, \
        [CW_INT16] = S##_2,   [CW_UINT32] = S##_4,      [CW_INT32] = S##_4,        [CW_UINT64] = S##_8, \
        [CW_INT64] = S##_8,   [CW_FLOAT32] = S##_float, [CW_FLOAT64] = S##_double, \
    }
#define FLOAT_ROW(S) \
    [CW_BOOL] = S##_bool, [CW_UINT8] = S##_uint8_t, [CW_INT8] = S##_int8_t, [CW_UINT16] = S##_uint16_t, \
    [CW_INT16] = S##_int16_t, [CW_UINT32] = S##_uint32_t, [CW_INT32] = S##_int32_t, \
    [CW_UINT64] = S##_uint64_t, [CW_INT64] = S##_int64_t, [CW_FLOAT32] = S##_float, \
    [CW_FLOAT64] = S##_double

static const convert_fn direct[CW_N_DTYPES][CW_N_DTYPES] = {
    [CW_BOOL] = INTEGER_ROW(uint8_t),
    [CW_UINT8] = INTEGER_ROW(uint8_t),
    [CW_UINT16] = INTEGER_ROW(uint16_t),
    [CW_UINT32] = INTEGER_ROW(uint32_t),
    [CW_UINT64] = INTEGER_ROW(uint64_t),
    [CW_INT8] = INTEGER_ROW(int8_t),
    [CW_INT16] = INTEGER_ROW(int16_t),
    [CW_INT32] = INTEGER_ROW(int32_t),
    [CW_INT64] = INTEGER_ROW(int64_t),
    [CW_FLOAT16] = {[CW_FLOAT32] = half_float},
    [CW_BFLOAT16] = {[CW_FLOAT32] = bfloat_float},
    [CW_FLOAT32] = {FLOAT_ROW(float), [CW_FLOAT16] = float_half, [CW_BFLOAT16] = float_bfloat},
    [CW_FLOAT64] = {FLOAT_ROW(double), [CW_FLOAT16] = double_half, [CW_BFLOAT16] = double_bfloat},
};

void cw_convert(enum cw_dtype from, enum cw_dtype to, void *dst, const void *src, size_t n)
{
    if (from == to) {
        if (n > 0)
            memcpy(dst, src, n * cw_dtype_size(from));
        return;
    }
    if (direct[from][to]) {
        direct[from][to](dst, src, n);
        return;
    }
    /* From or to a half precision: by way of float32, 256 values at a time. */
    float piece[256];
    size_t from_size = cw_dtype_size(from), to_size = cw_dtype_size(to);
    for (size_t at = 0; at < n; at += 256) {
        size_t m = n - at < 256 ? n - at : 256;
        direct[from][CW_FLOAT32](piece, (const uint8_t *)src + at * from_size, m);
        direct[CW_FLOAT32][to]((uint8_t *)dst + at * to_size, piece, m);
    }
}
