#include "remote/assembly.h"

#include <stdlib.h>

#include "base/crash.h"
#include "base/thread.h"
#include "engine/batch_ops.h"
#include "remote/internal.h"

/* Batches that are joined before their turn: as many as there are CPUs for calls of operators, but no more
 * than the window has, and than these. */
#define JOIN_EARLY_MOST 16

struct remote_assembly *cw_remote_assembly_new(void)
{
    return calloc(1, sizeof(struct remote_assembly));
}

static struct remote *assembly_remote(const struct cw_producer *base)
{
    return ((const struct view *)base)->remote;
}

/* ---- joining ---- */

static int joined_get_slab(size_t size, struct cw_slab **ret, void *arg, struct cw_error *err)
{
    return cw_slab_get(arg, size, ret, err);
}

/* Joins the parts of a batch, which are here. */
static int joined_new(struct remote *r, unsigned key, struct fetch *fetches, struct cw_assembly **ret,
                      struct cw_error *err)
{
    struct cw_assembly *joined;
    int status = cw_assembly_new(&r->job.layout, &r->slabs, cw_key_size(r->job.compiled, key), key, &joined,
                                 err);
    if (status < 0)
        return status;
    for (struct fetch *f = fetches; f && status >= 0; f = f->sibling)
        status = cw_part_join(joined, &f->rows, err);
    if (status >= 0)
        status = cw_assembly_finish(joined, &r->slabs, err);
    if (status < 0) {
        cw_assembly_free(joined);
        return status;
    }
    for (struct fetch *f = fetches; f; f = f->sibling)
        cw_quarantined_move(&f->rows.quarantined, &joined->quarantined);
    *ret = joined;
    return 0;
}

void cw_remote_joined_free(struct cw_assembly **joined)
{
    if (*joined)
        cw_batch_call_drop(*joined);
    *joined = cw_assembly_free(*joined);
}

/* ---- operators on batches: each call has a thread of its own (engine/batch_ops.h) ---- */

static void call_ended(void *arg)
{
    struct remote *r = arg;
    CW_GUARD(&r->mutex);
    pthread_cond_broadcast(&r->changed);
}

static int call_begin(struct remote *r, struct cw_assembly *joined, uint64_t epoch, struct cw_error *err)
{
    return cw_batch_call_begin(r->job.compiled, joined, r->job.options.seed, epoch, call_ended, r, err);
}

/* Takes over what a call gave, which is over. */
static int call_end(struct remote *r, struct cw_assembly *joined, struct cw_error *err)
{
    return cw_batch_call_end(r->job.compiled, joined, joined_get_slab, &r->slabs, err);
}

static int call_wait(struct remote *r, struct cw_assembly *joined, uint64_t deadline_ns, struct cw_error *err)
{
    int status = 0;
    CW_GUARD(&r->mutex);
    while (status == 0 && !cw_batch_call_over(joined)) {
        status = cw_waiting_wait_here(r, deadline_ns, "what map_batches makes of the next batch", err);
        cw_remote_join_early(r);
    }
    if (status == 0)
        cw_batch_call_count(joined, r->ops);
    return status;
}

/* Applies operators on batches, one call after the other. A wait that ends leaves the call where it is. */
static int joined_apply(struct remote *r, struct cw_assembly *joined, uint64_t epoch, uint64_t deadline_ns,
                        struct cw_error *err)
{
    int status = 0;
    if (joined->error) /* made before its turn */
        return cw_error_copy(err, joined->error);
    while (status == 0 && joined->n_applied < r->job.compiled->n_batch_ops) {
        if (!joined->call)
            status = call_begin(r, joined, epoch, err);
        if (status == 0)
            status = call_wait(r, joined, deadline_ns, err);
        if (status == 0)
            status = call_end(r, joined, err);
    }
    return status;
}

/* ---- for the iterator ---- */

/* a->joined becomes the batch. */
static int assembly_take_joined(struct remote *r, struct remote_assembly *a, struct cw_error *err)
{
    struct remote_batch *b = cw_remote_batch_new(r);
    if (!b)
        return cw_error_nomem(err, sizeof(*b), "a batch");
    cw_quarantined_move(&a->joined->quarantined, &a->a.quarantined);
    b->b = *a->joined->batch;
    free(CW_STEAL(a->joined->batch));
    cw_remote_joined_free(&a->joined);
    a->a.batch = &b->b;
    return 0;
}

