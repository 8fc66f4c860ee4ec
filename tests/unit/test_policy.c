/* Policies with facts made up by hand: the published rules' steps, what is remembered and told, shares,
 * pools, curves. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "policy/cache_stats.h"
#include "policy/pace.h"
#include "policy/plan.h"
#include "policy/share.h"
#include "policy_world.h"

/* ---- the published rules ---- */

/* Figure 6a of the Cachew paper: seconds per epoch of 1,251 batches with 1 to 8 workers. */
static double fig6a(int i)
{
    static const double epoch_s[] = {1730, 870, 645, 550, 510, 500, 495, 495};
    return epoch_s[i] / 1251;
}

static int settles_at(const char *policy)
{
    double curve[8];
    for (int i = 0; i < 8; i++)
        curve[i] = fig6a(i);
    struct world w = world_new(policy);
    w.curve = curve;
    w.n_curve = 8;
    w.step_s = 490.0 / 1251;
    w.maximum = 8;
    w.batches = 100000;
    pass_until(&w, 20000, 1);
    return w.running;
}

static void test_atc22_on_figure_6a(void **state)
{
    (void)state;
    assert_int_equal(settles_at("cachew-atc22"), 5);      /* 6 workers gain 2 %, less than 3 */
    assert_int_equal(settles_at("cachew-atc22-code"), 5); /* from 4 to 5: 7.3 %, just more than 7 */
}

static void test_atc22_adds_one_at_a_time(void **state)
{
    (void)state;
    struct world w = world_new("cachew-atc22");
    w.work_s = 10;
    w.step_s = 0.1;
    int before = 1, most = 0;
    for (int i = 0; i < 40000; i++) {
        pass(&w, 1);
        assert_true(w.wanted <= before + 1);
        before = w.wanted;
        most = CW_MAX(most, w.wanted);
    }
    /* 1/n gains fall below 3 % near 33, though 100 are needed: the published weakness */
    assert_in_range(most, 30, 64);
    assert_true(w.running < 50);
}

/* Profile, write for a whole epoch from one worker on, then read, from one worker on. */
static void test_atc22_writes_in_an_epoch_of_its_own(void **state)
{
    (void)state;
    struct world w = world_new("cachew-atc22");
    w.work_s = 1;
    w.step_s = 0.2;
    w.batches = 3000;
    w.n_cache_points = 1;
    w.cache_points[0] = (struct cw_cache_point_facts){.name = "decode", .prefix_s = 0.9, .bytes = 1e6};
    while (w.done < 2990)
        pass(&w, 1);
    assert_int_equal(w.cache_point, -1);
    assert_true(w.running > 1);
    while (w.done < 3001)
        pass(&w, 0.5);
    assert_int_equal(w.cache_point, 0);
    assert_true(w.last.write_waits);
    assert_int_equal(w.running, 1);
    while (w.done < 6010)
        pass(&w, 1);
    assert_int_equal(w.cache_point, 0);
    assert_false(w.last.write_waits);
}

static void test_hpa_rule(void **state)
{
    (void)state;
    struct world w = world_new("hpa");
    w.work_s = 10;
    w.step_s = 1; /* 12.5 workers are 80 % busy */
    pass_until(&w, 16, 1);
    assert_int_equal(w.wanted, 2); /* ceil(1 x 1 / 0.8) */
    pass_until(&w, 31, 1);
    assert_int_equal(w.wanted, 3);
    pass_until(&w, 1000, 1);
    assert_int_equal(w.wanted, 12); /* 10 / 12 = 0.83: within the tolerance */
    w.work_s = 2;                   /* at once a fifth of the work; nothing happens for 300 s */
    double changed = w.now_s;
    pass_until(&w, changed + 280, 1);
    assert_int_equal(w.wanted, 12);
    pass_until(&w, changed + 330, 1);
    assert_int_equal(w.wanted, 3); /* ceil(12 x 0.167 / 0.8) */
}

static void test_hpa_counts_starting_workers_as_idle(void **state)
{
    (void)state;
    struct world w = world_new("hpa");
    w.work_s = 100;
    w.step_s = 1;
    w.delay_s = 120;
    pass_until(&w, 100, 1);
    assert_int_equal(w.wanted, 2); /* 1 busy of 2: 50 %, so no third while the second starts */
}

