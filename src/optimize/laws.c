/* The table of laws, and the check of two operators against it. Stateless; any thread. */
#include "optimize/laws.h"

#include <string.h>

#include "ops/image/image_role.h"

#define ACTION(name) (1u << CW_ACTS_##name)
#define BY_PIXEL (ACTION(PIXELWISE) | ACTION(CAST) | ACTION(PIXEL))
#define GEOMETRIC (ACTION(SPATIAL) | ACTION(NEIGHBOURHOOD) | ACTION(WARP))

static const struct cw_law laws[] = {
    {.says = "an operator that drops elements may come before an operator that computes components that the "
             "first one does not read",
     .earlier = CW_COUNT_SAME,
     .later = CW_COUNT_FEWER,
     .conditions = CW_LAW_UNREAD | CW_LAW_NO_DRAW},
    {.says = "an operator that only moves pixels (as a flip does) may come before an operator that changes "
             "each pixel by itself",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = BY_PIXEL,
     .later = CW_COUNT_SAME,
     .later_actions = ACTION(SPATIAL),
     .conditions = CW_LAW_SAME_COMPONENT},
    {.says = "an operator that changes each pixel by itself may come before an operator that only moves "
             "pixels (as a flip does)",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = ACTION(SPATIAL),
     .later = CW_COUNT_SAME,
     .later_actions = BY_PIXEL,
     .conditions = CW_LAW_SAME_COMPONENT},
    {.says = "an operator that changes only the shape may come before a cast",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = ACTION(CAST),
     .later = CW_COUNT_SAME,
     .later_actions = ACTION(LAYOUT),
     .conditions = CW_LAW_SAME_COMPONENT},
    {.says = "a cast may come before an operator that changes only the shape",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = ACTION(LAYOUT),
     .later = CW_COUNT_SAME,
     .later_actions = ACTION(CAST),
     .conditions = CW_LAW_SAME_COMPONENT},
    {.says = "operators on different components may change places",
     .earlier = CW_COUNT_SAME,
     .later = CW_COUNT_SAME,
     .conditions = CW_LAW_NO_COMPONENT},
    {.says =
         "operators that move pixels (flips, crops, resizes, rotations, blurs) may change places, if at most "
         "one of them changes the size",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = GEOMETRIC,
     .later = CW_COUNT_SAME,
     .later_actions = GEOMETRIC,
     .conditions = CW_LAW_SAME_COMPONENT | CW_LAW_ONE_SIZE,
     .relaxed = true},
    {.says =
         "an operator that computes values from neighbours (resizes, blurs) may come before one that changes "
         "values or colours",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = BY_PIXEL | ACTION(COLOUR),
     .later = CW_COUNT_SAME,
     .later_actions = ACTION(NEIGHBOURHOOD),
     .conditions = CW_LAW_SAME_COMPONENT,
     .relaxed = true},
    {.says = "an operator that changes values or colours may come before one that computes values from "
             "neighbours (resizes, blurs)",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = ACTION(NEIGHBOURHOOD),
     .later = CW_COUNT_SAME,
     .later_actions = BY_PIXEL | ACTION(COLOUR),
     .conditions = CW_LAW_SAME_COMPONENT,
     .relaxed = true},
    {.says =
         "crops, flips and rotations may come before an operator that changes colours, or makes them grey",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = ACTION(COLOUR) | ACTION(PIXEL),
     .later = CW_COUNT_SAME,
     .later_actions = ACTION(SPATIAL) | ACTION(WARP),
     .conditions = CW_LAW_SAME_COMPONENT,
     .relaxed = true},
    {.says =
         "an operator that changes colours, or makes them grey, may come before crops, flips and rotations",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = ACTION(SPATIAL) | ACTION(WARP),
     .later = CW_COUNT_SAME,
     .later_actions = ACTION(COLOUR) | ACTION(PIXEL),
     .conditions = CW_LAW_SAME_COMPONENT,
     .relaxed = true},
    {.says = "images may become grey before their colours change",
     .earlier = CW_COUNT_SAME,
     .earlier_actions = ACTION(COLOUR),
     .later = CW_COUNT_SAME,
     .later_actions = ACTION(PIXEL),
     .conditions = CW_LAW_SAME_COMPONENT,
     .relaxed = true},
};

