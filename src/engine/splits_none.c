/* Splits that nobody computes: of an iterator that is asked where it stands, and for nothing else. */
#include "engine/splits.h"

static struct cw_splits *none_free(struct cw_splits *s)
{
    free(s);
    return NULL;
}

static int none_open(struct cw_splits *s, uint64_t epoch CW_UNUSED, uint64_t index CW_UNUSED, uint64_t first_batch CW_UNUSED, struct cw_split **ret,
                     struct cw_error *err CW_UNUSED)
{
    *ret = (struct cw_split *)s; /* something; it is given back and nothing else */
    return 0;
}

static void none_close(struct cw_splits *s CW_UNUSED, struct cw_split *split CW_UNUSED) {}

static const struct cw_splits_ops ops = {.free = none_free, .open = none_open, .close = none_close};

int cw_splits_none(const struct cw_sequence *s, uint64_t seed, struct cw_splits **ret, struct cw_error *err)
{
    struct cw_splits *none = malloc(sizeof(*none));
    if (!none)
        return cw_error_nomem(err, sizeof(*none), "splits");
    *none = (struct cw_splits){.ops = &ops, .compiled = s->compiled, .plan = cw_sequence_plan(s), .seed = seed};
    *ret = none;
    return 0;
}
