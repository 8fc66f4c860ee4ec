/* auto, with facts made up by hand: how many workers, of which pools. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "policy_world.h"

static void test_auto_stays_with_a_client_that_is_the_limit(void **state)
{
    (void)state;
    struct world w = world_of("auto", 1, 0.3);
    int records = 0;
    for (int i = 0; i < 3000; i++) {
        pass(&w, 1);
        records += w.last.concluded;
    }
    assert_int_equal(w.wanted, 1);
    assert_int_equal(w.decisions, 0);
    assert_int_equal(records, 1); /* staying is a decision too */
}

static void test_auto_jumps(void **state)
{
    (void)state;
    struct world w = world_of("auto", 0.1, 1.95);
    w.delay_s = 10;
    pass_until(&w, 300, 0.5);
    assert_int_equal(w.running, 20);
    assert_in_range(w.decisions, 1, 3);
    pass_until(&w, 5000, 1);
    assert_int_equal(w.running, 20);
}

/* One worker by itself takes a little longer for a batch than one of several does: fewer than it takes to be
 * sure may do. They are tried once, and stay if they do. */
static void test_auto_tries_fewer(void **state)
{
    (void)state;
    for (int they_do = 0; they_do <= 1; they_do++) {
        double curve[16];
        for (int i = 0; i < 16; i++)
            curve[i] = (i > 0 && they_do ? 0.401 : 0.41) / (i + 1);
        struct world w = world_new("auto");
        w.step_s = 0.1;
        w.curve = curve;
        w.n_curve = 16;
        pass_until(&w, 60, 1);
        assert_int_equal(w.running, they_do ? 4 : 5);
        assert_int_equal(w.decisions, they_do ? 2 : 3);
        pass_until(&w, 5000, 1);
        assert_int_equal(w.decisions, they_do ? 2 : 3);
        w.step_s = 0.05; /* other conditions */
        pass_until(&w, 5060, 1);
        assert_int_equal(w.running, they_do ? 8 : 9);
        pass_until(&w, 10000, 1);
        assert_in_range(w.decisions, 3, 6);
    }
}

/* Five workers, where four nearly do. */
static struct world five_do(void)
{
    static double curve[16];
    for (int i = 0; i < 16; i++)
        curve[i] = 0.41 / (i + 1);
    struct world w = world_new("auto");
    w.step_s = 0.1;
    w.curve = curve;
    w.n_curve = 16;
    return w;
}

/* A store that nobody reads was measured anew, a little quicker or slower: each time fewer were tried again.
 */
static void test_auto_tries_fewer_once_whatever_the_store_does(void **state)
{
    (void)state;
    struct world w = five_do();
    w.n_cache_points = 1;
    w.cache_point = -1;
    w.cache_points[0] = (struct cw_cache_point_facts){.name = "decode", .prefix_s = 0.3, .bytes = 1e9};
    for (int i = 0; i < 20; i++) {
        w.storage.read_bytes_per_s = w.storage.write_bytes_per_s = i % 2 ? 1e8 : 1.5e8;
        pass_until(&w, i == 0 ? 8 : 100.0 * i, 1);
        assert_int_equal(w.cache_point, -1);
    }
    assert_int_equal(w.running, 5);
    assert_int_equal(w.decisions, 3);
}

/* What other jobs take of a pool goes up and down. Each time that all was taken and there was more, fewer
 * were tried again; where there was less, they did not do. */
static void test_auto_tries_fewer_once_whatever_the_pool_does(void **state)
{
    (void)state;
    struct world w = five_do();
    w.epochs = 1000;
    for (int i = 0; i < 20; i++) {
        w.maximum = i % 2 ? 6 : 5;
        pass_until(&w, 1000.0 * (i + 1), 1);
    }
    assert_int_equal(w.running, 5);
    assert_int_equal(w.decisions, 3);

    w.memory = (struct cw_policy_memory){0};
    w.running = w.wanted = 1;
    w.maximum = 64;
    while (w.wanted != 5)
        pass(&w, 1);
    while (w.wanted != 4)
        pass(&w, 1);
    w.maximum = 4;
    for (int i = 0; i < 1000; i++) {
        pass(&w, 1);
        assert_false(w.last.concluded);
    }
    assert_int_equal(w.running, 4);
}

