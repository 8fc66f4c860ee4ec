/* The threads: what they do next, what wakes them, and what happens when memory runs out. */
#include <string.h>

#include "engine/batch_ops.h"
#include "engine/internal.h"

#include "base/cost_clock.h"
#include "base/thread.h"
#include "cache/cache.h"

/* One run in 256 is unfused: it tells how the time of fused operators divides. A photograph takes half as
 * long again that way, so more of them would be felt. The first one comes early, for the sake of short
 * epochs. */
#define SAMPLE_EVERY 256
#define SAMPLE_FIRST 31
/* Who wants to know more pays for it. */
#define SAMPLE_DETAIL 32
#define SAMPLE_DETAIL_FIRST 3

/* ---- lists of blocks; mutex held ---- */

static bool earlier(const struct block *a, const struct block *b)
{
    return a->range != b->range ? cw_range_before(a->range, b->range) : a->seq < b->seq;
}

static void insert_ordered(struct block **list, struct block *b)
{
    while (*list && earlier(*list, b))
        list = &(*list)->next;
    b->next = *list;
    *list = b;
}

void cw_ready(struct cw_runner *r, struct block *b)
{
    insert_ordered(&r->ready, b);
    r->settled = false;
    pthread_cond_signal(&r->work);
}

/* The consumer that lacks memory waits for the last one, and then takes what there is. */
void cw_leave(struct cw_runner *r, unsigned *count)
{
    --*count;
    if (r->consumer_short && r->n_running == 0 && r->n_reading == 0)
        cw_done(r);
}

static void park(struct block *b)
{
    b->spent_ns += cw_cost_now_ns() - b->exec.started_ns;
    b->waited = true;
    insert_ordered(&b->range->parked, b);
}

void cw_starve(struct cw_runner *r, struct block *b)
{
    cw_block_reset(r, b);
    insert_ordered(&r->starved, b);
}

void cw_wake_parked(struct cw_runner *r)
{
    for (struct cw_range *s = r->ranges; s; s = s->next)
        for (struct block **at = &s->parked; *at;) {
            const struct block *b = *at;
            if (b->n_passed > b->point || s->passed[b->point] == b->seq)
                cw_ready(r, CW_POP(*at));
            else
                at = &(*at)->next;
        }
}

static void wake_next(struct cw_runner *r, struct cw_range *s, unsigned point)
{
    for (struct block **at = &s->parked; *at; at = &(*at)->next)
        if ((*at)->point == point && (*at)->seq == s->passed[point]) {
            cw_ready(r, CW_POP(*at));
            return;
        }
}

void cw_trim(struct cw_runner *r)
{
    cw_slab_trim(&r->slabs);
    for (struct block *b = r->idle; b; b = b->next)
        cw_arena_reset(&b->exec.arena, 0);
    for (struct cw_range *s = r->ranges; s && !r->planning; s = s->next)
        cw_epoch_trim(&s->epoch->epoch);
}

void cw_evict(struct cw_runner *r)
{
    for (struct cw_range *s = r->ranges; s; s = s->next) {
        while (s->parked)
            cw_starve(r, CW_POP(s->parked));
        bool first = s == r->ranges;
        for (struct piece *p = s->first; p; p = p->next) {
            bool needed = p->users > 0 || (first && p->carved < p->plan.n);
            if (!needed && (p->planned || p->read_in) && p->carved < p->plan.n)
                cw_piece_unplan(p);
            if (p->carved < p->plan.n)
                first = false;
        }
    }
    while (r->ready)
        cw_starve(r, CW_POP(r->ready));
    cw_trim(r);
}

/* ---- one block ---- */

static int slab_now(size_t size, struct cw_slab **ret, void *slabs, struct cw_error *err)
{
    return cw_slab_get(slabs, size, ret, err);
}

/* Mutex not held. */
static int finish_batch(struct cw_runner *r, struct thread *t, struct cw_range *s, struct cw_assembly *a,
                        struct cw_error *err)
{
    const struct cw_epoch *e = &s->epoch->epoch;
    uint64_t start = cw_cost_now_ns();
    int status = cw_assembly_finish(a, &r->slabs, err);
    t->counts.emit_ns += cw_cost_now_ns() - start;
    if (status < 0)
        return status;
    return cw_batch_apply(r->compiled, a, e->seed, e->epoch, t->counts.ops, cw_range_stopped, s, slab_now,
                          &r->slabs, err);
}

