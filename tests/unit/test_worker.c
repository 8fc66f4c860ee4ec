/* A worker: its batches are those of an iterator, whatever clients and dispatchers do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "worker_world.h"

#define RANGE "{\"op\": \"range\", \"stop\": 40000}, {\"op\": \"assign\", \"set\": {\"half\": \"value * 0.5\"}}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 8}"
#define FILTER "{\"op\": \"range\", \"stop\": 60000}, {\"op\": \"filter\", \"where\": \"value % 3 != 1\"}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 32}"
#define BYTES "{\"op\": \"text\", \"files\": \"lines.txt\"}, {\"op\": \"batch\", \"size\": 8}"
#define LENGTHS "{\"op\": \"text\", \"files\": \"lines.txt\"}, {\"op\": \"bucket_by_length\", \"length\": \"length(text)\", \"boundaries\": [10, 20, 30], \"sizes\": [8, 6, 4, 2]}"
#define SINGLE "{\"op\": \"range\", \"stop\": 300}"

/* Leased, and the worker knows: what is said on other connections from here on finds it. */
static void lease(unsigned stream, uint64_t epoch, uint64_t first, uint64_t n, uint64_t batch)
{
    size_t before = status_now().n_leases;
    say_lease(stream, epoch, first, n, batch);
    run_until(status_now().n_leases == before + n);
}

static Cachew__Prepared *prepare(unsigned stream, const char *chain, struct got **ret)
{
    struct got *g = wait_got(&dispatcher, is_answer, say_prepare(stream, chain, 5), 0);
    if (g->m->of_case != CACHEW__ENVELOPE__OF_PREPARED)
        fail_msg("not prepared: %s", g->m->of_case == CACHEW__ENVELOPE__OF_FAILURE ? g->m->failure->message : "?");
    *ret = g;
    return g->m->prepared;
}

/* Batches that remnants are joined to, split after split, are those that the iterator joins. */
struct joining {
    struct cw_assembly *at[16];
    uint64_t next_index;
};

static void check_joined(struct reference *r, struct cw_assembly *a, uint64_t split, uint64_t index)
{
    struct cw_error err = {0};
    assert_int_equal(cw_assembly_finish(a, &r->slabs, &err), 0);
    a->batch->epoch = 0;
    assert_same(a->batch, expected_at(r, 0, split, index));
    cw_assembly_free(a);
}

static size_t join_split(struct reference *r, struct fake *f, struct joining *j, uint64_t split, const Cachew__Report *report, bool last)
{
    uint64_t index = report->n_batches;
    size_t n_quarantined = 0;
    unsigned n_keys = cw_n_keys(r->local.compiled);
    for (unsigned k = 0; k < n_keys; k++) {
        uint64_t n = k < report->n_remnants ? report->remnants[k] : 0;
        for (uint64_t at = 0; at < n;) {
            struct cw_error err = {0};
            if (!j->at[k])
                assert_int_equal(cw_assembly_new(&r->layout, &r->slabs, r->local.compiled->bucket_sizes[k], k, &j->at[k], &err), 0);
            uint64_t part = CW_MIN(n - at, j->at[k]->capacity - j->at[k]->n_assigned);
            struct got *g = wait_got(f, is_answer, say_get_remnant(f, 0, 0, split, k, at, part), 0);
            assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_REMNANT);
            struct cw_remnant m;
            if (cw_wire_remnant_read(g->m->remnant, g->payload, g->size, r->local.compiled, &m, &err) < 0 || cw_remnant_join(j->at[k], &m, &err) < 0)
                fail_msg("%s", err.message);
            for (const struct cw_quarantined *q = m.quarantined; q; q = q->next)
                n_quarantined += !q->note;
            cw_remnant_deinit(&m);
            got_free(g);
            at += part;
            if (j->at[k]->n_assigned == j->at[k]->capacity)
                check_joined(r, CW_STEAL(j->at[k]), split, index++);
        }
    }
    for (unsigned k = 0; k < n_keys && last; k++)
        if (j->at[k])
            check_joined(r, CW_STEAL(j->at[k]), split, index++);
    return n_quarantined;
}

/* The batches of one epoch, over a transport, asked for in parts of so many. */
static void run_epoch(const char *chain, enum transport t, uint64_t part)
{
    struct reference r;
    struct joining j = {0};
    struct got *prepared;
    struct fake *f = &clients[0];
    size_t n_batches = 0, n_quarantined = 0;
    reference_limit = SIZE_MAX;
    reference_init(&r, chain, 5, 1);
    struct cw_worker_options o = worker_defaults();
    worker_start(&o);
    const Cachew__Plan *plan = prepare(0, chain, &prepared)->plan;
    assert_int_equal(plan->n_splits, r.local.sequence->n_splits);
    assert_true(plan->snapshot == r.local.sequence->snapshot);
    client_connect(f, t);
    for (uint64_t s = 0; s < plan->n_splits; s++) {
        say_lease(0, 0, s, 1, 0);
        struct got *report = wait_got(&dispatcher, is_report, 0, s);
        uint64_t n = report->m->completed->report->n_batches, came = 0;
        for (uint64_t from = 0; from <= n; from += part) { /* beyond the end: SplitEnd */
            uint64_t id = say_get(f, 0, 0, s, from, part), answers = n - from >= part ? part : n - from + 1;
            for (uint64_t i = 0; i < answers; i++) {
                struct got *g = wait_got(f, is_answer, id, 0);
                if (g->m->of_case == CACHEW__ENVELOPE__OF_SPLIT_END) {
                    assert_int_equal(g->m->split_end->report->n_batches, n);
                } else {
                    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_BATCH);
                    assert_int_equal(g->m->batch->index, from + i);
                    assert_int_equal(g->m->batch->n_slabs != 0, t == SHARED);
                    n_quarantined += check_batch(&r, f, g);
                    give_back(f, g);
                    came++;
                }
                got_free(g);
            }
        }
        assert_int_equal(came, n);
        n_batches += n;
        n_quarantined += join_split(&r, f, &j, s, report->m->completed->report, s + 1 == plan->n_splits);
        say_revoke(0, 0, s, 1);
        got_free(report);
    }
    if (!cw_n_keys(r.local.compiled))
        assert_int_equal(n_batches, r.n);
    assert_int_equal(n_quarantined, r.n_skipped);
    say_forget(0);
    run_until(status_now().n_streams == 0);
    assert_int_equal(status_now().n_out, 0);
    got_free(prepared);
    reference_deinit(&r);
}

