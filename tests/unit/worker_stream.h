/*
 * A worker with one stream prepared, and a client; batches that come are compared with those of an iterator
 * in this process. Include after cmocka.h.
 */
#pragma once
#include "worker_world.h"

#define RANGE \
    "{\"op\": \"range\", \"stop\": 40000}, {\"op\": \"assign\", \"set\": {\"half\": \"value * 0.5\"}}, " \
    "{\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 8}"
#define FILTER \
    "{\"op\": \"range\", \"stop\": 60000}, {\"op\": \"filter\", \"where\": \"value % 3 != 1\"}, {\"op\": " \
    "\"shuffle\"}, {\"op\": \"batch\", \"size\": 32}"
#define BYTES "{\"op\": \"text\", \"files\": \"lines.txt\"}, {\"op\": \"batch\", \"size\": 8}"
#define LARGE \
    "{\"op\": \"synthetic\", \"count\": 8192, \"shape\": [64, 1024], \"dtype\": \"uint8\"}, {\"op\": " \
    "\"batch\", \"size\": 2}"

#define SKIPPED \
    "{\"op\": \"range\", \"stop\": 40000}, {\"op\": \"filter\", \"where\": \"value % 3 != 1\"}, {\"op\": " \
    "\"skip\", \"count\": 17000}, {\"op\": \"batch\", \"size\": 32}"

/* ---- the same in this process ---- */

/* Batch `index` of a range that is run by itself: elements first .. first + n - 1 of a key, where it has
 * keys. */
struct expected {
    struct expected *next;
    uint64_t range, index, first, n;
    uint32_t key;
    struct cw_hash128 hash;
};

struct reference {
    struct cw_local local;
    uint64_t seed;
    struct cw_runner *runner;
    struct cut cut;
    struct expected *batches; /* of ranges that were looked at */
    /* to join rows in */
    struct cw_budget budget;
    struct cw_slab_pool slabs;
    struct cw_layout layout;
};

static struct cw_hash128 hash_at(struct cw_batch *b, uint64_t g)
{
    b->g = g;
    return cw_batch_hash(b);
}

static bool has_rows(const struct reference *r)
{
    return !r->local.compiled->sequential && cw_n_keys(r->local.compiled);
}

/* size: positions of a range; 0: all of them. */
static void reference_init(struct reference *r, const char *chain, uint64_t seed, uint64_t size)
{
    char text[4000];
    struct cw_error err = {0};
    *r = (struct reference){.seed = seed};
    snprintf(text, sizeof(text), "{\"cachew\": 1, \"pipeline\": [%s]}", chain);
    if (chain[0] == '{' && strstr(chain, "\"cachew\""))
        snprintf(text, sizeof(text), "%s", chain);
    const struct cw_runner_options o = {
        .threads = 2, .memory = (size_t)256 << 20, .optimize = true, .cache_point = CW_CACHE_POINT_AUTO};
    if (cw_local_parse(&r->local, text, strlen(text), temp_dir, &err) < 0 ||
        cw_local_open(&r->local, temp_dir, 2, 0, &err) < 0 ||
        cw_runner_new(r->local.sequence, &o, &r->runner, &err) < 0)
        fail_msg("%s", err.message);
    const struct cw_compiled *c = r->local.compiled;
    r->cut = (struct cut){.size = size ? size : r->local.sequence->n_positions,
                          .n_positions = r->local.sequence->n_positions,
                          .align = c->counted && !c->sequential ? c->batch_size : 1};
    cw_budget_init(&r->budget, (size_t)1 << 30);
    assert_int_equal(cw_slab_pool_init(&r->slabs, true, &r->budget, &err), 0);
    assert_int_equal(cw_layout_init(&r->layout, c, &r->budget, &err), 0);
}

static void reference_deinit(struct reference *r)
{
    cw_layout_deinit(&r->layout);
    cw_slab_pool_deinit(&r->slabs);
    assert_int_equal(atomic_load(&r->budget.used), 0);
    cw_runner_free(r->runner);
    cw_local_deinit(&r->local);
    while (r->batches) {
        struct expected *e = r->batches;
        r->batches = e->next;
        free(e);
    }
}