/* Batches that this block completed are finished by its thread: bytes of varying size need memory and work,
 * so without the mutex. */
static void finish_batches(struct cw_runner *r, struct thread *t, struct block *b)
{
    bool any = false;
    for (unsigned i = 0; i < b->n_segments; i++) {
        /* claim them all first: what is not claimed may be gone once the mutex was released */
        struct cw_assembly *a = b->segments[i].assembly;
        any |= a->closed && a->n_done == a->n_assigned;
        b->segments[i].completed = a->closed && a->n_done == a->n_assigned && !a->error && !a->finishing &&
                                   !a->batch && !a->part && !b->range->rows;
        if (b->segments[i].completed)
            a->finishing = true;
    }
    for (unsigned i = 0; i < b->n_segments; i++) {
        struct cw_assembly *a = b->segments[i].assembly;
        struct cw_error err = {0};
        if (!b->segments[i].completed)
            continue;
        pthread_mutex_unlock(&r->mutex);
        int status = finish_batch(r, t, b->range, a, &err);
        pthread_mutex_lock(&r->mutex);
        a->finishing = false;
        if (status < 0 && status != CW_E_BUDGET) /* else the consumer does it when there is memory */
            cw_assembly_poison(a, &err, UINT64_MAX);
    }
    if (any) {
        cw_range_forget_rows(r, b->range);
        cw_done(r);
    }
}

/* Takes the block as far as it goes. Called and left with the mutex held. */
static void advance(struct cw_runner *r, struct thread *t, struct block *b)
{
    struct cw_range *s = b->range;
    struct cw_error err = {0};
    int status = 0;
    b->exec.started_ns = cw_cost_now_ns();
    r->settled = false;
    r->n_running++;
    while (!r->stop && !s->closed) {
        if (b->waited) { /* its turn has come */
            b->waited = false;
            goto pass;
        }
        bool nowait = !r->alone; /* who runs alone is done with when this returns */
        b->exec.cache.patience_ns = nowait ? CW_CACHE_AT_ONCE : cw_block_patience(r, b);
        pthread_mutex_unlock(&r->mutex);
        status = b->exec.reads.done ? 0 : cw_exec_read(&b->exec, &t->counts, nowait, &err);
        if (status == 0)
            status = b->point < r->env.n_points ? cw_block_stage(r, t, b, &err)
                                                : cw_block_emit(r, t, b, &err);
        pthread_mutex_lock(&r->mutex);
        if (status == 1 && (r->stop || s->closed))
            break;
        if (status == 1) { /* the bytes are not in memory */
            if (!r->cold) {
                r->cold = true;
                cw_blocks_tell(r);
                cw_read_in_begin(r);
            }
            b->spent_ns += cw_cost_now_ns() - b->exec.started_ns;
            cw_reads_add(r, b);
            cw_leave(r, &r->n_running);
            return;
        }
        if (status < 0)
            break;
        if (b->point == r->env.n_points) {
            cw_rows_timed(r, b->exec.program->leaf, b->exec.cache.hit,
                          (cw_cost_now_ns() - b->exec.started_ns + (b->exec.cache.hit ? b->cold_ns : 0)) /
                              b->exec.n_refs);
            b->spent_ns += cw_cost_now_ns() - b->exec.started_ns;
            cw_block_measured(r, b);
            cw_block_settle(r, b);
            finish_batches(r, t, b);
            break;
        }
        if (r->stop || s->closed)
            break;
        if (s->passed[b->point] != b->seq && b->n_passed == b->point) {
            park(b);
            cw_leave(r, &r->n_running);
            return;
        }
    pass:;
        bool again = b->n_passed > b->point;
        status = cw_block_pass(r, b, &err);
        if (status == 1) { /* no batch to be had until one is released */
            park(b);
            cw_leave(r, &r->n_running);
            cw_done(r);
            return;
        }
        if (status < 0)
            break;
        if (!again) {
            s->passed[b->point]++;
            wake_next(r, s, b->point);
        }
        b->point++;
    }
    cw_leave(r, &r->n_running);
    if (status == CW_E_BUDGET && !r->stop && !s->closed) {
        cw_starve(r, b);
        cw_work(r);
        cw_done(r);
        return;
    }
    if (status < 0 && !r->fatal.status && !r->stop && !s->closed)
        r->fatal = err;
    b->piece->users--;
    s->n_blocks--;
    cw_block_recycle(r, b);
    cw_range_collect(r, s);
    if (r->n_blocks == 0 && r->plan_short)
        cw_work(r);
    if ((s->n_blocks == 0 && (s->over || s->closed)) || r->consumer_short || r->fatal.status)
        cw_done(r);
}

