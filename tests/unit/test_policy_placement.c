/* What auto derives for jobs with local workers: the surface of the input's time, the training host, and the
 * combinations of workers that plans try. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "policy/plan.h"

static void assert_close(double value, double expected, double part)
{
    if (!(fabs(value - expected) <= part * fabs(expected)))
        fail_msg("%g: expected %g", value, expected);
}

static double guessed(const struct cw_surface *s, double capacity, double local)
{
    double sum = 0;
    for (size_t i = 0; i < s->n_guesses; i++)
        sum += s->guesses[i].weight * cw_guess_s(&s->guesses[i], capacity, local);
    return sum * cw_surface_left(s, capacity, local);
}

static struct cw_point measured(double remote, double local, double s)
{
    return (struct cw_point){.workers = remote + local, .s = s, .error = 0.002, .local = local};
}

/* 10 s with one worker, at least 1 s, and 5 % more for each local worker beyond four. */
static double slowed(double remote, double local)
{
    double f = 1 + 0.05 * fmax(local - 4, 0);
    return f * fmax(10 / (remote + local), 1);
}

/* Once points differ in both numbers, slowing down is told from a limit, also where nothing was measured. */
static void test_slowing_down_is_no_limit(void **state)
{
    (void)state;
    struct cw_surface s;
    const double at[][2] = {{1, 0}, {4, 8}, {8, 8}, {12, 4}, {2, 12}};
    struct cw_point points[5];
    for (size_t i = 0; i < 5; i++)
        points[i] = measured(at[i][0], at[i][1], slowed(at[i][0], at[i][1]));
    cw_surface_fit(points, 5, &s);
    assert_close(guessed(&s, 16, 0), 1, 0.12);
    assert_close(guessed(&s, 16, 12), slowed(4, 12), 0.12);
    assert_true(cw_surface_keep(&s, CW_GUESS_SLOWED) > 0.9);
}

/* Two points leave both explanations. */
static void test_two_points_leave_both(void **state)
{
    (void)state;
    struct cw_surface s;
    const struct cw_point points[] = {measured(1, 0, 10), measured(8, 8, 1.2)};
    cw_surface_fit(points, 2, &s);
    double weight = cw_surface_keep(&s, CW_GUESS_SLOWED);
    assert_true(weight > 0.1 && weight < 0.9);
}

/* Workers that slow each other down: the time rises again. */
static void test_more_workers_may_be_slower(void **state)
{
    (void)state;
    struct cw_surface s;
    const double at[][2] = {{1, 0}, {32, 8}, {32, 0}, {8, 4}};
    struct cw_point points[4];
    for (size_t i = 0; i < 4; i++)
        points[i] = measured(at[i][0], at[i][1], 2 / (at[i][0] + at[i][1]) + 0.01 * (at[i][0] + at[i][1]));
    cw_surface_fit(points, 4, &s);
    assert_close(guessed(&s, 16, 0), 2.0 / 16 + 0.16, 0.1);
}

static struct cw_facts facts_of_host(double busy)
{
    struct cw_facts f = {.n_pools = 2};
    f.pools[0] = (struct cw_pool_facts){.name = "remote", .maximum = 3, .price_per_h = 1, .cpu_share = 1};
    f.pools[1] = (struct cw_pool_facts){.name = "local",
                                        .maximum = 2,
                                        .cpu_share = 2,
                                        .local = true,
                                        .host_cpus = 16,
                                        .host_busy_cpus = busy};
    return f;
}

/* The step is 0.1 s, and 10 % longer per CPU beyond those that are free. */
static void test_the_step_on_a_host(void **state)
{
    (void)state;
    struct cw_facts f = facts_of_host(10);
    struct cw_host h;
    const struct cw_point points[] = {{.step_s = 0.1}, {.over_cpus = 4, .step_s = 0.14}};
    cw_host_fit(&f, points, 2, 0.2, &h);
    assert_close(cw_host_step_s(&h, 3, 1), 0.1, 1e-9);  /* 6 CPUs, which are free */
    assert_close(cw_host_step_s(&h, 6, 1), 0.16, 1e-9); /* 12: 6 too many */
    assert_true(cw_host_step_s(&h, 6, 0.07) < 0.13);    /* workers that are idle half of the time */
    f = facts_of_host(16);
    cw_host_fit(&f, points, 2, 0.2, &h);
    assert_close(cw_host_step_s(&h, 3, 1), 0.16, 1e-9); /* a host that became busy */
    cw_host_fit(&f, points, 1, 0.2, &h);
    assert_true(h.n > 1 && cw_host_step_s(&h, 0, 1) == 0.1); /* not known yet: guesses */
    f.pools[1].host_cpus = 0;
    cw_host_fit(&f, points, 1, 0.2, &h);
    assert_true(cw_host_step_s(&h, 3, 1) == 0.1); /* nothing is known of the host */
}

/* All combinations, each once; without local workers alone, if these can't run. */
static void test_plans_combine_local_and_other_workers(void **state)
{
    (void)state;
    const struct cw_facts f = facts_of_host(0);
    for (int alone = 0; alone <= 1; alone++) {
        struct cw_supply s;
        int seen[4][3] = {{0}}, n = 0;
        cw_supply_init(&s, &f, NULL, 0);
        s.local_alone = alone;
        for (struct cw_rung r = {0}; cw_supply_next(&s, 1, &r); n++) {
            assert_int_equal(r.local, r.workers[1]);
            seen[r.workers[0]][r.workers[1]]++;
        }
        assert_int_equal(n, alone ? 11 : 9);
        assert_int_equal(seen[0][0], 0);
        assert_int_equal(seen[0][2], alone);
        assert_int_equal(seen[3][2], 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slowing_down_is_no_limit),
        cmocka_unit_test(test_two_points_leave_both),
        cmocka_unit_test(test_more_workers_may_be_slower),
        cmocka_unit_test(test_the_step_on_a_host),
        cmocka_unit_test(test_plans_combine_local_and_other_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
