/* The dispatcher's core: how ranges are cut, shared, taken back, cut in two, and found again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dispatcher_run.h"

/* As many positions as the dispatcher likes, of `n` units. */
static struct run *run_any_size(uint64_t n, uint32_t n_keys, uint32_t depth)
{
    struct run *u = run_new(n);
    u->most = 0;
    u->n_keys = n_keys;
    u->depth = depth;
    run_start_shared(u, false);
    return u;
}

#define FIRST 7 /* units of a range in a placed plan while no rate is known: 64 positions, rounded up */

static void start_blank(struct run *u)
{
    run_kill(u);
    while (u->n_rows > 0)
        run_delete(u, u->n_rows - 1);
    run_start(u);
}

static struct run_peer *attach_again(struct run_peer *p, const struct run_attach *a, uint64_t from)
{
    run_peer_clear(p);
    run_connect_as(p->run, p, CACHEW__ROLE__ROLE_CLIENT);
    run_attach_as(p, a, from);
    run_settle(p->run);
    return p;
}

/* The first unit of the first range that the worker has not completed; RUN_UNITS: none. */
static uint64_t next_of(const struct run_stream *s)
{
    for (uint64_t unit = 0; unit < RUN_UNITS; unit++)
        if (s->held[unit] == 1 && !s->done[unit])
            return unit;
    return RUN_UNITS;
}

/* Ranges take half a second each, whatever their elements take. */
static void test_sizes_follow_the_rate(void **state)
{
    (void)state;
    struct run *u = run_any_size(RUN_UNITS, 0, 2);
    struct run_peer *w = run_worker(u, 8), *c = run_client(u, "job", 0, 1, 0);
    struct run_stream *s = &w->streams[0];
    assert_int_equal(run_held(w), 2);
    assert_int_equal(run_units(s, 0), 1); /* nothing is known: one batch */

    static const struct {
        uint64_t unit_ns, units;
    } phases[] = {{10000000, 50}, {100000000, 5}, {2000000000, 1}};

    for (size_t i = 0; i < CW_COUNT_OF(phases); i++) {
        uint64_t unit = 0, before = 1, n;
        for (int k = 0; k < 20; k++, before = n) {
            unit = next_of(s);
            n = run_units(s, unit);
            assert_true(i > 0 || n <= 4 * before);
            assert_true(i == 0 || k < 3 || n <= phases[i].units); /* two were cut by the rate of before */
            u->now_ns += n * phases[i].unit_ns;
            run_completed(w, s, unit, 0);
            run_progress(c, unit + n, 0);
            run_settle(u);
        }
        assert_int_equal(run_units(s, next_of(s)), phases[i].units);
    }
    run_free(u);
}

/* The first elements may be cheap by chance: a worker is then not leased dozens of the larger ranges that
 * follow, which would take it long while the other workers run far ahead. */
static void test_leases_ahead_are_bounded_in_time(void **state)
{
    (void)state;
    const uint64_t unit_ns = 200000, ahead = 50000000 / unit_ns; /* units that take 50 ms */
    struct run *u = run_any_size(RUN_UNITS, 0, 2);
    struct run_peer *w = run_worker(u, 64), *c = run_client(u, "job", 0, 1, 0);
    struct run_stream *s = &w->streams[0];
    for (int k = 0; k < 8; k++) {
        uint64_t unit = next_of(s), n = run_units(s, unit), todo = 0, last = 0;
        u->now_ns += n * unit_ns;
        run_completed(w, s, unit, 0);
        run_progress(c, unit + n, 0);
        run_settle(u);
        for (unit = next_of(s); unit < RUN_UNITS && s->held[unit]; unit += last) {
            last = run_units(s, unit);
            todo += last;
        }
        assert_true(todo > 0);
        assert_true(todo - last < ahead || run_held(w) == 2);
    }
    run_free(u);
}