static void counted_shared(void **state) { (void)state; run_epoch(RANGE, SHARED, 3); }
static void counted_tcp(void **state) { (void)state; run_epoch(RANGE, TCP, 7); }
static void counted_local(void **state) { (void)state; run_epoch(RANGE, LOCAL, 1); }
static void filtered_shared(void **state) { (void)state; run_epoch(FILTER, SHARED, 5); }
static void filtered_tcp(void **state) { (void)state; run_epoch(FILTER, TCP, 5); }
static void bytes_shared(void **state) { (void)state; run_epoch(BYTES, SHARED, 4); }
static void bytes_tcp(void **state) { (void)state; run_epoch(BYTES, TCP, 4); }
static void buckets_shared(void **state) { (void)state; run_epoch(LENGTHS, SHARED, 2); }
static void buckets_tcp(void **state) { (void)state; run_epoch(LENGTHS, TCP, 100); }
static void elements_shared(void **state) { (void)state; run_epoch(SINGLE, SHARED, 50); }

/* ---- what clients do ---- */

static struct reference reference;
static struct got *prepared;

/* A worker with one stream prepared, and a client. */
static void start_with(const char *chain, enum transport t, size_t memory)
{
    struct cw_worker_options o = worker_defaults();
    o.memory = memory;
    reference_limit = 24 * 32; /* more than any of these tests looks at */
    reference_init(&reference, chain, 5, 1);
    worker_start(&o);
    prepare(0, chain, &prepared);
    client_connect(&clients[0], t);
}

static void end_all(void)
{
    say_forget(0);
    run_until(status_now().n_streams == 0);
    assert_int_equal(status_now().n_out, 0);
    assert_int_equal(status_now().memory_used, 0);
    got_free(prepared);
    reference_deinit(&reference);
}

/* One batch is had, checked and given back. */
static void fetch(struct fake *f, uint64_t split, uint64_t index)
{
    struct got *g = wait_got(f, is_answer, say_get(f, 0, 0, split, index, 1), 0);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_BATCH);
    assert_int_equal(g->m->batch->index, index);
    check_batch(&reference, f, g);
    give_back(f, g);
    got_free(g);
}

static void expect_kind(struct fake *f, uint64_t id, Cachew__Envelope__OfCase kind)
{
    struct got *g = wait_got(f, is_answer, id, 0);
    assert_int_equal(g->m->of_case, kind);
    got_free(g);
}

static void asked_again(const char *chain, enum transport t)
{
    static const uint64_t order[] = {0, 1, 5, 0, 3, 4, 2, 5, 1, 6, 7, 0};
    start_with(chain, t, (size_t)64 << 20);
    lease(0, 0, 0, 2, 0);
    for (size_t i = 0; i < CW_COUNT_OF(order); i++) {
        fetch(&clients[0], 1, order[i]);
        fetch(&clients[0], 0, order[CW_COUNT_OF(order) - 1 - i]);
    }
    end_all();
}

static void counted_asked_again(void **state) { (void)state; asked_again(RANGE, SHARED); }
static void filtered_asked_again(void **state) { (void)state; asked_again(FILTER, TCP); }

/* After all of a split was fetched and reported, it can still be asked for: the whole of it, and what is left over. */
static void finished_asked_again(void **state)
{
    (void)state;
    start_with(FILTER, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 1, 0);
    struct got *report = wait_got(&dispatcher, is_report, 0, 0);
    uint64_t n = report->m->completed->report->n_batches, left = report->m->completed->report->remnants[0];
    for (int times = 0; times < 3; times++) {
        for (uint64_t i = 0; i < n; i++)
            fetch(&clients[0], 0, i);
        expect_kind(&clients[0], say_get_remnant(&clients[0], 0, 0, 0, 0, 0, left), CACHEW__ENVELOPE__OF_REMNANT);
        expect_kind(&clients[0], say_get(&clients[0], 0, 0, 0, n, 9), CACHEW__ENVELOPE__OF_SPLIT_END);
    }
    assert_int_equal(n_completed, 1);
    /* what is not there */
    expect_kind(&clients[0], say_get_remnant(&clients[0], 0, 0, 0, 0, 0, left + 1), CACHEW__ENVELOPE__OF_SPLIT_FAILED);
    expect_kind(&clients[0], say_get_remnant(&clients[0], 0, 0, 0, 1, 0, 1), CACHEW__ENVELOPE__OF_SPLIT_FAILED);
    got_free(report);
    end_all();
}

