/*
 * A compiled pipeline, with its types. It has a program for each source (the sources are numbered: "leaf"):
 * the bound operators that the source's elements pass on their way to the batcher. Made without opening data.
 * Immutable afterwards.
 */
#pragma once
#include "pipeline/pipeline.h"
#include "pipeline/roles.h"

struct cw_component {
    char *name;
    unsigned value; /* number of its column in this program */
    struct cw_type type;
};

/* A limit: an operator that counts the elements that arrive, in order, because its input has no known number
 * of elements. */
struct cw_limit {
    enum cw_index_limit kind;
    /* a `take` after which only operators without an index come: once it is full, the epoch is over */
    bool ends_epoch;
    uint64_t count; /* UINT64_MAX: it has no attribute `count` */
};

/* A cache point: a place in the pipeline where elements may be written to the cache and read back instead of
 * computed. It is an operator whose descriptor sets `cache_point`. */
struct cw_cache_point {
    const struct cw_op *op;
    unsigned number;                 /* counts the cache points of the pipeline as written, from 0 */
    struct cw_component *components; /* the components that later operators need, in byte order of names */
    unsigned n;
    /* hash of how these components are computed from a record: of the operators that run before, and of the
     * components' names and types. It does not cover the source's files nor their order */
    struct cw_hash128 identity;
    bool forced;       /* the operator is `cache`, which is used wherever a cache exists */
    bool draws;        /* an operator before it is random, and the draws of all such operators are frozen */
    bool counts;       /* a limit comes before it: an element may be missing here because of other elements */
    const char *inert; /* why the cache point can't be used (static text); NULL: it can */
};

/* How an operator before a cache point with `freeze` draws. */
struct cw_freeze {
    bool on;
    int64_t seed;   /* -1: the seed of the run */
    uint64_t reuse; /* the number of consecutive epochs that have the same draws; 0: all epochs */
};

struct cw_program {
    unsigned leaf;
    /* ops[0] is the source; or an operator that makes an element from several records (zip, window), whose
     * sources and operators follow it */
    struct cw_op **ops;
    unsigned n_ops;
    unsigned n_values;
    /* The operators before this index are the program's branch: they are before the concat or mix that joins
     * all sources. The operators from it on are the same in all programs, and can run for elements of several
     * programs together. 0: nothing joins the sources, or operators of the branch number elements, make
     * several of one, or one of several */
    unsigned n_branch;
    /* the components that elements have after the branch, in byte order of names, without those that nothing
     * needs; with types that hold the elements of all programs, and without names */
    struct cw_component *merged;
    unsigned n_merged;
    /* The operators of stage k are ops[stage[k]] .. ops[stage[k+1]-1]. A stage ends at a point, where
     * elements have to wait for the elements before them: at a limit, and where elements get their slots in
     * batches (the last point). n_points + 2 entries. The operators before stage 0 run with the source. */
    unsigned *stage;
    bool *has_limit; /* by limit: whether the program's elements pass it */
    /* by limit: the product of the counts of the repeats before it. A pass number divided by it is the pass
     * number of the repeats after the limit. 0: a repeat before it is endless */
    uint64_t *limit_passes;
    struct cw_component *outputs; /* in byte order of names; the same names in all programs */
    unsigned n_outputs;
    /* with a keyed batcher: the value number of the key, an int32 scalar */
    unsigned bucket_value;
    struct cw_cache_point *cache_points; /* in the order of ops */
    unsigned n_cache_points;
    int64_t *repeat_counts; /* counts of the repeats that the elements pass, innermost first; -1: endless */
    unsigned n_repeats;
};

/* An operator on whole batches, and the components that batches have after it, in byte order of names. Their
 * values are numbers of the operator's ports. */
struct cw_batch_op {
    struct cw_op *op;
    struct cw_component *outputs;
    unsigned n_outputs;
};

