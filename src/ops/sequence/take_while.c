/* take_while: the elements before the first one for which an expression is false. Computes the condition; the
 * engine drops the elements from that one on (struct cw_limit). */
#include "ops/expr/expr.h"
#include "pipeline/roles.h"

static int take_while_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type = cw_type_scalar(CW_BOOL);
    int r = cw_expr_bind_where(b, op, err);
    if (r >= 0)
        r = cw_bind_write(b, NULL, &type, err);
    return CW_MIN(r, 0);
}

static int take_while_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_expr_eval(op->state, op->in, op->desc->name, b, op->out[0].value, err);
}

static const struct cw_index_map map = {.limit = CW_LIMIT_TAKE_WHILE};

static const struct cw_attr_def attrs[] = {
    {.name = "where",
     .kind = CW_ATTR_EXPR,
     .doc = "the condition, a scalar expression: the first element for which it is false (0) ends the epoch"},
    {0},
};

const struct cw_op_desc cw_op_take_while = {
    .name = "take_while",
    .summary = "keeps the elements before the first one for which an expression is false",
    .doc = "A number counts as true if it is not 0. In each pass of a `repeat` after it, `take_while` begins "
           "anew. `shuffle` must come before it. The elements must be checked in order, so in a service one "
           "worker runs the whole epoch. `take_while` can't be used with `on_error` \"replace\".",
    .kind = CW_OP_FILTER,
    .effects = {.count = CW_COUNT_FEWER, .state = CW_STATE_COUNTED},
    .index = &map,
    .attrs = attrs,
    .bind = take_while_bind,
    .run = take_while_run,
    .free_state = cw_expr_free,
};
