/* The table of laws, and the check of two operators against it. Stateless; any thread. */
#include "optimize/laws.h"

#include <string.h>

static const struct cw_law laws[] = {
    {.says = "an operator that drops elements may come before an operator that computes components that the "
             "first one does not read",
     .earlier = CW_COUNT_SAME,
     .later = CW_COUNT_FEWER,
     .conditions = CW_LAW_UNREAD | CW_LAW_NO_DRAW},
    {.says = "an operator that only moves values (as a flip does) may come before an operator that changes "
             "each value by itself",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = 1 << CW_ACTS_PIXELWISE | 1 << CW_ACTS_CAST,
     .later = CW_COUNT_SAME,
     .later_actions = 1 << CW_ACTS_SPATIAL,
     .conditions = CW_LAW_ONLY_READ},
};

const struct cw_law *cw_laws(size_t *ret_n)
{
    *ret_n = CW_COUNT_OF(laws);
    return laws;
}

static bool law_speaks_of(enum cw_op_count count, unsigned actions, const struct cw_op *op)
{
    const struct cw_op_effects *e = &op->desc->effects;
    bool pinned = e->pinned || json_is_true(json_object_get(op->attrs, CW_KEEP_POSITION));
    return e->count == count && (!actions || (actions >> e->action & 1)) && !pinned && !e->renames;
}

static bool law_reads(const struct cw_op *op, const struct cw_op *of)
{
    for (unsigned i = 0; i < op->n_in; i++)
        for (unsigned k = 0; k < of->n_out; k++)
            if (op->in[i].value == of->out[k].value)
                return true;
    return false;
}

static bool law_holds(const struct cw_law *law, const struct cw_op *earlier, const struct cw_op *later)
{
    bool reads = law_reads(later, earlier);
    if ((law->conditions & CW_LAW_UNREAD) && reads)
        return false;
    if ((law->conditions & CW_LAW_ONLY_READ) &&
        (!reads || earlier->n_out != 1 || later->in[0].value != earlier->out[0].value))
        return false;
    return !(law->conditions & CW_LAW_NO_DRAW) || !cw_op_draws(later);
}

const struct cw_law *cw_law_find(const struct cw_op *earlier, const struct cw_op *later)
{
    /* The random draws of an operator depend on how many operators of the same name come before it. */
    if (strcmp(earlier->desc->name, later->desc->name) == 0 && cw_op_draws(earlier))
        return NULL;
    for (size_t i = 0; i < CW_COUNT_OF(laws); i++)
        if (law_speaks_of(laws[i].earlier, laws[i].earlier_actions, earlier) &&
            law_speaks_of(laws[i].later, laws[i].later_actions, later) && law_holds(&laws[i], earlier, later))
            return &laws[i];
    return NULL;
}
