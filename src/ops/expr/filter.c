/* filter: drops the elements for which an expression is false. */
#include "ops/expr/expr.h"
#include "pipeline/op.h"

static void filter_free(void *state)
{
    cw_expr_free(state);
}

static int filter_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_expr *e = NULL;
    int r = cw_expr_bind(b, op, "where", cw_attr_string(op, "where"), CW_EXPR_CONDITION, &e, err);
    op->state = e;
    return r;
}

static int filter_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    uint8_t *keep = cw_block_alloc(block, block->n, err);
    if (!keep)
        return err && err->status < 0 ? err->status : CW_E_MEMORY;
    int r = cw_expr_eval_into(op->state, op->in, op->desc->name, block, keep, err);
    if (r < 0)
        return r;
    size_t dropped = 0;
    CW_ROWS_OK(i, block, true)
    if (!keep[i]) {
        block->status[i] = CW_ROW_DROPPED;
        dropped++;
    }
    if (dropped)
        block->all_ok = false;
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "where",
     .kind = CW_ATTR_EXPR,
     .doc = "condition: a scalar expression; elements for which it is false (0) are dropped"},
    {0},
};

const struct cw_op_desc cw_op_filter = {
    .name = "filter",
    .summary = "only the elements for which an expression holds",
    .doc = "A number is true when it is not 0. The count of elements is not known behind a filter.",
    .kind = CW_OP_FILTER,
    .effects.count = CW_COUNT_FEWER,
    .attrs = attrs,
    .bind = filter_bind,
    .run = filter_run,
    .free_state = filter_free,
};
