/*
 * The tree that index operators make: a node maps its positions to positions of its children, and the leaves
 * are sources. Each operator of src/ops/sequence gives its functions in a struct cw_seq_ops; sequence.c
 * builds the tree. The tree is immutable once built; any thread may read it.
 */
#pragma once
#include "dataset/sequence.h"

struct cw_seq;
struct cw_shuffle; /* dataset/orders.h */

/* A call of cw_seq_lookup: positions in any order, all looked up at once. */
struct cw_lookup {
    struct cw_epoch *epoch;
    struct cw_ref *refs; /* at first a position and its pass (cw_ref_at), in the end the record */
    /* memory for sorting: one number for each of refs; mask + 1 numbers */
    uint32_t *sorted, *counts;
    uint64_t mask;
    struct cw_error *err;
};

/* A list of chunks of unequal size. */
struct cw_chunks {
    uint64_t *ends;        /* the position after each chunk; owned */
    uint64_t n, capacity;  /* number of chunks; room */
    uint64_t positions;    /* of all chunks together */
    bool failed, too_many; /* failed: with too_many, more than CW_CHUNKS_MAX chunks; else out of memory */
};

/* Limit of the number of chunks in a list, which takes 8 bytes for each. Without the limit, a shuffle after a
 * repeat of many passes over a few records could take all memory. */
#define CW_CHUNKS_MAX (UINT64_C(1) << 26)

struct cw_seq_ops {
    /* Stores the records at positions [begin, begin + n) of s in ret. pass: the pass of the repeats above s.
     */
    int (*refs)(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                struct cw_ref *ret, struct cw_error *err);
    /* For each i < n: replaces the position of s in l->refs[index[i]] (cw_ref_at) by its record. May reorder
     * index. */
    int (*lookup)(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n);
    /* Appends the chunks of positions [from, to) of s, cut to that range. */
    void (*chunks)(const struct cw_seq *s, uint64_t from, uint64_t to, struct cw_chunks *ret);
};

/* A node. An operator that needs more fields makes this the first member of a larger struct, allocated with
 * malloc. */
struct cw_seq {
    const struct cw_seq_ops *ops;
    uint64_t n; /* number of positions, or CW_ENDLESS */
    struct cw_seq **children;
    size_t n_children;
    bool joins;    /* the children follow each other; false: there is one child, whose positions are mapped */
    bool shuffled; /* this node or a node below it is a shuffle */
    /* product of the counts of the finite repeats from this node down: below 2^32, so that cw_ref.pass holds
     * it */
    uint64_t passes;
    /* positions of each of its chunks (the last may have fewer); 0: the chunks differ in size */
    uint64_t chunk;
    const struct cw_source *source; /* of a leaf, else NULL */
    unsigned leaf;                  /* of a leaf: the number of its program */
    struct cw_shuffle *shuffle;     /* of a shuffle, else NULL */
};

/* ---- for building: index operators call these ---- */

struct cw_seq_build {
    struct cw_sequence *sequence; /* as built so far */
    const struct cw_source_env *env;
    unsigned leaf; /* number of the next source */
    /* the one program of all sources, inside an operator that reads its inputs side by side (zip); NULL: each
     * source has its own program */
    const struct cw_program *program;
    struct cw_error *err;
};

/* Returns a new node of `size` bytes that begins with struct cw_seq; the bytes after that are 0. NULL: out of
 * memory, and the error is set. */
struct cw_seq *cw_seq_new(struct cw_seq_build *b, const struct cw_seq_ops *ops, size_t size,
                          size_t n_children);
/* Makes a new node with the only child *at, copies the fields of *at (n, passes, ...) into it, and stores it
 * in *at. NULL: out of memory, and the error is set. */
struct cw_seq *cw_seq_wrap(struct cw_seq_build *b, const struct cw_seq_ops *ops, size_t size,
                           struct cw_seq **at);
/* Builds the tree of a chain of operators. The caller frees *ret, with the tree that contains it, also after
 * an error. */
int cw_seq_build_chain(struct cw_seq_build *b, const struct cw_chain *chain,
                       struct cw_seq **ret) _must_check_;
/* Builds a separate sequence of the inputs of an operator that reads them side by side (zip): its source k is
 * the source of input k, and child k of its root is the tree of input k. */
int cw_seq_open_inputs(struct cw_seq_build *b, const struct cw_node *node,
                       struct cw_sequence **ret) _must_check_;
/* Returns a leaf with a source, which the sequence owns from now on, also after an error. NULL: out of
 * memory, and the error is set. */
struct cw_seq *cw_seq_new_leaf(struct cw_seq_build *b, struct cw_source *source);
/* Appends to c the chunks of a list that covers positions 0 .. n-1, cut to the range [from, to). uniform:
 * positions of each chunk (the last may have fewer); 0: the chunks end at ends[0] .. ends[n_chunks - 1]. */
void cw_chunks_add(struct cw_chunks *c, uint64_t uniform, const uint64_t *ends, uint64_t n_chunks, uint64_t n,
                   uint64_t from, uint64_t to);

/* ---- for looking up: a node calls these for its children ---- */

static inline int cw_seq_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n,
                              uint64_t pass, struct cw_ref *ret, struct cw_error *err)
{
    return s->ops->refs(e, s, begin, n, pass, ret, err);
}

/* Replaces n positions of s (n < 2^32, in any order) by their records, in place. Before the call, each ref
 * holds a position and a pass of the repeats above s, as cw_ref_at stores them. The time depends on n and on
 * the windows of shuffles that the positions lie in; the order of each window is made at most once. */
int cw_seq_lookup(struct cw_epoch *e, const struct cw_seq *s, struct cw_ref *refs, uint64_t n,
                  struct cw_error *err) _must_check_;

/* Like cw_seq_lookup, but for callers that are not nodes of the tree; s is a node of the epoch's sequence. */
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
