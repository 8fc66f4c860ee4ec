/*
 * The dispatcher's core under everything at once: workers join, die, come back, drain, complete out of order,
 * see other data; clients attach, move on, die, go back, take each other over; commits are delayed and
 * refused; the dispatcher is killed and started from its journal. After each step things that must always
 * hold are checked by looking at what peers were told; when the weather clears, every job must get to its
 * end.
 *
 * usage: test_dispatcher_random [SEEDS [FIRST]]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "alloc_fail.h"
#include "dispatcher_run.h"
#include "sample.h"

#define JOBS 3
#define RANKS 3
#define WORKERS 8

struct rank_state {
    struct run_peer *client;
    uint64_t pos;   /* where it is */
    uint64_t saved; /* where its last state is */
    uint32_t number, world;
    bool finished;
};

struct weather {
    struct run *u;
    uint64_t random, n_units, total; /* units: of an epoch, of all */
    bool share;                      /* jobs 0 and 1 then have one stream */
    uint32_t world[JOBS];
    struct rank_state ranks[JOBS][RANKS];
    struct run_peer *workers[WORKERS];
    uint64_t ids[WORKERS];
    bool gone[WORKERS]; /* the process lives, without a connection */
    bool known[JOBS];   /* what data it has is written down: who sees other data may come */
    bool used[1000];    /* ids that were given */
};

static uint64_t draw(struct weather *x, uint64_t n)
{
    x->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = x->random;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % n;
}

/* What a range gives, of which nobody here knows but the one who ran it: the sum over its units. */
static uint64_t given_by(uint64_t unit, uint64_t end)
{
    uint64_t sum = 0;
    for (; unit < end; unit++)
        sum += unit * 7 % 5;
    return sum;
}

static char *job_name(int j)
{
    static char names[JOBS][8];
    snprintf(names[j], sizeof(names[j]), "job%d", j);
    return names[j];
}

/* ---- steps ---- */

static void worker_step(struct weather *x)
{
    size_t i = draw(x, WORKERS);
    struct run_peer *w = x->workers[i];
    if (!w) {
        x->ids[i] = 0;
        x->workers[i] = run_worker_data(x->u, 1 + (uint32_t)draw(x, 4),
                                        draw(x, 8) == 0 && x->known[0] && x->known[1] && x->known[2] ? 12
                                                                                                     : 11);
        return;
    }
    x->gone[i] |= w->closed; /* cut off */
    if (x->gone[i]) {
        if (draw(x, 3) == 0) { /* the process died meanwhile */
            w->used = x->gone[i] = false;
            x->workers[i] = NULL;
        } else {
            x->gone[i] = false;
            run_reconnect(w);
        }
        return;
    }
    switch (draw(x, 3)) {
    case 0: /* kill -9 */
        run_lose(w);
        x->workers[i] = NULL;
        break;
    case 1: /* the connection is gone, the process not */
        RUN_CALL_VOID(cw_dispatcher_lost(x->u->d, w->peer, x->u->now_ns));
        w->peer = NULL;
        w->closed = true;
        x->gone[i] = true;
        break;
    default:
        RUN_SAY(w, Draining, DRAINING, false, RUN_BASE(draining));
        break;
    }
}

static void complete_step(struct weather *x, uint64_t times)
{
    for (uint64_t n = 0; n < times; n++) {
        struct run_peer *w = x->workers[draw(x, WORKERS)];
        if (!w || w->closed || w->worker == 0)
            continue;
        struct run_stream *s = &w->streams[draw(x, RUN_STREAMS)];
        uint64_t start = draw(x, x->total);
        for (uint64_t k = 0; s->used && k < x->total; k++) {
            uint64_t pos = (start + k) % x->total;
            if (s->held[pos] == 1 && !w->closed) {
                run_completed(w, s, pos, given_by(pos, pos + run_units(s, pos)));
                break;
            }
        }
    }
}

static void client_attach(struct weather *x, int j, uint32_t rank, uint64_t from)
{
    struct rank_state *r = &x->ranks[j][rank];
    struct run_peer *c = run_connect(x->u, CACHEW__ROLE__ROLE_CLIENT);
    run_attach_as(c,
                  &(struct run_attach){.job = job_name(j),
                                       .rank = rank,
                                       .world_size = x->world[j],
                                       .seed = (uint64_t)j / 2,
                                       .epochs = x->total / x->n_units},
                  from);
    r->client = c;
    r->number = rank;
    r->world = x->world[j];
    r->pos = r->saved = from;
    r->finished = false;
}

