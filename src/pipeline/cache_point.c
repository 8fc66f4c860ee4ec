/* Cache points (operators `autocache` and `cache`): which components elements have there, whether these can
 * be cached, and under which identity. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "pipeline/program.h"

/* Raise this number when an operator gives other values for the same records than in the release before: then
 * cached elements are computed again. */
#define RESULTS_VERSION 1

static const char *cache_point_why_inert(const struct cw_compiled *c, const struct cw_program *g,
                                         bool *ret_draws)
{
    *ret_draws = false;
    if (cw_op_is_stream(g->ops[0]->desc))
        return "the pipeline's source is a stream, whose elements can't be identified before they arrive";
    if (g->ops[0]->desc->kind == CW_OP_INDEX)
        return "an element is made of several records there, but a cache entry belongs to one record";
    for (unsigned i = 1; i + 1 < g->n_ops; i++) {
        if (g->ops[i]->desc->kind == CW_OP_FLAT_MAP)
            return "the cache point comes after flat_map, whose elements are not cached; write it before "
                   "flat_map";
        if (g->ops[i]->desc->index)
            return "the cache point comes after an operator whose result depends on the order of the "
                   "elements "
                   "(enumerate, take_while); write it before that operator";
        *ret_draws |= cw_op_draws(g->ops[i]);
        if (cw_op_draws(g->ops[i]) && !c->freeze[g->ops[i]->position].on)
            return "the cache point comes after an operator that draws new random numbers in each epoch; "
                   "write it before that operator, or set freeze";
    }
    return NULL;
}

int cw_cache_point_add(struct cw_compiled *c, struct cw_program *g, const struct cw_op *op, bool limited,
                       struct cw_error *err)
{
    struct cw_cache_point *grown = realloc(g->cache_points, (g->n_cache_points + 1) * sizeof(*grown)), *m;
    if (!grown)
        return cw_error_nomem(err, sizeof(*grown), "a cache point");
    g->cache_points = grown;
    m = &g->cache_points[g->n_cache_points++];
    *m = (struct cw_cache_point){.op = op,
                                 .number = c->n_cache_points,
                                 .counts = limited,
                                 .forced = op->desc->cache_point == CW_CACHE_FORCED};
    if (cw_attr_bool(op, "freeze"))
        for (unsigned i = 0; i < g->n_ops; i++)
            if (!c->freeze[g->ops[i]->position].on)
                c->freeze[g->ops[i]->position] = (struct cw_freeze){
                    .on = true, .seed = cw_attr_int(op, "seed"), .reuse = (uint64_t)cw_attr_int(op, "reuse")};
    m->inert = cache_point_why_inert(c, g, &m->draws);
    return 0;
}

/* Removes from the cache point's components those that no operator after ops[at], nor the output, needs. */
static void cache_point_keep_needed(const struct cw_program *g, struct cw_cache_point *m, unsigned at)
{
    unsigned n = 0;
    for (unsigned k = 0; k < m->n; k++)
        if (cw_program_needs(g, at, m->components[k].value))
            m->components[n++] = m->components[k];
        else
            free(m->components[k].name);
    m->n = n;
}

/* Adds an operator and those of its attributes that affect values to the text that the identity is a hash of.
 * Attributes that only say where files are do not count, because the id of a record names its file. */
static void cache_point_add_op(struct cw_text *t, const struct cw_op *op)
{
    json_auto_t *identity = cw_attrs_identity(op->desc, op->attrs);
    for (const struct cw_attr_def *a = op->desc->attrs; identity && a && a->name; a++)
        if (a->path)
            json_object_del(identity, a->name);
    _cleanup_free_ char *attrs = identity ? json_dumps(identity, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    t->failed |= !attrs;
    cw_text_add(t, "%s %s %s\n", op->desc->name, op->desc->plugin ? op->desc->plugin : "",
                attrs ? attrs : "");
}

int cw_cache_points_finish(struct cw_program *g, struct cw_error *err)
{
    for (unsigned k = 0; k < g->n_cache_points; k++) {
        struct cw_cache_point *m = &g->cache_points[k];
        struct cw_text t = {0};
        unsigned at = 0;
        char type[160];
        cw_text_add(&t, CACHEW_VERSION " %d\n", RESULTS_VERSION);
        for (; g->ops[at] != m->op; at++)
            if (g->ops[at]->live && !g->ops[at]->desc->cache_point)
                cache_point_add_op(&t, g->ops[at]);
        cache_point_keep_needed(g, m, at);
        for (unsigned i = 0; i < m->n; i++)
            cw_text_add(&t, "%s %s\n", cw_type_print(&m->components[i].type, type), m->components[i].name);
        if (!t.failed) {
            XXH128_hash_t h = XXH3_128bits(t.data, t.size);
            m->identity = (struct cw_hash128){.lo = h.low64, .hi = h.high64};
        }
        int failed = t.failed;
        cw_text_deinit(&t);
        if (failed)
            return cw_error_nomem(err, 0, "a fingerprint");
    }
    return 0;
}

void cw_cache_points_deinit(struct cw_program *g)
{
    for (unsigned k = 0; k < g->n_cache_points; k++) {
        for (unsigned i = 0; i < g->cache_points[k].n; i++)
            free(g->cache_points[k].components[i].name);
        free(g->cache_points[k].components);
    }
    free(g->cache_points);
}

const struct cw_cache_point *cw_cache_point_choose(const struct cw_program *g, int64_t number)
{
    const struct cw_cache_point *best = NULL;
    for (unsigned k = 0; k < g->n_cache_points; k++) {
        const struct cw_cache_point *m = &g->cache_points[k];
        if (!m->inert &&
            (number == CW_CACHE_POINT_AUTO ? !best || m->forced >= best->forced : m->number == number))
            best = m;
    }
    return best;
}
