/* Explains a pipeline: describes it as compiled and, after running it for some seconds, reports where the
 * time goes, what limits the rate and what would raise it. `cachew explain` and the C interface call it. */
#include "explain/explain.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "session/caching.h"
#include "optimize/optimize.h"
#include "dataset/mixing.h"

/* Bytes: as much as four chunks. If more is discarded before a chunk, the explanation says so. */
#define DISCARDED_MUCH ((uint64_t)16 << 20)

/* ---- the pipeline as compiled ---- */

/* Returns {component: type} of the components in batches. */
static json_t *compiled_schema(const struct cw_compiled *c)
{
    unsigned n;
    char text[160];
    const struct cw_component *delivered = cw_delivered(c, &n);
    json_t *schema = json_object();
    for (unsigned i = 0; i < n; i++)
        json_object_set_new(schema, delivered[i].name, json_string(cw_type_print(&delivered[i].type, text)));
    return schema;
}

/* Returns {component: type} after the first n operators of a chain, compiled as a pipeline of their own.
 * NULL: they do not compile. */
static json_t *chain_schema(const struct cw_pipeline *p, const struct cw_chain *chain, size_t n)
{
    struct cw_pipeline part = *p; /* borrows everything; its reference keeps it from being freed */
    struct cw_compiled *c;
    struct cw_error ignored = {0};
    part.refs = 1;
    part.chain = (struct cw_chain){.nodes = chain->nodes, .n = n};
    if (cw_compile(&part, &c, &ignored) < 0)
        return NULL;
    json_t *schema = compiled_schema(c);
    cw_compiled_free(c);
    return schema;
}

/* Adds `outputs`, the components that an operator adds or whose type it changes, and `removes`. before,
 * after: {component: type} before and after the operator. */
static void node_add_types(json_t *node, const json_t *before, const json_t *after)
{
    json_t *outputs = json_object(), *removed = json_array(), *value;
    const char *name;
    json_object_foreach((json_t *)after, name, value)
    {
        const json_t *old = json_object_get(before, name);
        if (!old || !json_equal(old, value))
            json_object_set(outputs, name, value);
    }
    json_object_foreach((json_t *)before, name, value)
    {
        if (!json_object_get(after, name))
            json_array_append_new(removed, json_string(name));
    }
    json_object_set_new(node, "outputs", outputs);
    if (json_array_size(removed))
        json_object_set(node, "removes", removed);
    json_decref(removed);
}

static json_t *chain_json(const struct cw_compiled *c, const struct cw_chain *chain, const unsigned *into)
{
    json_t *list = json_array(), *before = NULL;
    for (size_t i = 0; i < chain->n; i++) {
        const struct cw_node *node = &chain->nodes[i];
        json_t *o = json_pack("{s:s, s:i, s:s}", "op", node->desc->name, "position", (int)node->position,
                              "kind", cw_op_kind_name(node->desc->kind));
        json_t *after = chain_schema(c->pipeline, chain, i + 1);
        if (node->n_inputs) {
            json_t *inputs = json_array();
            for (size_t k = 0; k < node->n_inputs; k++)
                json_array_append_new(inputs, chain_json(c, &node->inputs[k], into));
            json_object_set_new(o, "inputs", inputs);
        }
        node_add_types(o, before, after);
        if (node->written != node->position)
            json_object_set_new(o, "written", json_integer(node->written));
        if (into[node->position] != node->position)
            json_object_set_new(o, "fused_into", json_integer(into[node->position]));
        if (node->desc->kind == CW_OP_INDEX)
            json_object_set_new(o, "counts_elements", json_boolean(c->is_limit[node->position]));
        json_object_set(o, "attributes", node->attrs);
        json_array_append_new(list, o);
        if (after) { /* else the next operator is compared with the last known schema */
            json_decref(before);
            before = after;
        }
    }
    json_decref(before);
    return list;
}

