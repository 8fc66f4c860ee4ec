/* Compiles a pipeline's chain to programs: checks what each kind of operator may come after, and adds the
 * operator to the paths. */
#include <stdio.h>
#include <string.h>

#include "pipeline/compile.h"

/* What is known about the elements at a place of a chain. */
struct flow {
    bool counted; /* their number is known, and which element comes at which position */
    /* an operator before this place numbers elements by their positions in the sequence */
    bool enumerated;
    bool limited; /* a limit comes before this place */
    /* an operator before this place begins exhausted inputs again: the number of passes is not known */
    bool restarts;
};

static int compile_refuse(const struct cw_compile *x, const struct cw_node *node, const char *why)
{
    cw_error_op(x->err, node->desc->name);
    return cw_error_set(x->err, CW_E_PIPELINE, "%s: %s", node->desc->name, why);
}

static void compile_add_limit(struct cw_compile *x, const struct cw_node *node, unsigned first, bool top)
{
    struct cw_compiled *c = x->c;
    const json_t *count = json_object_get(node->attrs, "count");
    enum cw_index_limit kind = node->desc->index->limit;
    unsigned k = c->n_limits++;
    c->limits[k] = (struct cw_limit){
        .kind = kind,
        .ends_epoch = top && (kind == CW_LIMIT_TAKE || kind == CW_LIMIT_TAKE_WHILE),
        .count = count                         ? (uint64_t)json_integer_value(count)
                 : kind == CW_LIMIT_TAKE_WHILE ? 1
                                               : UINT64_MAX,
    };
    c->is_limit[node->position] = true;
    if (top && kind == CW_LIMIT_TAKE)
        c->take = CW_MIN(c->take, c->limits[k].count);
    else
        c->sequential = true;
    for (unsigned i = first; i < x->n_paths; i++) {
        struct cw_compile_path *p = &x->paths[i];
        p->limit_here[k] = true;
        p->limit_at[k] = p->program.n_ops;
        p->limit_passes[k] = 1;
        for (unsigned j = 0; j < p->program.n_repeats; j++)
            if (__builtin_mul_overflow(p->limit_passes[k], (uint64_t)CW_MAX(p->program.repeat_counts[j], 0),
                                       &p->limit_passes[k]))
                p->limit_passes[k] = UINT64_MAX; /* refused when the sequence is made */
    }
}

/* Reads how the batcher pads the components of the first path, whose types are those of all paths. A
 * component with a given size varies until it is padded. */
static int compile_padding(struct cw_compile *x, const struct cw_op *op, unsigned first)
{
    struct cw_bind *b = &x->paths[first].bind;
    struct cw_compiled *c = x->c;
    x->padding = calloc(b->next_value + 1, sizeof(*x->padding));
    c->bucket_longest = calloc(c->n_buckets + 1, sizeof(*c->bucket_longest));
    if (!x->padding || !c->bucket_longest)
        return cw_error_nomem(x->err, 0, "padding");
    for (unsigned k = 0; k < c->n_buckets; k++)
        c->bucket_longest[k] = op->desc->batcher->longest ? op->desc->batcher->longest(op, k)
                                                          : CW_PAD_LONGEST;
    for (unsigned i = 0; i < b->n; i++) {
        struct cw_padding *p = &x->padding[b->components[i].value];
        int r = op->desc->batcher->padding(op, b->components[i].name, &b->components[i].type, p, x->err);
        if (r < 0)
            return r;
        x->pads |= p->on;
        for (unsigned k = first; k < x->n_paths; k++)
            for (int d = 0; d < x->paths[k].bind.components[i].type.ndim; d++)
                if (p->to[d] >= 0)
                    x->paths[k].bind.components[i].type.dims[d] = CW_VARIES;
    }
    return 0;
}

