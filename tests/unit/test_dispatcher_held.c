/* The dispatcher's core: jobs that get nothing for a while, what they are told, and whose turn it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dispatcher_run.h"

static struct run_peer *few_streams(struct run *u, uint32_t max_streams)
{
    struct run_peer *w = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    w->capacity = 2;
    w->snapshot = 11;
    w->max_streams = max_streams;
    run_register(w);
    run_settle(u);
    return w;
}

static size_t n_streams(const struct run_peer *w)
{
    size_t n = 0;
    for (size_t i = 0; i < RUN_STREAMS; i++)
        n += w->streams[i].used;
    return n;
}

/* A worker has no more streams than it says; other jobs wait for their turn, in order, and know it. */
static void test_full_workers(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *w = few_streams(u, 2), *c[6];
    char name[16];
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof(name), "job-%d", i);
        c[i] = run_client(u, name, 0, 1, 0);
    }
    assert_int_equal(n_streams(w), 2);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(c[i]->attached, i < 2);
        assert_int_equal(strstr(c[i]->held_by, "--max-streams") != NULL, i >= 2);
    }
    run_pass(u, 70000); /* however long it takes */
    assert_int_equal(n_streams(w), 2);
    for (int i = 0; i < 4; i++) { /* whose rank ends makes room for the next one */
        assert_false(c[i + 2]->attached);
        run_detach(c[i], true);
        run_pass(u, 500);
        assert_true(c[i + 2]->attached);
        assert_int_equal(n_streams(w), 2);
        assert_int_equal(run_held(w), 4);
        assert_string_equal(c[i]->failure, "");
    }
    run_free(u);
}

/* Pipelines that are large together go to a worker one after the other; small ones beside them. */
static void test_large_pipelines(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *w = few_streams(u, 0), *c[3];
    char *large = malloc((20 << 20) + 1);
    assert_non_null(large);
    memset(large, ' ', 20 << 20);
    large[20 << 20] = '\0';
    w->silent = true;
    uint64_t id = 0;
    uint8_t stream[16] = {0};
    for (uint8_t i = 0; i < 3; i++) {
        c[i] = run_client_with(u,
                               &(struct run_attach){.job = (const char *[]){"a", "b", "c"}[i],
                                                    .pipeline = i,
                                                    .text = i < 2 ? large : NULL},
                               0);
        if (i == 0) {
            id = w->prepare_id;
            memcpy(stream, w->prepare_stream, 16);
        }
    }
    assert_int_equal(w->n_prepares, 2); /* a, c */
    w->silent = false;
    run_prepared(w, id, (ProtobufCBinaryData){16, stream});
    run_pass(u, 1000);
    assert_int_equal(w->n_prepares, 3);
    assert_true(c[1]->attached);
    free(large);
    run_free(u);
}

/* What does not fit beside others waits until one of them ends; what does not fit alone is refused. */
static void test_workers_short_of_memory(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *w = few_streams(u, 0), *first = run_client(u, "first", 0, 1, 0);
    w->fails = "option --memory 2446677 is too small";
    w->budget = true;
    struct run_peer *second = run_client(u, "second", 0, 1, 0), *third = run_client(u, "third", 0, 1, 0);
    run_pass(u, 60000);
    assert_int_equal(w->n_prepares, 2); /* third's is not even tried */
    assert_false(second->attached || third->attached);
    assert_string_equal(second->failure, "");
    assert_non_null(strstr(second->held_by, "--memory"));
    w->fails = NULL;
    run_detach(first, true);
    run_pass(u, 1000);
    assert_true(second->attached && third->attached);
    run_detach(second, true);
    run_detach(third, true);
    run_pass(u, 60000);
    w->fails = "option --memory 2446677 is too small";
    assert_non_null(strstr(run_client(u, "fourth", 0, 1, 0)->failure, "too small"));
    run_free(u);
}

