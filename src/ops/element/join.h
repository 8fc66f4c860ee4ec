/* Shared by concat_components and stack: several components as one. */
#pragma once
#include "pipeline/op.h"

/* Reads the attribute `components`, and writes `name`: along the dimension `axis` of the inputs, or along a
 * new dimension `axis` if `stacks`. Sets op->state, which free() frees. */
int cw_join_bind(struct cw_bind *b, struct cw_op *op, bool stacks, struct cw_error *err) _must_check_;
/* cw_op_desc.run */
int cw_join_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err) _must_check_;

#define CW_JOIN_ATTRS(AXIS_DOC) \
    {.name = "components", \
     .kind = CW_ATTR_STRINGS, \
     .len_min = 1, \
     .len_max = CW_OP_MAX_PORTS, \
     .doc = "names of the components, in order"}, \
        {.name = "name", .kind = CW_ATTR_STRING, .doc = "name of the result"}, \
    { \
        .name = "axis", .kind = CW_ATTR_INT, .def = "0", .min = -CW_MAX_NDIM, .max = CW_MAX_NDIM - 1, \
        .doc = AXIS_DOC \
    }