static void test_names(void **state)
{
    (void)state;
    struct cw_policy p;
    assert_true(cw_policy_find("fixed:8", &p));
    assert_true(p.parameter == 8);
    assert_true(cw_policy_find("cachew", &p));
    assert_string_equal(p.name, "auto");
    static const char *const wrong[] = {"fixed:", "fixed:0", "fixed:-1", "fixed:2x",      "fixed: 2",
                                        "auto ",  "",        "hpa2",     "fixed:99999999"};
    for (size_t i = 0; i < CW_COUNT_OF(wrong); i++)
        assert_false(cw_policy_find(wrong[i], &p));
    struct world w = world_new("fixed:80");
    pass(&w, 0);
    assert_int_equal(w.wanted, 64); /* as many as there are */
    assert_true(w.last.concluded);
    assert_string_equal(w.last.why,
                        "80 workers were requested by the policy fixed:N, but this job may have only 64 now");
    pass(&w, 1);
    assert_false(w.last.concluded);
}

/* It said "-1.5 % less time a batch". */
static void test_atc22_says_when_a_batch_takes_more_time(void **state)
{
    (void)state;
    static const double curve[] = {1, 1.015};
    struct world w = world_new("cachew-atc22");
    w.curve = curve;
    w.n_curve = 2;
    w.step_s = 0.1;
    for (int i = 0; i < 5000 && w.decisions < 2; i++)
        pass(&w, 1);
    assert_string_equal(w.last.why, "with 2 instead of 1 workers, a batch takes 1.5 % more time");
}

/* ---- what is remembered, and told ---- */

/* A journal's memory goes on as the one that was never written down. */
static void test_memory_survives(void **state)
{
    (void)state;
    static const char *const names[] = {"auto", "cachew-atc22", "pecan", "hpa", "fixed:3"};
    for (size_t i = 0; i < CW_COUNT_OF(names); i++) {
        struct world a = world_new(names[i]);
        with_cache_point(&a, 1e9);
        pass_until(&a, 7, 1);
        for (int k = 0; k < 400; k++) {
            struct world b = a;
            json_t *saved = cw_policy_save(&a.policy, &a.memory);
            assert_non_null(saved);
            cw_policy_load(&b.policy, saved, &b.memory);
            json_decref(saved);
            assert_memory_equal(&a.memory, &b.memory, sizeof(a.memory));
            pass(&b, 1);
            pass(&a, 1);
            assert_int_equal(a.wanted, b.wanted);
            assert_int_equal(a.cache_point, b.cache_point);
        }
    }
}

static void test_record(void **state)
{
    (void)state;
    struct world w = world_new("auto");
    with_cache_point(&w, 1e9);
    do
        pass(&w, 1);
    while (!w.last.concluded);
    struct cw_facts f = {
        .n_pools = 1, .pools[0].name = "remote", .cache_points = w.cache_points, .n_cache_points = 1};
    json_t *json = cw_decision_json(&w.last, &f);
    assert_non_null(json);
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(json_object_get(json, "chosen"), "workers"), "remote")),
                     w.wanted);
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "chosen"), "cache")),
                        "decode");
    assert_true(json_array_size(json_object_get(json, "alternatives")) >= 3);
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "seen"), "limit")),
                        "workers");
    assert_true(json_number_value(json_object_get(json_object_get(json, "seen"), "step_s")) == 0.1);
    json_decref(json);
}

static void check_what(const struct cw_decision *d, const struct cw_facts *f, const char *expected)
{
    json_t *json = cw_decision_json(d, f);
    assert_string_equal(json_string_value(json_object_get(json, "what")), expected);
    json_decref(json);
}

