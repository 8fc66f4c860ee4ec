#include "pipeline/program.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/bind.h"

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
    op->desc = node->desc;
    op->attrs = node->attrs;
    op->occurrence = node->occurrence;
    op->position = op->index = node->position;
    return op;
}

/* While compiling: a program under construction with the components that its elements have now. */
struct path {
    struct cw_program program;
    struct cw_bind bind;
    unsigned capacity;
    /* Where limits stand: limit k stands before ops[limit_at[k]]. */
    unsigned *limit_at;
    bool *limit_here;
    uint64_t *limit_passes;
    unsigned last_filter; /* ops up to here (exclusive) decide whether the element lives */
};

struct compile {
    struct cw_compiled *c;
    struct path *paths;
    unsigned n_paths, capacity;
    struct cw_error *err;
};

/* What is known of the elements at a place of a chain. */
struct flow {
    bool counted;
    bool limited;   /* a limit stands before */
};

static int program_add(struct compile *x, struct path *p, struct cw_op *op)
{
    struct cw_program *g = &p->program;
    if (g->n_ops == p->capacity) {
        unsigned capacity = p->capacity ? p->capacity * 2 : 16;
        struct cw_op **grown = realloc(g->ops, capacity * sizeof(*grown));
        if (!grown) {
            cw_op_free(op);
            return cw_error_nomem(x->err, capacity * sizeof(*grown), "operators");
        }
        g->ops = grown;
        p->capacity = capacity;
    }
    g->ops[g->n_ops++] = op;
    return 0;
}

static int bind_op(struct compile *x, struct path *p, const struct cw_node *node, const struct cw_node *next, struct cw_op **ret)
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
    int r = op->desc->bind ? op->desc->bind(&p->bind, op, x->err) : 0;
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

/* Binds a node for one path. Operators without run are only bound: they rename or drop, or are indexes. */
static int bind_node(struct compile *x, struct path *p, const struct cw_node *node, const struct cw_node *next, struct cw_op **ret)
{
    struct cw_op *op;
    int r = bind_op(x, p, node, next, &op);
    if (r < 0)
        return r;
    if (ret)
        *ret = op;
    return program_add(x, p, op);
}

static int add_path(struct compile *x, const struct cw_node *node)
{
    if (x->n_paths == x->capacity) {
        unsigned capacity = x->capacity ? x->capacity * 2 : 4;
        struct path *grown = realloc(x->paths, capacity * sizeof(*grown));
        if (!grown)
            return cw_error_nomem(x->err, capacity * sizeof(*grown), "programs");
        x->paths = grown;
        x->capacity = capacity;
    }
    struct path *p = &x->paths[x->n_paths];
    *p = (struct path){.program.leaf = x->n_paths};
    p->limit_at = calloc(x->c->pipeline->n_ops + 1, sizeof(*p->limit_at));
    p->limit_here = calloc(x->c->pipeline->n_ops + 1, sizeof(*p->limit_here));
    p->limit_passes = calloc(x->c->pipeline->n_ops + 1, sizeof(*p->limit_passes));
    p->program.repeat_counts = calloc(x->c->pipeline->n_ops + 1, sizeof(*p->program.repeat_counts));
    x->n_paths++;
    if (!p->limit_at || !p->limit_here || !p->limit_passes || !p->program.repeat_counts)
        return cw_error_nomem(x->err, 0, "a program");
    return bind_node(x, p, node, NULL, NULL);
}

/* The type that holds elements of both. 0, or -1 when there is none. */
static int merge_types(struct cw_type *a, const struct cw_type *b)
{
    if (a->dtype != b->dtype)
        return -1;
    if (a->ndim != b->ndim) {
        a->ndim = -1;
        return 0;
    }
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i])
            a->dims[i] = CW_VARIES;
    return 0;
}