const struct cw_law *cw_laws(size_t *ret_n)
{
    *ret_n = CW_COUNT_OF(laws);
    return laws;
}

bool cw_law_pinned(const struct cw_op *op)
{
    return op->desc->effects.pinned || json_is_true(json_object_get(op->attrs, CW_KEEP_POSITION));
}

static bool law_speaks_of(enum cw_op_count count, unsigned actions, const struct cw_op *op)
{
    const struct cw_op_effects *e = &op->desc->effects;
    return e->count == count && e->state == CW_STATE_NONE && (!actions || (actions >> e->action & 1)) &&
           !cw_law_pinned(op);
}

static bool ports_share(const struct cw_port *a, unsigned n_a, const struct cw_port *b, unsigned n_b,
                        uint64_t except)
{
    for (unsigned i = 0; i < n_a; i++)
        for (unsigned k = 0; k < n_b; k++)
            if (a[i].name && a[i].name != except && a[i].name == b[k].name)
                return true;
    return false;
}

/* Whether one of the operators writes a component, other than `except`, that the other reads or writes. */
static bool law_clash(const struct cw_op *a, const struct cw_op *b, uint64_t except)
{
    return ports_share(a->out, a->n_out, b->in, b->n_in, except) ||
           ports_share(a->in, a->n_in, b->out, b->n_out, except) ||
           ports_share(a->out, a->n_out, b->out, b->n_out, except);
}

static bool law_replaces_first(const struct cw_op *op)
{
    return op->n_in && op->n_out && op->in[0].name && op->in[0].name == op->out[0].name;
}

bool cw_law_same_component(const struct cw_op *a, const struct cw_op *b)
{
    return law_replaces_first(a) && law_replaces_first(b) && a->in[0].name == b->in[0].name;
}

/* Whether the results have another size than the images, or may have. */
static bool law_sets_size(const struct cw_op *op)
{
    const struct cw_type *in = &op->in[0].type, *out = &op->out[0].type;
    return (op->desc->image && op->desc->image->step == CW_IMAGE_REGION) || in->ndim != out->ndim ||
           in->ndim < 2 || memcmp(in->dims, out->dims, 2 * sizeof(in->dims[0])) != 0;
}

static bool law_holds(const struct cw_law *law, const struct cw_op *earlier, const struct cw_op *later)
{
    unsigned c = law->conditions;
    if (earlier->desc->effects.renames || later->desc->effects.renames)
        return earlier->desc->effects.projects && (c & CW_LAW_UNREAD) && !cw_op_draws(later);
    return !((c & CW_LAW_UNREAD) && ports_share(earlier->out, earlier->n_out, later->in, later->n_in, 0)) &&
           !((c & CW_LAW_SAME_COMPONENT) &&
             (!cw_law_same_component(earlier, later) || law_clash(earlier, later, earlier->in[0].name))) &&
           /* an operator without outputs may be one that finds nothing to do here, as a cast to the dtype
            * that the component has: elsewhere it could find something */
           !((c & CW_LAW_NO_COMPONENT) &&
             (!earlier->n_out || !later->n_out || law_clash(earlier, later, 0))) &&
           !((c & CW_LAW_ONE_SIZE) && law_sets_size(earlier) && law_sets_size(later)) &&
           !((c & CW_LAW_NO_DRAW) && cw_op_draws(later));
}

const struct cw_law *cw_law_find(const struct cw_op *earlier, const struct cw_op *later, bool relaxed)
{
    /* The random draws of an operator depend on how many operators of the same name come before it. They
     * would stay the same (cw_op.occurrence), but not in a pipeline that is written in the new order. */
    if (strcmp(earlier->desc->name, later->desc->name) == 0 && (cw_op_draws(earlier) || cw_op_draws(later)))
        return NULL;
    for (size_t i = 0; i < CW_COUNT_OF(laws); i++)
        if (laws[i].relaxed <= relaxed && law_speaks_of(laws[i].earlier, laws[i].earlier_actions, earlier) &&
            law_speaks_of(laws[i].later, laws[i].later_actions, later) && law_holds(&laws[i], earlier, later))
            return &laws[i];
    return NULL;
}
