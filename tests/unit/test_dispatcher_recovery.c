/* What a dispatcher makes of peers that were there before it, come again, or are gone without a word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dispatcher_run.h"

/* Kills the dispatcher, which had no journal, and starts another. */
static void start_blank(struct run *u)
{
    run_kill(u);
    while (u->n_rows > 0)
        run_delete(u, u->n_rows - 1);
    run_start(u);
}

static void attach_again(struct run_peer *p, const struct run_attach *a, uint64_t from)
{
    run_peer_clear(p);
    run_connect_as(p->run, p, CACHEW__ROLE__ROLE_CLIENT);
    run_attach_as(p, a, from);
    run_settle(p->run);
}

static char *jobs_json(struct run *u)
{
    char *json = NULL;
    struct cw_error err = {0};
    assert_int_equal(cw_dispatcher_query(u->d, "jobs", u->now_ns, &json, &err), 0);
    return json;
}

static void assert_job_is(struct run *u, const char *state)
{
    char *json = jobs_json(u), want[64];
    snprintf(want, sizeof(want), "\"state\":\"%s\"", state);
    if (!strstr(json, want))
        fail_msg("%s expected in %s", want, json);
    free(json);
}

/* A stream that a dispatcher without a journal is asked for again has the id it had: what its workers still
 * have of it is taken as it is, not forgotten while others of its leases are on their way. */
static void test_holdings_of_a_stream_that_is_being_prepared(void **state)
{
    (void)state;
    struct run *u = run_new(20);
    struct run_attach at = {.job = "job"};
    struct run_peer *w = run_worker(u, 3), *c = run_client_with(u, &at, 0);
    assert_int_equal(run_held(w), 3);
    start_blank(u);
    attach_again(c, &at, 1); /* first: then there is a stream, and nobody has seen its data */
    assert_false(c->attached);
    run_reconnect(w);
    assert_true(c->attached);
    assert_false(w->forgot);
    assert_int_equal(run_held(w), 3);
    for (uint64_t pos = 1; pos < 4; pos++) {
        assert_true(w->streams[0].held[pos]);
        assert_int_equal(c->placed[pos], w->worker + 1);
    }
    /* Elsewhere it would compute from other files. */
    struct run_stream before = w->streams[0];
    start_blank(u);
    run_peer_clear(c);
    run_connect_as(u, c, CACHEW__ROLE__ROLE_CLIENT);
    run_attach_in(c, &at, 1, "/elsewhere");
    run_settle(u);
    run_reconnect(w);
    assert_true(c->attached && w->forgot);
    assert_true(memcmp(c->streams[0].id, before.id, 16) != 0);
    run_free(u);
}

/* A lease that was given on a new connection, before the worker said what it has, is on its way: it must not
 * stay there, known to nobody. */
static void test_lease_that_crosses_holdings(void **state)
{
    (void)state;
    struct run *u = run_new(20);
    struct run_peer *a = run_worker(u, 2), *b = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    struct run_peer *again = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    memcpy(again->incarnation, a->incarnation, 16);
    run_lose(again);
    again->capacity = 2;
    again->snapshot = a->snapshot;
    memcpy(again->streams, a->streams, sizeof(a->streams));
    run_peer_clear(again);
    run_connect_as(u, again, CACHEW__ROLE__ROLE_WORKER);
    run_register(again);
    RUN_CALL_VOID(cw_dispatcher_turn(u->d, u->now_ns));
    run_commit(u);                         /* it is registered, and has not read that yet */
    for (uint64_t pos = 0; pos < 4; pos++) /* room, and ranges to fill it with */
        if (b->streams[0].held[pos])
            run_completed(b, &b->streams[0], pos, 1);
    run_progress(c, 4, 0);
    run_settle(u);
    size_t known = 0;
    for (uint64_t pos = 4; pos < 20; pos++) {
        known += c->placed[pos] != 0;
        assert_false(again->streams[0].held[pos] && b->streams[0].held[pos]);
        if (again->streams[0].held[pos])
            assert_int_equal(c->placed[pos], again->worker + 1);
    }
    assert_int_equal(run_held(again) + run_held(b), known);
    run_free(u);
}

/* at-most-once: its worker goes while the lease is being written down. The client is told that the range is
 * lost. */
static void test_unsent_lease_is_lost(void **state)
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
    run_lose(a);
    run_settle(u);
    u->hold = false;
    run_commit(u);
    run_settle(u);
    assert_true(c->lost[3]);
    run_free(u);
}

/* Whoever comes with other options waits for ranks that may be gone: until their connections are over, or
 * they say something. */
