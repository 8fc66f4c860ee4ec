/* The dispatcher's core: what workers may say, who gets leases, and what is left in the journal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dispatcher_run.h"

/* A worker with room is not overlooked because one that is full finished more. */
static void test_room_beside_a_full_worker(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *full = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    for (uint64_t pos = 0; pos < 2; pos++)
        run_completed(full, &full->streams[0], pos, 1);
    run_settle(u);
    assert_int_equal(run_held(full), 2);
    struct run_peer *other = run_worker(u, 1);
    run_settle(u);
    assert_true(other->streams[0].held[2]);
    assert_true(full->streams[0].held[0] && full->streams[0].held[1]); /* nothing finished was thrown away */
    /* The oldest becomes free while the full one holds nothing but finished ones: it goes to who has room. */
    struct run_peer *third = run_worker(u, 1);
    assert_true(third->streams[0].held[3]);
    run_lose(other);
    run_settle(u);
    assert_true(third->streams[0].held[2]); /* the later one made room for it */
    struct run_peer *fourth = run_worker(u, 1);
    assert_true(fourth->streams[0].held[3]);
    assert_true(full->streams[0].held[0] && full->streams[0].held[1]);
    assert_int_equal(c->placed[2], third->worker + 1);
    run_free(u);
}

/* A worker that could not open the data while others could is asked again, in a while. */
static void test_unfit_for_a_while(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *good = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    struct run_peer *bad = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    bad->fails = "no such file";
    bad->capacity = 2;
    run_register(bad);
    run_settle(u);
    size_t n = bad->n_in;
    run_pass(u, 5000);
    assert_int_equal(bad->n_in, n); /* not at once, again and again */
    bad->fails = NULL;
    bad->snapshot = good->snapshot;
    run_pass(u, 31000);
    assert_int_equal(run_held(bad), 2);
    /* The only one that is left fails, and comes back to it. */
    run_lose(good);
    run_settle(u);
    Cachew__Failure away = CACHEW__FAILURE__INIT;
    away.kind = (char *)"data";
    away.message = (char *)"a file is away";
    RUN_SAY(bad, StreamFailed, STREAM_FAILED, false, RUN_BASE(stream_failed), .stream = {16, bad->streams[0].id}, .why = &away);
    memset(bad->streams[0].held, 0, sizeof(bad->streams[0].held));
    bad->fails = "a file is away";
    run_settle(u);
    assert_int_equal(run_held(bad), 0);
    bad->fails = NULL;
    run_pass(u, 31000);
    assert_int_equal(run_held(bad), 2);
    assert_false(c->ended);
    run_free(u);
}

/* A worker that saw other data, as one does while a file is away, is asked again, too. */
static void test_other_data_for_a_while(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    run_worker(u, 2);
    struct run_peer *c = run_client(u, "job", 0, 1, 0), *bad = run_worker_data(u, 2, 12);
    run_settle(u);
    assert_int_equal(run_held(bad), 0);
    bad->snapshot = 11;
    run_pass(u, 31000);
    assert_int_equal(run_held(bad), 2);
    assert_false(c->ended);
    run_free(u);
}

