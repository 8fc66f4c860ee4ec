/* The tree that index operators make: sequence.c builds it, epoch.c looks runs of positions up in it,
 * lookup.c positions in any order. Immutable once built. */
#pragma once
#include "dataset/sequence.h"

enum seq_kind { SEQ_SOURCE, SEQ_CONCAT, SEQ_CUT, SEQ_REPEAT, SEQ_SHUFFLE };

/* How a shuffle permutes (docs/semantics.md, section 4). */
enum shuffle_kind {
    SHUFFLE_TABLE,   /* all positions, by a table: an order of its pass, orders.c */
    SHUFFLE_NETWORK, /* all positions, each computed by itself: base/permutation.h */
    SHUFFLE_CHUNKS,  /* the chunks of its input, then the positions of each window */
};

struct cw_seq {
    enum seq_kind kind;
    uint64_t n;
    struct cw_seq **children;
    size_t n_children;
    bool shuffled; /* there is a SHUFFLE in it */
    unsigned leaf; /* SOURCE */
    const struct cw_source *source;
    uint64_t from;  /* CUT: first position of the child */
    uint64_t count; /* REPEAT: passes; CW_ENDLESS */
    /* numbers of combined passes of the finite repeats from here down: below 2^32, as in a cw_ref */
    uint64_t passes;
    char *salt;        /* SHUFFLE */
    unsigned id;       /* SHUFFLE: names its orders */
    unsigned position; /* SHUFFLE: of the operator in the pipeline */
    enum shuffle_kind shuffle;
    bool reshuffle; /* SHUFFLE: another order each epoch; false: that of epoch 0 in all of them */
    /* SHUFFLE_TABLE, SHUFFLE_CHUNKS: what is permuted first. Chunks of the child, either all of `uniform`
     * positions (the last may be shorter), or by cumulative ends; of a table, single positions. */
    uint64_t uniform;
    uint64_t n_chunks;
    uint64_t *ends;
};

/* CW_E_PIPELINE: a combined pass that its 32 bits do not hold. */
int cw_too_many_passes(uint64_t pass, struct cw_error *err);

/* The records at n positions of s (n < 2^32) in any order, in place: row is the position, pass and leaf are
 * the low and the high half of the pass in which s is reached. Takes time for the positions and for the
 * windows of shuffles that they lie in, each of which is made once at most. */
int cw_seq_lookup(struct cw_epoch *e, const struct cw_seq *s, struct cw_ref *refs, uint64_t n,
                  struct cw_error *err) _must_check_;

static inline uint64_t cw_ref_pass(const struct cw_ref *r)
{
    return (uint64_t)r->leaf << 32 | r->pass;
}

static inline struct cw_ref cw_ref_at(uint64_t position, uint64_t pass)
{
    return (struct cw_ref){.row = position, .leaf = (uint32_t)(pass >> 32), .pass = (uint32_t)pass};
}