/* Near the end all workers get something, and nobody waits for a large one. */
static void test_sizes_shrink_near_the_end(void **state)
{
    (void)state;
    struct run *u = run_any_size(400, 0, 2);
    struct run_peer *w[4], *c = run_client(u, "job", 0, 1, 0);
    uint64_t unit = 0, largest = 0, covered = 0;
    for (int i = 0; i < 4; i++)
        w[i] = run_worker(u, 8);
    while (covered < 400) {
        uint64_t longest = 0;
        for (int i = 0; i < 4; i++)
            longest = CW_MAX(longest, next_of(&w[i]->streams[0]) < RUN_UNITS
                                          ? run_units(&w[i]->streams[0], next_of(&w[i]->streams[0]))
                                          : 0);
        u->now_ns += longest * 10000000;
        for (int i = 0; i < 4; i++) {
            struct run_stream *s = &w[i]->streams[0];
            unit = next_of(s);
            if (unit == RUN_UNITS)
                continue;
            uint64_t n = run_units(s, unit);
            assert_true(n <= CW_MAX((400 - unit + 7) / 8, 2u));
            largest = CW_MAX(largest, n);
            run_completed(w[i], s, unit, 0);
            covered += n;
        }
        run_settle(u);
        while (c->cursor < 400 && c->placed[c->cursor] > 1 &&
               run_find_worker(u, c->placed[c->cursor] - 1)->streams[0].done[c->cursor])
            run_progress(c, c->cursor + 1, 0);
        run_settle(u);
    }
    assert_int_equal(covered, 400);
    assert_true(largest > 10);
    run_free(u);
}

/* The worker with the least memory bounds all ranges, as long as it is there; the end of an epoch does too.
 */
static void test_sizes_fit_every_worker(void **state)
{
    (void)state;
    struct run *u = run_any_size(130, 1, 1024);
    struct run_attach at = {.job = "job", .epochs = 20};
    struct run_peer *large = run_worker(u, 2);
    u->most = 55;
    struct run_peer *small = run_worker(u, 2), *c = run_client_with(u, &at, 0);
    for (uint64_t unit = 0; unit < 20; unit += 5) {
        struct run_peer *w = run_find_worker(u, c->placed[unit] - 1);
        assert_int_equal(run_units(&w->streams[0], unit), 5);
    }
    run_lose(small);
    run_progress(c, 20, 0);
    run_settle(u);
    assert_int_equal(run_units(&large->streams[0], 20), FIRST);
    run_progress(c, 125, 0);
    run_settle(u);
    assert_int_equal(run_units(&large->streams[0], 125), 5);
    assert_int_equal(run_units(&large->streams[0], 130), FIRST);
    run_free(u);
}

/* A rank that goes on from a state needs a range that begins at its position: one that is cut later ends
 * there, one that is there is cut in two. */
static void test_a_resumed_rank_finds_a_range_at_its_position(void **state)
{
    (void)state;
    struct run *u = run_any_size(1000, 1, 1024);
    struct run_attach at = {.job = "job", .world_size = 4};
    struct run_peer *w = run_worker(u, 3), *c = run_client_with(u, &at, 0);
    struct run_stream *s = &w->streams[0];
    assert_int_equal(run_units(s, 0), FIRST);
    at.rank = 1;
    struct run_peer *second = run_client_with(u, &at, 3);
    assert_int_equal(run_units(s, 0), 3);
    assert_int_equal(run_units(s, 3), FIRST - 3);
    assert_int_equal(second->placed[3], w->worker + 1);
    uint64_t id = run_completed_of(w, s, 0, FIRST, 7); /* which crossed */
    run_settle(u);
    assert_true(run_answered(w, id));
    assert_int_equal(c->next_report, 0);
    run_completed(w, s, 0, 3);
    run_completed(w, s, 3, 4);
    run_settle(u);
    assert_int_equal(c->report_end[0], 3);
    assert_int_equal(c->next_report, FIRST);
    assert_int_equal(second->n_reports[0], 0);
    assert_int_equal(second->reports[3], 4);
    /* Also one whose report is known: that goes, with its row. */
    assert_int_equal(run_count(u, 'e'), 2);
    at.rank = 2;
    struct run_peer *third = run_client_with(u, &at, 5);
    assert_int_equal(run_count(u, 'e'), 1);
    assert_int_equal(run_units(s, 3), 2);
    assert_int_equal(run_units(s, 5), FIRST - 5);
    run_completed(w, s, 3, 1);
    run_completed(w, s, 5, 3);
    run_settle(u);
    assert_int_equal(run_count(u, 'e'), 3);
    assert_int_equal(c->report_end[3], 5);
    assert_int_equal(c->reports[5], 3);
    assert_int_equal(third->reports[5], 3);
    /* What is not cut yet. */
    at.rank = 3;
    run_client_with(u, &at, 25);
    run_progress(c, 2 * FIRST, 0);
    run_progress(second, 2 * FIRST, 0);
    run_progress(third, 2 * FIRST, 0);
    run_settle(u);
    assert_int_equal(run_units(s, 3 * FIRST), 25 - 3 * FIRST);
    assert_int_equal(s->held[25], 1);
    run_free(u);
}