static void run_block(struct cw_runner *r, struct thread *t, struct block *b)
{
    advance(r, t, b);
    cw_account(r, t);
}

static void run_carved(struct cw_runner *r, struct thread *t, struct block *b)
{
    b->exec.plain = !r->frugal &&
                    (r->options.detail ? t->n_run++ % SAMPLE_DETAIL == SAMPLE_DETAIL_FIRST
                                       : t->n_run++ % SAMPLE_EVERY == SAMPLE_FIRST && cw_counted());
    run_block(r, t, b);
}

/* A block of one element that is alone with its batch does not fit: that ends the run. False: something was
 * released meanwhile. Mutex held, but released meanwhile. */
static bool block_lacks(struct cw_runner *r, const struct block *b)
{
    struct cw_error err = {0};
    const struct cw_place at = cw_place_of(b->range, b->piece->plan.begin + b->exec.at);
    int status = cw_lack_of_memory(r, &at, "an element does not fit beside the batch that it belongs to",
                                   &err);
    if (status < 0 && !r->fatal.status)
        r->fatal = err;
    return status < 0;
}

/* Block seq of a range has its turn, and there is no batch for it until one is released. */
static bool waits_for_batch(const struct cw_range *s, uint64_t seq)
{
    for (const struct block *b = s->parked; b; b = b->next)
        if (b->seq == seq)
            return s->passed[b->point] == seq;
    return false;
}

/* Nothing runs and blocks lack memory: the earliest one gets all there is, if need be the memory of later
 * ranges. */
static void run_starved(struct cw_runner *r, struct thread *t)
{
    r->alone = true;
    for (;;) {
        cw_evict(r); /* an earlier block may give way just now */
        struct block *b = CW_POP(r->starved);
        const struct cw_range *s = b->range;
        uint64_t seq = b->seq;
        run_block(r, t, b);
        b = r->starved;
        if (!b || b->range != s || b->seq != seq) { /* it was enough */
            r->starving = waits_for_batch(s, seq); /* then others would but take turns at having too little */
            break;
        }
        if (cw_slab_trim(&r->slabs) > 0 || cw_reclaim(r, s)) /* slabs: the consumer released some meanwhile */
            continue;
        if (!cw_may_be_released(r) && !r->fatal.status) {
            if (cw_frugal_begin(r) || !block_lacks(r, b))
                break;
        }
        r->starving = true; /* until something is released */
        break;
    }
    r->alone = false;
    while (r->starved && !r->starving)
        cw_ready(r, CW_POP(r->starved));
    cw_work(r);
    cw_done(r);
}

/* Nothing else is under way, and there is no memory for the plan of a piece. Mutex held, but released
 * meanwhile. */
static void plan_lacks(struct cw_runner *r, struct cw_range *s, struct piece *p)
{
    const struct cw_place at = cw_place_of(s, p->plan.begin);
    struct cw_error err = {0};
    if ((!r->frugal && cw_frugal_begin(r)) || cw_piece_halve(r, s, p))
        return;
    if (cw_lack_of_memory(r, &at, "the plan of a range does not fit", &err) < 0 && !r->fatal.status)
        r->fatal = err;
}