static void test_auto_follows_demand(void **state)
{
    (void)state;
    struct world w = world_of("auto", 0.2, 1.5);
    pass_until(&w, 200, 1);
    assert_int_equal(w.running, 8);
    w.step_s = 0.1; /* twice the demand */
    w.decisions = 0;
    pass_until(&w, 260, 1);
    assert_int_equal(w.running, 15);
    assert_in_range(w.decisions, 1, 3);
    w.step_s = 0.2;
    w.decisions = 0;
    pass_until(&w, 320, 1);
    assert_int_equal(w.running, 8);
    assert_in_range(w.decisions, 1, 3);
}

static void test_auto_names_storage(void **state)
{
    (void)state;
    struct world w = world_of("auto", 0.05, 1);
    w.floor_s = 0.2;
    w.storage.source_bytes = 1e8;
    bool named = false;
    while (w.now_s < 600) {
        pass(&w, 1);
        named |= w.last.concluded && w.last.seen.limit == CW_BOTTLENECK_STORAGE;
    }
    assert_in_range(w.running, 5, 6);
    assert_in_range(w.decisions, 1, 3);
    assert_true(named);
}

/* Their waits scatter, but what busy workers compute does not: no need to wait until the mean of them is
 * known. */
static void test_auto_decides_soon_though_batches_come_in_bursts(void **state)
{
    (void)state;
    struct world w = world_of("auto", 0.05, 0.4);
    w.uneven = 2;
    pass_until(&w, 8, 1);
    assert_int_equal(w.wanted, 8);
}

static void test_auto_keeps_to_the_pool(void **state)
{
    (void)state;
    struct world w = world_of("auto", 0.1, 2);
    w.maximum = 8;
    pass_until(&w, 100, 1);
    assert_int_equal(w.wanted, 8);
    w.maximum = 3;
    pass(&w, 1);
    assert_int_equal(w.wanted, 3);
    assert_non_null(strstr(w.last.why, "no more than 3"));
    w.maximum = 64;
    pass_until(&w, 200, 1);
    assert_int_equal(w.wanted, 20);
}

/* It said that more would not be worth it, and beside it stood more that were faster and cheaper: they were
 * not tried at once, as they were a guess. */
static void test_auto_says_what_it_holds_back(void **state)
{
    (void)state;
    struct world w = world_new("auto");
    w.step_s = 0.01;
    w.curve = (const double[]){0.4, 0.2, 0.14, 0.1, 0.08, 0.07};
    w.n_curve = w.maximum = 6;
    w.idle = 0.5; /* something else is waited for: what more workers give is not known */
    while (!w.last.concluded)
        pass(&w, 1);
    assert_int_equal(w.wanted, 4);
    const struct cw_alternative *chosen = &w.last.alternatives[0];
    bool better = false;
    for (int i = 1; i < w.last.n_alternatives; i++)
        better |= w.last.alternatives[i].workers == 6 && w.last.alternatives[i].time_s < chosen->time_s &&
                  w.last.alternatives[i].cost < chosen->cost;
    assert_true(better);
    assert_non_null(strstr(
        w.last.why, ": 6 workers would seem better, but the speed of that many workers was never measured"));
}

/* Twice as many are dearer: that is said with the numbers that stand beside it. */
static void test_auto_says_what_more_would_cost(void **state)
{
    (void)state;
    double curve[64];
    struct world w = world_new("auto");
    for (int i = 0; i < 64; i++)
        curve[i] = 4.0 / (i + 1) + 0.4;
    w.curve = curve;
    w.n_curve = 64;
    w.objective = CW_OBJECTIVE_COST;
    char last[sizeof(w.last.why)] = "";
    while (w.now_s < 600) {
        pass(&w, 1);
        if (w.last.concluded)
            memcpy(last, w.last.why, sizeof(last));
    }
    assert_non_null(strstr(last, "% less time and cost "));
}

