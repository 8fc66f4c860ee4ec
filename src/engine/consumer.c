/*
 * What the consumer takes from the runner and gives back: batches, rows by key (parts.c), and the memory to
 * finish (finish.c) them. Run by the consumer's thread, but for cw_runner_release and _interrupt.
 */
#include <errno.h>

#include "base/thread.h"
#include "engine/batch_ops.h"
#include "engine/internal.h"

#include "base/clock.h"

void cw_released(struct cw_runner *r)
{
    r->starving = r->plan_short = r->poll_short = false;
    r->n_released++;
    cw_wake_parked(r);
    cw_work(r);
    if (r->consumer_short) /* another thread than the consumer released it */
        cw_done(r);
}

int cw_wait_change(struct cw_runner *r, uint64_t deadline_ns, const char *what, struct cw_error *err)
{
    if (r->interrupted)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    uint64_t start = cw_now_ns();
    int e = cw_cond_wait(&r->done, &r->mutex, deadline_ns);
    r->profile.wait_ns += cw_now_ns() - start;
    if (r->interrupted)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    if (e == ETIMEDOUT)
        return cw_error_set(
            err, CW_E_DEADLINE,
            "%s did not come before the deadline: %u blocks are being computed, %u wait for bytes", what,
            r->n_running, r->n_reading);
    return 0;
}

/* Runs `attempt`, which needs memory for a range that is not the first: ranges before it keep their memory,
 * and go on. 2: no memory now; the caller tries again when something was released, or nothing runs. Mutex
 * held. */
static int with_memory_behind(struct cw_runner *r,
                              int (*attempt)(struct cw_runner *r, void *arg, struct cw_error *err), void *arg,
                              const struct cw_range *s, struct cw_error *err)
{
    int status = attempt(r, arg, err);
    if (status != CW_E_BUDGET)
        return status;
    cw_trim(r);
    status = attempt(r, arg, err);
    if (r->n_running || r->n_reading)
        return status == CW_E_BUDGET ? 2 : status;
    if (status == CW_E_BUDGET && cw_can_reclaim(r, s)) {
        cw_evict(r);
        while ((status = attempt(r, arg, err)) == CW_E_BUDGET && cw_reclaim(r, s))
            ;
        cw_released(r); /* what gave way goes on */
    }
    r->poll_short |= status == CW_E_BUDGET;
    return status == CW_E_BUDGET ? 2 : status;
}

/* Nothing runs, and the consumer lacks memory: ranges give theirs up, the last one first. Mutex held, but it
 * may be released meanwhile. */
static int with_all_memory(struct cw_runner *r,
                           int (*attempt)(struct cw_runner *r, void *arg, struct cw_error *err), void *arg,
                           bool of_first, struct cw_error *err)
{
    const struct cw_place at = r->ranges ? cw_place_of(r->ranges, r->ranges->entry.position)
                                         : (struct cw_place){0};
    int status;
    cw_evict(r);
    while ((status = attempt(r, arg, err)) == CW_E_BUDGET && cw_reclaim(r, r->ranges))
        ;
    if (status == CW_E_BUDGET && of_first && !r->frugal && cw_frugal_begin(r))
        return 2; /* what it was for comes again */
    if (status == CW_E_BUDGET && !of_first && cw_give_up_first(r))
        status = attempt(r, arg, err);
    return status == CW_E_BUDGET ? cw_lack_of_memory(r, &at, "a batch does not fit", err) : status;
}

void cw_consumer_served(struct cw_runner *r)
{
    if (!r->consumer_short)
        return;
    r->consumer_short = false;
    cw_released(r);
}

/* Something that needs memory, in the consumer: while it lacks, nothing new is begun, and when nothing runs
 * any more everything else gives way. of_first: the first range holds what needs the memory, and loses it
 * when it starts over. 2: the range did so, or with CW_AT_ONCE there is no memory now. Mutex held. */
