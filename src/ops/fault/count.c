/* count: does nothing; the profile counts the elements that pass it. */
#include "pipeline/op.h"

static const struct cw_attr_def attrs[] = {
    {0},
};

const struct cw_op_desc cw_op_count = {
    .name = "count",
    .for_tests = true,
    .summary = "changes nothing; the profile shows how many elements pass this operator (for tests)",
    .kind = CW_OP_MAP,
    .effects.pinned = true,
    .attrs = attrs,
};
