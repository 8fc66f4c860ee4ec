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

enum cw_shuffle_kind {
    CW_SHUFFLE_TABLE,   /* all positions, by a table: an order of its pass */
    CW_SHUFFLE_NETWORK, /* all positions, each computed by itself: base/permutation.h */
    CW_SHUFFLE_CHUNKS,  /* the chunks of its input, then the positions of each window */
};

/* How a shuffle permutes (docs/semantics.md, section 4). */
struct cw_shuffle {
    enum cw_shuffle_kind kind;
    unsigned id;       /* below n_shuffles of the sequence: names its orders */
    unsigned position; /* of the operator in the pipeline */
    bool reshuffle;    /* another order each epoch; false: that of epoch 0 in all of them */
    char *salt;
    /* Unless kind is CW_SHUFFLE_NETWORK: what is permuted first. Chunks of the child, either all of `uniform`
     * positions (the last may be shorter), or by cumulative ends; of a table, single positions. */
    uint64_t uniform, n_chunks, *ends;
};

static inline void cw_shuffle_free(struct cw_shuffle *s)
{
    if (s) {
        free(s->salt);
        free(s->ends);
    }
    free(s);
}

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
static inline uint64_t cw_chunk_begin(const struct cw_shuffle *s, uint64_t k)
{
    return s->ends ? (k ? s->ends[k - 1] : 0) : k * s->uniform;
}

/* n: positions of the child. */
static inline uint64_t cw_chunk_end(const struct cw_shuffle *s, uint64_t k, uint64_t n)
{
    return s->ends ? s->ends[k] : CW_MIN((k + 1) * s->uniform, n);
}