/* Jobs share a stream only if none of them would have it cut anew, and if they have the same order. */
static void test_who_shares_a_stream(void **state)
{
    (void)state;

    static const struct {
        const char *job;
        uint64_t from;
        Cachew__Order order;
        bool shares;
    } cases[] = {{"equal", 0, CACHEW__ORDER__ORDER_EXACT, true},
                 {"inside", 5, CACHEW__ORDER__ORDER_EXACT, false},
                 {"behind", FIRST, CACHEW__ORDER__ORDER_EXACT, true},
                 {"any", 0, CACHEW__ORDER__ORDER_ANY, true},
                 {"nowhere", 1001, CACHEW__ORDER__ORDER_EXACT, true}};

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct run *u = run_any_size(1000, 1, 1024);
        run_start_shared(u, true);
        struct run_attach at = {.job = cases[i].job, .order = cases[i].order, .epochs = 2};
        struct run_peer *w = run_worker(u, 1),
                        *first = run_client_with(u, &(struct run_attach){.job = "first", .epochs = 2}, 0),
                        *c = run_client_with(u, &at, cases[i].from);
        assert_true(c->attached);
        assert_int_equal(memcmp(c->streams[0].id, first->streams[0].id, 16) == 0, cases[i].shares);
        /* nobody disturbed it */
        assert_int_equal(run_units(run_stream_of(w, (ProtobufCBinaryData){16, first->streams[0].id}), 0),
                         FIRST);
        run_free(u);
    }
    /* Where batches follow from positions, any position will do. */
    struct run *u = run_any_size(1000, 0, 1024);
    u->most = 40;
    run_start_shared(u, true);
    run_worker(u, 4);
    struct run_peer *a = run_client(u, "a", 0, 1, 0),
                    *b = run_client_with(u, &(struct run_attach){.job = "b", .offset = 5}, 1);
    assert_int_equal(memcmp(a->streams[0].id, b->streams[0].id, 16), 0);
    run_free(u);
}

/* Where an element depends on those before it, a worker runs an epoch as one range; another one runs the next
 * epoch. */
static void test_sequential_epochs(void **state)
{
    (void)state;
    struct run *u = run_any_size(30, 1, 2);
    u->sequential = true;
    u->missing = 7;
    struct run_attach at = {.job = "job", .epochs = 3};
    struct run_peer *a = run_worker(u, 1), *b = run_worker(u, 1), *c = run_client_with(u, &at, 5);
    struct run_peer *first = a->streams[0].held[0] ? a : b, *second = first == a ? b : a;
    assert_int_equal(run_units(&first->streams[0], 0), 30);
    assert_int_equal(run_units(&second->streams[0], 30), 30);
    run_completed(first, &first->streams[0], 0, 12);
    run_settle(u);
    assert_int_equal(c->reports[0], 12);
    assert_int_equal(c->report_end[0], 30);
    run_progress(c, 30, 0);
    run_settle(u);
    assert_int_equal(run_units(&first->streams[0], 60), 30);
    run_free(u);
}

/* While no rate is known, a worker that computes ranges of its own is not known to be faster: it gets no late
 * ones. Those behind them are not late. */
static void test_late_while_nothing_is_known(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    u->depth = 2;
    run_start_shared(u, false);
    struct run_peer *a = run_worker(u, 16), *b = run_worker(u, 16), *owner[100] = {0};
    run_client(u, "job", 0, 1, 0);
    for (int k = 0; k < 4; k++) { /* each range takes 1.5 s */
        for (uint64_t unit = 0; unit < 100; unit++)
            if (!owner[unit] && (a->streams[0].held[unit] || b->streams[0].held[unit]))
                owner[unit] = a->streams[0].held[unit] ? a : b;
        run_pass(u, 1500);
        for (struct run_peer *w = a; w; w = w == a ? b : NULL) {
            uint64_t unit = 0;
            while (owner[unit] != w || w->streams[0].done[unit])
                unit++;
            run_completed(w, &w->streams[0], unit, 1);
        }
        run_settle(u);
    }
    char *status = NULL;
    struct cw_error err = {0};
    assert_int_equal(cw_dispatcher_query(u->d, "status", u->now_ns, &status, &err), 0);
    if (!strstr(status, "\"late\":0,"))
        fail_msg("%s", status);
    free(status);
    run_free(u);
}

