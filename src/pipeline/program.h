/*
 * A pipeline with its types: for each source ("leaf") the list of bound operators its elements pass on their
 * way to the batcher, and what the batcher gets. Made without touching data. Immutable afterwards.
 */
#pragma once
#include "pipeline/pipeline.h"
#include "pipeline/roles.h"

struct cw_component {
    char *name;
    unsigned value; /* number of its column in this program */
    struct cw_type type;
};

/* `take` or `skip` where the count is unknown: counts the elements that arrive, in order. */
struct cw_limit {
    bool take; /* else skip */
    /* a take that nothing but operators without index stand after: once it is full the epoch is over */
    bool ends_epoch;
    uint64_t count;
};

/* A place where elements may be kept and need not be computed again: an operator whose descriptor says
 * `cache_point`. */
struct cw_cache_point {
    const struct cw_op *op;
    unsigned number;                 /* of those in the pipeline as written, from 0 */
    struct cw_component *components; /* what is needed behind it, in byte order of names */
    unsigned n;
    /* of how they are computed from a record: the operators that run before it, and the components. Not the
     * source's files nor its order */
    struct cw_hash128 identity;
    bool forced; /* `cache` */
    bool draws;  /* an operator before it is random; all of them are frozen */
    bool counts; /* a limit stands before it: that an element does not get here need not be its own doing */
    const char *inert; /* why it can't be used (static text); NULL: it can */
};

/* Draws of an operator before a cache point with `freeze`. */
struct cw_freeze {
    bool on;
    int64_t seed;   /* -1: that of the run */
    uint64_t reuse; /* epochs that have the same draws; 0: all */
};

struct cw_program {
    unsigned leaf;
    /* ops[0] is the source, or the operator that makes an element of the records of several: their sources
     * and the operators of its inputs follow */
    struct cw_op **ops;
    unsigned n_ops;
    unsigned n_values;
    /* The operators of stage k are ops[stage[k]] .. ops[stage[k+1]-1]. Stages end where elements have to wait
     * for those before them: at limits, and where the slot in the batch is given out (the last point).
     * n_points + 2 entries. */
    unsigned *stage;
    bool *has_limit; /* by limit: whether these elements pass it */
    /* by limit: combined passes of the repeats before it; a pass number divided by it is that of those after;
     * 0: endless */
    uint64_t *limit_passes;
    struct cw_component *outputs; /* in byte order of names; the same names in all programs */
    unsigned n_outputs;
    unsigned bucket_value;               /* of a keyed batcher: int32 scalar, the key */
    struct cw_cache_point *cache_points; /* in the order of ops */
    unsigned n_cache_points;
    int64_t *repeat_counts; /* of the repeats passed, innermost first; -1: endless */
    unsigned n_repeats;
};

/* An operator on whole batches, and the components that they have after it, in byte order of names (values
 * are those of its ports). */
struct cw_batch_op {
    struct cw_op *op;
    struct cw_component *outputs;
    unsigned n_outputs;
};

struct cw_compiled {
    struct cw_pipeline *pipeline;
    struct cw_program *programs;
    unsigned n_programs;
    struct cw_component *outputs; /* merged types over the programs; value is unused */
    unsigned n_outputs;
    struct cw_batch_op *batch_ops;
    unsigned n_batch_ops;
    unsigned n_limits;
    struct cw_limit *limits;
    bool *is_limit; /* by position: this take or skip is a limit, not part of the sequence */
    /* Positions that a windowed operator takes together: blocks, pieces, ranges and entries begin at
     * multiples of it. 0: there is none */
    uint64_t group;
    bool counted; /* the slots of elements are known beforehand: nothing is filtered, nor bucketed */
    /* what becomes of an element depends on all before it: a service runs an epoch on one worker */
    bool sequential;
    uint64_t take; /* not sequential: elements after which the epoch ends; UINT64_MAX: no such limit */
    const struct cw_op_desc *batcher; /* NULL: elements are delivered one by one */
    const json_t *batcher_attrs;
    bool keyed;          /* of the batcher's table: batches by key */
    uint64_t batch_size; /* 1 without batcher; else the largest of bucket_sizes */
    bool drop_remainder;
    unsigned n_buckets;     /* keys: 0 without batcher, 1 where it is not keyed */
    uint64_t *bucket_sizes; /* by key: elements of a full batch */
    /* take and skip after a batcher with unknown count: batches [batch_from, batch_to) of the epoch are
     * delivered */
    uint64_t batch_from, batch_to;
    unsigned n_cache_points;  /* in the pipeline as written */
    struct cw_freeze *freeze; /* by position */
    unsigned n_keys;          /* Philox keys: one per operator as written, and one for `replace` (the last) */
    char **salts;             /* n_keys */
};

/* Pieces begin at multiples of it: no batch that follows from positions lies in two, and no group. */
static inline uint64_t cw_piece_unit(const struct cw_compiled *c)
{
    return c->group ? c->group : c->batch_size;
}

/* Binds every operator. Errors are CW_E_PIPELINE. */
int cw_compile(struct cw_pipeline *p, struct cw_compiled **ret, struct cw_error *err) _must_check_;
/* What batches have, in byte order of names: the outputs, or those of the last operator on batches. */
struct cw_component *cw_delivered(const struct cw_compiled *c, unsigned *ret_n);
struct cw_compiled *cw_compiled_free(struct cw_compiled *c);
void cw_program_deinit(struct cw_program *g);
/* Whether an operator behind ops[at] that runs, or the output, reads the value. */
bool cw_program_needs(const struct cw_program *g, unsigned at, unsigned value);
/* Source number k of those whose records make an element of the program; where it is one: ops[0]. */
const struct cw_op *cw_program_source(const struct cw_program *g, unsigned k);
/* cache point.c, for the compiler: elements of a program pass a cache point; its draws before are frozen
 * where it says so. */
int cw_cache_point_add(struct cw_compiled *c, struct cw_program *g, const struct cw_op *op, bool limited,
                       struct cw_error *err) _must_check_;
/* Once it is known what is live: components and identity of a program's cache points. */
int cw_cache_points_finish(struct cw_program *g, struct cw_error *err) _must_check_;
void cw_cache_points_deinit(struct cw_program *g);
/* The cache point that is used of a program: `number`, or CW_CACHE_POINT_AUTO: a forced one, else the last
 * that can be; NULL: none. */
#define CW_CACHE_POINT_AUTO (-1)
#define CW_CACHE_POINT_NONE (-2)
const struct cw_cache_point *cw_cache_point_choose(const struct cw_program *g, int64_t number);
struct cw_op *cw_op_new(const struct cw_node *node, struct cw_error *err);
struct cw_op *cw_op_free(struct cw_op *op);
