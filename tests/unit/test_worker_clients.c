/* A worker and its clients: requests in any order and of several clients, shm_loans, revoked ranges, and
 * faulty messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <semaphore.h>
#include <stdatomic.h>

#include "ops/fault/fault_wait.h"
#include "pipeline/op.h"
#include "worker_stream.h"
#include "sample.h"

#define FAILING \
    "{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"filter\", \"where\": \"value % 3 != 1\"}, {\"op\": " \
    "\"fail\", \"where\": \"value == 60\"}, {\"op\": \"batch\", \"size\": 32}"
#define LARGE_SOURCE "{\"op\": \"synthetic\", \"count\": 8192, \"shape\": [64, 1024], \"dtype\": \"uint8\"}, "
#define LARGE_FILTERED \
    LARGE_SOURCE "{\"op\": \"filter\", \"where\": \"length(data) > 0\"}, {\"op\": \"batch\", \"size\": 2}"
#define LARGE_BUCKETS \
    LARGE_SOURCE "{\"op\": \"bucket_by_length\", \"length\": \"length(data)\", \"boundaries\": [32], " \
                 "\"sizes\": [2, 2]}"

static void asked_again(const char *chain, uint64_t size, enum transport t)
{
    static const uint64_t order[] = {0, 1, 5, 0, 3, 4, 2, 5, 1, 6, 7, 0};
    start_with(chain, size, t, (size_t)64 << 20);
    lease(0, 0, 0, 2, 0);
    for (size_t i = 0; i < CW_COUNT_OF(order); i++) {
        fetch(&clients[0], 1, order[i]);
        fetch(&clients[0], 0, order[CW_COUNT_OF(order) - 1 - i]);
    }
    end_all();
}

static void counted_asked_again(void **state)
{
    (void)state;
    asked_again(RANGE, 512, SHARED);
}

static void filtered_asked_again(void **state)
{
    (void)state;
    asked_again(FILTER, 1024, TCP);
}

static void sequential_asked_again(void **state)
{
    static const uint64_t order[] = {3, 0, 40, 41, 7, 40, 199, 2};
    (void)state;
    start_with(SKIPPED, 0, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 1, 0);
    for (size_t i = 0; i < CW_COUNT_OF(order); i++)
        fetch(&clients[0], 0, order[i]);
    end_all();
}

/* After all of a range was fetched and reported, it can still be requested: the whole of it, and parts. */
static void finished_asked_again(void **state)
{
    (void)state;
    start_with(FILTER, 1000, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 1, 0);
    struct got *report = wait_got(&dispatcher, is_report, 0, 0);
    uint64_t n = report->m->completed->report->elements[0], whole = n / 32, left = n % 32;
    assert_true(whole && left);
    for (int times = 0; times < 3; times++) {
        for (uint64_t i = 0; i < whole; i++)
            fetch(&clients[0], 0, i);
        for (int again = 0; again < 2; again++)
            expect_kind(&clients[0],
                        send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, n - left, left),
                        CACHEW__ENVELOPE__OF_PART);
        expect_kind(&clients[0], send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_ROWS, 0, n - 1, 2),
                    CACHEW__ENVELOPE__OF_RANGE_END);
        expect_kind(&clients[0], send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, n, 1),
                    CACHEW__ENVELOPE__OF_RANGE_END);
        struct got *g = wait_got(&clients[0], is_answer,
                                 send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_KEYS, 0, 0, 0), 0);
        assert_int_equal(g->m->keys->keys.len, n);
        got_free(g);
    }
    assert_int_equal(n_completed, 1);
    got_free(report);
    end_all();
}

/* Elements `at` .. of range 1 that a client got are those that the filter leaves there. */
static void check_rows(struct fake *f, const struct got *g, uint64_t at, uint64_t n)
{
    struct cw_error err = {0};
    struct cw_part m = {0};
    struct cw_batch b = {0};
    if (g->m->of_case == CACHEW__ENVELOPE__OF_PART)
        assert_int_equal(
            cw_wire_part_read(g->m->part, g->payload, g->size, reference.local.compiled, &m, &err), 0);
    else
        b = open_batch(&reference, f, g, &m.quarantined);
    assert_int_equal(b.n + m.n, n);
    for (uint64_t i = at; i < at + n; i++) /* two of three are left */
        assert_int_equal((m.ids ? m.ids : b.ids)[i - at].row, 1500 + i / 2 * 3 + i % 2 * 2);
    cw_part_deinit(&m);
    free(b.components);
    free(b.ids);
}

/* Where rows lie in the runner does not show: they are requested from any element on, last ones first, and by
 * two clients at once. */
