/* Series of measurements that are kept as means: against a reference that keeps everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/macro.h"
#include "service/dispatcher/series.h"

#define DAYS_8 (8 * 86400 / 2) /* points: more than any tier keeps */
#define START_NS UINT64_C(1000000000)

static const unsigned factors[] = {1, 4, 96, 672};

/* Time of a point. Each one is up to 0.9 s late, as ticks are; so times are no multiples of the interval. */
static uint64_t time_of(size_t i)
{
    return START_NS + (i + 1) * SERIES_INTERVAL_NS + i * 7 % 10 * 90000000;
}

/* A value of a point. Column 1 is unknown for a day from time to time, column 2 mostly, column 3 always. */
static float value_of(size_t i, size_t column)
{
    switch (column) {
    case 0:
        return (float)i;
    case 1:
        return i / 43200 % 2 ? NAN : (float)(i % 97);
    case 2:
        return i % 5 ? NAN : (float)(i % 11);
    case 3:
        return NAN;
    default:
        return (float)((i * 2654435761U) % 1000) / 7;
    }
}

static struct series_point point_of(size_t i)
{
    struct series_point p = {.at_ns = time_of(i)};
    for (size_t column = 0; column < SERIES_COLUMNS; column++)
        p.values[column] = value_of(i, column);
    return p;
}

/* The mean of the known values of the points from first to end, which is excluded. */
static double mean_of(size_t first, size_t end, size_t column)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = first; i < end; i++) {
        if (!isnan(value_of(i, column))) {
            sum += value_of(i, column);
            n++;
        }
    }
    return n > 0 ? sum / (double)n : NAN;
}

/* Compares what is read with what n added points give: means of blocks, of which the last SERIES_POINTS are
 * kept, and the mean of the rest. */
static void check(const struct series *s, size_t n, uint64_t from_ns, uint64_t to_ns)
{
    struct series_point got[SERIES_POINTS + 1];
    double interval_s;
    size_t n_got = cw_dp_series_read(s, from_ns, to_ns, got, &interval_s), tier = 0, k = 0;
    while (2.0 * factors[tier] != interval_s)
        tier++;
    size_t factor = factors[tier], n_blocks = n / factor, kept = CW_MIN(n_blocks, (size_t)SERIES_POINTS);
    /* it reaches back to from_ns, but for two points, or there is no older point or coarser tier */
    size_t oldest = n_blocks - kept;
    if (oldest > 0 && tier + 1 < SERIES_TIERS)
        assert_true(time_of((oldest + 1) * factor - 1) <= from_ns + 2 * factor * SERIES_INTERVAL_NS);
    if (tier > 0) { /* no finer tier does */
        size_t fine = factors[tier - 1], gone = n / fine - CW_MIN(n / fine, (size_t)SERIES_POINTS);
        assert_true(gone > 0);
        assert_true(time_of((gone + 1) * fine - 1) > from_ns + 2 * fine * SERIES_INTERVAL_NS);
    }
    for (size_t block = oldest; block * factor < n; block++) {
        size_t first = block * factor, end = CW_MIN(first + factor, n);
        uint64_t at_ns = time_of(end - 1);
        if (at_ns < from_ns || at_ns > to_ns)
            continue;
        assert_true(k < n_got);
        assert_int_equal(got[k].at_ns, at_ns);
        for (size_t column = 0; column < SERIES_COLUMNS; column++) {
            double want = mean_of(first, end, column), value = got[k].values[column];
            if (isnan(want) != isnan(value) || (!isnan(want) && fabs(value - want) > 1e-6 * fabs(want)))
                fail_msg("point %zu of tier %zu, column %zu: %g, expected %g", k, tier, column, value, want);
        }
        k++;
    }
    assert_int_equal(k, n_got);
}

static void test_means_are_those_of_a_reference(void **state)
{
    (void)state;
    static const double spans_s[] = {0, 1, 60, 899, 900, 901, 3600, 7200, 86400, 7 * 86400, 30 * 86400};
    static const size_t looks[] = {0,    1,    3,    4,     449,   450,   451,    1799,       1800,
                                   1801, 1811, 5000, 43199, 43200, 43300, 302400, DAYS_8 - 1, DAYS_8};
    struct series s = {0};
    size_t n = 0;
    for (size_t look = 0; look < CW_COUNT_OF(looks); look++) {
        for (; n < looks[look]; n++) {
            struct series_point p = point_of(n);
            cw_dp_series_add(&s, &p);
        }
        uint64_t now_ns = n > 0 ? time_of(n - 1) : START_NS;
        for (size_t i = 0; i < CW_COUNT_OF(spans_s); i++) {
            uint64_t span_ns = (uint64_t)(1e9 * spans_s[i]),
                     from_ns = now_ns > span_ns ? now_ns - span_ns : 0;
            check(&s, n, from_ns, UINT64_MAX);
            check(&s, n, from_ns, from_ns + span_ns / 2);
        }
        check(&s, n, now_ns, 0); /* nothing is in between */
    }
    cw_dp_series_deinit(&s);
}

/* Each span that the dashboard offers is read from the tier that is made for it. */
static void test_each_span_has_its_tier(void **state)
{
    (void)state;

    static const struct {
        double span_s, interval_s;
    } want[] = {{900, 2}, {3600, 8}, {86400, 192}, {7 * 86400, 1344}};
    struct series s = {0};
    struct series_point got[SERIES_POINTS + 1];
    for (size_t i = 0; i < DAYS_8; i++) {
        struct series_point p = {.at_ns = START_NS + i * SERIES_INTERVAL_NS};
        cw_dp_series_add(&s, &p);
    }
    uint64_t now_ns = START_NS + (DAYS_8 - 1) * SERIES_INTERVAL_NS;
    for (size_t i = 0; i < CW_COUNT_OF(want); i++) {
        double interval_s;
        size_t n = cw_dp_series_read(&s, now_ns - (uint64_t)(1e9 * want[i].span_s), UINT64_MAX, got,
                                     &interval_s);
        assert_true(interval_s == want[i].interval_s);
        assert_in_range(n, SERIES_POINTS - 2, SERIES_POINTS + 1);
    }
    cw_dp_series_deinit(&s);
}

/* Memory is bounded: a tier has its points from its first one on, and no more later. */
static void test_memory(void **state)
{
    (void)state;
    struct series s = {0};
    const struct series_point *points[SERIES_TIERS];
    for (size_t i = 0; i < 2 * 672 * SERIES_POINTS; i++) {
        struct series_point p = point_of(i);
        cw_dp_series_add(&s, &p);
        for (size_t t = 0; t < SERIES_TIERS; t++) {
            if (i + 1 == factors[t])
                points[t] = s.tiers[t].points;
            assert_true(i + 1 < factors[t] ? !s.tiers[t].points : s.tiers[t].points == points[t]);
        }
    }
    assert_true(SERIES_TIERS * SERIES_POINTS * sizeof(struct series_point) <= 72000);
    cw_dp_series_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means_are_those_of_a_reference),
        cmocka_unit_test(test_each_span_has_its_tier),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
