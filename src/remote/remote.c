/* The producer as the iterator sees it: the consumer's thread. */
#include "remote/remote_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"

static struct view *view_of(struct cw_producer *p)
{
    return (struct view *)p;
}

static struct remote *remote_of(struct cw_producer *p)
{
    return view_of(p)->remote;
}

/* ---- batches ---- */

static int remote_open(struct cw_producer *base, const struct cw_cursor *from, struct cw_batches **ret,
                       struct cw_error *err)
{
    struct remote *r = remote_of(base);
    struct course *c = CW_LOCKED(&r->mutex, cw_course_new(view_of(base), from));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "the batches of an epoch");
    cw_remote_wake(r);
    *ret = (struct cw_batches *)c;
    return 0;
}

static void remote_close(struct cw_producer *base, struct cw_batches *b)
{
    struct remote *r = remote_of(base);
    CW_WITH (&r->mutex)
        cw_course_free((struct course *)b);
    cw_remote_wake(r);
}

static int remote_next(struct cw_producer *base CW_UNUSED, struct cw_batches *b, uint64_t ahead,
                       uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    return cw_course_next((struct course *)b, ahead, deadline_ns, ret, err);
}

static void remote_release(struct cw_producer *base CW_UNUSED, struct cw_batch *b)
{
    cw_remote_batch_release((struct remote_batch *)b);
}

static void remote_passed(struct cw_producer *base, const struct cw_cursor *from)
{
    struct remote *r = remote_of(base);
    if (!view_of(base)->main)
        return;
    CW_GUARD(&r->mutex);
    cw_cursor_set(r->compiled, &r->from, from);
    r->finished = from->epoch >= r->options.epochs;
    if (cw_remote_moved(r))
        cw_remote_wake(r);
}

static void remote_interrupt(struct cw_producer *base, bool on)
{
    struct remote *r = remote_of(base);
    CW_GUARD(&r->mutex);
    r->interrupted = on;
    pthread_cond_broadcast(&r->changed);
}

/* What came and was not taken goes back to the workers that lent it; the loop's thread says goodbye. */
static void remote_leave(struct cw_producer *base)
{
    struct remote *r = remote_of(base);
    CW_WITH (&r->mutex) {
        r->left = true;
        for (struct course *c = r->courses; c; c = c->next)
            cw_course_drop_slots(c);
    }
    cw_remote_wake(r);
}

static void remote_profile(struct cw_producer *base, struct cw_profile *ret)
{
    struct remote *r = remote_of(base);
    struct cw_op_profile *ops = ret->ops;
    unsigned n = base->compiled->pipeline->n_ops;
    CW_GUARD(&r->mutex);
    memcpy(ops, r->ops, n * sizeof(*ops));
    *ret = (struct cw_profile){.ops = ops,
                               .n_ops = n,
                               .wait_ns = r->wait_ns,
                               .run_ns = cw_now_ns() - r->started_ns}; /* no threads here compute */
}

uint64_t cw_remote_lost(const struct cw_producer *p)
{
    struct remote *r = ((const struct view *)p)->remote;
    CW_GUARD(&r->mutex);
    return r->n_lost;
}

static void remote_fused(struct cw_producer *base, unsigned *ret)
{
    for (unsigned i = 0; i < base->compiled->pipeline->n_ops; i++)
        ret[i] = i;
}

static void remote_tuned(struct cw_producer *base, struct cw_tuned_log *ret)
{
    struct remote *r = remote_of(base);
    CW_GUARD(&r->mutex);
    cw_tuned_add_all(ret, &r->tuned);
}

static struct cw_producer *remote_free(struct cw_producer *base);
static int remote_again(struct cw_producer *base, unsigned rank, uint64_t world_size,
                        struct cw_producer **ret, struct cw_error *err);

const struct cw_producer_ops cw_remote_ops = {
    .free = remote_free,
    .again = remote_again,
    .open = remote_open,
    .close = remote_close,
    .next = remote_next,
    .finish = cw_remote_finish,
    .take = cw_remote_take,
    .drop = cw_remote_drop,
    .leave = remote_leave,
    .release = remote_release,
    .interrupt = remote_interrupt,
    .passed = remote_passed,
    .profile = remote_profile,
    .fused = remote_fused,
    .tuned = remote_tuned,
};

/* ---- views: the iterator's, and those that repeat a batch ---- */

static int remote_again(struct cw_producer *base, unsigned rank, uint64_t world_size,
                        struct cw_producer **ret, struct cw_error *err)
{
    struct view *v = malloc(sizeof(*v));
    if (!v)
        return cw_error_nomem(err, sizeof(*v), "a producer");
    *v = (struct view){.base = *base, .remote = remote_of(base), .rank = rank, .world_size = world_size};
    *ret = &v->base;
    return 0;
}

static struct cw_producer *remote_free(struct cw_producer *base)
{
    struct view *v = view_of(base);
    struct remote *r = v->remote;
    CW_WITH (&r->mutex) {
        r->left |= v->main; /* nothing more is planned */
        for (struct course *c = r->courses; c;) {
            struct course *next = c->next;
            if (c->view == v)
                cw_course_free(c);
            c = next;
        }
    }
    if (v->main)
        cw_remote_deinit(r);
    else
        free(v);
    return NULL;
}
