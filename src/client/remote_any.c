/*
 * Order "any": the client opens splits, and hands out the first batch that is ready in any of them. Its
 * requests are divided among workers, so that no worker uses up the share of others.
 */
#include <stdlib.h>
#include <string.h>

#include "client/remote_impl.h"

static struct remote *remote_of(struct cw_producer *p) { return ((struct view *)p)->remote; }
static struct course *course_of(struct cw_split *s) { return (struct course *)s; }

/* ---- the consumer's thread ---- */

static int split_open(struct cw_producer *base, uint64_t epoch, uint64_t index, uint64_t first_batch, struct cw_split **ret, struct cw_error *err)
{
    struct remote *r = remote_of(base);
    pthread_mutex_lock(&r->mutex);
    struct course *c = cw_course_split((struct view *)base, epoch, index, first_batch);
    pthread_mutex_unlock(&r->mutex);
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "a split");
    cw_remote_wake(r);
    *ret = (struct cw_split *)c;
    return 0;
}

/* Elements of a key that a split leaves over; 0 while their number is not known. Mutex held. */
static uint64_t left_over(const struct course *c, unsigned key, uint64_t *ret_from) { return c->places && cw_course_over(c) && !c->lost ? cw_placer_left(&c->placer, key, ret_from) : 0; }

/* Whether batches or elements of a split were lost before this rank took them. Mutex held. */
static bool left_out(struct course *c)
{
    uint64_t n_left = 0, from;
    if (!c->lost)
        return false;
    if (!cw_course_over(c) || c->g < c->planned)
        return true;
    for (unsigned k = 0; c->places && k < c->placer.n_keys; k++)
        n_left += cw_placer_left(&c->placer, k, &from);
    return c->n_joined < n_left;
}

static void split_close(struct cw_producer *base, struct cw_split *split)
{
    struct remote *r = remote_of(base);
    pthread_mutex_lock(&r->mutex);
    r->n_lost += ((struct view *)base)->main && left_out(course_of(split));
    cw_course_free(course_of(split));
    pthread_mutex_unlock(&r->mutex);
    cw_remote_wake(r);
}

static int split_next(struct cw_producer *base CW_UNUSED, struct cw_split *split, uint64_t ahead, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    return cw_course_next(course_of(split), ahead, deadline_ns, ret, err);
}

/* Whether a joined batch need not be waited for any more: all its pieces are here, or one is lost. Mutex
 * held. */
static bool joined_ready(const struct remote_assembly *a)
{
    bool here = true;
    for (const struct piece *p = a->pieces; p; p = p->more) {
        if (p->lost)
            return true;
        here &= p->state == HERE;
    }
    return here;
}

static int split_any(struct cw_producer *base, struct cw_split *const *splits, unsigned n, const struct cw_assembly *joined, uint64_t deadline_ns, unsigned *ret,
                     struct cw_error *err)
{
    struct remote *r = remote_of(base);
    bool asked = false;
    int status = 0;
    pthread_mutex_lock(&r->mutex);
    while (status == 0) {
        unsigned i = n;
        bool ready = joined && joined_ready((const struct remote_assembly *)joined);
        for (i = ready ? n : 0; i < n && !cw_course_ready(course_of(splits[i])); i++)
            ;
        if (i < n || ready) {
            *ret = i;
            break;
        }
        if (!asked || r->unasked) /* batches that were taken made room */
            cw_remote_wake(r);
        asked = true;
        const struct place at = n ? (struct place){.epoch = course_of(splits[0])->epoch, .position = course_of(splits[0])->begin} : (struct place){0};
        status = cw_remote_wait(r, deadline_ns, n ? &at : NULL, n ? "a batch" : "what is left over of a split", err);
    }
    pthread_mutex_unlock(&r->mutex);
    return status;
}

static uint64_t split_remnant(struct cw_producer *base, struct cw_split *split, unsigned key)
{
    struct remote *r = remote_of(base);
    uint64_t from;
    pthread_mutex_lock(&r->mutex);
    uint64_t n = left_over(course_of(split), key, &from);
    pthread_mutex_unlock(&r->mutex);
    return n;
}

