/* The dispatcher's core, rule by rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dispatcher_run.h"

/* One job, three workers: every split once, in order of cursors, up to capacities; reports in order; then it is over. */
static void test_one_job(void **state)
{
    (void)state;
    struct run *u = run_new(20);
    struct run_peer *w[3] = {run_worker(u, 2), run_worker(u, 2), run_worker(u, 2)};
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    assert_true(c->attached);
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_held(w[i]), 2);
    for (uint64_t pos = 0; pos < 20; pos++) {
        assert_true(c->placed[pos] > 1);
        struct run_peer *holder = run_find_worker(u, c->placed[pos] - 1);
        assert_true(holder->streams[0].held[pos]);
        uint64_t id = run_completed(holder, &holder->streams[0], pos, 3 + pos % 2);
        run_settle(u);
        assert_true(run_answered(holder, id));
        assert_int_equal(c->next_report, pos + 1);
        assert_int_equal(c->reports[pos], 3 + pos % 2);
        assert_int_equal(run_progress(c, pos + 1, 0), 0);
        run_settle(u);
        assert_false(holder->streams[0].held[pos]);
    }
    assert_int_equal(run_count(u, 'f'), 1);
    run_detach(c, true);
    run_settle(u);
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_held(w[i]), 0);
    run_pass(u, 31000);
    for (int i = 0; i < 3; i++)
        assert_true(w[i]->forgot);
    assert_int_equal(run_count(u, 'b') + run_count(u, 'c') + run_count(u, 'd') + run_count(u, 'e'), 0);
    run_free(u);
}

/* What a worker that dies had goes to the others in the same turn, and the client is told. */
static void test_worker_lost(void **state)
{
    (void)state;
    struct run *u = run_new(20);
    struct run_peer *a = run_worker(u, 3), *b = run_worker(u, 3);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    uint64_t gone = a->worker;
    bool first = a->streams[0].held[0]; /* whoever has the first split dies */
    struct run_peer *dies = first ? a : b, *lives = first ? b : a;
    gone = dies->worker;
    run_lose(dies);
    run_settle(u);
    /* The other was full of later splits: one of them made room for the first; no capacity is exceeded. */
    assert_true(lives->streams[0].held[0]);
    assert_int_equal(run_held(lives), 3);
    assert_int_equal(c->placed[0], lives->worker + 1);
    for (uint64_t pos = 0; pos < 20; pos++)
        assert_true(c->placed[pos] != gone + 1);
    bool told = false;
    for (size_t i = 0; i < c->n_in; i++)
        if (c->in[i]->of_case == CACHEW__ENVELOPE__OF_WORKERS)
            told |= c->in[i]->workers->workers[0]->worker == gone && c->in[i]->workers->workers[0]->gone;
    assert_true(told);
    run_free(u);
}

/* A completion is acknowledged, and told to clients, after it is durable; a full disk only delays both. */
static void test_durable_first(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    u->hold = true;
    uint64_t id = run_completed(w, &w->streams[0], 0, 5);
    run_settle(u);
    assert_false(run_answered(w, id));
    assert_int_equal(c->next_report, 0);
    u->full = true;
    run_commit(u);
    run_settle(u);
    assert_false(run_answered(w, id));
    uint64_t second = run_completed(w, &w->streams[0], 1, 6); /* behind what failed */
    u->hold = false;
    run_pass(u, 2500);
    assert_false(run_answered(w, id));
    assert_non_null(strstr(u->log, "the disk is full"));
    u->full = false;
    run_pass(u, 1500);
    assert_true(run_answered(w, id) && run_answered(w, second));
    assert_int_equal(c->next_report, 2);
    assert_int_equal(c->reports[0], 5);
    assert_non_null(strstr(u->log, "written again"));
    assert_int_equal(run_count(u, 'e'), 2);
    run_free(u);
}

