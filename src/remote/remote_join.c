/*
 * Batches as the iterator has them. A batch whose pieces lie in several ranges is joined here. Operators on
 * batches are applied to joined batches of this rank before their turn comes, while earlier ones are waited
 * for or used: each call has a thread of its own. The consumer's thread.
 */
#include <stdlib.h>

#include "remote/remote_impl.h"

#include "base/crash.h"
#include "base/thread.h"
#include "engine/batch_ops.h"

/* Calls of operators under way before their turn: as many as there are CPUs to make them, but no more than
 * batches may be asked for, and than these. */
#define AHEAD_MOST 16

struct remote_assembly *cw_remote_assembly_new(void)
{
    return calloc(1, sizeof(struct remote_assembly));
}

/* ---- batches that are put together ---- */

static int get_slab(size_t size, struct cw_slab **ret, void *arg, struct cw_error *err)
{
    return cw_slab_get(arg, size, ret, err);
}

/* A batch of pieces that are here. */
static int put_together(struct remote *r, unsigned key, struct piece *pieces, struct cw_assembly **ret,
                        struct cw_error *err)
{
    struct cw_assembly *whole;
    int status = cw_assembly_new(&r->layout, &r->slabs, cw_key_size(r->compiled, key), key, &whole, err);
    if (status < 0)
        return status;
    for (struct piece *p = pieces; p && status >= 0; p = p->more)
        status = cw_part_join(whole, &p->rows, err);
    if (status >= 0)
        status = cw_assembly_finish(whole, &r->slabs, err);
    if (status < 0) {
        cw_assembly_free(whole);
        return status;
    }
    for (struct piece *p = pieces; p; p = p->more)
        cw_quarantined_move(&p->rows.quarantined, &whole->quarantined);
    *ret = whole;
    return 0;
}

static void call_ended(void *arg)
{
    struct remote *r = arg;
    CW_GUARD(&r->mutex);
    pthread_cond_broadcast(&r->changed);
}

/* The next operator: a call on a thread of its own (engine/batch_ops.h); and what it gave, once it is over.
 */
static int call_begin(struct remote *r, struct cw_assembly *whole, uint64_t epoch, struct cw_error *err)
{
    return cw_batch_call_begin(r->compiled, whole, r->options.seed, epoch, call_ended, r, err);
}

static int call_end(struct remote *r, struct cw_assembly *whole, struct cw_error *err)
{
    return cw_batch_call_end(r->compiled, whole, get_slab, &r->slabs, err);
}

static int wait_call(struct remote *r, struct cw_assembly *a, uint64_t deadline_ns, struct cw_error *err)
{
    int status = 0;
    CW_GUARD(&r->mutex);
    while (status == 0 && !cw_batch_call_over(a)) {
        status = cw_remote_wait_here(r, deadline_ns, "what map_batches makes of the next batch", err);
        cw_remote_meanwhile(r);
    }
    if (status == 0)
        cw_batch_call_count(a, r->ops);
    return status;
}

/* Operators on batches are applied here, one call after the other. A wait that ends leaves the call where it
 * is. */
static int apply(struct remote *r, struct cw_assembly *a, uint64_t epoch, uint64_t deadline_ns,
                 struct cw_error *err)
{
    int status = 0;
    if (a->error) /* made before its turn */
        return cw_error_copy(err, a->error);
    while (status == 0 && a->n_applied < r->compiled->n_batch_ops) {
        if (!a->call)
            status = call_begin(r, a, epoch, err);
        if (status == 0)
            status = wait_call(r, a, deadline_ns, err);
        if (status == 0)
            status = call_end(r, a, err);
    }
    return status;
}

void cw_whole_free(struct cw_assembly **whole)
{
    if (*whole)
        cw_batch_call_drop(*whole);
    *whole = cw_assembly_free(*whole);
}

/* a->whole becomes the batch. */
static int take_whole(struct remote *r, struct remote_assembly *a, struct cw_error *err)
{
    struct remote_batch *b = cw_remote_batch_new(r);
    if (!b)
        return cw_error_nomem(err, sizeof(*b), "a batch");
    cw_quarantined_move(&a->whole->quarantined, &a->a.quarantined);
    b->b = *a->whole->batch;
    free(CW_STEAL(a->whole->batch));
    cw_whole_free(&a->whole);
    a->a.batch = &b->b;
    return 0;
}