static void test_attach_waits_for_silent_ranks(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_attach two = {.job = "job", .world_size = 2}, three = {.job = "job", .world_size = 3};
    run_worker(u, 2);
    struct run_peer *old = run_client_with(u, &two, 0);
    u->now_ns += 500000000;
    struct run_peer *new = run_client_with(u, &three, 0);
    assert_string_equal(new->failure, "");
    run_pass(u, 1000);
    assert_false(new->attached);
    run_lose(old);
    run_pass(u, 300);
    assert_true(new->attached);
    /* One that lives: refused as soon as it says so. */
    u->now_ns += 500000000;
    struct run_peer *other = run_client_with(u, &two, 0);
    run_pass(u, 500);
    assert_string_equal(other->failure, "");
    run_progress(new, 0, 0);
    run_pass(u, 300);
    assert_string_equal(other->attribute, "world_size");
    assert_false(other->attached || new->ended);
    /* One that says nothing, and whose connection does not end: not for ever. */
    other = run_client_with(u, &(struct run_attach){.job = "job", .world_size = 4}, 0);
    u->now_ns += 100000000;
    run_attach_as(other, &(struct run_attach){.job = "job", .world_size = 4}, 0);
    run_pass(u, 3500);
    assert_string_equal(other->failure, "");
    run_pass(u, 1000);
    assert_string_equal(other->attribute, "world_size");
    /* A dispatcher that stood still has not read what the ranks said meanwhile: that counts as a second of
     * silence. */
    run_attach_as(other, &(struct run_attach){.job = "job", .world_size = 4}, 0);
    u->now_ns += UINT64_C(60000000000);
    run_pass(u, 2500);
    assert_string_equal(other->failure, "");
    run_pass(u, 1000);
    assert_string_equal(other->attribute, "world_size");
    /* And one that goes while it waits. */
    u->now_ns += 100000000;
    other = run_client_with(u, &two, 0);
    run_lose(other);
    run_pass(u, 5000);
    run_free(u);
}

/* A state that does not fit takes nobody's place. */
static void test_misfits_take_nothing_over(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    run_worker(u, 2);
    struct run_peer *good = run_client(u, "job", 0, 1, 0);
    struct run_peer *bad = run_client_with(u, &(struct run_attach){.job = "job", .snapshot = 99}, 0);
    assert_non_null(strstr(bad->failure, "other data"));
    assert_non_null(strstr(run_client(u, "job", 0, 1, 9)->failure, "lies after the end"));
    assert_true(good->attached && !good->ended);
    assert_int_equal(run_progress(good, 1, 0), 0);
    run_free(u);
}

/* Ranks of an exact job count from where rounds began; one that counts from elsewhere would take what is
 * another's. */
static void test_rounds_must_fit(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_attach at = {.job = "job", .world_size = 2, .epochs = 3, .round = {1, 6}};
    run_worker(u, 2);
    struct run_peer *first = run_client_with(u, &at, 9);
    assert_true(first->attached);

    struct {
        uint64_t epoch, g;
        bool fits;
    } cases[] = {{1, 8, true}, {1, 7, false}, {2, 3, false}, {2, 4, true},
                 {0, 5, true}, {0, 4, false}, {1, 8, true}};

    at.rank = 1;
    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        at.round.epoch = cases[i].epoch;
        at.round.g = cases[i].g;
        struct run_peer *c = run_client_with(u, &at, 1);
        assert_int_equal(c->attached, cases[i].fits);
        if (!cases[i].fits)
            assert_string_equal(c->attribute, "the first batch for all ranks (do all load the same state?)");
        run_lose(c);
    }
    run_free(u);
}

/* That a rank is finished is said until it is heard. Said again, on a connection that attached to nothing, it
 * does not begin the job anew. */
static void test_detach_again(void **state)
{
    (void)state;
    struct run *u = run_new(4);
    run_worker(u, 2);
    struct run_peer *a = run_client(u, "job", 0, 2, 0), *b = run_client(u, "job", 1, 2, 0);
    run_lose(a);
    run_connect_as(u, a, CACHEW__ROLE__ROLE_CLIENT); /* its Detach was lost */
    run_detach_as(a, "job", 0);
    run_settle(u);
    assert_true(run_answered(a, a->last_id));
    run_detach(b, true);
    run_settle(u);
    assert_job_is(u, "done");
    run_lose(b);
    run_connect_as(u, b, CACHEW__ROLE__ROLE_CLIENT);
    run_detach_as(b, "job", 1); /* the answer was lost */
    run_settle(u);
    assert_true(run_answered(b, b->last_id));
    assert_job_is(u, "done");
    /* Not of a rank that another client has by now. */
    struct run_peer *old = run_client(u, "next", 0, 1, 0);
    run_lose(old);
    old->used = true;
    struct run_peer *new = run_client(u, "next", 0, 1, 0);
    run_connect_as(u, old, CACHEW__ROLE__ROLE_CLIENT);
    run_detach_as(old, "next", 0);
    run_settle(u);
    assert_job_is(u, "running");
    run_lose(new);
    run_settle(u);
    assert_job_is(u, "unattended");
    run_free(u);
}