/* Whether it is known what the range gave that has this unit, which is then checked. */
static bool is_reported(const struct run_peer *c, uint64_t unit)
{
    uint64_t begin = unit + 1;
    while (begin-- > 0)
        if (c->n_reports[begin] > 0 && c->report_end[begin] > unit) {
            assert_int_equal(c->reports[begin], given_by(begin, c->report_end[begin]));
            return true;
        }
    return false;
}

/* Whether a rank needs rows of a unit. Where batches follow from positions, it is told only of ranges that
 * hold its own batches, or some of the first ones. */
static bool is_own(const struct weather *x, const struct rank_state *r, uint64_t unit)
{
    uint64_t epoch, position;
    run_place(x->u, unit, &epoch, &position);
    return x->u->n_keys > 0 || x->u->sequential || position / x->u->align % r->world == r->number;
}

/* Whether a rank has all of the unit where it is: a worker holds its range and has completed it, and it is
 * known what it gave, where that matters. */
static bool client_has(struct weather *x, struct rank_state *r)
{
    struct run_peer *c = r->client;
    bool counted = x->u->n_keys == 0 && !x->u->sequential;
    if (c->placed[r->pos] <= 1 || (!counted && !is_reported(c, r->pos)))
        return false;
    struct run_peer *w = run_find_worker(x->u, c->placed[r->pos] - 1);
    bool holds = false;
    for (size_t i = 0; w && !w->closed && i < RUN_STREAMS; i++)
        holds |= w->streams[i].used && memcmp(w->streams[i].id, c->streams[0].id, 16) == 0 &&
                 w->streams[i].held[r->pos] && (w->streams[i].done[r->pos] || !counted);
    return holds;
}

/* Moves a rank on past a unit of which it has what it needs. */
static bool client_advance(struct weather *x, struct rank_state *r)
{
    struct run_peer *c = r->client;
    if (!c || c->closed || c->ended || !c->attached || r->pos >= x->total ||
        (is_own(x, r, r->pos) && !client_has(x, r)))
        return false;
    r->pos++;
    assert_true(run_progress(c, r->pos, 0) == 0 || run_inside);
    if (draw(x, 2) == 0)
        r->saved = r->pos;
    return true;
}

static void client_gone(struct rank_state *r)
{
    if (r->client)
        run_lose(r->client);
    r->client = NULL;
}

static void client_step(struct weather *x)
{
    int j = (int)draw(x, JOBS);
    uint32_t rank = (uint32_t)draw(x, x->world[j]);
    struct rank_state *r = &x->ranks[j][rank];
    if (r->finished)
        return;
    if (!r->client || r->client->closed || r->client->ended ||
        (!r->client->attached && r->client->failure[0])) {
        client_gone(r);
        client_attach(x, j, rank, r->saved);
    } else if (draw(x, 12) == 0) {
        client_gone(r);
    } else if (draw(x, 25) == 0) { /* a second one of the rank; the first is told, and goes */
        struct run_peer *old = r->client;
        client_attach(x, j, rank, r->saved);
        run_settle(x->u);
        run_lose(old);
    } else {
        for (uint64_t n = draw(x, 6); n > 0 && client_advance(x, r); n--)
            ;
    }
}

/* kill -9 and a start from the journal. Worker processes live on, clients too: all have lost their
 * connections. */
static void restart_step(struct weather *x)
{
    run_kill(x->u);
    for (int i = 0; i < WORKERS; i++)
        x->gone[i] = x->workers[i] != NULL;
    for (int j = 0; j < JOBS; j++)
        for (int k = 0; k < RANKS; k++)
            client_gone(&x->ranks[j][k]);
    run_start_shared(x->u, x->share);
}

/* ---- what always holds ---- */

