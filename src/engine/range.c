/* What a range holds while it is computed: pieces, and the batches that blocks fill. */
#include <string.h>

#include "engine/internal.h"

#include "base/array.h"
#include "base/thread.h"

static void piece_free(struct piece *p)
{
    cw_piece_unplan(p);
    free(p);
}

void cw_range_collect(struct cw_runner *r, struct cw_range *s)
{
    struct piece **at = &s->first, *before = NULL;
    while (*at) {
        struct piece *p = *at;
        if (p->users == 0 && p->carved == p->plan.n) {
            *at = p->next;
            if (s->last == p)
                s->last = before;
            if (!r->spare_plan)
                r->spare_plan = CW_STEAL(p->plan.room);
            piece_free(p);
            cw_frugal_passed(r);
        } else {
            before = p;
            at = &p->next;
        }
    }
}

void cw_range_append(struct cw_range *s, struct cw_assembly *a)
{
    if (s->tail)
        s->tail->next = a;
    else
        s->head = a;
    s->tail = a;
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
    struct key_rows *k = &s->by_key[a->bucket];
    if (CW_ARRAY_ROOM(k->batches, k->room, k->n + 1, "rows", err) < 0)
        return CW_E_MEMORY;
    k->batches[k->n++] = a;
    s->n_held++;
    return 0;
}

void cw_epoch_unref(struct epoch_ref *e)
{
    if (e && --e->refs == 0) {
        cw_epoch_deinit(&e->epoch);
        free(e);
    }
}

static void assembly_drop(struct cw_runner *r, struct cw_assembly *a)
{
    if (!a)
        return;
    cw_assembly_free(a);
    r->n_assemblies--;
}

/* Gives back all that a range holds. */
static void range_drop(struct cw_runner *r, struct cw_range *s)
{
    unsigned n_keys = CW_MAX(r->compiled->n_buckets, 1u);
    bool listed = r->compiled->batcher != CW_BATCHER_BUCKET || s->rows; /* open batches are in a list, too */
    while (s->first)
        piece_free(CW_POP(s->first));
    s->last = NULL;
    while (s->head)
        assembly_drop(r, CW_POP(s->head));
    s->tail = NULL;
    for (unsigned k = 0; k < n_keys; k++) {
        struct key_rows *rows = s->by_key ? &s->by_key[k] : NULL;
        for (size_t i = 0; rows && i < rows->n; i++)
            assembly_drop(r, rows->batches[i]);
        if (rows)
            rows->n = rows->first = 0;
        if (s->open && !listed)
            assembly_drop(r, s->open[k]);
        if (s->open)
            s->open[k] = NULL;
    }
    s->n_held = 0;
    s->quarantined = cw_quarantined_free(s->quarantined);
    free(CW_STEAL(s->failed));
}

void cw_range_begin(struct cw_runner *r, struct cw_range *s)
{
    const struct cw_entry *e = &s->entry;
    s->position = s->slots_at = e->position;
    s->end = s->limit; /* where a stream ended or failed before, the next run finds that out again */
    s->next_seq = 0;
    s->n_keys = 0;
    memset(s->passed, 0, r->env.n_points * sizeof(*s->passed));
    for (unsigned k = 0; k < r->compiled->n_limits; k++)
        s->limits[k] = e->limits ? e->limits[k] : (struct cw_limit_count){0};
    for (unsigned k = 0; k < cw_n_keys(r->compiled); k++) {
        s->arrived[k] = 0;
        s->batched[k] = e->skip ? e->skip[k] : 0;
    }
    s->over = s->poisoned = s->flushed = false;
}

void cw_range_restart(struct cw_runner *r, struct cw_range *s)
{
    range_drop(r, s);
    cw_range_begin(r, s);
}

/* The position behind all that was carved, at the end of a batch where batches follow from positions; the
 * range's begin if nothing was carved. */
static uint64_t range_progress(const struct cw_runner *r, const struct cw_range *s)
{
    const struct piece *p = s->first;
    while (p && p->carved == p->plan.n)
        p = p->next;
    uint64_t at = p ? p->plan.begin + p->carved : s->position,
             size = r->compiled->counted ? r->compiled->batch_size : 1;
    return at > s->begin ? CW_MIN(CW_ALIGN_UP(at, size), s->end) : s->begin;
}

uint64_t cw_runner_shorten(struct cw_runner *r, struct cw_range *s)
{
    CW_GUARD(&r->mutex);
    uint64_t end = range_progress(r, s);
    if (s->over || r->planning || end <= s->begin || end >= s->end)
        return 0;
    struct piece **at = &s->first;
    s->last = NULL;
    while (*at && (*at)->plan.begin < end) {
        s->last = *at;
        at = &(*at)->next;
    }
    while (*at)
        piece_free(CW_POP(*at));
    if (s->last)
        s->last->plan.n = CW_MIN(s->last->plan.n, end - s->last->plan.begin);
    s->position = s->end = s->limit = end;
    cw_work(r);
    return end;
}

void cw_range_free(struct cw_runner *r, struct cw_range *s)
{
    range_drop(r, s);
    cw_epoch_unref(s->epoch);
    cw_entry_deinit(&s->entry);
    for (unsigned k = 0; s->by_key && k < cw_n_keys(r->compiled); k++)
        free(s->by_key[k].batches);
    free(s->by_key);
    free(s->keys);
    free(s->passed);
    free(s->limits);
    free(s->arrived);
    free(s->batched);
    free(s->open);
    free(s);
}