/* A rank that is finished is not waited for after a restart; nor is one, for long, that no dispatcher knows
 * of. */
static void test_finished_ranks_after_a_restart(void **state)
{
    (void)state;
    for (int blank = 0; blank <= 1; blank++) {
        struct run *u = run_new(40);
        struct run_attach at = {.job = "job", .world_size = 2, .again = true};
        struct run_peer *w = run_worker(u, 4), *a = run_client(u, "job", 0, 2, 0),
                        *b = run_client(u, "job", 1, 2, 0);
        run_detach(a, true);
        run_settle(u);
        if (blank) {
            start_blank(u);
        } else {
            run_kill(u);
            run_start(u);
        }
        a->used = false;
        run_reconnect(w);
        at.rank = 1;
        attach_again(b, &at, 2);
        run_progress(b, 8, 0);
        run_pass(u, 300);
        assert_int_equal(w->streams[0].held[8], !blank);
        run_pass(u, 6500);
        assert_true(w->streams[0].held[8]);
        run_detach(b, true);
        run_settle(u);
        assert_job_is(u, blank ? "unattended" : "done");
        run_free(u);
    }
}

/* Who waits is told for whom. */
static void test_lagging(void **state)
{
    (void)state;
    struct run *u = run_new(40);
    run_worker(u, 2);
    struct run_peer *a = run_client(u, "job", 0, 3, 3), *b = run_client(u, "job", 1, 3, 1);
    run_waiting(a, 5);
    run_settle(u);
    assert_string_equal(a->lagging, "1 at 1, attached");
    run_lose(b);
    run_waiting(a, 5);
    run_settle(u);
    assert_string_equal(a->lagging, "1 at 1, gone");
    b = run_client(u, "job", 1, 3, 4);
    run_waiting(b, 4);
    run_settle(u);
    assert_string_equal(b->lagging, "2 at 3, gone"); /* it never came, and would begin where the first did */
    struct run_peer *c = run_client(u, "job", 2, 3, 3);
    run_waiting(c, 3);
    run_settle(u);
    assert_string_equal(c->lagging, "");
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

/* kill -9: workers come back with what they hold, under their ids; nobody else gets it; completions are
 * known. */
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
    assert_null(strstr(u->log, "did not reconnect"));
    run_pass(u, 300);
    assert_int_equal(run_held(b), 2);
    /* it went without a word */
    assert_non_null(strstr(
        u->log, "1 workers that were connected before the restart did not reconnect within 2 s (ids: 1)"));
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

/* One worker runs the source. When it is gone another one does, and everybody learns of it: also who was away
 * meanwhile and gets no range. */
static void test_workers_learn_of_an_origin(void **state)
{
    (void)state;
    struct run *u = run_new(1); /* one range, so that most workers have none */
    u->origin = true;
    struct run_peer *w[] = {run_worker(u, 3), run_worker(u, 3), run_worker(u, 3)},
                    *c = run_client(u, "job", 0, 1, 0);
    assert_true(c->attached);
    struct run_peer *first = run_find_worker(u, w[0]->origin), *away = first == w[0] ? w[1] : w[0],
                    *next = first == w[2] ? w[1] : w[2];
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(w[i]->origin, first->worker);
    run_lose(away);
    run_lose(first);
    run_pass(u, 100);
    assert_int_equal(next->origin, next->worker);
    run_reconnect(away);
    assert_int_equal(away->origin, next->worker);
    run_reconnect(first); /* it does not take it back */
    assert_int_equal(first->origin, next->worker);
    run_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_learn_of_an_origin),
        cmocka_unit_test(test_holdings_of_a_stream_that_is_being_prepared),
        cmocka_unit_test(test_lease_that_crosses_holdings),
        cmocka_unit_test(test_unsent_lease_is_lost),
        cmocka_unit_test(test_attach_waits_for_silent_ranks),
        cmocka_unit_test(test_misfits_take_nothing_over),
        cmocka_unit_test(test_rounds_must_fit),
        cmocka_unit_test(test_detach_again),
        cmocka_unit_test(test_finished_ranks_after_a_restart),
        cmocka_unit_test(test_lagging),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_restart_grace),
        cmocka_unit_test(test_second_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
