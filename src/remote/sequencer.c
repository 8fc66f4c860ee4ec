/* Sequencers choose which batch of a course (the plan of an epoch's batches) is handed out next: in exact
 * order the next number, unordered any batch of this rank that is ready. The mutex must be held. */
#include "remote/sequencer.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "remote/internal.h"

/* ---- slots ---- */

/* Returns the error of a fetch of the slot that failed; NULL: none failed. */
static const struct cw_error *slot_failure(const struct slot *s)
{
    for (const struct fetch *f = s->fetches; f; f = f->sibling)
        if (f->failure)
            return f->failure;
    return NULL;
}

/* Whether a batch can be handed out at once: all of it has arrived, and operators of this process were
 * applied to it, or failed. */
static bool slot_ready(const struct course *c, const struct slot *s)
{
    const struct remote *r = c->view->remote;
    if (!cw_slot_here(s))
        return false;
    if (s->joined)
        return s->joined->error || cw_remote_joined_ready(r, s->joined);
    return slot_failure(s) || !cw_slot_must_join(r, s) ||
           (!r->job.cut && !c->view->base.compiled->n_batch_ops);
}

/* Whether a part of a batch is lost. If so, counts its range as lost. */
static bool slot_lost(struct remote *r, const struct slot *s)
{
    const struct fetch *f = s->fetches;
    while (f && !f->lost)
        f = f->sibling;
    if (f)
        cw_remote_count_lost(r, cw_range_table_find(&r->ranges, f->epoch, f->begin));
    return f;
}

/* Removes a slot of a course. */
static void slot_remove(struct course *c, struct slot *s)
{
    struct remote *r = c->view->remote;
    CW_UNLINK(c->slots, s);
    cw_slot_free(r, s);
    size_t window = cw_window_size(&r->window), n = r->window.n_outstanding;
    if (n <= window / 2 &&
        (window < 8 ||
         n % 4 == 0)) /* wake the loop only now and then, so that it sends several requests together */
        cw_remote_wake(r);
}

static void slot_trace(struct remote *r, const struct fetch *first)
{
    struct cw_trace *trace = r->job.options.trace;
    for (const struct fetch *f = trace ? first : NULL; f; f = f->sibling) {
        struct cw_traced what = {r->run.stream, f->epoch, f->requested_begin, cw_fetch_first(r, f), f->key};
        if (f == first)
            cw_trace_span(trace, "batch", &what, f->requested_ns, cw_now_ns());
        cw_trace_span(trace, "fetch", &what, f->requested_ns, f->received_ns);
    }
}

/* Moves a batch that has arrived from its slot to *a. 0: done. 3: the batch was only joined, and the mutex
 * was released for that; call again. */
static int slot_take(struct course *c, struct slot *s, struct cw_assembly **a, struct cw_error *err)
{
    struct remote *r = c->view->remote;
    struct fetch *first = s->fetches;
    const struct cw_error *failure = slot_failure(s);
    int status;
    if (failure)
        return cw_error_copy(err, failure);
    if (cw_slot_must_join(r, s))
        return (status = cw_slot_join(r, s, err)) < 0 ? status : 3;
    slot_trace(r, first);
    cw_waiting_done(&r->waiting);
    if (s->joined) {
        cw_assembly_free(*a);
        *a = CW_STEAL(s->joined);
    } else {
        (*a)->batch = CW_STEAL(first->batch);
        (*a)->quarantined = CW_STEAL(first->quarantined);
    }
    slot_remove(c, s);
    return 0;
}

/* ---- the next batch ---- */

/* ret: memory for the entry after the next batch, or NULL if that entry can't be known. It is allocated
 * before the batch is taken, because a batch that was taken must be delivered. */
static int course_new_entry(const struct course *c, struct cw_entry **ret, struct cw_error *err)
{
    const struct cw_compiled *p = c->view->remote->job.compiled;
    bool known = c->placed || (p->sequential && !p->counted);
    *ret = known ? cw_entry_new(p) : NULL;
    return known && !*ret ? cw_error_nomem(err, sizeof(**ret), "a position in an epoch") : 0;
}

/* Call when the next batch was taken: advances the course, and sets a->after to the entry after the batch. */
static void course_advance(struct course *c, struct cw_assembly *a, struct cw_entry *after)
{
    struct remote *r = c->view->remote;
    if (c->placed && c->g == c->placer_g)
        cw_course_take_placed(c);
    if (cw_course_owns_batch(c, c->g))
        c->handed &= ~cw_course_handed_bit(c, c->g);
    c->g++;
    while (c->slots && c->slots->g < c->g) { /* slots of batches that were not needed after all */
        struct slot *s = CW_POP(c->slots);
        s->next = NULL;
        cw_slots_free(r, s);
    }
    a->after = after;
    if (c->placed) /* in a sequential pipeline only the number of the batch is known */
        cw_placer_entry(&c->placer, after);
}

/* Checks whether batch c->g, which is planned and belongs to another rank, exists. 0: it does; 2: not known
 * yet; < 0: its range failed. */
static int course_next_exists(const struct course *c, struct cw_error *err)
{
    uint64_t n;
    if (c->placed ? c->g != c->placer_g || cw_placer_certain(&c->placer)
                  : !c->view->base.compiled->sequential || cw_course_count_sequential(c, &n))
        return 0;
    for (const struct slot *s = c->slots; s; s = s->next)
        if (s->g >= c->g &&
            cw_slot_here(
                s)) /* a later batch arrived, so batch c->g exists, unless its range ended in an error */
            return s->fetches->failure ? cw_error_copy(err, s->fetches->failure) : 0;
    return 2;
}

