/* The compute threads of a runner: choose what runs next, run blocks and plans, and handle those that get no
 * memory. Terms: a block is a number of consecutive elements that are computed together. A point is a place
 * in the pipeline that the blocks of a range pass in order. A piece is a number of positions that are planned
 * at a time; its plan says which records they need. Carving takes the next block from a piece. A block or
 * plan that got no memory is starved. All functions hold r->sched.mutex unless they say otherwise; the runner
 * calls cw_compute_start and cw_compute_stop. */
#include "engine/compute.h"

#include "base/cost_clock.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "engine/account.h"
#include "engine/batch_ops.h"
#include "engine/carve.h"
#include "engine/emit.h"
#include "engine/internal.h"
#include "engine/range_rows.h"
#include "engine/slots.h"
#include "engine/width.h"

/* One block in 256 runs unfused, to measure how the time of fused operators divides. Unfused, a photograph
 * takes half as long again, so more such blocks would slow the run noticeably. The first sample comes early,
 * because epochs may be short. */
#define SAMPLE_EVERY 256
#define SAMPLE_FIRST 31
/* With the option `detail`, the run measures more quantities, and samples more often. */
#define SAMPLE_DETAIL 32
#define SAMPLE_DETAIL_FIRST 3

/* ---- one block ---- */

static int slab_now(size_t size, struct cw_slab **ret, void *slabs, struct cw_error *err)
{
    return cw_slab_get(slabs, size, ret, err);
}

/* Makes the final form of a batch. Mutex not held. */
static int batch_finish(struct cw_runner *r, struct compute_thread *t, struct cw_range *s,
                        struct cw_assembly *a, struct cw_error *err)
{
    const struct cw_epoch *e = &s->epoch->epoch;
    uint64_t start = cw_cost_now_ns();
    int status = cw_assembly_finish(a, &r->memory.slabs, err);
    t->counts.emit_ns += cw_cost_now_ns() - start;
    if (status < 0)
        return status;
    return cw_batch_apply(r->compiled, a, e->seed, e->epoch, t->counts.ops, cw_range_stopped, s, slab_now,
                          &r->memory.slabs, err);
}

/* Finishes the batches that a block completed. The mutex is released while a batch is finished, because that
 * may take long. */
static void block_finish_batches(struct cw_runner *r, struct compute_thread *t, struct block *b)
{
    bool any = false;
    for (unsigned i = 0; i < b->n_segments; i++) {
        /* mark all of them before the mutex is released: the consumer may take a batch that is not marked
         * meanwhile */
        struct cw_assembly *a = b->segments[i].assembly;
        bool complete = cw_assembly_complete(a);
        b->segments[i].completed = complete && !a->error && !a->finishing && !a->batch && !a->part &&
                                   !b->range->rows;
        a->finishing |= b->segments[i].completed;
        any |= complete;
    }
    for (unsigned i = 0; i < b->n_segments; i++) {
        struct cw_assembly *a = b->segments[i].assembly;
        struct cw_error err = {0};
        if (!b->segments[i].completed)
            continue;
        pthread_mutex_unlock(&r->sched.mutex);
        int status = batch_finish(r, t, b->range, a, &err);
        pthread_mutex_lock(&r->sched.mutex);
        a->finishing = false;
        /* after CW_E_BUDGET the consumer finishes the batch when there is memory */
        if (status < 0 && status != CW_E_BUDGET)
            cw_assembly_poison(a, &err, UINT64_MAX);
    }
    if (any) {
        cw_range_forget_rows(r, b->range);
        cw_sched_notify(r);
    }
}

/* Returns whether the work of a thread for a range is not needed any more. */
static bool range_is_over(const struct cw_runner *r, const struct cw_range *s)
{
    return r->sched.stop || s->closed;
}

/* What happens to a block after a thread has run it. */
enum block_fate {
    BLOCK_RUNS_ON, /* it runs on, to its next point */
    BLOCK_LEFT,    /* it is parked, or is being read */
    BLOCK_ENDED,   /* it is done, or ended with an error */
};

