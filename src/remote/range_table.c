/* The table of ranges of positions that the dispatcher named, sorted by epoch and position; ranges do not
 * overlap. Part of struct remote, whose mutex guards it. placement.c changes it; courses, requests and
 * arrivals look ranges up. */
#include "remote/range_table.h"

#include <string.h>

#include "base/array.h"

#define MAX_RANGES ((size_t)1 << 22) /* a dispatcher that names more ranges is faulty */

/* Returns the index of the first range that ends after a position. */
static size_t range_table_index(const struct range_table *t, uint64_t epoch, uint64_t position)
{
    const struct known_range *x = t->list;
    return CW_FIRST(i, 0, t->n, x[i].epoch > epoch || (x[i].epoch == epoch && x[i].end > position));
}

struct known_range *cw_range_table_find(const struct range_table *t, uint64_t epoch, uint64_t position)
{
    size_t n, i = cw_range_table_overlap(t, epoch, position, position + 1, &n);
    return n ? &t->list[i] : NULL;
}

size_t cw_range_table_overlap(const struct range_table *t, uint64_t epoch, uint64_t begin, uint64_t end,
                              size_t *ret_n)
{
    size_t i = range_table_index(t, epoch, begin), last = i;
    while (last < t->n && t->list[last].epoch == epoch && t->list[last].begin < end)
        last++;
    *ret_n = last - i;
    return i;
}

static void range_table_remove(struct range_table *t, size_t at, size_t n)
{
    if (n) /* t->list may be NULL otherwise */
        memmove(t->list + at, t->list + at + n, (t->n - at - n) * sizeof(*t->list));
    t->n -= n;
}

struct known_range *cw_range_table_replace(struct range_table *t, size_t at, size_t n, uint64_t epoch,
                                           uint64_t begin, uint64_t end)
{
    range_table_remove(t, at, n);
    if (t->n == MAX_RANGES || CW_ARRAY_ROOM(t->list, t->capacity, t->n + 1, "ranges", NULL) < 0)
        return NULL;
    struct known_range *x = &t->list[at];
    memmove(x + 1, x, (t->n++ - at) * sizeof(*x));
    *x = (struct known_range){.epoch = epoch, .begin = begin, .end = end};
    return x;
}

void cw_range_table_forget(struct range_table *t, struct epoch_position before)
{
    range_table_remove(t, 0, range_table_index(t, before.epoch, before.position));
}
