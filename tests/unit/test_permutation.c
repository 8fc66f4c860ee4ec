/* Permutations of many positions (base/permutation.h): known vectors, and how evenly they mix. Statistics use
 * fixed keys, so they can't fail by chance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/macro.h"
#include "base/permutation.h"
#include "base/philox.h"
#include "sample.h"

/* As tests/model/philox.py computes them. */
static void test_vectors(void **state)
{
    (void)state;

    static const struct {
        uint64_t key, n, first[6], last;
    } vectors[] = {
        {UINT64_C(0x0), UINT64_C(65537), {42422, 45945, 16869, 51888, 57897, 59548}, UINT64_C(24455)},
        {UINT64_C(0x2a), UINT64_C(100000), {16098, 59205, 7078, 72868, 22023, 19416}, UINT64_C(90998)},
        {UINT64_C(0x123456789abcdef0),
         UINT64_C(1000003),
         {412042, 909808, 922851, 273607, 894879, 186131},
         UINT64_C(979690)},
        {UINT64_C(0x7),
         UINT64_C(10000000000),
         {UINT64_C(4055813867), UINT64_C(5789964222), UINT64_C(3599226968), UINT64_C(5992021857), 1578688392,
          1075873643},
         UINT64_C(6105122940)},
        {UINT64_C(0xffffffffffffffff),
         UINT64_C(4611686018427387904),
         {UINT64_C(3574794914907036141), UINT64_C(2552444025463810397), UINT64_C(3006289245199175262),
          UINT64_C(3895709265302598268), UINT64_C(729950497846699201), UINT64_C(1742822756856239617)},
         UINT64_C(1902699152538216624)},
    };

    for (size_t i = 0; i < CW_COUNT_OF(vectors); i++) {
        struct cw_permutation p;
        uint64_t out[6], last = vectors[i].n - 1;
        cw_permutation_init(&p, vectors[i].key, vectors[i].n);
        cw_permutation_run(&p, 0, 6, out);
        cw_permutation_map(&p, &last, 1);
        assert_memory_equal(out, vectors[i].first, sizeof(out));
        assert_int_equal(last, vectors[i].last);
    }
}

/* Each position comes once, in runs of any length from anywhere, and the same one by one. */
static void test_every_position_comes_once(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {2, 3, 4, 5, 17, 256, 257, 65536, 65537, 66049, 66050, 99991, 262144};
    for (size_t i = 0; i < CW_COUNT_OF(sizes); i++) {
        uint64_t n = sizes[i], *run = calloc(n, sizeof(*run)), *map = calloc(n, sizeof(*map));
        uint8_t *seen = calloc(n, 1);
        struct cw_permutation p;
        cw_permutation_init(&p, n, n);
        for (uint64_t at = 0, count = 1; at < n; at += count, count = CW_MIN(count * 3 + 1, n - at))
            cw_permutation_run(&p, at, count, run + at);
        for (uint64_t k = 0; k < n; k++)
            map[k] = k;
        cw_permutation_map(&p, map, n);
        for (uint64_t k = 0; k < n; k++) {
            assert_true(run[k] < n && !seen[run[k]]);
            seen[run[k]] = 1;
            assert_int_equal(run[k], map[k]);
        }
        free(run);
        free(map);
        free(seen);
    }
}

static void test_the_largest(void **state)
{
    (void)state;
    struct cw_permutation p;
    uint64_t at[40];
    cw_permutation_init(&p, 3, CW_PERMUTATION_MOST);
    assert_true(p.rows * p.columns == CW_PERMUTATION_MOST && p.rows == UINT64_C(1) << 31);
    cw_permutation_run(&p, CW_PERMUTATION_MOST - 40, 40, at);
    for (size_t i = 0; i < 40; i++)
        assert_true(at[i] < CW_PERMUTATION_MOST);
}

/* Of few positions every permutation occurs, evenly: that is why they have a table. 720 cells of 100: 99.99 %
 * of chi-squared are below 866. */
static void test_every_permutation_of_a_table_occurs(void **state)
{
    (void)state;

    enum { N = 6, CELLS = 720, EACH = 100 };

    unsigned seen[CELLS] = {0};
    for (uint64_t key = 0; key < CELLS * EACH; key++) {
        uint32_t a[N], cell = 0;
        for (uint32_t i = 0; i < N; i++)
            a[i] = i;
        cw_permute(key * UINT64_C(0x9e3779b97f4a7c15), a, N, sizeof(a[0]));
        for (unsigned i = 0; i < N; i++) { /* the rank of the permutation */
            unsigned smaller = 0;
            for (unsigned k = i + 1; k < N; k++)
                smaller += a[k] < a[i];
            cell = cell * (N - i) + smaller;
        }
        seen[cell]++;
    }
    double chi = 0;
    for (unsigned i = 0; i < CELLS; i++)
        chi += (double)((int)seen[i] - EACH) * ((int)seen[i] - EACH) / EACH;
    assert_true(chi < 866);
}