/* What was said after a commit that failed comes after it: the later word on a thing stays. */
static void test_failed_order(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0), *o = run_connect(u, CACHEW__ROLE__ROLE_OBSERVER);
    u->full = true;
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"pause-job", .name = (char *)"job");
    run_settle(u);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"resume-job", .name = (char *)"job");
    run_settle(u);
    u->full = false;
    run_pass(u, 1500);
    assert_true(run_answered(o, o->last_id));
    run_kill(u);
    w->used = c->used = o->used = false;
    run_start(u);
    w = run_worker(u, 2);
    c = run_client(u, "job", 0, 1, 0);
    run_pass(u, 2500);
    assert_int_equal(run_held(w), 2);
    run_free(u);
}

/* An id is not given again, also when nothing but a number is left of who had it. */
static void test_ids(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 1);
    uint64_t id = w->worker;
    run_lose(w);
    u->now_ns += UINT64_C(601) * 1000000000;
    run_pass(u, 1100);
    assert_int_equal(run_count(u, 'g'), 0);
    run_kill(u);
    run_start(u);
    assert_true(run_worker(u, 1)->worker > id);
    run_free(u);
}

/* Reports come in order, whatever the order of completions; said again they do nothing; a client that comes later gets those it needs. */
static void test_reports(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 4), *c = run_client(u, "job", 0, 2, 0);
    for (int pos = 3; pos >= 1; pos--)
        run_completed(w, &w->streams[0], (uint64_t)pos, (uint64_t)pos);
    run_settle(u);
    assert_int_equal(c->next_report, 0);
    run_completed(w, &w->streams[0], 0, 9);
    run_settle(u);
    assert_int_equal(c->next_report, 4);
    uint64_t again = run_completed(w, &w->streams[0], 2, 2);
    run_settle(u);
    assert_true(run_answered(w, again));
    assert_int_equal(c->n_reports[2], 1);
    struct run_peer *second = run_client(u, "job", 1, 2, 2);
    assert_int_equal(second->next_report, 4);
    assert_int_equal(second->n_reports[1], 0);
    assert_int_equal(second->n_reports[2], 1);
    run_free(u);
}

/* Two reports of one split that differ: the job fails, with both said; the first stays. */
static void test_contradiction(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 4), *c = run_client(u, "job", 0, 1, 0);
    run_completed(w, &w->streams[0], 0, 5);
    run_settle(u);
    uint64_t id = run_completed(w, &w->streams[0], 0, 6);
    run_settle(u);
    assert_true(run_answered(w, id));
    assert_true(c->ended);
    assert_non_null(strstr(c->failure, "data: split 0 of epoch 0 gave 5 batches"));
    assert_non_null(strstr(c->failure, "but 6 batches"));
    assert_non_null(strstr(u->log, "! split 0"));
    assert_int_equal(run_held(w), 0);
    run_free(u);
}

/* Nothing is given up while a rank may ask for it: the least cursor counts, also of ranks that were not here yet, or are away. */
static void test_low_water_mark(void **state)
{
    (void)state;
    struct run *u = run_new(20);
    struct run_peer *w = run_worker(u, 4), *c0 = run_client(u, "job", 0, 2, 0);
    run_progress(c0, 3, 0);
    run_settle(u);
    assert_int_equal(run_held(w), 4);
    assert_true(w->streams[0].held[0]); /* rank 1 was not here */
    struct run_peer *c1 = run_client(u, "job", 1, 2, 0);
    run_progress(c1, 2, 1);
    run_settle(u);
    assert_false(w->streams[0].held[1]);
    assert_true(w->streams[0].held[2] && w->streams[0].held[5]);
    run_lose(c1);
    run_progress(c0, 5, 0);
    run_settle(u);
    assert_true(w->streams[0].held[2]); /* it may come back */
    c1 = run_client(u, "job", 1, 2, 1); /* from an earlier state */
    run_settle(u);
    assert_true(c1->attached);
    assert_true(w->streams[0].held[1]); /* room was made for it */
    assert_int_equal(run_held(w), 4);
    assert_int_equal(run_progress(c1, 0, 0), CW_E_SERVICE); /* within an attachment nobody goes back */
    run_free(u);
}