/* The line that the log, the command and the dashboard have of a decision. */
static void test_what_is_decided_in_words(void **state)
{
    (void)state;
    const struct cw_cache_point_facts cache_points[] = {{.name = "decode"}, {.name = "resize"}};
    struct cw_facts f = {.n_pools = 2,
                         .pools = {{.name = "near", .running = 2}, {.name = "far", .starting = 1}},
                         .cache_point = -1};
    struct cw_decision d = {.workers = {4, 1}, .cache_point = -1};
    check_what(&d, &f, "5 workers, 3 before");
    d.workers[0] = 2;
    check_what(&d, &f, "3 workers, as before");
    f.cache_points = cache_points;
    f.n_cache_points = 2;
    check_what(&d, &f, "3 workers, as before; cached nowhere");
    d.cache_point = 1;
    check_what(&d, &f, "3 workers, as before; cached after resize, nowhere before");
    f.cache_point = 0;
    check_what(&d, &f, "3 workers, as before; cached after resize, after decode before");
    d.cache_point = -1;
    check_what(&d, &f, "3 workers, as before; cached nowhere, after decode before");
    f = (struct cw_facts){.n_pools = 1, .cache_point = -1};
    f.pools[0].name = "near";
    d.workers[0] = 1;
    check_what(&d, &f, "1 worker"); /* the first one */
    f.fixed = true;                 /* nobody decides about workers */
    check_what(&d, &f, "cached nowhere");
}

/* ---- what they share ---- */

static void check_shares(struct cw_claim *claims, int n, int workers, const int *expected)
{
    cw_share(claims, n, workers);
    for (int i = 0; i < n; i++)
        assert_int_equal(claims[i].share, expected[i]);
}

static void test_shares(void **state)
{
    (void)state;
    struct cw_claim two[] = {{.want = 100, .weight = 2}, {.want = 100, .weight = 1}};
    check_shares(two, 2, 30, (int[]){20, 10});
    check_shares(two, 2, 31, (int[]){21, 10});
    check_shares(two, 2, 1, (int[]){1, 0});
    two[0].want = 5; /* what one leaves the other gets */
    check_shares(two, 2, 30, (int[]){5, 25});
    two[0].want = 0;
    check_shares(two, 2, 30, (int[]){0, 30});
    struct cw_claim three[] = {{.want = 50, .weight = 1},
                               {.want = 8, .weight = 1, .priority = 5},
                               {.want = 50, .weight = 1, .quota = 4}};
    check_shares(three, 3, 20, (int[]){8, 8, 4});
    check_shares(three, 3, 10, (int[]){1, 8, 1}); /* a worker each, then by priority */
}

static void test_means(void **state)
{
    (void)state;
    static const double x[] = {3, 5, 4, 10, 1};
    struct cw_mean a = {0}, b = {0}, all = {0};
    for (size_t i = 0; i < CW_COUNT_OF(x); i++) {
        struct cw_mean one = exactly(1, x[i]);
        cw_mean_merge(i < 2 ? &a : &b, &one);
    }
    cw_mean_merge(&all, &a);
    cw_mean_merge(&all, &b);
    assert_true(all.n == 5);
    assert_float_equal(all.mean, 4.6, 1e-12);
    assert_float_equal(all.m2, 45.2, 1e-9);
    assert_true(cw_mean_error(&(struct cw_mean){0}) == 1);
    struct cw_mean steady = exactly(1, 1), more = exactly(100, 1);
    assert_true(cw_mean_error(&steady) > 0.1); /* one batch proves nothing */
    assert_true(cw_mean_error(&more) < 0.01);
    struct cw_facts f = {.n_clients = 2};
    struct cw_client_facts ranks[] = {{.step = exactly(10, 1), .wait = exactly(10, 0.5)},
                                      {.step = exactly(10, 2), .wait = exactly(10, 0.1)}};
    f.clients = ranks;
    struct cw_demand d = cw_demand(&f); /* the slower rank paces; a batch of the job each second */
    assert_float_equal(d.step.mean, 1, 1e-12);
    assert_float_equal(d.interval.mean, 1.05, 1e-12);
    assert_float_equal(d.wait_s, 0.05, 1e-12);
}

static void check_curve(double (*truth)(double n), const double *at, size_t n, double tolerance)
{
    struct cw_point points[CW_CURVE_POINTS];
    struct cw_curve c;
    for (size_t i = 0; i < n; i++)
        points[i] = (struct cw_point){at[i], truth(at[i]), 0.005};
    cw_curve_fit(points, n, 0, &c);
    for (double w = 1; w <= 1.3 * at[n - 1]; w++)
        assert_float_equal(cw_curve_s(&c, w) / truth(w), 1, tolerance);
}

static double linear(double n)
{
    return 7 / n;
}

static double amdahl(double n)
{
    return 5 / n + 0.2;
}

static double hinge(double n)
{
    return fmax(4 / n, 0.25);
}

