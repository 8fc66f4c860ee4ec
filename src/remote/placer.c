/* The placer decides which elements make which batch of an epoch of a placed pipeline: one whose batches
 * depend on which elements earlier ranges leave, after filters for example. No I/O; not thread-safe: the
 * owner locks. */
#include "remote/placer.h"

#include <string.h>

#include "base/array.h"

int cw_placer_init(struct cw_placer *w, unsigned n_keys, const uint64_t *sizes, bool drop_remainder,
                   const struct cw_entry *from, uint64_t end, struct cw_error *err)
{
    *w = (struct cw_placer){.n_keys = n_keys,
                            .sizes = sizes,
                            .drop_remainder = drop_remainder,
                            .begin = from->position,
                            .end = end,
                            .take = UINT64_MAX,
                            .last = &w->batches};
    if (!(w->taken = calloc(4 * (size_t)n_keys, sizeof(*w->taken))))
        return cw_error_nomem(err, 0, "the batches of an epoch");
    w->planned = w->taken + n_keys;
    w->seen = w->planned + n_keys;
    w->requested = w->seen + n_keys;
    for (unsigned k = 0; k < n_keys && from->skip; k++)
        w->taken[k] = w->planned[k] = from->skip[k];
    return 0;
}

void cw_placer_limit(struct cw_placer *w, const struct cw_entry *from, unsigned n_limits, uint64_t take)
{
    w->n_limits = n_limits;
    w->arrived = from->limits ? from->limits[0].count : 0;
    w->take = take - CW_MIN(w->arrived, take);
}

static void placer_range_deinit(struct placer_range *x)
{
    free(x->keys);
    free(x->before);
}

/* Frees the ranges from index `from` on. */
static void placer_forget_ranges(struct cw_placer *w, size_t from)
{
    for (size_t i = from; i < w->n_ranges; i++)
        placer_range_deinit(&w->ranges[i]);
    w->n_ranges = from;
}

static void placer_free_first_batch(struct cw_placer *w)
{
    free(CW_POP(w->batches));
    if (!w->batches)
        w->last = &w->batches;
    w->n_batches--;
}

void cw_placer_deinit(struct cw_placer *w)
{
    while (w->batches)
        placer_free_first_batch(w);
    placer_forget_ranges(w, 0);
    free(w->ranges);
    free(w->taken);
    *w = (struct cw_placer){0};
}

uint64_t cw_placer_position(const struct cw_placer *w)
{
    return w->n_ranges ? w->ranges[w->n_ranges - 1].end : w->begin;
}

int cw_placer_add(struct cw_placer *w, uint64_t end, struct cw_error *err)
{
    if (CW_ARRAY_ROOM(w->ranges, w->capacity, w->n_ranges + 1, "the ranges of an epoch", err) < 0)
        return CW_E_MEMORY;
    uint64_t *before = malloc(w->n_keys * sizeof(*before));
    if (!before)
        return cw_error_nomem(err, w->n_keys * sizeof(*before), "a range");
    memcpy(before, w->seen, w->n_keys * sizeof(*before));
    w->ranges[w->n_ranges] = (struct placer_range){
        .begin = cw_placer_position(w), .end = end, .before = before};
    w->n_ranges++;
    return 0;
}

/* Returns the begin of range i; i may be n_ranges, the range that is added next. */
static uint64_t placer_begin(const struct cw_placer *w, size_t i)
{
    return i < w->n_ranges ? w->ranges[i].begin : cw_placer_position(w);
}

/* ---- the plan ---- */

/* Returns the number of elements of a key before range i. The plan must have reached that range. */
static uint64_t placer_before(const struct cw_placer *w, size_t i, unsigned key)
{
    return i < w->n_ranges ? w->ranges[i].before[key] : w->seen[key];
}

/* Returns the index of the range that contains an element of a key, among the ranges that the plan has
 * reached; w->at + 1 if the element is in a later range. */
static size_t placer_range_of(const struct cw_placer *w, unsigned key, uint64_t element)
{
    return CW_FIRST(i, 1, w->at + 1, placer_before(w, i, key) > element) - 1;
}

/* Drops the planned batches that have elements from number limit[key] on. Returns how many planned batches
 * are left. */
static size_t placer_drop_behind(struct cw_placer *w, const uint64_t *limit)
{
    struct cw_placer_batch **at = &w->batches;
    size_t n = 0;
    memcpy(w->planned, w->taken, w->n_keys * sizeof(*w->planned));
    for (; *at && w->planned[(*at)->key] + (*at)->n <= limit[(*at)->key]; at = &(*at)->next, n++)
        w->planned[(*at)->key] += (*at)->n;
    struct cw_placer_batch *dropped = *at;
    *at = NULL;
    w->last = at;
    w->n_batches = n;
    while (dropped)
        free(CW_POP(dropped));
    return n;
}

