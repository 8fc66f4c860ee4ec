/* The dispatcher's core: who may join a job, how jobs end and are kept, and what they can be told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dispatcher_run.h"
#include "sample.h"

/* Who joins a job must want the same; the refusal says what differs, and from what. */
static void test_attach_differs(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    run_worker(u, 2);
    struct run_attach base = {.job = "job", .world_size = 2, .seed = 3, .epochs = 4}, a;
    struct run_peer *first = run_client_with(u, &base, 0);

    struct {
        size_t at;
        const char *attribute, *value, *expected;
    } cases[] = {
        {0, "seed", "5", "3"},
        {1, "epochs", "9", "4"},
        {2, "world_size", "3", "2"},
        {3, "order", "any", "exact"},
        {4, "pipeline", "01000000000000000000000000000000", "00000000000000000000000000000000"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        a = base;
        a.rank = 1;
        a.seed = i == 0 ? 5 : a.seed;
        a.epochs = i == 1 ? 9 : a.epochs;
        a.world_size = i == 2 ? 3 : a.world_size;
        a.order = i == 3 ? CACHEW__ORDER__ORDER_ANY : a.order;
        a.pipeline = i == 4;
        struct run_peer *c = run_client_with(u, &a, 0);
        assert_false(c->attached);
        assert_string_equal(c->attribute, cases[i].attribute);
        assert_string_equal(c->value, cases[i].value);
        assert_string_equal(c->expected, cases[i].expected);
        assert_false(c->closed); /* the connection is good */
        run_lose(c);
    }
    a = base;
    a.rank = 2;
    assert_non_null(strstr(run_client_with(u, &a, 0)->failure, "rank is 2"));
    a = (struct run_attach){.job = "lossy", .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    assert_non_null(strstr(run_client_with(u, &a, 0)->failure, "at-most-once"));
    assert_non_null(strstr(run_client(u, "", 0, 1, 0)->failure, "name"));
    /* one epoch of 8 */
    assert_non_null(strstr(run_client(u, "far", 0, 1, 9)->failure, "in epoch 1, lies after the end"));
    /* Once all have left, the name is free for something else. */
    run_lose(first);
    a = base;
    a.world_size = 3;
    assert_true(run_client_with(u, &a, 0)->attached);
    run_free(u);
}

/* What the client was told when it was attached: whose place it took. */
static const char *took_over(const struct run_peer *p)
{
    const char *text = NULL;
    for (size_t i = 0; i < p->n_in; i++)
        if (p->in[i]->of_case == CACHEW__ENVELOPE__OF_ATTACHED)
            text = p->in[i]->attached->took_over;
    return text;
}

/* A second client of a rank takes its place, and both are told. */
static void test_take_over(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    run_worker(u, 2);
    struct run_peer *old = run_client(u, "job", 0, 1, 0), *new = run_client(u, "job", 0, 1, 0);
    assert_true(old->ended && new->attached && !new->ended);
    assert_non_null(strstr(old->failure, "taken over"));
    assert_string_equal(took_over(old), "");
    assert_non_null(strstr(took_over(new), "a client on "));
    assert_int_equal(run_progress(old, 4, 0), 0); /* was on its way: no harm */
    run_settle(u);
    assert_int_equal(new->placed[0] > 0, 1);
    run_free(u);
}

/* Jobs end, are listed, make room for a new one of the same name, and are collected. */
static void test_job_life(void **state)
{
    (void)state;
    struct run *u = run_new(4);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 2, 0),
                    *c1 = run_client(u, "job", 1, 2, 0);
    char *json = NULL;
    struct cw_error err = {0};
    run_detach(c, true);
    run_settle(u);
    assert_int_equal(run_held(w), 2);
    run_progress(c1, 4, 0);
    run_detach(c1, true);
    run_settle(u);
    assert_int_equal(run_held(w), 0);
    assert_int_equal(cw_dispatcher_query(u->d, "jobs", u->now_ns, &json, &err), 0);
    assert_non_null(strstr(json, "\"state\":\"done\""));
    assert_non_null(strstr(json, "{\"rank\":1,\"g\":4,\"attached\":false"));
    assert_non_null(strstr(json, "\"digest_so_far\":\"00000000000000000000000000000004\""));
    free(json);
    /* with another world size, on a stream of its own: the data may be others by now */
    struct run_peer *again = run_client(u, "job", 0, 3, 0);
    assert_true(again->attached);
    assert_int_equal(run_held(w), 2);
    size_t prepares = 0;
    for (size_t i = 0; i < w->n_in; i++)
        prepares += w->in[i]->of_case == CACHEW__ENVELOPE__OF_PREPARE;
    assert_int_equal(prepares, 2);
    run_lose(again);
    run_settle(u);
    u->now_ns += UINT64_C(3599) * 1000000000;
    run_pass(u, 100);
    assert_int_equal(run_count(u, 'f'), 1);
    run_pass(u, 1000);
    assert_int_equal(run_count(u, 'f'), 0);
    assert_int_equal(run_held(w), 0);
    run_free(u);
}

/* Thousands of short jobs, each with data of its own: what they leave behind is bounded. */
static void test_many_jobs(void **state)
{
    (void)state;
    struct run *u = run_new(4);
    struct run_peer *w = run_worker(u, 2);
    char name[32];
    for (uint64_t i = 0; i < 1500; i++) {
        snprintf(name, sizeof(name), "job %" PRIu64, i);
        struct run_peer *c = run_client_with(u, &(struct run_attach){.job = name, .seed = i}, 0);
        assert_true(c->attached);
        run_progress(c, 4, 0);
        run_detach(c, true);
        run_settle(u);
        run_lose(c);
        run_pass(u, 100); /* the worker is told to forget: it has places for so many streams only */
        run_peer_clear(w);
    }
    assert_int_equal(run_count(u, 'f'), 1000);
    assert_true(run_count(u, 'c') <= 16 && run_count(u, 'e') == 0);
    run_pass(u, 31000);
    assert_int_equal(run_count(u, 'b') + run_count(u, 'c'), 0);
    run_kill(u); /* they are listed by the next one too */
    run_start(u);
    char *json = NULL;
    struct cw_error err = {0};
    assert_int_equal(cw_dispatcher_query(u->d, "jobs", u->now_ns, &json, &err), 0);
    assert_null(strstr(json, "\"job 499\""));
    assert_non_null(strstr(json, "\"job 500\""));
    free(json);
    run_free(u);
}

/* Jobs that were left in their middle: workers keep the youngest few ready, and any of them goes on when its
 * client is back. */
static void test_left_jobs(void **state)
{
    (void)state;
    struct run *u = run_new(4);
    struct run_peer *w = run_worker(u, 2);
    char name[32];
    for (uint64_t i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "job %" PRIu64, i);
        struct run_peer *c = run_client_with(u, &(struct run_attach){.job = name, .seed = i}, 0);
        assert_true(c->attached);
        run_progress(c, 1, 0);
        run_detach(c, false);
        run_settle(u);
        run_lose(c);
        run_pass(u, 2000); /* the worker has places for 20 streams only */
        run_peer_clear(w);
    }
    run_pass(u, 31000);
    assert_int_equal(run_held(w), 0);
    assert_int_equal(run_count(u, 'f'), 60);
    struct run_peer *c = run_client_with(u, &(struct run_attach){.job = "job 3", .seed = 3}, 1);
    assert_true(c->attached);
    assert_int_equal(run_held(w), 2);
    run_lose(c);
    run_pass(u, 4000); /* a lost connection is no reason */
    assert_int_equal(run_held(w), 2);
    run_kill(u);
    run_start(u);
    w = run_worker(u, 2);
    run_pass(u, 31000); /* after a restart all of them are left */
    assert_int_equal(run_held(w), 0);
    c = run_client_with(u, &(struct run_attach){.job = "job 4", .seed = 4}, 1);
    assert_true(c->attached);
    assert_int_equal(run_held(w), 2);
    run_free(u);
}