/* Leases say from which batch on anybody needs the split. */
static void test_first_batch(void **state)
{
    (void)state;
    struct run *u = run_new(20);
    struct run_peer *w = run_worker(u, 2);
    struct run_peer *c = run_client_with(u, &(struct run_attach){.job = "job", .batch = 7}, 4);
    assert_int_equal(w->streams[0].batch[4], 7);
    assert_int_equal(w->streams[0].batch[5], 0);
    assert_false(w->streams[0].held[3]);
    run_progress(c, 4, 9);
    run_lose(w);
    w = run_worker(u, 2);
    assert_int_equal(w->streams[0].batch[4], 9);
    run_free(u);
}

/* Who joins a job must want the same; the refusal says what differs, and from what. */
static void test_attach_differs(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    run_worker(u, 2);
    struct run_attach base = {.job = "job", .world_size = 2, .seed = 3, .epochs = 4}, a;
    struct run_peer *first = run_client_with(u, &base, 0);
    struct { size_t at; const char *attribute, *value, *expected; } cases[] = {
        {0, "seed", "5", "3"}, {1, "epochs", "9", "4"}, {2, "world_size", "3", "2"}, {3, "order", "any", "exact"}, {4, "pipeline", "01000000000000000000000000000000",
                                                                                                                     "00000000000000000000000000000000"},
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
        assert_int_equal(run_say(c, &(Cachew__Envelope){RUN_BASE(envelope), .of_case = CACHEW__ENVELOPE__OF_PING}), 0); /* the connection is good */
        run_lose(c);
    }
    a = base;
    a.rank = 2;
    assert_non_null(strstr(run_client_with(u, &a, 0)->failure, "rank is 2"));
    a = (struct run_attach){.job = "lossy", .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    assert_non_null(strstr(run_client_with(u, &a, 0)->failure, "at-most-once"));
    assert_non_null(strstr(run_client(u, "", 0, 1, 0)->failure, "name"));
    assert_non_null(strstr(run_client(u, "far", 0, 1, 9)->failure, "epoch 1 is behind the last")); /* one epoch of 8 */
    /* Once all have left, the name is free for something else. */
    run_lose(first);
    a = base;
    a.world_size = 3;
    assert_true(run_client_with(u, &a, 0)->attached);
    run_free(u);
}

/* A second client of a rank takes its place. */
static void test_take_over(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    run_worker(u, 2);
    struct run_peer *old = run_client(u, "job", 0, 1, 0), *new = run_client(u, "job", 0, 1, 0);
    assert_true(old->ended && new->attached && !new->ended);
    assert_non_null(strstr(old->failure, "taken over"));
    assert_int_equal(run_progress(old, 4, 0), 0); /* was on its way: no harm */
    run_settle(u);
    assert_int_equal(new->placed[0] > 0, 1);
    run_free(u);
}

/* The first worker's answer is what the stream is; one that sees other data isn't used, and the first file that differs is named. */
static void test_other_data(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *good = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0), *bad = run_worker_data(u, 2, 12), *more = run_worker_data(u, 2, 13);
    more->file = "b";
    run_settle(u);
    assert_true(c->attached);
    assert_int_equal(run_held(good), 2);
    assert_int_equal(run_held(bad) + run_held(more), 0);
    char *json = NULL;
    struct cw_error err = {0};
    assert_int_equal(cw_dispatcher_query(u->d, "workers", u->now_ns, &json, &err), 0);
    assert_non_null(strstr(json, "file \\\"a\\\" has other content"));
    assert_non_null(strstr(json, "file \\\"a\\\" is not there"));
    free(json);
    run_free(u);
}

