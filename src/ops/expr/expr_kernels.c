/* Kernels of expressions for arithmetic, written for the compiler's vectoriser (-O3), one macro per form.
 * Stateless. */
#include <string.h>

#include "ops/expr/expr_impl.h"

#define BINARY_LOOP(D, TA, TB, A, B, EXPR) \
    for (size_t i = 0; i < n; i++) { \
        TA x = A; \
        TB y = B; \
        d[i] = (D)(EXPR); \
    }

/* One function for the three modes: array with array, array with single value, single value with array. */
#define BINARY(NAME, D, TA, TB, EXPR) \
    static unsigned NAME(void *restrict d_, const void *a_, const void *b_, size_t n, enum cw_mode mode) \
    { \
        D *restrict d = d_; \
        const TA *a = a_; \
        const TB *b = b_; \
        if (mode == CW_VV) \
            BINARY_LOOP(D, TA, TB, a[i], b[i], EXPR) \
        else if (mode == CW_VS) \
            BINARY_LOOP(D, TA, TB, a[i], *b, EXPR) \
        else \
            BINARY_LOOP(D, TA, TB, *a, b[i], EXPR) \
        return 0; \
    }

/* "0u +" makes narrow types unsigned before C makes them int, whose overflow is undefined. */
#define UNSIGNED(T) \
    BINARY(add_##T, T, T, T, (0u + x) + y) \
    BINARY(sub_##T, T, T, T, (0u + x) - y) \
    BINARY(mul_##T, T, T, T, (0u + x) * y) \
    BINARY(and_##T, T, T, T, x &y) \
    BINARY(or_##T, T, T, T, x | y) \
    BINARY(xor_##T, T, T, T, x ^ y) \
    BINARY(eq_##T, uint8_t, T, T, x == y) \
    BINARY(ne_##T, uint8_t, T, T, x != y) \
    BINARY(shl_##T, T, T, T, y < sizeof(T) * 8 ? (0u + x) << (y & (sizeof(T) * 8 - 1)) : 0)
UNSIGNED(uint8_t)
UNSIGNED(uint16_t)
UNSIGNED(uint32_t)
UNSIGNED(uint64_t)

#define ORDERED(T) \
    BINARY(lt_##T, uint8_t, T, T, x < y) \
    BINARY(le_##T, uint8_t, T, T, x <= y)
ORDERED(uint8_t)
ORDERED(uint16_t)
ORDERED(uint32_t)
ORDERED(uint64_t)
ORDERED(int8_t)
ORDERED(int16_t)
ORDERED(int32_t)
ORDERED(int64_t)
ORDERED(float)
ORDERED(double)

/* Shift counts out of range (negative ones are huge when unsigned) give 0 or the sign. */
#define INTEGER(T, U) \
    BINARY(shr_##T, T, T, T, \
           x >> ((U)y < sizeof(T) * 8 ? (unsigned)y \
                 : (T) - 1 < 0        ? sizeof(T) * 8 - 1 \
                                      : 0)) \
    BINARY(min_##T, T, T, T, x < y ? x : y) \
    BINARY(max_##T, T, T, T, x > y ? x : y)
INTEGER(int8_t, uint8_t)
INTEGER(int16_t, uint16_t)
INTEGER(int32_t, uint32_t)
INTEGER(int64_t, uint64_t)

#define INTEGER_UNSIGNED(T) \
    BINARY(shr_##T, T, T, T, y < sizeof(T) * 8 ? x >> (y & (sizeof(T) * 8 - 1)) : 0) \
    BINARY(min_##T, T, T, T, x < y ? x : y) \
    BINARY(max_##T, T, T, T, x > y ? x : y)
INTEGER_UNSIGNED(uint8_t)
INTEGER_UNSIGNED(uint16_t)
INTEGER_UNSIGNED(uint32_t)
INTEGER_UNSIGNED(uint64_t)

/* If an operand is NaN, the result is NaN. 0.0 and -0.0 compare equal; then the result is the second operand,
 * as in NumPy on x86-64. */
#define FLOATING(T) \
    BINARY(add_##T, T, T, T, x + y) \
    BINARY(sub_##T, T, T, T, x - y) \
    BINARY(mul_##T, T, T, T, x *y) \
    BINARY(div_##T, T, T, T, x / y) \
    BINARY(eq_##T, uint8_t, T, T, x == y) \
    BINARY(ne_##T, uint8_t, T, T, x != y) \
    BINARY(min_##T, T, T, T, ((x < y) | (x != x)) ? x : y) \
    BINARY(max_##T, T, T, T, ((x > y) | (x != x)) ? x : y)
FLOATING(float)
FLOATING(double)

/* uint64 with int64, by value. */
BINARY(eq_mixed, uint8_t, uint64_t, int64_t, (y >= 0) & (x == (uint64_t)y))
BINARY(ne_mixed, uint8_t, uint64_t, int64_t, (y < 0) | (x != (uint64_t)y))
BINARY(lt_mixed, uint8_t, uint64_t, int64_t, (y >= 0) & (x < (uint64_t)y))
BINARY(le_mixed, uint8_t, uint64_t, int64_t, (y >= 0) & (x <= (uint64_t)y))
BINARY(gt_mixed, uint8_t, uint64_t, int64_t, (y < 0) | (x > (uint64_t)y))
BINARY(ge_mixed, uint8_t, uint64_t, int64_t, (y < 0) | (x >= (uint64_t)y))

#define SIGNLESS(P) \
    { \
        [CW_UINT8] = P##_uint8_t,   [CW_UINT16] = P##_uint16_t, [CW_UINT32] = P##_uint32_t, \
        [CW_UINT64] = P##_uint64_t, [CW_INT8] = P##_uint8_t,    [CW_INT16] = P##_uint16_t, \
        [CW_INT32] = P##_uint32_t,  [CW_INT64] = P##_uint64_t, \
    }
#define SIGNLESS_FLOAT(P) \
    { \
        [CW_UINT8] = P##_uint8_t,   [CW_UINT16] = P##_uint16_t, [CW_UINT32] = P##_uint32_t, \
        [CW_UINT64] = P##_uint64_t, [CW_INT8] = P##_uint8_t,    [CW_INT16] = P##_uint16_t, \
        [CW_INT32] = P##_uint32_t,  [CW_INT64] = P##_uint64_t,  [CW_FLOAT32] = P##_float, \
        [CW_FLOAT64] = P##_double, \
    }
#define INTEGERS(P) \
    [CW_UINT8] = P##_uint8_t, [CW_UINT16] = P##_uint16_t, [CW_UINT32] = P##_uint32_t, \
    [CW_UINT64] = P##_uint64_t, [CW_INT8] = P##_int8_t, [CW_INT16] = P##_int16_t, [CW_INT32] = P##_int32_t, \
    [CW_INT64] = P##_int64_t
#define ALL(P) [CW_BOOL] = P##_uint8_t, INTEGERS(P), [CW_FLOAT32] = P##_float, [CW_FLOAT64] = P##_double
#define EQUALITY(P) \
    [CW_BOOL] = P##_uint8_t, [CW_UINT8] = P##_uint8_t, [CW_UINT16] = P##_uint16_t, \
    [CW_UINT32] = P##_uint32_t, [CW_UINT64] = P##_uint64_t, [CW_INT8] = P##_uint8_t, \
    [CW_INT16] = P##_uint16_t, [CW_INT32] = P##_uint32_t, [CW_INT64] = P##_uint64_t, \
    [CW_FLOAT32] = P##_float, [CW_FLOAT64] = P##_double, [CW_DTYPE_MIXED] = P##_mixed
#define BOOL_TOO(P) \
    { \
        [CW_BOOL] = P##_uint8_t,    [CW_UINT8] = P##_uint8_t,   [CW_UINT16] = P##_uint16_t, \
        [CW_UINT32] = P##_uint32_t, [CW_UINT64] = P##_uint64_t, [CW_INT8] = P##_uint8_t, \
        [CW_INT16] = P##_uint16_t,  [CW_INT32] = P##_uint32_t,  [CW_INT64] = P##_uint64_t, \
    }

/* Greater-than is less-than with the operands exchanged, except for the mixed comparison. */
static const cw_kernel kernels[CW_N_XOPS][CW_N_DTYPES + 1] = {
    [CW_X_ADD] = SIGNLESS_FLOAT(add),
    [CW_X_SUB] = SIGNLESS_FLOAT(sub),
    [CW_X_MUL] = SIGNLESS_FLOAT(mul),
    [CW_X_DIV] = {[CW_FLOAT32] = div_float, [CW_FLOAT64] = div_double},
    [CW_X_BITAND] = BOOL_TOO(and),
    [CW_X_BITOR] = BOOL_TOO(or),
    [CW_X_BITXOR] = BOOL_TOO(xor),
    [CW_X_SHL] = SIGNLESS(shl),
    [CW_X_SHR] = {INTEGERS(shr)},
    [CW_X_LT] = {ALL(lt), [CW_DTYPE_MIXED] = lt_mixed},
    [CW_X_LE] = {ALL(le), [CW_DTYPE_MIXED] = le_mixed},
    [CW_X_GT] = {[CW_DTYPE_MIXED] = gt_mixed},
    [CW_X_GE] = {[CW_DTYPE_MIXED] = ge_mixed},
    [CW_X_EQ] = {EQUALITY(eq)},
    [CW_X_NE] = {EQUALITY(ne)},
    [CW_X_MIN] = {ALL(min)},
    [CW_X_MAX] = {ALL(max)},
};

cw_kernel cw_kernel_arithmetic(enum cw_xop op, unsigned dtype)
{
    return kernels[op][dtype];
}

/* ---- selection ---- */

#define WHERE(T) \
    static void where_##T(void *restrict d_, const uint8_t *c, const void *a_, const void *b_, size_t n, \
                          int a_step, int b_step) \
    { \
        T *restrict d = d_; \
        const T *a = a_, *b = b_; \
        if (a_step && b_step) \
            BINARY_LOOP(T, T, T, a[i], b[i], c[i] ? x : y) \
        else if (a_step) \
            BINARY_LOOP(T, T, T, a[i], *b, c[i] ? x : y) \
        else if (b_step) \
            BINARY_LOOP(T, T, T, *a, b[i], c[i] ? x : y) \
        else \
            BINARY_LOOP(T, T, T, *a, *b, c[i] ? x : y) \
    }
WHERE(uint8_t)
WHERE(uint16_t)
WHERE(uint32_t)
WHERE(uint64_t)

static void where_span(void *restrict d_, const uint8_t *c, const void *a_, const void *b_, size_t n,
                       int a_step, int b_step)
{
    struct cw_span *d = d_;
    const struct cw_span *a = a_, *b = b_;
    for (size_t i = 0; i < n; i++)
        d[i] = c[i] ? a[i * (size_t)a_step] : b[i * (size_t)b_step];
}

static void kernel_fill(size_t size, uint8_t *restrict d, const uint8_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy(d + i * size, v, size);
}

void cw_kernel_where(size_t size, void *restrict d, const uint8_t *c, const void *a, const void *b, size_t n,
                     int c_step, int a_step, int b_step)
{
    if (!c_step) {
        const void *chosen = *c ? a : b;
        if (n == 0)
            return;
        if (*c ? a_step : b_step)
            memcpy(d, chosen, n * size);
        else
            kernel_fill(size, d, chosen, n);
        return;
    }
    static void (*const loops[])(void *restrict d, const uint8_t *c, const void *a, const void *b, size_t n,
                                 int a_step, int b_step) = {[1] = where_uint8_t,
                                                            [2] = where_uint16_t,
                                                            [4] = where_uint32_t,
                                                            [8] = where_uint64_t,
                                                            [sizeof(struct cw_span)] = where_span};
    loops[size](d, c, a, b, n, a_step, b_step);
}

/* ---- reduction ---- */

#define REDUCE_INTEGER(T) \
    static void reduce_##T(bool max, void *d, const void *a_, size_t n) \
    { \
        const T *a = a_; \
        T r = a[0]; \
        if (max) /* one loop each: with the choice inside the loop, the compiler does not vectorise it */ \
            for (size_t i = 0; i < n; i++) \
                r = a[i] > r ? a[i] : r; \
        else \
            for (size_t i = 0; i < n; i++) \
                r = a[i] < r ? a[i] : r; \
        *(T *)d = r; \
    }
REDUCE_INTEGER(uint8_t)
REDUCE_INTEGER(uint16_t)
REDUCE_INTEGER(uint32_t)
REDUCE_INTEGER(uint64_t)
REDUCE_INTEGER(int8_t)
REDUCE_INTEGER(int16_t)
REDUCE_INTEGER(int32_t)
REDUCE_INTEGER(int64_t)

#define REDUCE_FLOAT(T) \
    static void reduce_##T(bool max, void *d, const void *a_, size_t n) \
    { \
        const T *a = a_; \
        T r = a[0]; \
        bool nan = false; \
        for (size_t i = 0; i < n; i++) { \
            T x = a[i]; \
            nan |= x != x; \
            r = (max ? x > r : x < r) ? x : r; \
        } \
        *(T *)d = nan ? (T)__builtin_nan("") : r; \
    }
REDUCE_FLOAT(float)
REDUCE_FLOAT(double)

static uint64_t reduce_sum_integers(const uint64_t *a, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i];
    return sum;
}

/* Eight partial sums: partial sum k has the values at index k, k + 8, ... */
static double reduce_sum_floats(const double *a, size_t n)
{
    double s[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 8; k++)
            s[k] += a[i + k];
    for (size_t k = 0; i < n; i++, k++)
        s[k] += a[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

void cw_kernel_reduce(enum cw_xop op, enum cw_dtype dtype, void *d, const void *a, size_t n)
{
    if (op == CW_X_SUM || op == CW_X_MEAN) {
        if (dtype != CW_FLOAT64)
            *(uint64_t *)d = reduce_sum_integers(a, n);
        else
            *(double *)d = reduce_sum_floats(a, n) / (op == CW_X_MEAN ? (double)n : 1.0);
        return;
    }
    static void (*const reductions[CW_N_DTYPES])(bool max, void *d, const void *a, size_t n) = {ALL(reduce)};
    reductions[dtype](op == CW_X_MAX, d, a, n);
}

/* On the bits: x86 makes negative NaNs, ARM positive ones. */
#define CANONICAL_NAN(NAME, T, INFINITY_BITS, NAN_BITS) \
    static void NAME(void *d, size_t n) \
    { \
        T *v = d; \
        for (size_t i = 0; i < n; i++) \
            v[i] = (v[i] & ((T) - 1 >> 1)) > INFINITY_BITS ? NAN_BITS : v[i]; \
    }
CANONICAL_NAN(canonical_half, uint16_t, 0x7c00, 0x7e00)
CANONICAL_NAN(canonical_bfloat, uint16_t, 0x7f80, 0x7fc0)
CANONICAL_NAN(canonical_float, uint32_t, 0x7f800000u, 0x7fc00000u)
CANONICAL_NAN(canonical_double, uint64_t, UINT64_C(0x7ff0000000000000), UINT64_C(0x7ff8000000000000))

void cw_kernel_canonical_nan(enum cw_dtype dtype, void *d, size_t n)
{
    static void (*const loops[CW_N_DTYPES])(void *d, size_t n) = {[CW_FLOAT16] = canonical_half,
                                                                  [CW_BFLOAT16] = canonical_bfloat,
                                                                  [CW_FLOAT32] = canonical_float,
                                                                  [CW_FLOAT64] = canonical_double};
    loops[dtype](d, n);
}
