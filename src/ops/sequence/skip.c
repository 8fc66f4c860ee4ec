/* skip: all but the first elements. If the number of elements before it is not known, the engine counts them
 * (struct cw_limit). */
#include "ops/sequence/cut.h"

static int skip_build(struct cw_seq_build *b, const struct cw_node *node, bool batched, struct cw_seq **at)
{
    uint64_t n = (*at)->n, from = CW_MIN(cw_cut_count(b, node, batched), n);
    return cw_cut_build(b, at, from, n >= CW_ENDLESS ? n : n - from);
}

static const struct cw_index_map map = {
    .limit = CW_LIMIT_SKIP, .instead = "a source with an index", .build = skip_build};

static const struct cw_attr_def attrs[] = {
    {.name = "count",
     .kind = CW_ATTR_INT,
     .min = 0,
     .max = 0x1p62,
     .doc = "number of elements to leave "
            "out"},
    {0},
};

const struct cw_op_desc cw_op_skip = {
    .name = "skip",
    .summary = "leaves out the first elements",
    .doc = "After `batch` or `bucket_by_length`, `skip` counts batches, not elements. If a filter or "
           "`flat_map` comes before `skip`, the elements must be counted one after the other; in a service, "
           "one worker then runs the whole epoch.",
    .kind = CW_OP_INDEX,
    .effects = {.count = CW_COUNT_KNOWN, .state = CW_STATE_COUNTED},
    .attrs = attrs,
    .index = &map,
};
