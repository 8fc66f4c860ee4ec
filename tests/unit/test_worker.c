/* A worker: its batches are those of an iterator, whatever clients and dispatchers do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "worker_world.h"

#define RANGE "{\"op\": \"range\", \"stop\": 4000}, {\"op\": \"assign\", \"set\": {\"half\": \"value * 0.5\"}}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 16}"
#define FILTER "{\"op\": \"range\", \"stop\": 6000}, {\"op\": \"filter\", \"where\": \"value % 3 != 1\"}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 32}"
#define BYTES "{\"op\": \"text\", \"files\": \"lines.txt\"}, {\"op\": \"batch\", \"size\": 8}"
#define LENGTHS "{\"op\": \"text\", \"files\": \"lines.txt\"}, {\"op\": \"bucket_by_length\", \"length\": \"length(text)\", \"boundaries\": [10, 20, 30], \"sizes\": [8, 6, 4, 2]}"
#define SINGLE "{\"op\": \"range\", \"stop\": 300}"

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

static int make_lines(void **state)
{
    FILE *f;
    char path[300];
    if (temp_make(state) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/lines.txt", temp_dir);
    if (!(f = fopen(path, "w")))
        return -1;
    for (int i = 0; i < 2000; i++)
        fprintf(f, "%.*s%d\n", i * 7919 % 35, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", i);
    return fclose(f);
}

#define world_test(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(counted_shared), world_test(counted_tcp), world_test(counted_local), world_test(filtered_shared), world_test(filtered_tcp),
        world_test(bytes_shared), world_test(bytes_tcp), world_test(buckets_shared), world_test(buckets_tcp), world_test(elements_shared),
    };
    return cmocka_run_group_tests(tests, make_lines, temp_remove);
}
