#include "pipeline/op.h"

static const struct cw_attr_def attrs[] = {
    {.name = "count", .kind = CW_ATTR_INT, .min = 0, .max = 0x1p62, .doc = "elements kept"},
    {0},
};

const struct cw_op_desc cw_op_take = {
    .name = "take",
    .summary = "the first elements",
    .doc = "Keeps the first `count` elements (after a batcher: batches). Where it counts elements that a "
           "filter or `flat_map` left, all workers of a service run the epoch until it is full, if nothing "
           "but maps and `batch` stand behind it; else one worker does.",
    .kind = CW_OP_INDEX,
    .attrs = attrs,
};
