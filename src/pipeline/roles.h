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
    /* all pass; output port 0 of the operator gets their numbers, from 0 */
    CW_LIMIT_ENUMERATE,
    /* elements pass until the first one for which output port 0 of the operator, a bool, is false */
    CW_LIMIT_TAKE_WHILE,
};

/* Of index operators; of a filter it is only the limit. */
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
    /* true: a window of elements makes one element (window). Its `build` makes a source of the operators
     * before it (cw_seq_build.before), whose `produce` gives the elements of each window as rows; its `run`
     * comes after these operators in the program, and joins the rows. Its output port k is made of input port
     * k. */
    bool gathers;
    /* The advice in the error about an input that is a stream. */
    const char *instead;
    /* Adds the operator's node on top of *at, the tree of its input (NULL: the operator has inputs of its
     * own). batched: the operator comes after a batcher, so `count` is a number of batches. On an error the
     * caller frees *at. */
    int (*build)(struct cw_seq_build *b, const struct cw_node *node, bool batched, struct cw_seq **at);
};

/* How a batcher pads a component's rows, at the end of each dimension. */
struct cw_padding {
    bool on;                      /* false: rows must have equal shapes */
    _Alignas(8) uint8_t value[8]; /* in the component's dtype */
    int ndim;                     /* number of dimensions in `to`; -1: any */
    /* by dimension: its size in the batch, or one of the constants */
    int64_t to[CW_MAX_NDIM];
};

/* Largest number of keys of a keyed batcher. The entries of a batch (engine/entry.h) take 8 bytes per key,
 * and a worker sends the number of a key in at most 2 bytes. */
#define CW_KEYS_MAX 1024

#define CW_PAD_LONGEST (-1)  /* the largest size in the batch */
#define CW_PAD_BOUNDARY (-2) /* the largest length that the batch's bucket holds */

/* What becomes of a key's elements that fill no group of batches when the epoch ends. */
enum cw_remainder {
    CW_REMAINDER_PAD,  /* a group of batches with fewer elements; too few for that: as CW_REMAINDER_NEXT */
    CW_REMAINDER_NEXT, /* they go to the next larger key; after the last key, a group with fewer elements */
    CW_REMAINDER_DROP,
};

/* How a batcher groups batches: each `size` consecutive batches of an epoch have one key. */
struct cw_grouping {
    unsigned size; /* at least 1 */
    enum cw_remainder remainder;
    bool full_only; /* batches that are not full are dropped: always with _DROP, perhaps with _NEXT */
};

/* Call at the end of an epoch; waiting: [n_keys] the elements of each key that are in no batch. given: the
 * number of batches that the last group, of `key`, has already, less than its size. Returns the number of
 * elements of the next batch; 0: there is none. Sets *ret to the batch's key. Its elements are the first ones
 * of that key, then those of the key below, and so on. */
uint64_t cw_grouping_rest(const struct cw_grouping *g, unsigned n_keys, const uint64_t *sizes,
                          const uint64_t *waiting, unsigned key, unsigned given, unsigned *ret);

struct cw_batcher {
    const char *sizes; /* the attribute with the elements of a full batch: an integer, or a list by key */
    /* the attribute with the number of keys, if `sizes` is an integer for all of them; NULL: there is one */
    const char *keys;
    /* true: elements go to the open batch of their key, and full batches come in the order in which they fill
     * up. The key is the operator's output port 0, an int32 below the number of sizes. false: there is one
     * open batch, and the operator is not run. */
    bool keyed;
    /* an operator that runs before it, bound with the batcher's attributes, unless a batcher comes before
     * (cw_op_desc.takes_batches); NULL: none */
    const struct cw_op_desc *rows;
    /* Sets *ret to the padding of a component. */
    int (*padding)(const struct cw_op *op, const char *component, const struct cw_type *type,
                   struct cw_padding *ret, struct cw_error *err);
    /* Returns the largest length that a key holds, for CW_PAD_BOUNDARY; CW_PAD_LONGEST: there is no limit.
     * NULL: the operator has no boundaries. */
    int64_t (*longest)(const struct cw_op *op, unsigned key);
    /* For the error about rows that are not padded and do not fit in one batch: what to do. */
    const char *advice;
};
