/* flatten: the values of an array as one dimension. */
#include <stdlib.h>

#include "ops/element/component.h"
#include "ops/element/reshape.h"

static int flatten_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    return cw_reshape_bind(b, op, "component", (const int64_t[]){-1}, 1, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COMPONENT_ATTR,
    {0},
};

const struct cw_op_desc cw_op_flatten = {
    .name = "flatten",
    .summary = "makes an array of any shape one-dimensional, with the same values in the same order",
    .doc = "`flatten` is `reshape` with the shape [-1]. A scalar becomes an array with one value.",
    .kind = CW_OP_MAP,
    .effects.action = CW_ACTS_LAYOUT,
    .attrs = attrs,
    .bind = flatten_bind,
    .run = cw_reshape_run,
    .free_state = free,
};
