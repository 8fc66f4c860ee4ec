/* auto, with facts made up by hand: what is cached, and what follows from that for workers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "policy_world.h"

static void test_auto_caches_what_pays(void **state)
{
    (void)state;
    struct world w = world_new("auto");
    with_cache_point(&w, 1e9);
    pass_until(&w, 60, 1);
    assert_int_equal(w.cache_point, 0);
    assert_int_equal(w.running, 10);
    while (w.done < 10001)
        pass(&w, 1);
    /* the epoch turned: what that saves is known without measuring, once it does not grow any more */
    w.cache_points[0].cached = 1;
    pass(&w, 1);
    assert_int_equal(w.wanted, 10);
    pass(&w, 1);
    assert_int_equal(w.wanted, 1);
    assert_true(w.last.concluded);

    w = world_new("auto");
    with_cache_point(&w, 2e7); /* half a second to read a batch */
    pass_until(&w, 60, 1);
    assert_int_equal(w.cache_point, -1);

    w = world_new("auto");
    with_cache_point(&w, 1e9);
    w.epochs = 1; /* nobody will read it */
    pass_until(&w, 60, 1);
    assert_int_equal(w.cache_point, -1);
}

/* A cache point in use, and a thousand epochs. */
static void decodes_into_a_cache(struct world *w, double prefix_s)
{
    w->n_cache_points = 1;
    w->cache_point = 0;
    w->cache_points[0] = (struct cw_cache_point_facts){
        .name = "decode", .prefix_s = prefix_s, .bytes = 1 << 20};
    w->epochs = 1000;
}

/* Of a thousand epochs the first one is next to nothing, and may take hours: what is better in it and no
 * worse for the job is done. */
static void test_auto_counts_the_first_epoch_of_many(void **state)
{
    (void)state;
    struct world w = world_of("auto", 0.1, 0.32);
    decodes_into_a_cache(&w, 0.32);
    pass_until(&w, 60, 1);
    assert_int_equal(w.running, 4);
    w.step_s = 0.05;
    pass_until(&w, 120, 1);
    assert_int_equal(w.running, 7);
    w.step_s = 0.1; /* no sooner, but cheaper */
    pass_until(&w, 180, 1);
    assert_int_equal(w.running, 4);
    assert_int_equal(w.cache_point, 0);
    assert_int_equal(w.decisions, 3);

    /* four are cheaper, and the client waits 5 % of the time: of the whole job that is nothing */
    w = world_of("auto", 0.1, 0.42);
    decodes_into_a_cache(&w, 0.42);
    pass_until(&w, 600, 1);
    assert_int_equal(w.running, 5);
    assert_int_equal(w.decisions, 1);
}

/* Workers come to know one after the other that an epoch is cached. */
static void test_auto_follows_a_cache_that_is_known_bit_by_bit(void **state)
{
    (void)state;
    for (int steps = 1; steps <= 5; steps++) {
        struct world w = world_of("auto", 0.15, 0.33);
        decodes_into_a_cache(&w, 0.32);
        w.batches = 800;
        pass_until(&w, 30, 0.5);
        assert_int_equal(w.running, 3);
        w.step_s = 0.075;
        pass_until(&w, 60, 0.5);
        assert_int_equal(w.running, 5);
        while (w.done < 801)
            pass(&w, 0.5);
        int decisions = w.decisions;
        for (int i = 1; i <= steps; i++) {
            w.cache_points[0].cached = (double)i / steps;
            pass(&w, 0.5);
        }
        pass_until(&w, 100, 0.5);
        assert_int_equal(w.running, 1);
        assert_int_equal(w.cache_point, 0);
        assert_int_equal(w.decisions, decisions + 1);
    }
}

/* A cache point that is not used: what is known of it changes, and nothing else does. One worker, as in a
 * process by itself. */