/* A job that is short beside the start of workers: they are taken to be slower than measured, and it was told
 * as if that was measured. */
static void test_auto_says_what_it_doubts(void **state)
{
    (void)state;
    struct world w = world_of("auto", 0.1, 0.4);
    w.delay_s = 30;
    w.batches = 100;
    w.uneven = 1;
    while (!w.last.concluded)
        pass(&w, 1);
    assert_true(w.last.seen.doubt > 0.02);
    const struct cw_alternative *now = &w.last.alternatives[1];
    assert_int_equal(now->workers, 1);
    assert_true(fabs(now->batch_s / (0.4 * (1 + w.last.seen.doubt)) - 1) < 0.01);
    assert_non_null(strstr(w.last.why, "slower, as a safety margin"));
}

/* Of a service without a policy, and of a process by itself, workers are none of what is decided: it named as
 * many as would do. */
static void test_auto_speaks_of_the_cache_alone_where_workers_are_given(void **state)
{
    (void)state;
    struct world w = world_new("auto");
    with_cache_point(&w, 1e12);
    w.running = w.wanted = w.maximum = 2;
    w.fixed = true;
    while (!w.last.concluded)
        pass(&w, 1);
    assert_true(w.last.cache_point >= 0);
    assert_non_null(strstr(w.last.why, "; cached after decode, the rest of the job takes "));
    assert_non_null(strstr(w.last.why, ", cached nowhere 0.5 s"));
    for (int i = 0; i < w.last.n_alternatives; i++)
        assert_int_equal(w.last.alternatives[i].workers, 2);
}

static void test_auto_looks_again_when_the_objective_changes(void **state)
{
    (void)state;
    double curve[64];
    struct world w = world_new("auto");
    for (int i = 0; i < 64; i++)
        curve[i] = 4.0 / (i + 1) + 0.4;
    w.curve = curve;
    w.n_curve = 64;
    pass_until(&w, 300, 1);
    assert_in_range(w.running, 40, 64);
    w.objective = CW_OBJECTIVE_COST;
    pass_until(&w, 600, 1);
    assert_in_range(w.running, 8, 16); /* the square root of 4 x 5 / (0.4 x 0.4): 11 */
}

/* Asks auto of a job that two pools serve, of workers alike. */
static void ask_two(struct cw_policy_memory *memory, const char *first, const char *second, int running0,
                    int running1, int most0, int most1, double now_s, struct cw_decision *d)
{
    struct cw_policy policy;
    assert_true(cw_policy_find("auto", &policy));
    double n = running0 + running1, interval = CW_MAX(1 / n, 0.1);
    struct cw_client_facts client = {.step = exactly(10, 0.1), .wait = exactly(10, interval - 0.1)};
    struct cw_facts f = {.clients = &client,
                         .n_clients = 1,
                         .n_pools = 2,
                         .cache_point = -1,
                         .epochs = 10,
                         .batches_per_epoch = 10000,
                         .batches_done = now_s,
                         .client_price_per_h = 5};
    f.pools[0] = (struct cw_pool_facts){.name = first,
                                        .running = running0,
                                        .maximum = most0,
                                        .price_per_h = 0.1,
                                        .compute = exactly(running0 * 5, 1),
                                        .busy = 1};
    f.pools[1] = (struct cw_pool_facts){.name = second,
                                        .running = running1,
                                        .maximum = most1,
                                        .price_per_h = 1,
                                        .compute = exactly(running1 * 5, 1),
                                        .busy = 1};
    *d = (struct cw_decision){0};
    policy.decide(&policy, memory, &f, now_s, d);
}

/* A pool that is gone, has less, or has another place in facts: others give what it gave, and nobody is
 * forgotten. */