int cw_placer_keys(struct placer_range *range, const uint16_t *keys, size_t n, struct cw_error *err)
{
    if (CW_ARRAY_ROOM(range->keys, range->room, range->n + n, "the keys of a range", err) < 0)
        return CW_E_MEMORY;
    if (n > 0)
        memcpy(range->keys + range->n, keys, n * sizeof(*keys));
    range->n += n;
    return 0;
}

size_t cw_placer_known(struct cw_placer *w, struct placer_range *range, uint64_t elements, bool failed)
{
    range->known = true;
    range->failed = failed;
    range->elements = elements;
    uint64_t end = range->before[0] + elements;
    return w->n_keys == 1 && range == &w->ranges[w->at] && end < w->planned[0] ? placer_drop_behind(w, &end)
                                                                               : w->n_batches;
}

uint64_t cw_placer_planned(const struct cw_placer *w, const struct placer_range *range)
{
    return range == &w->ranges[w->at] && w->planned[0] > range->before[0] ? w->planned[0] - range->before[0]
                                                                          : 0;
}

/* Plans a batch of the next n elements of a key that are in no batch yet. */
static int placer_add_batch(struct cw_placer *w, unsigned key, uint64_t n, const struct cw_placer_batch **ret,
                            struct cw_error *err)
{
    uint64_t from = w->planned[key], upto = from + n;
    size_t first = placer_range_of(w, key, from), last = first;
    while (last < w->at && placer_before(w, last + 1, key) < upto)
        last++;
    struct cw_placer_batch *b = malloc(sizeof(*b) + (last - first + 1) * sizeof(b->parts[0]));
    if (!b)
        return cw_error_nomem(err, sizeof(*b), "a batch");
    *b = (struct cw_placer_batch){.key = key, .n = n};
    for (size_t i = first; i <= last; i++) {
        uint64_t end = i == last ? upto : placer_before(w, i + 1, key);
        if (end > from)
            b->parts[b->n_parts++] = (struct cw_placer_part){
                .begin = w->ranges[i].begin, .from = from - placer_before(w, i, key), .n = end - from};
        from = end;
    }
    w->planned[key] = upto;
    *w->last = b;
    w->last = &b->next;
    w->n_batches++;
    *ret = b;
    return 0;
}

/* One key: returns the size of the next batch, assuming that ranges have enough elements; 0: `take` ends the
 * epoch before. */
static uint64_t placer_next_size(const struct cw_placer *w)
{
    uint64_t n = CW_MIN(w->sizes[0], w->take - w->planned[0]);
    return w->drop_remainder && n < w->sizes[0] ? 0 : n;
}

static bool placer_took_all(const struct cw_placer *w)
{
    return w->n_keys == 1 && placer_next_size(w) == 0;
}

/* Continues the plan with the elements of a range. 0: they completed a batch; 1: they did not. */
static int placer_plan_range(struct cw_placer *w, struct placer_range *range,
                             const struct cw_placer_batch **ret, struct cw_error *err)
{
    if (range->foreign && !range->known)
        return 1;
    if (w->n_keys == 1) {
        uint64_t n = placer_next_size(w);
        if (!range->known || range->before[0] + range->elements >= w->planned[0] + n)
            return placer_add_batch(w, 0, n, ret, err);
        w->seen[0] = range->before[0] + range->elements;
        return 1;
    }
    while (w->element < range->n) {
        unsigned key = range->keys[w->element];
        bool full = w->seen[key] + 1 == w->planned[key] + w->sizes[key];
        int r = full ? placer_add_batch(w, key, w->sizes[key], ret, err) : 1;
        if (r < 0)
            return r;
        w->seen[key]++;
        w->element++;
        if (full)
            return 0;
    }
    return 1;
}

int cw_placer_plan(struct cw_placer *w, const struct cw_placer_batch **ret, struct cw_error *err)
{
    if (placer_took_all(w))
        return 1;
    for (; w->at < w->n_ranges; w->at++) {
        struct placer_range *range = &w->ranges[w->at];
        if (!w->element)
            memcpy(range->before, w->seen, w->n_keys * sizeof(*range->before));
        int r = placer_plan_range(w, range, ret, err);
        if (r <= 0)
            return r;
        if (!range->known)
            return 2;
        if (range->failed)
            return 3;
        free(CW_STEAL(range->keys));
        w->element = 0;
    }
    if (cw_placer_position(w) < w->end)
        return 2;
    for (unsigned k = 0; k < w->n_keys && !w->drop_remainder; k++)
        if (w->seen[k] > w->planned[k])
            return placer_add_batch(w, k, w->seen[k] - w->planned[k], ret, err);
    return 1;
}

/* Returns the first element of a key that is in no batch, and was not requested. */
static uint64_t placer_first_waiting(const struct cw_placer *w, unsigned key)
{
    return CW_MAX(w->requested[key], w->planned[key]);
}

