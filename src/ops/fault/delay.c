/* delay: sleeps for each element, for tests. */
#include "base/cost_clock.h"
#include "ops/expr/expr.h"
#include "ops/fault/fault_wait.h"
#include "pipeline/op.h"

static int delay_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    uint64_t ns = (uint64_t)(cw_attr_float(op, "us") * 1000);
    const uint8_t *slow;
    int r = cw_expr_where(op, block, &slow, err);
    CW_ROWS_OK(i, block, r == 0)
    if (slow[i]) {
        r = cw_cost_sleeps() ? cw_fault_wait(block, ns, err) : 0;
        cw_cost_wait(ns);
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    {.name = "us",
     .kind = CW_ATTR_FLOAT,
     .min = 0,
     .max = 1e12,
     .doc = "time to sleep for each element, in microseconds"},
    {.name = "where",
     .kind = CW_ATTR_EXPR,
     .def = "\"true\"",
     .doc = "the condition, a scalar expression: only elements for which it is true wait"},
    {0},
};

const struct cw_op_desc cw_op_delay = {
    .name = "delay",
    .for_tests = true,
    .summary = "sleeps for each element (for tests)",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = cw_expr_bind_where,
    .run = delay_run,
    .free_state = cw_expr_free,
};