/* A worker that says that it can have less than it was given while that is written down still gets what it was given. */
static void test_capacity_falls_while_leases_are_written(void **state)
{
    (void)state;
    struct run *u = run_new(400);
    struct run_attach at = {.job = "job", .order = CACHEW__ORDER__ORDER_ANY, .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    struct run_peer *w = run_worker(u, 200), *c = run_client_with(u, &at, 0);
    assert_int_equal(run_held(w), 200);
    u->hold = true;
    run_progress(c, 150, 0); /* as many new ones are on their way through the journal */
    run_settle(u);
    Cachew__Plan plan = run_plan(w);
    Cachew__Prepared prepared = {RUN_BASE(prepared), .stream = {16, w->streams[0].id}, .plan = &plan, .capacity = 1};
    Cachew__Holding holding = {RUN_BASE(holding), .prepared = &prepared}, *holdings[] = {&holding};
    for (int i = 0; i < 3; i++)
        RUN_SAY(w, Holdings, HOLDINGS, false, RUN_BASE(holdings), .holdings = holdings, .n_holdings = 1);
    assert_false(w->closed);
    run_commit(u);
    u->hold = false;
    run_settle(u);
    assert_int_equal(run_held(w), 200);
    run_free(u);
}

/* A plan that contradicts itself, and splits that it does not have, cut off who says them, and hang nobody. */
static void test_plans_that_are_none(void **state)
{
    (void)state;
    struct run *u = run_new(0);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    assert_true(c->attached);
    w->streams[0].used = true;
    memcpy(w->streams[0].id, c->streams[0].id, 16);
    Cachew__Plan plan = run_plan(w);
    Cachew__Prepared prepared = {RUN_BASE(prepared), .stream = {16, w->streams[0].id}, .plan = &plan, .capacity = 2};
    Cachew__Place place = {RUN_BASE(place)}, *places[] = {&place};
    Cachew__Holding holding = {RUN_BASE(holding), .prepared = &prepared, .splits = places, .n_splits = 1}, *holdings[] = {&holding};
    RUN_SAY(w, Holdings, HOLDINGS, false, RUN_BASE(holdings), .holdings = holdings, .n_holdings = 1);
    assert_true(w->closed);
    assert_non_null(strstr(w->why, "no split 0 in a plan of 0"));
    run_settle(u);
    run_detach(c, true);
    run_pass(u, 31000);
    run_free(u);

    u = run_new(8);
    w = run_worker(u, 2);
    c = run_client(u, "job", 0, 1, 0);
    plan = run_plan(w);
    plan.n_splits = 0;
    prepared.stream = (ProtobufCBinaryData){16, w->streams[0].id};
    holding.n_splits = 0;
    RUN_SAY(w, Holdings, HOLDINGS, false, RUN_BASE(holdings), .holdings = holdings, .n_holdings = 1);
    assert_true(w->closed);
    assert_non_null(strstr(w->why, "80 positions in 0 splits"));
    run_free(u);
}

/* With at-most-once a worker that leaves finishes what it has, however long it takes: it would be lost. */
static void test_drain_loses_nothing(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_attach at = {.job = "job", .order = CACHEW__ORDER__ORDER_ANY, .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    struct run_peer *w = run_worker(u, 2), *c = run_client_with(u, &at, 0);
    run_worker(u, 2);
    RUN_SAY(w, Draining, DRAINING, false, RUN_BASE(draining));
    run_settle(u);
    run_pass(u, 15000);
    assert_int_equal(run_held(w), 2);
    for (uint64_t pos = 0; pos < 4; pos++)
        assert_false(c->lost[pos]);
    run_lose(w);
    run_settle(u);
    size_t n_lost = 0;
    for (uint64_t pos = 0; pos < 4; pos++)
        n_lost += c->lost[pos];
    assert_int_equal(n_lost, 2);
    run_free(u);
}

/* The row of a pipeline goes with the last stream that has it, whether or not that one was ever written down; also after a restart. */
static void test_pipelines_leave_no_rows(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 2), *first = run_client(u, "first", 0, 1, 0);
    assert_int_equal(run_count(u, 'b'), 1);
    w->silent = true; /* the second stream is never ready, nor written down */
    struct run_peer *second = run_client_with(u, &(struct run_attach){.job = "second", .seed = 7}, 0);
    run_settle(u);
    assert_false(second->attached);
    run_detach(first, true);
    run_settle(u);
    run_pass(u, 31000);
    assert_int_equal(run_count(u, 'c'), 0);
    assert_int_equal(run_count(u, 'b'), 1);
    run_lose(second);
    run_pass(u, 31000);
    assert_int_equal(run_count(u, 'b'), 0);
    run_free(u);
}

/* What a job had far ahead, before it began anew, does not keep the dispatcher from starting. */
static void test_rows_far_ahead(void **state)
{
    (void)state;
    struct run *u = run_new(UINT64_C(1) << 62);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    run_completed(w, &w->streams[0], 0, 1);
    run_settle(u);
    uint8_t id[16];
    memcpy(id, c->streams[0].id, 16);
    struct run_row *row = NULL;
    for (size_t i = 0; i < u->n_rows; i++)
        if (u->rows[i].key[0] == 'e')
            row = &u->rows[i];
    assert_non_null(row);
    uint8_t key[25];
    uint64_t far = UINT64_C(0x0000000000300000); /* 3 * 2^20 */
    memcpy(key, row->key, sizeof(key));
    for (int i = 0; i < 8; i++)
        key[17 + i] = (uint8_t)(far >> (56 - 8 * i));
    run_apply(u, &(struct cw_store_op){.kind = CW_STORE_PUT, .key = key, .key_size = sizeof(key), .value = row->value, .value_size = row->value_size});
    run_kill(u);
    w->used = c->used = false;
    run_start(u);
    c = run_client(u, "job", 0, 1, 0);
    w = run_worker(u, 2);
    run_pass(u, 2500);
    assert_true(c->attached);
    assert_int_equal(c->reports[0], 1);
    assert_true(w->streams[0].held[1]);
    run_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room_beside_a_full_worker),
        cmocka_unit_test(test_unfit_for_a_while),
        cmocka_unit_test(test_other_data_for_a_while),
        cmocka_unit_test(test_capacity_falls_while_leases_are_written),
        cmocka_unit_test(test_plans_that_are_none),
        cmocka_unit_test(test_drain_loses_nothing),
        cmocka_unit_test(test_pipelines_leave_no_rows),
        cmocka_unit_test(test_rows_far_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
