/* mix: the positions of several inputs in turn, by weight. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/sequence/quota.h"
#include "ops/sequence/repeat.h"
#include "ops/sequence/turns.h"
#include "pipeline/roles.h"

/* Positions in any order are sorted first if it takes more steps than this to find one of them by itself. */
#define SORT_FROM 64

struct mix {
    struct cw_seq base;
    struct cw_quota quota;
    uint64_t weights[]; /* of the quota; one for each input */
};

static struct cw_quota_place *mix_place_new(const struct cw_seq *s, struct cw_error *err)
{
    struct cw_quota_place *p = cw_quota_place_new(&((const struct mix *)s)->quota);
    if (!p)
        cw_error_nomem(err, s->n_children * sizeof(p->inputs[0]), "the plan of a range");
    return p;
}

/* ---- runs of positions ---- */

static int mix_fill(const struct cw_seq *s, uint64_t begin, uint64_t n, uint16_t *inputs, uint64_t *counts,
                    struct cw_error *err)
{
    _cleanup_free_ struct cw_quota_place *p = mix_place_new(s, err);
    if (!p)
        return CW_E_MEMORY;
    cw_quota_seek(p, begin);
    for (size_t i = 0; i < s->n_children; i++)
        counts[i] = p->inputs[i].count;
    for (uint64_t k = 0; k < n; k++) {
        unsigned i = cw_quota_next(p);
        inputs[k] = (uint16_t)i;
        cw_quota_take(p, i);
    }
    return 0;
}

static int mix_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                    struct cw_ref *ret, struct cw_error *err)
{
    return cw_turns_refs(e, s, mix_fill, begin, n, pass, ret, err);
}

/* ---- positions in any order ---- */

static int mix_compare(const void *a, const void *b, void *refs)
{
    uint64_t x = ((const struct cw_ref *)refs)[*(const uint32_t *)a].row,
             y = ((const struct cw_ref *)refs)[*(const uint32_t *)b].row;
    return (x > y) - (x < y);
}

static int mix_lookup(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    _cleanup_free_ struct cw_quota_place *p = mix_place_new(s, l->err);
    if (!p)
        return CW_E_MEMORY;
    if (p->quota->memory > SORT_FROM)
        qsort_r(index, n, sizeof(*index), mix_compare, l->refs);
    for (uint64_t k = 0; k < n; k++) {
        struct cw_ref *ref = &l->refs[index[k]];
        cw_quota_seek(p, ref->row);
        unsigned i = cw_quota_next(p);
        ref->row = p->inputs[i].count;
        l->sorted[k] = i;
        cw_quota_take(p, i);
    }
    return cw_turns_lookup(l, s, index, l->sorted, n);
}

static const struct cw_seq_ops mix_seq_ops = {
    .refs = mix_refs, .lookup = mix_lookup, .chunks = cw_turns_chunks};

/* ---- building ---- */

static const char *const stops[] = {"first", "last", "never", NULL};

static bool mix_stops(const json_t *attrs, const char *stop)
{
    return strcmp(json_string_value(json_object_get(attrs, "stop")), stop) == 0;
}

static bool mix_restarts(const json_t *attrs)
{
    return !mix_stops(attrs, "first");
}

/* Sets the weights, and checks that each share is large enough. */
static int mix_set_weights(struct mix *m, const json_t *weights, struct cw_error *err)
{
    size_t n = json_array_size(weights);
    _cleanup_free_ double *given = calloc(n, sizeof(*given));
    if (!given)
        return cw_error_nomem(err, n * sizeof(*given), "weights");
    for (size_t i = 0; i < n; i++)
        given[i] = json_number_value(json_array_get(weights, i));
    unsigned least = cw_quota_init(&m->quota, given, (unsigned)n, m->weights);
    double share = (double)m->weights[least] / (double)m->quota.total;
    if (share >= CW_QUOTA_LEAST_SHARE)
        return 0;
    char shown[32], expected[64];
    snprintf(shown, sizeof(shown), "%.9g", given[least]);
    snprintf(expected, sizeof(expected), "at least %g of the sum of all weights", CW_QUOTA_LEAST_SHARE);
    return cw_error_value(err, CW_E_PIPELINE, "weights", shown, expected,
                          "mix: the weight of input %u is %s, %.3g of the sum of all weights: expected %s",
                          least, shown, share, expected);
}