/* Runs a block to its next point. The mutex is released meanwhile. Sets *ret_status if the block ended. */
static enum block_fate block_run_stage(struct cw_runner *r, struct compute_thread *t, struct block *b,
                                       int *ret_status, struct cw_error *err)
{
    struct cw_exec *x = &b->exec;
    struct cw_range *s = b->range;
    bool nowait = r->memory.starved != STARVED_ALONE; /* a block that runs alone reads its bytes itself */
    x->cache.patience_ns = nowait ? CW_CACHE_AT_ONCE : cw_cache_stats_patience(r, b);
    pthread_mutex_unlock(&r->sched.mutex);
    int status = x->reads.done ? 0 : cw_exec_read(x, &t->counts, nowait, err);
    if (status == 0)
        status = b->point < r->env.n_points ? cw_block_stage(r, t, b, err) : cw_emit_block(r, t, b, err);
    pthread_mutex_lock(&r->sched.mutex);
    if (status == 0)
        cw_block_size_called(r, t, x->program->leaf, x->n_refs);
    *ret_status = status;
    if (status < 0 || (status == 1 && range_is_over(r, s)))
        return BLOCK_ENDED;
    if (status == 1) { /* the bytes are not in memory */
        if (!r->reads.cold) {
            r->reads.cold = true;
            cw_carve_record(r);
            cw_read_in_begin(r);
        }
        b->spent_ns += cw_cost_now_ns() - x->started_ns;
        cw_reads_add(r, b);
        return BLOCK_LEFT;
    }
    if (b->point == r->env.n_points) {
        uint64_t ns = cw_cost_now_ns() - x->started_ns;
        cw_block_size_timed(r, x->program->leaf, x->cache.hit,
                            (ns + (x->cache.hit ? b->cold_ns : 0)) / x->n_refs);
        b->spent_ns += ns;
        cw_cache_stats_measured(r, b);
        cw_slots_settle(r, b);
        block_finish_batches(r, t, b);
        return BLOCK_ENDED;
    }
    if (range_is_over(r, s))
        return BLOCK_ENDED;
    if (s->passed[b->point] != b->seq && b->n_passed == b->point) {
        cw_sched_park(b);
        return BLOCK_LEFT;
    }
    return BLOCK_RUNS_ON;
}

/* Takes a block past its point, once all earlier blocks of its range have passed it. Always sets *ret_status.
 */
static enum block_fate block_pass(struct cw_runner *r, struct block *b, int *ret_status, struct cw_error *err)
{
    struct cw_range *s = b->range;
    bool again = b->n_passed > b->point;
    int status = *ret_status = cw_slots_pass(r, b, err);
    if (status < 0)
        return BLOCK_ENDED;
    if (status == 1) { /* no batch can be had until one is released */
        cw_sched_park(b);
        cw_sched_notify(r);
        return BLOCK_LEFT;
    }
    if (!again) {
        s->passed[b->point]++;
        cw_sched_wake_next(r, s, b->point);
    }
    b->point++;
    return BLOCK_RUNS_ON;
}

/* Runs the block until it ends or has to wait. The mutex is held before and after. */
static void block_advance(struct cw_runner *r, struct compute_thread *t, struct block *b)
{
    struct cw_range *s = b->range;
    struct cw_error err = {0};
    int status = 0;
    enum block_fate fate = BLOCK_RUNS_ON;
    b->exec.started_ns = cw_cost_now_ns();
    r->sched.settled = false;
    r->sched.n_running++;
    while (fate == BLOCK_RUNS_ON && !range_is_over(r, s)) {
        bool turn = b->waited; /* it was parked, and its turn has come */
        b->waited = false;
        if (!turn)
            fate = block_run_stage(r, t, b, &status, &err);
        if (fate == BLOCK_RUNS_ON)
            fate = block_pass(r, b, &status, &err);
    }
    cw_sched_leave(r, &r->sched.n_running);
    if (fate == BLOCK_LEFT)
        return;
    if (status == CW_E_BUDGET && !range_is_over(r, s)) {
        cw_sched_starve(r, b);
        cw_sched_changed(r);
        return;
    }
    if (status < 0 && !range_is_over(r, s))
        cw_sched_fail(r, &err);
    b->piece->users--;
    s->n_blocks--;
    cw_block_recycle(r, b);
    cw_low_memory_passed(r, cw_range_collect(s));
    if (r->sched.n_blocks == 0 && r->memory.plan_short)
        cw_sched_wake(r);
    if ((s->n_blocks == 0 && (s->state != RANGE_OPEN || s->closed)) || r->memory.consumer_short ||
        r->sched.fatal.status)
        cw_sched_notify(r);
}

