/* A worker: its batches are those of an iterator, whatever fails and dispatchers do; what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "sample.h"
#include "service/worker/socket_dir.h"
#include "worker_stream.h"

#define LENGTHS \
    "{\"op\": \"text\", \"files\": \"lines.txt\"}, {\"op\": \"bucket_by_length\", \"length\": " \
    "\"length(text)\", \"boundaries\": [10, 20, 30], \"sizes\": [8, 6, 4, 2]}"
#define LARGE_KEYS \
    "{\"op\": \"synthetic\", \"count\": 4000, \"shape\": [16384], \"dtype\": \"float32\"}, " \
    "{\"op\": \"bucket_by_length\", \"length\": \"int64(min(data) * 1e9) % 40\", \"boundaries\": [10, 20, " \
    "30], \"sizes\": [2, 3, 2, 4]}"
#define SINGLE "{\"op\": \"range\", \"stop\": 300}"

/* What an iterator gives of an epoch: hashes by g. */
struct whole {
    struct cw_hash128 *hashes;
    size_t n;
    uint64_t n_skipped;
};

static void whole_init(struct whole *w, struct reference *r)
{
    struct cw_error err = {0};
    struct cw_iterator *it;
    struct cw_batch *b;
    int s;
    uint64_t replaced;
    const struct cw_iterator_options o = {
        .seed = r->seed,
        .epochs = 1,
        .world_size = 1,
        .runner = {.threads = 2, .memory = (size_t)256 << 20, .optimize = true}};
    *w = (struct whole){0};
    if (cw_iterator_new(r->local.sequence, &o, NULL, &it, &err) < 0)
        fail_msg("%s", err.message);
    while ((s = cw_iterator_next(it, 0, &b, &err)) == 0) {
        w->hashes = realloc(w->hashes, (w->n + 1) * sizeof(*w->hashes));
        assert_int_equal(b->g, w->n);
        w->hashes[w->n++] = cw_batch_hash(b);
        cw_iterator_release(it, b);
    }
    if (s < 0)
        fail_msg("%s", err.message);
    cw_iterator_quarantined(it, &w->n_skipped, &replaced);
    cw_iterator_free(it);
}

/* The test joins batches from rows in ranges, as a client does. */
struct piece {
    uint64_t range, first, n;
};

struct waiting { /* of a key */
    struct piece pieces[64];
    unsigned n_pieces;
    uint64_t n;
};

struct reader {
    struct reference *r;
    struct fake *f;
    struct whole whole;
    struct waiting keys[32];
    uint64_t g;
    size_t n_quarantined, n_whole, n_joined, n_answers;
};

static void check_made(struct reader *a, struct cw_hash128 hash)
{
    assert_true(a->g < a->whole.n);
    assert_same(hash, a->whole.hashes[a->g++]);
}

/* Adds rows that came to a batch. */
static void join_rows(struct reader *a, const struct got *g, struct cw_assembly *joined)
{
    struct cw_error err = {0};
    struct cw_part m;
    if (cw_wire_part_read(g->m->part, g->payload, g->size, a->r->local.compiled, &m, &err) < 0 ||
        cw_part_join(joined, &m, &err) < 0)
        fail_msg("%s", err.message);
    for (const struct cw_quarantined *q = m.quarantined; q; q = q->next)
        a->n_quarantined += !q->note;
    cw_part_deinit(&m);
}

static void add_part(struct reader *a, const struct piece *p, uint32_t key, struct cw_assembly *joined)
{
    struct got *g = wait_got(
        a->f, is_answer, send_want(a->f, 0, 0, p->range, CACHEW__WHAT__WHAT_PART, key, p->first, p->n), 0);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_PART);
    const Cachew__Part *w = g->m->part;
    assert_true(w->begin == p->range * a->r->cut.size && w->key == key && w->first == p->first &&
                w->n == p->n);
    join_rows(a, g, joined);
    got_free(g);
}

/* The next batch: what waits under a key. */
static void make_batch(struct reader *a, uint32_t key)
{
    struct waiting *w = &a->keys[key];
    struct cw_hash128 hash;
    if (w->n_pieces == 1) {
        struct piece *p = &w->pieces[0];
        struct got *g = wait_got(
            a->f, is_answer, send_want(a->f, 0, 0, p->range, CACHEW__WHAT__WHAT_ROWS, key, p->first, p->n),
            0);
        a->n_quarantined += read_batch(a->r, a->f, g, a->g, &hash);
        assert_true(g->m->batch->index == p->first && g->m->batch->key == key);
        give_back(a->f, g);
        got_free(g);
        a->n_whole++;
    } else {
        struct cw_error err = {0};
        struct cw_assembly *joined;
        assert_int_equal(cw_assembly_new(&a->r->layout, &a->r->slabs, cw_key_size(a->r->local.compiled, key),
                                         key, &joined, &err),
                         0);
        for (unsigned i = 0; i < w->n_pieces; i++)
            add_part(a, &w->pieces[i], key, joined);
        assert_int_equal(cw_assembly_finish(joined, &a->r->slabs, &err), 0);
        hash = hash_at(joined->batch, a->g);
        cw_assembly_free(joined);
        a->n_joined++;
    }
    check_made(a, hash);
    w->n_pieces = 0;
    w->n = 0;
}