static void plan_piece(struct cw_runner *r, struct thread *t, struct cw_range *s, struct piece *p)
{
    struct cw_error err = {0};
    r->planning = true;
    r->settled = false;
    p->users++;
    s->n_blocks++;
    r->n_running++;
    pthread_mutex_unlock(&r->mutex);
    int status = cw_piece_plan(r, t, s, p, &err);
    struct read_in *in = status >= 0 ? cw_read_in_new(r, p) : NULL;
    pthread_mutex_lock(&r->mutex);
    if (status < 0)
        cw_piece_unplan(p); /* others look whether it is planned */
    cw_leave(r, &r->n_running);
    cw_account(r, t);
    r->planning = false;
    p->users--;
    s->n_blocks--;
    if (status >= 0) {
        p->planned = !cw_read_in_piece(r, p, in);
        p->carved = CW_MIN(p->carved, p->plan.n);
        if (p->cut)
            s->position = p->plan.begin + p->plan.n;
        if (p->cut && p->plan.n == 0)
            s->end = s->position;
        r->plan_short = false;
    } else if (s->closed || status == CW_E_INTERRUPTED) {
        r->plan_short = false; /* the range was closed, or an earlier one is planned first */
    } else if (status == CW_E_DATA && r->sequence->stream &&
               (s->over || (s->failed = malloc(sizeof(*s->failed))))) {
        if (!s->over) /* else a full `take` ended the epoch before it */
            *s->failed = err;
        p->planned = true;
        p->plan.n = p->carved = 0;
        s->end = s->position = p->plan.begin;
    } else if (status == CW_E_BUDGET && (r->n_blocks || r->n_running || r->n_reading_in || !r->plan_short ||
                                         cw_reclaim(r, s) || cw_may_be_released(r))) {
        r->plan_short = true; /* tried again when something is released, or when nothing else is under way */
        cw_trim(r);
    } else if (!r->fatal.status && status == CW_E_BUDGET) {
        plan_lacks(r, s, p);
    } else if (!r->fatal.status) {
        r->fatal = err;
    }
    cw_work(r);
    cw_done(r);
}

/* Nothing is under way, and the consumer waits for a batch: the wait would not end. Mutex held, by a thread
 * that found nothing to do. */
static bool stalled(const struct cw_runner *r)
{
    return r->awaited && r->ranges && !r->fatal.status && !r->consumer_short && cw_nothing_runs(r) &&
           r->n_calls == 0 && !cw_may_be_released(r);
}

/* The first range begins again with less memory. If there is no less, an error is better than silence. */
static void end_stall(struct cw_runner *r)
{
    if (!cw_frugal_begin(r))
        (void)cw_error_set(
            &r->fatal, CW_E_BUG,
            "nothing is being computed, and no batch is ready: %u blocks are under way, %u batches of %u",
            r->n_blocks, r->n_assemblies, r->max_assemblies);
    cw_done(r);
}

static void *compute_main(void *arg)
{
    struct thread *t = arg;
    struct cw_runner *r = t->r;
    CW_GUARD(&r->mutex);
    while (!r->stop) {
        struct cw_range *s;
        struct piece *p;
        struct block *b;
        if (r->alone) {
            cw_idle(r);
            continue;
        }
        if (!r->fatal.status && r->n_reading && cw_reads_waiting(r) < READ_DEPTH / 2 && (b = cw_carve(r))) {
            /* lest storage run dry while much is ready */
            run_carved(r, t, b);
            continue;
        }
        if (r->ready && !r->fatal.status) {
            run_block(r, t, CW_POP(r->ready));
            continue;
        }
        if (!r->fatal.status && r->starved && !r->consumer_short && r->n_running == 0 && r->n_reading == 0 &&
            !r->starving) {
            run_starved(r, t);
            continue;
        }
        if (!r->fatal.status && !r->starved && !r->consumer_short && (p = cw_piece_to_plan(r, &s))) {
            plan_piece(r, t, s, p);
            continue;
        }
        if (!r->fatal.status && (b = cw_carve(r))) {
            run_carved(r, t, b);
            continue;
        }
        if (stalled(r)) {
            end_stall(r);
            continue;
        }
        if (r->options.notify && !r->settled && cw_nothing_runs(r)) { /* who polls may have to make room */
            r->settled = true;
            cw_done(r);
        }
        cw_idle(r);
    }
    return NULL;
}

int cw_pool_start(struct cw_runner *r, struct cw_error *err)
{
    int status = 0;
    for (unsigned i = 0; i < r->options.threads && status >= 0; i++) {
        r->threads[i].r = r;
        status = cw_thread_start(&r->threads[i].id, compute_main, &r->threads[i], err);
        r->n_threads += status >= 0;
    }
    return status;
}

void cw_pool_stop(struct cw_runner *r)
{
    CW_WITH (&r->mutex) {
        r->stop = true;
        atomic_store(&r->cancelled, true);
        cw_work(r);
    }
    for (unsigned i = 0; i < r->n_threads; i++)
        pthread_join(r->threads[i].id, NULL);
    r->n_threads = 0;
    cw_reads_stop(r);
    cw_read_in_stop(r);
}