/* A range is not late because its worker had another one to compute before it. */
static void test_late_behind_another_range(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    u->depth = 2;
    run_start_shared(u, false);
    struct run_peer *a = run_worker(u, 16), *b = run_worker(u, 16);
    run_client(u, "job", 0, 1, 0);
    for (int k = 0; k < 7; k++) { /* each range takes 0.9 s; in the end a stands still */
        run_pass(u, 900);
        if (k < 6)
            run_completed(a, &a->streams[0], next_of(&a->streams[0]), 1);
        run_completed(b, &b->streams[0], next_of(&b->streams[0]), 1);
        run_settle(u);
    }
    uint64_t unit = next_of(&a->streams[0]); /* leased after 4.5 s, begun after 5.4 s, now it is 6.3 s */
    run_pass(u, 800);
    assert_false(b->streams[0].held[unit]);
    run_pass(u, 200);
    assert_true(b->streams[0].held[unit]);
    run_free(u);
}

/* At the end a worker with nothing to do gets what another one has leased and can't have begun, but not what
 * it may compute, and nothing that could be lost. */
static void test_unbegun_ranges_are_taken_back(void **state)
{
    (void)state;
    for (int lossy = 0; lossy < 2; lossy++) {
        struct run *u = run_new(6);
        struct run_attach at = {.job = "job",
                                .order = lossy ? CACHEW__ORDER__ORDER_ANY : CACHEW__ORDER__ORDER_EXACT,
                                .guarantee = lossy ? CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE
                                                   : CACHEW__GUARANTEE__GUARANTEE_EXACTLY_ONCE};
        struct run_peer *a = run_worker(u, 6), *b = run_worker(u, 6), *c = run_client_with(u, &at, 0);
        assert_int_equal(run_held(a), 3);
        assert_int_equal(run_held(b), 3);
        struct run_peer *slow = a->streams[0].held[0] ? a : b, *fast = slow == a ? b : a;
        for (uint64_t unit = next_of(&fast->streams[0]), n = 0; unit < RUN_UNITS && n < 5;
             unit = next_of(&fast->streams[0]), n++) {
            run_completed(fast, &fast->streams[0], unit, 1);
            run_settle(u);
        }
        assert_int_equal(run_held(slow), lossy ? 3 : 1);
        assert_true(slow->streams[0].held[0]);
        assert_int_equal(run_held(fast), lossy ? 3 : 5);
        for (uint64_t unit = 0; unit < 6; unit++)
            assert_int_equal(c->placed[unit], (fast->streams[0].held[unit] ? fast : slow)->worker + 1);
        run_free(u);
    }
}

/* A worker was leased a range again while it said how it had ended another one that began there: it does not
 * hold what it said, and what it says of the range that it holds counts. Else clients would ask it for
 * batches that it has not, for ever: nothing would be late. */
static void test_what_is_said_of_an_earlier_lease(void **state)
{
    (void)state;
    struct run *u = run_any_size(1000, 1, 1);
    struct run_peer *w = run_worker(u, 16), *c = run_client(u, "job", 0, 1, 0);
    struct run_stream *s = &w->streams[0];
    uint64_t units = run_units(s, 0), lease = s->lease[0];
    assert_int_equal(units, FIRST);
    s->lease[0] = lease - 1;
    uint64_t id = run_completed_of(w, s, 0, 5, 5);
    run_pass(u, 100);
    assert_true(run_answered(w, id));
    assert_int_equal(c->n_reports[0], 0);
    assert_int_equal(s->held[5], 2); /* none that begins there was leased */
    s->lease[0] = lease;
    for (uint64_t unit = 3; unit < units; unit++) /* it knows by itself */
        s->held[unit] = 0;
    id = run_completed_of(w, s, 0, 3, 3);
    run_pass(u, 100);
    assert_true(run_answered(w, id));
    assert_int_equal(c->report_end[0], 3);
    assert_int_equal(s->held[3], 1);
    run_free(u);
}

/* A worker answers NotHere for a range that it completed. A complete range is never late, so the client's
 * Unreachable has to get it leased again; here to the same worker, the only one. */