static int with_memory(struct cw_runner *r,
                       int (*attempt)(struct cw_runner *r, void *arg, struct cw_error *err), void *arg,
                       bool of_first, uint64_t deadline_ns, struct cw_error *err)
{
    int status;
    while ((status = attempt(r, arg, err)) == CW_E_BUDGET) {
        r->consumer_short = true;
        if (r->n_running == 0 && r->n_reading == 0) {
            status = with_all_memory(r, attempt, arg, of_first, err);
            if (status == 1)
                continue;
            break;
        }
        cw_trim(r);
        if (deadline_ns == CW_AT_ONCE)
            return 2;
        status = cw_wait_change(r, deadline_ns, "memory for a batch", err);
        if (status < 0)
            break;
    }
    cw_consumer_served(r);
    return status;
}

int cw_with_memory(struct cw_runner *r, int (*attempt)(struct cw_runner *r, void *arg, struct cw_error *err),
                   void *arg, const struct cw_range *s, bool of_first, uint64_t deadline_ns,
                   struct cw_error *err)
{
    return !s || s == r->ranges ? with_memory(r, attempt, arg, of_first, deadline_ns, err)
                                : with_memory_behind(r, attempt, arg, s, err);
}

int cw_try_finish(struct cw_runner *r, void *batch, struct cw_error *err)
{
    return cw_assembly_finish(batch, &r->slabs, err);
}

/* Everything is computed, and the range ends with its epoch: what is left over under its keys, ascending, are
 * batches, or nobody's. Mutex held. */
static int flush(struct cw_runner *r, struct cw_range *s, struct cw_error *err)
{
    const struct cw_compiled *c = r->compiled;
    bool wanted = !c->drop_remainder && s->limit == r->sequence->n_positions, listed = !c->keyed;
    for (unsigned k = 0; k < cw_n_keys(c); k++) {
        struct cw_assembly *a = s->open[k];
        if (!a)
            continue;
        if (!wanted) {
            if (listed)
                cw_range_remove_last(s);
            s->open[k] = cw_assembly_free(a);
            r->n_assemblies--;
            continue;
        }
        s->open[k] = NULL;
        s->batched[k] += a->n_assigned;
        a->closed = true;
        if (!listed)
            cw_range_append(s, a);
        if (!(a->after = cw_range_after(r, s)))
            return cw_error_nomem(err, 0, "a position");
    }
    s->flushed = true;
    return 0;
}

/* Where the range begins again from now on. */
static void pass_batch(struct cw_runner *r, struct cw_range *s, const struct cw_assembly *a)
{
    s->n_taken++;
    if (a->after)
        cw_entry_set(r->compiled, &s->entry, a->after);
    else if (r->compiled->counted)
        s->entry.position = CW_MIN(
            (s->entry.position / r->compiled->batch_size + 1) * r->compiled->batch_size, s->limit);
}

/* The batch at the head of a range, if it is ready. 1: there are no more; 2: not yet. Mutex held. */
static int take_head(struct cw_runner *r, struct cw_range *s, uint64_t deadline_ns, struct cw_assembly **ret,
                     struct cw_error *err)
{
    int status;
    for (;;) {
        struct cw_assembly *a = s->head;
        if (a && !a->finishing && a->closed && a->n_done == a->n_assigned) {
            if (a->error)
                return cw_error_copy(err, a->error);
            if (!a->batch && !a->part) {
                status = cw_with_memory(r, cw_try_finish, a, s, true, deadline_ns, err);
                if (status != 0)
                    return status;
            }
            s->head = a->next;
            if (!s->head)
                s->tail = NULL;
            a->next = NULL;
            /* of records that died before they had a batch */
            cw_quarantined_move(&s->quarantined, &a->quarantined);
            pass_batch(r, s, a);
            r->n_handed++;
            if (r->n_assemblies >= r->max_assemblies) { /* now the first range may take another (carve.c) */
                cw_wake_parked(r);
                cw_work(r);
            }
            *ret = a;
            return 0;
        }
        if (r->fatal.status)
            return cw_error_copy(err, &r->fatal);
        if (!cw_range_computed(s) || (a && a->closed))
            return 2;
        if (s->failed)
            return cw_error_copy(err, s->failed);
        if (s->flushed || s->poisoned)
            return 1;
        if ((status = flush(r, s, err)) < 0)
            return status;
    }
}