static void block_run(struct cw_runner *r, struct compute_thread *t, struct block *b)
{
    block_advance(r, t, b);
    cw_account_add(r, t);
    cw_width_note(r, t);
}

static void block_run_first(struct cw_runner *r, struct compute_thread *t, struct block *b)
{
    uint64_t every = r->options.detail ? SAMPLE_DETAIL : SAMPLE_EVERY,
             first = r->options.detail ? SAMPLE_DETAIL_FIRST : SAMPLE_FIRST;
    b->exec.plain = !r->memory.low_rows && t->n_run++ % every == first && (r->options.detail || cw_counted());
    block_run(r, t, b);
}

/* Ends the run, because a block of one element that runs alone does not fit in memory with its batch. Returns
 * false if memory was released meanwhile, so that the run goes on. Mutex held, but released meanwhile. */
static bool block_lacks(struct cw_runner *r, const struct block *b)
{
    struct cw_error err = {0};
    const struct cw_place at = cw_range_place(b->range, b->piece->plan.begin + b->exec.at);
    int status = cw_memory_lacks(
        r, &at, "an element and the batch that it belongs to do not fit in the memory budget together", &err);
    if (status < 0)
        cw_sched_fail(r, &err);
    return status < 0;
}

/* Returns whether block seq of a range has its turn but waits for a batch to be released. */
static bool range_waits_for_batch(const struct cw_range *s, uint64_t seq)
{
    for (const struct block *b = s->parked; b; b = b->next)
        if (b->seq == seq)
            return s->passed[b->point] == seq;
    return false;
}

/* Runs the earliest starved block alone, with all free memory, and if necessary with the memory of later
 * ranges. While it runs, no other block is run. */
static void starved_run(struct cw_runner *r, struct compute_thread *t)
{
    struct cw_memory *m = &r->memory;
    bool stuck;
    m->starved = STARVED_ALONE;
    for (;;) {
        cw_memory_evict(r); /* an earlier block may have become evictable */
        struct block *b = CW_POP(r->sched.starved);
        const struct cw_range *s = b->range;
        uint64_t seq = b->seq;
        block_run(r, t, b);
        b = r->sched.starved;
        if (!b || b->range != s || b->seq != seq) { /* the memory was enough */
            /* if it waits for a batch now, other blocks would get no memory either */
            stuck = range_waits_for_batch(s, seq);
            break;
        }
        /* the consumer may have released slabs meanwhile */
        if (cw_slab_trim(&m->slabs) > 0 || cw_memory_reclaim(r, s))
            continue;
        stuck = cw_memory_may_be_released(r) || r->sched.fatal.status ||
                (!cw_low_memory_begin(r) && block_lacks(r, b));
        break;
    }
    m->starved = stuck ? STARVED_STUCK : STARVED_TRY;
    while (r->sched.starved && !stuck)
        cw_sched_ready(r, CW_POP(r->sched.starved));
    cw_sched_changed(r);
}

/* ---- plans ---- */

/* Handles a piece whose plan gets no memory although nothing else is under way: enters low-memory mode, or
 * halves the piece, or ends the run. Mutex held, but released meanwhile. */
static void plan_lacks(struct cw_runner *r, struct cw_range *s, struct piece *p)
{
    const struct cw_place at = cw_range_place(s, p->plan.begin);
    struct cw_error err = {0};
    if ((!r->memory.low_rows && cw_low_memory_begin(r)) || cw_piece_halve(r, p))
        return;
    if (cw_memory_lacks(r, &at, "the list of the records to read next does not fit in the memory budget",
                        &err) < 0 &&
        !r->sched.fatal.status)
        r->sched.fatal = err;
}

