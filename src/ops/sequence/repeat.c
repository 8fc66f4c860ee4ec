#include "pipeline/op.h"

static const struct cw_attr_def attrs[] = {
    {.name = "count", .kind = CW_ATTR_INT, .min = -1, .max = 0x1p62, .doc = "passes; -1: without end"},
    {0},
};

const struct cw_op_desc cw_op_repeat = {
    .name = "repeat",
    .summary = "the elements several times",
    .doc = "Goes through the elements `count` times; random operators draw anew in each pass.",
    .kind = CW_OP_INDEX,
    .attrs = attrs,
};
