#include "pipeline/op.h"

static const struct cw_attr_def attrs[] = {
    {.name = "inputs", .kind = CW_ATTR_CHAINS, .doc = "chains of operators"},
    {0},
};

const struct cw_op_desc cw_op_concat = {
    .name = "concat",
    .summary = "several chains one after the other",
    .doc = "Stands first in a chain. All inputs must have the same components with the same dtypes.",
    .kind = CW_OP_INDEX,
    .attrs = attrs,
};
