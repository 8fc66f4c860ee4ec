/* batch: stacks elements in their order. The engine does the work; there is one open batch at a time. */
#include "ops/batch/padding.h"

static const struct cw_attr_def attrs[] = {CW_BATCH_ATTRS, {0}};

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