static void take_element(struct reader *a, uint64_t range, uint32_t key, uint64_t at)
{
    struct waiting *w = &a->keys[key];
    struct piece *last = w->n_pieces ? &w->pieces[w->n_pieces - 1] : NULL;
    if (!last || last->range != range) {
        assert_true(w->n_pieces < CW_COUNT_OF(w->pieces));
        w->pieces[w->n_pieces++] = (struct piece){.range = range, .first = at, .n = 1};
    } else {
        last->n++;
    }
    if (++w->n == cw_key_size(a->r->local.compiled, key))
        make_batch(a, key);
}

/* Takes the elements of a range as their keys come. arrived: by key, the number of elements. */
static void run_placed(struct reader *a, uint64_t range, uint64_t *arrived)
{
    Cachew__Range of = cut_range(0, 0, range, 1);
    bool over = false;
    for (uint64_t first = 0; !over; a->n_answers++) {
        struct got *g = wait_got(a->f, is_answer,
                                 send_want(a->f, 0, 0, range, CACHEW__WHAT__WHAT_KEYS, 0, first, 0), 0);
        assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_KEYS);
        const Cachew__Keys *m = g->m->keys;
        assert_true(m->begin == of.begin && m->end == of.end && m->first == first && !m->why);
        assert_true(m->over || m->keys.len > 0);
        for (size_t i = 0; i < m->keys.len; i++) {
            uint32_t key = m->keys.data[i];
            assert_true(key < cw_n_keys(a->r->local.compiled));
            take_element(a, range, key, arrived[key]++);
        }
        first += m->keys.len;
        over = m->over;
        got_free(g);
    }
}

/* The keys of a range are those that its report counts. */
static void check_arrived(struct reader *a, uint64_t range, const uint64_t *arrived,
                          const Cachew__Report *report)
{
    for (unsigned k = 0; k < cw_n_keys(a->r->local.compiled); k++) {
        uint64_t n = k < report->n_elements ? report->elements[k] : 0;
        assert_int_equal(arrived[k], n);
        expect_kind(a->f, send_want(a->f, 0, 0, range, CACHEW__WHAT__WHAT_ROWS, k, n, 1),
                    CACHEW__ENVELOPE__OF_RANGE_END);
    }
}

/* Asked for in parts of so many, also beyond the end. */
static void run_batches(struct reader *a, uint64_t range, uint64_t n, uint64_t part, bool shared)
{
    for (uint64_t from = 0; from <= n; from += part) {
        uint64_t id = send_get(a->f, 0, 0, range, from, part),
                 answers = n - from >= part ? part : n - from + 1;
        for (uint64_t i = 0; i < answers; i++) {
            struct got *g = wait_got(a->f, is_answer, id, 0);
            struct cw_hash128 hash;
            if (from + i == n) {
                assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_RANGE_END);
                assert_int_equal(g->m->range_end->report->begin, range * a->r->cut.size);
            } else {
                a->n_quarantined += read_batch(a->r, a->f, g, a->g, &hash);
                assert_int_equal(g->m->batch->index, from + i);
                assert_int_equal(g->m->batch->n_slabs != 0, shared);
                check_made(a, hash);
                give_back(a->f, g);
            }
            got_free(g);
        }
    }
}

/* The batches of one epoch, over a transport, in ranges of so many positions (0: all), requested in parts of
 * so many. Returns the number of answers that brought keys. */
