/* The table of a stream's splits: a ring over positions base .. end - 1, so that a split is found in one step, and what is passed costs nothing. */
#include <string.h>

#include "dispatcher/internal.h"

struct split *cw_dp_split(const struct stream *s, uint64_t pos)
{
    return s->based && pos >= s->base && pos < s->end ? &s->ring[pos & s->mask] : NULL;
}

/* Room for n splits; what is there keeps its positions. */
static int ring_grow(struct stream *s, uint64_t n)
{
    size_t size = s->ring ? s->mask + 1 : 64;
    while (size < n)
        size *= 2;
    if (s->ring && size == s->mask + 1)
        return 0;
    struct split *ring = calloc(size, sizeof(*ring));
    if (!ring)
        return -1;
    for (uint64_t pos = s->base; s->ring && pos < s->end; pos++)
        ring[pos & (size - 1)] = s->ring[pos & s->mask];
    free(s->ring);
    s->ring = ring;
    s->mask = size - 1;
    return 0;
}

struct split *cw_dp_split_make(struct stream *s, uint64_t pos)
{
    if (!s->based || pos < s->base || pos - s->base >= DP_WINDOW || ring_grow(s, pos - s->base + 1) < 0)
        return NULL;
    for (; s->end <= pos; s->end++)
        s->ring[s->end & s->mask] = (struct split){0};
    return &s->ring[pos & s->mask];
}

/* What is passed, or thrown away: who holds it is told by the caller, with ranges. */
static void split_clear(struct split *x)
{
    for (int i = 0; i < 2 && x->holder[i]; i++) {
        struct seat *t = x->holder[i];
        t->n_held--;
        t->worker->n_held--;
        if (i == 0 && (x->flags & SPLIT_COMPLETE))
            t->n_complete--;
    }
    free(x->remnants);
    *x = (struct split){0};
}

/* Splits first .. end - 1 are nobody's any more. */
static void splits_pass(struct cw_dispatcher *d, struct stream *s, uint64_t first, uint64_t end)
{
    for (uint64_t pos = first; pos < end; pos++) {
        struct split *x = &s->ring[pos & s->mask];
        for (int i = 0; i < 2 && x->holder[i]; i++)
            cw_dp_seat_revoke(d, x->holder[i], first, end - first); /* one range for all that pass together; repeated ones are merged */
        struct seat *holder[2] = {x->holder[0], x->holder[1]};
        split_clear(x);
        for (int i = 0; i < 2 && holder[i]; i++)
            cw_dp_seat_usable(d, holder[i]);
    }
}

void cw_dp_split_clear(struct cw_dispatcher *d, struct stream *s)
{
    if (s->based)
        splits_pass(d, s, s->base, s->end);
    s->end = s->base;
    s->free_from = s->base;
    s->announce = false;
}

int cw_dp_split_rebase(struct cw_dispatcher *d, struct stream *s, uint64_t base)
{
    if (!s->based) {
        if (ring_grow(s, 1) < 0)
            return -1;
        s->base = s->end = s->free_from = s->purged = base;
        s->based = true;
    } else if (base > s->base) {
        splits_pass(d, s, s->base, CW_MIN(base, s->end));
        s->base = base;
        s->end = CW_MAX(s->end, base);
        s->free_from = CW_MAX(s->free_from, base);
    } else if (base < s->base) {
        /* Who goes back far (a job that begins again) has no use for what was computed ahead. */
        if (s->end - base > DP_WINDOW / 2)
            cw_dp_split_clear(d, s);
        if (s->end == s->base) {
            s->end = base;
        } else {
            if (ring_grow(s, s->end - base) < 0)
                return -1;
            for (uint64_t pos = base; pos < s->base; pos++)
                s->ring[pos & s->mask] = (struct split){0};
        }
        s->base = s->free_from = base;
        s->purged = CW_MIN(s->purged, base);
    }
    return 0;
}

void cw_dp_split_trim(struct stream *s)
{
    while (s->based && s->end > s->base) {
        struct split *x = &s->ring[(s->end - 1) & s->mask];
        if (x->holder[0] || x->flags != 0)
            break;
        s->end--;
    }
    s->free_from = CW_MIN(s->free_from, s->end);
}

/* Zeros at the end mean nothing. */
static size_t significant(const uint64_t *remnants, size_t n)
{
    while (n > 0 && remnants[n - 1] == 0)
        n--;
    return n;
}

int cw_dp_split_report(struct split *x, const uint64_t *remnants, size_t n, uint64_t n_batches)
{
    n = significant(remnants, n);
    uint64_t *copy = NULL;
    if (n > 0) {
        copy = malloc(n * sizeof(*copy));
        if (!copy)
            return -1;
        memcpy(copy, remnants, n * sizeof(*copy));
    }
    free(x->remnants);
    x->remnants = copy;
    x->n_remnants = (uint32_t)n;
    x->n_batches = n_batches;
    x->flags |= SPLIT_REPORTED;
    return 0;
}

bool cw_dp_split_same(const struct split *x, const uint64_t *remnants, size_t n, uint64_t n_batches)
{
    n = significant(remnants, n);
    return x->n_batches == n_batches && x->n_remnants == n && (n == 0 || memcmp(x->remnants, remnants, n * sizeof(*remnants)) == 0);
}

void cw_dp_split_lose(struct cw_dispatcher *d, struct stream *s, struct split *x)
{
    x->flags |= SPLIT_LOST;
    d->n_lost++;
    cw_dp_stream_reports(d, s);
}

void cw_dp_split_announce(struct cw_dispatcher *d, struct stream *s, uint64_t pos, struct split *x)
{
    x->flags |= SPLIT_ANNOUNCE;
    s->announce_first = s->announce ? CW_MIN(s->announce_first, pos) : pos;
    s->announce_end = s->announce ? CW_MAX(s->announce_end, pos + 1) : pos + 1;
    s->announce = true;
    cw_dp_stream_dirty(d, s);
}
