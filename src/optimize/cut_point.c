/* Cut points: checks where a pipeline may be cut, and makes the pipeline that workers run. */
#include "optimize/cut_point.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/element/serialize_tensor.h"
#include "ops/table.h"

/* Returns whether the node only computes components of elements or of batches, or is an operator that workers
 * run wherever the pipeline is cut, and that is no different when operators before it run later. */
static bool cutpoint_may_come_after(const struct cw_compiled *c, const struct cw_node *node)
{
    const struct cw_op_desc *d = node->desc;
    if (d->takes_batches || d->cache_point != CW_CACHE_NEVER ||
        (d->ends_process && d->ends_process(node->attrs)))
        return false;
    switch (d->kind) {
    case CW_OP_MAP:
        return d->effects.state == CW_STATE_NONE;
    case CW_OP_BATCH_MAP:
        return true;
    case CW_OP_INDEX:
        return !d->run && node->n_inputs == 0;
    case CW_OP_BATCHER: /* padding needs the shapes of the pipeline's last components */
        return !d->batcher->keyed && !d->batcher->rows && !c->padding;
    default:
        return false;
    }
}

/* Whether the client may run the operator. The others of those that may come after a cut run on workers. */
static bool cutpoint_moves(const struct cw_node *node)
{
    return node->desc->kind == CW_OP_MAP || node->desc->kind == CW_OP_BATCH_MAP;
}

static bool cutpoint_computes(const struct cw_node *node)
{
    return cutpoint_moves(node) && (node->desc->run || node->desc->batch);
}

unsigned cw_cut_point_first(const struct cw_compiled *c)
{
    const struct cw_chain *chain = &c->pipeline->chain;
    unsigned i = (unsigned)chain->n - 1;
    /* a record that replaces a failed one must pass all operators where it is read */
    while (c->pipeline->on_error != CW_ON_ERROR_REPLACE && i > 0 &&
           cutpoint_may_come_after(c, &chain->nodes[i]))
        i--;
    return i;
}

struct cw_cut_point *cw_cut_point_free(struct cw_cut_point *p)
{
    if (!p)
        return NULL;
    json_decref(p->root);
    cw_compiled_free(p->workers);
    free(p->inputs);
    free(p);
    return NULL;
}

/* ---- the pipeline of the workers ---- */

/* Returns a copy of the pipeline without the operators that the client runs. NULL: out of memory. */
static json_t *cutpoint_leave_out(const struct cw_chain *chain, const json_t *root, unsigned at)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)root), *list = json_array();
    const json_t *all = json_object_get(root, "pipeline");
    int r = copy && list ? 0 : -1;
    for (unsigned i = 0; i < chain->n && r == 0; i++)
        if (i <= at || !cutpoint_moves(&chain->nodes[i]))
            r = json_array_append(list, json_array_get(all, i));
    if (r == 0)
        r = json_object_set(copy, "pipeline", list);
    json_decref(list);
    if (r == 0)
        return copy;
    json_decref(copy);
    return NULL;
}

static int cutpoint_compile(const struct cw_compiled *c, const json_t *root, struct cw_compiled **ret,
                            struct cw_error *err)
{
    struct cw_pipeline *p;
    int r = cw_pipeline_from_json(cw_ops(), root, c->pipeline->base_dir, &p, err);
    if (r < 0)
        return r;
    p->data_roots = c->pipeline->data_roots;
    p->n_data_roots = c->pipeline->n_data_roots;
    r = cw_compile(p, ret, err);
    cw_pipeline_unref(p);
    return r;
}

/* Sets p->inputs: the components at the cut that the client needs, of which the workers' pipeline then keeps
 * no others. all: compiled from p->root, with all components. */
static int cutpoint_set_inputs(struct cw_cut_point *p, const struct cw_compiled *c,
                               const struct cw_compiled *all, struct cw_error *err)
{
    const struct cw_program *at = &all->programs[0];
    const char *names[CW_MAX_COMPONENTS];
    bool serialized[CW_MAX_COMPONENTS];
    unsigned n = 0;
    if (!(p->inputs = calloc(at->n_outputs, sizeof(*p->inputs))))
        return cw_error_nomem(err, 0, "components");
    for (unsigned k = 0; k < at->n_outputs; k++) {
        const struct cw_component *o = &at->outputs[k];
        bool last = k + 1 == at->n_outputs && n == 0; /* a batch has at least one component */
        if (!last && !cw_program_needs(&c->programs[0], p->first - 1, o->value))
            continue;
        serialized[n] = o->type.dtype != CW_BYTES && !cw_type_fixed(&o->type);
        p->inputs[n] = (struct cw_cut_input){.value = o->value, .type = o->type, .serialized = serialized[n]};
        names[n++] = o->name;
    }
    return cw_keep_components(json_object_get(p->root, "pipeline"), p->at + (size_t)1, names, serialized, n)
               ? 0
               : cw_error_nomem(err, 0, "a pipeline");
}