int cw_runner_next(struct cw_runner *r, struct cw_range *s, uint64_t deadline_ns, struct cw_assembly **ret,
                   struct cw_error *err)
{
    CW_GUARD(&r->mutex);
    int status = take_head(r, s, deadline_ns, ret, err);
    r->awaited = status == 2;
    if (status == 2 && cw_nothing_runs(r)) {
        /* threads have waited for what the consumer has: it won't be released now */
        r->starving = r->plan_short = false;
        cw_work(r);
    }
    while (status == 2 && (status = cw_wait_change(r, deadline_ns, "the next batch", err)) == 0)
        status = take_head(r, s, deadline_ns, ret, err);
    r->awaited = false;
    return status;
}

int cw_runner_poll(struct cw_runner *r, struct cw_range *s, struct cw_assembly **ret, struct cw_error *err)
{
    CW_GUARD(&r->mutex);
    return take_head(r, s, CW_AT_ONCE, ret, err);
}

bool cw_runner_computed(struct cw_runner *r, struct cw_range *s, uint64_t *ret_batches)
{
    CW_GUARD(&r->mutex);
    bool all = cw_range_computed(s) && !s->failed && !s->poisoned && !r->fatal.status;
    if (all && !s->flushed && flush(r, s, NULL) < 0)
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
    CW_GUARD(&r->mutex);
    bool more = false;
    for (const struct cw_range *s = r->ranges; s && !more; s = s->next)
        more = !cw_range_computed(s);
    return (r->poll_short || (more && r->settled && !r->n_running && !r->n_reading && !r->n_reading_in)) &&
           !r->n_calls && !r->fatal.status;
}

void cw_runner_relent(struct cw_runner *r)
{
    CW_GUARD(&r->mutex);
    cw_consumer_served(r);
    r->poll_short = false;
}

int cw_runner_fatal(struct cw_runner *r, struct cw_error *err)
{
    CW_GUARD(&r->mutex);
    int status = r->fatal.status;
    if (status)
        *err = r->fatal;
    return status;
}

/* Mutex held. */
static void batch_disown(struct cw_runner *r, struct cw_batch *b)
{
    cw_batch_disown(b);
    r->n_assemblies--;
    r->n_handed--;
    cw_released(r);
}

void cw_runner_disown(struct cw_runner *r, struct cw_batch *b)
{
    CW_GUARD(&r->mutex);
    batch_disown(r, b);
}

struct cw_batch *cw_runner_take_batch(struct cw_runner *r, struct cw_assembly *a)
{
    struct cw_batch *b = CW_STEAL(a->batch);
    CW_GUARD(&r->mutex);
    cw_assembly_free(a);
    if (r->options.batches_are_users)
        batch_disown(r, b);
    return b;
}

void cw_runner_release(struct cw_runner *r, struct cw_batch *b)
{
    CW_GUARD(&r->mutex);
    r->n_assemblies -= !b->disowned;
    r->n_handed -= !b->disowned;
    cw_batch_free(b);
    cw_released(r);
}

void cw_runner_drop(struct cw_runner *r, struct cw_assembly *a)
{
    cw_batch_call_drop(a); /* its thread takes the mutex at its end */
    CW_GUARD(&r->mutex);
    cw_assembly_free(a);
    r->n_assemblies--;
    r->n_handed--;
    cw_released(r);
}

void cw_runner_interrupt(struct cw_runner *r, bool on)
{
    CW_GUARD(&r->mutex);
    r->interrupted = on;
    pthread_cond_broadcast(&r->done);
}