/* After concat all inputs have the same components, with types that hold the elements of each. */
static int merge_paths(struct compile *x, const struct cw_node *node, unsigned first)
{
    struct cw_bind *b0 = &x->paths[first].bind;
    for (unsigned i = first + 1; i < x->n_paths; i++) {
        struct cw_bind *b = &x->paths[i].bind;
        for (unsigned k = 0; k < CW_MAX(b->n, b0->n); k++) {
            struct cw_component *u = k < b0->n ? &b0->components[k] : NULL, *v = k < b->n ? &b->components[k] : NULL;
            char left[160], right[160];
            if (!u || !v || strcmp(u->name, v->name) != 0) {
                const char *odd = !u ? v->name : !v ? u->name : strcmp(u->name, v->name) < 0 ? u->name : v->name;
                cw_error_op(x->err, node->desc->name);
                return cw_error_set(x->err, CW_E_PIPELINE, "concat: component \"%s\" is not in all inputs: expected the same components in each", odd);
            }
            if (merge_types(&u->type, &v->type) < 0) {
                cw_error_op(x->err, node->desc->name);
                return cw_error_set(x->err, CW_E_PIPELINE, "concat: component \"%s\" is %s in one input and %s in another: expected one dtype", u->name,
                                    cw_type_print(&u->type, left), cw_type_print(&v->type, right));
            }
        }
    }
    for (unsigned i = first + 1; i < x->n_paths; i++)
        for (unsigned k = 0; k < b0->n; k++)
            x->paths[i].bind.components[k].type = b0->components[k].type;
    return 0;
}

static int refuse(struct compile *x, const struct cw_node *node, const char *why)
{
    cw_error_op(x->err, node->desc->name);
    return cw_error_set(x->err, CW_E_PIPELINE, "%s: %s", node->desc->name, why);
}

static bool named(const struct cw_node *node, const char *name) { return strcmp(node->desc->name, name) == 0; }

static int add_limit(struct compile *x, const struct cw_node *node, unsigned first, bool top)
{
    struct cw_compiled *c = x->c;
    unsigned k = c->n_limits++;
    c->limits[k] = (struct cw_limit){
        .take = named(node, "take"),
        .ends_epoch = top && named(node, "take"),
        .count = (uint64_t)json_integer_value(json_object_get(node->attrs, "count")),
    };
    c->is_limit[node->position] = true;
    c->whole_epoch = true;
    for (unsigned i = first; i < x->n_paths; i++) {
        struct path *p = &x->paths[i];
        p->limit_here[k] = true;
        p->limit_at[k] = p->program.n_ops;
        p->limit_passes[k] = 1;
        for (unsigned j = 0; j < p->program.n_repeats; j++)
            if (__builtin_mul_overflow(p->limit_passes[k], (uint64_t)CW_MAX(p->program.repeat_counts[j], 0), &p->limit_passes[k]))
                p->limit_passes[k] = UINT64_MAX; /* refused when the sequence is made */
    }
    return 0;
}

static int compile_batcher(struct compile *x, const struct cw_node *node, unsigned first, bool top)
{
    struct cw_compiled *c = x->c;
    if (!top)
        return refuse(x, node, "stands inside an input of concat: batch after concat");
    if (c->batcher != CW_BATCHER_NONE)
        return refuse(x, node, "the elements are batched already");
    const json_t *sizes = json_object_get(node->attrs, "sizes");
    if (sizes) {
        c->batcher = CW_BATCHER_BUCKET;
        c->n_buckets = (unsigned)json_array_size(sizes);
        c->bucket_sizes = calloc(c->n_buckets + 1, sizeof(*c->bucket_sizes));
        if (!c->bucket_sizes)
            return cw_error_nomem(x->err, 0, "buckets");
        for (unsigned i = 0; i < c->n_buckets; i++) {
            c->bucket_sizes[i] = (uint64_t)json_integer_value(json_array_get(sizes, i));
            c->batch_size = CW_MAX(c->batch_size, c->bucket_sizes[i]);
        }
        c->bucket_pad = json_object_get(node->attrs, "pad");
        for (unsigned i = first; i < x->n_paths; i++) {
            struct cw_op *op;
            int r = bind_node(x, &x->paths[i], node, NULL, &op);
            if (r < 0)
                return r;
            x->paths[i].program.bucket_value = op->out[0].value;
            op->out[0].live = true;
        }
    } else {
        c->batcher = CW_BATCHER_BATCH;
        c->batch_size = (uint64_t)json_integer_value(json_object_get(node->attrs, "size"));
        c->drop_remainder = json_is_true(json_object_get(node->attrs, "drop_remainder"));
        c->n_buckets = 1;
        c->bucket_sizes = calloc(1, sizeof(*c->bucket_sizes));
        if (!c->bucket_sizes)
            return cw_error_nomem(x->err, 0, "buckets");
        c->bucket_sizes[0] = c->batch_size;
    }
    return 0;
}

