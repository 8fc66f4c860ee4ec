/* one_of: each element goes through one of several lists of operators, which is drawn. */
#include <stdlib.h>

#include "ops/element/choice.h"

#define ONE_OF_MOST 64 /* lists */

static int one_of_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const json_t *choices = cw_attr_json(op, "choices"), *lists[ONE_OF_MOST];
    size_t n = json_array_size(choices), n_weights = cw_attr_len(op, "weights");
    double weights[ONE_OF_MOST], sum = 0;
    if (n < 1 || n > ONE_OF_MOST)
        return cw_attr_error(op, "choices", err, "1 to %d lists of operators", ONE_OF_MOST);
    if (n_weights && n_weights != n)
        return cw_attr_error(op, "weights", err, "%zu numbers, one for each of the choices, or []", n);
    for (size_t k = 0; k < n; k++) {
        lists[k] = json_array_get(choices, k);
        if (!json_is_array(lists[k]))
            return cw_attr_error(op, "choices", err, "a list of lists of operators");
        weights[k] = n_weights ? cw_attr_float_at(op, "weights", k) : 1;
        sum += weights[k];
    }
    if (!(sum > 0))
        return cw_attr_error(op, "weights", err, "at least one number above 0");
    return cw_choice_bind(b, op, "choices", lists, weights, n, err);
}

static const struct cw_attr_def attrs[] = {
    {.name = "choices",
     .kind = CW_ATTR_OPERATORS,
     .doc = "lists of operators; in Python functions that call them on the dataset: [lambda ds: "
            "ds.invert(\"image\"), lambda ds: ds]"},
    {.name = "weights",
     .kind = CW_ATTR_FLOATS,
     .def = "[]",
     .min = 0,
     .max = 1e9,
     .doc = "how often each list is chosen, in proportion to the sum; []: all equally often"},
    {0},
};

const struct cw_op_desc cw_op_one_of = {
    .name = "one_of",
    .summary = "sends each element through one of several lists of operators, drawn at random",
    .doc =
        "A list may be empty. After each list, elements must have the same components with the same dtypes. "
        "The operators compute an element from itself, without files and Python functions.",
    .kind = CW_OP_MAP,
    .effects.random = true,
    .attrs = attrs,
    .bind = one_of_bind,
    .run = cw_choice_run,
    .free_state = cw_choice_free,
};
