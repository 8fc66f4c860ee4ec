/* assign: components computed by expressions. */
#include <stdio.h>

#include "ops/expr/expr.h"
#include "pipeline/op.h"

struct assign {
    size_t n;
    struct cw_expr *exprs[]; /* in the order of the outputs */
};

static void assign_free(void *state)
{
    struct assign *s = state;
    for (size_t i = 0; s && i < s->n; i++)
        cw_expr_free(s->exprs[i]);
    free(s);
}

static int assign_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    json_t *set = (json_t *)cw_attr_json(op, "set"), *value;
    const char *name;
    size_t n = json_object_size(set);
    if (n == 0)
        return cw_attr_error(op, "set", err, "an object {name: expression} with at least one name");
    struct assign *s = calloc(1, sizeof(*s) + n * sizeof(s->exprs[0]));
    if (!s)
        return cw_error_nomem(err, n * sizeof(s->exprs[0]), "expressions");
    op->state = s;
    /* All expressions are bound before any component is written, so each sees the components as they arrive.
     */
    json_object_foreach(set, name, value)
    {
        if (!json_is_string(value) || !*name)
            return cw_attr_error(op, "set", err,
                                 "an object {name: expression}; \"%.40s\" is not a valid name, or its "
                                 "expression is not a string",
                                 name);
        char attribute[64];
        snprintf(attribute, sizeof(attribute), "set.%.50s", name);
        int r = cw_expr_bind(b, op, attribute, json_string_value(value), CW_EXPR_VALUE, &s->exprs[s->n], err);
        if (r < 0)
            return r;
        s->n++;
    }
    size_t i = 0;
    json_object_foreach(set, name, value)
    {
        int r = cw_bind_write(b, name, cw_expr_type(s->exprs[i++]), err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int assign_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    const struct assign *s = op->state;
    for (size_t i = 0; i < s->n; i++) {
        int r = op->out[i].live
                    ? cw_expr_eval(s->exprs[i], op->in, op->desc->name, block, op->out[i].value, err)
                    : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "set",
     .kind = CW_ATTR_OBJECT,
     .doc = "{name: expression}; a component that has the same name is replaced"},
    {0},
};

const struct cw_op_desc cw_op_assign = {
    .name = "assign",
    .summary = "adds components that expressions compute",
    .doc = "Each expression sees the components as they arrive, not the results of the other expressions "
           "in the same `set`. The expression determines the dtype and the shape of its component "
           "(docs/expressions.md).",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = assign_bind,
    .run = assign_run,
    .free_state = assign_free,
};
