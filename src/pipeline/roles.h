/*
 * What the descriptors of index operators and batchers have in addition to those of all operators. Each is a
 * table that its descriptor points to, in the operator's file in src/ops/sequence or src/ops/batch. The
 * compiler reads the facts; dataset/ and the engine call the functions.
 */
#pragma once
#include "pipeline/op.h"

struct cw_node; /* pipeline.h */
struct cw_seq;  /* dataset/seq.h */
struct cw_seq_build;

/* What the operator does where the number of elements that arrive is not known beforehand. */
enum cw_index_limit {
    CW_LIMIT_NONE,
    CW_LIMIT_TAKE, /* the first `count` elements pass */
    CW_LIMIT_SKIP, /* all but the first `count` elements pass */
};

struct cw_index_map {
    enum cw_index_limit limit;
    bool repeats;  /* its elements come in `count` numbered passes (-1: endless) */
    bool permutes; /* it changes the order of its elements */
    /* true: one element of each input makes one element, with the components of all inputs. Its `build` makes
     * a source of the inputs. false: the elements of an operator with inputs are those of its inputs. */
    bool zips;
    /* An operator with inputs: returns whether it begins an input that is exhausted again, in a new pass.
     * NULL: it does not. */
    bool (*restarts)(const json_t *attrs);
    /* The advice in the error about an input that is a stream. */
    const char *instead;
    /* Adds the operator's node on top of *at, the tree of its input (NULL: the operator has inputs of its
     * own). batched: the operator comes after a batcher, so `count` is a number of batches. On an error the
     * caller frees *at. */
    int (*build)(struct cw_seq_build *b, const struct cw_node *node, bool batched, struct cw_seq **at);
};

struct cw_batcher {
    const char *sizes; /* the attribute with the elements of a full batch: an integer, or a list by key */
    /* true: elements go to the open batch of their key, and full batches come in the order in which they fill
     * up. The key is the operator's output port 0, an int32 below the number of sizes. false: there is one
     * open batch, and the operator is not run. */
    bool keyed;
    /* Writes to the first bytes of ret the value that pads a component's rows to the largest shape of the
     * batch. NULL: rows must have equal shapes. */
    void (*pad)(const json_t *attrs, const char *component, enum cw_dtype dtype, uint8_t ret[8]);
    /* For the error about rows that do not fit in one batch: what differs, what is expected, what to do. */
    const char *differs, *expected, *advice;
};
