/* The dispatcher's core, rule by rule: ranges, reports, what is durable and what is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dispatcher_run.h"

/* One job, three workers: every range once, in order of cursors, up to capacities; reports in order; then it
 * is over. */
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
    bool first = a->streams[0].held[0]; /* whoever has the first range dies */
    struct run_peer *dies = first ? a : b, *lives = first ? b : a;
    gone = dies->worker;
    run_lose(dies);
    run_settle(u);
    /* The other was full of later ranges: one of them made room for the first; no capacity is exceeded. */
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

/* What comes while a batch is being written is the next one, all of it together. */
static void test_group_commit(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 4), *c = run_client(u, "job", 0, 1, 0);
    uint64_t ids[4];
    size_t before = u->n_commits;
    u->hold = true;
    for (uint64_t pos = 0; pos < 4; pos++) {
        ids[pos] = run_completed(w, &w->streams[0], pos, 1);
        run_settle(u);
    }
    for (int i = 0; i < 4; i++)
        assert_false(run_answered(w, ids[i]));
    u->hold = false;
    run_settle(u);
    for (int i = 0; i < 4; i++)
        assert_true(run_answered(w, ids[i]));
    assert_int_equal(c->next_report, 4);
    assert_int_equal(u->n_commits, before + 2);
    run_free(u);
}

/* What was said after a commit that failed comes after it: the later word on a thing stays. */
static void test_failed_order(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0),
                    *o = run_connect(u, CACHEW__ROLE__ROLE_ADMIN_CLIENT);
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

/* Reports come in order, whatever the order of completions; said again they do nothing; a client that comes
 * later gets those it needs. */
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

/* A rank need not wait for a range that is another's, or is lost: it is told of those behind it that were
 * done before. */
static void test_reports_behind_what_is_passed(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_attach at = {.job = "job", .world_size = 2, .order = CACHEW__ORDER__ORDER_ANY};
    struct run_peer *w = run_worker(u, 8), *c = run_client_with(u, &at, 0);
    for (int pos = 0; pos < 4; pos += 2)
        run_completed(w, &w->streams[0], (uint64_t)pos, 1);
    run_settle(u);
    assert_int_equal(c->next_report, 1); /* 1, the other rank's, is not done */
    run_progress(c, 2, 0);
    run_settle(u);
    assert_int_equal(c->n_reports[2], 1);
    assert_int_equal(c->next_report, 3);
    run_free(u);
}

static void test_reports_behind_what_is_lost(void **state)
{
    (void)state;
    struct run *u = run_new(2);
    struct run_attach at = {.job = "job",
                            .order = CACHEW__ORDER__ORDER_ANY,
                            .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    struct run_peer *a = run_worker(u, 1), *b = run_worker(u, 1), *c = run_client_with(u, &at, 0);
    struct run_peer *first = a->streams[0].held[0] ? a : b, *second = first == a ? b : a;
    run_completed(second, &second->streams[0], 1, 1);
    run_settle(u);
    assert_int_equal(c->n_reports[1], 0);
    run_lose(first);
    run_settle(u);
    assert_true(c->lost[0]);
    assert_int_equal(c->n_reports[1], 1);
    run_free(u);
}

/* Two reports of one range that differ: the job fails, with both said; the first stays. */
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
    assert_non_null(strstr(c->failure, "data: positions 0 to 10 of epoch 0 gave 0 batches and 5 elements"));
    assert_non_null(strstr(c->failure, "but 0 batches and 6 elements"));
    assert_non_null(strstr(u->log, "! positions 0 to 10 of epoch 0"));
    assert_int_equal(run_held(w), 0);
    run_free(u);
}

/* Nothing is given up while a rank may ask for it: the least cursor counts, also of ranks that were not here
 * yet, or are away. */
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

/* Where batches follow from positions, leases say from which batch on anybody needs the range; clients are
 * sent no reports. */
