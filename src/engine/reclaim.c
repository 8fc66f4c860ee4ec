/* Memory to take back for a starved block or the consumer: from later ranges, the last one first, or from
 * batches that the consumer will release. Mutex held, and nothing runs. */
#include "engine/internal.h"

bool cw_may_be_released(const struct cw_runner *r)
{
    const struct cw_range *first = r->ranges;
    const struct cw_assembly *a = first ? first->head : NULL;
    if (first && first->rows && cw_rows_may_be_taken(r, first))
        return true;
    return (r->n_handed > 0 && !r->awaited) || (a && a->closed && a->n_done == a->n_assigned) ||
           (first && first->over && first->n_blocks == 0);
}

bool cw_holds_anything(const struct cw_runner *r, const struct cw_range *s)
{
    bool any = s->first || s->head;
    for (unsigned k = 0; k < cw_n_keys(r->compiled); k++)
        any |= s->open[k] != NULL || (s->rows && s->by_key[k].n > 0);
    return any;
}

static struct cw_range *reclaimable(const struct cw_runner *r, const struct cw_range *s)
{
    struct cw_range *last = NULL;
    for (struct cw_range *later = s ? s->next : NULL; later; later = later->next)
        if (cw_holds_anything(r, later))
            last = later;
    return last;
}

bool cw_can_reclaim(const struct cw_runner *r, const struct cw_range *s)
{
    return reclaimable(r, s) != NULL;
}

void cw_give_up(struct cw_runner *r, struct cw_range *s)
{
    for (struct block **at = &r->starved; *at;) {
        struct block *b = *at;
        if (b->range != s) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        s->n_blocks--;
        cw_block_recycle(r, b);
    }
    cw_range_restart(r, s);
    cw_trim(r);
}

bool cw_reclaim(struct cw_runner *r, const struct cw_range *s)
{
    struct cw_range *last = reclaimable(r, s);
    if (last)
        cw_give_up(r, last);
    return last != NULL;
}
