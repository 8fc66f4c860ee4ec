/* Maps many positions, in any order, to records: a shuffle whose input is shuffled itself needs that. All
 * positions go down the tree together, so that the order of a window is made once for all positions in the
 * window. */
#include "dataset/seq.h"

int cw_seq_lookup(struct cw_epoch *e, const struct cw_seq *s, struct cw_ref *refs, uint64_t n,
                  struct cw_error *err)
{
    uint64_t mask = 0;
    while (mask * 2 + 1 < n)
        mask = mask * 2 + 1;
    size_t bytes = (2 * n + mask + 1) * sizeof(uint32_t);
    int r = cw_budget_take(e->budget, bytes, "the plan of a range", err);
    if (r < 0)
        return r;
    _cleanup_free_ uint32_t *index = malloc(bytes);
    if (index) {
        struct cw_lookup l = {
            .epoch = e, .refs = refs, .sorted = index + n, .counts = index + 2 * n, .mask = mask, .err = err};
        for (uint64_t i = 0; i < n; i++)
            index[i] = (uint32_t)i;
        r = s->ops->lookup(&l, s, index, n);
    } else {
        r = cw_error_nomem(err, bytes, "the plan of a range");
    }
    cw_budget_give(e->budget, bytes);
    return r;
}
