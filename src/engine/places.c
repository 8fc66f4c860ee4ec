/* Entries behind batches, from what was counted when their rows passed. Mutex held throughout. */
#include <string.h>

#include "engine/internal.h"

static size_t position_in_block(const struct block *b, size_t at)
{
    return b->exec.origin ? b->exec.origin[b->idx[at]] : b->idx[at];
}

/* Live rows of the record of idx[at] that stand before it are not counted; those before its record are. */
static void counts_before_record(const struct cw_runner *r, const struct block *b, size_t at,
                                 uint64_t *counts)
{
    memcpy(counts, b->range->arrived, cw_n_keys(r->compiled) * sizeof(*counts));
    for (size_t i = at; b->exec.origin && i-- > 0 && position_in_block(b, i) == position_in_block(b, at);)
        counts[cw_block_key(r, b, b->idx[i])]--;
}

/* What limits had counted before a position of a block; n_refs: behind it. */
static void set_limits(const struct cw_runner *r, const struct block *b, size_t position, struct cw_entry *e)
{
    for (unsigned k = 0; k < r->compiled->n_limits; k++) {
        const struct limit_passage *p = &b->limit_passages[k];
        e->limits[k] = p->before;
        if (p->counts)
            e->limits[k].count = p->counts[position];
    }
}

struct cw_entry *cw_block_entry(const struct cw_runner *r, const struct block *b, size_t at)
{
    struct cw_entry *e = cw_entry_new(r->compiled);
    if (!e)
        return NULL;
    size_t position = position_in_block(b, at);
    e->position = b->piece->plan.begin + b->exec.at + position;
    counts_before_record(r, b, at, e->skip); /* so many arrived before */
    set_limits(r, b, position, e);
    return e;
}

/* The open batch with the earliest element; NULL: none is open. */
static const struct cw_entry *earliest_open(const struct cw_runner *r, const struct cw_range *s)
{
    const struct cw_entry *first = NULL;
    for (unsigned k = 0; k < cw_n_keys(r->compiled); k++)
        if (s->open[k] && s->open[k]->from && (!first || s->open[k]->from->position < first->position))
            first = s->open[k]->from;
    return first;
}

/* From what had arrived at a place to what of that which follows is in batches. */
static void set_skip(const struct cw_runner *r, const struct cw_range *s, struct cw_entry *e)
{
    for (unsigned k = 0; k < cw_n_keys(r->compiled); k++)
        e->skip[k] = s->batched[k] - e->skip[k];
}

struct cw_entry *cw_block_after(const struct cw_runner *r, const struct block *b, size_t at)
{
    const struct cw_range *s = b->range;
    const struct cw_entry *waits = earliest_open(r, s);
    struct cw_entry *e = cw_entry_new(r->compiled);
    size_t position = position_in_block(b, at);
    if (!e)
        return NULL;
    if (waits) {
        cw_entry_set(r->compiled, e, waits);
    } else if (b->exec.origin && at + 1 < b->n_live && position_in_block(b, at + 1) == position) {
        /* the record has more */
        e->position = b->piece->plan.begin + b->exec.at + position;
        counts_before_record(r, b, at + 1, e->skip);
        set_limits(r, b, position, e);
    } else {
        e->position = b->piece->plan.begin + b->exec.at + position + 1;
        memcpy(e->skip, s->arrived, cw_n_keys(r->compiled) * sizeof(*e->skip));
        set_limits(r, b, position + 1, e);
    }
    set_skip(r, s, e);
    return e;
}

struct cw_entry *cw_range_after(const struct cw_runner *r, const struct cw_range *s)
{
    const struct cw_entry *waits = earliest_open(r, s);
    struct cw_entry *e = cw_entry_new(r->compiled);
    if (!e)
        return NULL;
    if (waits) {
        cw_entry_set(r->compiled, e, waits);
    } else {
        e->position = s->slots_at;
        memcpy(e->skip, s->arrived, cw_n_keys(r->compiled) * sizeof(*e->skip));
        for (unsigned k = 0; k < r->compiled->n_limits; k++)
            e->limits[k] = s->limits[k];
    }
    set_skip(r, s, e);
    return e;
}
