/* Finds the cheapest order of a pipeline's operators. Called when a pipeline is compiled. Stateless. */
#include "optimize/order.h"

#include <math.h>
#include <string.h>

#include "base/array.h"
#include "ops/image/image_role.h"
#include "optimize/laws.h"

/* Operators of a segment; those beyond begin the next one. A set of them is a bit mask. */
#define MOST_UNITS 64
/* Sets of one size that the search keeps: all of them for up to 12 operators that may stand in any order,
 * since 12 choose 6 is 924. Of more, the cheapest. */
#define MOST_STATES 1024
/* An order is taken if its predicted cost is at most this part of the cost as written. */
#define GAINS 0.98

/* What is assumed where a type does not say it: of a dimension of an image, of bytes, of a filter. */
#define UNKNOWN_DIM 256
#define UNKNOWN_BYTES (16 << 10)
#define KEPT_BY_FILTER 0.5
#define KEPT_BY_CROP 0.9

/* ---- costs ---- */

struct unit { /* an operator of a segment */
    const struct cw_op *op;
    uint64_t before; /* units that must come before it */
    uint64_t same;   /* units that replace the component that this one reads first and replaces */
    double cost;     /* per element that arrives, at its place as written; relative to that of other units */
    double factor;   /* bytes that it writes per byte that it reads of the component that it replaces */
    double keeps;    /* part of the elements that it passes on */
    int step;        /* its step in a fused chain of image operators (enum cw_image_step); -1: none */
};

static double type_bytes(const struct cw_type *t)
{
    double bytes = (double)cw_dtype_size(t->dtype);
    if (t->dtype == CW_BYTES || t->ndim < 0)
        return UNKNOWN_BYTES;
    for (int i = 0; i < t->ndim; i++)
        bytes *= t->dims[i] >= 0 ? (double)t->dims[i] : UNKNOWN_DIM;
    return bytes;
}

/* Returns the cost of a byte that the operator reads or writes, relative to a simple loop. */
static double op_cost_of_byte(const struct cw_op *op)
{
    static const double costs[] = {
        [CW_ACTS_OPAQUE] = 3, [CW_ACTS_PIXELWISE] = 1,     [CW_ACTS_CAST] = 1,
        [CW_ACTS_PIXEL] = 1,  [CW_ACTS_SPATIAL] = 0.5,     [CW_ACTS_LAYOUT] = 1,
        [CW_ACTS_COLOUR] = 3, [CW_ACTS_NEIGHBOURHOOD] = 4, [CW_ACTS_WARP] = 6,
    };
    return op->desc->image && op->desc->image->step == CW_IMAGE_DECODE ? 8 : costs[op->desc->effects.action];
}

static void unit_init(struct unit *u, const struct cw_op *op)
{
    const double call = 50, function = 1e6; /* bytes of a simple loop that take as long as a call */
    double bytes = 0;
    for (unsigned i = 0; i < op->n_in; i++)
        bytes += type_bytes(&op->in[i].type);
    for (unsigned i = 0; i < op->n_out; i++)
        bytes += type_bytes(&op->out[i].type);
    *u = (struct unit){.op = op, .factor = 1, .keeps = 1, .step = -1};
    u->cost = op->desc->run ? call + op_cost_of_byte(op) * bytes + (op->desc->function ? function : 0) : 0;
    if (op->desc->kind == CW_OP_FILTER)
        u->keeps = KEPT_BY_FILTER;
    if (op->desc->image && (!op->desc->image->fuses || op->desc->image->fuses(op)))
        u->step = (int)op->desc->image->step;
    if (cw_law_same_component(op, op) && op->in[0].type.dtype != CW_BYTES) {
        u->factor = type_bytes(&op->out[0].type) / fmax(type_bytes(&op->in[0].type), 1);
        if (op->desc->effects.action == CW_ACTS_SPATIAL && !cw_type_fixed(&op->in[0].type) &&
            cw_type_fixed(&op->out[0].type))
            u->factor = fmin(u->factor, KEPT_BY_CROP);
    }
}

/* ---- the search ---- */

struct segment {
    struct unit units[MOST_UNITS];
    unsigned n;
    size_t first; /* index in the chain of the first unit */
    bool relaxed;
};

/* A set of units that run first, in the cheapest order that is known. */
struct state {
    uint64_t set;
    double cost;
    unsigned last;   /* the unit that runs last */
    unsigned parent; /* the state without it, of the level before */
};

struct level {
    struct state *states;
    size_t n, capacity;
};

/* Whether the engine runs unit v together with unit u, if v comes directly after u. */
static bool unit_joins(const struct unit *u, const struct unit *v)
{
    return u->step >= 0 && v->step >= 0 && cw_law_same_component(u->op, v->op) && u->step <= v->step &&
           (u->step < v->step || v->step == CW_IMAGE_REGION || v->step == CW_IMAGE_PIXELWISE);
}

