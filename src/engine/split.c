/* What a split holds while it is computed: pieces, and the batches that are filled. */
#include <string.h>

#include "engine/internal.h"

void cw_split_collect(struct cw_runner *r, struct cw_split *s)
{
    struct piece **at = &s->first, *before = NULL;
    while (*at) {
        struct piece *p = *at;
        if (p->users == 0 && p->carved == p->n) {
            *at = p->next;
            if (s->last == p)
                s->last = before;
            if (!r->spare_plan)
                r->spare_plan = CW_STEAL(p->plan);
            cw_piece_unplan(p);
            free(p);
        } else {
            before = p;
            at = &p->next;
        }
    }
}

void cw_split_append(struct cw_split *s, struct cw_assembly *a)
{
    if (s->tail)
        s->tail->next = a;
    else
        s->head = a;
    s->tail = a;
}

void cw_epoch_unref(struct epoch_ref *e)
{
    if (e && --e->refs == 0) {
        cw_epoch_deinit(&e->epoch);
        free(e);
    }
}

/* Gives back all that a split holds. */
static void split_drop(struct cw_runner *r, struct cw_split *s)
{
    while (s->first) {
        struct piece *p = s->first;
        s->first = p->next;
        cw_piece_unplan(p);
        free(p);
    }
    s->last = NULL;
    while (s->head) {
        struct cw_assembly *a = s->head;
        s->head = a->next;
        for (unsigned k = 0; s->open && k < CW_MAX(r->compiled->n_buckets, 1); k++)
            if (s->open[k] == a)
                s->open[k] = NULL;
        cw_assembly_free(a);
        r->n_assemblies--;
    }
    s->tail = NULL;
    for (unsigned k = 0; s->open && k < CW_MAX(r->compiled->n_buckets, 1); k++)
        if (s->open[k]) {
            s->open[k] = cw_assembly_free(s->open[k]);
            r->n_assemblies--;
        }
    s->quarantined = cw_quarantined_free(s->quarantined);
}

void cw_split_restart(struct cw_runner *r, struct cw_split *s)
{
    split_drop(r, s);
    free(CW_STEAL(s->failed));
    s->position = s->begin;
    s->end = cw_split_end(r, s->index); /* a stream may have ended before, or failed: that is found again */
    s->next_seq = 0;
    memset(s->passed, 0, r->n_points * sizeof(*s->passed));
    memset(s->limits, 0, r->compiled->n_limits * sizeof(*s->limits));
    s->over = s->poisoned = s->ended = false;
    if (r->compiled->counted)
        s->first_batch = s->n_taken;
    else
        s->discard = s->n_taken;
}

void cw_split_free(struct cw_runner *r, struct cw_split *s)
{
    split_drop(r, s);
    cw_epoch_unref(s->epoch);
    free(s->failed);
    free(s->passed);
    free(s->limits);
    free(s->open);
    free(s);
}