/* The batches of a range. */
static void look_at_range(struct reference *r, uint64_t range)
{
    struct cw_error err = {0};
    struct cw_range *s;
    struct cw_assembly *a;
    uint64_t arrived[64] = {0};
    int status;
    const struct cw_range_options o = {.seed = r->seed,
                                       .from.position = range * r->cut.size,
                                       .end = CW_MIN((range + 1) * r->cut.size, r->cut.n_positions)};
    assert_int_equal(cw_runner_open(r->runner, &o, &s, &err), 0);
    for (uint64_t i = 0; (status = cw_runner_next(r->runner, s, 0, &a, &err)) == 0; i++) {
        struct expected *e = malloc(sizeof(*e));
        assert_int_equal(cw_runner_finish(r->runner, a, r->seed, 0, 0, &err), 0);
        *e = (struct expected){.next = r->batches,
                               .range = range,
                               .index = i,
                               .first = arrived[a->bucket],
                               .n = a->n_assigned,
                               .key = a->bucket};
        arrived[a->bucket] += e->n;
        struct cw_batch *b = cw_runner_take_batch(r->runner, a);
        e->hash = hash_at(b, i);
        cw_runner_release(r->runner, b);
        r->batches = e;
    }
    if (status < 0)
        fail_msg("%s", err.message);
    cw_runner_close(r->runner, s);
}

static const struct expected *find_expected(const struct reference *r, uint64_t range, uint32_t key,
                                            uint64_t index)
{
    for (const struct expected *e = r->batches; e; e = e->next)
        if (e->range == range && (has_rows(r) ? e->key == key && e->first == index : e->index == index))
            return e;
    return NULL;
}

/* key and index: as in Batch. */
static const struct expected *expected_as(struct reference *r, uint64_t range, uint32_t key, uint64_t index)
{
    const struct expected *e = find_expected(r, range, key, index);
    if (!e) {
        look_at_range(r, range);
        e = find_expected(r, range, key, index);
    }
    if (!e)
        fail_msg("there is no batch %llu of range %llu", (unsigned long long)index,
                 (unsigned long long)range);
    return e;
}

/* Batch `index` of a range in the order in which they come. */
static const struct expected *expected_at(struct reference *r, uint64_t range, uint64_t index)
{
    for (int times = 0; times < 2; times++) {
        for (const struct expected *e = r->batches; e; e = e->next)
            if (e->range == range && e->index == index)
                return e;
        look_at_range(r, range);
    }
    fail_msg("there is no batch %llu of range %llu", (unsigned long long)index, (unsigned long long)range);
    return NULL;
}

/* A batch that came, whose ids and components are to be freed. */
static struct cw_batch open_batch(const struct reference *r, struct fake *f, const struct got *g,
                                  struct cw_quarantined **ret_quarantined)
{
    if (g->m->of_case == CACHEW__ENVELOPE__OF_RANGE_FAILED)
        fail_msg("no batch: %s", g->m->range_failed->why->message);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_BATCH);
    const Cachew__Batch *m = g->m->batch;
    struct cw_memory memory[2] = {{.data = g->payload, .size = g->size}};
    struct cw_batch b = {0};
    struct cw_error err = {0};
    for (size_t i = 0; i < m->n_slabs; i++)
        for (size_t k = 0; k < f->n_mapped; k++)
            if (f->mapped[k].region == m->slabs[i]->region) {
                assert_true(m->slabs[i]->offset <= f->mapped[k].size &&
                            m->slabs[i]->size <= f->mapped[k].size - m->slabs[i]->offset);
                memory[i] = (struct cw_memory){.data = f->mapped[k].data + m->slabs[i]->offset,
                                               .size = m->slabs[i]->size};
            }
    if (cw_wire_batch_read(m, r->local.compiled, memory, &b, ret_quarantined, &err) < 0)
        fail_msg("%s", err.message);
    for (unsigned k = 0; k < b.n_components; k++)
        assert_int_equal((uintptr_t)b.components[k].data % 64, 0);
    return b;
}

