/* maybe: some elements, drawn one by one, go through a list of operators. */
#include "ops/element/choice.h"

static int maybe_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    json_auto_t *none = json_array();
    const json_t *lists[2] = {cw_attr_json(op, "operators"), none};
    double p = cw_attr_float(op, "p"), weights[2] = {p, 1 - p};
    if (!none)
        return cw_error_nomem(err, 0, "maybe");
    return cw_choice_bind(b, op, "operators", lists, weights, 2, err);
}

static const struct cw_attr_def attrs[] = {
    {.name = "p",
     .kind = CW_ATTR_FLOAT,
     .min = 0,
     .max = 1,
     .doc = "probability that an element goes through the operators"},
    {.name = "operators",
     .kind = CW_ATTR_OPERATORS,
     .doc = "operators; in Python a function that calls them on the dataset: lambda ds: "
            "ds.gaussian_blur(\"image\", 9)"},
    {0},
};

const struct cw_op_desc cw_op_maybe = {
    .name = "maybe",
    .summary = "sends some elements, drawn at random, through operators",
    .doc =
        "All other elements stay as they are. The operators may not change the dtype of a component, nor add "
        "or remove components. They are operators that compute an element from itself, without files and "
        "Python functions.",
    .kind = CW_OP_MAP,
    .effects.random = true,
    .attrs = attrs,
    .bind = maybe_bind,
    .run = cw_choice_run,
    .free_state = cw_choice_free,
};
