/*
 * A worker with one stream prepared, and a client; batches that come are compared with those of an iterator in this process. Include after cmocka.h.
 */
#pragma once
#include "worker_world.h"

#define RANGE "{\"op\": \"range\", \"stop\": 40000}, {\"op\": \"assign\", \"set\": {\"half\": \"value * 0.5\"}}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 8}"
#define FILTER "{\"op\": \"range\", \"stop\": 60000}, {\"op\": \"filter\", \"where\": \"value % 3 != 1\"}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 32}"
#define BYTES "{\"op\": \"text\", \"files\": \"lines.txt\"}, {\"op\": \"batch\", \"size\": 8}"
#define LARGE "{\"op\": \"synthetic\", \"count\": 8192, \"shape\": [64, 1024], \"dtype\": \"uint8\"}, {\"op\": \"batch\", \"size\": 2}"

/* ---- the same in this process ---- */

struct expected {
    uint64_t epoch, g, split, index;
    struct cw_hash128 hash;
};

static size_t reference_limit; /* batches */

struct reference {
    struct cw_local local;
    struct expected *batches;
    size_t n;
    uint64_t n_skipped;
    /* to join remnants with */
    struct cw_budget budget;
    struct cw_slab_pool slabs;
    struct cw_layout layout;
};

static void reference_init(struct reference *r, const char *chain, uint64_t seed, uint64_t epochs)
{
    char text[4000];
    struct cw_error err = {0};
    struct cw_batch *b;
    int s;
    *r = (struct reference){0};
    snprintf(text, sizeof(text), "{\"cachew\": 1, \"pipeline\": [%s]}", chain);
    if (chain[0] == '{' && strstr(chain, "\"cachew\""))
        snprintf(text, sizeof(text), "%s", chain);
    struct cw_iterator_options o = {.seed = seed, .epochs = epochs, .world_size = 1, .runner = {.threads = 2, .memory = (size_t)256 << 20, .optimize = true}};
    if (cw_local_parse(&r->local, text, strlen(text), temp_dir, &err) < 0 || cw_local_open(&r->local, temp_dir, 2, &err) < 0 ||
        cw_iterator_new(r->local.sequence, &o, NULL, &r->local.iterator, &err) < 0)
        fail_msg("%s", err.message);
    s = 1;
    while (r->n < reference_limit && (s = cw_iterator_next(r->local.iterator, 0, &b, &err)) == 0) {
        r->batches = realloc(r->batches, (r->n + 1) * sizeof(*r->batches));
        r->batches[r->n++] = (struct expected){.epoch = b->epoch, .g = b->g, .split = b->split, .index = b->index, .hash = cw_batch_hash(b)};
        cw_iterator_release(r->local.iterator, b);
    }
    assert_true(s == 1 || r->n == reference_limit);
    uint64_t replaced;
    cw_iterator_quarantined(r->local.iterator, &r->n_skipped, &replaced);
    cw_budget_init(&r->budget, (size_t)1 << 30);
    assert_int_equal(cw_slab_pool_init(&r->slabs, true, &r->budget, &err), 0);
    assert_int_equal(cw_layout_init(&r->layout, r->local.compiled, &r->budget, &err), 0);
}

static void reference_deinit(struct reference *r)
{
    cw_layout_deinit(&r->layout);
    cw_slab_pool_deinit(&r->slabs);
    assert_int_equal(atomic_load(&r->budget.used), 0);
    cw_local_deinit(&r->local);
    free(r->batches);
}

static const struct expected *expected_at(const struct reference *r, uint64_t epoch, uint64_t split, uint64_t index)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->batches[i].epoch == epoch && r->batches[i].split == split && r->batches[i].index == index)
            return &r->batches[i];
    fail_msg("there is no batch %llu of split %llu", (unsigned long long)index, (unsigned long long)split);
    return NULL;
}

static void assert_same(struct cw_batch *b, const struct expected *e)
{
    b->g = e->g;
    struct cw_hash128 h = cw_batch_hash(b);
    assert_true(h.lo == e->hash.lo && h.hi == e->hash.hi);
}

/* A batch that came is the one of that place. Returns how many of its records were quarantined. */
static size_t check_batch(const struct reference *r, struct fake *f, const struct got *g)
{
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_BATCH);
    const Cachew__Batch *m = g->m->batch;
    struct cw_memory memory[2] = {{.data = g->payload, .size = g->size}};
    struct cw_batch b = {0};
    struct cw_quarantined *quarantined = NULL;
    struct cw_error err = {0};
    size_t n = 0;
    for (size_t i = 0; i < m->n_slabs; i++)
        for (size_t k = 0; k < f->n_mapped; k++)
            if (f->mapped[k].region == m->slabs[i]->region) {
                assert_true(m->slabs[i]->offset <= f->mapped[k].size && m->slabs[i]->size <= f->mapped[k].size - m->slabs[i]->offset);
                memory[i] = (struct cw_memory){.data = f->mapped[k].data + m->slabs[i]->offset, .size = m->slabs[i]->size};
            }
    if (cw_wire_batch_read(m, r->local.compiled, memory, &b, &quarantined, &err) < 0)
        fail_msg("%s", err.message);
    for (unsigned k = 0; k < b.n_components; k++)
        assert_int_equal((uintptr_t)b.components[k].data % 64, 0);
    for (const struct cw_quarantined *q = quarantined; q; q = q->next)
        n += !q->note;
    assert_same(&b, expected_at(r, m->epoch, m->split, m->index));
    free(b.components);
    free(b.ids);
    cw_quarantined_free(quarantined);
    return n;
}

/* ---- a stream ---- */

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
    run_until(status_now().n_out == 0);
    run_until(status_now().memory_used == 0);
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
