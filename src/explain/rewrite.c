/* Finds changes of a pipeline that do not change its results: places for a cache, and operators that may run
 * earlier. explain_run.c finds changes, explain_check.c applies them. */
#include "explain/rewrite.h"

#include <math.h>
#include <string.h>

#include "optimize/laws.h"

/* ---- JSON ---- */

json_t *cw_change_apply(const json_t *root, const json_t *change)
{
    json_auto_t *copy = json_deep_copy(root);
    json_t *list = json_object_get(copy, "pipeline"), *op = json_object_get(change, "insert"),
           *from = json_object_get(change, "move");
    int failed = 0;
    if (op)
        failed = json_array_insert(list, (size_t)json_integer_value(json_object_get(change, "at")), op);
    if (from) {
        json_t *moved = json_incref(json_array_get(list, (size_t)json_integer_value(from)));
        failed = json_array_remove(list, (size_t)json_integer_value(from)) < 0 ||
                 json_array_insert_new(list, (size_t)json_integer_value(json_object_get(change, "to")),
                                       moved) < 0;
    }
    return failed ? NULL : json_incref(copy);
}

/* Compiles the pipeline with a change into *ret. Takes the caller's reference to `change`. 1: the changed
 * pipeline does not compile. */
static int change_compile(const struct cw_local *l, json_t *change, struct cw_local *ret,
                          struct cw_error *err)
{
    struct cw_error own = {0};
    json_auto_t *as_run = cw_local_root_as_run(l),
                *root = as_run && change ? cw_change_apply(as_run, change) : NULL;
    json_decref(change);
    if (!root)
        return cw_error_nomem(err, 0, "a pipeline");
    int r = cw_local_compile(ret, root, l->pipeline->base_dir, &own);
    return r == CW_E_MEMORY ? cw_error_copy(err, &own) : r < 0;
}

/* ---- cache points ---- */

/* Sets *ret to the mean bytes of an element at the cache point at `position` of c, weighted by the elements
 * of each source. *ret_number: the cache point's number. p is the profile of the pipeline that ran; c may
 * have one cache point more, which does not change the numbers of values. 1: the cache point can't be used,
 * or the size is not known. */
static int cache_point_bytes(const struct cw_compiled *c, const struct cw_profile *p, unsigned position,
                             double *ret, int *ret_number)
{
    double sum = 0, weight = 0;
    for (unsigned k = 0; k < c->n_programs; k++) {
        const struct cw_program *g = &c->programs[k];
        double w = (double)p->ops[g->ops[0]->position].rows, bytes = 0;
        for (unsigned i = 0; i < g->n_cache_points; i++) {
            const struct cw_cache_point *m = &g->cache_points[i];
            if (m->op->position != position)
                continue;
            if (m->inert || m->n == 0)
                return 1;
            for (unsigned j = 0; j < m->n; j++)
                bytes += cw_costs_value_bytes(c, p, k, m->components[j].value, &m->components[j].type);
            *ret_number = (int)m->number;
            sum += w * bytes;
            weight += w;
        }
    }
    *ret = weight > 0 ? sum / weight : NAN;
    return isfinite(*ret) ? 0 : 1;
}

int cw_places_find(const struct cw_local *l, const struct cw_profile *p, struct cw_place **ret, size_t *ret_n,
                   struct cw_error *err)
{
    const struct cw_chain *chain = &l->pipeline->chain;
    _cleanup_free_ struct cw_place *places = calloc(chain->n + 1, sizeof(*places));
    size_t n = 0;
    int r = places ? 0 : cw_error_nomem(err, 0, "places for a cache");
    for (size_t at = 1; at <= chain->n && r >= 0 && chain->nodes[at - 1].desc->kind != CW_OP_BATCHER; at++) {
        const struct cw_node *before = &chain->nodes[at - 1],
                             *here = at < chain->n ? &chain->nodes[at] : NULL;
        struct cw_place place = {.at = at, .cache_point = -1, .last = before->position};
        struct cw_local changed = {0};
        int number;
        if (here && here->desc->cache_point) {
            if (cache_point_bytes(l->compiled, p, here->position, &place.bytes, &place.cache_point) == 0)
                places[n++] = place;
            continue;
        }
        /* a cache here would have the same elements as one place earlier */
        if (before->desc->cache_point || before->desc->kind == CW_OP_INDEX)
            continue;
        r = change_compile(l, json_pack("{s:{s:s}, s:i}", "insert", "op", "autocache", "at", (int)at),
                           &changed, err);
        if (r == 0 && cache_point_bytes(changed.compiled, p, changed.pipeline->chain.nodes[at].position,
                                        &place.bytes, &number) == 0)
            places[n++] = place;
        cw_local_deinit(&changed);
    }
    *ret = r < 0 ? NULL : CW_STEAL(places);
    *ret_n = n;
    return r < 0 ? r : 0;
}

