/* A runner from its start to its end, and its ranges. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"

#include "base/clock.h"
#include "base/thread.h"

/* What batches may take of the budget; the rest is for reading and scratch. */
#define SLAB_SHARE(memory) ((memory) / 10 * 6)
/* With memory to spare, this much output may be under way. */
#define SLAB_AHEAD ((size_t)64 << 20)
/* Calls that run for a range that is closed may end by themselves for so long. Then they are cancelled, which
 * costs a Python function its process. */
#define CLOSE_NS UINT64_C(100000000)

/* How many batches may be under way with the memory there is. */
static void set_assemblies(struct cw_runner *r, size_t memory)
{
    size_t slab = r->layout.slab_bytes ? cw_slab_charge(r->layout.slab_bytes) : 0;
    size_t batch = slab + cw_assembly_bytes(&r->layout, r->compiled->batch_size),
           plan = cw_exec_plan_bytes(r->sequence, r->sequence->piece_size);
    size_t by_memory = SLAB_SHARE(memory - plan) / batch;
    size_t by_output = slab ? SLAB_AHEAD / slab : 4096, by_threads = r->options.threads * 2 + 2,
           wanted = CW_MAX(by_output, by_threads);
    unsigned before = r->max_assemblies;
    r->few_assemblies = by_memory < wanted;
    wanted = CW_MIN(wanted, by_memory);
    r->max_assemblies = (unsigned)CW_MIN(CW_MAX(wanted, r->compiled->counted ? 1u : 3u), 4096u);
    if (r->compiled->batcher == CW_BATCHER_BUCKET)
        r->max_assemblies += 2 * r->compiled->n_buckets * (unsigned)CW_MIN(r->options.threads + 2, 16u);
    const struct cw_tuned t = {
        .what = "batches_under_way",
        .seen = {{"batch_bytes", (double)batch},
                 {"memory_bytes", (double)memory},
                 {"threads", r->options.threads},
                 {r->compiled->batcher == CW_BATCHER_BUCKET ? "buckets" : NULL, r->compiled->n_buckets}},
        .others = {{"threads", (double)by_threads},
                   {"output", (double)by_output},
                   {"memory", (double)by_memory}},
        .chosen = r->max_assemblies,
        .why = r->few_assemblies        ? "batches may take so much of the memory budget"
               : by_output > by_threads ? "so much output may lie ready"
                                        : "two for each thread, and two",
    };
    if (r->max_assemblies != before)
        cw_tuned_add(&r->tuned, &t);
}

static int check_budget(struct cw_runner *r, struct cw_error *err)
{
    size_t slab = r->layout.slab_bytes ? cw_slab_charge(r->layout.slab_bytes) : 0, memory = r->budget.limit;
    size_t batch = slab + cw_assembly_bytes(&r->layout, r->compiled->batch_size),
           plan = cw_exec_plan_bytes(r->sequence, r->sequence->piece_size);
    /* one to fill; where the count is unknown one more to put one together in; the records they are made of;
     * and scratch for a block */
    size_t least = batch * (r->compiled->counted ? 1 : 2) + plan + ((size_t)1 << 20);
    r->least = least;
    if (memory < least) {
        char what[160];
        snprintf(what, sizeof(what), "a batch of %llu takes %zu bytes, the plan of a range %zu",
                 (unsigned long long)r->compiled->batch_size, batch, plan);
        return cw_too_small(r, cw_memory_needed(r, &(struct cw_place){0}, least), what, err);
    }
    set_assemblies(r, memory);
    return 0;
}

size_t cw_runner_set_memory(struct cw_runner *r, size_t given)
{
    size_t memory = CW_MAX(given, r->least);
    CW_GUARD(&r->mutex);
    r->given = given;
    atomic_store(&r->budget.limit, memory);
    set_assemblies(r, memory);
    if (atomic_load(&r->budget.used) > memory)
        cw_slab_trim(&r->slabs);
    cw_released(r); /* where it is more now */
    return memory;
}

size_t cw_runner_memory_used(struct cw_runner *r)
{
    return atomic_load(&r->budget.used);
}

unsigned cw_runner_threads(const struct cw_runner *r)
{
    return r->options.threads;
}

