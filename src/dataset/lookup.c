/*
 * Positions in any order to records, many at a time: what a shuffle whose input is shuffled itself asks for.
 * All of them go down the tree together, so that a window of a shuffle on the way serves every position that
 * lies in it.
 */
#include <string.h>

#include "dataset/orders.h"

struct lookup {
    struct cw_epoch *epoch;
    struct cw_ref *refs; /* position (row) and pass of each, then its record */
    uint32_t *sorted;    /* as many as refs */
    uint32_t *counts;    /* mask + 1 */
    uint64_t mask;
    struct cw_error *err;
};

/* Where a position of a shuffle lies: its window, numbered through all passes. */
static uint64_t place(const struct cw_seq *s, uint64_t size, const struct cw_ref *r)
{
    uint64_t windows = s->shuffle == SHUFFLE_CHUNKS ? (s->n + size - 1) / size : 1;
    return cw_ref_pass(r) * windows + (s->shuffle == SHUFFLE_CHUNKS ? r->row / size : 0);
}

/* Sorts the indices so that positions of one window are neighbours. With more windows than counts some share
 * one: their positions mix, which takes more time and changes nothing. */
static void group(const struct lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    uint64_t size = l->epoch->sequence->window, mask = l->mask;
    while (mask > n)
        mask >>= 1;
    memset(l->counts, 0, (mask + 1) * sizeof(*l->counts));
    for (uint64_t i = 0; i < n; i++)
        l->counts[place(s, size, &l->refs[index[i]]) & mask]++;
    uint32_t before = 0;
    for (uint64_t k = 0; k <= mask; k++) {
        uint32_t count = l->counts[k];
        l->counts[k] = before;
        before += count;
    }
    for (uint64_t i = 0; i < n; i++)
        l->sorted[l->counts[place(s, size, &l->refs[index[i]]) & mask]++] = index[i];
    memcpy(index, l->sorted, n * sizeof(*index));
}

/* The chunk in [low, high) that holds a position of the permuted chunks: the first that ends after it. */
static uint64_t chunk_at(const struct cw_order *o, uint64_t low, uint64_t high, uint64_t position)
{
    return CW_FIRST(i, low, high, o->ends[i] > position);
}

/* Positions of one window of a shuffle become those of its input. */
static int pass_window(struct lookup *l, const struct cw_seq *s, const struct cw_order *chunks,
                       uint64_t window, const uint32_t *index, uint64_t n)
{
    uint64_t size = l->epoch->sequence->window, from = window * size, last = CW_MIN(from + size, s->n) - 1;
    uint64_t low = chunk_at(chunks, 0, s->n_chunks, from), high = chunk_at(chunks, low, s->n_chunks, last);
    struct cw_order *o;
    int r = cw_order_get(l->epoch, s, chunks->pass, window, &o, l->err);
    if (r < 0)
        return r;
    for (uint64_t i = 0; i < n; i++) {
        struct cw_ref *ref = &l->refs[index[i]];
        uint64_t position = from + o->at[ref->row - from], k = chunk_at(chunks, low, high, position);
        ref->row = cw_chunk_begin(s, chunks->at[k]) + position - (k ? chunks->ends[k - 1] : 0);
    }
    cw_order_put(l->epoch, o);
    return 0;
}

/* Positions of a shuffle of kind SHUFFLE_NETWORK in one pass become those of its input. */
static void pass_network(struct lookup *l, const struct cw_seq *s, uint64_t pass, const uint32_t *index,
                         uint64_t n)
{
    struct cw_permutation p;
    uint64_t at[256];
    cw_shuffle_network(l->epoch, s, pass, &p);
    for (uint64_t i = 0; i < n; i += CW_COUNT_OF(at)) {
        uint64_t m = CW_MIN(n - i, CW_COUNT_OF(at));
        for (uint64_t k = 0; k < m; k++)
            at[k] = l->refs[index[i + k]].row;
        cw_permutation_map(&p, at, m);
        for (uint64_t k = 0; k < m; k++)
            l->refs[index[i + k]].row = at[k];
    }
}

/* Positions of one pass of a shuffle with an order, those of a window standing together, become those of its
 * input. */
