/*
 * The tree of index operators (concat, shuffle, repeat, take, ...), which maps positions of an epoch to
 * records of the sources. A node maps its positions to positions of its children; the leaves are sources.
 * Each operator of src/ops/sequence defines its functions in a struct cw_seq_ops, and sequence.c builds the
 * tree. Once built, a tree is immutable and any thread may read it.
 *
 * Terms: a chunk is a run of consecutive positions that a shuffle by chunk moves as a whole. A window is a
 * run of positions that a shuffle permutes at a time. A pass is one repetition of a `repeat`; passes of
 * nested repeats are combined into one number (struct cw_ref).
 */
#pragma once
#include "dataset/sequence.h"

struct cw_seq;
struct cw_shuffle; /* dataset/orders.h */

/* A call of cw_seq_lookup: positions in any order, all looked up at once. */
struct cw_lookup {
    struct cw_epoch *epoch;
    /* before the lookup, each holds a position and its pass (cw_ref_at); after it, a record */
    struct cw_ref *refs;
    /* memory for sorting: `sorted` has one number for each of refs, `counts` has mask + 1 */
    uint32_t *sorted, *counts;
    uint64_t mask;
    struct cw_error *err;
};

/* A list of chunks of unequal size. */
struct cw_chunks {
    uint64_t *ends;       /* the position after each chunk; owned */
    uint64_t n, capacity; /* number of chunks; room */
    uint64_t positions;   /* of all chunks together */
    /* failed: the list is incomplete, because it has more than CW_CHUNKS_MAX chunks (too_many) or memory ran
     * out */
    bool failed, too_many;
};

/* Limit of the number of chunks in a list, which takes 8 bytes per chunk. A shuffle by chunk after a `repeat`
 * of many passes over a few records would otherwise list chunks until memory runs out. */
#define CW_CHUNKS_MAX (UINT64_C(1) << 26)

/* Positions per chunk where the order of an operator leaves no chunks of the sources (shuffle by record,
 * mix): the largest number that a chunk of a source has. */
#define CW_CHUNK_POSITIONS UINT64_C(1024)

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
    /* the positions of the children follow each other; false: the node has one child, and maps positions to
     * those of the child */
    bool joins;
    /* positions in any order are found faster by one lookup than by a call of `refs` for each: this node or a
     * node below it is a shuffle or a mix */
    bool scatters;
    /* product of the numbers of passes of the finite repeats from this node down. Below 2^32, so that the 32
     * bits of cw_ref.pass hold the combined pass of a record. */
    uint64_t passes;
    /* number of positions in each chunk of this node (the last chunk may have fewer); 0: the chunks differ in
     * size */
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
    /* while a window is built: the operators before it, for cw_seq_open_chains */
    const struct cw_chain *before;
    /* inside an operator that reads its inputs side by side (zip): the program that all sources share; NULL:
     * each source has its own program */
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
/* Builds the tree of a chain of operators, and stores its root in *ret, also after an error (NULL, or an
 * incomplete tree). The caller puts *ret into the sequence's tree, with which it is freed. */
int cw_seq_build_chain(struct cw_seq_build *b, const struct cw_chain *chain,
                       struct cw_seq **ret) _must_check_;
/* Builds a separate sequence for n chains, whose elements an operator reads itself (zip, window). Each chain
 * has one source: source k of the sequence is that of chain k, and child k of its root is the tree of chain
 * k. */
int cw_seq_open_chains(struct cw_seq_build *b, const struct cw_chain *chains, size_t n,
                       struct cw_sequence **ret) _must_check_;

/* Returns the program that the source that is built next belongs to. */
static inline const struct cw_program *cw_seq_program(const struct cw_seq_build *b)
{
    return b->program ? b->program : &b->sequence->compiled->programs[b->leaf];
}
/* Returns a leaf for the source. b->sequence owns the source from now on, also after an error. NULL: out of
 * memory, and the error is set. */
struct cw_seq *cw_seq_new_leaf(struct cw_seq_build *b, struct cw_source *source);
/* Appends to c the chunks of positions 0 .. n-1, cut to the range [from, to). uniform: number of positions in
 * each chunk (the last chunk may have fewer); 0: chunk i ends at ends[i], for i < n_chunks. */
void cw_chunks_add(struct cw_chunks *c, uint64_t uniform, const uint64_t *ends, uint64_t n_chunks, uint64_t n,
                   uint64_t from, uint64_t to);

/* ---- for looking up: a node calls these for its children ---- */

static inline int cw_seq_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n,
                              uint64_t pass, struct cw_ref *ret, struct cw_error *err)
{
    return s->ops->refs(e, s, begin, n, pass, ret, err);
}

/* Replaces n positions of s (n < 2^32, in any order) by their records, in place. Before the call, each ref
 * holds a position, and a pass of the repeats above s, as cw_ref_at stores them. The time depends on n and on
 * the windows of shuffles that the positions lie in. A call computes the order of each window at most once.
 */
int cw_seq_lookup(struct cw_epoch *e, const struct cw_seq *s, struct cw_ref *refs, uint64_t n,
                  struct cw_error *err) _must_check_;

/* Like cw_seq_lookup, but for callers that are not inside a lookup of the epoch's tree (zip calls it for its
 * inputs). s is a node of the epoch's sequence. */
int cw_epoch_lookup(struct cw_epoch *e, const struct cw_seq *s, struct cw_ref *refs, uint64_t n,
                    struct cw_error *err) _must_check_;

/* A ref that holds a position has a pass of 64 bits: the low half is in `pass`, the high half in `leaf`,
 * which is not used before the record is found. cw_ref_pass returns the pass; cw_ref_at returns such a ref.
 */
static inline uint64_t cw_ref_pass(const struct cw_ref *r)
{
    return (uint64_t)r->leaf << 32 | r->pass;
}

static inline struct cw_ref cw_ref_at(uint64_t position, uint64_t pass)
{
    return (struct cw_ref){.row = position, .leaf = (uint32_t)(pass >> 32), .pass = (uint32_t)pass};
}
