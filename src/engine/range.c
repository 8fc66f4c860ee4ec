/* A range: consecutive positions of an epoch that are given to the engine as one unit of work. It owns its
 * pieces, the batches that its blocks fill, and the entry from which it begins again. Everything here needs
 * the runner's mutex. */
#include "engine/range.h"

#include <string.h>

#include "base/array.h"
#include "base/thread.h"
#include "engine/internal.h"

unsigned cw_range_collect(struct cw_range *s)
{
    unsigned n = 0;
    for (struct piece **at = &s->first; *at;) {
        struct piece *p = *at;
        if (p->users > 0 || p->carved < p->plan.n) {
            at = &p->next;
            continue;
        }
        cw_piece_free(CW_POP(*at));
        n++;
    }
    return n;
}

void cw_range_append(struct cw_range *s, struct cw_assembly *a)
{
    if (s->tail)
        s->tail->next = a;
    else
        s->head = a;
    s->tail = a;
}

void cw_range_append_group(struct cw_range *s, struct cw_assembly *a)
{
    struct range_group *g = &s->groups[a->bucket];
    *(g->tail ? &g->tail->next : &g->head) = a;
    g->tail = a;
    g->n++;
}

struct cw_assembly *cw_range_pop_group(struct cw_range *s, unsigned key)
{
    struct range_group *g = &s->groups[key];
    struct cw_assembly *a = CW_POP(g->head);
    a->next = NULL;
    if (!g->head)
        g->tail = NULL;
    g->n--;
    g->moved = 0;
    return a;
}

void cw_range_deliver_group(const struct cw_runner *r, struct cw_range *s, struct cw_assembly *a)
{
    a->closed = true;
    s->counts.group_given = (s->counts.group_given + 1) % r->compiled->grouping.size;
    s->counts.group_key = s->counts.group_given ? a->bucket : 0;
    cw_range_append(s, a);
}

void cw_range_remove_last(struct cw_range *s)
{
    struct cw_assembly *last = s->tail, *before = NULL;
    for (struct cw_assembly *a = s->head; a != last; a = a->next)
        before = a;
    *(before ? &before->next : &s->head) = NULL;
    s->tail = before;
}

int cw_range_append_rows(struct cw_range *s, struct cw_assembly *a, struct cw_error *err)
{
    struct key_rows *k = &s->keyed.by_key[a->bucket];
    if (CW_ARRAY_ROOM(k->batches, k->room, k->n + 1, "rows", err) < 0)
        return CW_E_MEMORY;
    k->batches[k->n++] = a;
    s->keyed.n_held++;
    return 0;
}

void cw_epoch_ref_drop(struct epoch_ref *e)
{
    if (e && --e->refs == 0) {
        cw_epoch_deinit(&e->epoch);
        free(e);
    }
}

bool cw_range_holds_anything(const struct cw_runner *r, const struct cw_range *s)
{
    bool any = s->first || s->head;
    for (unsigned k = 0; k < cw_n_keys(r->compiled); k++)
        any |= s->open[k] != NULL || s->groups[k].head || (s->rows && s->keyed.by_key[k].n > 0);
    return any;
}

/* Frees everything that a range holds. */
static void range_drop(struct cw_runner *r, struct cw_range *s)
{
    unsigned n_keys = CW_MAX(r->compiled->n_buckets, 1u);
    bool listed = !r->compiled->keyed || s->rows; /* open batches are in the list of batches, too */
    while (s->first)
        cw_piece_free(CW_POP(s->first));
    while (s->head)
        cw_memory_drop_assembly(r, CW_POP(s->head));
    s->tail = NULL;
    for (unsigned k = 0; k < n_keys; k++) {
        struct key_rows *rows = s->keyed.by_key ? &s->keyed.by_key[k] : NULL;
        for (size_t i = 0; rows && i < rows->n; i++)
            cw_memory_drop_assembly(r, rows->batches[i]);
        if (rows)
            rows->n = rows->first = 0;
        if (s->open && !listed)
            cw_memory_drop_assembly(r, s->open[k]);
        if (s->open)
            s->open[k] = NULL;
        while (s->groups && s->groups[k].head)
            cw_memory_drop_assembly(r, cw_range_pop_group(s, k));
    }
    s->keyed.n_held = 0;
    s->quarantined = cw_quarantined_free(s->quarantined);
    free(CW_STEAL(s->failed));
}

void cw_range_begin(const struct cw_runner *r, struct cw_range *s)
{
    const struct cw_entry *e = &s->entry;
    s->position = s->counts.slots_at = e->position;
    s->end = s->limit; /* the next attempt finds again where a stream ended or failed */
    s->next_seq = 0;
    s->keyed.n_keys = 0;
    memset(s->passed, 0, r->env.n_points * sizeof(*s->passed));
    for (unsigned k = 0; k < r->compiled->n_limits; k++)
        s->counts.limits[k] = e->limits ? e->limits[k] : (struct cw_limit_count){0};
    for (unsigned k = 0; k < cw_n_keys(r->compiled); k++) {
        s->counts.arrived[k] = 0;
        s->counts.batched[k] = e->skip ? e->skip[k] : 0;
    }
    s->counts.group_given = e->group_given;
    s->counts.group_key = e->group_key;
    s->state = RANGE_OPEN;
}

void cw_range_restart(struct cw_runner *r, struct cw_range *s)
{
    range_drop(r, s);
    cw_range_begin(r, s);
}

void cw_range_free(struct cw_runner *r, struct cw_range *s)
{
    range_drop(r, s);
    cw_epoch_ref_drop(s->epoch);
    cw_entry_deinit(&s->entry);
    for (unsigned k = 0; s->keyed.by_key && k < cw_n_keys(r->compiled); k++)
        free(s->keyed.by_key[k].batches);
    free(s->keyed.by_key);
    free(s->keyed.keys);
    free(s->passed);
    free(s->counts.limits);
    free(s->counts.arrived);
    free(s->counts.batched);
    free(s->open);
    free(s->groups);
    free(s);
}

/* ---- rows by key ---- */

bool cw_range_copyable(const struct cw_range *s, const struct cw_assembly *a)
{
    return a->n_done == a->n_assigned && (a->closed || cw_range_computed(s));
}

/* Returns how many rows of batch i of a key can be copied. A batch that was given away had all rows. */
static uint64_t range_rows_done(const struct cw_range *s, const struct key_rows *x, size_t i, uint64_t size)
{
    const struct cw_assembly *a = i < x->n ? x->batches[i] : NULL;
    return i >= x->n ? 0 : !a ? size : cw_range_copyable(s, a) ? a->n_done : 0;
}

bool cw_range_rows_ready(const struct cw_runner *r, const struct cw_range *s)
{
    for (unsigned k = 0; k < cw_n_keys(r->compiled); k++) {
        const struct key_rows *x = &s->keyed.by_key[k];
        uint64_t size = cw_key_size(r->compiled, k), group = r->compiled->grouping.size, done = 0, more;
        size_t i = x->first;
        while (i < x->n && !x->batches[i])
            i++;
        for (; i < x->n && done < 2 * group * size - 1 && (more = range_rows_done(s, x, i, size)) > 0; i++)
            done += more;
        if (done >= 2 * group * size - 1)
            return true;
    }
    return false;
}