/* What stands after a batcher. */
static int compile_after_batch(struct compile *x, const struct cw_node *node, const struct flow *flow)
{
    struct cw_compiled *c = x->c;
    bool take = named(node, "take"), skip = named(node, "skip");
    if (node->desc->kind == CW_OP_FILTER && !node->desc->function)
        return refuse(x, node, "stands after a batcher: it drops elements, so write it before");
    if (c->n_batch_ops && node->desc->kind == CW_OP_MAP)
        return refuse(x, node, "stands after map_batches: write it before");
    if (node->desc->function && node->desc->kind != CW_OP_BATCH_MAP)
        return refuse(x, node, "stands after a batcher: write it before, or use map_batches, whose function gets whole batches");
    if (node->desc->kind == CW_OP_INDEX && !take && !skip && !(named(node, "repeat") && c->batcher == CW_BATCHER_BATCH && flow->counted))
        return refuse(x, node, "stands after a batcher: write it before (to repeat the data set, --epochs does it too)");
    if (c->batcher == CW_BATCHER_BUCKET && node->desc->kind == CW_OP_MAP && !node->desc->after_bucket)
        return refuse(x, node, "stands after bucket_by_length: write it before");
    if ((take || skip) && (!flow->counted || c->batcher == CW_BATCHER_BUCKET)) { /* counts batches of an epoch that is one split */
        uint64_t n = (uint64_t)json_integer_value(json_object_get(node->attrs, "count"));
        c->is_limit[node->position] = true;
        c->whole_epoch = true;
        if (skip)
            c->batch_from = n > c->batch_to - c->batch_from ? c->batch_to : c->batch_from + n;
        else
            c->batch_to = n < c->batch_to - c->batch_from ? c->batch_from + n : c->batch_to;
    }
    return 0;
}

static int copy_outputs(const struct cw_bind *b, struct cw_component **ret, unsigned *ret_n, struct cw_error *err)
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

/* What stands at the marker just added. */
static int marker_components(struct compile *x, struct path *p)
{
    struct cw_marker *m = &p->program.markers[p->program.n_markers - 1];
    return copy_outputs(&p->bind, &m->components, &m->n, x->err);
}

/* An operator on batches: its input are the components of a batch, in byte order of their names. */
static int compile_batch_op(struct compile *x, const struct cw_node *node)
{
    struct cw_compiled *c = x->c;
    if (c->batcher == CW_BATCHER_NONE)
        return refuse(x, node, "stands before a batcher: its function gets whole batches; write batch before it, or use map");
    struct cw_batch_op *grown = realloc(c->batch_ops, (c->n_batch_ops + 1) * sizeof(*grown)), *o;
    if (!grown)
        return cw_error_nomem(x->err, sizeof(*grown), "operators");
    c->batch_ops = grown;
    const struct cw_batch_op *last = c->n_batch_ops ? &c->batch_ops[c->n_batch_ops - 1] : NULL;
    const struct cw_component *in = last ? last->outputs : x->paths[0].bind.components;
    unsigned n_in = last ? last->n_outputs : x->paths[0].bind.n;
    struct path p = {0};
    int r = 0;
    for (unsigned i = 0; i < n_in && r >= 0; i++)
        r = cw_bind_put(&p.bind, in[i].name, i, &in[i].type, x->err);
    p.bind.next_value = n_in;
    if (r >= 0)
        r = bind_op(x, &p, node, NULL, &p.bind.op);
    if (r >= 0) {
        o = &c->batch_ops[c->n_batch_ops];
        *o = (struct cw_batch_op){.op = CW_STEAL(p.bind.op)};
        c->n_batch_ops++;
        r = copy_outputs(&p.bind, &o->outputs, &o->n_outputs, x->err);
    }
    cw_bind_deinit(&p.bind);
    return r;
}