/* Binds a batcher to each path. The operator is part of the programs only if it has keys to compute. */
static int compile_bind_batcher(struct cw_compile *x, const struct cw_node *node, unsigned first)
{
    struct cw_op *op;
    for (unsigned i = first; i < x->n_paths; i++) {
        struct cw_compile_path *p = &x->paths[i];
        int r = x->c->keyed ? cw_path_bind(x, p, node, NULL, &op) : cw_path_bind_op(x, p, node, NULL, &op);
        if (r < 0)
            return r;
        if (x->c->keyed) {
            p->program.bucket_value = op->out[0].value;
            op->out[0].live = true;
        }
        if (i == first)
            r = compile_padding(x, op, first);
        if (!x->c->keyed)
            cw_op_free(op);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Returns how a batcher groups batches. */
static struct cw_grouping compile_grouping(const struct cw_node *node)
{
    const json_t *group = json_object_get(node->attrs, "group");
    const char *remainder = json_string_value(json_object_get(node->attrs, "remainder"));
    struct cw_grouping g = {.size = group ? (unsigned)json_integer_value(group) : 1,
                            .full_only = json_is_true(json_object_get(node->attrs, "drop_remainder"))};
    if (remainder && g.size > 1 && strcmp(remainder, "next") == 0)
        g.remainder = CW_REMAINDER_NEXT;
    else if (g.full_only || (remainder && strcmp(remainder, "drop") == 0))
        g.remainder = CW_REMAINDER_DROP;
    g.full_only |= g.remainder == CW_REMAINDER_DROP;
    return g;
}

static int compile_batcher(struct cw_compile *x, const struct cw_node *node, unsigned first, bool top)
{
    struct cw_compiled *c = x->c;
    if (!top)
        return compile_refuse(x, node,
                              "makes batches inside an input of another operator (concat, zip or mix): write "
                              "it after that operator");
    if (c->batcher)
        return compile_refuse(x, node,
                              "comes after another operator that makes batches: expected only one batch or "
                              "bucket_by_length in a pipeline");
    const json_t *sizes = json_object_get(node->attrs, node->desc->batcher->sizes);
    c->batcher = node->desc;
    c->batcher_attrs = node->attrs;
    c->keyed = node->desc->batcher->keyed;
    c->grouping = compile_grouping(node);
    const json_t *keys = c->keyed ? json_object_get(node->attrs, node->desc->batcher->keys) : NULL;
    c->n_buckets = json_is_array(sizes) ? (unsigned)json_array_size(sizes)
                   : keys               ? (unsigned)json_integer_value(keys)
                                        : 1;
    c->bucket_sizes = calloc(c->n_buckets + 1, sizeof(*c->bucket_sizes));
    if (!c->bucket_sizes)
        return cw_error_nomem(x->err, 0, "buckets");
    for (unsigned i = 0; i < c->n_buckets; i++) {
        const json_t *size = json_is_array(sizes) ? json_array_get(sizes, i) : sizes;
        c->bucket_sizes[i] = (uint64_t)json_integer_value(size);
        c->batch_size = CW_MAX(c->batch_size, c->bucket_sizes[i]);
    }
    return compile_bind_batcher(x, node, first);
}

/* Sets the error about a `skip` of n batches that leaves out a part of a group. */
static int compile_skipped_groups(struct cw_compile *x, const struct cw_node *node, uint64_t n)
{
    char have[32], expected[64];
    snprintf(have, sizeof(have), "%llu", (unsigned long long)n);
    snprintf(expected, sizeof(expected), "a multiple of %u, the group of %s", x->c->grouping.size,
             x->c->batcher->name);
    cw_error_op(x->err, node->desc->name);
    return cw_error_value(x->err, CW_E_PIPELINE, "count", have, expected, "%s: count is %s: expected %s",
                          node->desc->name, have, expected);
}

/* Checks an operator that comes after a batcher. A `take` or `skip` of batches sets which batches are
 * delivered. */
static int compile_after_batch(struct cw_compile *x, const struct cw_node *node, const struct flow *flow)
{
    struct cw_compiled *c = x->c;
    const struct cw_index_map *index = node->desc->index;
    if ((node->desc->kind == CW_OP_FILTER || node->desc->kind == CW_OP_FLAT_MAP) && !node->desc->function)
        return compile_refuse(x, node,
                              "comes after batch or bucket_by_length, but changes the number of elements: "
                              "write it before that operator");
    if (c->n_batch_ops && node->desc->kind == CW_OP_MAP)
        return compile_refuse(x, node,
                              "comes after map_batches or another operator on whole batches: write it before "
                              "that operator");
    if (node->desc->function && node->desc->kind != CW_OP_BATCH_MAP)
        return compile_refuse(x, node,
                              "comes after batch or bucket_by_length: write it before that operator, or use "
                              "map_batches, whose function gets whole batches");
    bool counts_batches = index && (index->limit == CW_LIMIT_TAKE || index->limit == CW_LIMIT_SKIP);
    if (index && !counts_batches && !(index->repeats && !c->keyed && flow->counted))
        return compile_refuse(x, node,
                              "can't come after batch or bucket_by_length here: write it before that "
                              "operator (to repeat the data set, --epochs is enough)");
    if ((c->keyed || x->pads) && node->desc->kind == CW_OP_MAP && !node->desc->effects.renames) {
        cw_error_op(x->err, node->desc->name);
        return cw_error_set(x->err, CW_E_PIPELINE, "%s: comes after %s%s: write it before that operator",
                            node->desc->name, c->batcher->name, c->keyed ? "" : ", which pads");
    }
    if (counts_batches && (!flow->counted || c->keyed)) {
        uint64_t n = (uint64_t)json_integer_value(json_object_get(node->attrs, "count"));
        if (index->limit == CW_LIMIT_SKIP && n % c->grouping.size)
            return compile_skipped_groups(x, node, n);
        c->is_limit[node->position] = true;
        if (index->limit == CW_LIMIT_SKIP)
            c->batch_from = n > c->batch_to - c->batch_from ? c->batch_to : c->batch_from + n;
        else
            c->batch_to = n < c->batch_to - c->batch_from ? c->batch_from + n : c->batch_to;
    }
    return 0;
}

/* Sets the components of the cache point that was just added. */
static int compile_cache_point_components(struct cw_compile *x, struct cw_compile_path *p)
{
    struct cw_cache_point *m = &p->program.cache_points[p->program.n_cache_points - 1];
    return cw_copy_outputs(&p->bind, &m->components, &m->n, x->err);
}

/* Adds an operator on batches. Its inputs are the components of a batch, in byte order of their names. */
static int compile_batch_op(struct cw_compile *x, const struct cw_node *node)
{
    struct cw_compiled *c = x->c;
    if (!c->batcher)
        return compile_refuse(x, node,
                              node->desc->function
                                  ? "needs batch or bucket_by_length before it, because its function gets "
                                    "whole batches: write batch before it, or use map"
                                  : "needs batch or bucket_by_length before it, because it works on whole "
                                    "batches: write batch before it");
    struct cw_batch_op *grown = realloc(c->batch_ops, (c->n_batch_ops + 1) * sizeof(*grown)), *o;
    if (!grown)
        return cw_error_nomem(x->err, sizeof(*grown), "operators");
    c->batch_ops = grown;
    const struct cw_batch_op *last = c->n_batch_ops ? &c->batch_ops[c->n_batch_ops - 1] : NULL;
    const struct cw_component *in = last ? last->outputs : x->paths[0].bind.components;
    unsigned n_in = last ? last->n_outputs : x->paths[0].bind.n;
    struct cw_compile_path p = {0};
    int r = 0;
    for (unsigned i = 0; i < n_in && r >= 0; i++)
        r = cw_bind_put(&p.bind, in[i].name, i, &in[i].type, x->err);
    p.bind.next_value = n_in;
    if (r >= 0)
        r = cw_path_bind_op(x, &p, node, NULL, &p.bind.op);
    if (r >= 0) {
        o = &c->batch_ops[c->n_batch_ops];
        *o = (struct cw_batch_op){.op = CW_STEAL(p.bind.op)};
        c->n_batch_ops++;
        r = cw_copy_outputs(&p.bind, &o->outputs, &o->n_outputs, x->err);
    }
    cw_bind_deinit(&p.bind);
    return r;
}

static int compile_chain(struct cw_compile *x, const struct cw_chain *chain, bool top, struct flow *flow);

/* Checks input k of a zip: it must be known beforehand which of its elements comes at which position. */
static int compile_check_zipped(struct cw_compile *x, const struct cw_node *node, size_t k,
                                const struct flow *flow)
{
    const struct cw_chain *chain = &node->inputs[k];
    const struct cw_compile_path *p = &x->paths[x->n_paths - 1];
    const char *odd = chain->nodes[0].n_inputs    ? "begins with concat, zip or mix"
                      : p->n_source               ? "has a window"
                      : flow->enumerated          ? "has an enumerate"
                      : !flow->counted            ? "has no known number of elements"
                      : p->program.n_cache_points ? "has a cache point"
                                                  : NULL;
    x->next_value = p->bind.next_value;
    if (!odd)
        return 0;
    cw_error_op(x->err, node->desc->name);
    return cw_error_set(
        x->err, CW_E_PIPELINE,
        "%s: input %zu %s: expected a source whose records are known beforehand, then only shuffle, take, "
        "skip, repeat and one-to-one operators; write all other operators after %s",
        node->desc->name, k, odd, node->desc->name);
}

/* The elements of each path from number `first` on come in `count` passes, -1: any number. */
static int compile_passes(struct cw_compile *x, const struct cw_node *node, unsigned first, int64_t count,
                          const struct flow *flow)
{
    struct cw_compiled *c = x->c;
    if (flow->restarts)
        return compile_refuse(
            x, node,
            "comes after a mix whose exhausted inputs begin again: expected a run of several "
            "epochs, or mix with stop \"first\"");
    c->sequential |= flow->limited;
    x->last_takes = c->n_limits;
    for (unsigned k = 0; k < c->n_limits; k++) /* limits before a `repeat` start anew in each pass */
        c->limits[k].ends_epoch = false;
    for (unsigned k = first; k < x->n_paths; k++) {
        struct cw_program *g = &x->paths[k].program;
        g->repeat_counts[g->n_repeats++] = count;
    }
    return 0;
}

/* Adds the first operator of a chain: a source, or an operator with inputs. */
static int compile_first(struct cw_compile *x, const struct cw_node *node, struct flow *flow)
{
    unsigned first = x->n_paths;
    int r = 0;
    if (cw_op_is_stream(node->desc) && x->c->pipeline->on_error == CW_ON_ERROR_REPLACE)
        return compile_refuse(
            x, node,
            "can't be used with on_error \"replace\": the records of a stream are not known "
            "in advance, so none can replace a failed one; use \"skip\"");
    /* the number of its elements is known only at its end, as after a filter */
    flow->counted &= !cw_op_is_stream(node->desc);
    if (node->n_inputs == 0)
        return cw_path_add(x, node);
    bool restarts = node->desc->index->restarts && node->desc->index->restarts(node->attrs);
    for (size_t k = 0; k < node->n_inputs && r >= 0; k++) {
        struct flow in;
        unsigned input = x->n_paths;
        r = compile_chain(x, &node->inputs[k], false, &in);
        flow->counted &= in.counted;
        flow->limited |= in.limited;
        flow->enumerated |= in.enumerated;
        flow->restarts |= in.restarts;
        if (r >= 0 && restarts)
            r = compile_passes(x, node, input, -1, &in);
        if (r >= 0 && node->desc->index->zips)
            r = compile_check_zipped(x, node, k, &in);
    }
    x->next_value = 0;
    flow->restarts |= restarts;
    if (r < 0)
        return r;
    return node->desc->index->zips ? cw_paths_zip(x, node, first) : cw_paths_merge(x, node, first);
}

/* Returns whether the elements of all paths can run together after their branches, if there are several. */
static bool compile_joins(const struct cw_compile *x)
{
    bool joins = true;
    for (unsigned k = 0; k < x->n_paths && x->n_paths > 1; k++)
        joins &= x->paths[k].program.n_branch > 0;
    return joins;
}

/* Checks an operator whose results depend on all elements of a window of positions (pack). */
static int compile_windowed(struct cw_compile *x, const struct cw_node *node, bool top,
                            const struct flow *flow)
{
    const char *why =
        !top ? "makes elements inside an input of another operator (concat, zip or mix): write "
               "it after that operator"
        : !compile_joins(x)
            ? "gets elements of several sources, one of which is a stream, or has flat_map, window or "
              "enumerate before concat or mix: expected other sources and operators there"
        : cw_op_is_stream(x->paths[0].program.ops[0]->desc)
            ? "gets elements from a stream (iterable): expected a source with an index, whose "
              "records are known beforehand"
        : flow->limited ? "comes after take_while, or after a take, skip or enumerate of elements whose "
                          "number is not known beforehand: write it before that operator"
        : x->c->group   ? "comes after another pack: expected only one in a pipeline"
                        : NULL;
    if (why)
        return compile_refuse(x, node, why);
    x->c->group = (uint64_t)json_integer_value(json_object_get(node->attrs, "window"));
    return 0;
}

/* Adds an operator that runs on elements to each path from number `first` on. */
static int compile_element_op(struct cw_compile *x, const struct cw_node *node, const struct cw_node *next,
                              unsigned first, bool top, struct flow *flow)
{
    struct cw_compiled *c = x->c;
    bool drops = node->desc->kind != CW_OP_MAP;
    if (node->desc->index && c->pipeline->on_error == CW_ON_ERROR_REPLACE)
        return compile_refuse(
            x, node,
            "can't be used with on_error \"replace\": whether a replacement passes depends on "
            "the elements before it; use \"skip\"");
    if (node->desc->kind == CW_OP_FLAT_MAP && c->pipeline->on_error == CW_ON_ERROR_REPLACE)
        return compile_refuse(
            x, node,
            "can't be used with on_error \"replace\": a record may give several elements, so "
            "it can't replace a single element; use \"skip\"");
    for (unsigned k = first; k < x->n_paths; k++) {
        struct cw_compile_path *p = &x->paths[k];
        struct cw_op *op;
        int r = cw_path_bind(x, p, node, next, &op);
        if (r >= 0 && node->desc->cache_point)
            r = cw_cache_point_add(c, &p->program, op, flow->limited, x->err);
        if (r >= 0 && node->desc->cache_point)
            r = compile_cache_point_components(x, p);
        if (r < 0)
            return r;
        if (drops)
            p->last_filter = p->program.n_ops;
    }
    if (drops) {
        flow->counted = false;
        c->sequential |= flow->limited;
        if (node->desc->index) {
            compile_add_limit(x, node, first, top);
            flow->limited = true;
        }
        x->last_takes = c->n_limits;
    }
    c->n_cache_points += node->desc->cache_point != CW_CACHE_NEVER;
    return 0;
}

/* Adds the operator that runs before a batcher, if it has one. */
static int compile_batcher_rows(struct cw_compile *x, const struct cw_node *node, unsigned first,
                                struct flow *flow)
{
    struct cw_node rows = *node;
    rows.desc = node->desc->batcher->rows;
    return rows.desc ? compile_element_op(x, &rows, NULL, first, false, flow) : 0;
}

/* Returns the number of the operator after batcher chain->nodes[at] that makes elements of its batches again;
 * 0: there is none. Then both are left out. */
static size_t compile_taker(const struct cw_chain *chain, size_t at)
{
    for (size_t i = at + 1; i < chain->n; i++)
        if (chain->nodes[i].desc->takes_batches)
            return i;
    return 0;
}

/* Checks that a batcher and the operator that makes elements of its batches again change no element. */
static int compile_check_left_out(struct cw_compile *x, const struct cw_chain *chain, size_t at, size_t taker)
{
    const struct cw_node *batcher = &chain->nodes[at], *node = &chain->nodes[taker], *between = NULL;
    const json_t *pad = json_object_get(batcher->attrs, "pad");
    for (size_t i = taker - 1; i > at; i--)
        between = chain->nodes[i].desc->kind == CW_OP_MAP ? between : &chain->nodes[i];
    const char *odd = batcher->desc->batcher->keyed ? "which changes the order of the elements"
                      : json_is_true(json_object_get(batcher->attrs, "drop_remainder"))
                          ? "which leaves out elements (drop_remainder): expected take before it instead"
                      : !json_is_object(pad) || json_object_size(pad) ? "which pads"
                                                                      : NULL;
    if (!odd && !between)
        return 0;
    cw_error_op(x->err, node->desc->name);
    return between ? cw_error_set(x->err, CW_E_PIPELINE,
                                  "%s: comes after %s and %s: expected only operators on elements between %s "
                                  "and %s",
                                  node->desc->name, batcher->desc->name, between->desc->name,
                                  batcher->desc->name, node->desc->name)
                   : cw_error_set(x->err, CW_E_PIPELINE, "%s: comes after %s, %s", node->desc->name,
                                  batcher->desc->name, odd);
}

/* Adds a window, which makes one element of several elements of its only source. */
static int compile_gather(struct cw_compile *x, const struct cw_node *node, unsigned first,
                          const struct flow *flow)
{
    struct cw_compile_path *p = &x->paths[first];
    const char *why =
        x->n_paths > first + 1 ? "gets elements from several sources: write it before concat, in each input"
        : p->n_source          ? "comes after another window: expected only one after a source"
        : !flow->counted       ? "comes after an operator whose number of elements is not known beforehand, "
                                 "such as filter: write it before that operator"
        : flow->enumerated     ? "comes after enumerate: write enumerate after window"
        : p->program.n_cache_points
            ? "comes after a cache point, but its elements are made of several records: "
              "leave the cache point out"
        : x->c->pipeline->on_error == CW_ON_ERROR_REPLACE
            ? "can't be used with on_error \"replace\": its elements are made of several records, none of "
              "which can be replaced alone; use \"skip\""
            : NULL;
    return why ? compile_refuse(x, node, why) : cw_path_gather(x, p, node);
}

/* Adds an index operator. It becomes part of the sequence, unless it must count the elements that arrive;
 * then it becomes a limit. If it writes a component, it is part of the programs too. */
static int compile_index(struct cw_compile *x, const struct cw_node *node, unsigned first, bool top,
                         struct flow *flow)
{
    const struct cw_index_map *map = node->desc->index;
    struct cw_compiled *c = x->c;
    if (c->group && !map->limit)
        return compile_refuse(x, node, "comes after pack: write it before pack");
    if (map->permutes && flow->limited)
        return compile_refuse(x, node,
                              "comes after take_while, or after a take, skip or enumerate of elements whose "
                              "number is not known beforehand: write shuffle before that operator");
    if (node->desc->run && c->pipeline->on_error == CW_ON_ERROR_REPLACE)
        return compile_refuse(x, node,
                              "can't be used with on_error \"replace\": a replacement has no number of its "
                              "own; use \"skip\"");
    for (unsigned k = first; k < x->n_paths && node->desc->run; k++) {
        int r = cw_path_bind(x, &x->paths[k], node, NULL, NULL);
        if (r < 0)
            return r;
    }
    if (map->limit && !flow->counted) {
        compile_add_limit(x, node, first, top);
        flow->limited = true;
        if (!top || map->limit != CW_LIMIT_TAKE)
            x->last_takes = c->n_limits;
    }
    flow->enumerated |= map->limit == CW_LIMIT_ENUMERATE && flow->counted;
    return map->repeats ? compile_passes(x, node, first,
                                         json_integer_value(json_object_get(node->attrs, "count")), flow)
                        : 0;
}

/* Returns the node that follows nodes[at] in the chain as written; NULL: none. The order `relaxed` counts as
 * the order as written, because it defines the result. */
static const struct cw_node *compile_written_next(const struct cw_compiled *c, const struct cw_chain *chain,
                                                  size_t at)
{
    bool relaxed = c->pipeline->order == CW_ORDER_RELAXED;
    for (size_t i = 1; i < chain->n; i++)
        if (relaxed ? i == at + 1 : chain->nodes[i].written == chain->nodes[at].written + 1)
            return &chain->nodes[i];
    return NULL;
}

/* Adds the paths of a chain, and sets *flow to what is known about elements at its end. top: the chain is not
 * an input of an operator. */
static int compile_chain(struct cw_compile *x, const struct cw_chain *chain, bool top, struct flow *flow)
{
    struct cw_compiled *c = x->c;
    unsigned first = x->n_paths;
    bool left_out = false; /* a batcher was left out, and the operator that takes its batches comes later */
    *flow = (struct flow){.counted = true};
    int r = compile_first(x, &chain->nodes[0], flow);
    for (size_t i = 1; i < chain->n && r >= 0; i++) {
        const struct cw_node *node = &chain->nodes[i], *next = compile_written_next(c, chain, i);
        if (c->batcher && top && node->desc->kind != CW_OP_BATCHER) {
            r = compile_after_batch(x, node, flow);
            if (r < 0 || c->is_limit[node->position])
                continue;
        }
        bool rows = left_out && node->desc->takes_batches; /* it gets the elements of the batches */
        size_t taker = node->desc->kind == CW_OP_BATCHER ? compile_taker(chain, i) : 0;
        left_out &= !rows;
        if (rows && node->desc->kind != CW_OP_BATCHER)
            continue;
        switch (node->desc->kind) {
        case CW_OP_BATCHER:
            r = rows ? 0 : compile_batcher_rows(x, node, first, flow);
            if (r >= 0)
                r = taker ? compile_check_left_out(x, chain, i, taker) : compile_batcher(x, node, first, top);
            left_out |= taker > 0;
            break;
        case CW_OP_BATCH_MAP:
            r = compile_batch_op(x, node);
            break;
        case CW_OP_FLAT_MAP:
        case CW_OP_FILTER:
        case CW_OP_MAP:
            r = node->desc->effects.state == CW_STATE_WINDOWED ? compile_windowed(x, node, top, flow) : 0;
            r = r < 0 ? r : compile_element_op(x, node, next, first, top, flow);
            break;
        case CW_OP_INDEX:
            r = node->desc->index->gathers ? compile_gather(x, node, first, flow)
                                           : compile_index(x, node, first, top, flow);
            break;
        default:
            r = compile_refuse(x, node, "can only be the first operator of a chain");
        }
    }
    return r;
}

static int compile_make_salts(struct cw_compiled *c, const struct cw_chain *chain, struct cw_error *err)
{
    for (size_t i = 0; i < chain->n; i++) {
        const struct cw_node *node = &chain->nodes[i];
        for (size_t k = 0; k < node->n_inputs; k++) {
            int r = compile_make_salts(c, &node->inputs[k], err);
            if (r < 0)
                return r;
        }
        if (asprintf(&c->salts[node->position], "%s/%u", node->desc->name, node->occurrence) < 0) {
            c->salts[node->position] = NULL;
            return cw_error_nomem(err, 0, "a salt");
        }
    }
    return 0;
}

/* With drop_remainder, rounds down the counts of the takes before `batch` (limits from number `first` on) to
 * whole batches, because elements beyond the last whole batch are not needed. */
static void compile_whole_batches(struct cw_compiled *c, unsigned first)
{
    uint64_t n = UINT64_MAX;
    for (unsigned k = first; k < c->n_limits; k++) {
        n = CW_MIN(n, c->limits[k].count);
        c->take = c->limits[k].count = n - n % c->batch_size;
    }
}

/* Sets the padding of the outputs, whose names may have changed after the batcher. */
static int compile_output_padding(struct cw_compile *x)
{
    struct cw_compiled *c = x->c;
    if (!x->pads)
        return 0;
    if (!(c->padding = calloc(c->n_outputs, sizeof(*c->padding))))
        return cw_error_nomem(x->err, 0, "padding");
    for (unsigned k = 0; k < c->n_outputs; k++)
        c->padding[k] = x->padding[c->outputs[k].value];
    return 0;
}

static int compile(struct cw_compile *x)
{
    struct cw_compiled *c = x->c;
    unsigned n = c->pipeline->n_ops;
    struct flow flow;
    c->batch_size = c->grouping.size = 1;
    c->batch_to = c->take = UINT64_MAX;
    c->n_keys = n + 1;
    c->salts = calloc(c->n_keys, sizeof(*c->salts));
    c->is_limit = calloc(n + 1, sizeof(*c->is_limit));
    c->limits = calloc(n + 1, sizeof(*c->limits));
    c->freeze = calloc(n + 1, sizeof(*c->freeze));
    if (!c->salts || !c->freeze || !c->is_limit || !c->limits || !(c->salts[n] = strdup("replace/0")))
        return cw_error_nomem(x->err, 0, "a pipeline");
    int r = compile_make_salts(c, &c->pipeline->chain, x->err);
    if (r >= 0)
        r = compile_chain(x, &c->pipeline->chain, true, &flow);
    if (r < 0)
        return r;
    c->counted = flow.counted && !c->keyed;
    c->elements_known = flow.counted && (!c->keyed || (c->batch_from == 0 && c->batch_to == UINT64_MAX &&
                                                       !c->grouping.full_only));
    c->sequential |= flow.limited && c->keyed;
    if (c->grouping.full_only && !c->keyed)
        compile_whole_batches(c, x->last_takes);
    c->programs = calloc(x->n_paths, sizeof(*c->programs));
    if (!c->programs)
        return cw_error_nomem(x->err, 0, "programs");
    for (unsigned i = 0; i < x->n_paths; i++) {
        r = cw_path_finish(x, &x->paths[i]);
        c->programs[i] = x->paths[i].program; /* moved even after an error, so that it is freed with c */
        x->paths[i].program = (struct cw_program){0};
        c->n_programs = i + 1;
        if (r < 0)
            return r;
    }
    for (unsigned i = 0; i < c->n_programs && c->n_programs > 1 && c->group; i++)
        for (unsigned k = 0; k < c->programs[i].n_cache_points; k++)
            c->programs[i].cache_points[k].inert =
                "pack takes elements of several sources together, and an entry of "
                "the cache belongs to one source";
    r = cw_copy_outputs(&x->paths[0].bind, &c->outputs, &c->n_outputs, x->err);
    if (r >= 0 && c->n_outputs == 0)
        return cw_error_set(x->err, CW_E_PIPELINE,
                            "no component is left at the end of the pipeline: expected at least one");
    return r < 0 ? r : compile_output_padding(x);
}

int cw_compile(struct cw_pipeline *p, struct cw_compiled **ret, struct cw_error *err)
{
    struct cw_compiled *c = calloc(1, sizeof(*c));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "a pipeline");
    c->pipeline = cw_pipeline_ref(p);
    struct cw_compile x = {.c = c, .err = err};
    int r = compile(&x);
    for (unsigned i = 0; i < x.n_paths; i++)
        cw_path_deinit(&x.paths[i]);
    free(x.paths);
    free(x.padding);
    if (r < 0) {
        cw_compiled_free(c);
        return r;
    }
    *ret = c;
    return 0;
}
