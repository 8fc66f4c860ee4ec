/*
 * The permutations of an epoch's shuffles that are tables: the order of a shuffle's positions or chunks in a
 * pass, and the order within a window. Those in use are kept as long as memory allows, so that a shuffle of a
 * shuffle, which meets the windows below it in any order, makes each of them about once. One thread at a time
 * uses them.
 */
#pragma once
#include "base/permutation.h"
#include "dataset/seq.h"

#define CW_ORDER_CHUNKS UINT64_MAX /* in place of a window */

struct cw_order {
    struct cw_order *next; /* of the same slot of the table */
    const struct cw_seq *node;
    uint64_t pass, window;
    uint32_t *at;   /* the k-th thing of the result is thing at[k] */
    uint64_t *ends; /* of chunks: cumulative positions; NULL where every chunk is one position */
    size_t charged;
    uint64_t used; /* the call it was last used in */
    unsigned held;
    bool kept; /* in the table */
};

struct cw_orders {
    struct cw_order **slots;  /* a hash table; NULL: empty */
    size_t n_slots, n, bytes; /* bytes: charged for what is kept */
    struct cw_order **latest; /* by shuffle: the chunks of the pass used last, which are kept in any case */
    uint64_t call, swept; /* counts calls of cw_epoch_refs; the one in which old ones were last looked for */
};

int cw_orders_new(const struct cw_sequence *s, struct cw_orders **ret, struct cw_error *err) _must_check_;
void cw_orders_free(struct cw_epoch *e);

/* The order of a shuffle's chunks (window CW_ORDER_CHUNKS) or of a window's positions in a pass; valid until
 * it is given back. */
int cw_order_get(struct cw_epoch *e, const struct cw_seq *node, uint64_t pass, uint64_t window,
                 struct cw_order **ret, struct cw_error *err) _must_check_;
void cw_order_put(struct cw_epoch *e, struct cw_order *o);

/* Key of the permutation of a shuffle's positions or chunks (level 0) or of a window (level 1). */
uint64_t cw_shuffle_key(const struct cw_epoch *e, const char *salt, bool reshuffle, uint64_t pass,
                        uint64_t level, uint64_t window);
/* The permutation of all positions of a shuffle of kind SHUFFLE_NETWORK in a pass. */
void cw_shuffle_network(const struct cw_epoch *e, const struct cw_seq *node, uint64_t pass,
                        struct cw_permutation *ret);

/* Positions of the child where chunk k begins and ends. */
static inline uint64_t cw_chunk_begin(const struct cw_seq *s, uint64_t k)
{
    return s->ends ? (k ? s->ends[k - 1] : 0) : k * s->uniform;
}

static inline uint64_t cw_chunk_end(const struct cw_seq *s, uint64_t k)
{
    return s->ends ? s->ends[k] : CW_MIN((k + 1) * s->uniform, s->children[0]->n);
}