static int compile_chain(struct compile *x, const struct cw_chain *chain, bool top, struct flow *flow)
{
    struct cw_compiled *c = x->c;
    unsigned first = x->n_paths;
    int r;
    *flow = (struct flow){.counted = true};
    for (size_t i = 0; i < chain->n; i++) {
        const struct cw_node *node = &chain->nodes[i], *next = i + 1 < chain->n ? &chain->nodes[i + 1] : NULL;
        if (i == 0) {
            r = node->n_inputs == 0 ? add_path(x, node) : 0;
            if (node->desc->stream) { /* batches wait for its end like those behind a filter */
                flow->counted = false;
                c->whole_epoch = true;
            }
            for (size_t k = 0; k < node->n_inputs && r >= 0; k++) {
                struct flow in;
                r = compile_chain(x, &node->inputs[k], false, &in);
                flow->counted &= in.counted;
                flow->limited |= in.limited;
            }
            if (r >= 0 && node->n_inputs)
                r = merge_paths(x, node, first);
            if (r < 0)
                return r;
            continue;
        }
        if (c->batcher != CW_BATCHER_NONE && top && node->desc->kind != CW_OP_BATCHER) {
            r = compile_after_batch(x, node, flow);
            if (r < 0)
                return r;
            if (c->is_limit[node->position])
                continue;
        }
        switch (node->desc->kind) {
        case CW_OP_BATCHER:
            r = compile_batcher(x, node, first, top);
            break;
        case CW_OP_BATCH_MAP:
            r = compile_batch_op(x, node);
            break;
        case CW_OP_FLAT_MAP:
            if (c->pipeline->on_error == CW_ON_ERROR_REPLACE)
                return refuse(x, node, "can't be used with on_error \"replace\": a record that gives several elements can't stand in for one; use \"skip\"");
            __attribute__((fallthrough));
        case CW_OP_FILTER:
        case CW_OP_MAP:
            r = 0;
            for (unsigned k = first; k < x->n_paths && r >= 0; k++) {
                r = bind_node(x, &x->paths[k], node, next, NULL);
                if (r >= 0 && node->desc->marker)
                    r = cw_marker_add(c, &x->paths[k].program, x->paths[k].program.ops[x->paths[k].program.n_ops - 1], flow->limited, x->err);
                if (r >= 0 && node->desc->marker)
                    r = marker_components(x, &x->paths[k]);
                if (node->desc->kind != CW_OP_MAP)
                    x->paths[k].last_filter = x->paths[k].program.n_ops;
            }
            if (node->desc->kind != CW_OP_MAP)
                flow->counted = false;
            c->n_markers += node->desc->marker;
            break;
        case CW_OP_INDEX:
            r = 0;
            if (named(node, "shuffle") && flow->limited)
                r = refuse(x, node, "stands after a take or skip whose input has no known count: write shuffle before it");
            else if ((named(node, "take") || named(node, "skip")) && !flow->counted) {
                r = add_limit(x, node, first, top);
                flow->limited = true;
            } else if (named(node, "repeat")) {
                for (unsigned k = 0; k < c->n_limits; k++) /* those before it start anew in each pass */
                    c->limits[k].ends_epoch = false;
                for (unsigned k = first; k < x->n_paths; k++) {
                    struct cw_program *g = &x->paths[k].program;
                    g->repeat_counts[g->n_repeats++] = json_integer_value(json_object_get(node->attrs, "count"));
                }
            }
            break;
        default:
            r = refuse(x, node, "can only stand first in a chain");
        }
        if (r < 0)
            return r;
    }
    return 0;
}

static void need(struct cw_program *g, unsigned value)
{
    for (unsigned i = 0; i < g->n_ops; i++)
        for (unsigned o = 0; o < g->ops[i]->n_out; o++)
            g->ops[i]->out[o].live |= g->ops[i]->out[o].value == value;
}

/* A value that nothing needs is not computed, and can't make a record fail. */
static void mark_live(struct cw_program *g)
{
    for (unsigned k = 0; k < g->n_outputs; k++)
        need(g, g->outputs[k].value);
    for (unsigned i = g->n_ops; i-- > 0;) {
        struct cw_op *op = g->ops[i];
        op->live = op->n_out == 0 || op->desc->kind == CW_OP_FILTER || op->desc->kind == CW_OP_FLAT_MAP || op->desc->kind == CW_OP_BATCHER;
        for (unsigned o = 0; o < op->n_out; o++)
            op->live |= op->out[o].live;
        for (unsigned p = 0; p < op->n_in && op->live; p++)
            need(g, op->in[p].value);
    }
}