static int pass_chunks(struct lookup *l, const struct cw_seq *s, uint64_t pass, const uint32_t *index,
                       uint64_t n)
{
    uint64_t size = l->epoch->sequence->window;
    struct cw_order *chunks;
    int r = cw_order_get(l->epoch, s, pass, CW_ORDER_CHUNKS, &chunks, l->err);
    if (r < 0)
        return r;
    for (uint64_t i = 0; s->shuffle == SHUFFLE_TABLE && i < n; i++)
        l->refs[index[i]].row = chunks->at[l->refs[index[i]].row];
    for (uint64_t i = 0, end; s->shuffle == SHUFFLE_CHUNKS && i < n && r >= 0; i = end) {
        uint64_t window = l->refs[index[i]].row / size;
        for (end = i + 1; end < n && l->refs[index[end]].row / size == window; end++)
            ;
        r = pass_window(l, s, chunks, window, index + i, end - i);
    }
    cw_order_put(l->epoch, chunks);
    return r;
}

static int look_up(struct lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n);

static int in_shuffle(struct lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    int r = 0;
    group(l, s, index, n);
    for (uint64_t i = 0, end; i < n && r >= 0; i = end) {
        uint64_t pass = cw_ref_pass(&l->refs[index[i]]);
        for (end = i + 1; end < n && cw_ref_pass(&l->refs[index[end]]) == pass; end++)
            ;
        if (s->shuffle == SHUFFLE_NETWORK)
            pass_network(l, s, pass, index + i, end - i);
        else
            r = pass_chunks(l, s, pass, index + i, end - i);
    }
    return r < 0 ? r : look_up(l, s->children[0], index, n);
}

static int in_concat(struct lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    int r = 0;
    for (size_t k = 0; k < s->n_children && n > 0 && r >= 0; k++) {
        uint64_t here = 0, size = s->children[k]->n;
        for (uint64_t i = 0; i < n; i++) {
            uint32_t at = index[i];
            if (l->refs[at].row < size) {
                index[i] = index[here];
                index[here++] = at;
            } else {
                l->refs[at].row -= size;
            }
        }
        r = here ? look_up(l, s->children[k], index, here) : 0;
        index += here;
        n -= here;
    }
    return r;
}

/* refs[index[i]] for i < n are positions of s. Leaves the indices in another order. */
static int look_up(struct lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    switch (s->kind) {
    case SEQ_SOURCE:
        for (uint64_t i = 0; i < n; i++)
            l->refs[index[i]].leaf = s->leaf;
        return 0;
    case SEQ_CUT:
        for (uint64_t i = 0; i < n; i++)
            l->refs[index[i]].row += s->from;
        return look_up(l, s->children[0], index, n);
    case SEQ_REPEAT:
        for (uint64_t i = 0, size = s->children[0]->n; i < n; i++) {
            struct cw_ref *r = &l->refs[index[i]];
            uint64_t o = r->row / size, combined = s->count >= CW_ENDLESS ? o : o + s->count * cw_ref_pass(r);
            if (combined >> 32) /* of an endless one; finite ones were checked */
                return cw_too_many_passes(combined, l->err);
            *r = cw_ref_at(r->row % size, combined);
        }
        return look_up(l, s->children[0], index, n);
    case SEQ_CONCAT:
        return in_concat(l, s, index, n);
    case SEQ_SHUFFLE:
        return in_shuffle(l, s, index, n);
    }
    return 0;
}

int cw_seq_lookup(struct cw_epoch *e, const struct cw_seq *s, struct cw_ref *refs, uint64_t n,
                  struct cw_error *err)
{
    uint64_t mask = 0;
    while (mask * 2 + 1 < n)
        mask = mask * 2 + 1;
    size_t bytes = (2 * n + mask + 1) * sizeof(uint32_t);
    int r = cw_budget_take(e->budget, bytes, "the plan of a range", err);
    if (r < 0)
        return r;
    _cleanup_free_ uint32_t *index = malloc(bytes);
    if (index) {
        struct lookup l = {
            .epoch = e, .refs = refs, .sorted = index + n, .counts = index + 2 * n, .mask = mask, .err = err};
        for (uint64_t i = 0; i < n; i++)
            index[i] = (uint32_t)i;
        r = look_up(&l, s, index, n);
    } else {
        r = cw_error_nomem(err, bytes, "the plan of a range");
    }
    cw_budget_give(e->budget, bytes);
    return r;
}