static void check(struct weather *x)
{
    struct run *u = x->u;
    for (int i = 0; i < WORKERS; i++) {
        struct run_peer *w = x->workers[i];
        if (!w || w->closed || w->worker == 0)
            continue;
        if (x->ids[i] != w->worker) { /* a new process: its id is new too */
            assert_true(w->worker < CW_COUNT_OF(x->used) && !x->used[w->worker]);
            x->used[w->worker] = true;
            x->ids[i] = w->worker;
        }
        for (size_t k = 0; k < RUN_STREAMS; k++) {
            size_t n = 0;
            for (uint64_t pos = 0; w->streams[k].used && pos < x->total; pos++)
                n += w->streams[k].held[pos] == 1;
            assert_true(n <= w->capacity + 1u); /* one more for a late one */
        }
    }
    for (int j = 0; j < JOBS; j++)
        for (uint32_t k = 0; k < x->world[j]; k++) {
            struct run_peer *c = x->ranks[j][k].client;
            const struct rank_state *r = &x->ranks[j][k];
            if (!c || c->closed || !c->attached || c->ended)
                continue;
            x->known[j] = true;
            for (uint64_t pos = x->ranks[j][k].pos; pos < x->total; pos++) {
                size_t n = 0;
                /* of the range that has it: those of two workers are the same */
                uint64_t begin = UINT64_MAX, end = 0;
                bool named = c->placed[pos] <= 1;
                for (int i = 0; i < WORKERS; i++) {
                    struct run_peer *w = x->workers[i];
                    for (size_t m = 0; w && !w->closed && m < RUN_STREAMS; m++)
                        if (w->streams[m].used && memcmp(w->streams[m].id, c->streams[0].id, 16) == 0 &&
                            w->streams[m].held[pos]) {
                            uint64_t first = pos;
                            while (w->streams[m].held[first] == 2)
                                first--;
                            if (w->registered) { /* before that, what it has may be others' by now */
                                assert_true(n == 0 || (first == begin &&
                                                       first + run_units(&w->streams[m], first) == end));
                                begin = first;
                                end = first + run_units(&w->streams[m], first);
                                n++;
                            }
                            named |= c->placed[pos] == w->worker + 1;
                        }
                }
                assert_true(n <= 2);
                /* what a client was told it can have, is there, unless it is about to be told otherwise */
                if (!named && is_own(x, r, pos))
                    fail_msg("job %d rank %u: unit %" PRIu64 " is said to be at worker %" PRIu64
                             ", which has it not",
                             j, k, pos, c->placed[pos] - 1);
            }
        }
    assert_false(u->batch && !u->hold && !u->full);
}

/* ---- the end ---- */

static bool all_done(const struct weather *x)
{
    for (int j = 0; j < JOBS; j++)
        for (uint32_t k = 0; k < x->world[j]; k++)
            if (!x->ranks[j][k].finished)
                return false;
    return true;
}

/* Three workers that live, clients that go on: each job must end, with all reports right. */
static void clear_up(struct weather *x)
{
    struct run *u = x->u;
    u->hold = u->full = false;
    run_pass(u, 1100);
    for (int i = 0; i < WORKERS; i++)
        if (x->workers[i]) {
            run_lose(x->workers[i]);
            x->workers[i] = NULL;
            x->gone[i] = false;
        }
    for (int i = 0; i < 3; i++)
        x->workers[i] = run_worker_data(u, 1 + (uint32_t)i, 11), x->ids[i] = 0;
    run_settle(u);
    for (int round = 0; !all_done(x); round++) {
        if (round > 4000)
            fail_msg("it does not end: ranks of job 0 at %" PRIu64 " %" PRIu64 " %" PRIu64 " of %" PRIu64,
                     x->ranks[0][0].pos, x->ranks[0][1].pos, x->ranks[0][2].pos, x->total);
        for (int j = 0; j < JOBS; j++)
            for (uint32_t k = 0; k < x->world[j]; k++) {
                struct rank_state *r = &x->ranks[j][k];
                if (r->finished)
                    continue;
                if (!r->client || r->client->closed || r->client->ended ||
                    (!r->client->attached && r->client->failure[0])) {
                    client_gone(r);
                    client_attach(x, j, k, r->saved);
                }
                run_settle(u);
                while (client_advance(x, r))
                    run_settle(u);
                if (r->pos == x->total && r->client->attached) {
                    run_detach(r->client, true);
                    r->finished = true;
                }
            }
        complete_step(x, 20);
        run_pass(u, 100);
        for (int i = 0; i < 3; i++)
            if (x->workers[i]->closed) /* cut off, for want of memory */
                run_reconnect(x->workers[i]);
        check(x);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_held(x->workers[i]), 0);
    run_pass(u, 31000);
    assert_int_equal(run_count(u, 'b') + run_count(u, 'c') + run_count(u, 'd') + run_count(u, 'e'), 0);
}

