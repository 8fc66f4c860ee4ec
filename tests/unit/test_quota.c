/* The order of turns by weight: each prefix has its share of each input, and each place is found without the
 * places before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macro.h"
#include "dataset/sequence.h"
#include "ops/sequence/quota.h"
#include "sample.h"

#define PLACES 20000
#define INPUTS 40

static uint64_t rng;

static double draw(void)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return ((double)(rng >> 33) + 0.5) / 0x1p31;
}

/* Random weights of four kinds: real numbers, small integers, very different ones, decimal fractions. */
static unsigned draw_weights(unsigned kind, double *ret)
{
    unsigned n = 1 + (unsigned)(draw() * (kind % 9 == 0 ? INPUTS : 7));
    for (unsigned i = 0; i < n; i++)
        ret[i] = kind % 4 == 0   ? draw() + 1e-3
                 : kind % 4 == 1 ? 1 + floor(5 * draw())
                 : kind % 4 == 2 ? pow(10, -4 * draw())
                                 : (1 + floor(20 * draw())) / 10;
    return n;
}

static double sum(const double *weights, unsigned n)
{
    double all = 0;
    for (unsigned i = 0; i < n; i++)
        all += weights[i];
    return all;
}

static void test_prefixes_and_places(void **state)
{
    (void)state;
    for (unsigned k = 0; k < sample_size(500); k++) {
        double weights[INPUTS];
        uint64_t scaled[INPUTS], *counts = malloc(PLACES * sizeof(*counts));
        uint8_t *inputs = malloc(PLACES);
        struct cw_quota q;
        rng = k;
        unsigned n = draw_weights(k, weights);
        double all = sum(weights, n), bound = n > 1 ? 1 - 1.0 / (2 * n - 2) : 0;
        cw_quota_init(&q, weights, n, scaled);
        struct cw_quota_place *p = cw_quota_place_new(&q);
        for (unsigned at = 0; at < PLACES; at++) {
            unsigned i = cw_quota_next(p);
            inputs[at] = (uint8_t)i;
            counts[at] = p->inputs[i].count;
            cw_quota_take(p, i);
            for (unsigned j = 0; j < n; j++)
                if (fabs((double)p->inputs[j].count - (at + 1) * (weights[j] / all)) > bound + 1e-9)
                    fail_msg("weights %u: %u elements of input %u among %u", k, (unsigned)p->inputs[j].count,
                             j, at + 1);
        }
        for (unsigned seek = 0; seek < 100; seek++) {
            unsigned at = (unsigned)(draw() * PLACES);
            cw_quota_seek(p, at);
            for (; at < PLACES && at % 8 != 7; at++) {
                unsigned i = cw_quota_next(p);
                if (i != inputs[at] || p->inputs[i].count != counts[at])
                    fail_msg("weights %u, place %u: input %u, expected %u", k, at, i, inputs[at]);
                cw_quota_take(p, i);
            }
        }
        for (unsigned found = 0; found < 20; found++) {
            unsigned at = (unsigned)(draw() * PLACES);
            assert_int_equal(cw_quota_find(p, inputs[at], counts[at] + 1), at + 1);
        }
        free(p);
        free(counts);
        free(inputs);
    }
}

/* Two ways to the same place far out: from itself, and in steps from a place long before it. */
static void test_far_out(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 40; k++) {
        double weights[INPUTS];
        uint64_t scaled[INPUTS], at = UINT64_C(1) << (30 + k % 31);
        struct cw_quota q;
        rng = 1000 + k;
        unsigned n = draw_weights(k, weights);
        cw_quota_init(&q, weights, n, scaled);
        struct cw_quota_place *p = cw_quota_place_new(&q), *before = cw_quota_place_new(&q);
        cw_quota_seek(p, at);
        cw_quota_seek(before, at - 3 * q.memory);
        while (before->at < at)
            cw_quota_take(before, cw_quota_next(before));
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(p->inputs[i].count, before->inputs[i].count);
            assert_int_equal(p->inputs[i].due, before->inputs[i].due);
            assert_int_equal(p->inputs[i].due_rest, before->inputs[i].due_rest);
            assert_int_equal(p->inputs[i].open, before->inputs[i].open);
            assert_int_equal(p->inputs[i].open_rest, before->inputs[i].open_rest);
        }
        assert_true(cw_quota_find(p, 0, UINT64_C(1) << 61) <= CW_ENDLESS);
        free(p);
        free(before);
    }
}

static void test_weights_in_any_unit(void **state)
{
    (void)state;
    static const double same[][3] = {{7, 2, 1}, {0.7, 0.2, 0.1}, {70, 20, 10}, {0.0007, 0.0002, 0.0001}};
    static const double large[][2] = {{1e18, 1e17}, {0.1 + 0.2, 1 / 3.0}, {1e-11, 3e-12}};
    for (size_t k = 0; k < CW_COUNT_OF(same); k++) {
        uint64_t scaled[3];
        struct cw_quota q;
        assert_int_equal(cw_quota_init(&q, same[k], 3, scaled), 2);
        assert_int_equal(q.total % scaled[2], 0);
        assert_int_equal(q.total / scaled[2], 10);
        assert_int_equal(scaled[0] / scaled[2], 7);
    }
    for (size_t k = 0; k < CW_COUNT_OF(large); k++) {
        uint64_t scaled[2];
        struct cw_quota q;
        cw_quota_init(&q, large[k], 2, scaled);
        assert_true(q.total < UINT64_C(1) << 61 && scaled[0] + scaled[1] == q.total);
        assert_true(fabs((double)scaled[0] / (double)q.total - large[k][0] / sum(large[k], 2)) < 1e-15);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefixes_and_places),
        cmocka_unit_test(test_far_out),
        cmocka_unit_test(test_weights_in_any_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
