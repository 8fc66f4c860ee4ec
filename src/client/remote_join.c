/* Batches as the iterator has them; and those that are joined of what splits left over: their parts are fetched when they are wanted. The consumer's thread. */
#include <stdlib.h>

#include "client/remote_impl.h"

#include "engine/batch_ops.h"

#include "base/crash.h"

struct remote_assembly *cw_remote_assembly_new(void)
{
    struct remote_assembly *a = calloc(1, sizeof(*a));
    if (a)
        a->last = &a->parts;
    return a;
}

int cw_remote_join_new(struct cw_splits *base, unsigned key, uint64_t deadline_ns CW_UNUSED, struct cw_assembly **ret, struct cw_error *err)
{
    struct remote_assembly *a = cw_remote_assembly_new();
    if (!a)
        return cw_error_nomem(err, sizeof(*a), "a batch");
    a->a.bucket = key;
    a->a.capacity = base->compiled->bucket_sizes[key];
    *ret = &a->a;
    return 0;
}

int cw_remote_join(struct cw_splits *base, struct cw_assembly *dst, struct cw_split *split, unsigned key, uint64_t from, uint64_t n,
                       uint64_t deadline_ns CW_UNUSED, struct cw_error *err)
{
    struct remote *r = ((struct view *)base)->remote;
    struct remote_assembly *a = (struct remote_assembly *)dst;
    struct remote_split *s = (struct remote_split *)split;
    pthread_mutex_lock(&r->mutex);
    struct part *p = cw_remote_early(r, s->epoch, s->index, key, from, n);
    if (!p && (p = calloc(1, sizeof(*p)))) {
        *p = (struct part){.next_known = r->parts, .epoch = s->epoch, .split = s->index, .from = from, .n = n, .key = key, .lost = s->lost};
        r->parts = p;
        p->wanted = ((struct view *)base)->world_size == 1 || !((struct view *)base)->main; /* it will be: it may come while others are waited for */
        if (p->wanted)
            cw_remote_wake(r);
    }
    if (p) {
        *a->last = p;
        a->last = &p->next;
        dst->n_assigned += n;
        s->n_joined += p->lost ? 0 : n;
    }
    pthread_mutex_unlock(&r->mutex);
    return p ? 0 : cw_error_nomem(err, sizeof(*p), "a remnant");
}

/* ---- joined batches ---- */

/* 1: something of it is lost. */
static int fetch_parts(struct remote *r, const struct remote_assembly *a, uint64_t deadline_ns, struct cw_error *err)
{
    bool lost = false;
    int status = 0;
    pthread_mutex_lock(&r->mutex);
    for (struct part *p = a->parts; p; p = p->next)
        if (!p->wanted) {
            p->wanted = true;
            cw_remote_wake(r);
        }
    for (struct part *p = a->parts; p && status >= 0; p = p->next) {
        while (p->state != HERE && !p->lost && status >= 0) {
            status = cw_remote_wait(r, deadline_ns, NULL, "what is left over of a split", err);
            cw_remote_meanwhile(r);
        }
        if (status >= 0 && p->lost)
            lost = true;
        if (status >= 0 && p->failed) {
            *err = *p->failed;
            status = err->status;
        }
    }
    if (status >= 0)
        cw_remote_waited(r);
    if (status >= 0 && lost)
        r->n_lost_joined += a->a.n_assigned;
    pthread_mutex_unlock(&r->mutex);
    return status >= 0 && lost ? 1 : status;
}

static int get_slab(size_t size, struct cw_slab **ret, void *arg, struct cw_error *err) { return cw_slab_get(arg, size, ret, err); }

int cw_remote_put_together(struct remote *r, unsigned key, struct part *const *parts, unsigned n, struct cw_assembly **ret, struct cw_error *err)
{
    struct cw_assembly *whole;
    int status = cw_assembly_new(&r->layout, &r->slabs, r->compiled->bucket_sizes[key], key, &whole, err);
    if (status < 0)
        return status;
    for (unsigned i = 0; i < n && status >= 0; i++)
        status = cw_remnant_join(whole, &parts[i]->here, err);
    if (status >= 0)
        status = cw_assembly_finish(whole, &r->slabs, err);
    if (status < 0) {
        cw_assembly_free(whole);
        return status;
    }
    for (unsigned i = 0; i < n; i++)
        cw_quarantined_move(&parts[i]->here.quarantined, &whole->quarantined);
    *ret = whole;
    return 0;
}

/* What is all here: a->whole. */
static int join_parts(struct remote *r, struct remote_assembly *a, struct cw_error *err)
{
    unsigned n = 0;
    for (const struct part *p = a->parts; p; p = p->next)
        n++;
    _cleanup_free_ struct part **parts = malloc((n + 1) * sizeof(*parts));
    if (!parts)
        return cw_error_nomem(err, n * sizeof(*parts), "a batch");
    n = 0;
    for (struct part *p = a->parts; p; p = p->next)
        parts[n++] = p;
    return cw_remote_put_together(r, a->a.bucket, parts, n, &a->whole, err);
}