static int pipeline_fused_into(const struct cw_compiled *c, bool optimize, unsigned *into,
                               struct cw_error *err)
{
    unsigned n = c->pipeline->n_ops;
    for (unsigned i = 0; i < n; i++)
        into[i] = i;
    for (unsigned k = 0; k < c->n_programs; k++) {
        struct cw_optimized *o;
        int r = cw_optimize(&c->programs[k], c->n_limits, n, optimize, NULL, &o, err);
        if (r < 0)
            return r;
        for (unsigned i = 0; i < n; i++)
            if (o->fused_into[i] != i)
                into[i] = o->fused_into[i];
        cw_optimized_free(o);
    }
    return 0;
}

/* Returns the operator at a position; NULL: the chain has none. */
static const struct cw_node *chain_find_node(const struct cw_chain *chain, unsigned position)
{
    for (size_t i = 0; i < chain->n; i++) {
        const struct cw_node *node = &chain->nodes[i], *found = NULL;
        for (size_t k = 0; k < node->n_inputs && !found; k++)
            found = chain_find_node(&node->inputs[k], position);
        if (found || node->position == position)
            return found ? found : node;
    }
    return NULL;
}

/* Returns why one worker runs a whole epoch: names the first take or skip that must count elements, and the
 * operator before it that is the cause. */
static json_t *pipeline_sequential_reason(const struct cw_compiled *c)
{
    const struct cw_chain *chain = &c->pipeline->chain;
    const struct cw_node *cause = NULL;
    unsigned at = 0;
    while (at < c->pipeline->n_ops && !c->is_limit[at])
        at++;
    for (unsigned i = 0; i < at && !cause; i++) {
        const struct cw_node *node = chain_find_node(chain, i);
        if (node->desc->kind == CW_OP_FILTER || node->desc->kind == CW_OP_FLAT_MAP ||
            (node->desc->batcher && node->desc->batcher->keyed))
            cause = node;
    }
    const char *name = chain_find_node(chain, at)->desc->name;
    if (chain_find_node(chain, at)->desc->kind == CW_OP_FILTER)
        return json_sprintf("%s (operator %u) must see the elements of the epoch in order", name, at);
    return json_sprintf("%s (operator %u) must count the elements of the epoch in order, because the "
                        "number of elements that the preceding %s passes on is not known beforehand",
                        name, at, cause ? cause->desc->name : "operator");
}

static json_t *fused_groups_json(const unsigned *into, unsigned n)
{
    json_t *groups = json_array();
    for (unsigned i = 0; i < n; i++) {
        json_t *group = json_array();
        for (unsigned k = 0; k < n; k++)
            if (into[k] == i)
                json_array_append_new(group, json_integer(k));
        if (json_array_size(group) > 1)
            json_array_append(groups, group);
        json_decref(group);
    }
    return groups;
}

static void mixing_add_json(void *list, const struct cw_mixing *m)
{
    json_t *o = json_pack("{s:i, s:s, s:I, s:f, s:I, s:f, s:f, s:s}", "position", (int)m->position, "because",
                          m->row_groups   ? "row_groups"
                          : m->compressed ? "compressed"
                                          : "by",
                          "chunks", (json_int_t)m->chunks, "chunk_records", m->chunk_records, "batch",
                          (json_int_t)m->batch, "chunks_per_batch", m->chunks_per_batch, "chunks_by_record",
                          m->chunks_by_record, "says", m->says);
    if (o && m->compressed)
        json_object_set_new(o, "file", json_string(m->compressed));
    json_array_append_new(list, o);
}

/* Returns a sentence if much is decompressed to reach a chunk, else NULL. */
static json_t *source_says_json(const struct cw_source *source)
{
    if (source->discarded_bytes < DISCARDED_MUCH)
        return NULL;
    const char *slash = strrchr(source->discarded_in, '/');
    char name[256];
    snprintf(name, sizeof(name), "%s", slash ? slash + 1 : source->discarded_in);
    cw_text_clean(name, sizeof(name)); /* a file may have any name */
    return json_sprintf(
        "to read a part of %s, up to %.0f MiB before it are decompressed and discarded; compress "
        "the file in smaller frames, streams or blocks",
        name, (double)source->discarded_bytes / (1 << 20));
}

static json_t *count_or_null(uint64_t n)
{
    return n >= CW_ENDLESS ? json_null() : json_integer((json_int_t)n);
}

