/* Looks up positions of inputs that take turns: those of one input together, because neighbouring positions
 * of a shuffle are found faster at once. */
#include "ops/sequence/turns.h"

#include <stdlib.h>

#include "pipeline/roles.h"

/* Finds the records of n positions, whose inputs are in inputs[]: in refs, one input after the other.
 * from[i]: the first position of input i; it is set to the place in refs where those of input i begin. */
static int turns_by_input(struct cw_epoch *e, const struct cw_seq *s, const uint16_t *inputs, uint64_t n,
                          uint64_t pass, uint64_t *from, uint64_t *sizes, struct cw_ref *refs,
                          struct cw_error *err)
{
    uint64_t at = 0;
    int r = 0;
    for (size_t i = 0; i < s->n_children; i++)
        sizes[i] = 0;
    for (uint64_t k = 0; k < n; k++)
        sizes[inputs[k]]++;
    for (size_t i = 0; i < s->n_children && r >= 0; i++) {
        if (sizes[i] > 0)
            r = cw_seq_refs(e, s->children[i], from[i], sizes[i], pass, refs + at, err);
        from[i] = at;
        at += sizes[i];
    }
    return r;
}

int cw_turns_refs(struct cw_epoch *e, const struct cw_seq *s, cw_turns_fill fill, uint64_t begin, uint64_t n,
                  uint64_t pass, struct cw_ref *ret, struct cw_error *err)
{
    size_t bytes = n * (sizeof(struct cw_ref) + sizeof(uint16_t)) + 2 * s->n_children * sizeof(uint64_t);
    int r = cw_budget_take(e->budget, bytes, "the plan of a range", err);
    if (r < 0)
        return r;
    _cleanup_free_ struct cw_ref *refs = malloc(bytes);
    if (refs) {
        uint64_t *from = (uint64_t *)(refs + n), *sizes = from + s->n_children;
        uint16_t *inputs = (uint16_t *)(sizes + s->n_children);
        r = fill(s, begin, n, inputs, from, err);
        if (r >= 0)
            r = turns_by_input(e, s, inputs, n, pass, from, sizes, refs, err);
        for (uint64_t k = 0; k < n && r >= 0; k++)
            ret[k] = refs[from[inputs[k]]++];
    } else {
        r = cw_error_nomem(err, bytes, "the plan of a range");
    }
    cw_budget_give(e->budget, bytes);
    return r;
}

static void turns_swap(uint32_t *a, uint32_t *b)
{
    uint32_t t = *a;
    *a = *b;
    *b = t;
}

/* Sorts index, and inputs with it, so that those of one input are neighbours: input i begins at from[i]. `to`
 * is scratch with room for a number for each input. */
static void turns_sort(uint32_t *index, uint32_t *inputs, size_t n_inputs, const uint64_t *from, uint64_t *to)
{
    for (size_t i = 0; i < n_inputs; i++)
        to[i] = from[i];
    for (size_t i = 0; i < n_inputs; i++)
        while (to[i] < from[i + 1]) {
            uint64_t at = to[i], other = to[inputs[at]]++;
            turns_swap(&index[at], &index[other]);
            turns_swap(&inputs[at], &inputs[other]);
        }
}

int cw_turns_lookup(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint32_t *inputs,
                    uint64_t n)
{
    size_t n_inputs = s->n_children;
    _cleanup_free_ uint64_t *from = calloc(2 * n_inputs + 1, sizeof(*from));
    if (!from)
        return cw_error_nomem(l->err, (2 * n_inputs + 1) * sizeof(*from), "the plan of a range");
    for (uint64_t k = 0; k < n; k++)
        from[inputs[k] + 1]++;
    for (size_t i = 0; i < n_inputs; i++)
        from[i + 1] += from[i];
    turns_sort(index, inputs, n_inputs, from, from + n_inputs + 1);
    int r = 0;
    for (size_t i = 0; i < n_inputs && r >= 0; i++)
        if (from[i + 1] > from[i])
            r = s->children[i]->ops->lookup(l, s->children[i], index + from[i], from[i + 1] - from[i]);
    return r;
}

void cw_turns_chunks(const struct cw_seq *s, uint64_t from, uint64_t to, struct cw_chunks *ret)
{
    cw_chunks_add(ret, CW_CHUNK_POSITIONS, NULL, (s->n + CW_CHUNK_POSITIONS - 1) / CW_CHUNK_POSITIONS, s->n,
                  from, to);
}

int cw_turns_build(struct cw_seq_build *b, const struct cw_node *node, const struct cw_seq_ops *ops,
                   size_t size, struct cw_seq **at)
{
    struct cw_seq *s = *at = cw_seq_new(b, ops, size, node->n_inputs);
    if (!s)
        return CW_E_MEMORY;
    s->joins = s->scatters = true;
    s->chunk = CW_CHUNK_POSITIONS;
    for (size_t i = 0; i < node->n_inputs; i++) {
        int r = cw_seq_build_chain(b, &node->inputs[i], &s->children[i]);
        if (r < 0)
            return r;
        if (b->sequence->stream)
            return cw_error_set(
                b->err, CW_E_PIPELINE,
                "%s: input %zu is a stream, whose end is not known: expected a source with an index",
                node->desc->name, i);
        s->passes = CW_MAX(s->passes, s->children[i]->passes);
    }
    return 0;
}