/* As many as there may be, all left: another one takes the place of that which was left first. */
static void test_no_room_for_jobs(void **state)
{
    (void)state;
    LEAVE_OUT_OF_SAMPLE();
    struct run *u = run_new(4);
    struct run_peer *w = run_worker(u, 2);
    char name[32], *json = NULL;
    struct cw_error err = {0};
    for (uint64_t i = 0; i <= 10000; i++) {
        snprintf(name, sizeof(name), "job %" PRIu64, i);
        struct run_peer *c = run_client_with(u, &(struct run_attach){.job = name, .seed = i}, 0);
        assert_true(c->attached);
        run_detach(c, false);
        run_settle(u);
        run_lose(c);
        run_pass(u, 10);
        run_peer_clear(w);
        while (u->n_rows > 0) /* nobody reads it, and it gets slow */
            run_delete(u, u->n_rows - 1);
    }
    assert_int_equal(cw_dispatcher_query(u->d, "jobs", u->now_ns, &json, &err), 0);
    assert_null(strstr(json, "\"job 0\""));
    assert_non_null(strstr(json, "\"job 1\""));
    assert_non_null(strstr(json, "\"job 10000\""));
    free(json);
    run_free(u);
}

/* Without sharing, equal jobs don't meet; with it, the slower one paces both, unless it has no client. */
static void test_two_jobs(void **state)
{
    (void)state;
    for (int share = 0; share < 2; share++) {
        struct run *u = run_new(40);
        run_start_shared(u, share);
        struct run_peer *w = run_worker(u, 2), *a = run_client(u, "a", 0, 1, 0),
                        *b = run_client(u, "b", 0, 1, 0);
        assert_true(a->attached && b->attached);
        assert_int_equal(memcmp(a->streams[0].id, b->streams[0].id, 16) == 0, share);
        assert_int_equal(run_held(w), share ? 2 : 4);
        run_progress(a, 5, 0);
        run_settle(u);
        assert_int_equal(run_held(w), share ? 2 : 4);
        if (share) {
            assert_true(w->streams[0].held[0]);
            run_lose(b);
            run_settle(u);
            assert_true(w->streams[0].held[5] && w->streams[0].held[6]);
        }
        run_free(u);
    }
}

