/* base/math.h: against libm within one unit in the last place, special cases, and fixed bit patterns. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/macro.h"
#include "base/math.h"

#define N_RANDOM 1000000

static uint64_t random_state = 88172645463325252u;

static uint64_t random_bits(void) /* xorshift */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static double random_double(void) /* any bit pattern */
{
    uint64_t u = random_bits();
    double d;
    memcpy(&d, &u, 8);
    return d;
}

static double random_unit(void)
{
    return (double)(random_bits() >> 11) * 0x1p-53;
}

/* Maps doubles to integers in their order, neighbours to neighbours. */
static int64_t ordinal(double d)
{
    int64_t i;
    memcpy(&i, &d, 8);
    return i < 0 ? INT64_MIN - i : i;
}

/* Units in the last place between two results; 0 for two NaNs. */
static uint64_t distance(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b) ? 0 : UINT64_MAX;
    int64_t x = ordinal(a), y = ordinal(b);
    return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

static void near_libm(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_RANDOM; i++) {
        double x = i % 7 == 0 ? random_double() : (random_unit() - 0.5) * (i & 1 ? 4 : 1500);
        if (distance(cw_exp(x), exp(x)) > 1)
            fail_msg("exp(%a) = %a, libm %a", x, cw_exp(x), exp(x));
        x = i & 1 ? random_double() : 1 + (random_unit() - 0.5) * 0.9;
        if (distance(cw_log(x), log(x)) > 1)
            fail_msg("log(%a) = %a, libm %a", x, cw_log(x), log(x));
        x = i & 1 ? fabs(random_double()) : random_unit() * 3;
        double y = i % 11 == 0 ? random_double()
                   : i & 2     ? (random_unit() - 0.5) * (1400 / fabs(log(x)))
                               : (random_unit() - 0.5) * 10;
        if (i % 13 == 0) {
            y = (double)((int)(random_unit() * 40) - 20);
            x = -x;
        }
        if (distance(cw_pow(x, y), pow(x, y)) > 1)
            fail_msg("pow(%a, %a) = %a, libm %a", x, y, cw_pow(x, y), pow(x, y));
        x = (random_unit() - 0.5) * (i & 1 ? 13 : 0x1p21);
        if (distance(cw_sin(x), sin(x)) > 1 || distance(cw_cos(x), cos(x)) > 1)
            fail_msg("sin, cos(%a) = %a, %a, libm %a, %a", x, cw_sin(x), cw_cos(x), sin(x), cos(x));
    }
    for (int degrees = -720; degrees <= 720; degrees++) { /* near zeros of both */
        double x = degrees * (3.14159265358979323846 / 180);
        assert_true(distance(cw_sin(x), sin(x)) <= 1 && distance(cw_cos(x), cos(x)) <= 1);
    }
    assert_true(isnan(cw_sin(0x1p21)) && isnan(cw_cos(INFINITY)) && isnan(cw_sin(NAN)));
}

static void special_cases(void **unused) /* Annex F: signs of zeros too */
{
    (void)unused;
    static const double v[] = {
        0.0,
        -0.0,
        1,
        -1,
        2,
        -2,
        0.5,
        -0.5,
        3,
        -3,
        INFINITY,
        -INFINITY,
        NAN,
        1e300,
        -1e300,
        1e-300,
        0x1p-1074,
        -0x1p-1074,
        1.5,
        -1.5,
        0x1p53,
        0x1p53 + 2,
        -0x1p53 - 1,
        1e-20,
        -1e-20,
        0x1p64,
        -0x1p63,
        0x1.0000000000001p0,
        0x1.fffffffffffffp-1,
        709.782712893384,
        709.7827128933841,
        -745.1332191019411,
        -745.1332191019412,
        -708.4,
        1023,
        -1074,
        -1075,
    };
    for (size_t i = 0; i < CW_COUNT_OF(v); i++) {
        assert_true(distance(cw_exp(v[i]), exp(v[i])) <= 1);
        assert_true(distance(cw_log(v[i]), log(v[i])) <= 1);
        for (size_t k = 0; k < CW_COUNT_OF(v); k++) {
            double want = pow(v[i], v[k]), have = cw_pow(v[i], v[k]);
            if (distance(have, want) > 1 || (!isnan(want) && signbit(want) != signbit(have)))
                fail_msg("pow(%a, %a) = %a, libm %a", v[i], v[k], have, want);
        }
    }
    assert_true(signbit(cw_log(1.0)) == 0);
}

