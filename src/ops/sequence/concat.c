/* concat: the positions of its inputs, one input after the other. */
#include <inttypes.h>

#include "dataset/seq.h"
#include "pipeline/roles.h"

static int concat_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                       struct cw_ref *ret, struct cw_error *err)
{
    int r = 0;
    for (size_t i = 0; i < s->n_children && n > 0 && r >= 0; i++) {
        uint64_t here = s->children[i]->n;
        if (begin < here) {
            uint64_t m = CW_MIN(here - begin, n);
            r = cw_seq_refs(e, s->children[i], begin, m, pass, ret, err);
            ret += m;
            n -= m;
            begin = 0;
        } else {
            begin -= here;
        }
    }
    return r;
}

static int concat_lookup(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    int r = 0;
    for (size_t k = 0; k < s->n_children && n > 0 && r >= 0; k++) {
        uint64_t here = 0, size = s->children[k]->n;
        for (uint64_t i = 0; i < n; i++) {
            uint32_t at = index[i];
            if (l->refs[at].row < size) {
                index[i] = index[here];
                index[here++] = at;
            } else {
                l->refs[at].row -= size;
            }
        }
        r = here ? s->children[k]->ops->lookup(l, s->children[k], index, here) : 0;
        index += here;
        n -= here;
    }
    return r;
}

static void concat_chunks(const struct cw_seq *s, uint64_t from, uint64_t to, struct cw_chunks *ret)
{
    uint64_t base = 0;
    for (size_t i = 0; i < s->n_children; i++) {
        const struct cw_seq *child = s->children[i];
        if (from < base + child->n && to > base)
            child->ops->chunks(child, from > base ? from - base : 0, CW_MIN(to - base, child->n), ret);
        base += child->n;
    }
}

static const struct cw_seq_ops concat_seq_ops = {
    .refs = concat_refs, .lookup = concat_lookup, .chunks = concat_chunks};

static int concat_build(struct cw_seq_build *b, const struct cw_node *node, bool batched CW_UNUSED,
                        struct cw_seq **at)
{
    struct cw_seq *s = *at = cw_seq_new(b, &concat_seq_ops, sizeof(*s), node->n_inputs);
    if (!s)
        return CW_E_MEMORY;
    s->joins = true;
    for (size_t i = 0; i < node->n_inputs; i++) {
        int r = cw_seq_build_chain(b, &node->inputs[i], &s->children[i]);
        if (r < 0)
            return r;
        if (b->sequence->stream)
            return cw_error_set(
                b->err, CW_E_PIPELINE,
                "concat: input %zu is a stream, whose end is not known: expected a source with an index", i);
        if (s->n >= CW_ENDLESS)
            return cw_error_set(b->err, CW_E_PIPELINE,
                                "concat: input %zu is endless: nothing after it would ever be reached",
                                i - 1);
        s->n = CW_MIN(s->n + s->children[i]->n, CW_ENDLESS);
        s->passes = CW_MAX(s->passes, s->children[i]->passes);
        s->scatters |= s->children[i]->scatters;
    }
    return 0;
}

static const struct cw_index_map map = {.build = concat_build};

static const struct cw_attr_def attrs[] = {
    {.name = "inputs",
     .kind = CW_ATTR_CHAINS,
     .doc = "a list of chains; a chain is a list of operators that "
            "begins with a source"},
    {0},
};

const struct cw_op_desc cw_op_concat = {
    .name = "concat",
    .summary = "the elements of several chains, one chain after the other",
    .doc = "`concat` takes the place of a source, at the start of a pipeline. All inputs must have the same "
           "components with the same dtypes.",
    .kind = CW_OP_INDEX,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .index = &map,
};