/* Passes batch c->g, which belongs to another rank. Returns the same as course_take_next. */
static int course_pass_next(struct course *c, struct cw_assembly **a, struct cw_error *err)
{
    struct cw_entry *after;
    int r = course_next_exists(c, err);
    if (r == 0 && (r = course_new_entry(c, &after, err)) == 0)
        course_advance(c, *a, after);
    if (r == 2 && !c->slots) /* no later batch is wanted that would show whether it exists: request it */
        r = cw_course_add_slot(c, c->g, c->placer.batches, err) < 0 ? err->status : 2;
    return r;
}

/* Takes batch c->g, which is planned, into *a; n_ahead > 0: only passes it. 0: done; 2: it has not arrived;
 * 3: as in slot_take. */
static int course_take_next(struct course *c, uint64_t n_ahead, struct cw_assembly **a, struct cw_error *err)
{
    struct remote *r = c->view->remote;
    struct slot *s = c->slots;
    struct cw_entry *after;
    int status = 0;
    if (n_ahead > 0)
        return course_pass_next(c, a, err);
    if (!s || s->g != c->g ||
        !s->fetches) /* it was not known to be wanted, or memory for its fetches was short */
        status = cw_course_add_slot(c, c->g, c->placer.batches, err);
    if (status < 0)
        return status;
    bool here = cw_slot_here(c->slots);
    if (!here && !slot_lost(r, c->slots))
        return 2;
    if ((status = course_new_entry(c, &after, err)) < 0)
        return status;
    if (here) {
        status = slot_take(c, c->slots, a, err);
    } else {
        (*a)->lost = true;
        slot_remove(c, c->slots);
    }
    if (status == 0)
        course_advance(c, *a, after);
    else
        free(after);
    return status;
}

/* Takes the first batch after number c->g that is ready. 0: done; 2: none is ready; 3: as in slot_take. */
static int course_take_early(struct course *c, struct cw_assembly **a, struct cw_error *err)
{
    for (struct slot *s = c->slots; s && cw_course_handed_bit(c, s->g); s = s->next)
        if (s->g > c->g && slot_ready(c, s) && !slot_failure(s)) {
            uint64_t g = s->g;
            int status = slot_take(c, s, a, err);
            if (status == 0) {
                c->handed |= cw_course_handed_bit(c, g);
                (*a)->n_before = g - c->g;
            }
            return status;
        }
    return 2;
}

/* ---- sequencers ---- */

/* Takes a batch of a course into *a. planned: the result of cw_course_plan. 0: done; 1: there are no more
 * batches; 2: no batch is ready; 3: plan, and call again. */
typedef int sequencer(struct course *c, uint64_t n_ahead, int planned, struct cw_assembly **a,
                      struct cw_error *err);

static int sequencer_exact(struct course *c, uint64_t n_ahead, int planned, struct cw_assembly **a,
                           struct cw_error *err)
{
    return c->planned > c->g ? course_take_next(c, n_ahead, a, err) : planned;
}

/* While operators on batches are applied to the next batch, later batches that are ready are taken first. */
static int sequencer_unordered(struct course *c, uint64_t n_ahead, int planned, struct cw_assembly **a,
                               struct cw_error *err)
{
    const struct slot *s = c->slots;
    bool later = !n_ahead && s && s->g == c->g && cw_slot_here(s) && !slot_ready(c, s);
    int status = !later ? sequencer_exact(c, n_ahead, planned, a, err) : c->planned > c->g ? 2 : planned;
    if (status == 2)
        status = course_take_early(c, a, err);
    return status == 2 && later ? course_take_next(c, n_ahead, a, err) : status;
}

static sequencer *const sequencers[] = {[false] = sequencer_exact, [true] = sequencer_unordered};

/* Returns the begin of the range for which the next batch waits. */
static struct epoch_position course_waits_at(const struct course *c)
{
    const struct fetch *f = c->slots && c->slots->g == c->g ? c->slots->fetches : NULL;
    while (f && f->state == FETCH_HERE)
        f = f->sibling;
    return (struct epoch_position){.epoch = c->epoch, .position = f ? f->begin : cw_course_plan_position(c)};
}

int cw_course_next(struct course *c, uint64_t n_ahead, uint64_t deadline_ns, struct cw_assembly **ret,
                   struct cw_error *err)
{
    struct remote *r = c->view->remote;
    sequencer *take = sequencers[r->job.unordered && c->view->main];
    struct cw_assembly *a = calloc(1, sizeof(*a));
    int status = a ? 2 : cw_error_nomem(err, sizeof(*a), "a batch");
    CW_WITH (&r->mutex)
        while (status >= 2) {
            cw_remote_join_early(r);
            cw_course_settle(c);
            if (!c->view->main)
                c->wanted = c->g + n_ahead;
            int planned = cw_course_plan(c, c->g + n_ahead + 1, err);
            status = take(c, n_ahead, planned, &a, err);
            if (status != 2)
                continue;
            if (r->fetches.changed)
                cw_remote_wake(r);
            const struct epoch_position at = course_waits_at(c);
            status = cw_waiting_wait(r, deadline_ns, &at, "a batch", err);
            status = status == 0 ? 2 : status;
        }
    if (status == 0)
        *ret = a;
    else if (a)
        cw_remote_assembly_drop(&c->view->base, a);
    return status;
}