static size_t run_epoch_in(size_t memory, const char *chain, uint64_t size, enum transport t, uint64_t part)
{
    struct reference r;
    struct got *prep;
    struct reader a = {.r = &r, .f = &clients[0]};
    reference_init(&r, chain, 5, size);
    whole_init(&a.whole, &r);
    struct cw_worker_options o = worker_defaults();
    o.memory = memory;
    worker_start(&o);
    const Cachew__Prepared *p = prepare(0, chain, size, &prep);
    const struct cw_compiled *c = r.local.compiled;
    assert_int_equal(p->plan->n_positions, r.local.sequence->n_positions);
    assert_true(p->plan->snapshot == r.local.sequence->snapshot);
    assert_int_equal(p->plan->n_keys, cw_n_keys(c));
    assert_int_equal(p->plan->sequential, c->sequential);
    assert_int_equal(p->plan->align, r.cut.align);
    assert_true(has_rows(&r) ? p->most_positions >= p->plan->align : p->most_positions == 0);
    client_connect(a.f, t);
    for (uint64_t i = 0; i < n_ranges(); i++) {
        uint64_t arrived[32] = {0};
        lease(0, 0, i, 1, 0);
        if (has_rows(&r))
            run_placed(&a, i, arrived);
        else if (c->sequential) /* the range is over once all was requested */
            run_batches(&a, i, a.whole.n, part, t == SHARED);
        Cachew__Range range = cut_range(0, 0, i, 1);
        struct got *report = wait_got(&dispatcher, is_report, 0, range.begin);
        const Cachew__Report *m = report->m->completed->report;
        assert_int_equal(m->end, range.end);
        assert_int_equal(m->n_batches, c->sequential ? a.whole.n : 0);
        if (has_rows(&r))
            check_arrived(&a, i, arrived, m);
        else if (!c->sequential)
            run_batches(&a, i, (range.end - range.begin + c->batch_size - 1) / c->batch_size, part,
                        t == SHARED);
        got_free(report);
    }
    for (uint32_t k = 0; has_rows(&r) && k < cw_n_keys(c); k++)
        if (a.keys[k].n)
            make_batch(&a, k);
    assert_int_equal(a.g, a.whole.n);
    assert_int_equal(a.n_quarantined, a.whole.n_skipped);
    assert_true(!has_rows(&r) || cw_key_size(c, 0) == 1 ||
                ((a.n_joined || n_ranges() == 1) && (a.n_whole || size < 32)));
    send_revoke(0, 0, 0, n_ranges());
    run_until(status_now().n_leases == 0);
    send_forget(0);
    run_until(status_now().n_streams == 0);
    run_until(status_now().n_out == 0);
    got_free(prep);
    reference_deinit(&r);
    free(a.whole.hashes);
    return a.n_answers;
}

static void run_epoch(const char *chain, uint64_t size, enum transport t, uint64_t part)
{
    (void)run_epoch_in((size_t)256 << 20, chain, size, t, part);
}

static void counted_shared(void **state)
{
    (void)state;
    run_epoch(RANGE, 1000, SHARED, 3);
}

static void counted_tcp(void **state)
{
    (void)state;
    run_epoch(RANGE, 512, TCP, 7);
}

static void counted_local(void **state)
{
    (void)state;
    LEAVE_OUT_OF_SAMPLE();
    run_epoch(RANGE, 24, LOCAL, 1);
}

/* No range begins or ends with a batch. */
static void filtered_shared(void **state)
{
    (void)state;
    run_epoch(FILTER, 997, SHARED, 5);
}

static void filtered_tcp(void **state)
{
    (void)state;
    run_epoch(FILTER, 10007, TCP, 5);
}

/* Of less than a batch each. */
static void filtered_in_tiny_ranges(void **state)
{
    (void)state;
    run_epoch("{\"op\": \"range\", \"stop\": 900}, {\"op\": \"filter\", \"where\": \"value % 3 != 1\"}, "
              "{\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 32}",
              7, SHARED, 5);
}

static void bytes_shared(void **state)
{
    (void)state;
    run_epoch(BYTES, 512, SHARED, 4);
}

static void bytes_tcp(void **state)
{
    (void)state;
    run_epoch(BYTES, 4096, TCP, 4);
}

static void buckets_shared(void **state)
{
    (void)state;
    LEAVE_OUT_OF_SAMPLE();
    run_epoch(LENGTHS, 501, SHARED, 2);
}

static void buckets_tcp(void **state)
{
    (void)state;
    run_epoch(LENGTHS, 3001, TCP, 100);
}

/* Rows of 64 KiB, in ranges that do not fit the worker's memory: clients get the keys of the elements that
 * there is room for, and take these. */
static void buckets_beyond_the_memory(void **state)
{
    (void)state;
    assert_true(run_epoch_in((size_t)16 << 20, LARGE_KEYS, 0, SHARED, 1) > 1);
}

static void buckets_in_ranges_beyond_the_memory(void **state)
{
    (void)state;
    LEAVE_OUT_OF_SAMPLE();
    assert_true(run_epoch_in((size_t)16 << 20, LARGE_KEYS, 777, TCP, 1) > 6);
}

static void elements_shared(void **state)
{
    (void)state;
    run_epoch(SINGLE, 100, SHARED, 50);
}