static void rows_from_any_element(void **state)
{
    (void)state;
    start_with("{\"op\": \"range\", \"stop\": 60000}, {\"op\": \"filter\", \"where\": \"value % 3 != 1\"}, "
               "{\"op\": \"batch\", \"size\": 32}",
               1500, SHARED, (size_t)64 << 20);
    client_connect(&clients[1], TCP);
    lease(0, 0, 1, 1, 0);
    for (uint64_t at = 960; at >= 19; at -= 19) {
        uint64_t n = at % 5 ? 1 + at % 32 : 32, ids[2];
        for (int i = 0; i < 2; i++)
            ids[i] = send_want(&clients[i], 0, 0, 1,
                               at % 2 ? CACHEW__WHAT__WHAT_PART : CACHEW__WHAT__WHAT_ROWS, 0, at, n);
        for (int i = 0; i < 2; i++) {
            struct got *g = wait_got(&clients[i], is_answer, ids[i], 0);
            assert_int_equal(g->m->of_case, at % 2 ? CACHEW__ENVELOPE__OF_PART : CACHEW__ENVELOPE__OF_BATCH);
            check_rows(&clients[i], g, at, n);
            if (at % 2 == 0)
                give_back(&clients[i], g);
            got_free(g);
        }
    }
    end_all();
}

/* One rank is behind the other by all of a range: what it did not ask for yet was kept, or is computed again.
 */
static void ranks_apart(const char *chain, uint64_t size, size_t memory)
{
    start_with(chain, size, SHARED, memory);
    client_connect(&clients[1], TCP);
    lease(0, 0, 0, 1, 0);
    uint64_t n = 8;
    for (uint64_t i = 0; i < n; i += 2)
        fetch(&clients[0], 0, i);
    for (uint64_t i = 1; i < n; i += 2)
        fetch(&clients[1], 0, i);
    end_all();
}

static void counted_ranks_apart(void **state)
{
    (void)state;
    ranks_apart(LARGE, 32, (size_t)64 << 20);
}

static void counted_ranks_apart_without_room(void **state)
{
    (void)state;
    ranks_apart(LARGE, 32, (size_t)16 << 20);
}

static void filtered_ranks_apart(void **state)
{
    (void)state;
    ranks_apart(FILTER, 1024, (size_t)64 << 20);
}

static void sequential_ranks_apart(void **state)
{
    (void)state;
    ranks_apart(SKIPPED, 0, (size_t)64 << 20);
}

/* Batches of a range come in order however far it goes, and by one request. */
static void range_of_batches(void **state)
{
    (void)state;
    start_with(LARGE, 32, TCP, (size_t)16 << 20);
    lease(0, 0, 0, 1, 0);
    uint64_t id = send_get(&clients[0], 0, 0, 0, 2, 14);
    for (uint64_t i = 2; i < 16; i++) {
        struct got *g = wait_got(&clients[0], is_answer, id, 0);
        assert_int_equal(g->m->batch->index, i);
        check_batch(&reference, &clients[0], g);
        got_free(g);
    }
    end_all();
}

/* Leased far more than there is memory for, and requested from the end: what is requested is computed. */
static void later_ranges_first(const char *chain, uint64_t size)
{
    start_with(chain, size, SHARED, (size_t)16 << 20);
    uint64_t n = CW_MIN(n_ranges(), 24u);
    lease(0, 0, 0, n, 0);
    for (uint64_t i = n; i-- > 0;)
        fetch(&clients[0], i, 0);
    for (uint64_t i = 0; i < n; i++)
        fetch(&clients[0], i, 1);
    end_all();
}

static void counted_later_first(void **state)
{
    (void)state;
    later_ranges_first(LARGE, 32);
}

static void bytes_later_first(void **state)
{
    (void)state;
    later_ranges_first(BYTES, 512);
}

static void filtered_later_first(void **state)
{
    (void)state;
    later_ranges_first(FILTER, 1024);
}

/* A range of rows for which there is no memory, taken in order and never where a batch begins: it goes on as
 * it is taken. */
static void range_beyond_the_memory(void **state)
{
    (void)state;
    uint64_t n = sample_size(2000);
    start_with(LARGE_FILTERED, 0, SHARED, (size_t)16 << 20);
    lease(0, 0, 0, 1, 0);
    for (uint64_t at = 1; at + 2 < n; at += 2) {
        Cachew__What what = at % 10 == 1 ? CACHEW__WHAT__WHAT_PART : CACHEW__WHAT__WHAT_ROWS;
        if (at == 1) /* the first element, which no batch has */
            expect_kind(&clients[0], send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, 0, 1),
                        CACHEW__ENVELOPE__OF_PART);
        struct got *g = wait_got(&clients[0], is_answer, send_want(&clients[0], 0, 0, 0, what, 0, at, 2), 0);
        assert_int_equal(g->m->of_case, what == CACHEW__WHAT__WHAT_PART ? CACHEW__ENVELOPE__OF_PART
                                                                        : CACHEW__ENVELOPE__OF_BATCH);
        if (what == CACHEW__WHAT__WHAT_ROWS)
            give_back(&clients[0], g);
        got_free(g);
    }
    fetch(&clients[0], 0, 3); /* from the front again */
    end_all();
}