/* One rank is behind the other by all of a split: what it did not ask for yet was kept, or is computed again. */
static void ranks_apart(const char *chain, size_t memory)
{
    start_with(chain, SHARED, memory);
    client_connect(&clients[1], TCP);
    lease(0, 0, 0, 1, 0);
    uint64_t n = 8;
    for (uint64_t i = 0; i < n; i += 2)
        fetch(&clients[0], 0, i);
    for (uint64_t i = 1; i < n; i += 2)
        fetch(&clients[1], 0, i);
    end_all();
}

#define LARGE "{\"op\": \"synthetic\", \"count\": 8192, \"shape\": [64, 1024], \"dtype\": \"uint8\"}, {\"op\": \"batch\", \"size\": 2}"
static void counted_ranks_apart(void **state) { (void)state; ranks_apart(LARGE, (size_t)64 << 20); }
static void counted_ranks_apart_without_room(void **state) { (void)state; ranks_apart(LARGE, (size_t)16 << 20); }
static void filtered_ranks_apart(void **state) { (void)state; ranks_apart(FILTER, (size_t)64 << 20); }

/* Batches of a range come in order however far it goes, and by one request. */
static void range_of_batches(void **state)
{
    (void)state;
    start_with(LARGE, TCP, (size_t)16 << 20);
    lease(0, 0, 0, 1, 0);
    uint64_t id = say_get(&clients[0], 0, 0, 0, 2, 14);
    for (uint64_t i = 2; i < 16; i++) {
        struct got *g = wait_got(&clients[0], is_answer, id, 0);
        assert_int_equal(g->m->batch->index, i);
        check_batch(&reference, &clients[0], g);
        got_free(g);
    }
    end_all();
}

/* Leased far more than there is memory for, and asked for from the end: who is asked for is computed. */
static void later_splits_first(const char *chain)
{
    start_with(chain, SHARED, (size_t)16 << 20);
    uint64_t n_splits = CW_MIN(prepared->m->prepared->plan->n_splits, 24u);
    lease(0, 0, 0, n_splits, 0);
    for (uint64_t s = n_splits; s-- > 0;)
        fetch(&clients[0], s, 0);
    for (uint64_t s = 0; s < n_splits; s++)
        fetch(&clients[0], s, 1);
    end_all();
}

static void counted_later_first(void **state) { (void)state; later_splits_first(LARGE); }
static void bytes_later_first(void **state) { (void)state; later_splits_first(BYTES); }
static void filtered_later_first(void **state) { (void)state; later_splits_first(FILTER); }

/* Two that ask for different ends at the same time. */
static void two_ends_at_once(void **state)
{
    (void)state;
    start_with(LARGE, SHARED, (size_t)16 << 20);
    client_connect(&clients[1], TCP);
    uint64_t n_splits = CW_MIN(prepared->m->prepared->plan->n_splits, 24u);
    lease(0, 0, 0, n_splits, 0);
    for (uint64_t s = 0; s < n_splits; s++)
        for (uint64_t i = 0; i < 3; i++) {
            uint64_t a = say_get(&clients[0], 0, 0, s, i, 1), b = say_get(&clients[1], 0, 0, n_splits - 1 - s, i, 1);
            struct got *g = wait_got(&clients[0], is_answer, a, 0), *h = wait_got(&clients[1], is_answer, b, 0);
            check_batch(&reference, &clients[0], g);
            check_batch(&reference, &clients[1], h);
            give_back(&clients[0], g);
            got_free(g);
            got_free(h);
        }
    end_all();
}

#define LARGE_SOURCE "{\"op\": \"synthetic\", \"count\": 8192, \"shape\": [64, 1024], \"dtype\": \"uint8\"}, "
#define LARGE_FILTERED LARGE_SOURCE "{\"op\": \"filter\", \"where\": \"length(data) > 0\"}, {\"op\": \"batch\", \"size\": 2}"
#define LARGE_BUCKETS LARGE_SOURCE "{\"op\": \"bucket_by_length\", \"length\": \"length(data)\", \"boundaries\": [32], \"sizes\": [2, 2]}"

static uint32_t draw(uint32_t *seed) { return (*seed = *seed * 1664525u + 1013904223u) >> 8; }

struct asked {
    struct fake *f;
    uint64_t id, split, at, left; /* left 0: not in use */
};

/* The next answer to one that is asked for. False: its split was taken away. */
static bool take_one(struct asked *a, struct got **ret)
{
    struct got *g = wait_got(a->f, is_answer, a->id, 0);
    bool here = g->m->of_case != CACHEW__ENVELOPE__OF_NOT_HERE;
    if (here) {
        assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_BATCH);
        assert_int_equal(g->m->batch->index, a->at);
        check_batch(&reference, a->f, g);
    }
    *ret = g;
    a->at++;
    a->left = here ? a->left - 1 : 0;
    return here;
}

/* Three clients ask for anything in any order, and keep some of it for a while; splits are taken away and leased again. There is memory for a fraction. Every
 * request is answered, and what they have stays as it was. */
