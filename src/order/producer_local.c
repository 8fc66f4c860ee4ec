/* Two producers: one whose batches a runner of this process computes, with an epoch as one range; and one
 * without batches. */
#include "order/producer.h"

#include "engine/runner.h"

struct local {
    struct cw_producer base;
    const struct cw_sequence *sequence;
    struct cw_runner_options options;
    struct cw_runner *runner;
};

struct cw_batches {
    struct cw_range *range;
    /* batches to compute and drop, because they were handed out before: the state came from a service and has
     * only their number */
    uint64_t discard;
};

static struct cw_runner *local_runner(struct cw_producer *p)
{
    return ((struct local *)p)->runner;
}

static struct cw_producer *local_free(struct cw_producer *p)
{
    cw_runner_free(local_runner(p));
    free(p);
    return NULL;
}

static int local_again(struct cw_producer *p, unsigned rank CW_UNUSED, uint64_t world_size CW_UNUSED,
                       struct cw_producer **ret, struct cw_error *err)
{
    struct local *l = (struct local *)p;
    struct cw_runner_options o = l->options;
    o.batches_are_users = true;
    o.adaptive = false;
    return cw_producer_local(l->sequence, p->seed, &o, ret, err);
}

static int local_open(struct cw_producer *p, const struct cw_cursor *from, struct cw_batches **ret,
                      struct cw_error *err)
{
    struct local *l = (struct local *)p;
    struct cw_batches *b = calloc(1, sizeof(*b));
    if (!b)
        return cw_error_nomem(err, sizeof(*b), "an epoch");
    struct cw_range_options o = {
        .seed = p->seed, .epoch = from->epoch, .end = l->sequence->n_positions, .from = from->entry};
    if (p->compiled->sequential && cw_entry_is_begin(p->compiled, &o.from))
        b->discard = from->g;
    int r = cw_runner_open(l->runner, &o, &b->range, err);
    if (r < 0) {
        free(b);
        return r;
    }
    *ret = b;
    return 0;
}

static void local_close(struct cw_producer *p, struct cw_batches *b)
{
    cw_runner_close(local_runner(p), b->range);
    free(b);
}

static int local_next(struct cw_producer *p, struct cw_batches *b, uint64_t ahead CW_UNUSED,
                      uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    int r = cw_runner_next(local_runner(p), b->range, deadline_ns, ret, err);
    for (; r == 0 && b->discard > 0; b->discard--) {
        cw_runner_drop(local_runner(p), *ret);
        r = cw_runner_next(local_runner(p), b->range, deadline_ns, ret, err);
    }
    return r;
}

static int local_finish(struct cw_producer *p, struct cw_assembly *a, bool wanted CW_UNUSED, uint64_t epoch,
                        uint64_t deadline_ns, struct cw_error *err)
{
    return cw_runner_finish(local_runner(p), a, p->seed, epoch, deadline_ns, err);
}

static struct cw_batch *local_take(struct cw_producer *p, struct cw_assembly *a)
{
    return cw_runner_take_batch(local_runner(p), a);
}

static void local_drop(struct cw_producer *p, struct cw_assembly *a)
{
    cw_runner_drop(local_runner(p), a);
}

static void local_release(struct cw_producer *p, struct cw_batch *b)
{
    cw_runner_release(local_runner(p), b);
}

static void local_interrupt(struct cw_producer *p, bool on)
{
    cw_runner_interrupt(local_runner(p), on);
}

static void local_profile(struct cw_producer *p, struct cw_profile *ret)
{
    cw_runner_profile(local_runner(p), ret);
}

static void local_fused(struct cw_producer *p, unsigned *ret)
{
    cw_runner_fused(local_runner(p), ret);
}

static void local_tuned(struct cw_producer *p, struct cw_tuned_log *ret)
{
    cw_runner_tuned(local_runner(p), ret);
}

static const struct cw_producer_ops local_ops = {
    .free = local_free,
    .again = local_again,
    .open = local_open,
    .close = local_close,
    .next = local_next,
    .finish = local_finish,
    .take = local_take,
    .drop = local_drop,
    .release = local_release,
    .interrupt = local_interrupt,
    .profile = local_profile,
    .fused = local_fused,
    .tuned = local_tuned,
};

struct cw_runner *cw_producer_runner(struct cw_producer *p)
{
    return p->ops == &local_ops ? local_runner(p) : NULL;
}

int cw_producer_local(const struct cw_sequence *s, uint64_t seed, const struct cw_runner_options *o,
                      struct cw_producer **ret, struct cw_error *err)
{
    struct local *l = calloc(1, sizeof(*l));
    if (!l)
        return cw_error_nomem(err, sizeof(*l), "an engine");
    *l = (struct local){
        .base = {.ops = &local_ops, .compiled = s->compiled, .plan = cw_sequence_plan(s), .seed = seed},
        .sequence = s,
        .options = *o};
    int r = cw_runner_new(s, o, &l->runner, err);
    if (r < 0) {
        free(l);
        return r;
    }
    *ret = &l->base;
    return 0;
}

/* ---- none ---- */

static struct cw_producer *none_free(struct cw_producer *p)
{
    free(p);
    return NULL;
}

int cw_producer_none(const struct cw_sequence *s, uint64_t seed, struct cw_producer **ret,
                     struct cw_error *err)
{
    static const struct cw_producer_ops none_ops = {.free = none_free};
    struct cw_producer *p = calloc(1, sizeof(*p));
    if (!p)
        return cw_error_nomem(err, sizeof(*p), "an engine");
    *p = (struct cw_producer){
        .ops = &none_ops, .compiled = s->compiled, .plan = cw_sequence_plan(s), .seed = seed};
    *ret = p;
    return 0;
}