/* The rows of a range fill the worker's memory, and no client requests the first of them, since the client
 * began in the middle of the range. The worker still answers with the keys, and computes dropped rows again
 * when a client requests them. */
static void keys_come_though_no_client_takes_the_rows(void **state)
{
    (void)state;
    uint64_t first = 0;
    bool over = false;
    start_with(LARGE_BUCKETS, 1024, SHARED, (size_t)16 << 20);
    lease(0, 0, 0, 1, 0);
    while (!over) {
        struct got *g = wait_got(&clients[0], is_answer,
                                 send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_KEYS, 0, first, 0), 0);
        assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_KEYS);
        first += g->m->keys->keys.len;
        over = g->m->keys->over;
        got_free(g);
    }
    assert_int_equal(first, 1024);
    fetch(&clients[0], 0, 0);
    fetch(&clients[0], 0, 400);
    end_all();
}

/* Two that ask for different ends at the same time. */
static void two_ends_at_once(void **state)
{
    (void)state;
    start_with(LARGE, 32, SHARED, (size_t)16 << 20);
    client_connect(&clients[1], TCP);
    uint64_t n = CW_MIN(n_ranges(), 24u);
    lease(0, 0, 0, n, 0);
    for (uint64_t s = 0; s < n; s++)
        for (uint64_t i = 0; i < 3; i++) {
            uint64_t a = send_get(&clients[0], 0, 0, s, i, 1),
                     b = send_get(&clients[1], 0, 0, n - 1 - s, i, 1);
            struct got *g = wait_got(&clients[0], is_answer, a, 0),
                       *h = wait_got(&clients[1], is_answer, b, 0);
            check_batch(&reference, &clients[0], g);
            check_batch(&reference, &clients[1], h);
            give_back(&clients[0], g);
            got_free(g);
            got_free(h);
        }
    end_all();
}

static uint32_t draw(uint32_t *seed)
{
    return (*seed = *seed * 1664525u + 1013904223u) >> 8;
}

struct pending {
    struct fake *f;
    uint64_t id, range, at, left; /* left 0: not in use */
};

/* Takes the next answer to a request. Returns false if its range was revoked. */
static bool take_one(struct pending *a, struct got **ret)
{
    struct got *g = wait_got(a->f, is_answer, a->id, 0);
    bool here = g->m->of_case != CACHEW__ENVELOPE__OF_NOT_HERE;
    if (here) {
        assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_BATCH);
        assert_int_equal(g->m->batch->index,
                         has_rows(&reference) ? expected_at(&reference, a->range, a->at)->first : a->at);
        check_batch(&reference, a->f, g);
    }
    *ret = g;
    a->at++;
    a->left = here ? a->left - 1 : 0;
    return here;
}

/* Three clients ask for anything in any order, and keep some of it for a while; ranges are taken away and
 * leased again. There is memory for a fraction. Every request is answered, and what they have stays as it
 * was. */