static void any_order(const char *chain, uint32_t seed)
{
    struct asked asked[12] = {0};
    struct got *held[6] = {0};
    start_with(chain, SHARED, (size_t)16 << 20);
    client_connect(&clients[1], TCP);
    client_connect(&clients[2], SHARED);
    lease(0, 0, 0, 24, 0);
    for (int i = 0; i < 400; i++) {
        struct asked *a = &asked[draw(&seed) % CW_COUNT_OF(asked)];
        if (!a->left) {
            *a = (struct asked){.f = &clients[draw(&seed) % 3], .split = draw(&seed) % 24, .at = draw(&seed) % 13, .left = 1 + draw(&seed) % 3};
            a->id = say_get(a->f, 0, 0, a->split, a->at, a->left);
        } else {
            struct got *g, **place = &held[draw(&seed) % CW_COUNT_OF(held)];
            bool shared = a->f != &clients[1];
            if (take_one(a, &g) && shared && a->f == &clients[0]) { /* another one is given back instead, some time later */
                struct got *other = *place;
                *place = g;
                g = other;
                if (g)
                    check_batch(&reference, &clients[0], g);
            }
            if (g && g->m->of_case == CACHEW__ENVELOPE__OF_BATCH && shared)
                give_back(a->f, g);
            got_free(g);
        }
        if (draw(&seed) % 40 == 0) {
            uint64_t split = draw(&seed) % 24;
            say_revoke(0, 0, split, 1);
            run_until(status_now().n_leases == 23);
            lease(0, 0, split, 1, draw(&seed) % 16);
        }
    }
    for (size_t i = 0; i < CW_COUNT_OF(asked); i++)
        while (asked[i].left) {
            struct got *g;
            if (take_one(&asked[i], &g))
                give_back(asked[i].f, g);
            got_free(g);
        }
    for (size_t i = 0; i < CW_COUNT_OF(held); i++)
        if (held[i]) {
            check_batch(&reference, &clients[0], held[i]);
            give_back(&clients[0], held[i]);
            got_free(held[i]);
        }
    end_all();
}

static void counted_any_order(void **state) { (void)state; any_order(LARGE, 1); }
static void filtered_any_order(void **state) { (void)state; any_order(LARGE_FILTERED, 2); }
static void buckets_any_order(void **state) { (void)state; any_order(LARGE_BUCKETS, 3); }
static void large_filtered_later_first(void **state) { (void)state; later_splits_first(LARGE_FILTERED); }
static void large_buckets_later_first(void **state) { (void)state; later_splits_first(LARGE_BUCKETS); }

