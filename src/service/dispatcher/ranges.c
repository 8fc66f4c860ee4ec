/*
 * The table of a stream's ranges: an array in the order of positions. Ranges that all cursors have passed are
 * taken off at the front; new ranges are mostly added at the end.
 */
#include <string.h>

#include "base/array.h"
#include "service/dispatcher/internal.h"

struct range *cw_dp_range_at(const struct stream *s, size_t i)
{
    return i < s->n_ranges ? &s->ranges[s->first + i] : NULL;
}

size_t cw_dp_range_index(const struct stream *s, uint64_t pos)
{
    return CW_FIRST(i, 0, s->n_ranges, s->ranges[s->first + i].end > pos);
}

struct range *cw_dp_range(const struct stream *s, uint64_t pos)
{
    struct range *x = cw_dp_range_at(s, cw_dp_range_index(s, pos));
    return x && x->begin <= pos ? x : NULL;
}

uint64_t cw_dp_range_begin(const struct stream *s)
{
    return s->n_ranges > 0 ? CW_MIN(s->base, s->ranges[s->first].begin) : s->base;
}

uint64_t cw_dp_range_end(const struct stream *s)
{
    return s->n_ranges > 0 ? s->ranges[s->first + s->n_ranges - 1].end : s->base;
}

/* Makes room for one range more at the end. < 0: no memory. */
static int table_grow(struct stream *s)
{
    if (s->first + s->n_ranges == s->room && s->first >= s->n_ranges && s->first > 0) {
        memmove(s->ranges, s->ranges + s->first, s->n_ranges * sizeof(*s->ranges));
        s->first = 0;
    }
    return CW_ARRAY_ROOM(s->ranges, s->room, s->first + s->n_ranges + 1, "ranges", NULL);
}

struct range *cw_dp_range_add(struct stream *s, struct span span)
{
    size_t i = cw_dp_range_index(s, span.begin);
    const struct range *next = cw_dp_range_at(s, i);
    if (!s->based || (next && next->begin < span.end) || s->n_ranges >= DP_RANGES || table_grow(s) < 0)
        return NULL;
    struct range *x = &s->ranges[s->first + i];
    memmove(x + 1, x, (s->n_ranges - i) * sizeof(*x));
    *x = (struct range){.begin = span.begin, .end = span.end, .number = ++s->numbers};
    s->n_ranges++;
    return x;
}

/* Takes the range from its holders, which the caller tells. */
static void range_clear(struct cw_dispatcher *d, struct range *x)
{
    for (int i = 0; i < 2 && x->holder[i].assignment; i++) {
        struct assignment *t = x->holder[i].assignment;
        t->n_held--;
        t->worker->n_held--;
        if (i == 0 && (x->flags & RANGE_COMPLETE))
            t->n_complete--;
        else
            t->to_compute -= x->end - x->begin;
        cw_dp_assignment_usable(d, t);
    }
    free(x->elements);
    *x = (struct range){0};
}

/* Takes the first n ranges out of the table, and revokes them. */
static void ranges_pass(struct cw_dispatcher *d, struct stream *s, size_t n)
{
    if (n == 0)
        return;
    struct range *x = &s->ranges[s->first];
    uint64_t begin = x->begin, end = x[n - 1].end;
    for (size_t i = 0; i < n; i++, x++) {
        for (int k = 0; k < 2 && x->holder[k].assignment; k++)
            /* one span for all of them: repeated ones are merged */
            cw_dp_assignment_revoke(d, x->holder[k].assignment, begin, end);
        range_clear(d, x);
    }
    s->first += n;
    s->n_ranges -= n;
    s->n_passed += n;
}

void cw_dp_range_clear(struct cw_dispatcher *d, struct stream *s)
{
    ranges_pass(d, s, s->n_ranges);
    s->first = 0;
    s->free_from = s->base;
    s->announce = false;
}

int cw_dp_range_rebase(struct cw_dispatcher *d, struct stream *s, uint64_t base)
{
    if (!s->based) {
        if (table_grow(s) < 0)
            return -1;
        s->base = s->free_from = base;
        s->based = true;
        return 0;
    }
    if (base < s->base && s->n_ranges > DP_RANGES / 2)
        cw_dp_range_clear(d, s); /* a job that goes back has no use for ranges far ahead */
    ranges_pass(d, s, cw_dp_range_index(s, base));
    s->free_from = base < s->base ? base : CW_MAX(s->free_from, base);
    s->base = base;
    return 0;
}

void cw_dp_range_begin_at(struct cw_dispatcher *d, struct stream *s, uint64_t pos)
{
    struct range *x = cw_dp_range(s, pos);
    s->begun_to = CW_MAX(s->begun_to, pos);
    if (!x || x->begin == pos || !cw_dp_stream_placed(s) || s->at_most_once)
        return;
    while (x->holder[0].assignment)
        cw_dp_lease_drop(d, x->holder[0].assignment, x, DROP_REVOKED);
    struct span behind = {pos, x->end};
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        for (size_t i = 0; i < j->n_ranks; i++)
            if (j->ranks[i]->next_report > x->begin)
                j->ranks[i]->next_report = CW_MAX(x->begin, j->ranks[i]->pos);
    if (x->flags & RANGE_REPORTED)
        cw_dp_journal_tried(d, cw_dp_journal_range_gone(d, s, x->begin, NULL));
    free(x->elements);
    *x = (struct range){.begin = x->begin, .end = pos, .number = ++s->numbers};
    cw_dp_range_announce(d, s, x);
    x = cw_dp_range_add(s, behind);
    if (x) /* else these positions are a gap, which is cut when it is leased */
        cw_dp_range_announce(d, s, x);
}

/* Zeros at the end mean nothing. */
static size_t significant(const uint64_t *elements, size_t n)
{
    while (n > 0 && elements[n - 1] == 0)
        n--;
    return n;
}

int cw_dp_range_report(struct range *x, const uint64_t *elements, size_t n, uint64_t n_batches)
{
    n = significant(elements, n);
    uint64_t *copy = n > 0 ? malloc(n * sizeof(*copy)) : NULL;
    if (n > 0 && !copy)
        return -1;
    if (n > 0)
        memcpy(copy, elements, n * sizeof(*copy));
    free(x->elements);
    x->elements = copy;
    x->n_elements = (uint32_t)n;
    x->n_batches = n_batches;
    x->flags |= RANGE_REPORTED;
    return 0;
}

bool cw_dp_range_same(const struct range *x, const uint64_t *elements, size_t n, uint64_t n_batches)
{
    n = significant(elements, n);
    if (x->n_batches != n_batches || x->n_elements != n)
        return false;
    return n == 0 || memcmp(x->elements, elements, n * sizeof(*elements)) == 0;
}

void cw_dp_range_lose(struct cw_dispatcher *d, struct stream *s, struct range *x)
{
    x->flags |= RANGE_LOST;
    d->n_lost++;
    cw_dp_stream_reports(d, s);
}

void cw_dp_range_announce(struct cw_dispatcher *d, struct stream *s, struct range *x)
{
    x->flags |= RANGE_ANNOUNCE;
    s->announce_first = s->announce ? CW_MIN(s->announce_first, x->begin) : x->begin;
    s->announce_end = s->announce ? CW_MAX(s->announce_end, x->end) : x->end;
    s->announce = true;
    cw_dp_stream_dirty(d, s);
}