static void any_order(const char *chain, uint32_t seed)
{
    struct pending pending[12] = {0};
    struct got *held[6] = {0};
    start_with(chain, 32, SHARED, (size_t)16 << 20);
    client_connect(&clients[1], TCP);
    client_connect(&clients[2], SHARED);
    lease(0, 0, 0, 24, 0);
    for (int i = 0; i < (int)sample_size(400); i++) {
        struct pending *a = &pending[draw(&seed) % CW_COUNT_OF(pending)];
        if (!a->left) {
            *a = (struct pending){.f = &clients[draw(&seed) % 3],
                                  .range = draw(&seed) % 24,
                                  .at = draw(&seed) % 13,
                                  .left = 1 + draw(&seed) % 3};
            a->left = has_rows(&reference) ? 1 : a->left;
            a->id = a->left == 1 ? send_get_at(a->f, a->range, a->at)
                                 : send_get(a->f, 0, 0, a->range, a->at, a->left);
        } else {
            struct got *g, **place = &held[draw(&seed) % CW_COUNT_OF(held)];
            bool shared = a->f != &clients[1];
            if (take_one(a, &g) && shared && a->f == &clients[0]) {
                /* another one is given back instead, some time later */
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
            uint64_t range = draw(&seed) % 24;
            send_revoke(0, 0, range, 1);
            run_until(status_now().n_leases == 23);
            lease(0, 0, range, 1, draw(&seed) % 16);
        }
    }
    for (size_t i = 0; i < CW_COUNT_OF(pending); i++)
        while (pending[i].left) {
            struct got *g;
            if (take_one(&pending[i], &g))
                give_back(pending[i].f, g);
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

static void counted_any_order(void **state)
{
    (void)state;
    any_order(LARGE, 1);
}

static void filtered_any_order(void **state)
{
    (void)state;
    any_order(LARGE_FILTERED, 2);
}

static void buckets_any_order(void **state)
{
    (void)state;
    LEAVE_OUT_OF_SAMPLE();
    any_order(LARGE_BUCKETS, 3);
}

static void large_filtered_later_first(void **state)
{
    (void)state;
    later_ranges_first(LARGE_FILTERED, 32);
}

static void large_buckets_later_first(void **state)
{
    (void)state;
    LEAVE_OUT_OF_SAMPLE();
    later_ranges_first(LARGE_BUCKETS, 32);
}

static void nothing_here(void **state)
{
    (void)state;
    start_with(RANGE, 512, TCP, (size_t)64 << 20);
    /* not leased */
    expect_kind(&clients[0], send_get(&clients[0], 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    /* no such stream */
    expect_kind(&clients[0], send_get(&clients[0], 1, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    expect_kind(&clients[0], send_get(&clients[0], 0, 7, UINT64_MAX, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    lease(0, 0, 0, 1, 0);
    fetch(&clients[0], 0, 0);
    send_revoke(0, 0, 0, 1);
    run_until(status_now().n_leases == 0);
    expect_kind(&clients[0], send_get(&clients[0], 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    expect_kind(&clients[0], send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, 0, 1),
                CACHEW__ENVELOPE__OF_NOT_HERE);
    end_all();
}

/* Only what lies within is revoked. */
static void revoked_inside(void **state)
{
    (void)state;
    start_with(FILTER, 1000, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 5, 0);
    Cachew__Range range = CACHEW__RANGE__INIT;
    range.begin = 500;
    range.end = 3999; /* 1 and 2: 0 begins before, 3 ends behind */
    send_revoke_of(0, &range);
    run_until(status_now().n_leases == 3);
    for (uint64_t i = 0; i < 5; i++)
        if (i == 1 || i == 2)
            expect_kind(&clients[0], send_get_at(&clients[0], i, 0), CACHEW__ENVELOPE__OF_NOT_HERE);
        else
            fetch(&clients[0], i, 0);
    range.epoch = 1; /* another one */
    range.begin = 0;
    range.end = 60000;
    send_revoke_of(0, &range);
    range.epoch = 0;
    range.begin = 3000;
    range.end = 4000;
    send_revoke_of(0, &range);
    run_until(status_now().n_leases == 2);
    fetch(&clients[0], 4, 1);
    end_all();
}

#define HALVES_SOURCE "{\"op\": \"range\", \"stop\": 40000}, "
#define HALVES_BATCHES "{\"op\": \"filter\", \"where\": \"value % 3 != 1\"}, {\"op\": \"batch\", \"size\": 4}"

/* Revoked while a client waits, and leased again. Of the second range some rows come, and then something
 * hangs: it is not over before it is taken away. (The delay makes blocks small: what comes before is no part
 * of the block that hangs.) */
static void revoked_in_the_middle(void **state)
{
    (void)state;
    struct cw_worker_options o = worker_defaults();
    reference_init(&reference, HALVES_SOURCE HALVES_BATCHES, 5, 1000);
    worker_start(&o);
    prepare(0,
            HALVES_SOURCE "{\"op\": \"delay\", \"us\": 2000}, {\"op\": \"fail\", \"where\": \"value == "
                          "1080\", \"kind\": \"hang\"}, " HALVES_BATCHES,
            1000, &prepared);
    client_connect(&clients[0], SHARED);
    lease(0, 0, 0, 2, 0);
    struct got *g = wait_got(&clients[0], is_answer, send_get_at(&clients[0], 1, 0), 0);
    check_batch(&reference, &clients[0], g);
    uint64_t ids[] = {send_get_at(&clients[0], 1, 100),
                      send_want(&clients[0], 0, 0, 1, CACHEW__WHAT__WHAT_PART, 0, 400, 3),
                      send_want(&clients[0], 0, 0, 1, CACHEW__WHAT__WHAT_KEYS, 0, 0, 0)};
    send_revoke(0, 0, 1, 1);
    for (size_t i = 0; i < CW_COUNT_OF(ids); i++)
        expect_kind(&clients[0], ids[i], CACHEW__ENVELOPE__OF_NOT_HERE);
    lease(0, 0, 1, 1, 3);
    fetch(&clients[0], 1, 3);
    fetch(&clients[0], 1, 4);
    fetch(&clients[0], 1, 1);
    check_batch(&reference, &clients[0], g); /* what was lent stays as it was */
    give_back(&clients[0], g);
    got_free(g);
    end_all();
}

/* What a range of such a pipeline does not give is refused, and nothing else happens. */
static void expect_refusal(uint64_t id, const char *part)
{
    struct got *g = wait_got(&clients[0], is_answer, id, 0);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_RANGE_FAILED);
    assert_contains(g->m->range_failed->why->message, part);
    got_free(g);
}

static void asked_for_what_is_not_there(void **state)
{
    (void)state;
    struct got *counted;
    start_with(FILTER, 1000, SHARED, (size_t)64 << 20);
    prepare(1, RANGE, 512, &counted);
    lease(0, 0, 0, 1, 0);
    lease(1, 0, 0, 1, 0);
    expect_refusal(send_get(&clients[0], 0, 0, 0, 0, 1), "this pipeline gives elements by key");
    expect_refusal(send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_ROWS, 1, 0, 1), "key 1");
    expect_refusal(send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, 0, 33), "33 elements");
    expect_refusal(send_want(&clients[0], 0, 0, 0, (Cachew__What)9, 0, 0, 1), "an unknown kind of data");
    expect_refusal(send_want(&clients[0], 1, 0, 0, CACHEW__WHAT__WHAT_ROWS, 0, 0, 1),
                   "this pipeline gives whole batches");
    expect_refusal(send_want(&clients[0], 1, 0, 0, CACHEW__WHAT__WHAT_KEYS, 0, 0, 0),
                   "this pipeline gives whole batches");
    fetch(&clients[0], 0, 0);
    send_forget(1);
    got_free(counted);
    end_all();
}

/* A batch with a record that fails can be requested again and again, whole and in parts: the range stays as
 * it is. */
static void failed_asked_again(void **state)
{
    (void)state;
    start_with(FAILING, 1000, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 1, 0);
    for (int times = 0; times < 3; times++) {
        expect_refusal(send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_ROWS, 0, 32, 32), "value == 60");
        expect_refusal(send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, 40, 2), "value == 60");
        expect_kind(&clients[0], send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, 41, 2),
                    CACHEW__ENVELOPE__OF_PART);
    }
    end_all();
}

/* An operator that hangs while `must_hang` is set, and sets `hangs`. */
static _Atomic bool must_hang, hangs;

static int hang_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    (void)op;
    int r = cw_bind_read(b, "value", &type, err);
    return r < 0 ? r : 0;
}

static int hang_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    (void)op;
    if (!must_hang)
        return 0;
    hangs = true;
    return cw_fault_wait(block, UINT64_MAX, err);
}

static const struct cw_attr_def no_attrs[] = {{0}};
static const struct cw_op_desc hang_op = {.name = "unit_hang",
                                          .summary = "for tests",
                                          .kind = CW_OP_MAP,
                                          .attrs = no_attrs,
                                          .bind = hang_bind,
                                          .run = hang_run};

/* An operator that can't be compiled; it fails when the test lets it. */
static _Atomic bool compiling;
static sem_t may_fail;

static int fails_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    (void)b;
    (void)op;
    compiling = true;
    while (sem_wait(&may_fail) < 0) /* interrupted by a signal */
        ;
    return cw_error_set(err, CW_E_PIPELINE, "unit_fails can't be compiled");
}

static const struct cw_op_desc fails_op = {.name = "unit_fails",
                                           .summary = "for tests",
                                           .kind = CW_OP_MAP,
                                           .attrs = no_attrs,
                                           .bind = fails_bind,
                                           .run = hang_run};

/* A request that comes while its stream opens is answered also when opening fails. */
static void asked_for_before_opening_fails(void **state)
{
    (void)state;
    struct cw_worker_options o = worker_defaults();
    worker_start(&o);
    client_connect(&clients[0], SHARED);
    client_connect(&clients[1], SHARED);
    uint64_t prepare_id = send_prepare(0, "{\"op\": \"range\", \"stop\": 3}, {\"op\": \"unit_fails\"}", 5);
    run_until(compiling);
    uint64_t id = send_get(&clients[0], 0, 0, 0, 0, 1),
             left = send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, 0, 1);
    /* the worker has the two before */
    expect_kind(&clients[0], send_get(&clients[0], 1, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    fake_close(&clients[1]); /* the stream forgets this client, too */
    run_until(status_now().n_clients == 1);
    sem_post(&may_fail);
    expect_kind(&clients[0], id, CACHEW__ENVELOPE__OF_NOT_HERE);
    expect_kind(&clients[0], left, CACHEW__ENVELOPE__OF_NOT_HERE);
    expect_kind(&dispatcher, prepare_id, CACHEW__ENVELOPE__OF_FAILURE);
    run_until(status_now().n_streams == 0);
}

/* Another worker was faster with a range in which something hangs here: it holds up no other. */
static void revoked_while_it_hangs(void **state)
{
    (void)state;
    start_with(
        "{\"op\": \"range\", \"stop\": 40000}, {\"op\": \"unit_hang\"}, {\"op\": \"batch\", \"size\": 8}",
        512, SHARED, (size_t)64 << 20);
    must_hang = true;
    uint64_t last = n_ranges() - 1;
    lease(0, 0, last, 1, 0);
    (void)send_get(&clients[0], 0, 0, last, 0, 1);
    run_until(hangs);
    must_hang = false; /* the others */
    send_revoke(0, 0, last, 1);
    run_until(status_now().n_leases == 0);
    lease(0, 0, 0, 1, 0);
    fetch(&clients[0], 0, 0);
    end_all();
}

static void left_while_lent(void **state)
{
    (void)state;
    start_with(LARGE, 32, SHARED, (size_t)32 << 20);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 2, 0);
    uint64_t id = send_get(&clients[0], 0, 0, 0, 0, 6);
    for (int i = 0; i < 6; i++)
        got_free(wait_got(&clients[0], is_answer, id, 0));
    (void)send_get(&clients[0], 0, 0, 1, 0, 1000); /* and some are requested */
    run_until(status_now().n_out >= 6);            /* updated once a turn of the loop */
    send_keep(&clients[0], NULL, 0, NULL, 0);
    fake_close(&clients[0]);
    run_until(status_now().n_clients == 1 && status_now().n_out == 0);
    for (uint64_t i = 0; i < 8; i++)
        fetch(&clients[1], 0, i);
    client_connect(&clients[2], SHARED); /* it comes back */
    for (uint64_t i = 0; i < 8; i++)
        fetch(&clients[2], 1, i);
    end_all();
}

/* A connection may end while its client lives on: then nothing of what that was lent is used for another
 * batch, until it comes again and says what it has. */
static void kept_over_the_end_of_a_connection(void **state)
{
    (void)state;
    struct got *g[4];
    uint64_t slabs[2], id;
    start_with(LARGE, 32, SHARED, (size_t)32 << 20);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 5, 0);
    id = send_get(&clients[0], 0, 0, 0, 0, 4);
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
    send_keep(&clients[0], &clients[0].mapped[0].region, 1, slabs, 2);
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

/* Regions are numbered: a client that names another client's region gets nothing of it. */
static void kept_of_another(void **state)
{
    (void)state;
    start_with(LARGE, 32, SHARED, (size_t)32 << 20);
    lease(0, 0, 0, 1, 0);
    struct got *g = wait_got(&clients[0], is_answer, send_get(&clients[0], 0, 0, 0, 0, 1), 0);
    fake_incarnation = 2;
    client_connect(&clients[1], SHARED);
    send_keep(&clients[1], &clients[0].mapped[0].region, 1, NULL, 0);
    fetch(&clients[1], 0, 1);
    run_until(status_now().n_out == 1);
    for (uint64_t i = 2; i < 16; i++)
        fetch(&clients[1], 0, i);
    check_batch(&reference, &clients[0], g);
    give_back(&clients[0], g);
    got_free(g);
    end_all();
}

/* A client that gives back what it does not have is cut off, and no other client notices. */
static void returned_wrongly(uint64_t slab_of_first_plus)
{
    start_with(RANGE, 512, SHARED, (size_t)64 << 20);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 1, 0);
    struct got *g = wait_got(&clients[0], is_answer, send_get(&clients[0], 0, 0, 0, 0, 1), 0);
    fetch(&clients[1], 0, 1);
    uint64_t slab = g->m->batch->slabs[0]->slab + slab_of_first_plus;
    send_return(&clients[0], &slab, 1);
    if (!slab_of_first_plus)
        send_return(&clients[0], &slab, 1);
    run_until(clients[0].closed);
    assert_contains(clients[0].why.message, "returned");
    fetch(&clients[1], 0, 2);
    /* what it has it has, */
    run_until(status_now().n_clients == 1 && status_now().n_out == (slab_of_first_plus ? 1 : 0));
    client_connect(&clients[0], SHARED);
    send_keep(&clients[0], &clients[0].mapped[0].region, 1, NULL, 0); /* until it comes again without */
    run_until(status_now().n_out == 0);
    got_free(g);
    end_all();
}