/* The hash of a batch that came, with number g. Returns how many of its records were quarantined. */
static size_t read_batch(const struct reference *r, struct fake *f, const struct got *g, uint64_t number,
                         struct cw_hash128 *ret)
{
    struct cw_quarantined *quarantined = NULL;
    struct cw_batch b = open_batch(r, f, g, &quarantined);
    size_t n = 0;
    for (const struct cw_quarantined *q = quarantined; q; q = q->next)
        n += !q->note;
    *ret = hash_at(&b, number);
    free(b.components);
    free(b.ids);
    cw_quarantined_free(quarantined);
    return n;
}

static void assert_same(struct cw_hash128 a, struct cw_hash128 b)
{
    assert_true(a.lo == b.lo && a.hi == b.hi);
}

/* A batch that came is the one of that place. */
static void check_batch(struct reference *r, struct fake *f, const struct got *g)
{
    struct cw_hash128 hash;
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_BATCH);
    const Cachew__Batch *m = g->m->batch;
    const struct expected *e = expected_as(r, m->begin / r->cut.size, m->key, m->index);
    read_batch(r, f, g, e->index, &hash);
    assert_same(hash, e->hash);
}

/* ---- a stream ---- */

/* Leased, and the worker knows: what is said on other connections from here on finds it. */
static void lease(unsigned stream, uint64_t epoch, uint64_t first, uint64_t n, uint64_t batch)
{
    size_t before = status_now().n_leases;
    send_lease(stream, epoch, first, n, batch);
    run_until(status_now().n_leases == before + n);
}

/* size: positions of a range; 0: all of them. */
static Cachew__Prepared *prepare(unsigned stream, const char *chain, uint64_t size, struct got **ret)
{
    struct got *g = wait_got(&dispatcher, is_answer, send_prepare(stream, chain, 5), 0);
    if (g->m->of_case != CACHEW__ENVELOPE__OF_PREPARED)
        fail_msg("not prepared: %s",
                 g->m->of_case == CACHEW__ENVELOPE__OF_FAILURE ? g->m->failure->message : "?");
    *ret = g;
    const Cachew__Plan *plan = g->m->prepared->plan;
    cuts[stream] = (struct cut){
        .size = size ? size : plan->n_positions, .n_positions = plan->n_positions, .align = plan->align};
    return g->m->prepared;
}

static struct reference reference;
static struct got *prepared;

static uint64_t n_ranges(void)
{
    return (cuts[0].n_positions + cuts[0].size - 1) / cuts[0].size;
}

/* A worker with one stream prepared, in ranges of so many positions, and a client. */
static void start_with(const char *chain, uint64_t size, enum transport t, size_t memory)
{
    struct cw_worker_options o = worker_defaults();
    o.memory = memory;
    reference_init(&reference, chain, 5, size);
    worker_start(&o);
    prepare(0, chain, size, &prepared);
    client_connect(&clients[0], t);
}

static void end_all(void)
{
    send_forget(0);
    run_until(status_now().n_streams == 0);
    run_until(status_now().n_out == 0);
    run_until(status_now().memory_used == 0);
    got_free(prepared);
    reference_deinit(&reference);
}

/* Asks for batch `index` of a range of stream 0, as it comes when the range is run by itself. */
static uint64_t send_get_at(struct fake *f, uint64_t range, uint64_t index)
{
    if (!has_rows(&reference))
        return send_get(f, 0, 0, range, index, 1);
    const struct expected *e = expected_at(&reference, range, index);
    return send_want(f, 0, 0, range, CACHEW__WHAT__WHAT_ROWS, e->key, e->first, e->n);
}

/* One batch is had, checked and given back. */
static void fetch(struct fake *f, uint64_t range, uint64_t index)
{
    struct got *g = wait_got(f, is_answer, send_get_at(f, range, index), 0);
    if (g->m->of_case == CACHEW__ENVELOPE__OF_RANGE_FAILED)
        fail_msg("no batch: %s", g->m->range_failed->why->message);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_BATCH);
    assert_int_equal(g->m->batch->begin, range * reference.cut.size);
    const struct expected *e = expected_at(&reference, range, index);
    assert_int_equal(g->m->batch->index, has_rows(&reference) ? e->first : index);
    assert_int_equal(g->m->batch->key, has_rows(&reference) ? e->key : 0);
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