static void call_ended(void *arg)
{
    struct remote *r = arg;
    pthread_mutex_lock(&r->mutex);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

int cw_remote_call_begin(struct remote *r, struct cw_assembly *whole, uint64_t epoch, struct cw_error *err)
{
    return cw_batch_call_begin(r->compiled, whole, r->options.seed, epoch, call_ended, r, err);
}

int cw_remote_call_end(struct remote *r, struct cw_assembly *whole, struct cw_error *err)
{
    return cw_batch_call_end(r->compiled, whole, get_slab, &r->slabs, err);
}

static int wait_call(struct remote *r, struct cw_assembly *a, uint64_t deadline_ns, struct cw_error *err)
{
    int status = 0;
    pthread_mutex_lock(&r->mutex);
    while (status == 0 && !cw_batch_call_over(a)) {
        status = cw_remote_wait_here(r, deadline_ns, "what map_batches makes of the next batch", err);
        cw_remote_meanwhile(r);
    }
    if (status == 0)
        cw_batch_call_count(a, r->ops);
    pthread_mutex_unlock(&r->mutex);
    return status;
}

/* Operators on batches are applied here, one call after the other. A wait that ends leaves the call where it is. */
static int apply(struct remote *r, struct cw_assembly *a, uint64_t epoch, uint64_t deadline_ns, struct cw_error *err)
{
    int status = 0;
    if (a->error) { /* made before its turn */
        *err = *a->error;
        return err->status;
    }
    while (status == 0 && a->n_applied < r->compiled->n_batch_ops) {
        if (!a->call)
            status = cw_remote_call_begin(r, a, epoch, err);
        if (status == 0)
            status = wait_call(r, a, deadline_ns, err);
        if (status == 0)
            status = cw_remote_call_end(r, a, err);
    }
    return status;
}

static void free_whole(struct remote_assembly *a)
{
    if (a->whole)
        cw_batch_call_drop(a->whole);
    a->whole = cw_assembly_free(a->whole);
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
    free_whole(a);
    a->a.batch = &b->b;
    return 0;
}

int cw_remote_finish(struct cw_splits *base, struct cw_assembly *assembly, bool wanted, uint64_t epoch, uint64_t deadline_ns, struct cw_error *err)
{
    struct remote *r = ((struct view *)base)->remote;
    struct remote_assembly *a = (struct remote_assembly *)assembly;
    if (!wanted || a->a.batch)
        return 0;
    int status = a->whole ? 0 : fetch_parts(r, a, deadline_ns, err);
    if (status == 0 && !a->whole)
        status = join_parts(r, a, err);
    if (status == 0)
        status = apply(r, a->whole, epoch, deadline_ns, err);
    return status == 0 ? take_whole(r, a, err) : status;
}

void cw_remote_part_free(struct remote *r, struct part *p)
{
    pthread_mutex_lock(&r->mutex);
    for (struct part **at = &r->parts; *at; at = &(*at)->next_known)
        if (*at == p) {
            *at = p->next_known;
            break;
        }
    pthread_mutex_unlock(&r->mutex);
    cw_remnant_deinit(&p->here);
    free(p->failed);
    free(p);
}

static void free_parts(struct remote *r, struct remote_assembly *a)
{
    while (a->parts) {
        struct part *p = a->parts;
        a->parts = p->next;
        cw_remote_part_free(r, p);
    }
}

struct cw_batch *cw_remote_take(struct cw_splits *base, struct cw_assembly *assembly)
{
    struct remote *r = ((struct view *)base)->remote;
    struct remote_assembly *a = (struct remote_assembly *)assembly;
    struct cw_batch *b = CW_STEAL(a->a.batch);
    r->n_batches++;
    if (((struct view *)base)->main)
        cw_remote_note_pace(r);
    cw_crash_point("client-taken");
    free_parts(r, a);
    cw_quarantined_free(a->a.quarantined);
    free(a);
    cw_batch_disown(b);
    cw_remote_users_add((struct remote_batch *)b);
    return b;
}

void cw_remote_drop(struct cw_splits *base, struct cw_assembly *assembly)
{
    struct remote_assembly *a = (struct remote_assembly *)assembly;
    if (a->a.batch)
        cw_remote_batch_release((struct remote_batch *)a->a.batch);
    free_whole(a);
    free_parts(((struct view *)base)->remote, a);
    cw_quarantined_free(a->a.quarantined);
    if (a->a.error)
        free(a->a.error);
    free(a);
}
