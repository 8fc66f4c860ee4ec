/* How many calls run at a time where functions wait: the choice, with measurements handed in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/macro.h"
#include "policy/concurrency.h"

#define CPUS 2

/* A world: each call takes wait_s and uses cpu_s of one of `cpus` CPUs; a server answers at most `server`
 * calls at a time. */
struct world {
    double wait_s, cpu_s, cpus, server;
};

/* Returns what a second with n calls at a time shows. */
static struct cw_calls_seen world_second(const struct world *w, unsigned n)
{
    double at_once = CW_MIN((double)n, w->server), rate = at_once / (w->wait_s + w->cpu_s);
    if (w->cpu_s > 0)
        rate = CW_MIN(rate, w->cpus / w->cpu_s);
    return (struct cw_calls_seen){.seconds = 1,
                                  .elements = rate,
                                  .call_s = n,
                                  .call_cpu_s = rate * w->cpu_s,
                                  .cpu_share = rate * w->cpu_s / w->cpus};
}

static unsigned world_run(const struct world *w, struct cw_concurrency *c, int steps, unsigned most)
{
    for (int i = 0; i < steps; i++) {
        struct cw_calls_seen seen = world_second(w, c->n);
        cw_concurrency_step(c, &seen, most);
        assert_in_range(c->n, c->least, CW_MAX(most, c->least));
    }
    return c->n;
}

static void test_calls_that_wait_become_many(void **state CW_UNUSED)
{
    struct cw_concurrency c = cw_concurrency_begin(CPUS, "one for each CPU");
    assert_int_equal(world_run(&(struct world){0.02, 0.0001, CPUS, 1e9}, &c, 10, 64), 64);
    assert_string_equal(c.why, "the functions wait, and leave CPUs free");
}

/* All calls take a second, and end a millisecond after one another. */
static void test_calls_that_take_long_become_many(void **state CW_UNUSED)
{
    struct cw_concurrency c = cw_concurrency_begin(CPUS, "one for each CPU");
    struct cw_calls_seen seen = {0};
    double began = 0;
    for (unsigned wave = 1; wave < 100; wave++)
        for (unsigned i = 0; i < c.n; i++) {
            double now = wave + 0.001 * i;
            seen.elements += 1;
            seen.calls += 1;
            seen.call_s += 1;
            seen.seconds = now - began;
            if (!cw_concurrency_is_measured(&seen))
                continue;
            bool changed = cw_concurrency_step(&c, &seen, 64);
            seen = (struct cw_calls_seen){0};
            wave += changed; /* the first calls are not measured */
            began = changed ? wave + 0.001 * (c.n - 1) : now;
            if (changed)
                break;
        }
    assert_int_equal(c.n, 64);
}

static void test_calls_that_compute_stay_one_for_each_cpu(void **state CW_UNUSED)
{
    struct cw_concurrency c = cw_concurrency_begin(CPUS, "one for each CPU");
    assert_int_equal(world_run(&(struct world){0, 0.02, CPUS, 1e9}, &c, 50, 64), CPUS);
    assert_int_equal(world_run(&(struct world){0.004, 0.02, CPUS, 1e9}, &c, 50, 64), CPUS);
}

static void test_a_server_that_is_busy_gets_no_more_calls(void **state CW_UNUSED)
{
    struct cw_concurrency c = cw_concurrency_begin(CPUS, "one for each CPU");
    unsigned n = world_run(&(struct world){0.02, 0.0001, CPUS, 8}, &c, 10, 64);
    assert_int_equal(n, 8);
    assert_string_equal(c.why, "more calls at a time would not make it faster");
    /* it is tried again, because the server may have become faster */
    assert_int_equal(world_run(&(struct world){0.02, 0.0001, CPUS, 1e9}, &c, 40, 64), 64);
}

static void test_cpus_that_are_full_get_no_more_calls(void **state CW_UNUSED)
{
    struct cw_concurrency c = cw_concurrency_begin(CPUS, "one for each CPU");
    /* 20 calls at a time fill two CPUs */
    assert_int_equal(world_run(&(struct world){0.018, 0.002, CPUS, 1e9}, &c, 50, 64), 32);
}

static void test_functions_that_begin_to_compute_get_fewer_calls(void **state CW_UNUSED)
{
    struct cw_concurrency c = cw_concurrency_begin(CPUS, "one for each CPU");
    assert_int_equal(world_run(&(struct world){0.02, 0.0001, CPUS, 1e9}, &c, 10, 64), 64);
    /* each of them computes for the time that it runs: of 64 calls, most wait for a CPU */
    for (int i = 0; i < 10; i++) {
        struct cw_calls_seen seen = {.seconds = 1, .elements = 100, .call_s = c.n, .call_cpu_s = 0.6 * c.n};
        seen.cpu_share = 1;
        cw_concurrency_step(&c, &seen, 64);
    }
    assert_int_equal(c.n, CPUS);
    assert_string_equal(c.why, "the functions compute, and use all CPUs");
}

static void test_memory_bounds_the_calls(void **state CW_UNUSED)
{
    const struct world wait = {0.02, 0.0001, CPUS, 1e9};
    struct cw_concurrency c = cw_concurrency_begin(CPUS, "one for each CPU");
    assert_int_equal(world_run(&wait, &c, 10, 11), 11);
    /* hosts have become larger: fewer fit */
    struct cw_calls_seen seen = world_second(&wait, c.n);
    assert_true(cw_concurrency_step(&c, &seen, 5));
    assert_int_equal(c.n, 5);
    seen.short_of_memory = true;
    for (int i = 0; i < 5; i++)
        cw_concurrency_step(&c, &seen, 64);
    assert_int_equal(c.n, CPUS);
    /* never fewer than one for each CPU, however little memory there is */
    seen.short_of_memory = false;
    cw_concurrency_step(&c, &seen, 1);
    assert_int_equal(c.n, CPUS);
}

static void test_calls_without_work_do_not_become_more(void **state CW_UNUSED)
{
    struct cw_concurrency c = cw_concurrency_begin(CPUS, "one for each CPU");
    for (int i = 0; i < 10; i++) {
        struct cw_calls_seen seen = world_second(&(struct world){0.02, 0.0001, CPUS, 1e9}, c.n);
        seen.idle_share = 0.5; /* the consumer takes no more */
        assert_false(cw_concurrency_step(&c, &seen, 64));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_that_wait_become_many),
        cmocka_unit_test(test_calls_that_take_long_become_many),
        cmocka_unit_test(test_calls_that_compute_stay_one_for_each_cpu),
        cmocka_unit_test(test_a_server_that_is_busy_gets_no_more_calls),
        cmocka_unit_test(test_cpus_that_are_full_get_no_more_calls),
        cmocka_unit_test(test_functions_that_begin_to_compute_get_fewer_calls),
        cmocka_unit_test(test_memory_bounds_the_calls),
        cmocka_unit_test(test_calls_without_work_do_not_become_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