static void test_auto_keeps_what_it_decided_when_pools_change(void **state)
{
    (void)state;
    struct cw_policy_memory memory = {0};
    struct cw_decision d;
    for (int t = 1; t < 20; t++)
        ask_two(&memory, "cheap", "dear", t > 10 ? 6 : 1, t > 10 ? 4 : 0, 6, 20, t, &d);
    assert_int_equal(d.workers[0], 6);
    assert_int_equal(d.workers[1], 4);
    ask_two(&memory, "dear", "cheap", 4, 6, 20, 6, 20, &d);
    assert_int_equal(d.workers[0], 4);
    assert_int_equal(d.workers[1], 6);
    /* its provisioner is away, its workers are there */
    ask_two(&memory, "dear", "static", 4, 6, 20, 6, 21, &d);
    assert_int_equal(d.workers[0] + d.workers[1], 10);
    assert_non_null(strstr(d.why, "gone"));
    ask_two(&memory, "dear", "static", 4, 6, 3, 6, 22, &d);
    assert_int_equal(d.workers[0], 3);
    assert_int_equal(d.workers[1], 6);
}

static void test_pools_in_a_record(void **state)
{
    (void)state;
    struct cw_policy_memory memory = {0};
    struct cw_decision d = {0};
    double t = 0;
    while (d.workers[0] < 2 && t < 20)
        ask_two(&memory, "cheap", "dear", 1, 0, 6, 20, ++t, &d);
    assert_non_null(strstr(
        d.why, "10 workers (6 of pool cheap, 4 of pool dear; cheap first: its computing costs least)"));
    struct cw_facts f = {.n_pools = 2, .pools = {{.name = "cheap"}, {.name = "dear"}}, .cache_point = -1};
    json_t *json = cw_decision_json(&d, &f),
           *first = json_object_get(json_array_get(json_object_get(json, "alternatives"), 0), "pools");
    assert_int_equal(json_integer_value(json_object_get(first, "cheap")), 6);
    assert_int_equal(json_integer_value(json_object_get(first, "dear")), 4);
    json_decref(json);
}

/* Names of 64 bytes, which were cut within a character: the record was lost, as JSON has none of these. And
 * what turns text round is shown escaped. */
static void test_long_names_of_pools_are_cut_between_characters(void **state)
{
    (void)state;
    struct cw_policy_memory memory = {0};
    struct cw_decision d = {0};
    char first[65] = "", second[65] = "\xe2\x80\xae";
    for (int i = 0; i < 21; i++)
        strcat(first, "\xe2\x82\xac");
    for (int i = 0; i < 30; i++)
        strcat(second, "\xc3\xa9");
    double t = 0;
    while (d.workers[0] < 2 && t < 20)
        ask_two(&memory, first, second, 1, 0, 6, 20, ++t, &d);
    struct cw_facts f = {.n_pools = 2, .pools = {{.name = first}, {.name = second}}, .cache_point = -1};
    json_t *json = cw_decision_json(&d, &f);
    assert_non_null(json);
    const char *why = json_string_value(json_object_get(json, "why"));
    assert_non_null(strstr(
        why, "6 of pool \xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac, 4 of pool "
             "\\u202e\xc3\xa9"));
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_stays_with_a_client_that_is_the_limit),
        cmocka_unit_test(test_auto_jumps),
        cmocka_unit_test(test_auto_tries_fewer),
        cmocka_unit_test(test_auto_tries_fewer_once_whatever_the_store_does),
        cmocka_unit_test(test_auto_tries_fewer_once_whatever_the_pool_does),
        cmocka_unit_test(test_auto_follows_demand),
        cmocka_unit_test(test_auto_names_storage),
        cmocka_unit_test(test_auto_decides_soon_though_batches_come_in_bursts),
        cmocka_unit_test(test_auto_keeps_to_the_pool),
        cmocka_unit_test(test_auto_says_what_it_holds_back),
        cmocka_unit_test(test_auto_says_what_more_would_cost),
        cmocka_unit_test(test_auto_says_what_it_doubts),
        cmocka_unit_test(test_auto_speaks_of_the_cache_alone_where_workers_are_given),
        cmocka_unit_test(test_auto_looks_again_when_the_objective_changes),
        cmocka_unit_test(test_auto_keeps_what_it_decided_when_pools_change),
        cmocka_unit_test(test_pools_in_a_record),
        cmocka_unit_test(test_long_names_of_pools_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