/* The same on every machine: these bits are part of what draws and expressions promise. */
static void fixed_bits(void **unused)
{
    (void)unused;
    static const double e[][2] = {
        {0x1p+0, 0x1.5bf0a8b145769p+1},
        {-0x1p+0, 0x1.78b56362cef38p-2},
        {0x1p-1, 0x1.a61298e1e069cp+0},
        {0x1.4p+3, 0x1.5829dcf95056p+14},
        {-0x1.44p+4, 0x1.b93de1e27ca3bp-30},
        {0x1.5ep+9, 0x1.d945df4f8ec8ep+1009},
        {-0x1.624p+9, 0x0.e6cf6d08897acp-1022},
        {-0x1.74p+9, 0x0.0000000000002p-1022},
        {0x1p-60, 0x1p+0},
        {0x1.921fb54442d18p+1, 0x1.724046eb09339p+4},
    };
    static const double l[][2] = {
        {0x1p+1, 0x1.62e42fefa39efp-1},
        {0x1.4p+3, 0x1.26bb1bbb55516p+1},
        {0x1.999999999999ap-4, -0x1.26bb1bbb55515p+1},
        {0x1.0000000000001p+0, 0x1.fffffffffffffp-53},
        {0x1.fffffffffffffp-1, -0x1p-53},
        {0x1.8p+0, 0x1.9f323ecbf984cp-2},
        {0x0.0000000000001p-1022, -0x1.74385446d71c3p+9},
        {0x1.fffffffffffffp+1023, 0x1.62e42fefa39efp+9},
        {0x1.921fb54442d18p+1, 0x1.250d048e7a1bdp+0},
        {0x1.6a09e667f3bcdp-1, -0x1.62e42fefa39eep-2},
    };
    static const double p[][3] = {
        {0x1p+1, 0x1.4p+3, 0x1p+10},
        {0x1.4p+3, -0x1.8p+1, 0x1.0624dd2f1a9fcp-10},
        {0x1.199999999999ap+0, 0x1.9p+6, 0x1.aea4e6126bb95p+13},
        {0x1.3333333333333p-2, 0x1.6666666666666p-1, 0x1.b8d809c615f41p-2},
        {0x1.2a05f2p+33, 0x1.ep+4, 0x1.7e43c8800759cp+996},
        {0x1.4f8b588e368f1p-17, 0x1.ep+5, 0x1.56e1fc2f8f376p-997},
        {0x1.0000000000001p+0, 0x1.1c37937e08p+53, 0x1.26c41b1a61c92p+3},
        {0x1.ep+2, -0x1.2cp+8, 0x1.e8b496e900eb7p-873},
        {0x0.0000000000001p-1022, 0x1p-1, 0x1p-537},
        {0x1.8p+1, 0x1.48p+5, 0x1.fa2a1cf67b5fcp+64},
    };
    static const double t[][3] = {
        {0x1p+0, 0x1.aed548f090ceep-1, 0x1.14a280fb5068cp-1},
        {-0x1p-1, -0x1.eaee8744b05f0p-2, 0x1.c1528065b7d50p-1},
        {0x1.8000000000000p+1, 0x1.210386db6d55bp-3, -0x1.fae04be85e5d2p-1},
        {0x1.921fb54442d18p+0, 0x1p+0, 0x1.1a62633145c07p-54},
        {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53, -0x1p+0},
        {0x1.9000000000000p+6, -0x1.03425b78c4db8p-1, 0x1.b981dbf665fdfp-1},
        {-0x1.e240c80000000p+19, -0x1.60a1bcd7cc27fp-2, 0x1.e0aeff3330cabp-1},
        {0x1.b7cdfd9d7bdbbp-34, 0x1.b7cdfd9d7bdbbp-34, 0x1p+0},
        {0x1.921fb54442d18p-1, 0x1.6a09e667f3bccp-1, 0x1.6a09e667f3bcdp-1},
    };
    for (size_t i = 0; i < CW_COUNT_OF(t); i++) {
        assert_int_equal(distance(cw_sin(t[i][0]), t[i][1]), 0);
        assert_int_equal(distance(cw_cos(t[i][0]), t[i][2]), 0);
    }
    for (size_t i = 0; i < CW_COUNT_OF(e); i++)
        assert_int_equal(distance(cw_exp(e[i][0]), e[i][1]), 0);
    for (size_t i = 0; i < CW_COUNT_OF(l); i++)
        assert_int_equal(distance(cw_log(l[i][0]), l[i][1]), 0);
    for (size_t i = 0; i < CW_COUNT_OF(p); i++)
        assert_int_equal(distance(cw_pow(p[i][0], p[i][1]), p[i][2]), 0);
}

static void exact_powers(void **unused)
{
    (void)unused;
    for (int x = 1; x <= 30; x++) {
        double r = 1;
        for (int y = 0; y <= 10; y++, r *= x)
            assert_int_equal(distance(cw_pow(x, y), r), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_libm),
        cmocka_unit_test(special_cases),
        cmocka_unit_test(fixed_bits),
        cmocka_unit_test(exact_powers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
