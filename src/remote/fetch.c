/* A fetch is one thing that this client wants from a worker, and that arrives in one message: a batch, the
 * rows of a batch from one range (a part), or the keys of a range. The mutex must be held in all functions.
 */
#include "remote/fetch.h"

#include <stdlib.h>

#include "remote/internal.h"

struct fetch *cw_fetch_next(const struct remote *r, const struct fetch *f)
{
    const struct cw_link *next = f ? f->in_list.next : r->fetches.list.next;
    return next == &r->fetches.list ? NULL : CW_CONTAINER(next, struct fetch, in_list);
}

/* Adds a copy of *what before a link of the list. */
static struct fetch *fetch_new_before(struct remote *r, const struct fetch *what, struct cw_link *before)
{
    struct fetch *f = malloc(sizeof(*f));
    if (!f)
        return NULL;
    const struct known_range *x = cw_range_table_find(&r->ranges, what->epoch, what->begin);
    *f = *what;
    f->lost = x && x->lost;
    cw_list_add(before, &f->in_list);
    r->fetches.changed = true;
    r->fetches.n++;
    return f;
}

struct fetch *cw_fetch_new(struct remote *r, const struct fetch *what)
{
    return fetch_new_before(r, what, &r->fetches.list);
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
    struct fetch *rest = fetch_new_before(r, &what, f->in_list.next);
    if (!rest)
        return false;
    f->sibling = rest;
    f->n = end - f->begin;
    f->is_part = true;
    return true;
}

void cw_fetch_again(struct remote *r, struct fetch *f)
{
    cw_link_out(&f->in_list);
    cw_list_add(&r->fetches.list, &f->in_list);
    r->fetches.changed = true;
    f->state = FETCH_WANTED;
    f->link = NULL;
}

void cw_fetch_drop(struct remote *r, struct fetch **at)
{
    struct fetch *f = *at;
    *at = f->sibling;
    cw_link_out(&f->in_list);
    r->fetches.n--;
    if (f->batch)
        cw_remote_batch_drop(r, f->batch);
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
    CW_LIST_EACH_OF (f, struct fetch, in_list, &r->fetches.list)
        if (f->link == l) {
            f->link = NULL;
            f->state = f->state == FETCH_REQUESTED ? FETCH_WANTED : f->state;
        }
}