static void test_a_range_that_its_worker_has_not(void **state)
{
    (void)state;
    struct run *u = run_any_size(1000, 1, 1);
    struct run_peer *w = run_worker(u, 16), *c = run_client(u, "job", 0, 1, 0);
    struct run_stream *s = &w->streams[0];
    uint64_t lease = s->lease[0];
    Cachew__Range range = CACHEW__RANGE__INIT;
    run_range(u, 0, run_units(s, 0), &range.epoch, &range.begin, &range.end);
    run_completed(w, s, 0, 7);
    for (int again = 0; again < 2; again++) {
        RUN_SAY(c, Unreachable, UNREACHABLE, false, RUN_BASE(unreachable), .worker = w->worker,
                .reason = (char *)"", .not_here = &range);
        run_settle(u);
        assert_int_equal(s->lease[0] != lease, again); /* the first time it was leased just now */
        assert_int_equal(s->held[0], 1);
        run_pass(u, 1500);
    }
    run_completed(w, s, 0, 7);
    run_settle(u);
    assert_int_equal(c->n_reports[0], 1);
    range.end--; /* the client's are other bounds: it is told those that there are */
    c->placed[0] = 0;
    lease = s->lease[0];
    RUN_SAY(c, Unreachable, UNREACHABLE, false, RUN_BASE(unreachable), .worker = w->worker,
            .reason = (char *)"", .not_here = &range);
    run_settle(u);
    assert_int_equal(s->lease[0], lease);
    assert_int_equal(c->placed[0], w->worker + 1);
    run_free(u);
}

/* A worker ends a range early. The other positions are leased to a worker, also after the dispatcher
 * restarts. Where a second worker had a lease of the whole range, it loses that. */
static void test_a_range_that_its_worker_ends_early(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct run *u = run_any_size(1000, 1, 2);
        struct run_peer *a = run_worker(u, 16), *b = run_worker(u, 16), *c = run_client(u, "job", 0, 1, 0);
        struct run_peer *slow = a->streams[0].held[0] ? a : b, *other = slow == a ? b : a;
        struct run_stream *s = &slow->streams[0];
        uint64_t units = run_units(s, 0);
        assert_int_equal(units, FIRST);
        if (late) {
            run_pass(u, 500);
            run_completed(other, &other->streams[0], next_of(&other->streams[0]), 1);
            run_pass(u, 2500);
            assert_true(other->streams[0].held[0] && s->held[0]);
        }
        for (uint64_t unit = 3; unit < units; unit++) /* it knows by itself */
            s->held[unit] = 0;
        uint64_t id = run_completed_of(slow, s, 0, 3, 5);
        run_pass(u, 100);
        assert_true(run_answered(slow, id));
        assert_int_equal(c->report_end[0], 3);
        assert_int_equal(c->n_reports[0], 1);
        assert_int_equal(other->streams[0].held[0], 0);
        assert_true(slow->streams[0].held[3] == 1 || other->streams[0].held[3] == 1);
        assert_int_equal(c->placed[3], (other->streams[0].held[3] ? other : slow)->worker + 1);
        run_kill(u);
        run_start(u);
        run_reconnect(a);
        run_reconnect(b);
        struct run_attach at = {.job = "job", .again = true};
        attach_again(c, &at, 0);
        run_pass(u, 200);
        assert_int_equal(c->report_end[0], 3);
        assert_int_equal((slow->streams[0].held[3] != 0) + (other->streams[0].held[3] != 0), 1);
        run_free(u);
    }
}

/* After a restart without a journal the table is what workers hold: what overlaps others is revoked, and gaps
 * are cut to fit. */
