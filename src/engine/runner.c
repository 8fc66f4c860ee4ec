/* Starts and ends a runner, and opens and closes its ranges. */
#include <errno.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/account.h"
#include "engine/carve.h"
#include "engine/compute.h"
#include "engine/internal.h"

/* How long running calls for a closed range may take before they are cancelled. Cancelling ends the process
 * of a Python function. */
#define CLOSE_NS UINT64_C(100000000)

/* Returns the position after everything that was carved, rounded up to the end of a batch where batches
 * follow from positions; the range's begin if nothing was carved. */
static uint64_t range_progress(const struct cw_runner *r, const struct cw_range *s)
{
    const struct piece *p = s->first;
    while (p && p->carved == p->plan.n)
        p = p->next;
    uint64_t at = p ? p->plan.begin + p->carved : s->position,
             size = r->compiled->counted ? r->compiled->batch_size : 1;
    return at > s->begin ? CW_MIN(CW_ALIGN_UP(at, size), s->end) : s->begin;
}

uint64_t cw_runner_shorten(struct cw_runner *r, struct cw_range *s)
{
    CW_GUARD(&r->sched.mutex);
    uint64_t end = range_progress(r, s);
    if (s->state != RANGE_OPEN || r->sched.planning || end <= s->begin || end >= s->end)
        return 0;
    struct piece **at = &s->first;
    for (; *at && (*at)->plan.begin < end; at = &(*at)->next)
        (*at)->plan.n = CW_MIN((*at)->plan.n, end - (*at)->plan.begin);
    while (*at)
        cw_piece_free(CW_POP(*at));
    s->position = s->end = s->limit = end;
    cw_sched_wake(r);
    return end;
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
    r->reads.tail = &r->reads.first;
    r->started_ns = cw_now_ns();
    pthread_mutex_init(&r->sched.mutex, NULL);
    pthread_cond_init(&r->sched.work, NULL);
    cw_cond_init(&r->sched.done);
    pthread_cond_init(&r->reads.wake, NULL);
    pthread_cond_init(&r->read_in.wake, NULL);
    r->memory.given = o->memory;
    cw_budget_init(&r->memory.budget, o->memory);
    int status = cw_slab_pool_init(&r->memory.slabs, o->lends, &r->memory.budget, err);
    r->sched.n_threads = o->more_threads ? CW_MAX(o->threads, CW_THREADS_MOST) : o->threads;
    r->sched.threads = calloc(r->sched.n_threads, sizeof(*r->sched.threads));
    cw_width_init(r);
    if (!r->sched.threads)
        status = cw_error_nomem(err, 0, "the engine");
    if (status >= 0)
        status = cw_block_sizes_new(r, err);
    if (status >= 0)
        status = cw_account_new(r, err);
    r->env.needs_eids = c->pipeline->on_error == CW_ON_ERROR_REPLACE;
    for (unsigned i = 0; i < c->n_programs; i++)
        for (unsigned k = 0; k < c->programs[i].n_ops; k++)
            r->env.needs_eids |= c->programs[i].ops[k]->desc->effects.random ||
                                 c->programs[i].ops[k]->desc->function;
    if (status >= 0)
        status = cw_cache_stats_new(r, err);
    r->env.joint = status >= 0 && c->n_programs > 1 && !c->n_limits && r->cache.n == 1;
    for (unsigned i = 0; r->env.joint && i < c->n_programs; i++) /* joint blocks run unfused */
        r->env.joint = c->programs[i].n_branch && r->env.uncached[i].optimized->n_owned == 0;
    if (status >= 0)
        status = cw_layout_init(&r->layout, c, &r->memory.budget, err);
    if (status >= 0)
        status = cw_memory_start(r, err);
    cw_carve_record(r);
    if (status >= 0)
        status = cw_compute_start(r, err);
    if (status < 0) {
        cw_runner_free(r);
        return status;
    }
    *ret = r;
    return 0;
}

static void blocks_free(struct cw_runner *r, struct block *list)
{
    while (list)
        cw_block_free(r, CW_POP(list));
}

struct cw_runner *cw_runner_free(struct cw_runner *r)
{
    if (!r)
        return NULL;
    cw_compute_stop(r);
    for (struct cw_range *s = r->ranges; s; s = s->next)
        blocks_free(r, s->parked);
    blocks_free(r, r->sched.ready);
    blocks_free(r, r->sched.starved);
    blocks_free(r, r->reads.first);
    blocks_free(r, r->sched.spare);
    while (r->ranges)
        cw_range_free(r, CW_POP(r->ranges));
    cw_epoch_ref_drop(r->epoch);
    cw_sequence_trim(r->sequence, &r->memory.budget);
    cw_cache_stats_free(r);
    for (unsigned i = 0; r->sched.threads && i < r->sched.n_threads; i++)
        cw_counts_deinit(&r->sched.threads[i].counts);
    free(r->sched.threads);
    free(r->block_sizes);
    free(r->profile.ops);
    free(r->profile.values);
    cw_layout_deinit(&r->layout);
    cw_slab_pool_deinit(&r->memory.slabs);
    pthread_cond_destroy(&r->sched.work);
    pthread_cond_destroy(&r->sched.done);
    pthread_cond_destroy(&r->reads.wake);
    pthread_cond_destroy(&r->read_in.wake);
    pthread_mutex_destroy(&r->sched.mutex);
    free(r);
    return NULL;
}