bool cw_placer_request(struct cw_placer *w, unsigned key, struct cw_placer_part *ret)
{
    uint64_t from = placer_first_waiting(w, key);
    if (from >= placer_before(w, w->at, key))
        return false;
    size_t i = placer_range_of(w, key, from);
    w->requested[key] = placer_before(w, i + 1, key);
    *ret = (struct cw_placer_part){
        .begin = w->ranges[i].begin, .from = from - placer_before(w, i, key), .n = w->requested[key] - from};
    return true;
}

uint64_t cw_placer_plan_position(const struct cw_placer *w)
{
    return placer_begin(w, w->at);
}

uint64_t cw_placer_needed(const struct cw_placer *w, bool waiting)
{
    size_t i = w->at;
    for (unsigned k = 0; k < w->n_keys && waiting; k++)
        i = placer_first_waiting(w, k) < w->seen[k]
                ? CW_MIN(i, placer_range_of(w, k, placer_first_waiting(w, k)))
                : i;
    return placer_begin(w, i);
}

bool cw_placer_over(const struct cw_placer *w)
{
    bool over = w->at == w->n_ranges && cw_placer_position(w) >= w->end;
    for (unsigned k = 0; k < w->n_keys && over && !w->drop_remainder; k++)
        over = w->seen[k] <= w->planned[k]; /* less, if elements that the entry leaves out were lost */
    return over || placer_took_all(w);
}

bool cw_placer_certain(const struct cw_placer *w)
{
    return w->n_keys > 1 || w->at == w->n_ranges || w->ranges[w->at].known ||
           w->taken[0] + w->batches->n <= w->ranges[w->at].before[0];
}

/* ---- batches that were taken ---- */

/* Returns the index of the first range that may have an element that is in no taken batch. */
static size_t placer_first_needed(const struct cw_placer *w)
{
    size_t least = w->at;
    for (unsigned k = 0; k < w->n_keys && least; k++)
        least = CW_MIN(least, placer_range_of(w, k, w->taken[k]));
    return least;
}

void cw_placer_take(struct cw_placer *w)
{
    w->taken[w->batches->key] += w->batches->n;
    placer_free_first_batch(w);
    size_t n = placer_first_needed(w);
    if (n == w->n_ranges && n) /* the last range stays, because the placer's position is its end */
        n--;
    for (size_t i = 0; i < n; i++)
        placer_range_deinit(&w->ranges[i]);
    if (n)
        memmove(w->ranges, w->ranges + n, (w->n_ranges - n) * sizeof(*w->ranges));
    w->n_ranges -= n;
    w->at -= n;
}

void cw_placer_entry(const struct cw_placer *w, struct cw_entry *ret)
{
    size_t i = placer_first_needed(w);
    ret->position = placer_begin(w, i);
    for (unsigned k = 0; k < w->n_keys; k++)
        ret->skip[k] = w->taken[k] - placer_before(w, i, k);
    for (unsigned k = 0; k < w->n_limits; k++)
        ret->limits[k] = (struct cw_limit_count){.started = true,
                                                 .count = w->arrived + placer_before(w, i, 0)};
}

uint64_t cw_placer_differs(const struct cw_placer *w, uint64_t begin, uint64_t end)
{
    for (size_t i = 0; i < w->n_ranges; i++) {
        const struct placer_range *x = &w->ranges[i];
        if (x->begin < end && x->end > begin && (x->begin != begin || x->end != end))
            return x->begin;
    }
    return UINT64_MAX;
}

bool cw_placer_shorten(struct cw_placer *w, uint64_t begin, uint64_t end)
{
    size_t i = w->at;
    while (i < w->n_ranges && w->ranges[i].begin < begin)
        i++;
    if (i == w->n_ranges || w->ranges[i].begin != begin || w->ranges[i].known || w->ranges[i].n > 0)
        return false;
    w->ranges[i].end = end;
    placer_forget_ranges(w, i + 1);
    return true;
}

bool cw_placer_cut(struct cw_placer *w, uint64_t position)
{
    size_t i = 0;
    while (i < w->n_ranges && w->ranges[i].end <= position)
        i++;
    for (unsigned k = 0; i <= w->at && i < w->n_ranges && k < w->n_keys; k++)
        if (w->taken[k] > w->ranges[i].before[k])
            return false;
    if (i < w->at || (i == w->at && i < w->n_ranges)) {
        placer_drop_behind(w, w->ranges[i].before);
        memcpy(w->seen, w->ranges[i].before, w->n_keys * sizeof(*w->seen));
        for (unsigned k = 0; k < w->n_keys; k++)
            w->requested[k] = CW_MIN(w->requested[k], w->seen[k]);
        w->at = i;
        w->element = 0;
    }
    if (i == 0 && w->n_ranges) /* without ranges, the placer continues from w->begin */
        w->begin = w->ranges[0].begin;
    placer_forget_ranges(w, i);
    return true;
}