static void test_first_position_that_is_needed(void **state)
{
    (void)state;
    struct run *u = run_new(20);
    u->n_keys = 0;
    u->most = 40;
    struct run_peer *w = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    for (uint64_t unit = 0; unit < 2; unit++)
        run_completed(w, &w->streams[0], unit, 0);
    run_progress(c, 2, 0);
    run_settle(u);
    assert_int_equal(run_units(&w->streams[0], 2), 4);
    assert_int_equal(w->streams[0].from[2], 0);
    run_progress(c, 3, 5); /* in the middle of a batch */
    run_lose(w);
    w = run_worker(u, 2);
    assert_int_equal(run_units(&w->streams[0], 2), 4);
    assert_int_equal(w->streams[0].from[2], 10);
    assert_int_equal(w->streams[0].from[6], 0);
    /* from an earlier state: the worker runs it again from there when it is asked */
    c = run_client(u, "job", 0, 1, 2);
    assert_int_equal(run_units(&w->streams[0], 2), 4);
    assert_int_equal(c->placed[2], w->worker + 1);
    assert_int_equal(c->n_reports[0] + c->n_reports[1] + c->n_reports[2], 0);
    run_free(u);
}

/* at-most-once: a lease is durable before it is sent, and a range whose worker is lost is lost. */
static void test_at_most_once(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    struct run_attach at = {.job = "job",
                            .order = CACHEW__ORDER__ORDER_ANY,
                            .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
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
    struct run_attach at = {.job = "job",
                            .order = CACHEW__ORDER__ORDER_ANY,
                            .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
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

/* The same where so many have passed that their rows are gone: their place in the journal is taken by one
 * number. */
static void test_at_most_once_floor(void **state)
{
    (void)state;
    struct run *u = run_new(1000);
    struct run_attach at = {.job = "job",
                            .order = CACHEW__ORDER__ORDER_ANY,
                            .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
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
    /* of an epoch that nobody wants */
    assert_true(run_answered(bad, run_completed(bad, &w->streams[0], 8, 1)));
    Cachew__Report report = {RUN_BASE(report), .begin = 80, .end = 90}; /* one behind the last */
    RUN_SAY(bad, Completed, COMPLETED, true, RUN_BASE(completed), .stream = {16, w->streams[0].id},
            .report = &report);
    assert_true(bad->closed);
    run_settle(u);
    struct cw_peer *peer;
    struct cw_error err = {0};
    Cachew__Hello hello = CACHEW__HELLO__INIT;
    hello.role = CACHEW__ROLE__ROLE_DISPATCHER;
    assert_int_equal(cw_dispatcher_connected(u->d, NULL, &hello, &peer, &err), CW_E_SERVICE);
    assert_int_equal(cw_dispatcher_load(u->d, "z", 1, "", 0, &err), CW_E_DATA);
    assert_int_equal(cw_dispatcher_load(u->d, "a", 1, "\xff", 1, &err), CW_E_DATA);
    assert_int_equal(cw_dispatcher_load(u->d, "", 0, "", 0, &err), CW_E_DATA);
    assert_int_equal(run_held(w), 2);
    assert_false(c->closed || c->ended);
    run_free(u);
}

/* Plans without positions, and without end. */
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
    struct run_peer *w = run_worker(u, 8),
                    *c = run_client_with(u, &(struct run_attach){.job = "job", .epochs = 2}, 1);
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
        cmocka_unit_test(test_group_commit),
        cmocka_unit_test(test_failed_order),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_reports_behind_what_is_passed),
        cmocka_unit_test(test_reports_behind_what_is_lost),
        cmocka_unit_test(test_contradiction),
        cmocka_unit_test(test_low_water_mark),
        cmocka_unit_test(test_first_position_that_is_needed),
        cmocka_unit_test(test_at_most_once),
        cmocka_unit_test(test_at_most_once_passed),
        cmocka_unit_test(test_at_most_once_floor),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_epochs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
