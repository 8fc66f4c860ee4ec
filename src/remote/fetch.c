#include "remote/fetch.h"

#include <stdlib.h>

#include "remote/internal.h"

static void fetch_insert(struct fetch_list *l, struct fetch *f, struct fetch *after)
{
    f->prev = after;
    f->next = after ? after->next : NULL;
    *(after ? &after->next : &l->first) = f;
    *(f->next ? &f->next->prev : &l->last) = f;
    l->changed = true;
}

static void fetch_remove(struct fetch_list *l, struct fetch *f)
{
    *(f->prev ? &f->prev->next : &l->first) = f->next;
    *(f->next ? &f->next->prev : &l->last) = f->prev;
}

static struct fetch *fetch_new_after(struct remote *r, const struct fetch *what, struct fetch *after)
{
    struct fetch *f = malloc(sizeof(*f));
    if (!f)
        return NULL;
    const struct known_range *x = cw_range_table_find(&r->ranges, what->epoch, what->begin);
    *f = *what;
    f->lost = x && x->lost;
    fetch_insert(&r->fetches, f, after);
    r->fetches.n++;
    return f;
}

struct fetch *cw_fetch_new(struct remote *r, const struct fetch *what)
{
    return fetch_new_after(r, what, r->fetches.last);
}

bool cw_fetch_cut(struct remote *r, struct fetch *f, uint64_t end)
{
    const struct fetch what = {.epoch = f->epoch,
                               .sibling = f->sibling,
                               .what = f->what,
                               .begin = end,
                               .n = f->begin + f->n - end,
                               .first = f->first,
                               .is_part = true};
    struct fetch *rest = fetch_new_after(r, &what, f);
    if (!rest)
        return false;
    f->sibling = rest;
    f->n = end - f->begin;
    f->is_part = true;
    return true;
}

void cw_fetch_again(struct remote *r, struct fetch *f)
{
    fetch_remove(&r->fetches, f);
    fetch_insert(&r->fetches, f, r->fetches.last);
    f->state = FETCH_WANTED;
    f->link = NULL;
}

void cw_fetch_drop(struct remote *r, struct fetch **at)
{
    struct fetch *f = *at;
    *at = f->sibling;
    fetch_remove(&r->fetches, f);
    r->fetches.n--;
    if (f->batch)
        cw_remote_batch_drop(f->batch);
    cw_quarantined_free(f->quarantined);
    cw_part_deinit(&f->rows);
    free(f->keys);
    free(f->failure);
    free(f);
}

void cw_fetches_free(struct remote *r, struct fetch **list)
{
    while (*list)
        cw_fetch_drop(r, list);
}

uint64_t cw_fetch_first(const struct remote *r, const struct fetch *f)
{
    return f->what == CACHEW__WHAT__WHAT_BATCHES ? f->first - f->requested_begin / r->job.compiled->batch_size
                                                 : f->first;
}

void cw_fetches_unrequest(struct remote *r, const struct link *l)
{
    for (struct fetch *f = r->fetches.first; f; f = f->next)
        if (f->link == l) {
            f->link = NULL;
            f->state = f->state == FETCH_REQUESTED ? FETCH_WANTED : f->state;
        }
}