struct cw_compiled {
    struct cw_pipeline *pipeline;
    struct cw_program *programs;
    unsigned n_programs;
    struct cw_component *outputs; /* with types that hold the elements of all programs; value is unused */
    unsigned n_outputs;
    struct cw_batch_op *batch_ops;
    unsigned n_batch_ops;
    unsigned n_limits;
    struct cw_limit *limits;
    bool *is_limit; /* by operator position: this operator is a limit, and not part of the sequence */
    /* The number of positions that a windowed operator (pack) takes together: blocks, pieces, ranges and
     * entries begin at multiples of it. 0: there is no such operator */
    uint64_t group;
    /* the batch and slot of an element follow from its position: no operator filters, and there are no
     * buckets */
    bool counted;
    /* the number of elements of an epoch is known: as counted, but there may be buckets */
    bool elements_known;
    /* an element's result may depend on all elements before it, so a service runs an epoch on one worker */
    bool sequential;
    uint64_t take; /* if not sequential: the epoch ends after this many elements; UINT64_MAX: no such limit */
    const struct cw_op_desc *batcher; /* NULL: elements are delivered one by one */
    const json_t *batcher_attrs;
    bool keyed;          /* the batcher fills a batch for each key */
    uint64_t batch_size; /* elements of a full batch; 1 without a batcher; else the largest of bucket_sizes */
    struct cw_grouping grouping; /* full_only: `drop_remainder` */
    unsigned n_buckets;          /* number of keys: 0 without a batcher, 1 if the batcher is not keyed */
    uint64_t *bucket_sizes;      /* by key: elements of a full batch */
    int64_t *bucket_longest;     /* by key: the largest length that the bucket holds, or CW_PAD_LONGEST */
    struct cw_padding *padding;  /* by output; NULL: the batcher pads none */
    /* from `take` and `skip` after a batcher, where the number of batches is not known: batches [batch_from,
     * batch_to) of the epoch are delivered */
    uint64_t batch_from, batch_to;
    unsigned n_cache_points;  /* in the pipeline as written */
    struct cw_freeze *freeze; /* by position */
    /* number of Philox keys: one for each operator as written, and the last for on_error "replace" */
    unsigned n_keys;
    char **salts; /* n_keys */
};

/* Returns the unit of pieces: they begin at multiples of it, so that no batch of a counted pipeline and no
 * group lies in two pieces. */
static inline uint64_t cw_piece_unit(const struct cw_compiled *c)
{
    return c->group ? c->group : c->batch_size;
}

/* Compiles a pipeline: binds every operator. Errors are CW_E_PIPELINE. */
int cw_compile(struct cw_pipeline *p, struct cw_compiled **ret, struct cw_error *err) _must_check_;
/* Returns the components of delivered batches, in byte order of names: the outputs, or those of the last
 * operator on batches. */
struct cw_component *cw_delivered(const struct cw_compiled *c, unsigned *ret_n);
struct cw_compiled *cw_compiled_free(struct cw_compiled *c);
void cw_program_deinit(struct cw_program *g);
/* Returns whether the output, or an operator after ops[at] that runs, reads the value. */
bool cw_program_needs(const struct cw_program *g, unsigned at, unsigned value);
/* Returns source number k of the program; a program without zip has one, ops[0]. */
const struct cw_op *cw_program_source(const struct cw_program *g, unsigned k);
/* The next two are for the compiler (cache_point.c). Adds a cache point to a program; with attribute `freeze`
 * the draws of the operators before it are frozen. limited: a limit comes before it. */
int cw_cache_point_add(struct cw_compiled *c, struct cw_program *g, const struct cw_op *op, bool limited,
                       struct cw_error *err) _must_check_;
/* Sets components and identity of a program's cache points. Call it when it is known which values are
 * live. */
int cw_cache_points_finish(struct cw_program *g, struct cw_error *err) _must_check_;
void cw_cache_points_deinit(struct cw_program *g);
/* Returns the cache point that a program uses: `number`; or, for CW_CACHE_POINT_AUTO, the last forced one
 * that can be used, else the last one that can be used. NULL: none. */
#define CW_CACHE_POINT_AUTO (-1)
#define CW_CACHE_POINT_NONE (-2)
const struct cw_cache_point *cw_cache_point_choose(const struct cw_program *g, int64_t number);
/* Returns an operator of a node that is not bound yet, which cw_op_free frees; NULL: out of memory. */
struct cw_op *cw_op_new(const struct cw_node *node, struct cw_error *err);
struct cw_op *cw_op_free(struct cw_op *op);
