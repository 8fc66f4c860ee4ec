/* Fuses consecutive image operators of a program. Called by the engine and by `explain`. */
#include "optimize/optimize.h"

#include <string.h>

#include "ops/image/image_chain.h"

struct cw_optimized *cw_optimized_free(struct cw_optimized *o)
{
    if (!o)
        return NULL;
    for (unsigned i = 0; i < o->n_owned; i++)
        cw_op_free(o->owned[i]);
    free(o->owned);
    free(o->ops);
    free(o->stage);
    free(o->fused_into);
    free(o);
    return NULL;
}

/* Whether a value is an output, or is read by an operator other than ops[except]. */
static bool optimize_used_elsewhere(const struct cw_program *g, unsigned value, unsigned except)
{
    for (unsigned k = 0; k < g->n_outputs; k++)
        if (g->outputs[k].value == value)
            return true;
    for (unsigned i = 0; i < g->n_ops; i++)
        for (unsigned p = 0; i != except && p < g->ops[i]->n_in; p++)
            if (g->ops[i]->in[p].value == value)
                return true;
    return false;
}

/* Returns how many operators from ops[at] on, before `end`, can be fused into one: consecutive image
 * operators on one component, whose intermediate values no other operator reads. 0 or 1: nothing to fuse. */
static unsigned optimize_fusable(const struct cw_program *g, unsigned at, unsigned end)
{
    unsigned n = 1;
    while (at + n < end && g->ops[at + n - 1]->desc->image && g->ops[at + n]->desc->image &&
           g->ops[at + n]->in[0].value == g->ops[at + n - 1]->out[0].value &&
           !optimize_used_elsewhere(g, g->ops[at + n - 1]->out[0].value, at + n))
        n++;
    return n < 2 ? n : (unsigned)cw_image_chain_match((const struct cw_op *const *)&g->ops[at], n);
}

static int optimize_fuse(struct cw_optimized *o, const struct cw_program *g, unsigned at, unsigned n,
                         struct cw_error *err)
{
    struct cw_op *op = calloc(1, sizeof(*op));
    if (!op)
        return cw_error_nomem(err, sizeof(*op), "an operator");
    int r = cw_image_chain_new((const struct cw_op *const *)&g->ops[at], n, op, err);
    if (r != 0) {
        free(op);
        return r;
    }
    op->live = g->ops[at + n - 1]->live;
    o->owned[o->n_owned++] = op;
    o->ops[o->n_ops++] = op;
    for (unsigned i = at; i < at + n; i++)
        o->fused_into[g->ops[i]->position] = op->position;
    return 0;
}

/* Copies the operators to `to` without the cache points that are not in use, so that these do not end fused
 * runs. */
static void optimize_leave_out_cache_points(const struct cw_program *from, unsigned n_limits,
                                            const struct cw_op *cache_point, struct cw_program *to)
{
    to->n_ops = 0;
    for (unsigned k = 0, i = 0; k < n_limits + 3; k++) {
        for (; i < from->stage[k]; i++)
            if (!from->ops[i]->desc->cache_point || from->ops[i] == cache_point)
                to->ops[to->n_ops++] = from->ops[i];
        to->stage[k] = to->n_ops;
    }
}

static int optimize_program(const struct cw_program *g, unsigned n_limits, unsigned n_positions, bool enable,
                            struct cw_optimized **ret, struct cw_error *err)
{
    struct cw_optimized *o = calloc(1, sizeof(*o));
    if (!o)
        return cw_error_nomem(err, sizeof(*o), "a program");
    o->ops = calloc(g->n_ops + 1, sizeof(*o->ops));
    o->owned = calloc(g->n_ops + 1, sizeof(*o->owned));
    o->stage = calloc(n_limits + 3, sizeof(*o->stage));
    o->fused_into = calloc(n_positions + 1, sizeof(*o->fused_into));
    if (!o->ops || !o->owned || !o->stage || !o->fused_into) {
        cw_optimized_free(o);
        return cw_error_nomem(err, 0, "a program");
    }
    for (unsigned i = 0; i < n_positions; i++)
        o->fused_into[i] = i;
    o->ops[o->n_ops++] = g->ops[0];
    /* stages are kept: fused runs don't cross them. k is one more than the number of a stage; 0: the
     * operators that run with the source */
    for (unsigned k = 0; k < n_limits + 3; k++) {
        unsigned begin = k ? g->stage[k - 1] : 1, end = g->stage[k];
        if (k)
            o->stage[k - 1] = o->n_ops;
        for (unsigned i = begin; i < end;) {
            unsigned n = enable ? optimize_fusable(g, i, end) : 1;
            int r = n >= 2 ? optimize_fuse(o, g, i, n, err) : 1;
            if (r < 0) {
                cw_optimized_free(o);
                return r;
            }
            if (r == 1) {
                o->ops[o->n_ops++] = g->ops[i];
                n = 1;
            }
            i += n;
        }
    }
    o->stage[n_limits + 2] = o->n_ops;
    *ret = o;
    return 0;
}

int cw_optimize(const struct cw_program *g, unsigned n_limits, unsigned n_positions, bool enable,
                const struct cw_op *cache_point, struct cw_optimized **ret, struct cw_error *err)
{
    struct cw_program copy = *g;
    _cleanup_free_ struct cw_op **ops = calloc(g->n_ops + 1, sizeof(*ops));
    _cleanup_free_ unsigned *stage = calloc(n_limits + 3, sizeof(*stage));
    if (!ops || !stage)
        return cw_error_nomem(err, 0, "a program");
    copy.ops = ops;
    copy.stage = stage;
    optimize_leave_out_cache_points(g, n_limits, cache_point, &copy);
    return optimize_program(&copy, n_limits, n_positions, enable, ret, err);
}
