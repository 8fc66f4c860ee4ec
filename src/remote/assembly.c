/* The client's assemblies: joins the parts of a batch that arrived from workers, and applies the operators
 * after the cut and those on batches (map_batches). slot.joined owns the batch until the iterator takes it.
 * The iterator calls the functions of the last section through struct cw_producer; the functions before are
 * for the other files of src/remote. r->mutex guards the slots; the consumer's thread calls all functions
 * here.
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

/* Operators that run in this process, on elements or batches, are compiled in the pipeline as written. */
static const struct cw_compiled *assembly_compiled(const struct remote *r)
{
    return r->view.base.compiled;
}

bool cw_slot_must_join(const struct remote *r, const struct slot *s)
{
    return !s->joined && (!s->fetches->batch || r->job.cut);
}

/* Makes *ret of a whole batch. */
static int slot_wrap(struct slot *s, struct cw_assembly **ret, struct cw_error *err)
{
    if (!(*ret = calloc(1, sizeof(**ret))))
        return cw_error_nomem(err, sizeof(**ret), "a batch");
    (*ret)->batch = CW_STEAL(s->fetches->batch);
    (*ret)->quarantined = CW_STEAL(s->fetches->quarantined);
    return 0;
}

/* Makes *ret of the parts of a batch. */
static int slot_join_parts(struct remote *r, struct slot *s, struct cw_assembly **ret, struct cw_error *err)
{
    /* the mutex is not needed: once all fetches of a slot have arrived, only the consumer's thread changes
     * the slot */
    pthread_mutex_unlock(&r->mutex);
    int status = cw_assembly_new(&r->job.layout, &r->slabs, cw_key_size(r->job.compiled, s->key), s->key, ret,
                                 err);
    for (const struct fetch *f = s->fetches; f && status >= 0; f = f->sibling)
        status = cw_part_join(*ret, &f->rows, err);
    if (status >= 0)
        status = cw_assembly_finish(*ret, &r->slabs, err);
    pthread_mutex_lock(&r->mutex);
    for (struct fetch *f = s->fetches; f && status >= 0; f = f->sibling)
        cw_quarantined_move(&f->rows.quarantined, &(*ret)->quarantined);
    return status;
}

int cw_slot_join(struct remote *r, struct slot *s, struct cw_error *err)
{
    struct cw_assembly *a = NULL;
    bool whole = s->fetches->batch;
    int status = whole ? slot_wrap(s, &a, err) : slot_join_parts(r, s, &a, err);
    if (status < 0) {
        cw_assembly_free(a);
        return status;
    }
    a->layout = &r->job.layout;
    a->tail = r->tail.cut ? &r->tail : NULL;
    a->n_applied = whole ? r->job.compiled->n_batch_ops : 0;
    s->joined = a;
    return 0;
}

/* Frees a batch that operators were applied to. The mutex must not be held. */
static void joined_drop_batch(struct cw_batch *b, void *remote)
{
    struct remote *r = remote;
    CW_GUARD(&r->mutex);
    cw_remote_batch_drop(r, b);
}

void cw_remote_joined_free(struct remote *r, struct cw_assembly *joined)
{
    if (!joined)
        return;
    cw_batch_call_drop(joined);
    if (joined->batch)
        joined_drop_batch(CW_STEAL(joined->batch), r);
    cw_assembly_free(joined);
}

bool cw_remote_joined_ready(const struct remote *r, const struct cw_assembly *joined)
{
    return !cw_batch_unfinished(assembly_compiled(r), joined);
}

/* ---- operators: each call has a thread of its own (engine/batch_ops.h) ---- */

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
        status = cw_waiting_wait_here(r, deadline_ns,
                                      joined->tail ? "the next batch from operators of this process"
                                                   : "the next batch from map_batches",
                                      err);
        cw_remote_join_early(r);
    }
    if (status == 0)
        cw_batch_call_count(joined, r->ops);
    return status;
}

/* Applies all operators to a joined batch: the tail, then each operator on batches. If the wait for an
 * operator ends early, the operator goes on, and the next joined_apply for the batch continues there. Returns
 * the same as call_wait. The mutex must not be held. */
static int joined_apply(struct remote *r, struct cw_assembly *joined, uint64_t epoch, uint64_t deadline_ns,
                        struct cw_error *err)
{
    const struct cw_compiled *c = assembly_compiled(r);
    int status = 0;
    while (status == 0 && cw_batch_unfinished(c, joined)) {
        if (!joined->call)
            status = cw_batch_call_begin(c, joined, r->job.options.seed, epoch, call_ended, r, err);
        if (status == 0)
            status = call_wait(r, joined, deadline_ns, err);
        if (status == 0)
            status = cw_batch_call_end(c, joined, joined_get_slab, joined_drop_batch, r, err);
    }
    return status;
}

/* Returns whether a batch is joined, or can be: all of it has arrived without an error, and it is not
 * complete as it arrived. */
static bool slot_can_join(const struct remote *r, const struct slot *s)
{
    bool good = cw_slot_here(s) && (s->joined || cw_slot_must_join(r, s));
    for (const struct fetch *f = s->fetches; f && good; f = f->sibling)
        good = !f->failure;
    return good;
}

void cw_remote_join_early(struct remote *r)
{
    size_t n = 0, most = CW_MIN(CW_MIN(cw_window_size(&r->window), (size_t)r->job.n_cpus + 1),
                                (size_t)JOIN_EARLY_MOST);
    if (!assembly_compiled(r)->n_batch_ops && !r->job.cut)
        return;
    CW_LIST_EACH_OF (c, struct course, link, &r->courses)
        for (struct slot *s = c->slots; s && n < most; s = s->next) {
            struct cw_error err = {0};
            if (!slot_can_join(r, s))
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