/* Handles a plan that was refused memory. */
static void plan_was_refused(struct cw_runner *r, struct cw_range *s, struct piece *p)
{
    bool others = r->sched.n_blocks || r->sched.n_running || r->read_in.n_pieces || !r->memory.plan_short;
    if (others || cw_memory_reclaim(r, s) || cw_memory_may_be_released(r)) {
        /* tried again when something is released, or nothing else is under way */
        r->memory.plan_short = true;
        cw_memory_trim(r);
    } else if (!r->sched.fatal.status) {
        plan_lacks(r, s, p);
    }
}

/* Ends a range at the begin of piece p, where its stream failed. */
static void plan_end_stream(struct cw_range *s, struct piece *p, const struct cw_error *err)
{
    /* otherwise the operator `take` had all its elements, and ended the epoch before the failure */
    if (s->state == RANGE_OPEN)
        *s->failed = *err;
    p->planned = true;
    p->plan.n = p->carved = 0;
    s->end = s->position = p->plan.begin;
}

static void piece_plan(struct cw_runner *r, struct compute_thread *t, struct cw_range *s, struct piece *p)
{
    struct cw_error err = {0};
    r->sched.planning = true;
    r->sched.settled = false;
    p->users++;
    s->n_blocks++;
    r->sched.n_running++;
    pthread_mutex_unlock(&r->sched.mutex);
    int status = cw_piece_plan(r, t, s, p, &err);
    struct read_in *in = status >= 0 ? cw_read_in_new(r, p) : NULL;
    pthread_mutex_lock(&r->sched.mutex);
    if (status < 0)
        cw_piece_unplan(p); /* before other threads can see the piece again */
    cw_sched_leave(r, &r->sched.n_running);
    cw_account_add(r, t);
    r->sched.planning = false;
    p->users--;
    s->n_blocks--;
    if (status >= 0) {
        p->planned = !cw_read_in_piece(r, p, in);
        p->carved = CW_MIN(p->carved, p->plan.n);
        if (p->cut)
            s->position = CW_MAX(p->plan.begin + p->plan.n, s->entry.position);
        if (p->cut && p->carved == p->plan.n) /* the stream ends before the first position that is needed */
            s->end = s->position;
        r->memory.plan_short = false;
    } else if (s->closed || status == CW_E_INTERRUPTED) {
        /* no lack of memory: planning stops when the range was closed, or when an earlier range must be
         * planned first */
        r->memory.plan_short = false;
    } else if (status == CW_E_DATA && r->sequence->stream &&
               (s->state != RANGE_OPEN || (s->failed = malloc(sizeof(*s->failed))))) {
        plan_end_stream(s, p, &err);
    } else if (status == CW_E_BUDGET) {
        plan_was_refused(r, s, p);
    } else {
        cw_sched_fail(r, &err);
    }
    cw_sched_changed(r);
}

/* ---- what runs next ---- */

/* Returns whether nothing is under way while the consumer waits for a batch, so that the wait would not end.
 * Mutex held, by a thread that found nothing to do. */
static bool sched_is_stalled(const struct cw_runner *r)
{
    return r->sched.awaited && r->ranges && !r->sched.fatal.status && !r->memory.consumer_short &&
           cw_sched_is_idle(r) && r->sched.n_calls == 0 && !cw_memory_may_be_released(r);
}

/* Ends such a wait: the first range begins again with less memory. If there can't be less, an error ends the
 * run, rather than an endless wait. */
static void sched_end_stall(struct cw_runner *r)
{
    struct cw_error err = {0};
    if (cw_low_memory_begin(r)) {
        cw_sched_notify(r);
        return;
    }
    (void)cw_error_set(
        &err, CW_E_BUG,
        "the run stalled, which is a defect of Cachew (please report it): nothing is being computed and no "
        "batch is ready, but %u blocks and %u of at most %u batches are not finished",
        r->sched.n_blocks, r->memory.n_assemblies, r->memory.max_assemblies);
    cw_sched_fail(r, &err);
}