int cw_remote_finish(struct cw_producer *base, struct cw_assembly *assembly, bool wanted, uint64_t epoch,
                     uint64_t deadline_ns, struct cw_error *err)
{
    struct remote *r = ((struct view *)base)->remote;
    struct remote_assembly *a = (struct remote_assembly *)assembly;
    if (!wanted || a->a.batch)
        return 0;
    int status = a->whole ? 0 : put_together(r, a->a.bucket, a->pieces, &a->whole, err);
    if (status == 0)
        status = apply(r, a->whole, epoch, deadline_ns, err);
    return status == 0 ? take_whole(r, a, err) : status;
}

/* But for its batch. */
static void free_assembly(struct remote *r, struct remote_assembly *a)
{
    CW_WITH (&r->mutex)
        cw_pieces_free(r, &a->pieces);
    cw_whole_free(&a->whole);
    cw_quarantined_free(a->a.quarantined);
    free(a->a.after);
    free(a->a.error);
    free(a);
}

struct cw_batch *cw_remote_take(struct cw_producer *base, struct cw_assembly *assembly)
{
    struct remote *r = ((struct view *)base)->remote;
    struct remote_assembly *a = (struct remote_assembly *)assembly;
    struct cw_batch *b = CW_STEAL(a->a.batch);
    r->n_batches++;
    if (((struct view *)base)->main)
        cw_remote_note_pace(r);
    cw_crash_point("client-taken");
    free_assembly(r, a);
    b->index = 0; /* a client's batch has no number in a range */
    cw_batch_disown(b);
    cw_remote_users_add((struct remote_batch *)b);
    return b;
}

void cw_remote_drop(struct cw_producer *base, struct cw_assembly *assembly)
{
    struct remote_assembly *a = (struct remote_assembly *)assembly;
    if (a->a.batch)
        cw_remote_batch_release((struct remote_batch *)a->a.batch);
    free_assembly(((struct view *)base)->remote, a);
}

/* ---- before their turn ---- */

/* The first call, and each that follows one that is over. What one fails with is met when the batch's turn
 * comes. Mutex not held. */
static void call_on(struct remote *r, struct cw_assembly *a, uint64_t epoch)
{
    struct cw_error err = {0};
    int status = 0;
    if (a->error || a->n_applied == r->compiled->n_batch_ops || (a->call && !cw_batch_call_over(a)))
        return;
    if (a->call) {
        CW_WITH (&r->mutex)
            cw_batch_call_count(a, r->ops);
        status = call_end(r, a, &err);
    }
    if (status == 0 && a->n_applied < r->compiled->n_batch_ops)
        status = call_begin(r, a, epoch, &err);
    if (status < 0)
        cw_assembly_poison(a, &err, 0);
}

/* All of it is here as it is, to be put together. Mutex held. */
static bool is_to_join(const struct slot *s)
{
    bool good = cw_slot_here(s) && !s->pieces->batch;
    for (const struct piece *p = s->pieces; p && good; p = p->more)
        good = !p->failed;
    return good;
}

void cw_remote_meanwhile(struct remote *r)
{
    size_t n = 0, most = CW_MIN(CW_MIN(cw_remote_window(r), (size_t)r->n_cpus + 1), (size_t)AHEAD_MOST);
    for (const struct course *c = r->compiled->n_batch_ops ? r->courses : NULL; c; c = c->next)
        for (struct slot *s = c->slots; s && n < most; s = s->next) {
            /* one that is here stays, and is this thread's to take */
            struct cw_error err = {0};
            if (!is_to_join(s))
                continue;
            n++;
            pthread_mutex_unlock(&r->mutex);
            /* else it fails again when its turn comes */
            if (s->whole || put_together(r, s->key, s->pieces, &s->whole, &err) == 0)
                call_on(r, s->whole, c->epoch);
            pthread_mutex_lock(&r->mutex);
        }
}
