/* interleave: blocks of positions of several inputs in turn. */
#include "ops/sequence/turns.h"
#include "pipeline/roles.h"

struct interleave {
    struct cw_seq base;
    uint64_t block; /* positions that an input gives at a time */
};

/* A place of the order: `offset` positions of input `input` in round `round` come before it. In a round each
 * input that has positions left gives a block. */
struct interleave_place {
    uint64_t round;
    size_t input;
    uint64_t offset;
};

/* Returns how many positions of input i come in the rounds before `round`. */
static uint64_t interleave_before(const struct cw_seq *s, size_t i, uint64_t round)
{
    uint64_t n;
    bool all = __builtin_mul_overflow(round, ((const struct interleave *)s)->block, &n);
    return all ? s->children[i]->n : CW_MIN(n, s->children[i]->n);
}

/* Returns the number of positions of all inputs in the rounds before `round`, at most CW_ENDLESS. */
static uint64_t interleave_all_before(const struct cw_seq *s, uint64_t round)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s->n_children && n < CW_ENDLESS; i++)
        n += interleave_before(s, i, round);
    return CW_MIN(n, CW_ENDLESS);
}

/* Returns the number of positions that input i gives in a round. */
static uint64_t interleave_size(const struct cw_seq *s, size_t i, uint64_t round)
{
    return CW_MIN(s->children[i]->n - interleave_before(s, i, round), ((const struct interleave *)s)->block);
}

/* Returns the place of a position. Each round has at least one. */
static struct interleave_place interleave_find(const struct cw_seq *s, uint64_t position)
{
    struct interleave_place p = {
        .round = CW_FIRST(i, 0, position + 1, interleave_all_before(s, i) > position) - 1};
    p.offset = position - interleave_all_before(s, p.round);
    for (uint64_t size; p.offset >= (size = interleave_size(s, p.input, p.round)); p.input++)
        p.offset -= size;
    return p;
}

static int interleave_fill(const struct cw_seq *s, uint64_t begin, uint64_t n, uint16_t *inputs,
                           uint64_t *counts, struct cw_error *err CW_UNUSED)
{
    struct interleave_place p = interleave_find(s, begin);
    for (size_t i = 0; i < s->n_children; i++)
        counts[i] = i < p.input ? interleave_before(s, i, p.round + 1) : interleave_before(s, i, p.round);
    counts[p.input] += p.offset;
    for (uint64_t k = 0; k < n;) {
        uint64_t end = CW_MIN(n, k + interleave_size(s, p.input, p.round) - p.offset);
        for (; k < end; k++)
            inputs[k] = (uint16_t)p.input;
        p.offset = 0;
        if (++p.input == s->n_children) {
            p.input = 0;
            p.round++;
        }
    }
    return 0;
}

static int interleave_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n,
                           uint64_t pass, struct cw_ref *ret, struct cw_error *err)
{
    return n ? cw_turns_refs(e, s, interleave_fill, begin, n, pass, ret, err) : 0;
}

static int interleave_lookup(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) {
        struct cw_ref *ref = &l->refs[index[k]];
        struct interleave_place p = interleave_find(s, ref->row);
        ref->row = interleave_before(s, p.input, p.round) + p.offset;
        l->sorted[k] = (uint32_t)p.input;
    }
    return cw_turns_lookup(l, s, index, l->sorted, n);
}

static const struct cw_seq_ops interleave_seq_ops = {
    .refs = interleave_refs, .lookup = interleave_lookup, .chunks = cw_turns_chunks};

static int interleave_build(struct cw_seq_build *b, const struct cw_node *node, bool batched CW_UNUSED,
                            struct cw_seq **at)
{
    int r = cw_turns_build(b, node, &interleave_seq_ops, sizeof(struct interleave), at);
    if (r < 0)
        return r;
    struct cw_seq *s = *at;
    ((struct interleave *)s)->block = (uint64_t)json_integer_value(
        json_object_get(node->attrs, "block_length"));
    for (size_t i = 0; i < s->n_children; i++)
        s->n = CW_MIN(s->n + s->children[i]->n, CW_ENDLESS);
    return 0;
}

static const struct cw_index_map map = {.build = interleave_build};

static const struct cw_attr_def attrs[] = {
    {.name = "inputs",
     .kind = CW_ATTR_CHAINS,
     .doc = "a list of chains; a chain is a list of operators that begins with a source"},
    {.name = "block_length",
     .kind = CW_ATTR_INT,
     .def = "1",
     .min = 1,
     .max = 1 << 20,
     .doc = "consecutive elements that an input gives in its turn"},
    {0},
};

const struct cw_op_desc cw_op_interleave = {
    .name = "interleave",
    .summary = "the elements of several chains in turn",
    .doc = "`interleave` takes the place of a source, at the start of a pipeline. Each input in turn gives "
           "`block_length` elements, or those that it has left; an input that has none is left out. The "
           "result ends when all inputs have ended, and has each element once. All inputs must have the same "
           "components with the same dtypes. Elements that a filter inside an input drops count in its turn. "
           "For inputs that begin again, or shares that are not equal, use `mix`.",
    .kind = CW_OP_INDEX,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .index = &map,
};
