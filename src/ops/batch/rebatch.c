/* rebatch: batches of another size, made of the rows of elements (unbatch). */
#include "ops/batch/padding.h"
#include "ops/batch/unbatch.h"

static const struct cw_attr_def attrs[] = {CW_BATCH_ATTRS, {0}};

static const struct cw_op_desc rows = {
    .name = "rebatch",
    .kind = CW_OP_FLAT_MAP,
    .effects.count = CW_COUNT_ANY,
    .bind = cw_unbatch_bind,
    .run = cw_unbatch_run,
    .free_state = cw_unbatch_free,
};

static const struct cw_batcher batcher = {
    .sizes = "size",
    .rows = &rows,
    .padding = cw_padding_read,
    .advice = "; set pad, or crop or resize the component before rebatch"};

const struct cw_op_desc cw_op_rebatch = {
    .name = "rebatch",
    .summary = "makes batches of the rows of each element",
    .doc = "The same as `unbatch` and then `batch`: rows of an element, along the first dimension of its "
           "components, are stacked into batches of `size` rows, also across elements. If a `batch` comes "
           "before `rebatch`, `rebatch` takes its place.",
    .kind = CW_OP_BATCHER,
    .effects = {.count = CW_COUNT_GROUPS, .state = CW_STATE_COUNTED},
    .takes_batches = true,
    .batcher = &batcher,
    .attrs = attrs,
    .bind = cw_padding_bind,
};
