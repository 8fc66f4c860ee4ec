/* Builds the program of each path: binds operators one after the other, joins paths at concat and zip, and
 * cuts programs into stages. */
#include <string.h>

#include "pipeline/compile.h"

#include "base/array.h"

int cw_copy_outputs(const struct cw_bind *b, struct cw_component **ret, unsigned *ret_n, struct cw_error *err)
{
    *ret = calloc(b->n + 1, sizeof(**ret));
    if (!*ret)
        return cw_error_nomem(err, 0, "components");
    for (unsigned i = 0; i < b->n; i++) {
        (*ret)[i] = b->components[i];
        (*ret)[i].name = strdup(b->components[i].name);
        if (!(*ret)[i].name)
            return cw_error_nomem(err, 0, "components");
        *ret_n = i + 1;
    }
    return 0;
}

static int path_add_op(struct cw_compile *x, struct cw_compile_path *p, struct cw_op *op)
{
    struct cw_program *g = &p->program;
    if (CW_ARRAY_ROOM(g->ops, p->capacity, g->n_ops + (size_t)1, "operators", x->err) < 0) {
        cw_op_free(op);
        return CW_E_MEMORY;
    }
    g->ops[g->n_ops++] = op;
    return 0;
}

int cw_path_bind_op(struct cw_compile *x, struct cw_compile_path *p, const struct cw_node *node,
                    const struct cw_node *next, struct cw_op **ret)
{
    struct cw_op *op = cw_op_new(node, x->err), *ahead = NULL;
    if (!op)
        return CW_E_MEMORY;
    if (next && !(ahead = cw_op_new(next, x->err))) {
        cw_op_free(op);
        return CW_E_MEMORY;
    }
    p->bind.pipeline = x->c->pipeline;
    p->bind.op = op;
    p->bind.next = ahead;
    int r = cw_bind_outputs(&p->bind, op->desc->outputs, x->err);
    if (r == 0 && op->desc->bind)
        r = op->desc->bind(&p->bind, op, x->err);
    cw_op_free(ahead);
    p->bind.op = NULL;
    p->bind.next = NULL;
    if (r < 0) {
        cw_error_op(x->err, node->desc->name);
        cw_op_free(op);
        return r;
    }
    *ret = op;
    return 0;
}

int cw_path_bind(struct cw_compile *x, struct cw_compile_path *p, const struct cw_node *node,
                 const struct cw_node *next, struct cw_op **ret)
{
    struct cw_op *op;
    int r = cw_path_bind_op(x, p, node, next, &op);
    if (r < 0)
        return r;
    if (ret)
        *ret = op;
    return path_add_op(x, p, op);
}

int cw_path_add(struct cw_compile *x, const struct cw_node *node)
{
    if (CW_ARRAY_ROOM(x->paths, x->capacity, x->n_paths + (size_t)1, "programs", x->err) < 0)
        return CW_E_MEMORY;
    struct cw_compile_path *p = &x->paths[x->n_paths];
    *p = (struct cw_compile_path){.program.leaf = x->n_paths, .bind.next_value = x->next_value};
    p->limit_at = calloc(x->c->pipeline->n_ops + 1, sizeof(*p->limit_at));
    p->limit_here = calloc(x->c->pipeline->n_ops + 1, sizeof(*p->limit_here));
    p->limit_passes = calloc(x->c->pipeline->n_ops + 1, sizeof(*p->limit_passes));
    p->program.repeat_counts = calloc(x->c->pipeline->n_ops + 1, sizeof(*p->program.repeat_counts));
    x->n_paths++;
    if (!p->limit_at || !p->limit_here || !p->limit_passes || !p->program.repeat_counts)
        return cw_error_nomem(x->err, 0, "a program");
    return cw_path_bind(x, p, node, NULL, NULL);
}

/* Returns whether each record of the path gives one element, or none, that does not depend on others. */
static bool path_is_plain(const struct cw_compile_path *p)
{
    const struct cw_program *g = &p->program;
    bool plain = p->n_source == 0 && !cw_op_is_stream(g->ops[0]->desc);
    for (unsigned i = 0; i < g->n_ops; i++) {
        const struct cw_op_desc *desc = g->ops[i]->desc;
        plain &= desc->kind != CW_OP_FLAT_MAP;
        plain &= !desc->index || !desc->index->limit;
    }
    return plain;
}

