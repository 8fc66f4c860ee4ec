/*
 * The frugal mode: memory is short although all later ranges gave theirs up. The first range has more under
 * way than it needs, since threads work ahead. It starts over with its next batch. From then on one block and
 * one batch are computed at a time. So the memory in use follows from the pipeline and its data, not from
 * threads, time or the budget. A budget that does not suffice for that is too small. A budget that suffices
 * once suffices again. The mode ends after one piece; each time it begins again it lasts for twice as many
 * pieces.
 */
#include "engine/internal.h"

/* Rows of a block: 32 at first; each time memory is still short, an eighth of the rows before, at least
 * one. */
#define ROWS_FIRST 32
#define ROWS_SHARE 8
#define TERM_MOST (1u << 20) /* pieces */

bool cw_give_up_first(struct cw_runner *r)
{
    struct cw_range *s = r->ranges;
    if (!s || !cw_holds_anything(r, s))
        return false;
    cw_give_up(r, s);
    return true;
}

/* Frees the permutations of epochs behind the first range's: they are computed again when they are needed. */
static void forget_later_epochs(struct cw_runner *r)
{
    const struct epoch_ref *first = r->ranges ? r->ranges->epoch : NULL;
    for (struct cw_range *s = r->ranges; s; s = s->next)
        if (s->epoch != first)
            cw_epoch_forget(&s->epoch->epoch);
    if (r->epoch && r->epoch != first)
        cw_epoch_forget(&r->epoch->epoch);
}

/* Rows that a block has at most when the runner is not frugal. */
static uint64_t rows_as_usual(const struct cw_runner *r)
{
    uint64_t most = 1;
    for (unsigned i = 0; i < r->compiled->n_programs; i++)
        most = CW_MAX(most, r->rows[2 * i].most);
    return most;
}

static void tell(struct cw_runner *r)
{
    double usual = (double)rows_as_usual(r), rows = r->frugal ? r->frugal : usual;
    const struct cw_tuned t = {
        .what = "frugal_rows",
        .seen = {{"memory_bytes", (double)r->budget.limit}, {"pieces", r->frugal_left}},
        .others = {{"as_usual", usual}, {"memory", rows}},
        .chosen = rows,
        .why = r->frugal ? "memory does not suffice for more: one range alone, block by block"
                         : "the pieces are over for which memory did not suffice",
    };
    cw_tuned_add(&r->tuned, &t);
}

bool cw_frugal_begin(struct cw_runner *r)
{
    if (r->frugal == 1)
        return false;
    if (!r->frugal)
        r->frugal_left = r->frugal_term = CW_MIN(CW_MAX(2 * r->frugal_term, 1), TERM_MOST);
    r->frugal = r->frugal ? CW_MAX(r->frugal / ROWS_SHARE, 1)
                          : (unsigned)CW_MIN(rows_as_usual(r), ROWS_FIRST);
    tell(r);
    cw_evict(r);
    while (cw_reclaim(r, r->ranges))
        ;
    cw_give_up_first(r);
    forget_later_epochs(r);
    r->starving = r->plan_short = r->poll_short = false;
    cw_work(r);
    return true;
}

void cw_frugal_passed(struct cw_runner *r)
{
    if (!r->frugal || --r->frugal_left > 0)
        return;
    r->frugal = 0;
    tell(r);
}

bool cw_frugal_waits(const struct cw_runner *r)
{
    const struct cw_range *s = r->ranges;
    return r->n_blocks > 0 || (r->n_handed > 0 && !r->awaited) ||
           (s && s->rows && cw_rows_may_be_taken(r, s)) ||
           (s && s->head && s->head->closed && s->head->n_done == s->head->n_assigned);
}