static double valley(double n)
{
    return 3 / n + 0.1 + 0.01 * n;
}

static void test_curves(void **state)
{
    (void)state;
    check_curve(linear, (double[]){1}, 1, 1e-9);
    check_curve(linear, (double[]){1, 6}, 2, 1e-9);
    /* between two points it may be otherwise, beyond them not */
    check_curve(amdahl, (double[]){1, 8}, 2, 0.1);
    check_curve(amdahl, (double[]){1, 4, 30}, 3, 0.03);
    check_curve(hinge, (double[]){1, 12, 40}, 3, 0.1);
    check_curve(valley, (double[]){1, 12, 60}, 3, 0.01);
}

/* ---- several pools ---- */

static struct cw_facts three_pools(void)
{
    struct cw_facts f = {.n_pools = 3, .cache_point = -1, .client_price_per_h = 5};
    f.pools[0] = (struct cw_pool_facts){
        .name = "far", .maximum = 4, .price_per_h = 0.4, .start_delay_s = 10, .cpu_share = 1};
    f.pools[1] = (struct cw_pool_facts){
        .name = "large", .maximum = 2, .price_per_h = 1.2, .start_delay_s = 60, .cpu_share = 4};
    f.pools[2] = (struct cw_pool_facts){.name = "here", .maximum = 3, .start_delay_s = 1, .cpu_share = 0.5};
    return f;
}

/* What it has no price for is cheapest; then what computes most for its price. */
static void test_pools_are_filled_in_order(void **state)
{
    (void)state;
    const struct cw_facts f = three_pools();
    struct cw_supply s;
    cw_supply_init(&s, &f, NULL, 1);
    assert_memory_equal(s.order[0], ((int[]){2, 1, 0}), 3 * sizeof(int));
    assert_memory_equal(s.order[1], ((int[]){2, 0, 1}), 3 * sizeof(int));
    assert_int_equal(s.n_orders, 2);
    assert_float_equal(cw_supply_most(&s), 4 + 8 + 1.5, 1e-12);
    int workers[CW_POLICY_POOLS];
    cw_supply_fill(&s, 0, 7, workers); /* what fits: three here, one large one, and one more */
    assert_memory_equal(workers, ((int[CW_POLICY_POOLS]){1, 1, 3}), sizeof(workers));
    cw_supply_fill(&s, 0, 0.1, workers);
    assert_memory_equal(workers, ((int[CW_POLICY_POOLS]){0, 0, 1}), sizeof(workers));
    cw_supply_count(&s, 4, workers);
    assert_memory_equal(workers, ((int[CW_POLICY_POOLS]){0, 1, 3}), sizeof(workers));
}

/* Each rung is one that there can be, all are different, and in each order all that there are is the last
 * one. */
static void test_rungs(void **state)
{
    (void)state;
    const struct cw_facts f = three_pools();
    struct cw_supply s;
    struct cw_rung seen[200] = {0}, r = {0};
    int n = 0, full = 0;
    cw_supply_init(&s, &f, NULL, 1);
    while (cw_supply_next(&s, CW_SUPPLY_ORDERS, &r)) {
        assert_true(cw_supply_capacity(&s, r.workers) > 0);
        for (int i = 0; i < s.n; i++)
            assert_in_range(r.workers[i], 0, s.maximum[i]);
        for (int i = 0; i < n; i++)
            assert_true(seen[i].order != r.order ||
                        memcmp(seen[i].workers, r.workers, sizeof(r.workers)) != 0);
        assert_true(n < 200);
        seen[n++] = r;
        full += memcmp(r.workers, s.maximum, sizeof(r.workers)) == 0;
    }
    assert_int_equal(full, 2);
    bool instead = false; /* three here and two far ones, rather than another large one */
    for (int i = 0; i < n; i++)
        instead |= seen[i].order == 0 &&
                   memcmp(seen[i].workers, (int[CW_POLICY_POOLS]){2, 1, 3}, sizeof(r.workers)) == 0;
    assert_true(instead);
    struct cw_facts one = {.n_pools = 1};
    one.pools[0].maximum = 500;
    cw_supply_init(&s, &one, NULL, 1);
    r = (struct cw_rung){0};
    for (int expected = 1; cw_supply_next(&s, CW_SUPPLY_ORDERS, &r);
         expected += expected < 64 ? 1 : expected / 64)
        assert_int_equal(r.workers[0], expected);
}