int cw_runner_new(const struct cw_sequence *s, const struct cw_runner_options *o, struct cw_runner **ret,
                  struct cw_error *err)
{
    const struct cw_compiled *c = s->compiled;
    struct cw_runner *r = calloc(1, sizeof(*r));
    if (!r)
        return cw_error_nomem(err, sizeof(*r), "the engine");
    *r = (struct cw_runner){.sequence = s,
                            .compiled = c,
                            .options = *o,
                            .env = {.sequence = s, .compiled = c, .n_points = c->n_limits + 1}};
    r->reading_tail = &r->reading;
    r->started_ns = cw_now_ns();
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->work, NULL);
    cw_cond_init(&r->done);
    pthread_cond_init(&r->reads, NULL);
    pthread_cond_init(&r->read_in_work, NULL);
    r->given = o->memory;
    cw_budget_init(&r->budget, o->memory);
    int status = cw_slab_pool_init(&r->slabs, o->lends, &r->budget, err);
    r->threads = calloc(o->threads, sizeof(*r->threads));
    if (!r->threads)
        status = cw_error_nomem(err, 0, "the engine");
    if (status >= 0)
        status = cw_rows_new(r, err);
    if (status >= 0)
        status = cw_account_new(r, err);
    r->env.needs_eids = c->pipeline->on_error == CW_ON_ERROR_REPLACE;
    for (unsigned i = 0; i < c->n_programs; i++)
        for (unsigned k = 0; k < c->programs[i].n_ops; k++)
            r->env.needs_eids |= c->programs[i].ops[k]->desc->random || c->programs[i].ops[k]->desc->function;
    if (status >= 0)
        status = cw_choices_new(r, err);
    if (status >= 0)
        status = cw_layout_init(&r->layout, c, &r->budget, err);
    if (status >= 0)
        status = check_budget(r, err);
    cw_blocks_tell(r);
    if (status >= 0)
        status = cw_pool_start(r, err);
    if (status < 0) {
        cw_runner_free(r);
        return status;
    }
    *ret = r;
    return 0;
}

static void free_blocks(struct cw_runner *r, struct block *list)
{
    while (list)
        cw_block_free(r, CW_POP(list));
}

struct cw_runner *cw_runner_free(struct cw_runner *r)
{
    if (!r)
        return NULL;
    cw_pool_stop(r);
    for (struct cw_range *s = r->ranges; s; s = s->next)
        free_blocks(r, s->parked);
    free_blocks(r, r->ready);
    free_blocks(r, r->starved);
    free_blocks(r, r->reading);
    free_blocks(r, r->idle);
    while (r->ranges)
        cw_range_free(r, CW_POP(r->ranges));
    cw_epoch_unref(r->epoch);
    cw_choices_free(r);
    for (unsigned i = 0; r->threads && i < r->options.threads; i++)
        cw_counts_deinit(&r->threads[i].counts);
    free(r->threads);
    free(r->spare_plan);
    free(r->rows);
    free(r->profile.ops);
    free(r->profile.values);
    cw_layout_deinit(&r->layout);
    cw_slab_pool_deinit(&r->slabs);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->done);
    pthread_cond_destroy(&r->reads);
    pthread_cond_destroy(&r->read_in_work);
    pthread_mutex_destroy(&r->mutex);
    free(r);
    return NULL;
}

static int epoch_get(struct cw_runner *r, uint64_t seed, uint64_t epoch, struct epoch_ref **ret,
                     struct cw_error *err)
{
    for (struct cw_range *s = r->ranges; s; s = s->next)
        if (s->epoch->epoch.epoch == epoch && s->epoch->epoch.seed == seed) {
            s->epoch->refs++;
            *ret = s->epoch;
            return 0;
        }
    if (!r->epoch || r->epoch->epoch.epoch != epoch || r->epoch->epoch.seed != seed) {
        struct epoch_ref *e = calloc(1, sizeof(*e));
        if (!e)
            return cw_error_nomem(err, sizeof(*e), "an epoch");
        int status = cw_epoch_init(&e->epoch, r->sequence, seed, epoch, &r->budget, err);
        if (status < 0) {
            free(e);
            return status;
        }
        e->refs = 1;
        cw_epoch_unref(r->epoch);
        r->epoch = e;
    }
    r->epoch->refs++;
    *ret = r->epoch;
    return 0;
}