static void filtered_elements(void **state)
{
    (void)state;
    run_epoch("{\"op\": \"range\", \"stop\": 300}, {\"op\": \"filter\", \"where\": \"value % 3 != 1\"}", 77,
              TCP, 5);
}

/* Rows of positions at .. end - 1, of batch a->g, which lies in several ranges. */
static void add_rows(struct reader *a, uint64_t at, uint64_t end, struct cw_assembly *joined)
{
    uint64_t size = a->r->cut.size, batch = a->r->local.compiled->batch_size, range = at / size;
    struct got *g = wait_got(a->f, is_answer, send_get(a->f, 0, 0, range, a->g - range * size / batch, 1), 0);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_PART);
    assert_int_equal(g->m->part->first, a->g - range * size / batch);
    assert_int_equal(g->m->part->n, CW_MIN(end, (range + 1) * size) - at);
    join_rows(a, g, joined);
    got_free(g);
    if (end > (range + 1) * size)
        add_rows(a, (range + 1) * size, end, joined);
}

/* A batch of a counted pipeline whose ranges end anywhere: as a whole where it lies in one, else of its
 * parts. */
static void next_counted(struct reader *a)
{
    uint64_t size = a->r->cut.size, batch = a->r->local.compiled->batch_size;
    uint64_t begin = a->g * batch, end = CW_MIN(begin + batch, a->r->cut.n_positions), range = begin / size;
    struct cw_error err = {0};
    struct cw_hash128 hash;
    struct cw_assembly *joined;
    if (range == (end - 1) / size) {
        struct got *g = wait_got(a->f, is_answer, send_get(a->f, 0, 0, range, a->g - range * size / batch, 1),
                                 0);
        a->n_quarantined += read_batch(a->r, a->f, g, a->g, &hash);
        give_back(a->f, g);
        got_free(g);
        a->n_whole++;
    } else {
        assert_int_equal(cw_assembly_new(&a->r->layout, &a->r->slabs, batch, 0, &joined, &err), 0);
        add_rows(a, begin, end, joined);
        assert_int_equal(cw_assembly_finish(joined, &a->r->slabs, &err), 0);
        hash = hash_at(joined->batch, a->g);
        cw_assembly_free(joined);
        a->n_joined++;
    }
    check_made(a, hash);
}

/* Twice, so that ranges are run again from a batch in the middle. */
static void run_divided(const char *chain, uint64_t size)
{
    start_with(chain, size, TCP, (size_t)64 << 20);
    struct reader a = {.r = &reference, .f = &clients[0]};
    whole_init(&a.whole, &reference);
    lease(0, 0, 0, n_ranges(), 0);
    for (uint64_t from = 0; from < 6; from += 5)
        for (a.g = from; a.g < a.whole.n;)
            next_counted(&a);
    assert_true(a.n_joined > 0 && a.n_quarantined >= a.whole.n_skipped && (a.n_whole > 0) == (size > 10));
    for (uint64_t i = 0; i < n_ranges(); i++)
        got_free(wait_got(&dispatcher, is_report, 0, i * size));
    free(a.whole.hashes);
    end_all();
}

static void divided_batches(void **state)
{
    (void)state;
    run_divided(
        "{\"op\": \"range\", \"stop\": 1003}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 10}", 37);
}

static void divided_into_many(void **state)
{
    (void)state;
    run_divided(
        "{\"op\": \"range\", \"stop\": 203}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 10}", 3);
}

static void divided_without_the_rest(void **state)
{
    (void)state;
    run_divided(
        "{\"op\": \"range\", \"stop\": 1009}, {\"op\": \"batch\", \"size\": 10, \"drop_remainder\": true}",
        38);
}

static void divided_and_skipped(void **state)
{
    (void)state;
    run_divided(
        "{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [{\"op\": \"text\", \"files\": "
        "\"lines.txt\"}, {\"op\": \"take\", \"count\": 800}, "
        "{\"op\": \"fail\", \"where\": \"length(text) % 5 == 1\"}, {\"op\": \"batch\", \"size\": 16}]}",
        41);
}

static void sequential_shared(void **state)
{
    (void)state;
    run_epoch(SKIPPED, 0, SHARED, 9);
}

static void sequential_tcp(void **state)
{
    (void)state;
    run_epoch(SKIPPED, 0, TCP, 1000);
}

/* ---- records and runs that fail ---- */

static void skipped_records(void **state)
{
    (void)state;
    run_epoch("{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [{\"op\": \"range\", \"stop\": 3000}, "
              "{\"op\": \"fail\", \"where\": \"value % 50 == 7\"}, "
              "{\"op\": \"filter\", \"where\": \"value % 4 != 1\"}, {\"op\": \"shuffle\"}, {\"op\": "
              "\"batch\", \"size\": 32}]}",
              299, SHARED, 6);
}

