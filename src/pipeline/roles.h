/*
 * What index operators and batchers are beside what every operator is. Each is a table that its descriptor
 * points to, in its file of src/ops/sequence or src/ops/batch. The compiler reads the facts; dataset/ and the
 * engine call the functions, for runs of positions or columns of a batch.
 */
#pragma once
#include "pipeline/op.h"

struct cw_node; /* pipeline.h */
struct cw_seq;  /* dataset/seq.h */
struct cw_seq_build;

/* Counting, where the number of elements that arrive is unknown beforehand. */
enum cw_index_limit {
    CW_LIMIT_NONE,
    CW_LIMIT_TAKE, /* the first `count` elements pass */
    CW_LIMIT_SKIP, /* all but the first `count` elements pass */
};

struct cw_index_map {
    enum cw_index_limit limit;
    bool repeats;  /* its elements come in `count` passes (-1: endless), each numbered */
    bool permutes; /* its elements come in another order */
    /* Its inputs stand side by side: one element of each makes one, with the components of all. Its `build`
     * makes a source of them. false: an operator with inputs of its own puts them one after the other. */
    bool zips;
    /* What an error advises where the input is a stream. */
    const char *instead;
    /* Puts its node on *at, the tree of its input (NULL: an operator with inputs of its own). `batched`: it
     * stands after a batcher, so that `count` is one of batches. On an error the caller frees *at. */
    int (*build)(struct cw_seq_build *b, const struct cw_node *node, bool batched, struct cw_seq **at);
};

struct cw_batcher {
    const char *sizes; /* the attribute with the elements of a full batch: an integer, or a list by key */
    /* Elements go to the open batch of their key, and full batches come in the order in which they fill up.
     * The key is the operator's output port 0, an int32 below the number of sizes. Otherwise there is one
     * open batch, and the operator is not run. */
    bool keyed;
    /* The value that pads a component's rows to the largest of the batch, into the first bytes of ret; NULL:
     * rows have equal shapes. */
    void (*pad)(const json_t *attrs, const char *component, enum cw_dtype dtype, uint8_t ret[8]);
    /* For the error of rows that fit into no batch: what differs, what is expected, what to do about it. */
    const char *differs, *expected, *advice;
};