/* Returns the cost of unit v after the units of the set, of which `last` (-1: none) ran last. */
static double segment_cost(const struct segment *s, uint64_t set, int last, unsigned v)
{
    const double joined = 0.25; /* of a unit that needs no pass of its own */
    double cost = s->units[v].cost;
    for (unsigned i = 0; i < s->n; i++) {
        const struct unit *u = &s->units[i];
        bool done = set >> i & 1;
        if (done)
            cost *= u->keeps;
        if (s->units[v].same >> i & 1 && done != (i < v))
            cost = done ? cost * u->factor : cost / fmax(u->factor, 1e-6);
    }
    return last >= 0 && unit_joins(&s->units[last], &s->units[v]) ? cost * joined : cost;
}

static double segment_cost_as_written(const struct segment *s)
{
    double cost = 0;
    for (unsigned v = 0; v < s->n; v++)
        cost += segment_cost(s, (UINT64_C(1) << v) - 1, (int)v - 1, v);
    return cost;
}

/* States of one set differ only if the next unit can join the last one. */
static int state_compare(const void *a, const void *b)
{
    const struct state *x = a, *y = b;
    if (x->set != y->set)
        return x->set < y->set ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->last < y->last ? -1 : x->last > y->last;
}

static int state_compare_cost(const void *a, const void *b)
{
    const struct state *x = a, *y = b;
    return x->cost != y->cost ? (x->cost < y->cost ? -1 : 1) : state_compare(a, b);
}

/* Keeps the cheapest state of each set, and of those that end with an image operator; at most MOST_STATES. */
static void level_reduce(const struct segment *s, struct level *l)
{
    size_t n = 0, begin = 0; /* begin: of the set */
    qsort(l->states, l->n, sizeof(*l->states), state_compare);
    for (size_t i = 0; i < l->n; i++) {
        struct state x = l->states[i];
        bool new_set = n == 0 || l->states[n - 1].set != x.set, keep = new_set;
        if (new_set)
            begin = n;
        else if (s->units[x.last].step >= 0) {
            keep = true;
            for (size_t k = begin; k < n; k++)
                keep &= l->states[k].last != x.last;
        }
        if (keep)
            l->states[n++] = x;
    }
    if (n > MOST_STATES)
        qsort(l->states, n, sizeof(*l->states), state_compare_cost);
    l->n = CW_MIN(n, (size_t)MOST_STATES);
}

/* Adds the states that have one unit more than those of `from`. */
static int level_extend(const struct segment *s, const struct level *from, double tie, struct level *to,
                        struct cw_error *err)
{
    for (size_t i = 0; i < from->n; i++) {
        const struct state *x = &from->states[i];
        for (unsigned v = 0; v < s->n; v++) {
            if (x->set >> v & 1 || s->units[v].before & ~x->set)
                continue;
            if (CW_ARRAY_ROOM(to->states, to->capacity, to->n + 1, "orders", err) < 0)
                return CW_E_MEMORY;
            uint64_t passed = ((UINT64_C(1) << v) - 1) & ~x->set;
            int last = x->set ? (int)x->last : -1;
            to->states[to->n++] = (struct state){.set = x->set | UINT64_C(1) << v,
                                                 .cost = x->cost + segment_cost(s, x->set, last, v) +
                                                         tie * __builtin_popcountll(passed),
                                                 .last = v,
                                                 .parent = (unsigned)i};
        }
    }
    level_reduce(s, to);
    return 0;
}

/* Sets order[0] .. order[s->n - 1] to the units in the cheapest order. 1: the order as written stays. */
static int segment_search(const struct segment *s, unsigned *order, struct cw_error *err)
{
    struct level levels[MOST_UNITS + 1] = {0};
    double written = segment_cost_as_written(s);
    struct state start = {0};
    int r = 0;
    levels[0] = (struct level){.states = &start, .n = 1};
    /* of orders of equal cost, the one that is closest to the order as written */
    for (unsigned k = 0; k < s->n && r >= 0; k++)
        r = level_extend(s, &levels[k], written * 1e-9, &levels[k + 1], err);
    if (r >= 0) {
        const struct level *end = &levels[s->n];
        size_t at = 0;
        for (size_t i = 1; i < end->n; i++)
            at = end->states[i].cost < end->states[at].cost ? i : at;
        r = end->states[at].cost <= written * GAINS ? 0 : 1;
        for (unsigned k = s->n; k > 0; k--) {
            order[k - 1] = levels[k].states[at].last;
            at = levels[k].states[at].parent;
        }
    }
    for (unsigned k = 1; k <= s->n; k++)
        free(levels[k].states);
    return r;
}

/* ---- segments ---- */

/* Adds the operator to the segment, with what it may pass. Returns whether it may pass any. */
static bool segment_add(struct segment *s, const struct cw_op *op)
{
    struct unit *v = &s->units[s->n];
    bool moves = false;
    unit_init(v, op);
    for (unsigned i = 0; i < s->n; i++) {
        struct unit *u = &s->units[i];
        if (cw_law_find(u->op, op, s->relaxed))
            moves = true;
        else
            v->before |= UINT64_C(1) << i;
        if (cw_law_same_component(u->op, op)) {
            v->same |= UINT64_C(1) << i;
            u->same |= UINT64_C(1) << s->n;
        }
    }
    s->n++;
    return moves;
}

