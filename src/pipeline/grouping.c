/* Groups of batches: which batches the elements make that wait at the end of an epoch. Called by the engine,
 * and by the placer of a client. */
#include "pipeline/roles.h"

uint64_t cw_grouping_rest(const struct cw_grouping *g, unsigned n_keys, const uint64_t *sizes,
                          const uint64_t *waiting, unsigned key, unsigned given, unsigned *ret)
{
    uint64_t n = 0; /* elements that the group of key k may have */
    for (unsigned k = 0; k < n_keys; k++) {
        uint64_t left = g->size - (k == key ? given : 0), last = k == n_keys - 1;
        n = waiting[k] + (g->remainder == CW_REMAINDER_DROP ? 0 : n);
        bool full = n >= left * sizes[k];
        /* a batch of few elements: the rest in equal parts, the first of which are the larger ones */
        bool few = !g->full_only && n > 0 && (last || (g->remainder == CW_REMAINDER_PAD && n >= left));
        if (!full && !few)
            continue;
        *ret = k;
        return full ? sizes[k] : (n + left - 1) / left;
    }
    return 0;
}
