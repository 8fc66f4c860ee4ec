/* The memory budget, and arenas that are charged to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/macro.h"
#include "data/arena.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static void test_budget(void **state)
{
    (void)state;
    struct cw_budget b;
    struct cw_error err = {0};
    cw_budget_init(&b, 1000);
    assert_int_equal(cw_budget_take(&b, 600, "a thing", &err), 0);
    assert_int_equal(cw_budget_take(&b, 401, "a thing", &err), CW_E_BUDGET);
    assert_non_null(strstr(err.message, "a thing"));
    assert_non_null(strstr(err.message, "401"));
    assert_non_null(strstr(err.message, "1.0 kB"));
    assert_int_equal(cw_budget_take(&b, 400, "a thing", &err), 0);
    assert_int_equal(cw_budget_take(&b, 0, "nothing", &err), 0);
    assert_int_equal(cw_budget_take(&b, SIZE_MAX, "everything", NULL), CW_E_BUDGET);
    assert_int_equal(b.used, 1000);
    cw_budget_give(&b, 1000);
    assert_int_equal(b.used, 0);
    assert_int_equal(b.peak, 1000);
    cw_budget_force(&b, 1200); /* beyond the limit */
    assert_int_equal(b.used, 1200);
    assert_int_equal(b.peak, 1200);
    assert_int_equal(cw_budget_left(&b), 0);
    assert_int_equal(cw_budget_take(&b, 1, "a byte", &err), CW_E_BUDGET);
    cw_budget_give(&b, 1200);
    assert_int_equal(cw_budget_left(&b), 1000);
    cw_budget_init(&b, 0);
    assert_int_equal(cw_budget_take(&b, 1, "a byte", &err), CW_E_BUDGET);
}

static void *take_and_give(void *arg)
{
    struct cw_budget *b = arg;
    size_t taken = 0;
    for (size_t i = 0; i < 20000; i++) {
        size_t n = i % 97 + 1;
        if (cw_budget_take(b, n, "a piece", NULL) == 0)
            taken += n;
        if (i % 5 == 4) {
            cw_budget_give(b, taken);
            taken = 0;
        }
    }
    cw_budget_give(b, taken);
    return NULL;
}

static void test_budget_threads(void **state)
{
    (void)state;
    struct cw_budget b;
    pthread_t threads[4];
    cw_budget_init(&b, 700);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &b), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(b.used, 0);
    assert_true(b.peak <= 700);
}

static void test_arena(void **state)
{
    (void)state;
    struct cw_budget budget;
    struct cw_arena a;
    struct cw_error err = {0};
    uint8_t *p[300];
    cw_budget_init(&budget, 64 * MIB);
    cw_arena_init(&a, &budget);
    assert_int_equal(budget.used, 0); /* nothing before it is needed */
    size_t total = 0;
    for (size_t i = 0; i < CW_COUNT_OF(p); i++) {
        size_t n = i * 37;
        p[i] = cw_arena_alloc(&a, n, &err);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        memset(p[i], (int)i, n);
        total += n;
    }
    for (size_t i = 1; i < CW_COUNT_OF(p); i++) { /* nobody wrote over anybody */
        assert_int_equal(p[i][0], i % 256);
        assert_int_equal(p[i][i * 37 - 1], i % 256);
    }
    assert_true(budget.used >= total);
    uint8_t *big = cw_arena_alloc(&a, 10 * MIB, &err);
    assert_non_null(big);
    big[10 * MIB - 1] = 1;
    size_t before = budget.used;
    cw_arena_reset(&a, SIZE_MAX); /* keeps everything */
    assert_int_equal(budget.used, before);
    assert_non_null(cw_arena_alloc(&a, 10 * MIB, &err));
    assert_non_null(cw_arena_alloc(&a, 100, &err));
    /* kept chunks are used in their order: those too small for a request are passed over */
    assert_true(budget.used <= before + 14 * MIB);
    cw_arena_reset(&a, 128 * KIB);
    assert_true(budget.used <= 128 * KIB);
    cw_arena_deinit(&a);
    assert_int_equal(budget.used, 0);
    cw_arena_deinit(&a);
}

static void test_arena_keeps_to_the_budget(void **state)
{
    (void)state;
    struct cw_budget budget;
    struct cw_arena a;
    struct cw_error err = {0};
    cw_budget_init(&budget, MIB);
    cw_arena_init(&a, &budget);
    assert_null(cw_arena_alloc(&a, MIB + 1, &err));
    assert_int_equal(err.status, CW_E_BUDGET);
    assert_null(cw_arena_alloc(&a, SIZE_MAX, &err));
    assert_null(cw_arena_alloc(&a, SIZE_MAX / 2, &err));
    size_t n = 0;
    while (cw_arena_alloc(&a, 10000, &err))
        n++;
    assert_true(n > 50 && n <= 104);
    assert_true(budget.used <= MIB);
    cw_arena_reset(&a, 0);
    assert_int_equal(budget.used, 0);
    assert_non_null(cw_arena_alloc(&a, MIB, &err));
    cw_arena_deinit(&a);
    assert_int_equal(budget.used, 0);
}

static void test_marks(void **state)
{
    (void)state;
    struct cw_budget budget;
    struct cw_arena a;
    struct cw_error err = {0};
    cw_budget_init(&budget, 64 * MIB);
    cw_arena_init(&a, &budget);
    struct cw_arena_mark empty = cw_arena_mark(&a);
    uint8_t *first = cw_arena_alloc(&a, 1000, &err);
    memset(first, 7, 1000);
    struct cw_arena_mark m = cw_arena_mark(&a);
    size_t settled = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 10; i++)
            memset(cw_arena_alloc(&a, 50000, &err), round, 50000);
        cw_arena_release(&a, m);
        if (round == 1)
            settled = budget.used;
        if (round > 1)
            assert_int_equal(budget.used, settled); /* rounds after the first use what it left */
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(first[i], 7);
    cw_arena_release(&a, empty);
    assert_non_null(cw_arena_alloc(&a, 1, &err));
    cw_arena_deinit(&a);
    assert_int_equal(budget.used, 0);
}

static void test_reservations(void **state)
{
    (void)state;
    struct cw_budget budget;
    struct cw_arena a;
    struct cw_error err = {0};
    cw_budget_init(&budget, 1000);
    cw_arena_init(&a, &budget);
    assert_int_equal(cw_arena_reserve(&a, 600, "a decoder", &err), 0);
    assert_int_equal(cw_arena_reserve(&a, 600, "a decoder", &err), CW_E_BUDGET);
    assert_non_null(strstr(err.message, "a decoder"));
    cw_arena_unreserve(&a, 200);
    assert_int_equal(budget.used, 400);
    assert_int_equal(cw_arena_reserve(&a, 600, "a decoder", &err), 0);
    cw_arena_reset(&a, 0);
    assert_int_equal(budget.used, 0);
    cw_arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget), cmocka_unit_test(test_budget_threads),
        cmocka_unit_test(test_arena),  cmocka_unit_test(test_arena_keeps_to_the_budget),
        cmocka_unit_test(test_marks),  cmocka_unit_test(test_reservations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