static int runner_get_epoch(struct cw_runner *r, uint64_t seed, uint64_t epoch, struct epoch_ref **ret,
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
        int status = cw_epoch_init(&e->epoch, r->sequence, seed, epoch, &r->memory.budget, err);
        if (status < 0) {
            free(e);
            return status;
        }
        e->epoch.stopped = cw_sched_stopped;
        e->epoch.stop_arg = r;
        e->refs = 1;
        cw_epoch_ref_drop(r->epoch);
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
    s->counts.limits = calloc(r->compiled->n_limits + 1, sizeof(*s->counts.limits));
    s->open = calloc(n_keys + 1, sizeof(*s->open));
    s->groups = calloc(n_keys + 1, sizeof(*s->groups));
    s->counts.arrived = calloc(n_keys + 1, sizeof(*s->counts.arrived));
    s->counts.batched = calloc(n_keys + 1, sizeof(*s->counts.batched));
    s->keyed.by_key = s->rows ? calloc(n_keys, sizeof(*s->keyed.by_key)) : NULL;
    if (!s->passed || !s->counts.limits || !s->open || !s->groups || !s->counts.arrived ||
        !s->counts.batched || (s->rows && !s->keyed.by_key))
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
    /* elements beyond the last whole batch are not computed */
    if (last && r->compiled->counted && r->compiled->grouping.full_only)
        s->limit = CW_MAX(s->begin, o->end / r->compiled->batch_size * r->compiled->batch_size);
    int status = range_alloc(r, s, &o->from, err);
    if (status >= 0)
        cw_range_begin(r, s);
    CW_GUARD(&r->sched.mutex);
    if (status >= 0)
        status = runner_get_epoch(r, o->seed, o->epoch, &s->epoch, err);
    if (status >= 0) {
        struct cw_range **at = &r->ranges;
        while (*at && !cw_range_before(s, *at))
            at = &(*at)->next;
        s->next = *at;
        *at = s;
        *ret = s;
        /* the range for which the consumer lacked memory is not the first any more; the consumer asks again
         * as for a later range */
        if (s == r->ranges)
            cw_memory_served(r);
        cw_sched_wake(r);
    } else {
        cw_range_free(r, s);
    }
    return status;
}

void cw_runner_close(struct cw_runner *r, struct cw_range *s)
{
    CW_GUARD(&r->sched.mutex);
    s->closed = true;
    cw_reads_drop(r, s);
    uint64_t until_ns = cw_now_ns() + CLOSE_NS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    for (;;) { /* blocks that run or are read see `closed` and end */
        cw_blocks_drop(r, &r->sched.ready, s);
        cw_blocks_drop(r, &r->sched.starved, s);
        cw_blocks_drop(r, &s->parked, s);
        if (!s->n_blocks)
            break;
        if (s->cancelled)
            pthread_cond_wait(&r->sched.done, &r->sched.mutex);
        else if (pthread_cond_timedwait(&r->sched.done, &r->sched.mutex, &until) == ETIMEDOUT)
            s->cancelled = true;
    }
    struct cw_range **at = &r->ranges;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    cw_range_free(r, s);
    r->memory.consumer_short =
        false;             /* what lacked memory may be gone with the range; otherwise this is set again */
    cw_memory_released(r); /* also because another range is the first now */
}

void cw_runner_tuned(struct cw_runner *r, struct cw_tuned_log *ret)
{
    CW_GUARD(&r->sched.mutex);
    cw_tuned_add_all(ret, &r->tuned);
}

void cw_runner_fused(const struct cw_runner *r, unsigned *ret)
{
    for (unsigned i = 0; i < r->compiled->pipeline->n_ops; i++)
        ret[i] = i;
    for (unsigned k = 0; k < r->compiled->n_programs; k++) {
        const struct cw_optimized *o = cw_runner_variant(r, atomic_load(&r->cache.in_use), k)->optimized;
        for (unsigned i = 0; i < r->compiled->pipeline->n_ops; i++)
            if (o->fused_into[i] != i)
                ret[i] = o->fused_into[i];
    }
}