static void returned_twice(void **state)
{
    (void)state;
    returned_wrongly(0);
}

static void returned_invented(void **state)
{
    (void)state;
    returned_wrongly(1000);
}

/* Other clients' slabs are not one's own to return. */
static void returned_for_another(void **state)
{
    (void)state;
    start_with(RANGE, 512, SHARED, (size_t)64 << 20);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 1, 0);
    struct got *g = wait_got(&clients[0], is_answer, send_get(&clients[0], 0, 0, 0, 0, 1), 0);
    uint64_t slab = g->m->batch->slabs[0]->slab;
    send_return(&clients[1], &slab, 1);
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
    start_with(LARGE, 32, SHARED, (size_t)16 << 20);
    lease(0, 0, 0, 3, 0);
    uint64_t id = send_get(&clients[0], 0, 0, 1, 0, 8);
    for (int i = 0; i < 8; i++)
        g[i] = wait_got(&clients[0], is_answer, id, 0);
    send_forget(0);
    expect_kind(&clients[0], send_get(&clients[0], 0, 0, 1, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    struct got *again;
    prepare(0, LARGE, 32, &again); /* the same name, anew */
    lease(0, 0, 0, 1, 0);
    for (uint64_t i = 0; i < 4; i++)
        fetch(&clients[0], 0, i);
    for (int i = 0; i < 8; i++) {
        check_batch(&reference, &clients[0], g[i]);
        run_until(status_now().n_streams == 2);
        give_back(&clients[0], g[i]);
        got_free(g[i]);
    }
    run_until(status_now().n_streams == 1);
    got_free(again);
    end_all();
}

/* Asks for n batches, range after range, and keeps them all. Returns how many came as shm_loans, and not as
 * copies. */
static size_t keep_all(struct fake *f, struct got **kept, size_t n, uint64_t per_range)
{
    size_t lent = 0;
    for (size_t i = 0; i < n; i += per_range) {
        uint64_t id = send_get(f, 0, 0, i / per_range, 0, CW_MIN(per_range, n - i));
        for (size_t k = i; k < CW_MIN(i + per_range, n); k++) {
            kept[k] = wait_got(f, is_answer, id, 0);
            check_batch(&reference, f, kept[k]);
            lent += kept[k]->m->batch->n_slabs > 0;
        }
        assert_true(status_now().memory_used <= (size_t)32 << 20);
    }
    return lent;
}

/* What clients keep counts: each has its part of the worker's memory for it, and copies of all else. */
static void kept_beyond_the_memory(void **state)
{
    (void)state;
    static struct got *kept[2][320]; /* 40 MiB each, of a worker with 32 */
    start_with(LARGE, 32, SHARED, (size_t)32 << 20);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 20, 0);
    assert_int_equal(keep_all(&clients[0], kept[0], 320, 16), 32); /* a half of the quarter */
    assert_int_equal(keep_all(&clients[1], kept[1], 320, 16), 16); /* and of what is left of it */
    for (size_t i = 0; i < 320; i++) {
        check_batch(&reference, &clients[0], kept[0][i]); /* nothing was used twice */
        give_back(&clients[0], kept[0][i]);
        got_free(kept[0][i]);
    }
    run_until(status_now().n_out == 16);
    struct got *g = wait_got(&clients[0], is_answer, send_get(&clients[0], 0, 0, 0, 0, 1), 0);
    assert_int_equal(g->m->batch->n_slabs, 1); /* there is room again */
    give_back(&clients[0], g);
    got_free(g);
    for (size_t i = 0; i < 320; i++) {
        give_back(&clients[1], kept[1][i]);
        got_free(kept[1][i]);
    }
    end_all();
}

