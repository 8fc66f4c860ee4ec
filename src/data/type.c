/* Names and sizes of dtypes and types, and conversions of 16-bit floats. */
#include "data/type.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t size;
    bool is_float, is_signed;
} dtypes[CW_N_DTYPES] = {
    [CW_BOOL] = {"bool", 1, false, false},        [CW_UINT8] = {"uint8", 1, false, false},
    [CW_UINT16] = {"uint16", 2, false, false},    [CW_UINT32] = {"uint32", 4, false, false},
    [CW_UINT64] = {"uint64", 8, false, false},    [CW_INT8] = {"int8", 1, false, true},
    [CW_INT16] = {"int16", 2, false, true},       [CW_INT32] = {"int32", 4, false, true},
    [CW_INT64] = {"int64", 8, false, true},       [CW_FLOAT16] = {"float16", 2, true, false},
    [CW_BFLOAT16] = {"bfloat16", 2, true, false}, [CW_FLOAT32] = {"float32", 4, true, false},
    [CW_FLOAT64] = {"float64", 8, true, false},   [CW_BYTES] = {"bytes", 0, false, false},
};

const char *cw_dtype_name(enum cw_dtype dtype)
{
    return dtypes[dtype].name;
}

int cw_dtype_parse(const char *name, enum cw_dtype *ret)
{
    for (int i = 0; i < CW_N_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            *ret = (enum cw_dtype)i;
            return 0;
        }
    return -1;
}

size_t cw_dtype_size(enum cw_dtype dtype)
{
    return dtypes[dtype].size;
}

bool cw_dtype_is_float(enum cw_dtype dtype)
{
    return dtypes[dtype].is_float;
}

bool cw_dtype_is_signed(enum cw_dtype dtype)
{
    return dtypes[dtype].is_signed;
}

bool cw_dtype_is_integer(enum cw_dtype dtype)
{
    return dtype >= CW_UINT8 && dtype <= CW_INT64;
}

static uint32_t type_float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float type_bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

float cw_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    if (e == 31)
        return type_bits_float(sign | 0x7f800000u | m << 13);
    if (e == 0) { /* zero and subnormals: m * 2^-24, exact in float */
        float f = (float)m * 0x1p-24f;
        return sign ? -f : f;
    }
    return type_bits_float(sign | (e + 112) << 23 | m << 13);
}

/* Rounds |d| to a multiple of 2^(exponent - mantissa bits), to nearest even; the power of two scaling is
 * exact. */
static double type_round_mantissa(double a, int mantissa_bits, int min_exponent)
{
    int e;
    frexp(a, &e);
    e -= 1;
    if (e < min_exponent)
        e = min_exponent;
    return ldexp(nearbyint(ldexp(a, mantissa_bits - e)), e - mantissa_bits);
}

uint16_t cw_double_to_half(double d)
{
    uint16_t sign = signbit(d) ? 0x8000u : 0;
    double a = fabs(d);
    if (isnan(d))
        return sign | 0x7e00u;
    if (isinf(a))
        return sign | 0x7c00u;
    a = type_round_mantissa(a, 10, -14);
    if (a >= 65536.0)
        return sign | 0x7c00u;
    if (a < 0x1p-14)
        return sign | (uint16_t)(a * 0x1p24);
    int e;
    double m = frexp(a, &e); /* a = m * 2^e, m in [0.5, 1) */
    return sign | (uint16_t)((e + 14) << 10) | (uint16_t)((uint32_t)(m * 2048.0) & 0x3ffu);
}

uint16_t cw_float_to_half(float f)
{
    return cw_double_to_half((double)f);
}

float cw_bfloat_to_float(uint16_t b)
{
    return type_bits_float((uint32_t)b << 16);
}

uint16_t cw_float_to_bfloat(float f)
{
    uint32_t u = type_float_bits(f);
    if (isnan(f))
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

uint16_t cw_double_to_bfloat(double d)
{
    uint16_t sign = signbit(d) ? 0x8000u : 0;
    if (isnan(d) || isinf(d))
        return cw_float_to_bfloat((float)d);
    double a = type_round_mantissa(fabs(d), 7, -126);
    return sign | cw_float_to_bfloat((float)a); /* exact, or beyond the largest float: infinity */
}

bool cw_type_fixed(const struct cw_type *t)
{
    if (t->dtype == CW_BYTES || t->ndim < 0)
        return false;
    for (int i = 0; i < t->ndim; i++)
        if (t->dims[i] < 0)
            return false;
    return true;
}

size_t cw_type_bytes(const struct cw_type *t)
{
    size_t n = cw_dtype_size(t->dtype);
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(n, (size_t)t->dims[i], &n))
            return SIZE_MAX;
    return n;
}

const char *cw_type_print(const struct cw_type *t, char buf[160])
{
    size_t at = (size_t)snprintf(buf, 160, "%s", cw_dtype_name(t->dtype));
    if (t->ndim < 0)
        snprintf(buf + at, 160 - at, "[...]");
    for (int i = 0; i < t->ndim; i++) {
        const char *open = i == 0 ? "[" : ",", *close = i == t->ndim - 1 ? "]" : "";
        if (t->dims[i] < 0)
            at += (size_t)snprintf(buf + at, 160 - at, "%s?%s", open, close);
        else
            at += (size_t)snprintf(buf + at, 160 - at, "%s%lld%s", open, (long long)t->dims[i], close);
    }
    return buf;
}

struct cw_type cw_type_scalar(enum cw_dtype dtype)
{
    return (struct cw_type){.dtype = dtype, .ndim = 0};
}