/* All workers fail: the client is told why. None is there: it waits. One that never answers is not waited for forever. */
static void test_prepare_fails(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    assert_false(c->attached);
    assert_string_equal(c->failure, "");
    struct run_peer *a = run_connect(u, CACHEW__ROLE__ROLE_WORKER), *b = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
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

/* A worker that can't go on with a stream stays in the service: others run its splits, and where there are none it is prepared anew. */
static void test_stream_fails_at_a_worker(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *a = run_worker(u, 4), *b = run_worker(u, 4), *c = run_client(u, "job", 0, 1, 0);
    struct run_peer *bad = a->streams[0].held[0] ? a : b, *good = bad == a ? b : a;
    Cachew__StreamFailed failed = CACHEW__STREAM_FAILED__INIT;
    Cachew__Failure why = CACHEW__FAILURE__INIT;
    Cachew__Envelope m = CACHEW__ENVELOPE__INIT;
    why.kind = (char *)(uintptr_t)"io";
    why.message = (char *)(uintptr_t)"the disk is gone";
    failed.stream = (ProtobufCBinaryData){16, bad->streams[0].id};
    failed.why = &why;
    m.of_case = CACHEW__ENVELOPE__OF_STREAM_FAILED;
    m.stream_failed = &failed;
    memset(bad->streams[0].held, 0, sizeof(bad->streams[0].held));
    assert_int_equal(run_say(bad, &m), 0);
    run_settle(u);
    assert_true(good->streams[0].held[0]);
    assert_int_equal(run_held(bad), 0);
    run_lose(good);
    run_pass(u, 4000);
    assert_true(bad->streams[0].held[0]);
    assert_string_equal(c->failure, "");
    failed.stream.len = 3;
    assert_true(run_say(bad, &m) < 0);
    run_free(u);
}

/* Late: no other had it done for a second, and three times the median; then another runs it too. The first to complete keeps it. */
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
    run_pass(u, 900);
    assert_false(fast->streams[0].held[0]);
    run_pass(u, 300);
    assert_true(fast->streams[0].held[0] && slow->streams[0].held[0]);
    assert_int_equal(c->placed[0], fast->worker + 1);
    assert_int_equal(run_held(fast), 3); /* one more than its capacity, as all it has is finished */
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

/* Splits that take long are not late because of that. */
static void test_late_median(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *a = run_worker(u, 1), *b = run_worker(u, 1), *c = run_client(u, "job", 0, 1, 0);
    for (uint64_t pos = 0; pos < 10; pos += 2) { /* each takes 0.9 s */
        run_pass(u, 900);
        for (uint64_t i = pos; i < pos + 2; i++)
            run_completed(a->streams[0].held[i] ? a : b, &a->streams[0], i, 1);
        run_progress(c, pos + 2, 0);
        run_settle(u);
    }
    struct run_peer *slow = a->streams[0].held[10] ? a : b, *fast = slow == a ? b : a;
    run_completed(fast, &fast->streams[0], 11, 1);
    run_pass(u, 2500);
    assert_false(fast->streams[0].held[10]);
    run_pass(u, 400);
    assert_true(fast->streams[0].held[10]);
    run_free(u);
}

/* Draining: unfinished splits move at once, finished ones stay for 10 s, nothing new comes. */
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
    assert_true(leaves->streams[0].held[0] && leaves->streams[0].held[begun]); /* what it computes it may finish */
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

/* A worker that a client does not reach: what it needs moves, if there is another. */
static void test_unreachable(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *a = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    RUN_SAY(c, Unreachable, UNREACHABLE, false, RUN_BASE(unreachable), .worker = a->worker, .reason = (char *)"timed out");
    run_settle(u);
    assert_int_equal(run_held(a), 2); /* nobody else could do better */
    struct run_peer *b = run_worker(u, 64);
    RUN_SAY(c, Unreachable, UNREACHABLE, false, RUN_BASE(unreachable), .worker = a->worker, .reason = (char *)"timed out");
    run_settle(u);
    assert_int_equal(run_held(a), 0);
    assert_true(b->streams[0].held[0] && b->streams[0].held[1]);
    run_pass(u, 29000);
    assert_int_equal(run_held(a), 0);
    run_pass(u, 2000);
    assert_int_equal(run_held(a), 1); /* the first split, which is late at b by now */
    RUN_SAY(c, Unreachable, UNREACHABLE, false, RUN_BASE(unreachable), .worker = a->worker, .reason = (char *)"timed out");
    run_settle(u);
    run_lose(b); /* now it is better than nobody */
    run_settle(u);
    assert_int_equal(run_held(a), 2);
    run_free(u);
}

/* kill -9: workers come back with what they hold, under their ids; nobody else gets it; completions are known. */
static void test_restart(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *a = run_worker(u, 2), *b = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    uint64_t ids[2] = {a->worker, b->worker};
    struct run_peer *first = a->streams[0].held[0] ? a : b;
    run_completed(first, &first->streams[0], 0, 5);
    run_settle(u);
    bool held[4];
    for (uint64_t pos = 0; pos < 4; pos++)
        held[pos] = a->streams[0].held[pos];
    run_kill(u);
    u->now_ns += 1000000;
    run_start(u);
    run_reconnect(a);
    assert_int_equal(a->worker, ids[0]);
    c->used = false;
    c = run_client(u, "job", 0, 1, 0);
    assert_true(c->attached);
    assert_int_equal(run_held(a), 2); /* b may still come: what it has is given to nobody */
    run_pass(u, 1500);
    assert_int_equal(run_held(a), 2);
    run_reconnect(b);
    run_pass(u, 100);
    assert_int_equal(b->worker, ids[1]);
    for (uint64_t pos = 0; pos < 4; pos++) {
        assert_int_equal(a->streams[0].held[pos], held[pos]);
        assert_int_equal(b->streams[0].held[pos], !held[pos]);
        assert_int_equal(c->placed[pos], (held[pos] ? a : b)->worker + 1);
    }
    assert_int_equal(c->reports[0], 5);
    struct run_peer *d = run_worker(u, 2);
    assert_true(d->worker > ids[0] && d->worker > ids[1]);
    run_free(u);
}

/* After a restart without its workers, the leases go elsewhere after the grace; ids are not given again. */
static void test_restart_grace(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *a = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    uint64_t id = a->worker;
    run_kill(u);
    a->used = c->used = false;
    run_start(u);
    struct run_peer *b = run_worker(u, 2);
    assert_int_equal(b->worker, id + 1);
    c = run_client(u, "job", 0, 1, 0);
    assert_true(c->attached);
    run_pass(u, 1800);
    assert_int_equal(run_held(b), 0);
    run_pass(u, 300);
    assert_int_equal(run_held(b), 2);
    /* A new job waits for no grace. */
    run_kill(u);
    b->used = c->used = false;
    run_start(u);
    b = run_worker(u, 2);
    c = run_client_with(u, &(struct run_attach){.job = "other", .seed = 9}, 0);
    assert_int_equal(run_held(b), 2);
    run_free(u);
}

/* The same process on a new connection, before its old one is noticed to be dead: it keeps what it names. */
static void test_second_connection(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_peer *a = run_worker(u, 4), *c = run_client(u, "job", 0, 1, 0);
    struct run_peer *again = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    memcpy(again->incarnation, a->incarnation, 16);
    run_lose(again);
    again->capacity = a->capacity;
    again->snapshot = a->snapshot;
    memcpy(again->streams, a->streams, sizeof(a->streams));
    again->streams[0].held[3] = false; /* that lease was still on its way */
    run_reconnect(again);
    assert_int_equal(again->worker, a->worker);
    assert_true(a->closed);
    assert_int_equal(run_held(again), 4);
    for (uint64_t pos = 0; pos < 4; pos++)
        assert_int_equal(c->placed[pos], again->worker + 1);
    /* And once more, without anything: it is asked to prepare the stream again. */
    struct run_peer *last = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    memcpy(last->incarnation, a->incarnation, 16);
    run_lose(last);
    last->capacity = 2;
    last->snapshot = a->snapshot;
    run_reconnect(last);
    assert_int_equal(run_held(last), 0);
    RUN_SAY(last, Heartbeat, HEARTBEAT, false, RUN_BASE(heartbeat));
    run_settle(u);
    assert_int_equal(run_held(last), 2);
    assert_true(last->streams[0].held[0]);
    run_free(u);
}

/* at-most-once: a lease is durable before it is sent, and a split whose worker is lost is lost. */
static void test_at_most_once(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_attach at = {.job = "job", .order = CACHEW__ORDER__ORDER_ANY, .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    struct run_peer *a = run_worker(u, 3), *c = run_client_with(u, &at, 0);
    assert_int_equal(run_held(a), 3);
    u->hold = true;
    run_progress(c, 1, 0);
    run_settle(u);
    assert_false(a->streams[0].held[3]);
    assert_int_equal(c->placed[3], 0);
    run_commit(u);
    u->hold = false;
    run_settle(u);
    assert_true(a->streams[0].held[3]);
    run_completed(a, &a->streams[0], 2, 4);
    run_settle(u);
    run_lose(a);
    struct run_peer *b = run_worker(u, 3);
    for (uint64_t pos = 1; pos < 4; pos++) {
        assert_true(c->lost[pos]);
        assert_false(b->streams[0].held[pos]);
    }
    assert_true(b->streams[0].held[4] && b->streams[0].held[6]);
    /* Also through a restart, in which the worker does not come back. */
    run_kill(u);
    b->used = c->used = false;
    run_start(u);
    c = run_client_with(u, &at, 0); /* it went back: what was given out is not given again */
    struct run_peer *d = run_worker(u, 3);
    run_pass(u, 2500);
    for (uint64_t pos = 0; pos < 7; pos++)
        assert_true(c->lost[pos] || pos == 0);
    assert_false(d->streams[0].held[6]);
    assert_true(d->streams[0].held[7] && d->streams[0].held[9]);
    run_free(u);
}

/* A lease that nobody wants any more by the time it is durable is not sent. */
static void test_at_most_once_passed(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_attach at = {.job = "job", .order = CACHEW__ORDER__ORDER_ANY, .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    struct run_peer *a = run_worker(u, 3), *c = run_client_with(u, &at, 0);
    u->hold = true;
    run_progress(c, 1, 0);
    run_settle(u);
    run_commit(u);
    run_progress(c, 5, 0); /* in the same turn */
    u->hold = false;
    run_settle(u);
    assert_false(a->streams[0].held[3]);
    assert_true(a->streams[0].held[5] && a->streams[0].held[7]);
    run_free(u);
}

/* The same where so many have passed that their rows are gone: their place in the journal is taken by one number. */
static void test_at_most_once_floor(void **state)
{
    (void)state;
    struct run *u = run_new(1000);
    struct run_attach at = {.job = "job", .order = CACHEW__ORDER__ORDER_ANY, .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    struct run_peer *a = run_worker(u, 3), *c = run_client_with(u, &at, 0);
    for (uint64_t pos = 0; pos < 600; pos++) {
        run_completed(a, &a->streams[0], pos, 1);
        run_progress(c, pos + 1, 0);
        run_settle(u);
    }
    assert_true(a->streams[0].held[602]);
    assert_true(run_count(u, 'e') < 300);
    run_kill(u);
    a->used = c->used = false;
    run_start(u);
    c = run_client_with(u, &at, 500); /* its state is older than what was given out */
    run_pass(u, 2500);
    struct run_peer *b = run_worker(u, 3);
    for (uint64_t pos = 500; pos < 603; pos++)
        assert_true(c->lost[pos] && !b->streams[0].held[pos]);
    assert_true(b->streams[0].held[603] && b->streams[0].held[605]);
    run_free(u);
}

/* Jobs end, are listed, make room for a new one of the same name, and are collected. */
static void test_job_life(void **state)
{
    (void)state;
    struct run *u = run_new(4);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 2, 0), *c1 = run_client(u, "job", 1, 2, 0);
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
    struct run_peer *again = run_client(u, "job", 0, 3, 0); /* with another world size, on a stream of its own: the data may be others by now */
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

/* Jobs that were left in their middle: workers keep the youngest few ready, and any of them goes on when its client is back. */
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
        struct run_peer *w = run_worker(u, 2), *a = run_client(u, "a", 0, 1, 0), *b = run_client(u, "b", 0, 1, 0);
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
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0), *o = run_connect(u, CACHEW__ROLE__ROLE_OBSERVER);
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
    assert_non_null(strstr(o->failure, "there is no job \"job\" that runs"));
    char id[32];
    snprintf(id, sizeof(id), "%" PRIu64, w->worker);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"drain-worker", .name = id);
    run_settle(u);
    assert_true(w->drain);
    RUN_SAY(o, Query, QUERY, true, RUN_BASE(query), .what = (char *)"everything");
    assert_non_null(strstr(o->in[o->n_in - 1]->failure->message, "expected jobs, workers, streams, pools, status"));
    run_free(u);
}

/* What a role has no business to say, or says without sense, ends its connection, and nobody else notices. */
static void test_nonsense(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    struct run_peer *bad = run_connect(u, CACHEW__ROLE__ROLE_CLIENT);
    assert_int_equal(run_completed(bad, &w->streams[0], 0, 1) > 0, 1);
    assert_true(bad->closed);
    run_settle(u);
    bad->used = false;
    bad = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    run_attach_as(bad, &(struct run_attach){.job = "job"}, 0);
    assert_true(bad->closed);
    run_settle(u);
    bad->used = false;
    bad = run_worker(u, 2);
    assert_true(run_answered(bad, run_completed(bad, &w->streams[0], 8, 1))); /* of an epoch that nobody wants */
    Cachew__Report report = {RUN_BASE(report), .split = 8}; /* one behind the last */
    RUN_SAY(bad, Completed, COMPLETED, true, RUN_BASE(completed), .stream = {16, w->streams[0].id}, .report = &report);
    assert_true(bad->closed);
    run_settle(u);
    struct cw_peer *peer;
    struct cw_error err = {0};
    Cachew__Hello hello = CACHEW__HELLO__INIT;
    hello.role = CACHEW__ROLE__ROLE_DISPATCHER;
    assert_int_equal(cw_dispatcher_connected(u->d, NULL, &hello, &peer, &err), CW_E_SERVICE);
    assert_int_equal(cw_dispatcher_load(u->d, "z", 1, "", 0, &err), CW_E_STATE);
    assert_int_equal(cw_dispatcher_load(u->d, "a", 1, "\xff", 1, &err), CW_E_STATE);
    Cachew__Envelope unknown = CACHEW__ENVELOPE__INIT;
    unknown.id = 77;
    assert_int_equal(run_say(c, &unknown), 0);
    assert_int_equal(c->in[c->n_in - 1]->re, 77);
    assert_int_equal(run_held(w), 2);
    assert_false(c->closed || c->ended);
    run_free(u);
}

/* Plans without splits, and without end. */
static void test_plans(void **state)
{
    (void)state;
    struct run *u = run_new(0);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    assert_true(c->attached);
    assert_int_equal(run_held(w), 0);
    run_detach(c, true);
    run_settle(u);
    assert_non_null(strstr(u->log, "is done"));
    run_free(u);
    u = run_new(UINT64_C(1) << 62);
    w = run_worker(u, 3);
    c = run_client(u, "job", 0, 1, 1000);
    assert_true(w->streams[0].held[1000] && w->streams[0].held[1002]);
    run_progress(c, 3000, 0);
    run_settle(u);
    assert_int_equal(run_held(w), 3);
    assert_true(w->streams[0].held[3000] && w->streams[0].held[3002]);
    run_free(u);
}

/* Leases stop at the end of the last epoch; a revocation over the end of an epoch names both. */
static void test_epochs(void **state)
{
    (void)state;
    struct run *u = run_new(3);
    struct run_peer *w = run_worker(u, 8), *c = run_client_with(u, &(struct run_attach){.job = "job", .epochs = 2}, 1);
    assert_int_equal(run_held(w), 5);
    run_progress(c, 5, 0);
    run_settle(u);
    assert_int_equal(run_held(w), 1);
    assert_true(w->streams[0].held[5]);
    run_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_job),
        cmocka_unit_test(test_worker_lost),
        cmocka_unit_test(test_durable_first),
        cmocka_unit_test(test_failed_order),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_contradiction),
        cmocka_unit_test(test_low_water_mark),
        cmocka_unit_test(test_first_batch),
        cmocka_unit_test(test_attach_differs),
        cmocka_unit_test(test_take_over),
        cmocka_unit_test(test_other_data),
        cmocka_unit_test(test_prepare_fails),
        cmocka_unit_test(test_stream_fails_at_a_worker),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_late_median),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_restart_grace),
        cmocka_unit_test(test_second_connection),
        cmocka_unit_test(test_at_most_once),
        cmocka_unit_test(test_at_most_once_passed),
        cmocka_unit_test(test_at_most_once_floor),
        cmocka_unit_test(test_job_life),
        cmocka_unit_test(test_many_jobs),
        cmocka_unit_test(test_left_jobs),
        cmocka_unit_test(test_no_room_for_jobs),
        cmocka_unit_test(test_two_jobs),
        cmocka_unit_test(test_steer),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_epochs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
