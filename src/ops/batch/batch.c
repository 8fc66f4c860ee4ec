/* batch: stacks elements in their order. The engine does the work; there is one open batch at a time. */
#include "ops/batch/padding.h"

static const char *const pads[] = {"longest", NULL};

static const struct cw_attr_def attrs[] = {
    {.name = "size", .kind = CW_ATTR_INT, .min = 1, .max = 1 << 20, .doc = "elements per batch"},
    {.name = "drop_remainder",
     .kind = CW_ATTR_BOOL,
     .def = "false",
     .doc = "true: leave out the last batch if it is not full"},
    {.name = "pad",
     .kind = CW_ATTR_OBJECT,
     .def = "{}",
     .choices = pads,
     .scalar_too = true,
     .doc =
         "\"longest\": pad components whose shape varies with 0, to the largest size in the batch; a number: "
         "pad them with it; {component: number}, or {component: {\"value\": number, \"to\": [size of each "
         "dimension, or null]}}: pad only these components, and to these sizes"},
    {0},
};

static const struct cw_batcher batcher = {
    .sizes = "size",
    .padding = cw_padding_read,
    .advice = "; set pad, or crop or resize the component before batch"};

const struct cw_op_desc cw_op_batch = {
    .name = "batch",
    .summary = "stacks elements into batches",
    .doc =
        "Each component must have the same shape in all elements of a batch, unless `pad` names it. Padding "
        "is appended at the end of each dimension. A component with an element that is larger than the sizes "
        "`to` is an error. Bytes are not padded.",
    .kind = CW_OP_BATCHER,
    .effects = {.count = CW_COUNT_GROUPS, .state = CW_STATE_COUNTED},
    .batcher = &batcher,
    .attrs = attrs,
    .bind = cw_padding_bind,
};
