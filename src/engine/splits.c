/* Splits that a runner in this process computes. */
#include "engine/splits.h"

#include "engine/ahead.h"

struct local {
    struct cw_splits base;
    const struct cw_sequence *sequence;
    struct cw_runner_options options;
    struct cw_runner *runner;
};

static struct cw_runner *runner_of(struct cw_splits *s) { return ((struct local *)s)->runner; }

unsigned cw_n_keys(const struct cw_compiled *c)
{
    return c->batcher == CW_BATCHER_BUCKET || (c->batcher == CW_BATCHER_BATCH && !c->counted) ? c->n_buckets : 0;
}

static struct cw_splits *local_free(struct cw_splits *s)
{
    cw_runner_free(runner_of(s));
    free(s);
    return NULL;
}

static int local_again(struct cw_splits *s, unsigned rank CW_UNUSED, uint64_t world_size CW_UNUSED, struct cw_splits **ret, struct cw_error *err)
{
    struct local *l = (struct local *)s;
    struct cw_runner_options o = l->options;
    o.batches_are_users = true;
    o.adaptive = false;
    return cw_splits_local(l->sequence, s->seed, &o, ret, err);
}

static int local_open(struct cw_splits *s, uint64_t epoch, uint64_t index, uint64_t first_batch, struct cw_split **ret, struct cw_error *err)
{
    return cw_runner_open(runner_of(s), s->seed, epoch, index, first_batch, ret, err);
}

static void local_close(struct cw_splits *s, struct cw_split *split) { cw_runner_close(runner_of(s), split); }

static int local_next(struct cw_splits *s, struct cw_split *split, uint64_t ahead CW_UNUSED, uint64_t deadline_ns, struct cw_assembly **ret,
                      struct cw_error *err)
{
    return cw_runner_next(runner_of(s), split, deadline_ns, ret, err);
}

static uint64_t local_remnant(struct cw_splits *s, struct cw_split *split, unsigned key) { return cw_runner_remnant(runner_of(s), split, key); }
static void local_drop_remnant(struct cw_splits *s, struct cw_split *split, unsigned key) { cw_runner_drop_remnant(runner_of(s), split, key); }

static int local_join_new(struct cw_splits *s, unsigned key, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    return cw_runner_join_new(runner_of(s), key, deadline_ns, ret, err);
}

static int local_join(struct cw_splits *s, struct cw_assembly *dst, struct cw_split *split, unsigned key, uint64_t from, uint64_t n, uint64_t deadline_ns,
                      struct cw_error *err)
{
    return cw_runner_join(runner_of(s), dst, split, key, from, n, deadline_ns, err);
}

static bool local_remnants(struct cw_splits *s, struct cw_split *split, uint64_t *ret_sizes) { return cw_runner_remnants(runner_of(s), split, ret_sizes); }

static bool local_join_ahead(struct cw_splits *s, const struct cw_joined_name *name, const struct cw_joined_part *parts, unsigned n_parts)
{
    return cw_runner_join_ahead(runner_of(s), name, parts, n_parts, s->seed);
}

static void local_claim(struct cw_splits *s, const struct cw_joined_name *name, struct cw_assembly *a) { cw_runner_join_claim(runner_of(s), name, a); }

static int local_finish(struct cw_splits *s, struct cw_assembly *a, bool wanted CW_UNUSED, uint64_t epoch, uint64_t deadline_ns, struct cw_error *err)
{
    return cw_runner_finish(runner_of(s), a, s->seed, epoch, deadline_ns, err);
}

static struct cw_batch *local_take(struct cw_splits *s, struct cw_assembly *a) { return cw_runner_take_batch(runner_of(s), a); }
static void local_drop(struct cw_splits *s, struct cw_assembly *a) { cw_runner_drop(runner_of(s), a); }
static void local_release(struct cw_splits *s, struct cw_batch *b) { cw_runner_release(runner_of(s), b); }
static void local_interrupt(struct cw_splits *s, bool on) { cw_runner_interrupt(runner_of(s), on); }
static void local_profile(struct cw_splits *s, struct cw_profile *ret) { cw_runner_profile(runner_of(s), ret); }
static void local_fused(struct cw_splits *s, unsigned *ret) { cw_runner_fused(runner_of(s), ret); }

static void local_tuned(struct cw_splits *s, struct cw_tuned_log *ret) { cw_runner_tuned(runner_of(s), ret); }

static const struct cw_splits_ops local_ops = {
    .free = local_free,
    .again = local_again,
    .open = local_open,
    .close = local_close,
    .next = local_next,
    .remnant = local_remnant,
    .drop_remnant = local_drop_remnant,
    .join_new = local_join_new,
    .join = local_join,
    .remnants = local_remnants,
    .join_ahead = local_join_ahead,
    .claim = local_claim,
    .finish = local_finish,
    .take = local_take,
    .drop = local_drop,
    .release = local_release,
    .interrupt = local_interrupt,
    .profile = local_profile,
    .fused = local_fused,
    .tuned = local_tuned,
};

struct cw_runner *cw_splits_runner(struct cw_splits *s) { return s->ops == &local_ops ? runner_of(s) : NULL; }

int cw_splits_local(const struct cw_sequence *s, uint64_t seed, const struct cw_runner_options *o, struct cw_splits **ret, struct cw_error *err)
{
    struct local *l = calloc(1, sizeof(*l));
    if (!l)
        return cw_error_nomem(err, sizeof(*l), "splits");
    *l = (struct local){
        .base = {.ops = &local_ops, .compiled = s->compiled, .plan = cw_sequence_plan(s), .seed = seed}, .sequence = s, .options = *o};
    int r = cw_runner_new(s, o, &l->runner, err);
    if (r < 0) {
        free(l);
        return r;
    }
    *ret = &l->base;
    return 0;
}