/* As list(ds.distribute(...)) does: small batches, more than anybody lends to one client. */
static void kept_a_whole_epoch(void **state)
{
    (void)state;
    static struct got *kept[5000];
    start_with(RANGE, 512, SHARED, (size_t)32 << 20);
    lease(0, 0, 0, n_ranges(), 0);
    assert_true(keep_all(&clients[0], kept, CW_COUNT_OF(kept), 64) < CW_COUNT_OF(kept));
    for (size_t i = 0; i < CW_COUNT_OF(kept); i++) {
        give_back(&clients[0], kept[i]);
        got_free(kept[i]);
    }
    end_all();
}

/* Clients that do not read: what is on its way to them counts as handed out, parts of batches too, and each
 * has at most as many bytes there as are free. */
static void parts_for_clients_that_do_not_read(void **state)
{
    (void)state;

    enum { EACH = 28 }; /* parts of 128 KiB; all of them are more than a quarter of the worker's memory */
    struct cw_error err = {0};
    struct cw_loop *awake = loop, *asleep;
    uint64_t ids[2][EACH];
    start_with(LARGE_FILTERED, 4 * EACH, LOCAL, (size_t)16 << 20);
    assert_int_equal(cw_loop_new(&asleep, &err), 0);
    lease(0, 0, 0, 2, 0);
    loop = asleep;
    for (size_t c = 0; c < 2; c++) {
        client_connect(&clients[1 + c], LOCAL);
        for (size_t i = 0; i < EACH; i++)
            ids[c][i] = send_want(&clients[1 + c], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, 2 * (EACH * c + i),
                                  2);
    }
    cw_loop_stop(asleep);
    cw_loop_run(asleep); /* the requests are sent */
    loop = awake;
    run_until(status_now().n_out >= 20);
    for (uint64_t i = 0; i < 2 * EACH; i++)
        fetch(&clients[0], 1, i);
    /* a half of 4 MiB, a half of the rest */
    assert_true(status_now().n_out < 28 && status_now().memory_used <= (size_t)16 << 20);
    loop = asleep;
    for (size_t c = 0; c < 2; c++) {
        for (size_t i = 0; i < EACH; i++)
            expect_kind(&clients[1 + c], ids[c][i], CACHEW__ENVELOPE__OF_PART);
        fake_close(&clients[1 + c]);
    }
    cw_loop_free(asleep);
    loop = awake;
    end_all();
}

