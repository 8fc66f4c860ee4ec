/*
 * What is left to do of a batch that the consumer has: its final form, where it was joined or a thread had no
 * memory for it, and operators on batches, whose calls may take minutes: each is made by a thread of its own
 * (batch_ops.h), so that the consumer can go away when it must. The consumer's thread.
 */
#include "base/thread.h"
#include "engine/batch_ops.h"
#include "engine/internal.h"

struct slab_request {
    struct cw_runner *r;
    uint64_t deadline_ns;
    const struct cw_range *range; /* not NULL: for a batch of this one */
    bool later;                   /* there was none now */
    size_t size;
    struct cw_slab *slab;
};

static int try_slab(struct cw_runner *r, void *arg, struct cw_error *err)
{
    struct slab_request *q = arg;
    return cw_slab_get(&r->slabs, q->size, &q->slab, err);
}

static int slab_waiting(size_t size, struct cw_slab **ret, void *arg, struct cw_error *err)
{
    struct slab_request *q = arg;
    struct cw_runner *r = q->r;
    q->size = size;
    int status = CW_LOCKED(&r->mutex, cw_with_memory(r, try_slab, q, q->range, false, q->deadline_ns, err));
    q->later = status == 2;
    if (q->later)
        return cw_error_set(err, CW_E_BUDGET, "there is no memory for a batch now");
    if (status >= 0)
        *ret = q->slab;
    return status;
}

/* ---- operators ---- */

static void call_ended(void *arg)
{
    struct cw_runner *r = arg;
    CW_GUARD(&r->mutex);
    r->n_calls--;
    cw_done(r);
}

static int begin_call(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                      struct cw_error *err)
{
    r->n_calls++;
    int status = cw_batch_call_begin(r->compiled, a, seed, epoch, call_ended, r, err);
    if (status < 0)
        r->n_calls--;
    return status;
}

/* 2, at once: it is not over yet. */
static int wait_call(struct cw_runner *r, struct cw_assembly *a, uint64_t deadline_ns, struct cw_error *err)
{
    int status = 0;
    CW_GUARD(&r->mutex);
    while (status == 0 && !cw_batch_call_over(a))
        status = deadline_ns == CW_AT_ONCE
                     ? 2
                     : cw_wait_change(r, deadline_ns, "what map_batches makes of the next batch", err);
    if (status == 0)
        cw_batch_call_count(a, r->profile.ops);
    return status;
}

static int apply(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                 struct slab_request *q, struct cw_error *err)
{
    int status = 0;
    while (status == 0 && a->n_applied < r->compiled->n_batch_ops) {
        if (!a->call)
            status = begin_call(r, a, seed, epoch, err);
        if (status == 0)
            status = wait_call(r, a, q->deadline_ns, err);
        if (status == 0)
            status = cw_batch_call_end(r->compiled, a, slab_waiting, q, err);
    }
    return status;
}

/* ---- all of it ---- */

static int finish(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                  struct slab_request *q, struct cw_error *err)
{
    int status = 0;
    CW_WITH (&r->mutex) {
        if (a->error)
            status = cw_error_copy(err, a->error);
        if (status >= 0 && !a->batch)
            status = cw_with_memory(r, cw_try_finish, a, q->range, false, q->deadline_ns, err);
    }
    return status != 0 ? status : apply(r, a, seed, epoch, q, err);
}

int cw_runner_finish(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                     uint64_t deadline_ns, struct cw_error *err)
{
    struct slab_request q = {.r = r, .deadline_ns = deadline_ns};
    return finish(r, a, seed, epoch, &q, err);
}

int cw_runner_try_finish(struct cw_runner *r, struct cw_assembly *a, const struct cw_range *s,
                         struct cw_error *err)
{
    const struct cw_epoch *e = &s->epoch->epoch;
    struct slab_request q = {.r = r, .deadline_ns = CW_AT_ONCE, .range = s};
    int status = finish(r, a, e->seed, e->epoch, &q, err);
    return status == CW_E_BUDGET && q.later ? 2 : status;
}
