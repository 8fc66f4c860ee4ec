/*
 * What the consumer takes from the runner and gives back: batches, and the memory to finish them. Operators
 * on batches, whose calls may take minutes, run on threads of their own (batch_ops.h), so that a deadline or
 * an interrupt can end the consumer's wait. The consumer's thread runs these functions, except
 * cw_runner_release and _interrupt.
 */
#include "base/clock.h"
#include "base/thread.h"
#include "engine/batch_ops.h"
#include "engine/flush.h"
#include "engine/internal.h"

/* Sets the place where the range would begin again: after batch a. */
static void range_pass_batch(struct cw_runner *r, struct cw_range *s, const struct cw_assembly *a)
{
    s->n_taken++;
    if (a->after)
        cw_entry_set(r->compiled, &s->entry, a->after);
    else if (r->compiled->counted)
        s->entry.position = CW_MIN(
            (s->entry.position / r->compiled->batch_size + 1) * r->compiled->batch_size, s->limit);
}

static int batch_try_finish(struct cw_runner *r, void *batch, struct cw_error *err)
{
    return cw_assembly_finish(batch, &r->memory.slabs, err);
}

/* Takes the batch at the head of a range, if it is ready. 1: there are no more; 2: not yet. Mutex held. */
static int range_take_head(struct cw_runner *r, struct cw_range *s, uint64_t deadline_ns,
                           struct cw_assembly **ret, struct cw_error *err)
{
    int status;
    for (;;) {
        struct cw_assembly *a = s->head;
        if (a && !a->finishing && cw_assembly_complete(a)) {
            if (a->error)
                return cw_error_copy(err, a->error);
            if (!a->batch && !a->part) {
                status = cw_memory_try(r, batch_try_finish, a, s, true, deadline_ns, err);
                if (status != 0)
                    return status;
            }
            s->head = a->next;
            if (!s->head)
                s->tail = NULL;
            a->next = NULL;
            /* records that failed before they had a batch are reported with this one */
            cw_quarantined_move(&s->quarantined, &a->quarantined);
            range_pass_batch(r, s, a);
            r->memory.n_handed++;
            /* the first range may take another batch now */
            if (r->memory.n_assemblies >= r->memory.max_assemblies) {
                cw_sched_wake_parked(r);
                cw_sched_wake(r);
            }
            *ret = a;
            return 0;
        }
        if (r->sched.fatal.status)
            return cw_error_copy(err, &r->sched.fatal);
        if (!cw_range_computed(s) || (a && a->closed))
            return 2;
        if (s->failed)
            return cw_error_copy(err, s->failed);
        if (s->state >= RANGE_FLUSHED)
            return 1;
        if ((status = cw_range_flush(r, s, deadline_ns, err)) != 0)
            return status;
    }
}

int cw_runner_next(struct cw_runner *r, struct cw_range *s, uint64_t deadline_ns, struct cw_assembly **ret,
                   struct cw_error *err)
{
    CW_GUARD(&r->sched.mutex);
    int status = range_take_head(r, s, deadline_ns, ret, err);
    r->sched.awaited = status == 2;
    if (status == 2 && cw_sched_is_idle(r)) {
        /* threads wait for the consumer to release something, but it waits for this batch: they try again */
        cw_memory_retry(r);
        cw_sched_wake(r);
    }
    while (status == 2 && (status = cw_sched_wait(r, deadline_ns, "the next batch", err)) == 0)
        status = range_take_head(r, s, deadline_ns, ret, err);
    r->sched.awaited = false;
    return status;
}

int cw_runner_poll(struct cw_runner *r, struct cw_range *s, struct cw_assembly **ret, struct cw_error *err)
{
    CW_GUARD(&r->sched.mutex);
    return range_take_head(r, s, CW_AT_ONCE, ret, err);
}

bool cw_runner_computed(struct cw_runner *r, struct cw_range *s, uint64_t *ret_batches)
{
    CW_GUARD(&r->sched.mutex);
    bool all = cw_range_computed(s) && !s->failed && s->state != RANGE_POISONED && !r->sched.fatal.status;
    if (all && s->state != RANGE_FLUSHED && cw_range_flush(r, s, CW_AT_ONCE, NULL) != 0)
        all = false;
    uint64_t n = s->n_taken;
    for (const struct cw_assembly *a = s->head; a && all; a = a->next) {
        all = !a->error && a->n_done == a->n_assigned;
        n++;
    }
    *ret_batches = n;
    return all;
}

bool cw_runner_stuck(struct cw_runner *r)
{
    CW_GUARD(&r->sched.mutex);
    bool more = false;
    for (const struct cw_range *s = r->ranges; s && !more; s = s->next)
        more = !cw_range_computed(s);
    return (r->memory.poll_short || (more && r->sched.settled && cw_sched_is_idle(r))) && !r->sched.n_calls &&
           !r->sched.fatal.status;
}

void cw_runner_relent(struct cw_runner *r)
{
    CW_GUARD(&r->sched.mutex);
    cw_memory_served(r);
    r->memory.poll_short = false;
}

int cw_runner_fatal(struct cw_runner *r, struct cw_error *err)
{
    CW_GUARD(&r->sched.mutex);
    int status = r->sched.fatal.status;
    if (status)
        *err = r->sched.fatal;
    return status;
}

/* Counts a batch that the consumer had as gone from the budget. Mutex held. */
static void batch_gone(struct cw_runner *r)
{
    r->memory.n_assemblies--;
    r->memory.n_handed--;
    cw_memory_released(r);
}

