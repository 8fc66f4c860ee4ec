/* repeat: the positions of its input in several passes. Each pass has a number, from 0. */
#include "ops/sequence/repeat.h"

#include <inttypes.h>

#include "ops/sequence/cut.h"

struct repeat {
    struct cw_seq base;
    uint64_t count; /* passes; CW_ENDLESS: without end */
};

/* Sets *ret to the combined number of pass o of s, if s itself is in pass `pass` of the repeats after it.
 * CW_E_PIPELINE: the number is 2^32 or more. */
static int repeat_pass(const struct cw_seq *s, uint64_t o, uint64_t pass, uint64_t *ret, struct cw_error *err)
{
    uint64_t count = ((const struct repeat *)s)->count;
    *ret = count >= CW_ENDLESS ? o : o + count * pass;
    if (*ret >> 32 == 0)
        return 0;
    return cw_error_set(err, CW_E_PIPELINE,
                        "repeat: the run has reached pass number %" PRIu64
                        " over the data (all nested repeats together): only passes below 2^32 are supported",
                        *ret);
}

static int repeat_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                       struct cw_ref *ret, struct cw_error *err)
{
    const struct cw_seq *child = s->children[0];
    int r = 0;
    for (uint64_t m, combined; n > 0 && r >= 0; ret += m, begin += m, n -= m) {
        m = CW_MIN(child->n - begin % child->n, n);
        r = repeat_pass(s, begin / child->n, pass, &combined, err);
        if (r >= 0)
            r = cw_seq_refs(e, child, begin % child->n, m, combined, ret, err);
    }
    return r;
}

static int repeat_lookup(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    const struct cw_seq *child = s->children[0];
    for (uint64_t i = 0, size = child->n, combined; i < n; i++) {
        struct cw_ref *ref = &l->refs[index[i]];
        int r = repeat_pass(s, ref->row / size, cw_ref_pass(ref), &combined, l->err);
        if (r < 0) /* happens only in an endless repeat; finite ones were checked when the tree was built */
            return r;
        *ref = cw_ref_at(ref->row % size, combined);
    }
    return child->ops->lookup(l, child, index, n);
}

static void repeat_chunks(const struct cw_seq *s, uint64_t from, uint64_t to, struct cw_chunks *ret)
{
    const struct cw_seq *child = s->children[0];
    for (uint64_t n = child->n, end; from < to && n > 0 && !ret->failed; from = end) {
        end = CW_MIN(to, (from / n + 1) * n);
        child->ops->chunks(child, from % n, end - from + from % n, ret);
    }
}

static const struct cw_seq_ops repeat_seq_ops = {
    .refs = repeat_refs, .lookup = repeat_lookup, .chunks = repeat_chunks};

struct cw_seq *cw_repeat_wrap(struct cw_seq_build *b, struct cw_seq **at, uint64_t count)
{
    struct cw_seq *s = cw_seq_wrap(b, &repeat_seq_ops, sizeof(struct repeat), at);
    if (s)
        ((struct repeat *)s)->count = count;
    return s;
}

static int repeat_build(struct cw_seq_build *b, const struct cw_node *node, bool batched, struct cw_seq **at)
{
    const struct cw_compiled *c = b->sequence->compiled;
    int64_t count = json_integer_value(json_object_get(node->attrs, "count"));
    uint64_t n = (*at)->n;
    if (batched && n % c->batch_size != 0 && n < CW_ENDLESS) {
        if (!c->grouping.full_only)
            return cw_error_set(b->err, CW_E_PIPELINE,
                                "repeat: comes after %s, but the number of elements, %" PRIu64
                                ", is not a multiple of the batch size, %" PRIu64
                                ": write repeat before %s, set drop_remainder, or use --epochs",
                                c->batcher->name, n, c->batch_size, c->batcher->name);
        n = n / c->batch_size * c->batch_size;
        int r = cw_cut_build(b, at, 0, n);
        if (r < 0)
            return r;
    }
    uint64_t passes = count < 0 ? CW_ENDLESS : (uint64_t)count;
    struct cw_seq *s = cw_repeat_wrap(b, at, passes);
    if (!s)
        return CW_E_MEMORY;
    if (n == 0 || count == 0)
        s->n = 0;
    else if (count < 0 || n >= CW_ENDLESS)
        s->n = CW_ENDLESS;
    else if (__builtin_mul_overflow(n, passes, &s->n) || s->n >= CW_ENDLESS ||
             __builtin_mul_overflow(s->passes, passes, &s->passes) || s->passes >> 32)
        return cw_error_set(b->err, CW_E_PIPELINE,
                            "repeat: repeating %" PRIu64 " elements %" PRIi64
                            " times is too much: expected fewer than 2^32 passes in all nested repeats "
                            "together, or a count of -1 (endless)",
                            n, count);
    return 0;
}

static const struct cw_index_map map = {
    .repeats = true, .instead = "a run of several epochs, instead of repeat", .build = repeat_build};

static const struct cw_attr_def attrs[] = {
    {.name = "count", .kind = CW_ATTR_INT, .min = -1, .max = 0x1p62, .doc = "number of passes; -1: endless"},
    {0},
};

const struct cw_op_desc cw_op_repeat = {
    .name = "repeat",
    .hint = "repeat(-1) repeats without end",
    .summary = "gives all elements several times",
    .doc = "One pass over all elements follows another, `count` passes in all. Random operators draw new "
           "numbers in each pass.",
    .kind = CW_OP_INDEX,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .index = &map,
};
