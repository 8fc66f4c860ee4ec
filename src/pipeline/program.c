/* Makes and frees the parts of a compiled pipeline, and looks things up in it. */
#include "pipeline/program.h"

struct cw_op *cw_op_free(struct cw_op *op)
{
    if (!op)
        return NULL;
    if (op->state && op->desc->free_state)
        op->desc->free_state(op->state);
    free(op);
    return NULL;
}

struct cw_op *cw_op_new(const struct cw_node *node, struct cw_error *err)
{
    struct cw_op *op = calloc(1, sizeof(*op));
    if (!op) {
        cw_error_nomem(err, sizeof(*op), "an operator");
        return NULL;
    }
    *op = (struct cw_op){.desc = node->desc, .attrs = node->attrs, .occurrence = node->occurrence};
    op->position = op->index = node->position;
    return op;
}

void cw_program_deinit(struct cw_program *g)
{
    for (unsigned i = 0; i < g->n_ops; i++)
        cw_op_free(g->ops[i]);
    free(g->ops);
    free(g->stage);
    free(g->has_limit);
    free(g->limit_passes);
    free(g->repeat_counts);
    free(g->merged);
    for (unsigned i = 0; i < g->n_outputs; i++)
        free(g->outputs[i].name);
    free(g->outputs);
    cw_cache_points_deinit(g);
}

struct cw_component *cw_delivered(const struct cw_compiled *c, unsigned *ret_n)
{
    const struct cw_batch_op *last = c->n_batch_ops ? &c->batch_ops[c->n_batch_ops - 1] : NULL;
    *ret_n = last ? last->n_outputs : c->n_outputs;
    return last ? last->outputs : c->outputs;
}

struct cw_compiled *cw_compiled_free(struct cw_compiled *c)
{
    if (!c)
        return NULL;
    for (unsigned i = 0; i < c->n_programs; i++)
        cw_program_deinit(&c->programs[i]);
    free(c->programs);
    for (unsigned i = 0; i < c->n_outputs; i++)
        free(c->outputs[i].name);
    free(c->outputs);
    for (unsigned i = 0; i < c->n_batch_ops; i++) {
        cw_op_free(c->batch_ops[i].op);
        for (unsigned k = 0; k < c->batch_ops[i].n_outputs; k++)
            free(c->batch_ops[i].outputs[k].name);
        free(c->batch_ops[i].outputs);
    }
    free(c->batch_ops);
    for (unsigned i = 0; c->salts && i < c->n_keys; i++)
        free(c->salts[i]);
    free(c->salts);
    free(c->limits);
    free(c->is_limit);
    free(c->freeze);
    free(c->bucket_sizes);
    free(c->bucket_longest);
    free(c->padding);
    cw_pipeline_unref(c->pipeline);
    free(c);
    return NULL;
}

bool cw_program_needs(const struct cw_program *g, unsigned at, unsigned value)
{
    for (unsigned k = 0; k < g->n_outputs; k++)
        if (g->outputs[k].value == value)
            return true;
    for (unsigned i = at + 1; i < g->n_ops; i++)
        for (unsigned p = 0; g->ops[i]->live && p < g->ops[i]->n_in; p++)
            if (g->ops[i]->in[p].value == value)
                return true;
    return false;
}

const struct cw_op *cw_program_source(const struct cw_program *g, unsigned k)
{
    unsigned i = 0;
    while (g->ops[i]->desc->kind != CW_OP_SOURCE || k-- > 0)
        i++;
    return g->ops[i];
}
