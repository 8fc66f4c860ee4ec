/*
 * The tree that index operators make: a node maps positions to those of its children, and the leaves are
 * sources. Each operator of src/ops/sequence has its table of functions here; sequence.c builds the tree.
 * Immutable once built; any thread reads it.
 */
#pragma once
#include "dataset/sequence.h"

struct cw_seq;
struct cw_shuffle; /* dataset/orders.h */

/* Positions that are looked up in any order, all of them at once. */
struct cw_lookup {
    struct cw_epoch *epoch;
    struct cw_ref *refs; /* position (row) and pass of each, then its record */
    /* for sorting: as many as refs, and mask + 1 */
    uint32_t *sorted, *counts;
    uint64_t mask;
    struct cw_error *err;
};

/* Chunks of unequal size: cumulative ends of positions. */
struct cw_chunks {
    uint64_t *ends;
    uint64_t n, capacity;
    uint64_t positions;
    bool failed, too_many; /* too_many: more than CW_CHUNKS_MAX; otherwise it failed for want of memory */
};

/* 8 bytes each: a shuffle after a repeat of many passes over a few records would take all memory. */
#define CW_CHUNKS_MAX (UINT64_C(1) << 26)

struct cw_seq_ops {
    /* The records at positions [begin, begin + n) of s, in the pass in which s is reached. */
    int (*refs)(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                struct cw_ref *ret, struct cw_error *err);
    /* l->refs[index[i]] for i < n are positions of s (cw_ref_at) and become records. Leaves the indices in
     * another order. */
    int (*lookup)(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n);
    /* Appends the chunks of positions [from, to) of s, cut to that range. */
    void (*chunks)(const struct cw_seq *s, uint64_t from, uint64_t to, struct cw_chunks *ret);
};

/* A node. Operators with facts of their own put it first in a larger struct, which free() frees. */
struct cw_seq {
    const struct cw_seq_ops *ops;
    uint64_t n; /* positions; CW_ENDLESS */
    struct cw_seq **children;
    size_t n_children;
    bool joins;    /* children follow each other; false: positions are those of the only child, mapped */
    bool shuffled; /* there is a shuffle in it */
    /* numbers of combined passes of the finite repeats from here down: below 2^32, as in a cw_ref */
    uint64_t passes;
    /* positions of each of its chunks, of which the last may have fewer; 0: they differ */
    uint64_t chunk;
    const struct cw_source *source; /* of a leaf, else NULL; `leaf` is the number of its program */
    unsigned leaf;
    struct cw_shuffle *shuffle; /* of a shuffle, else NULL */
};

/* ---- for building: index operators call these ---- */

struct cw_seq_build {
    struct cw_sequence *sequence; /* so far */
    const struct cw_source_env *env;
    unsigned leaf; /* of the next source */
    /* of an operator whose inputs are read side by side: it has all sources; NULL: each has a program */
    const struct cw_program *program;
    struct cw_error *err;
};

/* A new node of `size` bytes, of which struct cw_seq is the first; the others are 0. NULL: out of memory, the
 * error is set. */
struct cw_seq *cw_seq_new(struct cw_seq_build *b, const struct cw_seq_ops *ops, size_t size,
                          size_t n_children);
/* The same on top of *at, whose place it takes; it has the facts of *at. */
struct cw_seq *cw_seq_wrap(struct cw_seq_build *b, const struct cw_seq_ops *ops, size_t size,
                           struct cw_seq **at);
/* The tree of a chain of operators. *ret is to be freed, with the tree that it is in, also after an error. */
int cw_seq_build_chain(struct cw_seq_build *b, const struct cw_chain *chain,
                       struct cw_seq **ret) _must_check_;
/* The inputs of an operator that reads them side by side, as a sequence of their own: its source k is that of
 * input k, and child k of its root the tree. */
int cw_seq_open_inputs(struct cw_seq_build *b, const struct cw_node *node,
                       struct cw_sequence **ret) _must_check_;
/* A leaf with a source, which the sequence owns from now on, also after an error. NULL: out of memory, the
 * error is set. */
struct cw_seq *cw_seq_new_leaf(struct cw_seq_build *b, struct cw_source *source);
/* Appends the chunks of a list, which ends at position n, cut to [from, to). uniform: as cw_seq.chunk; 0: the
 * chunks end at ends[0] .. ends[n_chunks - 1]. */
void cw_chunks_add(struct cw_chunks *c, uint64_t uniform, const uint64_t *ends, uint64_t n_chunks, uint64_t n,
                   uint64_t from, uint64_t to);

/* ---- for looking up: a node calls these for its children ---- */

static inline int cw_seq_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n,
                              uint64_t pass, struct cw_ref *ret, struct cw_error *err)
{
    return s->ops->refs(e, s, begin, n, pass, ret, err);
}

/* The records at n positions of s (n < 2^32) in any order, in place: row is the position, pass and leaf are
 * the low and the high half of the pass in which s is reached. Takes time for the positions and for the
 * windows of shuffles that they lie in, each of which is made once at most. */
int cw_seq_lookup(struct cw_epoch *e, const struct cw_seq *s, struct cw_ref *refs, uint64_t n,
                  struct cw_error *err) _must_check_;

/* The same for a tree of the epoch's sequence, from outside of it. */
int cw_epoch_lookup(struct cw_epoch *e, const struct cw_seq *s, struct cw_ref *refs, uint64_t n,
                    struct cw_error *err) _must_check_;

static inline uint64_t cw_ref_pass(const struct cw_ref *r)
{
    return (uint64_t)r->leaf << 32 | r->pass;
}

static inline struct cw_ref cw_ref_at(uint64_t position, uint64_t pass)
{
    return (struct cw_ref){.row = position, .leaf = (uint32_t)(pass >> 32), .pass = (uint32_t)pass};
}
