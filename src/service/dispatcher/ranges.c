/* The table of a stream's ranges. Does not depend on streams or workers. */
#include "service/dispatcher/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "service/dispatcher/limits.h"

struct range *cw_dp_range_at(const struct range_table *t, size_t i)
{
    return i < t->n ? &t->items[t->first + i] : NULL;
}

struct range *cw_dp_range_next(const struct range_table *t, const struct range *x)
{
    return cw_dp_range_at(t, (size_t)(x - t->items) - t->first + 1);
}

size_t cw_dp_range_index(const struct range_table *t, uint64_t pos)
{
    return CW_FIRST(i, 0, t->n, t->items[t->first + i].end > pos);
}

struct range *cw_dp_range_find(const struct range_table *t, uint64_t pos)
{
    struct range *x = cw_dp_range_at(t, cw_dp_range_index(t, pos));
    return x && x->begin <= pos ? x : NULL;
}

uint64_t cw_dp_range_begin(const struct range_table *t)
{
    return t->n > 0 ? CW_MIN(t->base, t->items[t->first].begin) : t->base;
}

uint64_t cw_dp_range_end(const struct range_table *t)
{
    return t->n > 0 ? t->items[t->first + t->n - 1].end : t->base;
}

/* Makes room for one more range at the end. -1: no memory. */
static int range_room(struct range_table *t)
{
    if (t->first + t->n == t->room && t->first >= t->n && t->first > 0) {
        memmove(t->items, t->items + t->first, t->n * sizeof(*t->items));
        t->first = 0;
    }
    return CW_ARRAY_ROOM(t->items, t->room, t->first + t->n + 1, "ranges", NULL);
}

struct range *cw_dp_range_add(struct range_table *t, struct span span)
{
    size_t i = cw_dp_range_index(t, span.begin);
    const struct range *next = cw_dp_range_at(t, i);
    if (t->state == RANGES_UNPLACED || (next && next->begin < span.end) || t->n >= DP_RANGES ||
        range_room(t) < 0)
        return NULL;
    struct range *x = &t->items[t->first + i];
    memmove(x + 1, x, (t->n - i) * sizeof(*x));
    *x = (struct range){.begin = span.begin, .end = span.end, .number = ++t->last_number};
    t->n++;
    return x;
}

/* ---- reports ---- */

/* Returns n without the zeros at the end of the array. */
static size_t elements_significant(const uint64_t *elements, size_t n)
{
    while (n > 0 && elements[n - 1] == 0)
        n--;
    return n;
}

int cw_dp_range_report(struct range *x, const uint64_t *elements, size_t n, uint64_t n_batches)
{
    n = elements_significant(elements, n);
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
    n = elements_significant(elements, n);
    return x->n_batches == n_batches && x->n_elements == n &&
           (n == 0 || memcmp(x->elements, elements, n * sizeof(*elements)) == 0);
}

uint64_t cw_dp_elements_sum(const uint64_t *elements, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += elements[i];
    return sum;
}