/* Cuts a finished path into stages and moves it into the compiled pipeline. */
static int finish_path(struct compile *x, struct path *p)
{
    struct cw_compiled *c = x->c;
    struct cw_program *g = &p->program;
    g->n_values = p->bind.next_value;
    g->stage = calloc(c->n_limits + 3, sizeof(*g->stage));
    g->has_limit = calloc(c->n_limits + 1, sizeof(*g->has_limit));
    g->limit_passes = CW_STEAL(p->limit_passes);
    if (!g->stage || !g->has_limit)
        return cw_error_nomem(x->err, 0, "a program");
    unsigned at = 1;
    for (unsigned k = 0; k < c->n_limits; k++) {
        g->has_limit[k] = p->limit_here[k];
        if (p->limit_here[k])
            at = CW_MAX(p->limit_at[k], at);
        g->stage[k + 1] = at;
    }
    /* The slot in the batch is given out after the last operator that can drop; with buckets after all operators. */
    unsigned slot = c->batcher == CW_BATCHER_BUCKET ? g->n_ops : CW_MAX(p->last_filter, at);
    g->stage[0] = 1;
    g->stage[c->n_limits + 1] = slot;
    g->stage[c->n_limits + 2] = g->n_ops;
    int r = copy_outputs(&p->bind, &g->outputs, &g->n_outputs, x->err);
    mark_live(g);
    return r < 0 ? r : cw_markers_finish(g, x->err);
}

static int make_salts(struct cw_compiled *c, const struct cw_chain *chain, struct cw_error *err)
{
    for (size_t i = 0; i < chain->n; i++) {
        const struct cw_node *node = &chain->nodes[i];
        for (size_t k = 0; k < node->n_inputs; k++) {
            int r = make_salts(c, &node->inputs[k], err);
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

static int compile(struct compile *x)
{
    struct cw_compiled *c = x->c;
    unsigned n = c->pipeline->n_ops;
    struct flow flow;
    c->batch_size = 1;
    c->batch_to = UINT64_MAX;
    c->n_keys = n + 1;
    c->salts = calloc(c->n_keys, sizeof(*c->salts));
    c->is_limit = calloc(n + 1, sizeof(*c->is_limit));
    c->limits = calloc(n + 1, sizeof(*c->limits));
    c->freeze = calloc(n + 1, sizeof(*c->freeze));
    if (!c->salts || !c->freeze || !c->is_limit || !c->limits || !(c->salts[n] = strdup("replace/0")))
        return cw_error_nomem(x->err, 0, "a pipeline");
    int r = make_salts(c, &c->pipeline->chain, x->err);
    if (r >= 0)
        r = compile_chain(x, &c->pipeline->chain, true, &flow);
    if (r < 0)
        return r;
    c->counted = flow.counted && c->batcher != CW_BATCHER_BUCKET;
    c->programs = calloc(x->n_paths, sizeof(*c->programs));
    if (!c->programs)
        return cw_error_nomem(x->err, 0, "programs");
    for (unsigned i = 0; i < x->n_paths; i++) {
        r = finish_path(x, &x->paths[i]);
        c->programs[i] = x->paths[i].program; /* moved, whatever r is */
        x->paths[i].program = (struct cw_program){0};
        c->n_programs = i + 1;
        if (r < 0)
            return r;
    }
    r = copy_outputs(&x->paths[0].bind, &c->outputs, &c->n_outputs, x->err);
    if (r >= 0 && c->n_outputs == 0)
        return cw_error_set(x->err, CW_E_PIPELINE, "no component is left at the end of the pipeline: expected at least one");
    return r;
}

static void program_deinit(struct cw_program *g)
{
    for (unsigned i = 0; i < g->n_ops; i++)
        cw_op_free(g->ops[i]);
    free(g->ops);
    free(g->stage);
    free(g->has_limit);
    free(g->limit_passes);
    free(g->repeat_counts);
    for (unsigned i = 0; i < g->n_outputs; i++)
        free(g->outputs[i].name);
    free(g->outputs);
    cw_markers_deinit(g);
}

int cw_compile(struct cw_pipeline *p, struct cw_compiled **ret, struct cw_error *err)
{
    struct cw_compiled *c = calloc(1, sizeof(*c));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "a pipeline");
    c->pipeline = cw_pipeline_ref(p);
    struct compile x = {.c = c, .err = err};
    int r = compile(&x);
    for (unsigned i = 0; i < x.n_paths; i++) {
        program_deinit(&x.paths[i].program);
        cw_bind_deinit(&x.paths[i].bind);
        free(x.paths[i].limit_at);
        free(x.paths[i].limit_here);
        free(x.paths[i].limit_passes);
    }
    free(x.paths);
    if (r < 0) {
        cw_compiled_free(c);
        return r;
    }
    *ret = c;
    return 0;
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
        program_deinit(&c->programs[i]);
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
    cw_pipeline_unref(c->pipeline);
    free(c);
    return NULL;
}
