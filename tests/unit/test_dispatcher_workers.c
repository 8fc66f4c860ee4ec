/* The dispatcher's core: what workers may say, who gets leases, and what is left in the journal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>

#include "base/text.h"
#include "dispatcher_run.h"

static int run_stream_fails(struct run_peer *p, const char *kind, const char *message)
{
    Cachew__Failure why = CACHEW__FAILURE__INIT;
    why.kind = (char *)(uintptr_t)kind;
    why.message = (char *)(uintptr_t)message;
    memset(p->streams[0].held, 0, sizeof(p->streams[0].held));
    return RUN_SAY(p, StreamFailed, STREAM_FAILED, false, RUN_BASE(stream_failed),
                   .stream = {16, p->streams[0].id}, .why = &why);
}

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
    /* One that fails comes back to it, while others go on. */
    assert_int_equal(run_stream_fails(bad, "data", "a file is away"), 0);
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

/* A worker that says that it can have less than it was given while that is written down still gets what it
 * was given. */
static void test_capacity_falls_while_leases_are_written(void **state)
{
    (void)state;
    struct run *u = run_new(400);
    struct run_attach at = {.job = "job",
                            .order = CACHEW__ORDER__ORDER_ANY,
                            .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    struct run_peer *w = run_worker(u, 200), *c = run_client_with(u, &at, 0);
    assert_int_equal(run_held(w), 200);
    u->hold = true;
    run_progress(c, 150, 0); /* as many new ones are on their way through the journal */
    run_settle(u);
    Cachew__Plan plan = run_plan(w);
    Cachew__Prepared prepared = {RUN_BASE(prepared), .stream = {16, w->streams[0].id}, .plan = &plan,
                                 .capacity = 1};
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

/* A plan that is none, and ranges that it does not have, cut off who says them, and hang nobody. */
static void test_plans_that_are_none(void **state)
{
    (void)state;
    struct run *u = run_new(0);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    assert_true(c->attached);
    w->streams[0].used = true;
    memcpy(w->streams[0].id, c->streams[0].id, 16);
    Cachew__Plan plan = run_plan(w);
    Cachew__Prepared prepared = {RUN_BASE(prepared), .stream = {16, w->streams[0].id}, .plan = &plan,
                                 .capacity = 2};
    Cachew__Range range = {RUN_BASE(range), .end = 10}, *ranges[] = {&range};
    Cachew__Holding holding = {RUN_BASE(holding), .prepared = &prepared, .ranges = ranges, .n_ranges = 1},
                    *holdings[] = {&holding};
    RUN_SAY(w, Holdings, HOLDINGS, false, RUN_BASE(holdings), .holdings = holdings, .n_holdings = 1);
    assert_true(w->closed);
    assert_non_null(strstr(
        w->why, "positions 0 to 10: expected an end after the begin, not after the end of the epoch (0)"));
    run_settle(u);
    run_detach(c, true);
    run_pass(u, 31000);
    run_free(u);

    u = run_new(8);
    w = run_worker(u, 2);
    c = run_client(u, "job", 0, 1, 0);
    plan = run_plan(w);
    plan.align = 0;
    prepared.stream = (ProtobufCBinaryData){16, w->streams[0].id};
    holding.n_ranges = 0;
    RUN_SAY(w, Holdings, HOLDINGS, false, RUN_BASE(holdings), .holdings = holdings, .n_holdings = 1);
    assert_true(w->closed);
    assert_non_null(strstr(w->why, "a plan of 80 positions (expected at most 2^62), align 0"));
    run_free(u);
}

/* With at-most-once a worker that leaves finishes what it has, however long it takes: it would be lost. */
static void test_drain_loses_nothing(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_attach at = {.job = "job",
                            .order = CACHEW__ORDER__ORDER_ANY,
                            .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
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

/* The row of a pipeline goes with the last stream that has it, whether or not that one was ever written down;
 * also after a restart. */
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
    run_apply(u, &(struct cw_store_op){.kind = CW_STORE_PUT,
                                       .key = key,
                                       .key_size = sizeof(key),
                                       .value = row->value,
                                       .value_size = row->value_size});
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

/* The first worker's answer is what the stream is; one that sees other data isn't used, and the first file
 * that differs is named. */
static void test_other_data(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *good = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0),
                    *bad = run_worker_data(u, 2, 12), *more = run_worker_data(u, 2, 13);
    more->file = "b";
    run_settle(u);
    assert_true(c->attached);
    assert_int_equal(run_held(good), 2);
    assert_int_equal(run_held(bad) + run_held(more), 0);
    char *json = NULL;
    struct cw_error err = {0};
    assert_int_equal(cw_dispatcher_query(u->d, "workers", u->now_ns, &json, &err), 0);
    assert_non_null(strstr(json, "file \\\"a\\\" has other content"));
    assert_non_null(strstr(json, "file \\\"a\\\" does not exist"));
    free(json);
    run_free(u);
}

/* All workers fail: the client is told why. None is there: it waits. One that never answers is not waited for
 * forever. */
static void test_prepare_fails(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    assert_false(c->attached);
    assert_string_equal(c->failure, "");
    struct run_peer *a = run_connect(u, CACHEW__ROLE__ROLE_WORKER),
                    *b = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    a->silent = b->silent = true;
    a->fails = b->fails = "no such file";
    a->capacity = b->capacity = 1;
    run_register(a);
    run_register(b);
    run_settle(u);
    struct run_peer *asked[2] = {0};
    for (int i = 0; i < 2; i++) { /* the first at once; the second after the first's failure */
        uint64_t id = 0;
        for (struct run_peer *p = a; p; p = p == a ? b : NULL)
            for (size_t k = 0; k < p->n_in; k++)
                if (p->in[k]->of_case == CACHEW__ENVELOPE__OF_PREPARE && p != asked[0]) {
                    assert_null(asked[i]);
                    asked[i] = p;
                    id = p->in[k]->id;
                }
        assert_non_null(asked[i]);
        assert_string_equal(c->failure, "");
        run_prepared(asked[i], id, (ProtobufCBinaryData){0});
        run_settle(u);
    }
    assert_non_null(strstr(c->failure, "data: no such file"));
    run_attach_as(c, &(struct run_attach){.job = "job"}, 0);
    run_settle(u);
    run_pass(u, 9000);
    assert_string_equal(c->failure, "");
    struct run_peer *good = run_worker(u, 1);
    run_pass(u, 2000);
    assert_true(c->attached);
    assert_int_equal(run_held(good), 1);
    run_free(u);
}

/* A worker that can't go on with a stream stays in the service: others run its ranges until it is tried
 * again. */
static void test_stream_fails_at_a_worker(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *a = run_worker(u, 4), *b = run_worker(u, 4), *c = run_client(u, "job", 0, 1, 0);
    struct run_peer *bad = a->streams[0].held[0] ? a : b, *good = bad == a ? b : a;
    unsigned prepared = bad->n_prepares;
    assert_int_equal(run_stream_fails(bad, "io", "the disk is gone"), 0);
    run_settle(u);
    assert_true(good->streams[0].held[0]);
    run_pass(u, 5000);
    assert_int_equal(bad->n_prepares, prepared);
    run_lose(good);
    run_pass(u, 31000);
    assert_true(bad->streams[0].held[0]);
    assert_string_equal(c->failure, "");
    Cachew__Failure why = CACHEW__FAILURE__INIT;
    assert_true(RUN_SAY(bad, StreamFailed, STREAM_FAILED, false, RUN_BASE(stream_failed),
                        .stream = {3, bad->streams[0].id}, .why = &why) < 0);
    run_free(u);
}

/* Only when all workers have failed does the job end, with the reason of each. A worker that is tried again
 * has not failed. */
static void test_stream_fails_at_every_worker(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *a = run_worker(u, 4), *b = run_worker(u, 4), *c = run_client(u, "job", 0, 1, 0);
    assert_int_equal(run_stream_fails(a, "memory", "out of memory here"), 0);
    run_pass(u, 31000);
    assert_true(run_held(a) > 0); /* tried again */
    assert_int_equal(run_stream_fails(b, "budget", "--memory 1000 is too small"), 0);
    run_settle(u);
    assert_true(a->streams[0].held[0] && !c->ended);
    assert_int_equal(run_stream_fails(a, "io", "the disk is full"), 0);
    run_settle(u);
    assert_true(c->ended);
    assert_non_null(strstr(c->failure, "worker 1 (fake): the disk is full"));
    assert_non_null(strstr(c->failure, "worker 2 (fake): --memory 1000 is too small"));
    run_free(u);
}

/* A share of a worker's memory does not suffice for a stream that is under way: it goes on when others end,
 * and is given up only if all of the memory does not suffice. */
static void test_a_stream_fails_beside_others(void **state)
{
    (void)state;
    struct run *u = run_new(1000);
    struct run_peer *w = run_worker(u, 4), *first = run_client(u, "first", 0, 1, 0),
                    *second = run_client(u, "second", 0, 1, 0);
    assert_true(first->attached && second->attached);
    unsigned n_prepares = w->n_prepares;
    assert_int_equal(run_stream_fails(w, "budget", "--memory 1000 is too small"), 0);
    run_pass(u, 60000);
    assert_false(first->ended || second->ended);
    assert_int_equal(w->n_prepares, n_prepares); /* it would fail again */
    assert_non_null(strstr(first->held_by, "--memory"));
    run_detach(second, true);
    run_pass(u, 1000);
    assert_int_equal(w->n_prepares, n_prepares + 1);
    assert_int_equal(run_stream_fails(w, "budget", "--memory 1000 is too small"), 0);
    run_settle(u);
    assert_true(first->ended);
    run_free(u);
}

/* A worker that drains still delivers what it holds: the job does not end while it does. */
static void test_a_draining_worker_that_holds_ranges_keeps_the_job(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *a = run_worker(u, 4), *b = run_worker(u, 4), *c = run_client(u, "job", 0, 1, 0);
    RUN_SAY(a, Draining, DRAINING, false, RUN_BASE(draining));
    run_settle(u);
    assert_true(run_held(a) > 0);
    assert_int_equal(run_stream_fails(b, "io", "the disk is full"), 0);
    run_settle(u);
    assert_false(c->ended);
    run_lose(a);
    run_pass(u, 31000); /* tried again */
    assert_int_equal(run_stream_fails(b, "io", "the disk is full"), 0);
    run_settle(u);
    assert_true(c->ended);
    assert_non_null(strstr(c->failure, "worker 2 (fake): the disk is full"));
    run_free(u);
}

/* Names and reasons are cut between characters; of one worker, however long they are, the reason is told. */
static void test_the_reason_of_a_job_that_failed_is_text(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "\x1b[2J\x1b[2J\x1b[2J\x1b[2J"};
    for (size_t i = 0; i < CW_COUNT_OF(names); i++) {
        char name[200], reason[700] = "";
        struct run *u = run_new(8);
        snprintf(name, sizeof(name), "%s", names[i]);
        while (strlen(name) < 150)
            strcat(name, "\xe2\x82\xac");
        while (strlen(reason) < 600)
            strcat(reason, "\xe2\x82\xac");
        run_lose(run_worker(u, 4));
        run_settle(u);
        run_kill(u);
        u->rows[0].value[0] ^= 1; /* the numbers given so far: the next worker's has seven digits */
        run_start(u);
        struct run_peer *w = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
        run_lose(w);
        w->name = name;
        w->capacity = 4;
        w->snapshot = 11;
        run_connect_as(u, w, CACHEW__ROLE__ROLE_WORKER);
        run_register(w);
        run_settle(u);
        assert_true(w->worker > 1000000);
        struct run_peer *c = run_client(u, "job", 0, 1, 0);
        assert_int_equal(run_stream_fails(w, "io", reason), 0);
        run_settle(u);
        assert_true(c->ended && cw_text_utf8(c->failure, strlen(c->failure)));
        if (strncmp(c->failure, "io: no worker can run the pipeline: worker 1000", 47) != 0)
            fail_msg("%s", c->failure);
        if (!strstr(c->failure, "\xe2\x82\xac): \xe2\x82\xac") || strstr(c->failure, "more") ||
            strchr(c->failure, '\x1b'))
            fail_msg("%s", c->failure);
        run_free(u);
    }
}

/* A worker that was given ranges of a stream that it has not got did not fail: it gets it anew. */
static void test_stream_is_not_there(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 4), *c = run_client(u, "job", 0, 1, 0);
    unsigned prepared = w->n_prepares;
    assert_int_equal(run_stream_fails(w, "service", "it is not prepared here"), 0);
    run_pass(u, 1000);
    assert_int_equal(w->n_prepares, prepared + 1);
    assert_true(w->streams[0].held[0] && !c->ended);
    run_free(u);
}

/* Late: 0.3 s longer than expected, and three times as long; then another worker runs it too. The first to
 * complete keeps it. */
static void test_late(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *a = run_worker(u, 2), *b = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    struct run_peer *slow = a->streams[0].held[0] ? a : b, *fast = slow == a ? b : a;
    for (uint64_t pos = 0; pos < 4; pos++)
        if (fast->streams[0].held[pos])
            run_completed(fast, &fast->streams[0], pos, 1);
    run_settle(u);
    run_pass(u, 200); /* others took next to no time */
    assert_false(fast->streams[0].held[0]);
    run_pass(u, 200);
    assert_true(fast->streams[0].held[0] && slow->streams[0].held[0]);
    assert_int_equal(c->placed[0], fast->worker + 1);
    assert_int_equal(run_held(fast), 3);          /* one more than its capacity, as all it has is finished */
    run_completed(slow, &slow->streams[0], 0, 1); /* after all */
    run_settle(u);
    assert_false(fast->streams[0].held[0]);
    assert_true(slow->streams[0].held[0]);
    assert_int_equal(c->placed[0], slow->worker + 1);
    uint64_t id = run_completed(fast, &fast->streams[0], 0, 1);
    run_settle(u);
    assert_true(run_answered(fast, id));
    assert_int_equal(c->n_reports[0], 1);
    run_free(u);
}

/* Ranges that take long are not late because of that. */
static void test_late_by_the_rate(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *a = run_worker(u, 1), *b = run_worker(u, 1), *c = run_client(u, "job", 0, 1, 0);
    for (uint64_t pos = 0; pos < 10; pos += 2) { /* each takes 0.9 s */
        run_pass(u, 900);
        for (uint64_t i = pos; i < pos + 2; i++) {
            struct run_peer *holder = a->streams[0].held[i] ? a : b;
            run_completed(holder, &holder->streams[0], i, 1);
        }
        run_progress(c, pos + 2, 0);
        run_settle(u);
    }
    struct run_peer *slow = a->streams[0].held[10] ? a : b, *fast = slow == a ? b : a;
    run_completed(fast, &fast->streams[0], 11, 1);
    run_pass(u, 1600); /* 11 ranges took 9 s together: twice 0.82 s */
    assert_false(fast->streams[0].held[10]);
    run_pass(u, 200);
    assert_true(fast->streams[0].held[10]);
    run_free(u);
}

/* Draining: unfinished ranges move at once, finished ones stay for 10 s, nothing new comes. */
static void test_drain(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *a = run_worker(u, 2), *b = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    struct run_peer *leaves = a->streams[0].held[0] ? a : b, *stays = leaves == a ? b : a;
    run_completed(leaves, &leaves->streams[0], 0, 1);
    run_settle(u);
    uint64_t begun = 1;
    while (!leaves->streams[0].held[begun])
        begun++;
    RUN_SAY(leaves, Draining, DRAINING, false, RUN_BASE(draining));
    run_settle(u);
    /* what it computes it may finish */
    assert_true(leaves->streams[0].held[0] && leaves->streams[0].held[begun]);
    assert_int_equal(c->placed[begun], leaves->worker + 1);
    run_completed(leaves, &leaves->streams[0], begun, 1);
    for (uint64_t pos = 1; pos < 6; pos++)
        if (stays->streams[0].held[pos])
            run_completed(stays, &stays->streams[0], pos, 1);
    run_settle(u);
    size_t held = run_held(leaves);
    assert_int_equal(c->placed[0], leaves->worker + 1);
    run_pass(u, 9000);
    assert_int_equal(run_held(leaves), held); /* and nothing new came */
    run_pass(u, 1500);
    assert_int_equal(run_held(leaves), 0);
    assert_true(stays->streams[0].held[0]);
    assert_int_equal(c->placed[0], stays->worker + 1);
    run_free(u);
}

/* A name that is longer than is kept ends with a whole character, so that it is shown; and one that would
 * move the cursor is escaped in the log. */
static void test_names_of_workers_are_cut_between_characters(void **state)
{
    (void)state;
    char name[400] = "", *workers;
    for (int i = 0; i < 100; i++)
        strcat(name, "\xe2\x82\xac");
    strcpy(name + 240, "\x1b[2J\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac");
    struct run *u = run_new(8);
    struct run_peer *w = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    run_lose(w);
    w->name = name;
    w->capacity = 2;
    w->fails = "bad \xe2\x80\xae"
               "data\n";
    run_connect_as(u, w, CACHEW__ROLE__ROLE_WORKER);
    run_register(w);
    run_client(u, "job", 0, 1, 0);
    run_settle(u);
    assert_int_equal(cw_dispatcher_query(u->d, "workers", u->now_ns, &workers, NULL), 0);
    json_t *list = json_loads(workers, 0, NULL);
    const char *shown = json_string_value(json_object_get(json_array_get(list, 0), "name"));
    assert_true(strlen(shown) == 253 && memcmp(shown, name, 253) == 0);
    assert_non_null(strstr(u->log, "\\u001b[2J"));
    assert_non_null(strstr(u->log, "bad \\u202edata\\n"));
    json_decref(list);
    free(workers);
    run_free(u);
}

/* A worker that a client does not reach: what it needs moves, if there is another. */
static void test_unreachable(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *a = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    RUN_SAY(c, Unreachable, UNREACHABLE, false, RUN_BASE(unreachable), .worker = a->worker,
            .reason = (char *)"timed out");
    run_settle(u);
    assert_int_equal(run_held(a), 2); /* nobody else could do better */
    struct run_peer *b = run_worker(u, 64);
    RUN_SAY(c, Unreachable, UNREACHABLE, false, RUN_BASE(unreachable), .worker = a->worker,
            .reason = (char *)"timed out");
    run_settle(u);
    assert_int_equal(run_held(a), 0);
    assert_true(b->streams[0].held[0] && b->streams[0].held[1]);
    run_pass(u, 29000);
    assert_int_equal(run_held(a), 0);
    run_pass(u, 2000);
    assert_int_equal(run_held(a), 2); /* what b has not finished, which is late by now */
    RUN_SAY(c, Unreachable, UNREACHABLE, false, RUN_BASE(unreachable), .worker = a->worker,
            .reason = (char *)"timed out");
    run_settle(u);
    run_lose(b); /* now it is better than nobody */
    run_settle(u);
    assert_int_equal(run_held(a), 2);
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
        cmocka_unit_test(test_other_data),
        cmocka_unit_test(test_prepare_fails),
        cmocka_unit_test(test_stream_fails_at_a_worker),
        cmocka_unit_test(test_a_draining_worker_that_holds_ranges_keeps_the_job),
        cmocka_unit_test(test_the_reason_of_a_job_that_failed_is_text),
        cmocka_unit_test(test_stream_fails_at_every_worker),
        cmocka_unit_test(test_a_stream_fails_beside_others),
        cmocka_unit_test(test_stream_is_not_there),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_late_by_the_rate),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_names_of_workers_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