/* Steering: paused jobs get nothing new, cancelled ones end; drained workers are told. */
static void test_steer(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0),
                    *o = run_connect(u, CACHEW__ROLE__ROLE_ADMIN_CLIENT);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"pause-job", .name = (char *)"job");
    run_progress(c, 2, 0);
    run_settle(u);
    assert_true(run_answered(o, o->last_id));
    assert_int_equal(run_held(w), 0);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"resume-job", .name = (char *)"job");
    run_settle(u);
    assert_int_equal(run_held(w), 2);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"cancel-job", .name = (char *)"job");
    run_settle(u);
    assert_true(c->ended);
    assert_string_equal(c->failure, "service: job \"job\" was cancelled");
    assert_int_equal(run_held(w), 0);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"cancel-job", .name = (char *)"job");
    run_settle(u);
    assert_non_null(strstr(o->failure, "there is no running job \"job\""));
    char id[32];
    snprintf(id, sizeof(id), "%" PRIu64, w->worker);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"drain-worker", .name = id);
    run_settle(u);
    assert_true(w->drain);
    RUN_SAY(o, Query, QUERY, true, RUN_BASE(query), .what = (char *)"everything");
    assert_non_null(
        strstr(o->in[o->n_in - 1]->failure->message, "expected jobs, workers, streams, pools, status"));
    run_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attach_differs), cmocka_unit_test(test_take_over),
        cmocka_unit_test(test_job_life),       cmocka_unit_test(test_many_jobs),
        cmocka_unit_test(test_left_jobs),      cmocka_unit_test(test_no_room_for_jobs),
        cmocka_unit_test(test_two_jobs),       cmocka_unit_test(test_steer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