/* Returns the index of the first operator of program 0 that comes after node `at` of the chain. */
static unsigned cutpoint_first_op(const struct cw_compiled *c, unsigned at)
{
    const struct cw_program *g = &c->programs[0];
    unsigned i = g->n_ops;
    while (i > 0 && g->ops[i - 1]->position > c->pipeline->chain.nodes[at].position)
        i--;
    return i;
}

int cw_cut_point_new(const struct cw_compiled *c, const json_t *root, unsigned at, struct cw_cut_point **ret,
                     struct cw_error *err)
{
    const struct cw_chain *chain = &c->pipeline->chain;
    *ret = NULL;
    while (at + 1 < chain->n && !cutpoint_computes(&chain->nodes[at + 1]))
        at++;
    if (at + 1 == chain->n)
        return 0;
    struct cw_cut_point *p = calloc(1, sizeof(*p));
    struct cw_compiled *all = NULL;
    if (!p)
        return cw_error_nomem(err, sizeof(*p), "a cut point");
    *p = (struct cw_cut_point){
        .at = at, .root = cutpoint_leave_out(chain, root, at), .first = cutpoint_first_op(c, at)};
    int r = p->root ? 0 : cw_error_nomem(err, 0, "a pipeline");
    if (r >= 0 && p->first < c->programs[0].n_ops) {
        r = cutpoint_compile(c, p->root, &all, err);
        if (r >= 0)
            r = cutpoint_set_inputs(p, c, all, err);
    }
    if (r >= 0)
        r = cutpoint_compile(c, p->root, &p->workers, err);
    cw_compiled_free(all);
    *ret = r < 0 ? cw_cut_point_free(p) : p;
    return r;
}

/* ---- the place of a cut ---- */

/* Fills err: the cut can't be there. */
static int cutpoint_refuse(const struct cw_compiled *c, const char *text, const char *why,
                           struct cw_error *err)
{
    const struct cw_chain *chain = &c->pipeline->chain;
    unsigned first = cw_cut_point_first(c), last = (unsigned)chain->n - 1;
    char expected[200];
    if (first == last)
        snprintf(expected, sizeof(expected), "auto, worker, client, or operator %u (%s), the only place",
                 last, chain->nodes[last].desc->name);
    else
        snprintf(expected, sizeof(expected), "auto, worker, client, or an operator from %u (%s) to %u (%s)",
                 first, chain->nodes[first].desc->name, last, chain->nodes[last].desc->name);
    return cw_error_value(err, CW_E_OPTION, "cut", text, expected, "cut is \"%.60s\", %s: expected %s", text,
                          why, expected);
}

/* Sets *ret to the index in the chain of the operator that text names. */
static int cutpoint_find(const struct cw_compiled *c, const char *text, unsigned *ret, struct cw_error *err)
{
    const struct cw_chain *chain = &c->pipeline->chain;
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    unsigned n = 0;
    if (*text >= '0' && *text <= '9' && !*end) {
        if (number >= chain->n)
            return cutpoint_refuse(c, text, "but operators are counted from 0 and there are fewer", err);
        *ret = (unsigned)number;
        return 0;
    }
    for (unsigned i = 0; i < chain->n; i++)
        if (strcmp(chain->nodes[i].desc->name, text) == 0) {
            *ret = i;
            n++;
        }
    return n == 1 ? 0
                  : cutpoint_refuse(c, text,
                                    n ? "the name of several operators of the pipeline"
                                      : "which is no operator of the pipeline",
                                    err);
}

int cw_cut_point_named(const struct cw_compiled *c, const json_t *root, const char *text,
                       struct cw_cut_point **ret, struct cw_error *err)
{
    unsigned first = cw_cut_point_first(c), at = (unsigned)c->pipeline->chain.n - 1;
    int r = 0;
    *ret = NULL;
    if (strcmp(text, "client") == 0)
        at = first;
    else if (strcmp(text, "worker") != 0)
        r = cutpoint_find(c, text, &at, err);
    if (r >= 0 && at < first)
        r = cutpoint_refuse(c, text,
                            c->pipeline->on_error == CW_ON_ERROR_REPLACE
                                ? "but on_error \"replace\" replaces a failed record by another one, which "
                                  "must pass all operators on a worker"
                                : "but an operator after it decides which elements there are, in which batch "
                                  "they are, or what a cache keeps, and runs on workers",
                            err);
    return r < 0 ? r : cw_cut_point_new(c, root, at, ret, err);
}
