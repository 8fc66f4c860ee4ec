/*
 * A pipeline as written: a chain of operators, checked against their attribute tables. Immutable, reference
 * counted. It knows names, attributes and structure, not types (bind.h) nor data (sequence.h).
 */
#pragma once
#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "pipeline/op.h"

struct cw_op_table {
    const struct cw_op_desc *const *ops; /* in byte order of their names */
    size_t n;
};
/* Returns the operator of this name; NULL: there is none. */
const struct cw_op_desc *cw_op_find(const struct cw_op_table *table, const char *name);

struct cw_chain;

struct cw_node {
    const struct cw_op_desc *desc;
    json_t *attrs;           /* complete: defaults filled in, without "op" and "inputs" */
    unsigned occurrence;     /* operators of this name before this one, depth first */
    unsigned position;       /* operators before this one in the order as run, depth first */
    unsigned written;        /* operators before this one in the pipeline as written, depth first */
    struct cw_chain *inputs; /* concat, zip */
    size_t n_inputs;
};

struct cw_chain {
    struct cw_node *nodes;
    size_t n;
};

enum cw_on_error { CW_ON_ERROR_RAISE, CW_ON_ERROR_SKIP, CW_ON_ERROR_REPLACE };

/* In which order operators may run. */
enum cw_operator_order {
    CW_ORDER_STRICT, /* another order than the one as written, if the results are the same, bit by bit */
    /* also past augmentations whose results then change: the order is part of the pipeline's definition */
    CW_ORDER_RELAXED,
    CW_ORDER_WRITTEN, /* the order as written */
};

extern const char *const cw_operator_order_names[]; /* by enum; ends with NULL */

struct cw_pipeline {
    unsigned refs;
    struct cw_chain chain;
    unsigned n_ops;
    enum cw_on_error on_error;
    enum cw_operator_order order;
    int64_t default_seed, default_epochs; /* -1: not given */
    /* Merkle hash of the canonical bytes of operators and their inputs, and on_error */
    struct cw_hash128 fingerprint;
    /* hashes of the identities of what the pipeline runs in hosts: Python functions, tokenizers */
    uint64_t *functions;
    unsigned n_functions;
    char *base_dir; /* relative paths are relative to it */
    /* files outside these directories are refused when operators are bound; none: all are allowed. Borrowed
     */
    const char *const *data_roots;
    size_t n_data_roots;
};

/* Parses {"cachew": 1, "pipeline": [...], ...}. Errors are CW_E_PIPELINE and name operator, attribute, value
 * and what is allowed. */
int cw_pipeline_parse(const struct cw_op_table *table, const char *text, size_t size, const char *base_dir,
                      struct cw_pipeline **ret, struct cw_error *err) _must_check_;
/* As cw_pipeline_parse, from a JSON value, of which no reference is kept. */
int cw_pipeline_from_json(const struct cw_op_table *table, const json_t *root, const char *base_dir,
                          struct cw_pipeline **ret, struct cw_error *err) _must_check_;
struct cw_pipeline *cw_pipeline_ref(struct cw_pipeline *p);
struct cw_pipeline *cw_pipeline_unref(struct cw_pipeline *p);

/* Changes the order of the pipeline's chain: the node at index from[i] moves to index i. Positions are those
 * of the new order; occurrences and the fingerprint stay those of the pipeline as written. from[0] is 0. The
 * pipeline must not be compiled, and have no other user. */
int cw_pipeline_permute(struct cw_pipeline *p, const unsigned *from, struct cw_error *err) _must_check_;

/* Checks the attributes of an operator in a JSON object, and sets *ret to them with defaults filled in (new
 * reference). Unknown keys are errors. */
int cw_attrs_check(const struct cw_op_desc *desc, const json_t *object, json_t **ret,
                   struct cw_error *err) _must_check_;
/* Returns the attributes that affect results, from which a fingerprint is made. New reference; NULL: out of
 * memory. */
json_t *cw_attrs_identity(const struct cw_op_desc *desc, const json_t *attrs);
/* Checks that an attribute may have this value. The error says what the attribute allows. */
int cw_attr_check(const struct cw_op_desc *desc, const struct cw_attr_def *a, const json_t *value,
                  struct cw_error *err) _must_check_;
/* Writes to buf what an attribute allows ("an integer, at least 1"), and returns buf. */
const char *cw_attr_allowed(const struct cw_attr_def *a, char buf[256]);
const char *cw_attr_kind_name(enum cw_attr_kind kind);
/* Returns {"ops": [{name, kind, summary, doc, random, plugin?, attributes: [...]}]}, which `cachew ops
 * --json` prints. New reference; NULL: out of memory. */
json_t *cw_op_table_json(const struct cw_op_table *table);