/* A policy that changes its mind whenever it is asked: who serves which job changes all the time, and nothing
 * else. */
static void whim_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                        const struct cw_facts *f, double now_s, struct cw_decision *d)
{
    static const int wanted[] = {1, 3, 2, 4, 1, 2, 1, 3, 5};
    (void)policy, (void)now_s;
    size_t n = (size_t)memory->values[0]++;
    d->cache_point = -1;
    d->workers[0] = CW_MIN(wanted[n % CW_COUNT_OF(wanted)], f->pools[0].maximum);
    d->concluded = true;
}

static const struct cw_policy whim = {.name = "whim", .decide = whim_decide};

static void run_seed(uint64_t seed)
{
    struct weather *x = calloc(1, sizeof(*x));
    x->random = seed;
    run_policy = seed % 2 ? NULL : &whim;
    x->n_units = 5 + draw(x, 30);
    x->total = x->n_units * (1 + draw(x, 3));
    for (int j = 0; j < JOBS; j++)
        x->world[j] = 1 + (uint32_t)draw(x, RANKS);
    x->share = draw(x, 2);
    x->u = run_new(x->n_units);
    x->u->most = draw(x, 3) == 0 ? RUN_UNIT : RUN_UNIT * (1 + draw(x, 50));
    x->u->missing = draw(x, RUN_UNIT);
    x->u->n_keys = draw(x, 3) > 0;
    x->u->sequential = draw(x, 8) == 0;
    x->u->depth = draw(x, 2) ? 2 : 1024;
    if (!x->u->n_keys && !x->u->sequential) { /* counted: ranges may end anywhere in batches */
        x->u->unit = 1;
        x->u->missing = 0;
        x->u->align = 1 + draw(x, 8);
        x->u->most = CW_MAX(x->u->most, x->u->align);
    }
    run_start_shared(x->u, x->share);
    for (uint64_t steps = 100 + draw(x, 300); steps > 0; steps--) {
        uint64_t what = draw(x, 100);
        if (what < 8)
            worker_step(x);
        else if (what < 45)
            complete_step(x, 1 + draw(x, 4));
        else if (what < 90)
            client_step(x);
        else if (what < 92)
            restart_step(x);
        else if (what < 94)
            x->u->hold = !x->u->hold;
        else if (what < 96)
            x->u->full = !x->u->full;
        else
            run_pass(x->u, 100 * draw(x, 30));
        if (draw(x, 3) > 0) { /* several inputs to a turn, sometimes */
            run_settle(x->u);
            check(x);
        }
    }
    clear_up(x);
    run_free(x->u);
    free(x);
}

static uint64_t n_seeds = 150, first_seed = 1;

static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + sample_size(n_seeds); seed++) {
        if (getenv("RUN_LOG") || n_seeds == 1)
            fprintf(stderr, "seed %" PRIu64 "\n", seed);
        run_seed(seed);
    }
}

/* ---- no memory ---- */

static uint64_t fail_at, calls_before;

static void fail_inside(bool in)
{
    if (!in)
        calls_before += alloc_fail_disarm();
    else if (!alloc_fail_happened())
        alloc_fail_arm(fail_at > calls_before ? fail_at - calls_before : UINT64_MAX);
}

/* One allocation of the dispatcher's fails, each in turn: it may cost a connection, and nothing else. */
static void test_no_memory(void **state)
{
    (void)state;
    run_inside = fail_inside;
    bool more = true;
    for (fail_at = 1; more; fail_at += 1 + fail_at / 16) {
        more = false;
        for (uint64_t seed = first_seed; seed < first_seed + sample_size(4); seed++) {
            calls_before = 0;
            alloc_fail_arm(UINT64_MAX);
            alloc_fail_disarm();
            if (n_seeds == 1)
                fprintf(stderr, "seed %" PRIu64 ", allocation %" PRIu64 "\n", seed, fail_at);
            run_seed(seed);
            more |= alloc_fail_happened();
        }
    }
    assert_true(fail_at > 100);
    run_inside = NULL;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_no_memory)};
    if (argc > 1)
        n_seeds = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