/* Returns the number of positions. With stop "last" and "never", inputs begin again. */
static uint64_t mix_positions(const struct cw_seq *s, struct cw_quota_place *p, bool last)
{
    uint64_t first = CW_ENDLESS, all = 0;
    for (unsigned i = 0; i < s->n_children; i++) {
        uint64_t n = s->children[i]->n;
        if (n >= CW_ENDLESS)
            all = CW_ENDLESS;
        else if (last)
            all = CW_MAX(all, cw_quota_find(p, i, n));
        else
            first = CW_MIN(first, cw_quota_find(p, i, n + 1) - 1);
    }
    return CW_MIN(last ? all : first, CW_ENDLESS);
}

static int mix_build(struct cw_seq_build *b, const struct cw_node *node, bool batched CW_UNUSED,
                     struct cw_seq **at)
{
    int r = cw_turns_build(b, node, &mix_seq_ops, sizeof(struct mix) + node->n_inputs * sizeof(uint64_t), at);
    if (r >= 0)
        r = mix_set_weights((struct mix *)*at, json_object_get(node->attrs, "weights"), b->err);
    if (r < 0)
        return r;
    struct cw_seq *s = *at;
    bool restarts = mix_restarts(node->attrs);
    for (size_t i = 0; i < node->n_inputs && restarts; i++)
        if (s->children[i]->n == 0)
            return cw_error_set(b->err, CW_E_PIPELINE,
                                "mix: input %zu has no elements: expected at least one, because exhausted "
                                "inputs begin again (stop is not \"first\")",
                                i);
    struct cw_quota_place *p = mix_place_new(s, b->err);
    if (!p)
        return CW_E_MEMORY;
    s->n = mix_stops(node->attrs, "never") ? CW_ENDLESS : mix_positions(s, p, restarts);
    free(p);
    for (size_t i = 0; i < node->n_inputs && restarts; i++) {
        if (s->children[i]->n >= CW_ENDLESS)
            continue;
        struct cw_seq *passes = cw_repeat_wrap(b, &s->children[i], CW_ENDLESS);
        if (!passes)
            return CW_E_MEMORY;
        passes->n = CW_ENDLESS;
    }
    return 0;
}

static const struct cw_index_map map = {.restarts = mix_restarts, .build = mix_build};

static const struct cw_attr_def attrs[] = {
    {.name = "inputs",
     .kind = CW_ATTR_CHAINS,
     .doc = "a list of chains; a chain is a list of operators that "
            "begins with a source"},
    {.name = "weights",
     .kind = CW_ATTR_FLOATS,
     .min = 1e-12,
     .max = 0x1p62,
     .per_input = true,
     .doc = "for each input its share of the elements, in any unit: [7, 3] and [0.7, 0.3] are the same"},
    {.name = "stop",
     .kind = CW_ATTR_STRING,
     .def = "\"first\"",
     .choices = stops,
     .doc = "first: the result ends where an exhausted input would have to give another element; last: "
            "exhausted inputs begin again, until each input has been exhausted once; never: exhausted inputs "
            "begin again, without end"},
    {0},
};

const struct cw_op_desc cw_op_mix = {
    .name = "mix",
    .summary = "the elements of several chains in turn, in proportion to weights",
    .doc = "`mix` takes the place of a source, at the start of a pipeline. All inputs must have the same "
           "components with the same dtypes. The order is fixed, and even: among the first n elements, each "
           "input has its share of n, to within less than one element. Each input keeps its own order: write "
           "`shuffle` inside an input, or after `mix` to shuffle all elements. An input that begins again "
           "does so as in a `repeat`: a `shuffle` inside it gives another order, and random operators draw "
           "new numbers. Elements that a filter inside an input drops count for its share.",
    .kind = CW_OP_INDEX,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .index = &map,
};