/* ---- another order ---- */

/* Returns the program's operator at a position; NULL: the program does not have it, because it belongs to
 * another source or does nothing. */
static const struct cw_op *program_find_op(const struct cw_program *g, unsigned position)
{
    for (unsigned i = 0; i < g->n_ops; i++)
        if (g->ops[i]->position == position)
            return g->ops[i];
    return NULL;
}

/* Returns the part of its input that an operator keeps: of the elements for a filter, of the bytes for any
 * other operator. leaf: index of the source's program. */
static double op_kept_part(const struct cw_compiled *c, const struct cw_costs *costs,
                           const struct cw_profile *p, const struct cw_op *op, unsigned leaf)
{
    if (op->desc->effects.count == CW_COUNT_FEWER) {
        for (unsigned i = op->position + 1; i < costs->n_ops; i++)
            if (costs->ops[i].rows > 0)
                return costs->ops[i].rows / costs->ops[op->position].rows;
        return 1 / costs->ops[op->position].rows; /* no operator follows before the batch */
    }
    if (memcmp(&op->in[0].type, &op->out[0].type, sizeof(op->in[0].type)) == 0)
        return 1; /* such as a flip: the measured sizes of input and output differ only by chance */
    return cw_costs_value_bytes(c, p, leaf, op->out[0].value, &op->out[0].type) /
           cw_costs_value_bytes(c, p, leaf, op->in[0].value, &op->in[0].type);
}

/* Returns the smallest index to which the operator at index `from` may be moved. */
static size_t move_earliest(const struct cw_local *l, const struct cw_program *g,
                            const struct cw_costs *costs, size_t from)
{
    const struct cw_node *nodes = l->pipeline->chain.nodes;
    const struct cw_op *op = program_find_op(g, nodes[from].position);
    size_t to = from;
    while (op && op->live && to > 1 && nodes[to - 1].n_inputs == 0) {
        const struct cw_op *other = program_find_op(g, nodes[to - 1].position);
        bool same_run = other &&
                        costs->ops[other->position].fused_into == costs->ops[op->position].fused_into;
        bool less = op->desc->effects.count == CW_COUNT_FEWER || (other && cw_law_same_component(other, op));
        if (!other || same_run || !less || !cw_law_find(other, op, false))
            break;
        to--;
    }
    return to;
}

int cw_moves_find(const struct cw_local *l, const struct cw_costs *c, const struct cw_profile *p,
                  struct cw_move **ret, size_t *ret_n, struct cw_error *err)
{
    const struct cw_chain *chain = &l->pipeline->chain;
    const struct cw_program *g = &l->compiled->programs[0];
    _cleanup_free_ struct cw_move *moves = calloc(chain->n + 1, sizeof(*moves));
    size_t n = 0;
    int r = moves ? 0 : cw_error_nomem(err, 0, "orders of operators");
    /* Not after concat, where each source has its own values. Only if errors end the run: with another order,
     * other elements fail first, so with another on_error the batches could differ. */
    for (size_t from = 2; from < chain->n && r >= 0 && l->compiled->n_programs == 1 &&
                          l->pipeline->on_error == CW_ON_ERROR_RAISE;
         from++) {
        size_t to = move_earliest(l, g, c, from);
        struct cw_local changed = {0};
        if (to == from)
            continue;
        const struct cw_op *op = program_find_op(g, chain->nodes[from].position);
        struct cw_move move = {
            .from = from,
            .to = to,
            .first = chain->nodes[to].position,
            .last = chain->nodes[from - 1].position,
            .factor = c->ops[op->position].rows > 0 ? op_kept_part(l->compiled, c, p, op, 0) : NAN};
        r = change_compile(l, json_pack("{s:i, s:i}", "move", (int)from, "to", (int)to), &changed, err);
        if (r == 0 && move.factor < 1) /* NAN is not */
            moves[n++] = move;
        cw_local_deinit(&changed);
    }
    *ret = r < 0 ? NULL : CW_STEAL(moves);
    *ret_n = n;
    return r < 0 ? r : 0;
}