int cw_remote_assembly_finish(struct cw_producer *base, struct cw_assembly *assembly, bool wanted,
                              uint64_t epoch, uint64_t deadline_ns, struct cw_error *err)
{
    struct remote *r = assembly_remote(base);
    struct remote_assembly *a = (struct remote_assembly *)assembly;
    if (!wanted || a->a.batch)
        return 0;
    int status = a->joined ? 0 : joined_new(r, a->a.bucket, a->fetches, &a->joined, err);
    if (status == 0)
        status = joined_apply(r, a->joined, epoch, deadline_ns, err);
    return status == 0 ? assembly_take_joined(r, a, err) : status;
}

/* Frees all but its batch. */
static void assembly_free(struct remote *r, struct remote_assembly *a)
{
    CW_WITH (&r->mutex)
        cw_fetches_free(r, &a->fetches);
    cw_remote_joined_free(&a->joined);
    cw_quarantined_free(a->a.quarantined);
    free(a->a.after);
    free(a->a.error);
    free(a);
}

struct cw_batch *cw_remote_assembly_take(struct cw_producer *base, struct cw_assembly *assembly)
{
    struct remote *r = assembly_remote(base);
    struct remote_assembly *a = (struct remote_assembly *)assembly;
    struct cw_batch *b = CW_STEAL(a->a.batch);
    r->n_batches++;
    if (((struct view *)base)->main)
        cw_pace_step(r);
    cw_crash_point("client-taken");
    assembly_free(r, a);
    b->index = 0; /* a client's batch has no number in a range */
    cw_batch_disown(b);
    cw_shm_loan_users_add(&((struct remote_batch *)b)->loan);
    return b;
}

void cw_remote_assembly_drop(struct cw_producer *base, struct cw_assembly *assembly)
{
    struct remote_assembly *a = (struct remote_assembly *)assembly;
    if (a->a.batch)
        cw_remote_batch_release((struct remote_batch *)a->a.batch);
    assembly_free(assembly_remote(base), a);
}

/* ---- before their turn ---- */

/* Begins the first call, and each that follows one that is over. What one fails with is met when the batch's
 * turn comes. Mutex not held. */
static void joined_go_on(struct remote *r, struct cw_assembly *joined, uint64_t epoch)
{
    struct cw_error err = {0};
    unsigned n_ops = r->job.compiled->n_batch_ops;
    int status = 0;
    if (joined->error || joined->n_applied == n_ops || (joined->call && !cw_batch_call_over(joined)))
        return;
    if (joined->call) {
        CW_WITH (&r->mutex)
            cw_batch_call_count(joined, r->ops);
        status = call_end(r, joined, &err);
    }
    if (status == 0 && joined->n_applied < n_ops)
        status = call_begin(r, joined, epoch, &err);
    if (status < 0)
        cw_assembly_poison(joined, &err, 0);
}

/* Whether all parts of a batch are here, and can be joined. */
static bool slot_can_join(const struct slot *s)
{
    bool good = cw_slot_here(s) && !s->fetches->batch;
    for (const struct fetch *f = s->fetches; f && good; f = f->sibling)
        good = !f->failure;
    return good;
}

void cw_remote_join_early(struct remote *r)
{
    size_t n = 0, most = CW_MIN(CW_MIN(cw_window_size(&r->window), (size_t)r->job.n_cpus + 1),
                                (size_t)JOIN_EARLY_MOST);
    for (const struct course *c = r->job.compiled->n_batch_ops ? r->courses : NULL; c; c = c->next)
        for (struct slot *s = c->slots; s && n < most; s = s->next) {
            /* one that is here stays, and is this thread's to take */
            struct cw_error err = {0};
            if (!slot_can_join(s))
                continue;
            n++;
            pthread_mutex_unlock(&r->mutex);
            /* else it fails again when its turn comes */
            if (s->joined || joined_new(r, s->key, s->fetches, &s->joined, &err) == 0)
                joined_go_on(r, s->joined, c->epoch);
            pthread_mutex_lock(&r->mutex);
        }
}