/* Without a client, what workers have of an at-most-once job stays, unless another job has nobody. */
static void test_at_most_once_gives_way(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_attach at = {.job = "first",
                            .order = CACHEW__ORDER__ORDER_ANY,
                            .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    struct run_peer *w = few_streams(u, 1), *first = run_client_with(u, &at, 0);
    assert_true(first->attached);
    run_detach(first, false);
    run_pass(u, 60000);
    assert_int_equal(n_streams(w), 1);
    struct run_peer *second = run_client(u, "second", 0, 1, 0);
    run_pass(u, 1000);
    assert_true(second->attached);
    run_free(u);
}

/* A stream that is kept ready without a client gives way at once; one more worker takes those that wait. */
static void test_left_streams_give_way(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *w = few_streams(u, 1), *first = run_client(u, "first", 0, 1, 0);
    run_detach(first, false); /* it may come back */
    run_pass(u, 1000);
    assert_int_equal(n_streams(w), 1);
    struct run_peer *second = run_client(u, "second", 0, 1, 0);
    run_pass(u, 1000);
    assert_true(second->attached);
    struct run_peer *third = run_client(u, "third", 0, 1, 0);
    assert_false(third->attached);
    struct run_peer *other = few_streams(u, 1);
    run_settle(u);
    assert_true(third->attached);
    assert_int_equal(n_streams(other), 1);
    run_lose(w); /* what it had is nobody's until there is room */
    run_pass(u, 1500);
    assert_non_null(strstr(second->held_by, "--max-streams"));
    run_detach(third, true);
    run_pass(u, 1500);
    assert_string_equal(second->held_by, "");
    assert_int_equal(run_held(other), 2);
    run_free(u);
}

/* Room that came about goes to the oldest that waits, whether its data is known or not. */
static void test_the_oldest_has_its_turn(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *w = few_streams(u, 2), *c[3];
    const char *names[] = {"first", "second", "third"};
    for (int i = 0; i < 3; i++)
        c[i] = run_client(u, names[i], 0, 1, 0);
    assert_true(c[0]->attached && c[1]->attached && !c[2]->attached);
    run_lose(w);
    struct run_peer *other = few_streams(u, 1);
    run_detach(c[0], false); /* it may come back, but others wait */
    run_pass(u, 1500);
    assert_string_equal(c[1]->held_by, "");
    assert_int_equal(run_held(other), 2);
    assert_false(c[2]->attached);
    run_free(u);
}

/* Who waited for room with a worker that leaves waits for another worker. */
static void test_full_workers_leave(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *w = few_streams(u, 2);
    run_client(u, "first", 0, 1, 0);
    struct run_peer *second = run_client(u, "second", 0, 1, 0);
    run_lose(w);
    struct run_peer *other = few_streams(u, 1);
    run_pass(u, 1500);
    assert_non_null(strstr(second->held_by, "--max-streams"));
    RUN_SAY(other, Draining, DRAINING, false, RUN_BASE(draining));
    run_pass(u, 1500);
    assert_string_equal(second->held_by, "no worker accepts work: 1 is being drained");
    run_free(u);
}

static void steer(struct run_peer *o, const char *verb, const char *name)
{
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)(uintptr_t)verb,
            .name = (char *)(uintptr_t)name);
    run_settle(o->run);
}

/* Who is kept is told by what: somebody's wish, workers that leave, or see other data, or are not there. */
static void test_reasons(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *o = run_connect(u, CACHEW__ROLE__ROLE_ADMIN_CLIENT), *c = run_client(u, "job", 0, 1, 0);
    run_pass(u, 1500);
    assert_string_equal(c->held_by, "no worker is connected");
    struct run_peer *w = few_streams(u, 0);
    run_pass(u, 1500);
    assert_true(c->attached);
    assert_string_equal(c->held_by, "");
    steer(o, "pause-job", "job");
    assert_true(c->paused);
    assert_non_null(strstr(c->held_by, "the job is paused"));
    struct run_peer *again = run_client(u, "job", 0, 1, 0); /* in its place */
    assert_true(again->paused);
    steer(o, "resume-job", "job");
    assert_false(again->paused);
    assert_string_equal(again->held_by, "");
    RUN_SAY(w, Draining, DRAINING, false, RUN_BASE(draining));
    run_settle(u);
    run_pass(u, 1500);
    assert_string_equal(again->held_by, "no worker accepts work: 1 is being drained");
    run_lose(w);
    struct run_peer *bad = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    bad->capacity = 2;
    bad->snapshot = 12;
    bad->file = "b";
    run_register(bad);
    run_settle(u);
    assert_int_equal(n_streams(bad), 0); /* it is to look again, not to keep what it saw */
    run_pass(u, 1500);
    assert_non_null(strstr(again->held_by, "can't compute this job: it sees other data"));
    bad->silent = true; /* it is asked again after a while, nobody else being there */
    run_pass(u, 31000);
    assert_string_equal(again->held_by, "a worker is opening the data");
    run_free(u);
}

/* What ranks did not get with at-most-once is in the log, and with the job. */
static void test_lost_ranges_are_counted(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_attach at = {.job = "job",
                            .order = CACHEW__ORDER__ORDER_ANY,
                            .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    struct run_peer *w = run_worker(u, 4), *c = run_client_with(u, &at, 0);
    run_lose(w);
    run_worker(u, 8);
    Cachew__Place end = CACHEW__PLACE__INIT;
    end.epoch = 1;
    RUN_SAY(c, Progress, PROGRESS, false, RUN_BASE(progress), .from = &end, .n_lost = 4, .n_batches = 4);
    run_detach(c, true);
    run_settle(u);
    assert_non_null(strstr(u->log, "job \"job\" is done; 4 ranges were lost"));
    char *jobs;
    assert_int_equal(cw_dispatcher_query(u->d, "jobs", u->now_ns, &jobs, NULL), 0);
    assert_non_null(strstr(jobs, "\"lost_ranges\":4"));
    assert_non_null(strstr(jobs, "\"batches\":4"));
    free(jobs);
    run_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_workers),
        cmocka_unit_test(test_large_pipelines),
        cmocka_unit_test(test_workers_short_of_memory),
        cmocka_unit_test(test_at_most_once_gives_way),
        cmocka_unit_test(test_left_streams_give_way),
        cmocka_unit_test(test_the_oldest_has_its_turn),
        cmocka_unit_test(test_full_workers_leave),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_lost_ranges_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