static void test_overlapping_holdings_are_revoked(void **state)
{
    (void)state;
    struct run *u = run_any_size(1000, 1, 1024);
    struct run_attach at = {.job = "job", .again = true};
    struct run_peer *a = run_worker(u, 4), *b = run_worker(u, 4), *c = run_client_with(u, &at, 0);
    start_blank(u);
    memset(a->streams[0].held, 0, sizeof(a->streams[0].held));
    memset(b->streams[0].held, 0, sizeof(b->streams[0].held));
    run_hold(&a->streams[0], 20, 30);
    run_hold(&a->streams[0], 60, 10);
    run_hold(&b->streams[0], 40, 13); /* of another dispatcher, which cut them otherwise */
    run_hold(&b->streams[0], 53, 4);
    run_hold(&b->streams[0], 60, 10);
    attach_again(c, &at, 15);
    for (struct run_peer *w = a; w; w = w == a ? b : NULL) {
        run_peer_clear(w);
        run_connect_as(u, w, CACHEW__ROLE__ROLE_WORKER);
        run_register(w);
    }
    run_pass(u, 200);
    assert_int_equal(run_units(&a->streams[0], 20), 30);
    assert_int_equal(run_units(&a->streams[0], 60), 10);
    assert_int_equal(run_units(&b->streams[0], 53), 4);
    for (uint64_t unit = 15; unit < 77; unit++) /* all of it is somewhere, just once */
        assert_int_equal((a->streams[0].held[unit] != 0) + (b->streams[0].held[unit] != 0), 1);
    static const uint64_t begins[] = {15, 20, 50, 53, 57, 60, 70};
    for (size_t i = 0; i < CW_COUNT_OF(begins); i++)
        assert_int_equal(a->streams[0].held[begins[i]] == 1 || b->streams[0].held[begins[i]] == 1, 1);
    run_free(u);
}

/* A range that is held across a rank's first position is of no use to it. */
static void test_holdings_across_a_position_are_revoked(void **state)
{
    (void)state;
    struct run *u = run_any_size(1000, 1, 1024);
    struct run_attach at = {.job = "job", .again = true};
    struct run_peer *w = run_worker(u, 4), *c = run_client_with(u, &at, 0);
    assert_int_equal(run_units(&w->streams[0], 0), FIRST);
    start_blank(u);
    attach_again(c, &at, 5);
    run_reconnect(w);
    run_pass(u, 200);
    assert_int_equal(w->streams[0].held[4], 0);
    assert_int_equal(w->streams[0].held[5], 1);
    run_free(u);
}

/* kill -9 while a rank is in the middle of a range: it finds it where it was, with what is known of it. */
static void test_restart_in_the_middle_of_a_range(void **state)
{
    (void)state;
    for (int blank = 0; blank < 2; blank++) {
        struct run *u = run_any_size(1000, 1, 1024);
        struct run_attach at = {.job = "job", .again = true};
        struct run_peer *w = run_worker(u, 2), *c = run_client_with(u, &at, 0);
        run_completed(w, &w->streams[0], 0, 9);
        run_settle(u);
        run_progress(c, 0, 0);
        if (blank) {
            start_blank(u);
        } else {
            run_kill(u);
            run_start(u);
        }
        attach_again(c, &at, 0);
        run_reconnect(w);
        run_pass(u, 2500);
        assert_int_equal(run_held(w), 2);
        assert_int_equal(run_units(&w->streams[0], 0), FIRST);
        assert_int_equal(c->n_reports[0], !blank);
        uint64_t id = run_completed(w, &w->streams[0], 0, 9); /* as a worker says to each dispatcher */
        run_settle(u);
        assert_true(run_answered(w, id));
        assert_int_equal(c->reports[0], 9);
        assert_int_equal(c->next_report, FIRST);
        /* Where batches follow from positions, the cursor itself may be inside. */
        run_free(u);
        u = run_any_size(1000, 0, 1024);
        w = run_worker(u, 4);
        c = run_client_with(u, &at, 0);
        for (uint64_t unit = 0; unit < 4; unit++)
            run_completed(w, &w->streams[0], unit, 0);
        run_progress(c, 4, 0);
        run_settle(u);
        assert_true(run_units(&w->streams[0], 4) > 2);
        run_progress(c, 5, 0);
        run_settle(u);
        if (blank) {
            start_blank(u);
        } else {
            run_kill(u);
            run_start(u);
        }
        struct run_stream before = w->streams[0];
        attach_again(c, &at, 5);
        run_reconnect(w);
        run_pass(u, 2500);
        assert_memory_equal(w->streams[0].held, before.held, sizeof(before.held));
        assert_int_equal(c->placed[5], w->worker + 1);
        run_free(u);
    }
}

/* at-most-once: a range in which the rank stands is not given again either, when all before it are forgotten.
 */
