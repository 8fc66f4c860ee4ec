#include "pipeline/op.h"

static const struct cw_attr_def attrs[] = {
    {.name = "count", .kind = CW_ATTR_INT, .min = 0, .max = 0x1p62, .doc = "elements left out"},
    {0},
};

const struct cw_op_desc cw_op_skip = {
    .name = "skip",
    .summary = "all but the first elements",
    .doc = "Leaves out the first `count` elements (after a batcher: batches). Where it counts elements that "
           "a filter or `flat_map` left, one worker of a service runs the epoch.",
    .kind = CW_OP_INDEX,
    .attrs = attrs,
};
