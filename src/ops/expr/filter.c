/* filter: drops the elements for which an expression is false. */
#include "ops/expr/expr.h"
#include "pipeline/op.h"

static int filter_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    const uint8_t *keep;
    int r = cw_expr_where(op, block, &keep, err);
    bool dropped = false;
    CW_ROWS_OK(i, block, r == 0)
    if (!keep[i]) {
        block->status[i] = CW_ROW_DROPPED;
        dropped = true;
    }
    block->all_ok &= !dropped;
    return r;
}

static const struct cw_attr_def attrs[] = {
    {.name = "where",
     .kind = CW_ATTR_EXPR,
     .doc = "the condition, a scalar expression: elements for which it is false (0) are dropped"},
    {0},
};

const struct cw_op_desc cw_op_filter = {
    .name = "filter",
    .summary = "keeps the elements for which an expression is true, drops all others",
    .doc = "A number counts as true if it is not 0. The number of elements after a filter is not known in "
           "advance.",
    .kind = CW_OP_FILTER,
    .effects.count = CW_COUNT_FEWER,
    .attrs = attrs,
    .bind = cw_expr_bind_where,
    .run = filter_run,
    .free_state = cw_expr_free,
};
