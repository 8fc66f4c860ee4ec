/* drop: removes components. Nothing happens at run time. */
#include "pipeline/op.h"

static int drop_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    for (size_t i = 0; i < cw_attr_len(op, "components"); i++) {
        int r = cw_bind_remove(b, cw_attr_string_at(op, "components", i), err);
        if (r < 0)
            return r;
    }
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "components",
     .kind = CW_ATTR_STRINGS,
     .scalar_too = true,
     .len_min = 1,
     .doc = "names of the components to drop"},
    {0},
};

const struct cw_op_desc cw_op_drop = {
    .name = "drop",
    .summary = "drops the named components",
    .kind = CW_OP_MAP,
    .effects = {.renames = true, .projects = true},
    .attrs = attrs,
    .bind = drop_bind,
};
