/* Half precisions against a slow reference, for all inputs where that is possible; names and sizes of types.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/macro.h"
#include "data/convert.h"

struct format {
    int mantissa, max_exponent, min_exponent;
};
static const struct format half = {10, 15, -14}, bfloat = {7, 127, -126};

/* The value of a bit pattern, by definition. */
static double value_of(uint32_t bits, const struct format *f)
{
    uint32_t m = bits & ((1u << f->mantissa) - 1), e = bits >> f->mantissa & (f == &half ? 31u : 255u);
    double sign = bits >> 15 ? -1 : 1;
    if (e == (f == &half ? 31u : 255u))
        return m ? (double)NAN : sign * (double)INFINITY;
    if (e == 0)
        return sign * ldexp(m, f->min_exponent - f->mantissa);
    return sign * ldexp((double)m + (double)(1u << f->mantissa), (int)e - f->max_exponent - f->mantissa);
}

/* The positive pattern nearest to a, ties to even, by bisection over all patterns (they are in order). */
static uint32_t nearest_bits(double a, const struct format *f)
{
    uint32_t infinity = (f == &half ? 31u : 255u) << f->mantissa, low = 0, high = infinity;
    /* where the next value would be, were there one more exponent */
    double beyond = ldexp(1, f->max_exponent + 1);
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (value_of(mid, f) <= a)
            low = mid;
        else
            high = mid;
    }
    double below = value_of(low, f), above = high == infinity ? beyond : value_of(high, f);
    if (a - below == above - a)
        return low & 1 ? high : low;
    return a - below < above - a ? low : high;
}

static uint32_t reference(double d, const struct format *f)
{
    uint32_t sign = signbit(d) ? 0x8000u : 0, infinity = (f == &half ? 31u : 255u) << f->mantissa;
    return sign | (isinf(d) ? infinity : nearest_bits(fabs(d), f));
}

static float half_to_float(uint16_t v)
{
    float r;
    cw_convert(CW_FLOAT16, CW_FLOAT32, &r, &v, 1);
    return r;
}

static uint16_t float_to_half(float v)
{
    uint16_t r;
    cw_convert(CW_FLOAT32, CW_FLOAT16, &r, &v, 1);
    return r;
}

static uint16_t double_to_half(double v)
{
    uint16_t r;
    cw_convert(CW_FLOAT64, CW_FLOAT16, &r, &v, 1);
    return r;
}

static float bfloat_to_float(uint16_t v)
{
    float r;
    cw_convert(CW_BFLOAT16, CW_FLOAT32, &r, &v, 1);
    return r;
}

static uint16_t float_to_bfloat(float v)
{
    uint16_t r;
    cw_convert(CW_FLOAT32, CW_BFLOAT16, &r, &v, 1);
    return r;
}

static uint16_t double_to_bfloat(double v)
{
    uint16_t r;
    cw_convert(CW_FLOAT64, CW_BFLOAT16, &r, &v, 1);
    return r;
}

static void test_all_patterns_out_and_back(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float h = half_to_float((uint16_t)bits), b = bfloat_to_float((uint16_t)bits);
        double vh = value_of(bits, &half), vb = value_of(bits, &bfloat);
        if (isnan(vh)) {
            assert_true(isnan(h));
            assert_true(isnan(half_to_float(float_to_half(h))));
        } else {
            assert_true((double)h == vh && !signbit(h) == !signbit(vh));
            assert_int_equal(float_to_half(h), bits);
            assert_int_equal(double_to_half(vh), bits);
        }
        if (isnan(vb)) {
            assert_true(isnan(b));
            assert_true(isnan(bfloat_to_float(float_to_bfloat(b))));
            assert_true(isnan(bfloat_to_float(double_to_bfloat((double)b))));
        } else {
            assert_true((double)b == vb && !signbit(b) == !signbit(vb));
            assert_int_equal(float_to_bfloat(b), bits);
            assert_int_equal(double_to_bfloat(vb), bits);
        }
    }
}

/* Around each value and around the middle between it and the next: one step of float and of double to both
 * sides. */
static void test_rounding_at_every_boundary(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        const struct format *f = k ? &bfloat : &half;
        uint32_t infinity = (k ? 255u : 31u) << f->mantissa;
        for (uint32_t bits = 0; bits < infinity; bits++) {
            double v = value_of(bits, f),
                   next = bits + 1 == infinity ? ldexp(1, f->max_exponent + 1) : value_of(bits + 1, f);
            double at[] = {v, v + (next - v) / 2}; /* exact in double */
            for (unsigned i = 0; i < 2; i++) {
                double points[] = {at[i], nextafter(at[i], 0), nextafter(at[i], (double)INFINITY)};
                for (unsigned j = 0; j < 3; j++)
                    for (int sign = -1; sign <= 1; sign += 2) {
                        double d = sign * points[j];
                        assert_int_equal(k ? double_to_bfloat(d) : double_to_half(d), reference(d, f));
                    }
                float x = (float)at[i], floats[] = {x, nextafterf(x, 0), nextafterf(x, INFINITY)};
                for (unsigned j = 0; j < 3; j++)
                    assert_int_equal(k ? float_to_bfloat(floats[j]) : float_to_half(floats[j]),
                                     reference((double)floats[j], f));
            }
        }
    }
}

