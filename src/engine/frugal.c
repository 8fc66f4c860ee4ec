/*
 * What happens when memory does not suffice although all that later splits have was given up: the split before everything else has more under way than it needs,
 * since threads work ahead. It begins again with its next batch, and from then on alone, block by block and batch by batch, so that what it takes follows from the
 * pipeline and its data, and not from threads, time, or how much memory there is. What is not enough for that is too little; and what is enough once is enough
 * again. After that split others may be tried together once more; each time it comes to this, for twice as many splits it stays like this.
 */
#include "engine/internal.h"

/* Rows of a block: first so many, and each time that was too much an eighth of them. One row in memory for one row is what counts in the end. */
#define ROWS_FIRST 32
#define ROWS_SHARE 8
#define TERM_MOST (1u << 20)

bool cw_give_up_first(struct cw_runner *r)
{
    struct cw_range *s = r->ranges;
    if (!s || !cw_holds_anything(r, s))
        return false;
    cw_give_up(r, s);
    return true;
}

/* The permutations of epochs that come later are made again. */
static void forget_later_epochs(struct cw_runner *r)
{
    const struct epoch_ref *first = r->ranges ? r->ranges->epoch : NULL;
    for (struct cw_range *s = r->ranges; s; s = s->next)
        if (s->epoch != first)
            cw_epoch_forget(&s->epoch->epoch);
    if (r->epoch && r->epoch != first)
        cw_epoch_forget(&r->epoch->epoch);
}

/* Rows that a block has at most otherwise. */
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
        .why = r->frugal ? "memory does not suffice for more: one range alone, block by block" : "the pieces are over for which memory did not suffice",
    };
    cw_tuned_add(&r->tuned, &t);
}

bool cw_frugal_begin(struct cw_runner *r)
{
    if (r->frugal == 1)
        return false;
    if (!r->frugal)
        r->frugal_left = r->frugal_term = CW_MIN(CW_MAX(2 * r->frugal_term, 1), TERM_MOST);
    r->frugal = r->frugal ? CW_MAX(r->frugal / ROWS_SHARE, 1) : (unsigned)CW_MIN(rows_as_usual(r), ROWS_FIRST);
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
    return r->n_blocks > 0 || (r->n_handed > 0 && !r->awaited) || (s && s->head && s->head->closed && s->head->n_done == s->head->n_assigned);
}