static void nonsense(void **state)
{
    (void)state;
    start_with(RANGE, 512, SHARED, (size_t)64 << 20);
    (void)send_get(&clients[0], 0, 0, 0, 0, 0);
    run_until(clients[0].closed);
    client_connect(&clients[0], TCP);
    (void)send_get(&clients[0], 0, 0, 0, 5, UINT64_MAX);
    run_until(clients[0].closed);
    client_connect(&clients[1], SHARED);
    lease(0, 0, 0, 1, 0);
    fetch(&clients[1], 0, 0);
    send_revoke(0, 0, 0, 1);
    run_until(status_now().n_leases == 0);
    struct got *slow; /* more requests than anybody makes, of a range that never comes */
    prepare(1,
            "{\"op\": \"range\", \"stop\": 100000}, {\"op\": \"fail\", \"where\": \"value >= 0\", \"kind\": "
            "\"hang\"}, {\"op\": \"batch\", \"size\": 8}",
            512, &slow);
    client_connect(&clients[0], TCP);
    lease(1, 0, 3, 1, 0);
    for (int i = 0; i < 6000 && clients[0].conn; i++)
        (void)send_get(&clients[0], 1, 0, 3, 0, 60);
    run_until(clients[0].closed);
    assert_contains(clients[0].why.message, "requests");
    send_forget(1);
    got_free(slow);
    end_all();
}