/* Does the next action (docs/engine.md, "What a compute thread does next"). False: there is nothing to do.
 * Mutex held, but released while it runs. */
static bool compute_next(struct cw_runner *r, struct compute_thread *t)
{
    struct cw_range *s;
    struct piece *p;
    struct block *b;
    if (r->memory.starved == STARVED_ALONE)
        return false;
    if (r->sched.fatal.status)
        return false;
    if (r->reads.n_blocks && cw_reads_waiting(r) < READ_DEPTH / 2 && (b = cw_carve_block(r)))
        block_run_first(r, t, b); /* so that storage has reads to do while many blocks are ready */
    else if (r->sched.ready)
        block_run(r, t, CW_POP(r->sched.ready));
    else if (r->sched.starved && !r->memory.consumer_short && cw_sched_is_calm(r) &&
             r->memory.starved != STARVED_STUCK)
        starved_run(r, t);
    else if (!r->sched.starved && !r->memory.consumer_short && (p = cw_carve_piece(r, &s)))
        piece_plan(r, t, s, p);
    else if ((b = cw_carve_block(r)))
        block_run_first(r, t, b);
    else if (sched_is_stalled(r))
        sched_end_stall(r);
    else
        return false;
    return true;
}

static void *compute_main(void *arg)
{
    struct compute_thread *t = arg;
    struct cw_runner *r = t->r;
    CW_GUARD(&r->sched.mutex);
    while (!r->sched.stop && (unsigned)(t - r->sched.threads) < r->width.chosen.n) {
        if (compute_next(r, t))
            continue;
        /* a consumer that polls (options.notify) is told that all is idle: it may have to release a batch */
        if (r->options.notify && r->memory.starved != STARVED_ALONE && !r->sched.settled &&
            cw_sched_is_idle(r)) {
            r->sched.settled = true;
            cw_sched_notify(r);
        }
        cw_account_idle(r);
    }
    t->state = THREAD_ENDED;
    pthread_cond_signal(&r->sched.work); /* a signal that it got may have been for another thread */
    return NULL;
}

static int compute_start_thread(struct cw_runner *r, struct compute_thread *t, struct cw_error *err)
{
    if (t->state == THREAD_RUNS)
        return 0;
    if (t->state == THREAD_ENDED)
        pthread_join(t->id, NULL);
    t->r = r;
    t->calls = (struct cw_host_calls){0};
    t->cpu_ns = 0;
    t->state = THREAD_RUNS;
    int status = cw_thread_start(&t->id, compute_main, t, err);
    if (status < 0)
        t->state = THREAD_NONE;
    return status;
}

void cw_compute_resize(struct cw_runner *r)
{
    struct cw_error err = {0};
    for (unsigned i = 0; i < r->width.chosen.n; i++)
        if (compute_start_thread(r, &r->sched.threads[i], &err) < 0)
            break;
    cw_sched_wake(r);
}

int cw_compute_start(struct cw_runner *r, struct cw_error *err)
{
    int status = 0;
    CW_GUARD(&r->sched.mutex);
    for (unsigned i = 0; i < r->options.threads && status >= 0; i++)
        status = compute_start_thread(r, &r->sched.threads[i], err);
    return status;
}

void cw_compute_stop(struct cw_runner *r)
{
    CW_WITH (&r->sched.mutex) {
        r->sched.stop = true;
        atomic_store(&r->sched.cancelled, true);
        cw_sched_wake(r);
    }
    for (unsigned i = 0; r->sched.threads && i < r->sched.n_threads; i++) {
        bool started = false;
        CW_WITH (&r->sched.mutex) {
            started = r->sched.threads[i].state != THREAD_NONE;
        }
        if (started)
            pthread_join(r->sched.threads[i].id, NULL);
    }
    cw_reads_stop(r);
    cw_read_in_stop(r);
}
