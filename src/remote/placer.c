/* The placer decides which elements make which batch of an epoch of a placed pipeline: one whose batches
 * depend on which elements earlier ranges leave, after filters for example. No I/O; not thread-safe: the
 * owner locks. */
#include "remote/placer.h"

#include <string.h>

#include "base/array.h"

int cw_placer_init(struct cw_placer *w, unsigned n_keys, const uint64_t *sizes,
                   const struct cw_grouping *grouping, const struct cw_entry *from, uint64_t end,
                   struct cw_error *err)
{
    *w = (struct cw_placer){.n_keys = n_keys,
                            .sizes = sizes,
                            .grouping = *grouping,
                            .group_given = from->group_given,
                            .group_key = from->group_key,
                            .begin = from->position,
                            .end = end,
                            .take = UINT64_MAX,
                            .last = &w->batches};
    if (!(w->taken = calloc(5 * (size_t)n_keys, sizeof(*w->taken))))
        return cw_error_nomem(err, 0, "the batches of an epoch");
    w->planned = w->taken + n_keys;
    w->seen = w->planned + n_keys;
    w->requested = w->seen + n_keys;
    w->waiting = w->requested + n_keys;
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

/* Counts the elements of a batch by key. */
static void placer_count(const struct cw_placer_batch *b, uint64_t *counts)
{
    for (size_t i = 0; i < b->n_parts; i++)
        counts[b->parts[i].key] += b->parts[i].n;
}

/* Returns whether the next planned batch has no elements from number limit[key] on. */
static bool placer_batch_within(struct cw_placer *w, const struct cw_placer_batch *b, const uint64_t *limit)
{
    bool within = true;
    placer_count(b, w->planned);
    for (size_t i = 0; i < b->n_parts; i++)
        within &= w->planned[b->parts[i].key] <= limit[b->parts[i].key];
    for (size_t i = 0; i < b->n_parts; i++)
        w->planned[b->parts[i].key] -= b->parts[i].n;
    return within;
}

/* Drops the planned batches that have elements from number limit[key] on. Returns how many planned batches
 * are left. */
static size_t placer_drop_behind(struct cw_placer *w, const uint64_t *limit)
{
    struct cw_placer_batch **at = &w->batches;
    size_t n = 0;
    memcpy(w->planned, w->taken, w->n_keys * sizeof(*w->planned));
    for (; *at && placer_batch_within(w, *at, limit); at = &(*at)->next, n++)
        placer_count(*at, w->planned);
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

/* Returns the number of parts that the next n elements of a key have, which are in no batch yet. Writes them
 * to `parts` unless it is NULL. */
static size_t placer_parts(const struct cw_placer *w, unsigned key, uint64_t n, struct cw_placer_part *parts)
{
    uint64_t from = w->planned[key], upto = from + n;
    size_t n_parts = 0;
    for (size_t i = placer_range_of(w, key, from); from < upto; i++) {
        uint64_t end = i < w->at ? CW_MIN(upto, placer_before(w, i + 1, key)) : upto;
        for (; from < end; n_parts++) {
            uint64_t m = CW_MIN(end - from, w->sizes[key]);
            if (parts)
                parts[n_parts] = (struct cw_placer_part){
                    .key = key, .begin = w->ranges[i].begin, .from = from - placer_before(w, i, key), .n = m};
            from += m;
        }
    }
    return n_parts;
}

/* Returns the number of elements of a key that are in no batch, among those that the plan has passed. */
static uint64_t placer_waiting(const struct cw_placer *w, unsigned key)
{
    return w->seen[key] > w->planned[key] ? w->seen[key] - w->planned[key] : 0;
}

/* Plans a batch of the next n elements of a key that are in no batch yet. rest: at the end of an epoch, where
 * there may be fewer; then elements of smaller keys follow, in descending order. */
static int placer_add_batch(struct cw_placer *w, unsigned key, uint64_t n, bool rest,
                            const struct cw_placer_batch **ret, struct cw_error *err)
{
    size_t n_parts = 0;
    uint64_t left = n, share;
    for (unsigned k = key + 1; k-- > 0 && left > 0; left -= share) {
        share = rest ? CW_MIN(left, placer_waiting(w, k)) : left;
        n_parts += placer_parts(w, k, share, NULL);
    }
    struct cw_placer_batch *b = malloc(sizeof(*b) + n_parts * sizeof(b->parts[0]));
    if (!b)
        return cw_error_nomem(err, sizeof(*b), "a batch");
    *b = (struct cw_placer_batch){.key = key, .n = left = n};
    for (unsigned k = key + 1; k-- > 0 && left > 0; left -= share) {
        share = rest ? CW_MIN(left, placer_waiting(w, k)) : left;
        b->n_parts += placer_parts(w, k, share, b->parts + b->n_parts);
        w->planned[k] += share;
    }
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
    return w->grouping.full_only && n < w->sizes[0] ? 0 : n;
}

static bool placer_took_all(const struct cw_placer *w)
{
    return w->n_keys == 1 && placer_next_size(w) == 0;
}

unsigned cw_placer_group(const struct cw_placer *w, unsigned *ret)
{
    const struct cw_placer_batch *b = w->batches;
    while (b && b->next)
        b = b->next;
    *ret = b ? b->key : w->group_key;
    return (unsigned)((w->group_given + w->n_batches) % w->grouping.size);
}

/* Returns whether the group that the key begins, or has begun with `given` batches, is full once the plan has
 * passed `seen` elements of the key. */
static bool placer_fills_group(const struct cw_placer *w, unsigned key, unsigned given, uint64_t seen)
{
    return seen >= w->planned[key] + (w->grouping.size - given) * w->sizes[key];
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
            return placer_add_batch(w, 0, n, false, ret, err);
        w->seen[0] = range->before[0] + range->elements;
        return 1;
    }
    unsigned begun, given = cw_placer_group(w, &begun);
    while (w->element < range->n) {
        unsigned key = range->keys[w->element];
        bool full = placer_fills_group(w, key, key == begun ? given : 0, w->seen[key] + 1);
        int r = full ? placer_add_batch(w, key, w->sizes[key], false, ret, err) : 1;
        if (r < 0)
            return r;
        w->seen[key]++;
        w->element++;
        if (full)
            return 0;
    }
    return 1;
}

/* Returns the size of the next batch at the end of the epoch, and sets *ret to its key; 0: there is none. */
static uint64_t placer_rest(const struct cw_placer *w, unsigned *ret)
{
    unsigned begun, given = cw_placer_group(w, &begun);
    for (unsigned k = 0; k < w->n_keys; k++)
        w->waiting[k] = placer_waiting(w, k);
    return cw_grouping_rest(&w->grouping, w->n_keys, w->sizes, w->waiting, begun, given, ret);
}

int cw_placer_plan(struct cw_placer *w, const struct cw_placer_batch **ret, struct cw_error *err)
{
    unsigned begun, given = cw_placer_group(w, &begun);
    if (placer_took_all(w))
        return 1;
    if (given && placer_fills_group(w, begun, given, w->seen[begun]))
        return placer_add_batch(w, begun, w->sizes[begun], false, ret, err);
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
    unsigned key;
    uint64_t n = placer_rest(w, &key);
    return n ? placer_add_batch(w, key, n, true, ret, err) : 1;
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
    uint64_t size = w->sizes[key], end = w->planned[key] + ((from - w->planned[key]) / size + 1) * size;
    w->requested[key] = CW_MIN(end, placer_before(w, i + 1, key));
    *ret = (struct cw_placer_part){.key = key,
                                   .begin = w->ranges[i].begin,
                                   .from = from - placer_before(w, i, key),
                                   .n = w->requested[key] - from};
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
    unsigned key;
    bool passed = w->at == w->n_ranges && cw_placer_position(w) >= w->end;
    return (passed && placer_rest(w, &key) == 0) || placer_took_all(w);
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
    placer_count(w->batches, w->taken);
    w->group_given = (w->group_given + 1) % w->grouping.size;
    w->group_key = w->group_given ? w->batches->key : 0;
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
    ret->group_given = w->group_given;
    ret->group_key = w->group_key;
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
