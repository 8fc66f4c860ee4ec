/* select: removes all components except the named ones. Nothing happens at run time. */
#include <string.h>

#include "pipeline/op.h"

static int select_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    size_t n = cw_attr_len(op, "components");
    for (size_t i = 0; i < n; i++) {
        int r = cw_bind_read(b, cw_attr_string_at(op, "components", i), NULL, err);
        if (r < 0)
            return r;
    }
    for (size_t k = cw_bind_count(b); k-- > 0;) {
        const char *name = cw_bind_name(b, k, NULL);
        bool keep = false;
        for (size_t i = 0; i < n; i++)
            keep |= strcmp(name, cw_attr_string_at(op, "components", i)) == 0;
        int r = keep ? 0 : cw_bind_remove(b, name, err);
        if (r < 0)
            return r;
    }
    /* cw_bind_read was called only to check that the components exist; nothing is read at run time */
    op->n_in = 0;
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "components",
     .kind = CW_ATTR_STRINGS,
     .scalar_too = true,
     .len_min = 1,
     .doc = "names of the components to keep"},
    {0},
};

const struct cw_op_desc cw_op_select = {
    .name = "select",
    .summary = "keeps the named components, drops all others",
    .kind = CW_OP_MAP,
    .effects = {.renames = true, .projects = true},
    .attrs = attrs,
    .bind = select_bind,
};