static void test_special_values(void **state)
{
    (void)state;
    static const double edges[] = {65519.999999999996,
                                   65520.0,
                                   0x1p-25,
                                   0x1.0000000000001p-25,
                                   0x1p-24,
                                   0x1.8p-24,
                                   3.4e38,
                                   3.39e38,
                                   0x1.fffffffffffffp1023,
                                   0x1.fep127,
                                   0x1.feffffffffffp127,
                                   0x1.ffp127,
                                   0x1p-149,
                                   0x1p-134,
                                   0x1.8p-133,
                                   5e-324};
    for (size_t i = 0; i < CW_COUNT_OF(edges); i++) {
        assert_int_equal(double_to_half(edges[i]), reference(edges[i], &half));
        assert_int_equal(double_to_bfloat(edges[i]), reference(edges[i], &bfloat));
    }
    assert_int_equal(double_to_half(65519.99), 0x7bff);
    assert_int_equal(double_to_half(65520), 0x7c00);
    assert_int_equal(double_to_half(-1e300), 0xfc00);
    assert_int_equal(double_to_half(0x1p-25), 0);
    assert_int_equal(double_to_half(0x1.0000000000001p-25), 1);
    assert_int_equal(double_to_half(-0.0), 0x8000);
    assert_int_equal(double_to_bfloat(1e300), 0x7f80);
    assert_int_equal(double_to_bfloat(-(double)INFINITY), 0xff80);
    assert_int_equal(double_to_bfloat(5e-324), 0);
    /* One rounding: through float it would be a tie, and end up a step higher. */
    assert_int_equal(double_to_bfloat(1 + 0x1p-8 - 0x1p-40), 0x3f80);
    assert_int_equal(double_to_half(1 + 0x1p-11 - 0x1p-50), 0x3c00);
    assert_int_equal(double_to_half(1 + 0x1p-11 + 0x1p-50), 0x3c01);
    assert_int_equal(double_to_bfloat(1 + 0x1p-8 + 0x1p-50), 0x3f81);
}

static void test_names(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 0};
    for (int i = 0; i < CW_N_DTYPES; i++) {
        enum cw_dtype back;
        assert_int_equal(cw_dtype_parse(cw_dtype_name((enum cw_dtype)i), &back), 0);
        assert_int_equal(back, i);
        assert_int_equal(cw_dtype_size((enum cw_dtype)i), sizes[i]);
    }
    enum cw_dtype none;
    assert_int_equal(cw_dtype_parse("float128", &none), -1);
    assert_int_equal(cw_dtype_parse("", &none), -1);
}

static void test_types(void **state)
{
    (void)state;
    char buf[160];
    struct cw_type image = {.dtype = CW_UINT8, .ndim = 3, .dims = {224, 224, 3}},
                   varies = {.dtype = CW_UINT8, .ndim = 3, .dims = {CW_VARIES, CW_VARIES, 3}},
                   unknown = {.dtype = CW_FLOAT64, .ndim = -1}, text = {.dtype = CW_BYTES},
                   empty = {.dtype = CW_INT64, .ndim = 2, .dims = {0, 5}},
                   huge = {.dtype = CW_INT64, .ndim = 2, .dims = {INT64_MAX, INT64_MAX}},
                   scalar = cw_type_scalar(CW_FLOAT32);
    assert_true(cw_type_fixed(&image) && cw_type_fixed(&empty) && cw_type_fixed(&scalar));
    assert_false(cw_type_fixed(&varies) || cw_type_fixed(&unknown) || cw_type_fixed(&text));
    assert_int_equal(cw_type_bytes(&image), 224 * 224 * 3);
    assert_int_equal(cw_type_bytes(&empty), 0);
    assert_int_equal(cw_type_bytes(&scalar), 4);
    assert_true(cw_type_bytes(&huge) == SIZE_MAX);
    assert_string_equal(cw_type_print(&image, buf), "uint8[224,224,3]");
    assert_string_equal(cw_type_print(&varies, buf), "uint8[?,?,3]");
    assert_string_equal(cw_type_print(&unknown, buf), "float64[...]");
    assert_string_equal(cw_type_print(&text, buf), "bytes");
    assert_string_equal(cw_type_print(&scalar, buf), "float32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_patterns_out_and_back),
        cmocka_unit_test(test_rounding_at_every_boundary),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
