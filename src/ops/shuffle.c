#include "pipeline/op.h"

static const struct cw_attr_def attrs[] = {
    {0},
};

const struct cw_op_desc cw_op_shuffle = {
    .name = "shuffle",
    .summary = "the elements in random order, another one each epoch",
    .doc = "Permutes chunks of the data set and the elements within each split (docs/semantics.md, section 4); moves indices, never data.",
    .kind = CW_OP_INDEX,
    .attrs = attrs,
};