/* Their reasons come with rows, also with the last ones of a range. */
static void skipped_behind_a_filter(void **state)
{
    (void)state;
    run_epoch("{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [{\"op\": \"range\", \"stop\": 3000}, "
              "{\"op\": \"filter\", \"where\": \"value % 4 != 1\"}, "
              "{\"op\": \"fail\", \"where\": \"value % 50 > 40\"}, {\"op\": \"batch\", \"size\": 32}]}",
              299, SHARED, 6);
}

static void skipped_in_counted(void **state)
{
    (void)state;
    run_epoch("{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [{\"op\": \"range\", \"stop\": 3000}, "
              "{\"op\": \"fail\", \"where\": \"value % 50 == 7\"}, "
              "{\"op\": \"batch\", \"size\": 32}]}",
              320, TCP, 6);
}

#define FAILS_AT \
    "{\"op\": \"range\", \"stop\": 2000}, {\"op\": \"fail\", \"where\": \"value == 100\"}, {\"op\": " \
    "\"filter\", \"where\": \"value >= 0\"}, {\"op\": \"batch\", \"size\": 16}"

static void expect_failure(uint64_t id, Cachew__What what, uint64_t index)
{
    struct got *g = wait_got(&clients[0], is_answer, id, 0);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_RANGE_FAILED);
    assert_int_equal(g->m->range_failed->what, what);
    assert_int_equal(g->m->range_failed->index, index);
    assert_string_equal(g->m->range_failed->why->op, "fail");
    got_free(g);
}

/* What stands before a failed record is had; in its place is the error, again and again. */
static void failed_record(void **state)
{
    (void)state;
    struct cw_worker_options o = worker_defaults();
    reference_init(&reference,
                   "{\"op\": \"range\", \"stop\": 2000}, {\"op\": \"filter\", \"where\": \"value >= 0\"}, "
                   "{\"op\": \"batch\", \"size\": 16}",
                   5, 1000);
    worker_start(&o);
    prepare(0, FAILS_AT, 1000, &prepared);
    client_connect(&clients[0], SHARED);
    lease(0, 0, 0, 2, 0);
    for (int times = 0; times < 2; times++) {
        for (uint64_t i = 0; i < 6; i++)
            fetch(&clients[0], 0, i);
        expect_kind(&clients[0], send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, 96, 4),
                    CACHEW__ENVELOPE__OF_PART);
        expect_failure(send_get_at(&clients[0], 0, 6), CACHEW__WHAT__WHAT_ROWS, 96);
        expect_failure(send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, 96, 5),
                       CACHEW__WHAT__WHAT_PART, 96);
        expect_failure(send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_PART, 0, 500, 5),
                       CACHEW__WHAT__WHAT_PART, 500);
        struct got *g = wait_got(&clients[0], is_answer,
                                 send_want(&clients[0], 0, 0, 0, CACHEW__WHAT__WHAT_KEYS, 0, 0, 0), 0);
        assert_int_equal(g->m->keys->keys.len, 100);
        assert_string_equal(g->m->keys->why->op, "fail");
        got_free(g);
    }
    fetch(&clients[0], 1, 0); /* a later range is not concerned */
    Cachew__Range second = cut_range(0, 0, 1, 1);
    got_free(wait_got(&dispatcher, is_report, 0, second.begin));
    assert_int_equal(n_completed, 1);
    assert_int_equal(n_failed_streams, 0);
    end_all();
}