/* Mutex held. */
static void batch_disown(struct cw_runner *r, struct cw_batch *b)
{
    cw_batch_disown(b);
    batch_gone(r);
}

void cw_runner_disown(struct cw_runner *r, struct cw_batch *b)
{
    CW_GUARD(&r->sched.mutex);
    batch_disown(r, b);
}

struct cw_batch *cw_runner_take_batch(struct cw_runner *r, struct cw_assembly *a)
{
    struct cw_batch *b = CW_STEAL(a->batch);
    CW_GUARD(&r->sched.mutex);
    cw_assembly_free(a);
    if (r->options.batches_are_users)
        batch_disown(r, b);
    return b;
}

void cw_runner_release(struct cw_runner *r, struct cw_batch *b)
{
    CW_GUARD(&r->sched.mutex);
    r->memory.n_assemblies -= !b->disowned;
    r->memory.n_handed -= !b->disowned;
    cw_batch_free(b);
    cw_memory_released(r);
}

void cw_runner_drop(struct cw_runner *r, struct cw_assembly *a)
{
    cw_batch_call_drop(a); /* before the mutex is taken, because the call's thread takes it at its end */
    CW_GUARD(&r->sched.mutex);
    cw_assembly_free(a);
    batch_gone(r);
}

void cw_runner_interrupt(struct cw_runner *r, bool on)
{
    CW_GUARD(&r->sched.mutex);
    r->sched.interrupted = on;
    pthread_cond_broadcast(&r->sched.done);
}

/* ---- what is left to do of a batch ---- */

struct slab_request {
    struct cw_runner *r;
    uint64_t deadline_ns;
    const struct cw_range *range; /* not NULL: the batch belongs to this range */
    bool later;                   /* there was no memory now */
    size_t size;
    struct cw_slab *slab;
};

static int slab_try(struct cw_runner *r, void *arg, struct cw_error *err)
{
    struct slab_request *q = arg;
    return cw_slab_get(&r->memory.slabs, q->size, &q->slab, err);
}

static int slab_waiting(size_t size, struct cw_slab **ret, void *arg, struct cw_error *err)
{
    struct slab_request *q = arg;
    struct cw_runner *r = q->r;
    q->size = size;
    int status = CW_LOCKED(&r->sched.mutex,
                           cw_memory_try(r, slab_try, q, q->range, false, q->deadline_ns, err));
    q->later = status == 2;
    if (q->later)
        return cw_error_set(err, CW_E_BUDGET, "there is no memory for a batch now");
    if (status >= 0)
        *ret = q->slab;
    return status;
}

static void call_end_notify(void *arg)
{
    struct cw_runner *r = arg;
    CW_GUARD(&r->sched.mutex);
    r->sched.n_calls--;
    cw_sched_notify(r);
}

static int call_begin(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                      struct cw_error *err)
{
    r->sched.n_calls++;
    int status = cw_batch_call_begin(r->compiled, a, seed, epoch, call_end_notify, r, err);
    if (status < 0)
        r->sched.n_calls--;
    return status;
}

/* Waits for the end of a call. 2: with deadline CW_AT_ONCE, the call is not over yet. */
static int call_wait(struct cw_runner *r, struct cw_assembly *a, uint64_t deadline_ns, struct cw_error *err)
{
    int status = 0;
    CW_GUARD(&r->sched.mutex);
    while (status == 0 && !cw_batch_call_over(a))
        status = deadline_ns == CW_AT_ONCE
                     ? 2
                     : cw_sched_wait(r, deadline_ns, "the next batch from map_batches", err);
    if (status == 0)
        cw_batch_call_count(a, r->profile.ops);
    return status;
}

static int batch_apply_ops(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                           struct slab_request *q, struct cw_error *err)
{
    int status = 0;
    while (status == 0 && a->n_applied < r->compiled->n_batch_ops) {
        if (!a->call)
            status = call_begin(r, a, seed, epoch, err);
        if (status == 0)
            status = call_wait(r, a, q->deadline_ns, err);
        if (status == 0)
            status = cw_batch_call_end(r->compiled, a, slab_waiting, NULL, q, err);
    }
    return status;
}

static int batch_finish_all(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                            struct slab_request *q, struct cw_error *err)
{
    int status = 0;
    CW_WITH (&r->sched.mutex) {
        if (a->error)
            status = cw_error_copy(err, a->error);
        if (status >= 0 && !a->batch)
            status = cw_memory_try(r, batch_try_finish, a, q->range, false, q->deadline_ns, err);
    }
    return status != 0 ? status : batch_apply_ops(r, a, seed, epoch, q, err);
}

int cw_runner_finish(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                     uint64_t deadline_ns, struct cw_error *err)
{
    struct slab_request q = {.r = r, .deadline_ns = deadline_ns};
    return batch_finish_all(r, a, seed, epoch, &q, err);
}

int cw_runner_try_finish(struct cw_runner *r, struct cw_assembly *a, const struct cw_range *s,
                         struct cw_error *err)
{
    const struct cw_epoch *e = &s->epoch->epoch;
    struct slab_request q = {.r = r, .deadline_ns = CW_AT_ONCE, .range = s};
    int status = batch_finish_all(r, a, e->seed, e->epoch, &q, err);
    return status == CW_E_BUDGET && q.later ? 2 : status;
}