static int setup(void **state)
{
    static const struct cw_op_desc *const ops[] = {&hang_op, &fails_op};
    if (sem_init(&may_fail, 0, 0) < 0)
        return -1;
    return make_lines(state) < 0 || cw_ops_add(ops, CW_COUNT_OF(ops), NULL) < 0 ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(counted_asked_again),
        world_test(filtered_asked_again),
        world_test(sequential_asked_again),
        world_test(finished_asked_again),
        world_test(rows_from_any_element),
        world_test(counted_ranks_apart),
        world_test(counted_ranks_apart_without_room),
        world_test(filtered_ranks_apart),
        world_test(sequential_ranks_apart),
        world_test(range_of_batches),
        world_test(counted_later_first),
        world_test(bytes_later_first),
        world_test(filtered_later_first),
        world_test(range_beyond_the_memory),
        world_test(keys_come_though_no_client_takes_the_rows),
        world_test(two_ends_at_once),
        world_test(nothing_here),
        world_test(asked_for_before_opening_fails),
        world_test(revoked_inside),
        world_test(revoked_in_the_middle),
        world_test(asked_for_what_is_not_there),
        world_test(failed_asked_again),
        world_test(revoked_while_it_hangs),
        world_test(left_while_lent),
        world_test(kept_over_the_end_of_a_connection),
        world_test(kept_of_another),
        world_test(returned_twice),
        world_test(returned_invented),
        world_test(returned_for_another),
        world_test(forgotten_while_lent),
        world_test(kept_beyond_the_memory),
        world_test(kept_a_whole_epoch),
        world_test(parts_for_clients_that_do_not_read),
        world_test(nonsense),
        world_test(counted_any_order),
        world_test(filtered_any_order),
        world_test(buckets_any_order),
        world_test(large_filtered_later_first),
        world_test(large_buckets_later_first),
    };
    return cmocka_run_group_tests(tests, setup, temp_remove);
}