/* An evaluation between two batches is no step; steps that stay as long are. */
static void test_pauses_are_no_steps(void **state)
{
    (void)state;
    struct cw_pace p = {0}, before;
    for (int i = 0; i < 20; i++)
        cw_pace_add(&p, 0.1, 0.01, 2);
    before = p;
    cw_pace_add(&p, 30, 0, 2);
    assert_memory_equal(&p.n, &before.n, sizeof(p.n));
    cw_pace_add(&p, 0.1, 0, 4);
    struct cw_client_facts f = cw_pace_facts(&p, &before);
    assert_true(f.step.n == 1 && fabs(f.step.mean - 0.1) < 1e-9 && fabs(f.queue - 4) < 1e-9);
    cw_pace_add(&p, 30, 0, 2);
    cw_pace_add(&p, 30, 0, 2);
    assert_true(p.n == 22 && p.late == 20);
}

static void unread_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                          const struct cw_facts *facts, double now_s, struct cw_decision *d)
{
    d->cache_point = facts->cache_point;
}

/* Two workers that read at the second cache point, of which one or both recompute what they could read. */
static void test_facts_of_cache_points(void **state)
{
    (void)state;
    const struct cw_policy policy = {.caches = true, .decide = unread_decide};
    struct cw_policy_memory memory = {0};
    struct cw_cache_stats s = {.cache_point = 2,
                               .n = 3,
                               .variants = {{.cache_point = -1, .compute_s = 4},
                                            {.cache_point = 1, .read_s = 3, .bytes = 5},
                                            {.cache_point = 2,
                                             .name = "second",
                                             .read_s = 1,
                                             .store_s = 0.5,
                                             .was_read = true,
                                             .bytes = 10,
                                             .cached = 0.5,
                                             .written = 0.75}}};
    for (int n_unread = 0; n_unread <= 2; n_unread++) {
        struct cw_cache_sum sums[CW_POLICY_CACHE_POINTS] = {0};
        struct cw_cache_point_facts points[CW_POLICY_CACHE_POINTS];
        struct cw_facts f = {.storage.read_bytes_per_s = 7};
        struct cw_decision d;
        for (int i = 0; i < 2; i++) {
            s.variants[2].unread = i < n_unread;
            cw_cache_sums_add(sums, &s, &s);
        }
        cw_cache_facts_of(&s, sums, 2, 2, &f, points);
        assert_int_equal(f.n_cache_points, 2);
        assert_int_equal(f.cache_point, 1);
        assert_string_equal(points[1].name, "second");
        assert_true(points[0].prefix_s == 2 && points[1].prefix_s == 6 && points[1].bytes == 20);
        assert_true(points[1].cached == 0.5 && points[1].written == 1);
        assert_true(f.storage.read_bytes_per_s == 40);
        cw_policy_decide(&policy, &memory, &f, 0, &d);
        assert_int_equal(d.cache_point, n_unread ? -1 : 1);
        assert_int_equal(*d.why != '\0', n_unread > 0);
    }
    assert_true(cw_cache_is_slow(20, 2, 20, 1) && !cw_cache_is_slow(20, 1.1, 20, 1));
    assert_true(cw_cache_is_slow(5, 5, 20, 1) && !cw_cache_is_slow(5, 2, 20, 1));
    assert_false(cw_cache_is_slow(3, 9, 20, 1) || cw_cache_is_slow(20, 9, 3, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_atc22_on_figure_6a),
        cmocka_unit_test(test_atc22_adds_one_at_a_time),
        cmocka_unit_test(test_atc22_writes_in_an_epoch_of_its_own),
        cmocka_unit_test(test_atc22_says_when_a_batch_takes_more_time),
        cmocka_unit_test(test_hpa_rule),
        cmocka_unit_test(test_hpa_counts_starting_workers_as_idle),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_memory_survives),
        cmocka_unit_test(test_record),
        cmocka_unit_test(test_what_is_decided_in_words),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_means),
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_pools_are_filled_in_order),
        cmocka_unit_test(test_rungs),
        cmocka_unit_test(test_pauses_are_no_steps),
        cmocka_unit_test(test_facts_of_cache_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