static void test_auto_looks_again_when_the_cache_changes(void **state)
{
    (void)state;
    struct world w = world_new("auto");
    with_cache_point(&w, 2e6); /* five times as long as computing */
    w.objective = CW_OBJECTIVE_TIME;
    w.maximum = 1;
    w.cache_points[0].cached = 1;
    w.cache_point = 0;
    pass_until(&w, 400, 1);
    assert_int_equal(w.cache_point, -1);
    w.storage.read_bytes_per_s = 1e9;
    pass_until(&w, 500, 1);
    assert_int_equal(w.cache_point, 0);
    w.cache_points[0].prefix_s = -0.3; /* reading takes longer than computing */
    pass_until(&w, 600, 1);
    assert_int_equal(w.cache_point, -1);
    int decisions = w.decisions;
    pass_until(&w, 1000, 1);
    assert_int_equal(w.decisions, decisions);
}

/* Of batches that take ten seconds there were to be five before anything was decided, however many elements
 * each has. */
static void test_auto_decides_by_one_batch_of_many_elements(void **state)
{
    (void)state;
    struct world w = world_new("auto");
    with_cache_point(&w, 1e9);
    w.maximum = 1;
    w.step_s = 1e-5;
    w.work_s = 10;
    w.cache_points[0].prefix_s = 9;
    w.positions = 1024;
    pass(&w, 10);
    assert_true(w.last.concluded);
    assert_int_equal(w.cache_point, 0);

    w = world_new("auto");
    with_cache_point(&w, 1e9);
    w.maximum = 1;
    w.step_s = 1e-5;
    w.work_s = 10;
    w.positions = 1; /* one element says little of the others */
    pass(&w, 10);
    assert_false(w.last.concluded);
}

/* A store that became as quick as memory was no change: no speed is told of that, and so it went on without
 * for minutes. */
static void test_auto_looks_at_once_when_the_store_is_no_limit_any_more(void **state)
{
    (void)state;
    struct world w = world_new("auto");
    with_cache_point(&w, 1e6); /* ten seconds to read a batch */
    w.objective = CW_OBJECTIVE_TIME;
    w.maximum = 1;
    w.cache_point = 0;
    w.cache_points[0].cached = 1;
    w.uneven = 1;
    while (w.now_s < 2000)
        pass(&w, 10);
    assert_int_equal(w.cache_point, -1);
    w.storage.read_bytes_per_s = 0;
    pass(&w, 10);
    pass(&w, 10);
    assert_int_equal(w.cache_point, 0);
}

/* Who measures cache points may need a while, or go away. */
static void test_auto_with_cache_points_that_come_and_go(void **state)
{
    (void)state;
    struct world w = world_new("auto");
    with_cache_point(&w, 1e9);
    w.objective = CW_OBJECTIVE_TIME;
    w.maximum = 1;
    w.n_cache_points = 0;
    pass_until(&w, 100, 1);
    assert_int_equal(w.cache_point, -1);
    w.n_cache_points = 1;
    w.cache_points[0].cached = 1;
    pass_until(&w, 200, 1);
    assert_int_equal(w.cache_point, 0);
    w.n_cache_points = 0;
    w.cache_point = -1;
    pass_until(&w, 300, 1);
    assert_int_equal(w.cache_point, -1);
    w.n_cache_points = 1;
    pass_until(&w, 400, 1);
    assert_int_equal(w.cache_point, 0);
}

/* What was measured holds for another objective, too. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_caches_what_pays),
        cmocka_unit_test(test_auto_counts_the_first_epoch_of_many),
        cmocka_unit_test(test_auto_follows_a_cache_that_is_known_bit_by_bit),
        cmocka_unit_test(test_auto_looks_again_when_the_cache_changes),
        cmocka_unit_test(test_auto_decides_by_one_batch_of_many_elements),
        cmocka_unit_test(test_auto_looks_at_once_when_the_store_is_no_limit_any_more),
        cmocka_unit_test(test_auto_with_cache_points_that_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
