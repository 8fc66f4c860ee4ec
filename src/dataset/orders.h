/*
 * The permutations of an epoch's shuffles that are stored as tables ("orders"): the order of a shuffle's
 * positions or chunks in a pass, and the order within a window. Tables are kept as long as the memory budget
 * allows. A shuffle of a shuffle needs the windows of the inner shuffle in any order; so it makes each
 * window's table about once. Only one thread at a time uses the orders of an epoch.
 */
#pragma once
#include "base/permutation.h"
#include "dataset/seq.h"

#define CW_ORDER_CHUNKS UINT64_MAX /* in place of a window's number: the order of the chunks */

enum cw_shuffle_kind {
    CW_SHUFFLE_TABLE,   /* permutes all positions, by one table for each pass */
    CW_SHUFFLE_NETWORK, /* permutes all positions without a table: base/permutation.h computes each */
    CW_SHUFFLE_CHUNKS,  /* permutes the chunks of its input, then the positions of each window */
};

/* How a shuffle permutes (docs/semantics.md, section 4). */
struct cw_shuffle {
    enum cw_shuffle_kind kind;
    unsigned id;       /* number among the sequence's shuffles, below n_shuffles */
    unsigned position; /* of the operator in the pipeline */
    struct cw_shuffle_draw draw;
    /* Unless kind is CW_SHUFFLE_NETWORK: the chunks that are permuted. Either all have `uniform` positions
     * (the last may have fewer), or `ends` (owned) holds the position after each chunk. With CW_SHUFFLE_TABLE
     * each chunk is a single position. */
    uint64_t uniform, n_chunks, *ends;
};

static inline void cw_shuffle_free(struct cw_shuffle *s)
{
    if (s) {
        free(s->draw.salt);
        free(s->ends);
    }
    free(s);
}

struct cw_order {
    struct cw_order *next;     /* in the same slot of the hash table */
    const struct cw_seq *node; /* the shuffle */
    uint64_t pass, window;     /* window: or CW_ORDER_CHUNKS */
    uint32_t *at; /* item k of the result (a position of the window, or a chunk) is item at[k] of the input */
    uint64_t
        *ends; /* of chunks: the position after each permuted chunk; NULL if every chunk is one position */
    size_t charged; /* bytes charged to the budget */
    uint64_t used;  /* number of the call (cw_orders.call) in which it was last used */
    unsigned held;  /* number of cw_order_get without cw_order_put */
    bool kept;      /* it is in the hash table */
};

struct cw_orders {
    struct cw_order **slots;  /* a hash table of orders; NULL: empty */
    size_t n_slots, n, bytes; /* bytes: charged for the orders in the hash table */
    struct cw_order *
        *latest; /* by shuffle: the order of the chunks in the pass used last, which is always kept */
    uint64_t call,
        swept; /* number of the current call of cw_epoch_refs; the call that last freed old orders */
};

int cw_orders_new(const struct cw_sequence *s, struct cw_orders **ret, struct cw_error *err) _must_check_;
void cw_orders_free(struct cw_epoch *e);

/* Returns in *ret the order of a shuffle's chunks (window CW_ORDER_CHUNKS) or of a window's positions in a
 * pass, made if need be. It is valid until the caller gives it back with cw_order_put. */
int cw_order_get(struct cw_epoch *e, const struct cw_seq *node, uint64_t pass, uint64_t window,
                 struct cw_order **ret, struct cw_error *err) _must_check_;
void cw_order_put(struct cw_epoch *e, struct cw_order *o);

/* Returns the key of the permutation of a shuffle's positions or chunks (level 0) or of a window (level 1).
 */
uint64_t cw_shuffle_key(const struct cw_epoch *e, const struct cw_shuffle_draw *d, uint64_t pass,
                        uint64_t level, uint64_t window);
/* Makes the permutation of all positions of a shuffle of kind CW_SHUFFLE_NETWORK in a pass. */
void cw_shuffle_network(const struct cw_epoch *e, const struct cw_seq *node, uint64_t pass,
                        struct cw_permutation *ret);

/* Returns the position of the child at which chunk k begins. */
static inline uint64_t cw_chunk_begin(const struct cw_shuffle *s, uint64_t k)
{
    return s->ends ? (k ? s->ends[k - 1] : 0) : k * s->uniform;
}

/* Returns the position of the child after chunk k. n: number of positions of the child. */
static inline uint64_t cw_chunk_end(const struct cw_shuffle *s, uint64_t k, uint64_t n)
{
    return s->ends ? s->ends[k] : CW_MIN((k + 1) * s->uniform, n);
}
