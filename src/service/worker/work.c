/* What the streams of a worker have computed: sums by operator, which also include ended streams. stream.c
 * counts; heartbeat.c and pages.c report. */
#include "service/worker/work.h"

#include <stdlib.h>
#include <string.h>

static void work_add_op(struct cw_work *w, const char *name, uint64_t ns, uint64_t rows)
{
    size_t i = 0;
    while (i < w->n && strcmp(w->ops[i].name, name) != 0)
        i++;
    if (i == w->n) { /* there are at most as many entries as kinds of operators */
        struct cw_work_op *grown = realloc(w->ops, (w->n + 1) * sizeof(*grown));
        if (!grown)
            return;
        w->ops = grown;
        w->ops[w->n++] = (struct cw_work_op){.name = name};
    }
    w->ops[i].ns += ns;
    w->ops[i].rows += rows;
}

static void work_add_chain(struct cw_work *w, const struct cw_chain *chain, const struct cw_op_profile *ops)
{
    for (size_t i = 0; i < chain->n; i++) {
        const struct cw_node *node = &chain->nodes[i];
        for (size_t k = 0; k < node->n_inputs; k++)
            work_add_chain(w, &node->inputs[k], ops);
        const struct cw_op_profile *op = &ops[node->position];
        if (op->calls)
            work_add_op(w, node->desc->name, op->ns + op->call_ns, op->rows);
        w->compute_ns += op->ns + op->call_ns;
    }
}

void cw_work_add(struct cw_work *w, const struct cw_compiled *c, const struct cw_profile *profile)
{
    work_add_chain(w, &c->pipeline->chain, profile->ops);
    w->compute_ns += profile->plan_ns + profile->emit_ns + profile->fetch_ns;
    w->positions += profile->positions;
    w->cached_positions += profile->cached_positions;
    w->batches += (double)(c->counted ? profile->positions : profile->emit_rows) / (double)c->batch_size;
    w->read_ns += profile->read_ns;
    w->read_bytes += profile->read_bytes;
}

void cw_work_add_all(struct cw_work *w, const struct cw_work *other)
{
    for (size_t i = 0; i < other->n; i++)
        work_add_op(w, other->ops[i].name, other->ops[i].ns, other->ops[i].rows);
    w->compute_ns += other->compute_ns;
    w->positions += other->positions;
    w->cached_positions += other->cached_positions;
    w->batches += other->batches;
    w->read_ns += other->read_ns;
    w->read_bytes += other->read_bytes;
}

void cw_work_deinit(struct cw_work *w)
{
    free(w->ops);
    *w = (struct cw_work){0};
}