/* Notes the components that a path has where all paths are merged. */
static int path_end_branch(struct cw_compile *x, struct cw_compile_path *p)
{
    struct cw_program *g = &p->program;
    free(g->merged);
    g->merged = calloc(p->bind.n + 1, sizeof(*g->merged));
    if (!g->merged)
        return cw_error_nomem(x->err, 0, "components");
    g->n_branch = path_is_plain(p) ? g->n_ops : 0;
    g->n_merged = p->bind.n;
    for (unsigned k = 0; k < p->bind.n; k++)
        g->merged[k] = (struct cw_component){.value = p->bind.components[k].value,
                                             .type = p->bind.components[k].type};
    return 0;
}

int cw_paths_merge(struct cw_compile *x, const struct cw_node *node, unsigned first)
{
    struct cw_bind *b0 = &x->paths[first].bind;
    for (unsigned i = first + 1; i < x->n_paths; i++) {
        struct cw_bind *b = &x->paths[i].bind;
        for (unsigned k = 0; k < CW_MAX(b->n, b0->n); k++) {
            struct cw_component *u = k < b0->n ? &b0->components[k] : NULL,
                                *v = k < b->n ? &b->components[k] : NULL;
            char left[160], right[160];
            if (!u || !v || strcmp(u->name, v->name) != 0) {
                const char *odd = !u                             ? v->name
                                  : !v                           ? u->name
                                  : strcmp(u->name, v->name) < 0 ? u->name
                                                                 : v->name;
                cw_error_op(x->err, node->desc->name);
                return cw_error_set(
                    x->err, CW_E_PIPELINE,
                    "%s: component \"%s\" is not in all inputs: expected the same components in each",
                    node->desc->name, odd);
            }
            if (cw_type_merge(&u->type, &v->type) < 0) {
                cw_error_op(x->err, node->desc->name);
                return cw_error_set(
                    x->err, CW_E_PIPELINE,
                    "%s: component \"%s\" is %s in one input and %s in another: expected one dtype",
                    node->desc->name, u->name, cw_type_print(&u->type, left), cw_type_print(&v->type, right));
            }
        }
    }
    for (unsigned i = first + 1; i < x->n_paths; i++)
        for (unsigned k = 0; k < b0->n; k++)
            x->paths[i].bind.components[k].type = b0->components[k].type;
    int r = 0;
    for (unsigned i = 0; first == 0 && i < x->n_paths && r >= 0; i++)
        r = path_end_branch(x, &x->paths[i]);
    return r;
}

/* Appends the operators and components of another path to p (for zip). */
static int path_append(struct cw_compile *x, struct cw_compile_path *p, struct cw_compile_path *other,
                       const struct cw_node *node)
{
    int r = 0;
    for (unsigned i = 0; i < other->program.n_ops && r >= 0; i++)
        r = path_add_op(x, p, CW_STEAL(other->program.ops[i]));
    for (unsigned i = 0; i < other->bind.n && r >= 0; i++) {
        const struct cw_component *c = &other->bind.components[i];
        if (cw_bind_find(&p->bind, c->name)) {
            cw_error_op(x->err, node->desc->name);
            return cw_error_value(x->err, CW_E_PIPELINE, "inputs", c->name,
                                  "different names of components in all inputs",
                                  "%s: component \"%s\" is in two inputs: expected different names; the "
                                  "operator rename changes them",
                                  node->desc->name, c->name);
        }
        r = cw_bind_put(&p->bind, c->name, c->value, &c->type, x->err);
    }
    p->bind.next_value = other->bind.next_value;
    return r;
}

int cw_paths_zip(struct cw_compile *x, const struct cw_node *node, unsigned first)
{
    struct cw_compile_path *p = &x->paths[first];
    struct cw_program *g = &p->program;
    struct cw_op *op;
    int r = cw_path_bind(x, p, node, NULL, &op);
    if (r < 0)
        return r;
    memmove(g->ops + 1, g->ops, (g->n_ops - 1) * sizeof(*g->ops));
    g->ops[0] = op;
    g->n_repeats = 0; /* the repeats of the inputs are not part of the id of a zipped element */
    for (unsigned i = first + 1; i < x->n_paths && r >= 0; i++)
        r = path_append(x, p, &x->paths[i], node);
    while (r >= 0 && x->n_paths > first + 1)
        cw_path_deinit(&x->paths[--x->n_paths]);
    return r;
}

