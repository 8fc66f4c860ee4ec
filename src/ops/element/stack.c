/* stack: several components of the same shape as one, along a new dimension. */
#include <stdlib.h>

#include "ops/element/join.h"

static int stack_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    return cw_join_bind(b, op, true, err);
}

static const struct cw_attr_def attrs[] = {
    CW_JOIN_ATTRS("where the new dimension stands in the result; -1: the last one"),
    {0},
};

const struct cw_op_desc cw_op_stack = {
    .name = "stack",
    .summary = "makes one component of several of the same dtype and shape, along a new dimension",
    .doc =
        "The result is that of numpy.stack: scalars become a vector. The components that are stacked stay; "
        "if `name` is the name of a component, the result replaces it.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = stack_bind,
    .run = cw_join_run,
    .free_state = free,
};