static int join_new(struct cw_producer *base, unsigned key, struct cw_assembly **ret, struct cw_error *err)
{
    struct remote_assembly *a = cw_remote_assembly_new();
    if (!a)
        return cw_error_nomem(err, sizeof(*a), "a batch");
    a->a.bucket = key;
    a->a.capacity = cw_key_size(base->compiled, key);
    *ret = &a->a;
    return 0;
}

static int join(struct cw_producer *base, struct cw_assembly *dst, struct cw_split *split, unsigned key, uint64_t from, uint64_t n, struct cw_error *err)
{
    struct remote *r = remote_of(base);
    struct remote_assembly *a = (struct remote_assembly *)dst;
    struct course *c = course_of(split);
    uint64_t first = 0;
    pthread_mutex_lock(&r->mutex);
    (void)left_over(c, key, &first);
    const struct piece what = {.epoch = c->epoch, .begin = c->begin, .what = CACHEW__WHAT__WHAT_PART, .key = key, .first = first + from, .n = n};
    struct piece *p = cw_piece_new(r, &what);
    if (p) {
        *a->last = p;
        a->last = &p->more;
        dst->n_assigned += n;
        c->n_joined += p->lost ? 0 : n;
        cw_remote_wake(r); /* the piece may come while other batches are waited for */
    }
    pthread_mutex_unlock(&r->mutex);
    return p ? 0 : cw_error_nomem(err, sizeof(*p), "what a split left over");
}

static void split_passed(struct cw_producer *base, uint64_t epoch, uint64_t split, uint64_t batch CW_UNUSED)
{
    struct remote *r = remote_of(base);
    if (!((struct view *)base)->main)
        return;
    pthread_mutex_lock(&r->mutex);
    uint64_t position = CW_MIN(split * base->plan.split_size, base->plan.n_positions);
    bool moved = epoch != r->from.epoch || position != r->from.entry.position;
    r->from.g = epoch == r->from.epoch ? r->from.g : 0;
    r->from.epoch = epoch;
    r->from.entry.position = position;
    r->finished = epoch >= r->options.epochs;
    pthread_mutex_unlock(&r->mutex);
    if (moved)
        cw_remote_wake(r);
}

const struct cw_split_ops cw_remote_split_ops = {
    .open = split_open,
    .close = split_close,
    .next = split_next,
    .any = split_any,
    .remnant = split_remnant,
    .join_new = join_new,
    .join = join,
    .passed = split_passed,
};

/* ---- requests: the loop's thread, mutex held ---- */

/* The worker that has more batches of a split for this rank; NULL: there is none. */
static struct link *giver(struct remote *r, const struct course *c)
{
    const struct known_range *x = c->split && !c->none_wanted && !c->lost ? cw_remote_range(r, c->epoch, c->begin) : NULL;
    return x && x->worker && !(cw_course_over(c) && c->g >= c->planned) ? cw_remote_link(r, x->worker) : NULL;
}

/* Divides the window among the workers that have open splits: a worker that stands still keeps its share, and
 * no more. Earlier splits come first. Batches of a later split may not be handed out yet, and the earlier one
 * must get its turn. */
void cw_remote_want_any(struct remote *r)
{
    struct cw_error err = {0};
    size_t n_workers = 0, share;
    for (struct link *l = r->links; l; l = l->next)
        l->n_wanted = SIZE_MAX;
    for (struct course *c = r->courses; c; c = c->next) {
        struct link *l = giver(r, c);
        n_workers += l && l->n_wanted == SIZE_MAX;
        if (l)
            l->n_wanted = 0;
    }
    share = CW_MAX(cw_remote_window(r) / CW_MAX(n_workers, (size_t)1), (size_t)1);
    for (struct course *c = r->courses; c; c = c->next) {
        struct link *l = giver(r, c);
        if (c->split && c->none_wanted)
            (void)cw_course_plan(c, 0, &err);
        if (!l)
            continue;
        for (const struct slot *s = c->slots; s; s = s->next)
            l->n_wanted++;
        while (c->planned < c->g + share && l->n_wanted < share && cw_course_plan(c, c->planned + 1, &err) == 0)
            l->n_wanted++;
    }
}