static void failed_record_in_counted(void **state)
{
    (void)state;
    struct cw_worker_options o = worker_defaults();
    reference_init(&reference, "{\"op\": \"range\", \"stop\": 2000}, {\"op\": \"batch\", \"size\": 16}", 5,
                   800);
    worker_start(&o);
    prepare(0,
            "{\"op\": \"range\", \"stop\": 2000}, {\"op\": \"fail\", \"where\": \"value == 100\"}, {\"op\": "
            "\"batch\", \"size\": 16}",
            800, &prepared);
    client_connect(&clients[0], SHARED);
    lease(0, 0, 0, 2, 0);
    for (int times = 0; times < 2; times++) {
        for (uint64_t i = 0; i < 6; i++)
            fetch(&clients[0], 0, i);
        expect_failure(send_get(&clients[0], 0, 0, 0, 6, 2), CACHEW__WHAT__WHAT_BATCHES, 6);
    }
    fetch(&clients[0], 1, 0);
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
    start_with("{\"op\": \"text\", \"files\": \"gone.txt\"}, {\"op\": \"filter\", \"where\": \"length(text) "
               "> 0\"}, {\"op\": \"batch\", \"size\": 64}",
               4096, SHARED, (size_t)64 << 20);
    assert_int_equal(truncate(path, 100), 0);
    send_lease(0, 0, 0, 4, 0);
    run_until(n_failed_streams == 1);
    struct got *g = wait_got(&dispatcher, is_kind, CACHEW__ENVELOPE__OF_STREAM_FAILED, 0);
    assert_contains(g->m->stream_failed->why->message, "gone.txt");
    got_free(g);
    /* Another worker may have it. */
    expect_kind(&clients[0], send_get(&clients[0], 0, 0, 1, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    run_until(status_now().n_leases == 0);
    struct got *again;
    prepare(0, RANGE, 512, &again);
    run_until(status_now().n_streams == 1);
    expect_kind(&clients[0], send_get(&clients[0], 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    got_free(again);
    end_all();
}

/* A dispatcher that is connected anew knows nothing of a stream that failed, and sends no Forget for it. */
static void failed_stream_ends_with_the_connection(void **state)
{
    (void)state;
    char path[200];
    snprintf(path, sizeof(path), "%s/lost.txt", temp_dir);
    FILE *out = fopen(path, "w");
    for (int i = 0; i < 200000; i++)
        fprintf(out, "line %d of a file that goes\n", i);
    fclose(out);
    start_with("{\"op\": \"text\", \"files\": \"lost.txt\"}, {\"op\": \"batch\", \"size\": 64}", 4096, SHARED,
               (size_t)64 << 20);
    assert_int_equal(truncate(path, 100), 0);
    send_lease(0, 0, 0, 4, 0);
    run_until(n_failed_streams == 1);
    fake_close(&dispatcher);
    run_until(n_registered == 2 && status_now().n_streams == 0 && status_now().memory_used == 0);
    assert_int_equal(n_holdings, 0);
    expect_kind(&clients[0], send_get(&clients[0], 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    end_all();
}

/* ---- what dispatchers do ---- */

/* A new connection: the same leases are named, and completions are sent again until they are acknowledged. */
static void dispatcher_comes_back(void **state)
{
    (void)state;
    dispatcher.dead_slow = true;
    start_with(FILTER, 1000, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 3, 0);
    got_free(wait_got(&dispatcher, is_report, 0, 0));
    fetch(&clients[0], 1, 0);
    run_until(n_completed == 3 && status_now().n_reports == 3);
    for (int times = 0; times < 2; times++) {
        unsigned before = n_registered, holdings = n_holdings, completed = n_completed;
        fake_close(&dispatcher);
        dispatcher.dead_slow = times == 0;
        fetch(&clients[0], 1, 2); /* the dispatcher does not notice */
        run_until(n_registered == before + 1 && n_holdings == holdings + 1);
        const Cachew__Holding *h = last_holdings->holdings->holdings[0];
        assert_int_equal(h->n_ranges, 3);
        assert_true(h->ranges[2]->begin == 2000 && h->ranges[2]->end == 3000);
        assert_true(h->prepared->plan->snapshot == reference.local.sequence->snapshot);
        run_until(n_completed >= completed + 3); /* each is sent again */
    }
    run_until(status_now().n_reports == 0);
    /* The next dispatcher may not know what was acknowledged: it gets all reports that there is a lease for.
     */
    for (unsigned left = 3; left >= 2; left--) {
        unsigned before = n_completed, registered = n_registered;
        fake_close(&dispatcher);
        run_until(n_registered == registered + 1 && n_completed >= before + left &&
                  status_now().n_reports == 0);
        assert_int_equal(n_completed, before + left);
        send_revoke(0, 0, left - 1, 1);
        run_until(status_now().n_leases == left - 1);
    }
    end_all();
}

static void prepared_again(void **state)
{
    (void)state;
    struct got *again;
    start_with(RANGE, 512, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 1, 0);
    send_lease(0, 0, 0, 1, 0); /* sent twice */
    const Cachew__Prepared *p = prepare(0, RANGE, 512, &again);
    assert_true(p->plan->snapshot == prepared->m->prepared->plan->snapshot && p->capacity >= 2);
    run_until(status_now().n_leases == 1);
    fetch(&clients[0], 0, 0);
    got_free(again);
    end_all();
}

/* What can't be leased cuts the dispatcher off, which is back at once. */
static void expect_no_lease(uint64_t begin, uint64_t end)
{
    unsigned before = n_registered;
    Cachew__Range range = CACHEW__RANGE__INIT;
    range.begin = begin;
    range.end = end;
    send_lease_of(0, &range, begin);
    run_until(n_registered == before + 1);
}

static void lease_beyond_the_end(void **state)
{
    (void)state;
    start_with(RANGE, 512, SHARED, (size_t)64 << 20);
    expect_no_lease(40000, 40008);
    expect_no_lease(39992, 40008);
    expect_no_lease(512, 512);
    lease(0, 0, 0, 1, UINT64_C(1) << 60); /* none of it is needed */
    got_free(wait_got(&dispatcher, is_report, 0, 0));
    fetch(&clients[0], 0, 0);
    expect_no_lease(0, 520); /* overlaps what is leased */
    expect_no_lease(504, 1024);
    fetch(&clients[0], 0, 1);
    end_all();
}

static void lease_of_part_of_a_sequential_epoch(void **state)
{
    (void)state;
    start_with(SKIPPED, 0, SHARED, (size_t)64 << 20);
    expect_no_lease(0, 512);
    lease(0, 0, 0, 1, 0);
    fetch(&clients[0], 0, 0);
    end_all();
}

static void drains(void **state)
{
    (void)state;
    struct cw_error err = {0};
    start_with(RANGE, 512, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 2, 0);
    fetch(&clients[0], 0, 0);
    cw_worker_drain(worker);
    got_free(wait_got(&dispatcher, is_kind, CACHEW__ENVELOPE__OF_DRAINING, 0));
    fetch(&clients[0], 1, 0);
    assert_int_equal(cw_worker_wait_drained(worker, 1000000, &err), CW_E_DEADLINE);
    send_revoke(0, 0, 0, 2);
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
    start_with(LARGE, 32, SHARED, (size_t)64 << 20);
    reference_init(&other, BYTES, 5, 512);
    lease(0, 0, 0, 4, 0);
    for (uint64_t i = 0; i < 4; i++)
        fetch(&clients[0], 0, i);
    prepare(1, BYTES, 512, &second);
    lease(1, 0, 0, 4, 0);
    for (uint64_t i = 4; i < 8; i++) {
        fetch(&clients[0], 0, i);
        struct got *g = wait_got(&clients[0], is_answer, send_get(&clients[0], 1, 0, 2, i, 1), 0);
        check_batch(&other, &clients[0], g);
        give_back(&clients[0], g);
        got_free(g);
    }
    send_forget(1);
    run_until(status_now().n_streams == 1);
    for (uint64_t i = 0; i < 4; i++)
        fetch(&clients[0], 3, i);
    got_free(second);
    reference_deinit(&other);
    end_all();
}

/* A stream that replaces others has their memory, also where all messages come at once. */
static void one_for_two(void **state)
{
    (void)state;
    struct got *first, *second, *third;
    struct cw_worker_options o = worker_defaults();
    o.memory = (size_t)16 << 20;
    worker_start(&o);
    prepare(1, RANGE, 512, &first);
    prepare(2, SINGLE, 100, &second);
    send_forget(1);
    send_forget(2);
    /* 8 MiB each */
    prepare(0,
            "{\"op\": \"synthetic\", \"count\": 256, \"shape\": [64, 1024], \"dtype\": \"uint8\"}, {\"op\": "
            "\"batch\", \"size\": 128}",
            128, &third);
    send_forget(0);
    run_until(status_now().n_streams == 0);
    got_free(first);
    got_free(second);
    got_free(third);
}

/* ---- what is refused ---- */

static void expect_refused(const char *chain, const char *part)
{
    struct got *g = wait_got(&dispatcher, is_answer, send_prepare(0, chain, 5), 0);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_FAILURE);
    assert_contains(g->m->failure->message, part);
    got_free(g);
    run_until(status_now().n_streams == 0);
}

static void refuses(void **state)
{
    (void)state;
    static char root[200]; /* the worker reads it until it ends */
    char link[300], chain[500];
    snprintf(root, sizeof(root), "%s/root", temp_dir);
    snprintf(link, sizeof(link), "%s/link.txt", root);
    assert_int_equal(mkdir(root, 0700), 0);
    assert_int_equal(symlink("../lines.txt", link), 0);
    snprintf(link, sizeof(link), "%s/good.txt", root);
    FILE *out = fopen(link, "w");
    fputs("one\ntwo\nthree\n", out);
    fclose(out);
    static const char *const roots[] = {"/nowhere", root};
    struct cw_worker_options o = worker_defaults();
    o.data_roots = roots;
    o.n_data_roots = 2;
    worker_start(&o);
    static const char *const outside[] = {"lines.txt",         "/etc/passwd", "root/link.txt",
                                          "root/../lines.txt", "root/*.txt",  "/etc/*",
                                          "/etc/nothing-here", "*.txt"};
    for (size_t i = 0; i < CW_COUNT_OF(outside); i++) {
        snprintf(chain, sizeof(chain),
                 "{\"op\": \"text\", \"files\": \"%s\"}, {\"op\": \"batch\", \"size\": 2}", outside[i]);
        expect_refused(chain, "lies outside the directories that pipelines may read");
    }
    expect_refused("{\"op\": \"image_folder\", \"root\": \"/etc\"}", "lies outside");
    expect_refused("{\"op\": \"text\", \"files\": \"root/nothing\"}", "no file matches");
    expect_refused("{\"op\": \"range\", \"stop\": 3}, {\"op\": \"fail\", \"kind\": \"crash\"}",
                   "may end the process");
    wrong_fingerprint = true;
    expect_refused("{\"op\": \"range\", \"stop\": 3}", "the fingerprint that");
    wrong_fingerprint = false;
    expect_refused("{\"op\": \"range\", \"stop\": 3}, {\"op\": \"map\", \"function\": {\"name\": \"f\", "
                   "\"identity\": \"f\", \"payload\": \"AA==\"}, \"outputs\": {}}",
                   "--allow-python");
    expect_refused("{\"op\": \"nonsense\"}", "nonsense");
    expect_refused("{\"op\": ", "JSON");
    struct got *g;
    prepare(0, "{\"op\": \"text\", \"files\": \"root/good.txt\"}", 0, &g);
    assert_int_equal(g->m->prepared->n_files, 1);
    assert_contains(g->m->prepared->files[0]->path, "good.txt");
    got_free(g);
}

/* ---- directories of sockets ---- */

static void *make_dirs(void *arg CW_UNUSED)
{
    for (int i = 0; i < 100; i++) {
        struct cw_error err = {0};
        char *path, socket[200];
        struct stat st;
        int lock;
        if (cw_socket_dir_new(&path, &lock, &err) < 0)
            return strdup(err.message);
        snprintf(socket, sizeof(socket), "%s/socket", path);
        int fd = open(socket, O_CREAT | O_WRONLY, 0600);
        sched_yield(); /* others start, and look */
        if (fd < 0 || stat(socket, &st) < 0 || unlink(socket) < 0)
            return strdup("a directory in use was removed");
        close(fd);
        cw_socket_dir_free(path, lock);
    }
    return NULL;
}

/* Workers that start at the same time take no directory of each other for one that was left. */
static void socket_dirs_of_workers_that_start_at_once(void **state)
{
    (void)state;
    pthread_t threads[4];
    char *fault, left[200];
    assert_int_equal(setenv("XDG_RUNTIME_DIR", temp_dir, 1), 0);
    snprintf(left, sizeof(left), "%s/cachew-worker-killed", temp_dir);
    assert_int_equal(mkdir(left, 0700), 0);
    for (size_t i = 0; i < CW_COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_dirs, NULL), 0);
    for (size_t i = 0; i < CW_COUNT_OF(threads); i++) {
        pthread_join(threads[i], (void **)&fault);
        if (fault)
            fail_msg("%s", fault);
    }
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    assert_int_equal(rmdir(left), -1); /* it was */
}

/* Why no directory can be had is what the error says. */
static void socket_dir_without_descriptors(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct rlimit before, none;
    char *path;
    int lock;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int r = cw_socket_dir_new(&path, &lock, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(r, CW_E_IO);
    assert_contains(err.message, strerror(EMFILE));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(counted_shared),
        world_test(counted_tcp),
        world_test(counted_local),
        world_test(filtered_shared),
        world_test(filtered_tcp),
        world_test(filtered_in_tiny_ranges),
        world_test(bytes_shared),
        world_test(bytes_tcp),
        world_test(buckets_shared),
        world_test(buckets_tcp),
        world_test(buckets_beyond_the_memory),
        world_test(buckets_in_ranges_beyond_the_memory),
        world_test(elements_shared),
        world_test(filtered_elements),
        world_test(sequential_shared),
        world_test(sequential_tcp),
        world_test(skipped_records),
        world_test(skipped_behind_a_filter),
        world_test(skipped_in_counted),
        world_test(failed_record),
        world_test(failed_record_in_counted),
        world_test(divided_batches),
        world_test(divided_into_many),
        world_test(divided_without_the_rest),
        world_test(divided_and_skipped),
        world_test(failed_stream),
        world_test(failed_stream_ends_with_the_connection),
        world_test(dispatcher_comes_back),
        world_test(prepared_again),
        world_test(lease_beyond_the_end),
        world_test(lease_of_part_of_a_sequential_epoch),
        world_test(drains),
        world_test(two_streams),
        world_test(one_for_two),
        world_test(refuses),
        cmocka_unit_test(socket_dirs_of_workers_that_start_at_once),
        cmocka_unit_test(socket_dir_without_descriptors),
        world_test(wrong_options),
    };
    return cmocka_run_group_tests(tests, make_lines, temp_remove);
}