static void nothing_here(void **state)
{
    (void)state;
    start_with(RANGE, TCP, (size_t)64 << 20);
    expect_kind(&clients[0], say_get(&clients[0], 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE); /* not leased */
    expect_kind(&clients[0], say_get(&clients[0], 1, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE); /* no such stream */
    expect_kind(&clients[0], say_get(&clients[0], 0, 7, UINT64_MAX, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    lease(0, 0, 0, 1, 0);
    fetch(&clients[0], 0, 0);
    say_revoke(0, 0, 0, 1);
    run_until(status_now().n_leases == 0);
    expect_kind(&clients[0], say_get(&clients[0], 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    expect_kind(&clients[0], say_get_remnant(&clients[0], 0, 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    end_all();
}

/* Taken away while somebody waits, and leased again from the middle. */
static void revoked_in_the_middle(void **state)
{
    (void)state;
    static const char slow[] = "{\"op\": \"range\", \"stop\": 2000}, {\"op\": \"delay\", \"us\": 400}, {\"op\": \"filter\", \"where\": \"value % 3 != 1\"}, "
                               "{\"op\": \"batch\", \"size\": 4}";
    start_with(slow, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 2, 0);
    uint64_t id = say_get(&clients[0], 0, 0, 1, 0, 1000), left = say_get_remnant(&clients[0], 0, 0, 1, 0, 0, 1);
    struct got *g = wait_got(&clients[0], is_answer, id, 0);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_BATCH);
    check_batch(&reference, &clients[0], g);
    say_revoke(0, 0, 1, 1);
    for (bool over = false; !over;) {
        struct got *next = wait_got(&clients[0], is_answer, id, 0);
        over = next->m->of_case == CACHEW__ENVELOPE__OF_NOT_HERE;
        if (!over)
            give_back(&clients[0], next);
        got_free(next);
    }
    expect_kind(&clients[0], left, CACHEW__ENVELOPE__OF_NOT_HERE);
    lease(0, 0, 1, 1, 3);
    fetch(&clients[0], 1, 3);
    fetch(&clients[0], 1, 4);
    fetch(&clients[0], 1, 1); /* before what was said to be needed */
    check_batch(&reference, &clients[0], g); /* what was lent stays as it was */
    give_back(&clients[0], g);
    got_free(g);
    end_all();
}

/* Another worker was faster with a split in which something hangs here: it holds up no other. */
static void revoked_while_it_hangs(void **state)
{
    (void)state;
    start_with("{\"op\": \"range\", \"stop\": 40000}, {\"op\": \"fail\", \"where\": \"value >= 20000\", \"kind\": \"hang\"}, {\"op\": \"batch\", \"size\": 8}",
               SHARED, (size_t)64 << 20);
    uint64_t last = prepared->m->prepared->plan->n_splits - 1;
    lease(0, 0, last, 1, 0);
    (void)say_get(&clients[0], 0, 0, last, 0, 1);
    uint64_t until_ns = cw_now_ns() + UINT64_C(200000000);
    run_until(cw_now_ns() >= until_ns); /* it hangs by now */
    say_revoke(0, 0, last, 1);
    run_until(status_now().n_leases == 0);
    lease(0, 0, 0, 1, 0);
    fetch(&clients[0], 0, 0);
    end_all();
}

static void left_while_lent(void **state)
{
    (void)state;
    start_with(LARGE, SHARED, (size_t)32 << 20);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 2, 0);
    uint64_t id = say_get(&clients[0], 0, 0, 0, 0, 6);
    for (int i = 0; i < 6; i++)
        got_free(wait_got(&clients[0], is_answer, id, 0));
    (void)say_get(&clients[0], 0, 0, 1, 0, 1000); /* and some are asked for */
    assert_true(status_now().n_out >= 6);
    say_keep(&clients[0], NULL, 0, NULL, 0);
    fake_close(&clients[0]);
    run_until(status_now().n_clients == 1 && status_now().n_out == 0);
    for (uint64_t i = 0; i < 8; i++)
        fetch(&clients[1], 0, i);
    client_connect(&clients[2], SHARED); /* it comes back */
    for (uint64_t i = 0; i < 8; i++)
        fetch(&clients[2], 1, i);
    end_all();
}

/* A connection may end while its client lives on: then nothing of what that was lent is used for another batch, until it comes again and says what it has. */
static void kept_over_the_end_of_a_connection(void **state)
{
    (void)state;
    struct got *g[4];
    uint64_t slabs[2], id;
    start_with(LARGE, SHARED, (size_t)32 << 20);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 5, 0);
    id = say_get(&clients[0], 0, 0, 0, 0, 4);
    for (size_t i = 0; i < CW_COUNT_OF(g); i++)
        g[i] = wait_got(&clients[0], is_answer, id, 0);
    fake_close(&clients[0]);
    run_until(status_now().n_clients == 1);
    for (uint64_t i = 0; i < 32; i++)
        fetch(&clients[1], 1 + i / 16, i % 16);
    run_until(status_now().n_out == 4);
    for (size_t i = 0; i < CW_COUNT_OF(g); i++)
        check_batch(&reference, &clients[0], g[i]);
    client_connect(&clients[0], SHARED);
    slabs[0] = g[1]->m->batch->slabs[0]->slab;
    slabs[1] = g[3]->m->batch->slabs[0]->slab;
    say_keep(&clients[0], &clients[0].mapped[0].region, 1, slabs, 2);
    run_until(status_now().n_out == 2);
    fetch(&clients[0], 0, 4); /* which comes in the memory that it has mapped */
    assert_int_equal(clients[0].n_mapped, 1);
    for (uint64_t i = 0; i < 32; i++)
        fetch(&clients[1], 3 + i / 16, i % 16);
    check_batch(&reference, &clients[0], g[1]);
    check_batch(&reference, &clients[0], g[3]);
    give_back(&clients[0], g[1]);
    give_back(&clients[0], g[3]);
    run_until(status_now().n_out == 0);
    for (size_t i = 0; i < CW_COUNT_OF(g); i++)
        got_free(g[i]);
    end_all();
}

/* Regions are numbered: who names another client's gets nothing of it. */
static void kept_of_another(void **state)
{
    (void)state;
    start_with(LARGE, SHARED, (size_t)32 << 20);
    lease(0, 0, 0, 1, 0);
    struct got *g = wait_got(&clients[0], is_answer, say_get(&clients[0], 0, 0, 0, 0, 1), 0);
    fake_incarnation = 2;
    client_connect(&clients[1], SHARED);
    say_keep(&clients[1], &clients[0].mapped[0].region, 1, NULL, 0);
    fetch(&clients[1], 0, 1);
    run_until(status_now().n_out == 1);
    for (uint64_t i = 2; i < 16; i++)
        fetch(&clients[1], 0, i);
    check_batch(&reference, &clients[0], g);
    give_back(&clients[0], g);
    got_free(g);
    end_all();
}

/* A client that gives back what it does not have is cut off, and nobody else notices. */
static void returned_wrongly(uint64_t slab_of_first_plus)
{
    start_with(RANGE, SHARED, (size_t)64 << 20);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 1, 0);
    struct got *g = wait_got(&clients[0], is_answer, say_get(&clients[0], 0, 0, 0, 0, 1), 0);
    fetch(&clients[1], 0, 1);
    uint64_t slab = g->m->batch->slabs[0]->slab + slab_of_first_plus;
    say_return(&clients[0], &slab, 1);
    if (!slab_of_first_plus)
        say_return(&clients[0], &slab, 1);
    run_until(clients[0].closed);
    assert_contains(clients[0].why.message, "returned");
    fetch(&clients[1], 0, 2);
    run_until(status_now().n_clients == 1 && status_now().n_out == (slab_of_first_plus ? 1 : 0)); /* what it has it has, */
    client_connect(&clients[0], SHARED);
    say_keep(&clients[0], &clients[0].mapped[0].region, 1, NULL, 0); /* until it comes again without */
    run_until(status_now().n_out == 0);
    got_free(g);
    end_all();
}

static void returned_twice(void **state) { (void)state; returned_wrongly(0); }
static void returned_invented(void **state) { (void)state; returned_wrongly(1000); }

/* Other clients' slabs are not one's own to return. */
static void returned_for_another(void **state)
{
    (void)state;
    start_with(RANGE, SHARED, (size_t)64 << 20);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 1, 0);
    struct got *g = wait_got(&clients[0], is_answer, say_get(&clients[0], 0, 0, 0, 0, 1), 0);
    uint64_t slab = g->m->batch->slabs[0]->slab;
    say_return(&clients[1], &slab, 1);
    run_until(clients[1].closed);
    check_batch(&reference, &clients[0], g);
    give_back(&clients[0], g);
    got_free(g);
    end_all();
}

/* Lent batches stay as they are, also when the stream ends; their memory goes when they come back. */
static void forgotten_while_lent(void **state)
{
    (void)state;
    struct got *g[8];
    start_with(LARGE, SHARED, (size_t)16 << 20);
    lease(0, 0, 0, 3, 0);
    uint64_t id = say_get(&clients[0], 0, 0, 1, 0, 8);
    for (int i = 0; i < 8; i++)
        g[i] = wait_got(&clients[0], is_answer, id, 0);
    say_forget(0);
    expect_kind(&clients[0], say_get(&clients[0], 0, 0, 1, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    struct got *again;
    prepare(0, LARGE, &again); /* the same name, anew */
    lease(0, 0, 0, 1, 0);
    for (uint64_t i = 0; i < 4; i++)
        fetch(&clients[0], 0, i);
    for (int i = 0; i < 8; i++) {
        check_batch(&reference, &clients[0], g[i]);
        assert_int_equal(status_now().n_streams, 2);
        give_back(&clients[0], g[i]);
        got_free(g[i]);
    }
    run_until(status_now().n_streams == 1);
    got_free(again);
    end_all();
}

static void nonsense(void **state)
{
    (void)state;
    start_with(RANGE, SHARED, (size_t)64 << 20);
    (void)say_get(&clients[0], 0, 0, 0, 0, 0);
    run_until(clients[0].closed);
    client_connect(&clients[0], TCP);
    (void)say_get(&clients[0], 0, 0, 0, 5, UINT64_MAX);
    run_until(clients[0].closed);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 1, 0);
    fetch(&clients[1], 0, 0);
    say_revoke(0, 0, 0, 1);
    run_until(status_now().n_leases == 0);
    struct got *slow; /* more requests than anybody makes, of a split that takes its time */
    prepare(1, "{\"op\": \"range\", \"stop\": 100000}, {\"op\": \"delay\", \"us\": 20000}, {\"op\": \"batch\", \"size\": 8}", &slow);
    client_connect(&clients[0], TCP);
    lease(1, 0, 3, 1, 0);
    for (int i = 0; i < 6000 && clients[0].conn; i++)
        (void)say_get(&clients[0], 1, 0, 3, UINT64_C(1) << 40, 1000000);
    run_until(clients[0].closed);
    assert_contains(clients[0].why.message, "requests");
    say_forget(1);
    got_free(slow);
    end_all();
}

/* ---- records and runs that fail ---- */

static void skipped_records(void **state)
{
    (void)state;
    run_epoch("{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"fail\", \"where\": \"value % 50 == 7\"}, "
              "{\"op\": \"filter\", \"where\": \"value % 4 != 1\"}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 32}]}", SHARED, 6);
}

static void skipped_in_counted(void **state)
{
    (void)state;
    run_epoch("{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"fail\", \"where\": \"value % 50 == 7\"}, "
              "{\"op\": \"batch\", \"size\": 32}]}", TCP, 6);
}

#define FAILS_AT "{\"op\": \"range\", \"stop\": 2000}, {\"op\": \"fail\", \"where\": \"value == 100\"}, {\"op\": \"filter\", \"where\": \"value >= 0\"}, {\"op\": \"batch\", \"size\": 16}"

/* What stands before a failed record is had; in its place is the error, again and again. */
static void failed_record(void **state)
{
    (void)state;
    struct cw_worker_options o = worker_defaults();
    reference_init(&reference, "{\"op\": \"range\", \"stop\": 2000}, {\"op\": \"filter\", \"where\": \"value >= 0\"}, {\"op\": \"batch\", \"size\": 16}", 5, 1);
    worker_start(&o);
    prepare(0, FAILS_AT, &prepared);
    client_connect(&clients[0], SHARED);
    lease(0, 0, 0, 2, 0);
    for (int times = 0; times < 2; times++) {
        for (uint64_t i = 0; i < 6; i++)
            fetch(&clients[0], 0, i);
        struct got *g = wait_got(&clients[0], is_answer, say_get(&clients[0], 0, 0, 0, 6, 2), 0);
        assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_SPLIT_FAILED);
        assert_int_equal(g->m->split_failed->index, 6);
        assert_string_equal(g->m->split_failed->why->op, "fail");
        got_free(g);
        expect_kind(&clients[0], say_get_remnant(&clients[0], 0, 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_SPLIT_FAILED);
    }
    assert_int_equal(n_failed_streams, 0);
    end_all();
}

/* A file that is gone ends the stream, which is prepared anew once it is there again. */
static void failed_stream(void **state)
{
    (void)state;
    char path[200];
    snprintf(path, sizeof(path), "%s/gone.txt", temp_dir);
    FILE *out = fopen(path, "w");
    for (int i = 0; i < 200000; i++)
        fprintf(out, "line %d of a file that goes\n", i);
    fclose(out);
    start_with("{\"op\": \"text\", \"files\": \"gone.txt\"}, {\"op\": \"filter\", \"where\": \"length(text) > 0\"}, {\"op\": \"batch\", \"size\": 64}", SHARED, (size_t)64 << 20);
    assert_int_equal(truncate(path, 100), 0);
    say_lease(0, 0, 0, 4, 0);
    run_until(n_failed_streams == 1);
    struct got *g = wait_got(&clients[0], is_answer, say_get(&clients[0], 0, 0, 0, 0, 1), 0);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_SPLIT_FAILED);
    assert_contains(g->m->split_failed->why->message, "gone.txt");
    got_free(g);
    expect_kind(&clients[0], say_get(&clients[0], 0, 0, 1, 0, 1), CACHEW__ENVELOPE__OF_SPLIT_FAILED);
    assert_int_equal(status_now().n_leases, 0);
    struct got *again;
    prepare(0, RANGE, &again);
    run_until(status_now().n_streams == 1);
    expect_kind(&clients[0], say_get(&clients[0], 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    got_free(again);
    end_all();
}

/* ---- what dispatchers do ---- */

/* A new connection: the same leases are named, and completions said again until they are acknowledged. */
static void dispatcher_comes_back(void **state)
{
    (void)state;
    dispatcher.dead_slow = true;
    start_with(FILTER, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 3, 0);
    got_free(wait_got(&dispatcher, is_report, 0, 0));
    fetch(&clients[0], 1, 0);
    run_until(status_now().n_reports == 3);
    for (int times = 0; times < 2; times++) {
        unsigned before = n_registered, holdings = n_holdings;
        fake_close(&dispatcher);
        dispatcher.dead_slow = times == 0;
        fetch(&clients[0], 1, 2); /* nobody's business */
        run_until(n_registered == before + 1 && n_holdings == holdings + 1);
        const Cachew__Holding *h = last_holdings->holdings->holdings[0];
        assert_int_equal(h->n_splits, 3);
        assert_int_equal(h->splits[2]->split, 2);
        assert_true(h->prepared->plan->snapshot == reference.local.sequence->snapshot);
        got_free(wait_got(&dispatcher, is_report, 0, 2));
    }
    run_until(status_now().n_reports == 0);
    assert_true(n_completed >= 9);
    /* The next one may not know what was acknowledged: it is told of all that there is a lease for. */
    for (unsigned left = 3; left >= 2; left--) {
        unsigned before = n_completed, registered = n_registered;
        fake_close(&dispatcher);
        run_until(n_registered == registered + 1 && n_completed >= before + left && status_now().n_reports == 0);
        assert_int_equal(n_completed, before + left);
        say_revoke(0, 0, left - 1, 1);
        run_until(status_now().n_leases == left - 1);
    }
    end_all();
}

static void prepared_again(void **state)
{
    (void)state;
    struct got *again;
    start_with(RANGE, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 1, 0);
    say_lease(0, 0, 0, 1, 0); /* said twice */
    const Cachew__Prepared *p = prepare(0, RANGE, &again);
    assert_true(p->plan->snapshot == prepared->m->prepared->plan->snapshot && p->capacity >= 2);
    run_until(status_now().n_leases == 1);
    fetch(&clients[0], 0, 0);
    got_free(again);
    end_all();
}

static void lease_beyond_the_end(void **state)
{
    (void)state;
    start_with(RANGE, SHARED, (size_t)64 << 20);
    say_lease(0, 0, 1000000, 1, 0);
    run_until(n_registered == 2); /* it was cut off, and is back */
    lease(0, 0, 0, 1, UINT64_C(1) << 60); /* nobody needs any of it */
    struct got *g = wait_got(&dispatcher, is_report, 0, 0);
    assert_int_equal(g->m->completed->report->n_batches, expected_at(&reference, 0, 1, 0)->g);
    fetch(&clients[0], 0, 0);
    got_free(g);
    end_all();
}

static void drains(void **state)
{
    (void)state;
    struct cw_error err = {0};
    start_with(RANGE, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 2, 0);
    fetch(&clients[0], 0, 0);
    cw_worker_drain(worker);
    got_free(wait_got(&dispatcher, is_kind, CACHEW__ENVELOPE__OF_DRAINING, 0));
    fetch(&clients[0], 1, 0);
    assert_int_equal(cw_worker_wait_drained(worker, 1000000, &err), CW_E_DEADLINE);
    say_revoke(0, 0, 0, 2);
    run_until(status_now().n_leases == 0 && status_now().n_reports == 0);
    assert_int_equal(cw_worker_wait_drained(worker, 0, &err), 0);
    end_all();
}

/* Memory is divided: what one stream has is taken away when another comes, and it goes on. */
static void two_streams(void **state)
{
    (void)state;
    struct reference other;
    struct got *second;
    start_with(LARGE, SHARED, (size_t)64 << 20);
    reference_init(&other, BYTES, 5, 1);
    lease(0, 0, 0, 4, 0);
    for (uint64_t i = 0; i < 4; i++)
        fetch(&clients[0], 0, i);
    prepare(1, BYTES, &second);
    lease(1, 0, 0, 4, 0);
    for (uint64_t i = 4; i < 8; i++) {
        fetch(&clients[0], 0, i);
        struct got *g = wait_got(&clients[0], is_answer, say_get(&clients[0], 1, 0, 2, i, 1), 0);
        check_batch(&other, &clients[0], g);
        give_back(&clients[0], g);
        got_free(g);
    }
    say_forget(1);
    run_until(status_now().n_streams == 1);
    for (uint64_t i = 0; i < 4; i++)
        fetch(&clients[0], 3, i);
    got_free(second);
    reference_deinit(&other);
    end_all();
}

/* ---- what is refused ---- */

static void expect_refused(const char *chain, const char *part)
{
    struct got *g = wait_got(&dispatcher, is_answer, say_prepare(0, chain, 5), 0);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_FAILURE);
    assert_contains(g->m->failure->message, part);
    got_free(g);
    run_until(status_now().n_streams == 0);
}

static void refuses(void **state)
{
    (void)state;
    char root[200], link[300], chain[500];
    snprintf(root, sizeof(root), "%s/root", temp_dir);
    snprintf(link, sizeof(link), "%s/link.txt", root);
    assert_int_equal(mkdir(root, 0700), 0);
    assert_int_equal(symlink("../lines.txt", link), 0);
    snprintf(link, sizeof(link), "%s/good.txt", root);
    FILE *out = fopen(link, "w");
    fputs("one\ntwo\nthree\n", out);
    fclose(out);
    const char *roots[] = {"/nowhere", root};
    struct cw_worker_options o = worker_defaults();
    o.data_roots = roots;
    o.n_data_roots = 2;
    worker_start(&o);
    static const char *const outside[] = {"lines.txt", "/etc/passwd", "root/link.txt", "root/../lines.txt", "root/*.txt", "/etc/*", "/etc/nothing-here", "*.txt"};
    for (size_t i = 0; i < CW_COUNT_OF(outside); i++) {
        snprintf(chain, sizeof(chain), "{\"op\": \"text\", \"files\": \"%s\"}, {\"op\": \"batch\", \"size\": 2}", outside[i]);
        expect_refused(chain, "lies outside the directories that may be read");
    }
    expect_refused("{\"op\": \"image_folder\", \"root\": \"/etc\"}", "lies outside");
    expect_refused("{\"op\": \"text\", \"files\": \"root/nothing\"}", "no file matches");
    expect_refused("{\"op\": \"range\", \"stop\": 3}, {\"op\": \"fail\", \"kind\": \"crash\"}", "may end the process");
    wrong_fingerprint = true;
    expect_refused("{\"op\": \"range\", \"stop\": 3}", "its fingerprint");
    wrong_fingerprint = false;
    expect_refused("{\"op\": \"range\", \"stop\": 3}, {\"op\": \"map\", \"function\": {\"name\": \"f\", \"identity\": \"f\", \"payload\": \"AA==\"}, \"outputs\": {}}", "--allow-python");
    expect_refused("{\"op\": \"nonsense\"}", "nonsense");
    expect_refused("{\"op\": ", "JSON");
    struct got *g;
    prepare(0, "{\"op\": \"text\", \"files\": \"root/good.txt\"}", &g);
    assert_int_equal(g->m->prepared->n_files, 1);
    assert_contains(g->m->prepared->files[0]->path, "good.txt");
    got_free(g);
}

static void wrong_options(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_worker_options o = worker_defaults();
    o.memory = 1000;
    assert_int_equal(cw_worker_start(&o, &worker, &err), CW_E_OPTION);
    o = worker_defaults();
    o.unix_path = "/nowhere/at/all";
    assert_true(cw_worker_start(&o, &worker, &err) < 0);
    o = worker_defaults();
    o.listen = "nonsense";
    assert_true(cw_worker_start(&o, &worker, &err) < 0);
    assert_null(worker);
}

static int make_lines(void **state)
{
    FILE *f;
    char path[300];
    if (temp_make(state) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/lines.txt", temp_dir);
    if (!(f = fopen(path, "w")))
        return -1;
    for (int i = 0; i < 20000; i++)
        fprintf(f, "%.*s%d\n", i * 7919 % 35, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", i);
    return fclose(f);
}

#define world_test(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(counted_shared), world_test(counted_tcp), world_test(counted_local), world_test(filtered_shared), world_test(filtered_tcp),
        world_test(bytes_shared), world_test(bytes_tcp), world_test(buckets_shared), world_test(buckets_tcp), world_test(elements_shared),
        world_test(counted_asked_again), world_test(filtered_asked_again), world_test(finished_asked_again), world_test(counted_ranks_apart), world_test(counted_ranks_apart_without_room),
        world_test(filtered_ranks_apart), world_test(range_of_batches), world_test(counted_later_first), world_test(bytes_later_first), world_test(filtered_later_first),
        world_test(two_ends_at_once), world_test(nothing_here), world_test(revoked_in_the_middle), world_test(revoked_while_it_hangs), world_test(left_while_lent), world_test(kept_over_the_end_of_a_connection), world_test(kept_of_another), world_test(returned_twice),
        world_test(returned_invented), world_test(returned_for_another), world_test(forgotten_while_lent), world_test(nonsense), world_test(skipped_records),
        world_test(skipped_in_counted), world_test(failed_record), world_test(failed_stream), world_test(dispatcher_comes_back), world_test(prepared_again),
        world_test(lease_beyond_the_end), world_test(drains), world_test(two_streams), world_test(counted_any_order), world_test(filtered_any_order), world_test(buckets_any_order),
        world_test(large_filtered_later_first), world_test(large_buckets_later_first),
        world_test(refuses), world_test(wrong_options),
    };
    return cmocka_run_group_tests(tests, make_lines, temp_remove);
}
