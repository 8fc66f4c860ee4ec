/* The client's assemblies: joins the parts of a batch that arrived from workers, and applies the operators on
 * batches (map_batches) to the result. slot.joined owns a joined batch until the iterator takes it. The
 * iterator calls the functions of the last section through struct cw_producer; the functions before are for
 * the other files of src/remote. r->mutex guards the slots; the consumer's thread calls all functions here.
 */
#include "remote/assembly.h"

#include "base/crash.h"
#include "base/thread.h"
#include "engine/batch_ops.h"
#include "remote/internal.h"

/* Limit of the number of batches that are joined before the iterator needs them. The CPUs (plus one) and the
 * window limit the number as well. */
#define JOIN_EARLY_MOST 16
#define AT_ONCE UINT64_MAX /* a deadline: don't wait */

int cw_slot_join(struct remote *r, struct slot *s, struct cw_error *err)
{
    struct cw_assembly *a = NULL;
    /* the mutex is not needed: once all fetches of a slot have arrived, only the consumer's thread changes
     * the slot */
    pthread_mutex_unlock(&r->mutex);
    int status = cw_assembly_new(&r->job.layout, &r->slabs, cw_key_size(r->job.compiled, s->key), s->key, &a,
                                 err);
    for (const struct fetch *f = s->fetches; f && status >= 0; f = f->sibling)
        status = cw_part_join(a, &f->rows, err);
    if (status >= 0)
        status = cw_assembly_finish(a, &r->slabs, err);
    pthread_mutex_lock(&r->mutex);
    for (struct fetch *f = s->fetches; f && status >= 0; f = f->sibling)
        cw_quarantined_move(&f->rows.quarantined, &a->quarantined);
    s->joined = status < 0 ? cw_assembly_free(a) : a;
    return status;
}

void cw_remote_joined_free(struct cw_assembly *joined)
{
    if (joined)
        cw_batch_call_drop(joined);
    cw_assembly_free(joined);
}

/* ---- operators on batches: each call has a thread of its own (engine/batch_ops.h) ---- */

static int joined_get_slab(size_t size, struct cw_slab **ret, void *remote, struct cw_error *err)
{
    return cw_slab_get(&((struct remote *)remote)->slabs, size, ret, err);
}

static void call_ended(void *remote)
{
    struct remote *r = remote;
    CW_GUARD(&r->mutex);
    pthread_cond_broadcast(&r->changed);
}

/* Waits until the running call of an operator on a batch is over. Returns 0: the call is over; 2: the
 * deadline is AT_ONCE and the call still runs; < 0: an error, CW_E_DEADLINE when the deadline has passed. */
static int call_wait(struct remote *r, struct cw_assembly *joined, uint64_t deadline_ns, struct cw_error *err)
{
    int status = 0;
    CW_GUARD(&r->mutex);
    while (status == 0 && !cw_batch_call_over(joined)) {
        if (deadline_ns == AT_ONCE)
            return 2;
        status = cw_waiting_wait_here(r, deadline_ns, "the next batch from map_batches", err);
        cw_remote_join_early(r);
    }
    if (status == 0)
        cw_batch_call_count(joined, r->ops);
    return status;
}

/* Applies all operators on batches to a joined batch, one after the other. If the wait for an operator ends
 * early, the operator goes on, and the next joined_apply for the batch continues there. Returns the same as
 * call_wait. The mutex must not be held. */
static int joined_apply(struct remote *r, struct cw_assembly *joined, uint64_t epoch, uint64_t deadline_ns,
                        struct cw_error *err)
{
    const struct cw_compiled *c = r->job.compiled;
    int status = 0;
    while (status == 0 && joined->n_applied < c->n_batch_ops) {
        if (!joined->call)
            status = cw_batch_call_begin(c, joined, r->job.options.seed, epoch, call_ended, r, err);
        if (status == 0)
            status = call_wait(r, joined, deadline_ns, err);
        if (status == 0)
            status = cw_batch_call_end(c, joined, joined_get_slab, r, err);
    }
    return status;
}

/* Returns whether a batch can be joined: all of its parts have arrived without an error, and it did not
 * arrive as one whole batch. */
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
    if (!r->job.compiled->n_batch_ops)
        return;
    CW_LIST_EACH_OF (c, struct course, link, &r->courses)
        for (struct slot *s = c->slots; s && n < most; s = s->next) {
            struct cw_error err = {0};
            if (!slot_can_join(s))
                continue;
            n++;
            /* An error of joining is dropped here, because joining is repeated, and fails again, when the
             * iterator needs the batch. An error of an operator is kept in the assembly until then. */
            if ((!s->joined && cw_slot_join(r, s, &err) < 0) || s->joined->error)
                continue;
            pthread_mutex_unlock(&r->mutex);
            if (joined_apply(r, s->joined, c->epoch, AT_ONCE, &err) < 0)
                cw_assembly_poison(s->joined, &err, 0);
            pthread_mutex_lock(&r->mutex);
        }
}

/* ---- for the iterator ---- */

static struct remote *assembly_remote(const struct cw_producer *base)
{
    return ((const struct view *)base)->remote;
}

int cw_remote_assembly_finish(struct cw_producer *base, struct cw_assembly *a, bool wanted, uint64_t epoch,
                              uint64_t deadline_ns, struct cw_error *err)
{
    return wanted && a->layout ? joined_apply(assembly_remote(base), a, epoch, deadline_ns, err) : 0;
}

struct cw_batch *cw_remote_assembly_take(struct cw_producer *base, struct cw_assembly *a)
{
    struct remote *r = assembly_remote(base);
    struct cw_batch *b = CW_STEAL(a->batch);
    r->n_batches++;
    if (((struct view *)base)->main)
        cw_pace_step(r);
    cw_crash_point("client-taken");
    cw_assembly_free(a);
    b->index = 0; /* the index was the batch's number in its range, which users do not see */
    cw_batch_disown(b);
    cw_shm_loan_users_add(b->memory);
    return b;
}

void cw_remote_assembly_drop(struct cw_producer *base, struct cw_assembly *a)
{
    cw_batch_call_drop(a); /* the thread of the call reads the batch */
    if (a->batch)
        cw_remote_batch_release(assembly_remote(base), CW_STEAL(a->batch));
    cw_assembly_free(a);
}