int cw_path_gather(struct cw_compile *x, struct cw_compile_path *p, const struct cw_node *node)
{
    struct cw_program *g = &p->program;
    struct cw_op *source = cw_op_new(node, x->err);
    int r = source ? path_add_op(x, p, source) : CW_E_MEMORY;
    if (r < 0)
        return r;
    memmove(g->ops + 1, g->ops, (g->n_ops - 1) * sizeof(*g->ops));
    g->ops[0] = source;
    g->n_repeats = 0; /* the repeats before the window are not part of its id */
    r = cw_path_bind(x, p, node, NULL, NULL);
    p->n_source = g->n_ops;
    return r;
}

static void path_need(struct cw_program *g, unsigned value)
{
    for (unsigned i = 0; i < g->n_ops; i++)
        for (unsigned o = 0; o < g->ops[i]->n_out; o++)
            g->ops[i]->out[o].live |= g->ops[i]->out[o].value == value;
}

/* Marks the values and operators that are needed. A value that is not needed is not computed, and can't make
 * a record fail. */
static void path_mark_live(struct cw_program *g)
{
    for (unsigned k = 0; k < g->n_outputs; k++)
        path_need(g, g->outputs[k].value);
    for (unsigned i = g->n_ops; i-- > 0;) {
        struct cw_op *op = g->ops[i];
        bool gathers = op->desc->index && op->desc->index->gathers;
        op->live = op->n_out == 0 || gathers || op->desc->kind == CW_OP_FILTER ||
                   op->desc->kind == CW_OP_FLAT_MAP || op->desc->kind == CW_OP_BATCHER;
        for (unsigned o = 0; o < op->n_out; o++)
            op->live |= op->out[o].live;
        for (unsigned p = 0; p < op->n_in && op->live; p++)
            if (!gathers || op->out[p].live)
                path_need(g, op->in[p].value);
    }
}

/* Leaves out the components after the branch that nothing needs. */
static void path_keep_needed(struct cw_program *g)
{
    unsigned n = 0;
    for (unsigned k = 0; k < g->n_merged && g->n_branch; k++)
        if (cw_program_needs(g, g->n_branch - 1, g->merged[k].value))
            g->merged[n++] = g->merged[k];
    g->n_merged = n;
}

int cw_path_finish(struct cw_compile *x, struct cw_compile_path *p)
{
    struct cw_compiled *c = x->c;
    struct cw_program *g = &p->program;
    g->n_values = p->bind.next_value;
    g->stage = calloc(c->n_limits + 3, sizeof(*g->stage));
    g->has_limit = calloc(c->n_limits + 1, sizeof(*g->has_limit));
    g->limit_passes = CW_STEAL(p->limit_passes);
    if (!g->stage || !g->has_limit)
        return cw_error_nomem(x->err, 0, "a program");
    unsigned at = CW_MAX(p->n_source, 1u);
    g->stage[0] = at;
    for (unsigned k = 0; k < c->n_limits; k++) {
        g->has_limit[k] = p->limit_here[k];
        if (p->limit_here[k])
            at = CW_MAX(p->limit_at[k], at);
        g->stage[k + 1] = at;
    }
    /* Elements get their slots in batches after the last operator that can drop elements; with buckets, after
     * all operators. */
    unsigned slot = c->keyed ? g->n_ops : CW_MAX(p->last_filter, at);
    g->stage[c->n_limits + 1] = slot;
    g->stage[c->n_limits + 2] = g->n_ops;
    int r = cw_copy_outputs(&p->bind, &g->outputs, &g->n_outputs, x->err);
    path_mark_live(g);
    path_keep_needed(g);
    return r < 0 ? r : cw_cache_points_finish(g, x->err);
}

void cw_path_deinit(struct cw_compile_path *p)
{
    cw_program_deinit(&p->program);
    cw_bind_deinit(&p->bind);
    free(p->limit_at);
    free(p->limit_here);
    free(p->limit_passes);
}
