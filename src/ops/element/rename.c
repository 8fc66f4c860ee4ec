/* rename: gives components other names. Their values stay the same, so nothing happens at run time. */
#include <stdio.h>
#include <string.h>

#include "pipeline/op.h"

/* All names change at once, so that {"a": "b", "b": "a"} swaps two names: the components first get temporary
 * names that no component can have, then the new ones. */
static int rename_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const char *old_name;
    json_t *v, *names = (json_t *)cw_attr_json(op, "names");
    char between[32];
    unsigned i = 0;
    int r;

    json_object_foreach(names, old_name, v)
    {
        if (!json_is_string(v) || json_string_length(v) == 0)
            return cw_attr_error(op, "names", err, "an object {old name: new name}");
        snprintf(between, sizeof(between), "\x01%u", i++);
        r = cw_bind_rename(b, old_name, between, err);
        if (r < 0)
            return r;
    }
    i = 0;
    json_object_foreach(names, old_name, v)
    {
        for (size_t k = 0; k < cw_bind_count(b); k++)
            if (strcmp(cw_bind_name(b, k, NULL), json_string_value(v)) == 0)
                return cw_attr_error(op, "names", err,
                                     "new names that no other component has; there are two \"%s\"",
                                     json_string_value(v));
        snprintf(between, sizeof(between), "\x01%u", i++);
        r = cw_bind_rename(b, between, json_string_value(v), err);
        if (r < 0)
            return r;
    }
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "names", .kind = CW_ATTR_OBJECT, .doc = "{old name: new name}"},
    {0},
};

const struct cw_op_desc cw_op_rename = {
    .name = "rename",
    .summary = "gives components other names",
    .kind = CW_OP_MAP,
    .effects.renames = true,
    .attrs = attrs,
    .bind = rename_bind,
};
