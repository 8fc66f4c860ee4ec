/* batch: stacks elements in their order. The engine does the work; there is one open batch at a time. */
#include "pipeline/roles.h"

static const struct cw_attr_def attrs[] = {
    {.name = "size", .kind = CW_ATTR_INT, .min = 1, .max = 1 << 20, .doc = "elements per batch"},
    {.name = "drop_remainder",
     .kind = CW_ATTR_BOOL,
     .def = "false",
     .doc = "true: leave out the last batch if it is not full"},
    {0},
};

static const struct cw_batcher batcher = {
    .sizes = "size",
    .differs = "shape",
    .expected = "equal shapes",
    .advice = "; crop or resize the component before batch, or use bucket_by_length"};

const struct cw_op_desc cw_op_batch = {
    .name = "batch",
    .summary = "stacks elements into batches",
    .doc = "Each component must have the same shape in all elements of a batch.",
    .kind = CW_OP_BATCHER,
    .effects = {.count = CW_COUNT_GROUPS, .state = CW_STATE_COUNTED},
    .batcher = &batcher,
    .attrs = attrs,
};
