/* The node of take and skip: consecutive positions of its child. */
#include "ops/sequence/cut.h"

struct cut {
    struct cw_seq base;
    uint64_t from; /* the child's position that is its position 0 */
};

static uint64_t cut_from(const struct cw_seq *s)
{
    return ((const struct cut *)s)->from;
}

static int cut_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                    struct cw_ref *ret, struct cw_error *err)
{
    return cw_seq_refs(e, s->children[0], cut_from(s) + begin, n, pass, ret, err);
}

static int cut_lookup(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    for (uint64_t i = 0, from = cut_from(s); i < n; i++)
        l->refs[index[i]].row += from;
    return s->children[0]->ops->lookup(l, s->children[0], index, n);
}

static void cut_chunks(const struct cw_seq *s, uint64_t from, uint64_t to, struct cw_chunks *ret)
{
    s->children[0]->ops->chunks(s->children[0], cut_from(s) + from, cut_from(s) + to, ret);
}

static const struct cw_seq_ops cut_seq_ops = {.refs = cut_refs, .lookup = cut_lookup, .chunks = cut_chunks};

int cw_cut_build(struct cw_seq_build *b, struct cw_seq **at, uint64_t from, uint64_t n)
{
    struct cw_seq *s = cw_seq_wrap(b, &cut_seq_ops, sizeof(struct cut), at);
    if (!s)
        return CW_E_MEMORY;
    s->n = n;
    ((struct cut *)s)->from = from;
    return 0;
}

uint64_t cw_cut_count(const struct cw_seq_build *b, const struct cw_node *node, bool batched)
{
    uint64_t n, count = (uint64_t)json_integer_value(json_object_get(node->attrs, "count"));
    if (__builtin_mul_overflow(count, batched ? b->sequence->compiled->batch_size : 1, &n))
        return CW_ENDLESS;
    return CW_MIN(n, CW_ENDLESS);
}