/* Returns the program's operator of a node, if it may move or be passed; else NULL. */
static const struct cw_op *order_movable(const struct cw_program *g, const struct cw_node *node)
{
    bool elements = node->desc->kind == CW_OP_MAP ||
                    (node->desc->kind == CW_OP_FILTER && node->desc->effects.state == CW_STATE_NONE);
    for (unsigned i = 0; i < g->n_ops && elements; i++)
        if (g->ops[i]->position == node->position)
            return cw_law_pinned(g->ops[i]) || g->ops[i]->desc->effects.state != CW_STATE_NONE ? NULL
                                                                                               : g->ops[i];
    return NULL;
}

/* Sets from[i] to the index of the node that runs at index i. 1: the order as written stays. */
static int order_find(const struct cw_compiled *c, unsigned *from, struct cw_error *err)
{
    const struct cw_chain *chain = &c->pipeline->chain;
    struct segment s = {.relaxed = c->pipeline->order == CW_ORDER_RELAXED};
    unsigned order[MOST_UNITS];
    bool moves = false, changed = false;
    int r = 0;
    for (size_t i = 0; i < chain->n; i++)
        from[i] = (unsigned)i;
    for (size_t i = 1; i <= chain->n && r >= 0; i++) {
        const struct cw_op *op = i < chain->n ? order_movable(&c->programs[0], &chain->nodes[i]) : NULL;
        if (!op || s.n == MOST_UNITS) {
            r = moves ? segment_search(&s, order, err) : 1;
            changed |= r == 0;
            for (unsigned k = 0; k < s.n && r == 0; k++)
                from[s.first + k] = (unsigned)s.first + order[k];
            s.n = 0;
            moves = false;
        }
        if (!s.n)
            s.first = i;
        if (op)
            moves |= segment_add(&s, op);
    }
    return r < 0 ? r : !changed;
}

/* ---- compiling ---- */

static bool compiled_alike(const struct cw_compiled *a, const struct cw_compiled *b)
{
    unsigned n, n_b;
    const struct cw_component *x = cw_delivered(a, &n), *y = cw_delivered(b, &n_b);
    bool same = n == n_b;
    for (unsigned i = 0; i < n && same; i++)
        same = strcmp(x[i].name, y[i].name) == 0 && x[i].type.dtype == y[i].type.dtype &&
               x[i].type.ndim == y[i].type.ndim &&
               (x[i].type.ndim <= 0 || memcmp(x[i].type.dims, y[i].type.dims,
                                              (size_t)x[i].type.ndim * sizeof(*x[i].type.dims)) == 0);
    return same;
}

/* Compiles p in another order into *ret. 1: the operators do not fit together in that order, and p has its
 * old one. */
static int order_try(struct cw_pipeline *p, const struct cw_compiled *written, const unsigned *from,
                     struct cw_compiled **ret, struct cw_error *err)
{
    _cleanup_free_ unsigned *back = calloc(p->chain.n, sizeof(*back));
    struct cw_compiled *c = NULL;
    struct cw_error own = {0};
    int r = back ? cw_pipeline_permute(p, from, err) : cw_error_nomem(err, 0, "an order");
    if (r < 0)
        return r;
    for (unsigned i = 0; i < p->chain.n; i++)
        back[from[i]] = i;
    r = cw_compile(p, &c, &own);
    if (r == CW_E_MEMORY)
        return cw_error_copy(err, &own);
    if (r >= 0 && compiled_alike(written, c)) {
        *ret = c;
        return 0;
    }
    cw_compiled_free(c);
    r = cw_pipeline_permute(p, back, err);
    return r < 0 ? r : 1;
}

/* Whether operators may move. */
static bool order_moves(const struct cw_pipeline *p, bool optimize)
{
    /* With another order, other elements fail first. If errors do not end the run, batches could differ. */
    return p->order == CW_ORDER_RELAXED ||
           (p->order == CW_ORDER_STRICT && optimize && p->on_error == CW_ON_ERROR_RAISE);
}

int cw_order_compile(struct cw_pipeline *p, bool optimize, struct cw_compiled **ret, struct cw_error *err)
{
    struct cw_compiled *written = NULL, *c = NULL;
    int r = cw_compile(p, &written, err);
    if (r >= 0 && order_moves(p, optimize)) {
        _cleanup_free_ unsigned *from = calloc(p->chain.n, sizeof(*from));
        r = from ? order_find(written, from, err) : cw_error_nomem(err, 0, "an order");
        if (r == 0)
            r = order_try(p, written, from, &c, err);
    }
    if (r < 0 || c)
        cw_compiled_free(written);
    if (r >= 0)
        *ret = c ? c : written;
    return CW_MIN(r, 0);
}
