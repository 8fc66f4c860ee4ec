/* take: the first elements. If the number of elements before it is not known, the engine counts them (struct
 * cw_limit). */
#include "ops/sequence/cut.h"

static int take_build(struct cw_seq_build *b, const struct cw_node *node, bool batched, struct cw_seq **at)
{
    uint64_t n = cw_cut_count(b, node, batched);
    return cw_cut_build(b, at, 0, CW_MIN(n, (*at)->n));
}

static const struct cw_index_map map = {
    .limit = CW_LIMIT_TAKE, .instead = "a source with an index", .build = take_build};

static const struct cw_attr_def attrs[] = {
    {.name = "count", .kind = CW_ATTR_INT, .min = 0, .max = 0x1p62, .doc = "number of elements to keep"},
    {0},
};

const struct cw_op_desc cw_op_take = {
    .name = "take",
    .summary = "keeps only the first elements",
    .doc = "After `batch` or `bucket_by_length`, `take` counts batches, not elements. In a service, if a "
           "filter or `flat_map` comes before `take`, one worker runs the whole epoch. There is one "
           "exception: if only maps and `batch` come after `take`, all workers run the epoch until `count` "
           "elements have passed.",
    .kind = CW_OP_INDEX,
    .effects = {.count = CW_COUNT_KNOWN, .state = CW_STATE_COUNTED},
    .attrs = attrs,
    .index = &map,
};