enum { PARTS = 16 };

/* Sum of (seen - expected)^2 / expected over the cells. */
static double chi_squared(const unsigned *seen, size_t cells, double n)
{
    double chi = 0, expected = n / (double)cells;
    for (size_t i = 0; i < cells; i++)
        chi += ((double)seen[i] - expected) * ((double)seen[i] - expected) / expected;
    return chi;
}

static unsigned part_of(uint64_t value, uint64_t n)
{
    return (unsigned)((unsigned __int128)value * PARTS / n);
}

/*
 * Over 1,000 keys, at several n: where a position lands (in which sixteenth), by the sixteenth it comes from
 * (256 cells); how neighbours land in relation to each other (serial test, 256 cells); and how far neighbours
 * are apart. The sums over all keys have chi-squared distributions of known mean and deviation: within 5
 * deviations.
 */
static void test_positions_and_neighbours_land_evenly(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {65537, 100000, 1000000, UINT64_C(10000000000), UINT64_C(1) << 61};

    enum { AT = 512 };

    for (size_t s = 0; s < CW_COUNT_OF(sizes); s++) {
        uint64_t n = sizes[s];
        unsigned from[PARTS * PARTS] = {0}, serial[PARTS * PARTS] = {0}, apart[PARTS] = {0};
        size_t keys = sample_size(1000);
        for (uint64_t key = 0; key < keys; key++) {
            struct cw_permutation p;
            uint64_t at[AT], out[AT];
            cw_permutation_init(&p, key, n);
            for (size_t i = 0; i < AT; i++)
                at[i] = out[i] = n / AT * i + key % (n / AT);
            cw_permutation_map(&p, out, AT);
            for (size_t i = 0; i < AT; i++)
                from[part_of(at[i], n) * PARTS + part_of(out[i], n)]++;
            cw_permutation_run(&p, key * 61 % (n - AT), AT, out);
            for (size_t i = 0; i + 1 < AT; i += 2) {
                serial[part_of(out[i], n) * PARTS + part_of(out[i + 1], n)]++;
                apart[part_of((out[i + 1] + n - out[i]) % n, n)]++;
            }
        }
        double pairs = (double)keys * AT / 2, cells = PARTS * PARTS - 1;
        assert_true(chi_squared(from, PARTS * PARTS, (double)keys * AT) <
                    cells + 5 * __builtin_sqrt(2 * cells));
        assert_true(chi_squared(serial, PARTS * PARTS, pairs) < cells + 5 * __builtin_sqrt(2 * cells));
        assert_true(chi_squared(apart, PARTS, pairs) < PARTS - 1 + 5 * __builtin_sqrt(2 * (PARTS - 1)));
    }
}

/* Keys that differ in one bit give permutations that have nothing in common: fixed points of one after the
 * other are as rare as by chance. */
static void test_close_keys_are_unrelated(void **state)
{
    (void)state;
    uint64_t n = 70000, *a = malloc(n * sizeof(*a)), *b = malloc(n * sizeof(*b));
    for (unsigned bit = 0; bit < 64; bit += 7) {
        struct cw_permutation p, q;
        uint64_t same = 0, near = 0;
        cw_permutation_init(&p, 12345, n);
        cw_permutation_init(&q, 12345 ^ UINT64_C(1) << bit, n);
        cw_permutation_run(&p, 0, n, a);
        cw_permutation_run(&q, 0, n, b);
        for (uint64_t i = 0; i < n; i++) {
            same += a[i] == b[i];
            near += a[i] / 700 == b[i] / 700;
        }
        assert_true(same < 12);                /* Poisson of mean 1 */
        assert_true(near > 550 && near < 850); /* of mean 700, deviation 26 */
    }
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_every_position_comes_once),
        cmocka_unit_test(test_the_largest),
        cmocka_unit_test(test_every_permutation_of_a_table_occurs),
        cmocka_unit_test(test_positions_and_neighbours_land_evenly),
        cmocka_unit_test(test_close_keys_are_unrelated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