/* Adds `batch`, with the memory of a batch: the exact bytes of components of fixed size, and the names of
 * components whose size varies. */
static int batch_add_json(const struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                          struct cw_error *err)
{
    const struct cw_compiled *c = l->compiled;
    struct cw_budget budget;
    struct cw_layout layout;
    json_auto_t *varying = json_array();
    cw_budget_init(&budget, o->run.memory);
    int r = cw_layout_init(&layout, c, &budget, err);
    for (unsigned k = 0; k < c->n_outputs && r >= 0; k++)
        if (layout.offset[k] == SIZE_MAX)
            json_array_append_new(varying, json_string(c->outputs[k].name));
    if (r >= 0) {
        json_t *batch = json_pack("{s:I, s:b, s:I, s:I, s:O, s:I}", "size", (json_int_t)c->batch_size,
                                  "drop_remainder", c->grouping.full_only, "bytes",
                                  (json_int_t)layout.slab_bytes, "slab_bytes",
                                  (json_int_t)(layout.slab_bytes ? cw_slab_charge(layout.slab_bytes) : 0),
                                  "varying", varying, "memory_budget_bytes", (json_int_t)o->run.memory);
        json_object_set_new(facts, "batch", batch);
        cw_layout_deinit(&layout);
    }
    return r;
}

/* Returns how source files are read, with a sentence if reading is slow. The 0 means that the rate of
 * computing is not known yet. */
static json_t *reading_add_json(const struct cw_reading *k)
{
    json_t *o = cw_reading_json(k);
    _cleanup_free_ char *says = cw_reading_says(k, 0);
    if (says)
        json_object_set_new(o, "says", json_string(says));
    return o;
}

int cw_explain_pipeline(const struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                        struct cw_error *err)
{
    const struct cw_compiled *c = l->compiled;
    const struct cw_sequence *s = l->sequence;
    static const char *const on_error[] = {"raise", "skip", "replace"};
    unsigned n = c->pipeline->n_ops;
    char fingerprint[33];
    _cleanup_free_ unsigned *into = calloc(n + 1, sizeof(*into));
    if (!into)
        return cw_error_nomem(err, 0, "an explanation");
    int r = pipeline_fused_into(c, o->run.optimize, into, err);
    if (r < 0)
        return r;
    cw_hash128_print(c->pipeline->fingerprint, fingerprint);
    json_t *sources = json_array();
    for (unsigned i = 0; i < c->n_programs; i++) {
        const struct cw_source *source = s->sources[i];
        json_array_append_new(
            sources,
            json_pack("{s:s, s:i, s:o, s:I, s:I, s:b, s:I, s:o*}", "op", c->programs[i].ops[0]->desc->name,
                      "position", (int)c->programs[i].ops[0]->position, "records",
                      count_or_null(source->n_records), "bytes", (json_int_t)source->source_bytes, "chunks",
                      (json_int_t)source->n_chunks, "random_access", (int)source->random_access,
                      "discarded_bytes", (json_int_t)source->discarded_bytes, "says",
                      source_says_json(source)));
    }
    json_object_update_new(
        facts, json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:b, s:b, s:o}", "pipeline", o->name,
                         "fingerprint", fingerprint, "on_error", on_error[c->pipeline->on_error], "order",
                         cw_operator_order_names[c->pipeline->order], "operators",
                         chain_json(c, &c->pipeline->chain, into), "outputs", compiled_schema(c), "fused",
                         fused_groups_json(into, n), "sources", sources, "counted", (int)c->counted,
                         "sequential", (int)c->sequential, "elements", count_or_null(s->n_positions)));
    json_t *mixing = json_array();
    cw_mixing_each(s, mixing_add_json, mixing);
    json_object_set_new(facts, "by_chunk", mixing);
    if (c->sequential)
        json_object_set_new(facts, "sequential_because", pipeline_sequential_reason(c));
    if (c->n_cache_points)
        json_object_set_new(facts, "cache_points", cw_caching_cache_points(c));
    if (l->reading)
        json_object_set_new(facts, "reading", reading_add_json(l->reading));
    return batch_add_json(l, o, facts, err);
}