static int range_alloc(const struct cw_runner *r, struct cw_range *s, const struct cw_entry *from,
                       struct cw_error *err)
{
    unsigned n_keys = cw_n_keys(r->compiled);
    s->passed = calloc(r->env.n_points, sizeof(*s->passed));
    s->limits = calloc(r->compiled->n_limits + 1, sizeof(*s->limits));
    s->open = calloc(n_keys + 1, sizeof(*s->open));
    s->arrived = calloc(n_keys + 1, sizeof(*s->arrived));
    s->batched = calloc(n_keys + 1, sizeof(*s->batched));
    s->by_key = s->rows ? calloc(n_keys, sizeof(*s->by_key)) : NULL;
    if (!s->passed || !s->limits || !s->open || !s->arrived || !s->batched || (s->rows && !s->by_key))
        return cw_error_nomem(err, 0, "a range");
    int status = cw_entry_init(r->compiled, &s->entry, err);
    if (status >= 0)
        cw_entry_set(r->compiled, &s->entry, from);
    return status;
}

int cw_runner_open(struct cw_runner *r, const struct cw_range_options *o, struct cw_range **ret,
                   struct cw_error *err)
{
    struct cw_range *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a range");
    *s = (struct cw_range){.runner = r, .begin = o->from.position, .limit = o->end, .rows = o->rows};
    bool last = o->end < CW_ENDLESS && o->end == r->sequence->n_positions;
    if (last && r->compiled->counted && r->compiled->drop_remainder) /* what is left over is not computed */
        s->limit = CW_MAX(s->begin, o->end / r->compiled->batch_size * r->compiled->batch_size);
    int status = range_alloc(r, s, &o->from, err);
    if (status >= 0)
        cw_range_begin(r, s);
    CW_GUARD(&r->mutex);
    if (status >= 0)
        status = epoch_get(r, o->seed, o->epoch, &s->epoch, err);
    if (status >= 0) {
        struct cw_range **at = &r->ranges;
        while (*at && !cw_range_before(s, *at))
            at = &(*at)->next;
        s->next = *at;
        *at = s;
        *ret = s;
        /* the one that the consumer lacked memory for is not the first any more: it asks as for a later one
         */
        if (s == r->ranges)
            cw_consumer_served(r);
        cw_work(r);
    } else {
        cw_range_free(r, s);
    }
    return status;
}

static void drop_waiting(struct cw_runner *r, struct block **list, const struct cw_range *s)
{
    while (*list) {
        struct block *b = *list;
        if (b->range != s) {
            list = &b->next;
            continue;
        }
        *list = b->next;
        b->piece->users--;
        b->range->n_blocks--;
        cw_block_recycle(r, b);
    }
}

void cw_runner_close(struct cw_runner *r, struct cw_range *s)
{
    CW_GUARD(&r->mutex);
    s->closed = true;
    cw_reads_drop(r, s);
    uint64_t until_ns = cw_now_ns() + CLOSE_NS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    for (;;) { /* blocks that run or read see `closed` and end */
        drop_waiting(r, &r->ready, s);
        drop_waiting(r, &r->starved, s);
        drop_waiting(r, &s->parked, s);
        if (!s->n_blocks)
            break;
        if (s->cancelled)
            pthread_cond_wait(&r->done, &r->mutex);
        else if (pthread_cond_timedwait(&r->done, &r->mutex, &until) == ETIMEDOUT)
            s->cancelled = true;
    }
    for (struct cw_range **at = &r->ranges; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    cw_range_free(r, s);
    r->consumer_short = false; /* what lacked memory may be gone with the range; else this is set again */
    cw_released(r);            /* and another range is the first now */
}

void cw_runner_tuned(struct cw_runner *r, struct cw_tuned_log *ret)
{
    CW_GUARD(&r->mutex);
    cw_tuned_add_all(ret, &r->tuned);
}

void cw_runner_fused(const struct cw_runner *r, unsigned *ret)
{
    for (unsigned i = 0; i < r->compiled->pipeline->n_ops; i++)
        ret[i] = i;
    for (unsigned k = 0; k < r->compiled->n_programs; k++) {
        const struct cw_optimized *o = cw_way(r, atomic_load(&r->choice), k)->optimized;
        for (unsigned i = 0; i < r->compiled->pipeline->n_ops; i++)
            if (o->fused_into[i] != i)
                ret[i] = o->fused_into[i];
    }
}