static void test_at_most_once_inside_a_range(void **state)
{
    (void)state;
    struct run *u = run_new(1000);
    struct run_attach at = {.job = "job",
                            .order = CACHEW__ORDER__ORDER_ANY,
                            .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};
    struct run_peer *a = run_worker(u, 3), *c = run_client_with(u, &at, 0);
    bool given[1000] = {0};
    for (uint64_t unit = 0; unit < 513; unit++) {
        run_completed(a, &a->streams[0], unit, 1);
        run_progress(c, unit, 5);
        run_settle(u);
        for (uint64_t k = 0; k < 1000; k++)
            given[k] |= a->streams[0].held[k];
    }
    assert_true(run_count(u, 'e') < 300);
    run_kill(u);
    a->used = c->used = false;
    run_start(u);
    at.offset = 5;
    c = run_client_with(u, &at, 512);
    struct run_peer *b = run_worker(u, 3);
    run_pass(u, 2500);
    assert_true(given[512] && given[514] && !given[515]);
    for (uint64_t unit = 0; unit < 1000; unit++)
        assert_false(given[unit] && b->streams[0].held[unit]);
    assert_true(c->lost[512] && c->lost[514]);
    assert_true(b->streams[0].held[515] && b->streams[0].held[517]);
    run_free(u);
}

/* Positions, ranges and plans that are none are refused by name. */
static void test_values_are_named(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    run_worker(u, 2);
    struct run_peer *c = run_client_with(u, &(struct run_attach){.job = "job", .offset = 21}, 6);
    assert_non_null(
        strstr(c->failure, "position 81 of epoch 0 does not exist: an epoch of this job has 80 positions"));
    c = run_client(u, "job", 0, 1, 4);
    assert_true(c->attached);
    assert_int_equal(run_progress(c, 3, 2), CW_E_SERVICE);
    assert_non_null(strstr(c->why, "progress to position 32 of epoch 0: expected a position"));
    struct run_peer *w = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    w->capacity = 1;
    w->snapshot = 11;
    w->most = 5;
    run_register(w);
    run_settle(u);
    assert_true(w->closed);
    assert_non_null(strstr(w->why, "ranges of at most 5 positions, but their bounds are multiples of 10"));
    u->n_keys = 3;
    run_worker(u, 2);
    char *json = NULL;
    struct cw_error err = {0};
    run_settle(u);
    assert_int_equal(cw_dispatcher_query(u->d, "workers", u->now_ns, &json, &err), 0);
    assert_non_null(strstr(json, "it compiles the pipeline differently"));
    free(json);
    run_free(u);
}

/* Whoever finds the end of an epoch says so: nothing behind is leased, and clients learn that the rest has no
 * elements. */
static void test_an_epoch_ends_where_a_worker_says(void **state)
{
    (void)state;
    struct run *u = run_new(20);
    struct run_peer *w = run_worker(u, 3), *c = run_client(u, "job", 0, 1, 0);
    uint64_t held = run_held(w), at = next_of(&w->streams[0]);
    assert_true(held > 0 && held < 20 && at == 0);
    u->last = true;
    while ((at = next_of(&w->streams[0])) < RUN_UNITS) {
        run_completed(w, &w->streams[0], at, at == 0 ? 5 : 0);
        run_settle(u);
    }
    assert_int_equal(run_held(w), held);
    assert_int_equal(c->reports[0], 5);
    assert_int_equal(c->next_report, 20);
    run_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_follow_the_rate),
        cmocka_unit_test(test_leases_ahead_are_bounded_in_time),
        cmocka_unit_test(test_sizes_shrink_near_the_end),
        cmocka_unit_test(test_sizes_fit_every_worker),
        cmocka_unit_test(test_a_resumed_rank_finds_a_range_at_its_position),
        cmocka_unit_test(test_who_shares_a_stream),
        cmocka_unit_test(test_sequential_epochs),
        cmocka_unit_test(test_late_while_nothing_is_known),
        cmocka_unit_test(test_late_behind_another_range),
        cmocka_unit_test(test_unbegun_ranges_are_taken_back),
        cmocka_unit_test(test_what_is_said_of_an_earlier_lease),
        cmocka_unit_test(test_a_range_that_its_worker_has_not),
        cmocka_unit_test(test_a_range_that_its_worker_ends_early),
        cmocka_unit_test(test_overlapping_holdings_are_revoked),
        cmocka_unit_test(test_an_epoch_ends_where_a_worker_says),
        cmocka_unit_test(test_holdings_across_a_position_are_revoked),
        cmocka_unit_test(test_restart_in_the_middle_of_a_range),
        cmocka_unit_test(test_at_most_once_inside_a_range),
        cmocka_unit_test(test_values_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
