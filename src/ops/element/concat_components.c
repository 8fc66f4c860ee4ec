/* concat_components: several components one behind the other, along one of their dimensions. */
#include <stdlib.h>

#include "ops/element/join.h"

static int concat_components_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    return cw_join_bind(b, op, false, err);
}

static const struct cw_attr_def attrs[] = {
    CW_JOIN_ATTRS("the dimension along which they are joined; -1: the last one"),
    {0},
};

const struct cw_op_desc cw_op_concat_components = {
    .name = "concat_components",
    .summary = "joins components of the same dtype to one array, one after the other",
    .doc = "The result is that of numpy.concatenate: all dimensions but `axis` must be the same. The "
           "components that are joined stay; if `name` is the name of a component, the result replaces it. "
           "`concat` joins the elements of several sources instead.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = concat_components_bind,
    .run = cw_join_run,
    .free_state = free,
};
