/*
 * Runs a program over planned rows: reads their bytes, runs the source and the operators, and keeps what
 * failed. An execution owns its columns, its arena and the errors of its rows; it knows no range, thread or
 * lock. The engine's blocks embed one each; the estimate of memory uses one by itself.
 */
#pragma once
#include <stdatomic.h>

#include "exec/account.h"
#include "exec/plan.h"
#include "optimize/optimize.h"

struct cw_cached; /* exec/cached.h */

/* How a program runs where a certain cache point is used, or none. Immutable. */
struct cw_exec_variant {
    struct cw_cached *cached; /* NULL: nothing is kept */
    struct cw_optimized *optimized;
};

/* What all executions of a run share. Immutable. */
struct cw_exec_env {
    const struct cw_sequence *sequence;
    const struct cw_compiled *compiled;
    /* Points are places that elements pass in order: limits, and last the place where slots are given out.
     * Stages 0 .. n_points - 1 end at a point each; the stage after them writes batches. */
    unsigned n_points;
    bool needs_eids;                        /* some operator draws, or calls a function */
    const struct cw_exec_variant *uncached; /* by program: without a cache point */
};

/* Where outputs of fixed type go: row 0 of output k is at data + offset[k] + slot0 * row_bytes[k]. */
struct cw_exec_dest {
    const size_t *offset, *row_bytes; /* by output; offset SIZE_MAX: the output's size varies */
    uint8_t *data;                    /* NULL: not known */
    uint64_t slot0;
};

/* One read of neighbouring records: rows first .. first + n - 1. */
struct cw_exec_read {
    struct cw_extent extent;
    size_t first, n;
    uint8_t *data;
};

/* The bytes of the rows. Several threads may do reads of one execution at a time. */
struct cw_exec_reads {
    bool done;                 /* the bytes are there, or none are needed */
    struct cw_tensor *raw;     /* by row, in the arena: where the bytes go */
    struct cw_exec_read *list; /* in the arena; NULL: not planned */
    size_t n, bytes;
    atomic_size_t next; /* the first read that was not begun; n or more: there is none */
};

/* What an execution does with the cache. */
enum cw_cache_use {
    CW_CACHE_USE_READ, /* rows are read if the cache has all of them; else they are computed and kept */
    CW_CACHE_USE_KEEP, /* rows are computed, and kept where the cache does not have them */
    CW_CACHE_USE_NONE,
};

struct cw_exec_cache {
    enum cw_cache_use use;
    uint64_t patience_ns;       /* longest wait for the cache's storage; CW_CACHE_AT_ONCE: no wait */
    struct cw_cache_set *set;   /* with a reference; NULL: not looked up */
    bool hit;                   /* the rows at the cache point were read from the cache: */
    struct cw_column *columns;  /* by component of the cache point */
    uint8_t *status;            /* n */
    uint8_t *kept;              /* n: rows that the cache has already; NULL: not looked up, or hit */
    bool kept_dropped;          /* rows that a filter dropped were kept */
    uint64_t n_looked, n_found; /* positions that were looked up, and found */
    /* rows written to the cache; rows at the cache point, written or read, and their bytes */
    uint64_t n_kept, content_rows, content_bytes;
    uint64_t late_ns; /* the storage took longer than patience_ns, so the rows were computed; 0: it did not */
};

struct cw_replaced {
    struct cw_record_id id;
    int32_t bucket;
    struct cw_tensor *values; /* by output; NULL: the row was not replaced */
};

struct cw_exec_fault { /* a failed row, or a note about a row */
    struct cw_exec_fault *next;
    size_t row;
    const char *op;
    char message[400];
    bool note, replaced;
};

struct cw_exec {
    const struct cw_exec_env *env;
    const struct cw_epoch *epoch;
    int (*cancelled)(void *arg); /* non-zero: stop soon */
    void *cancel_arg;
    const struct cw_exec_plan *plan;
    const struct cw_program *program;
    const struct cw_exec_variant *variant;
    uint64_t at;              /* first position in the plan */
    size_t n_refs;            /* positions; rows too, until flat_map makes other rows */
    struct cw_exec_dest dest; /* of all rows, where they go to one batch that is known from the beginning */
    bool plain;               /* runs unfused, as a sample */
    uint64_t started_ns;      /* when a thread began to run it, by cw_cost_now_ns */
    struct cw_arena arena;
    struct cw_block block;
    uint32_t *element; /* by row: which element of its record, from 1; NULL: no flat_map was passed */
    struct cw_exec_reads reads;
    struct cw_exec_cache cache;
    struct cw_replaced *replaced; /* n, or NULL */
    struct cw_exec_fault *faults; /* newest first */
    uint64_t shape;               /* hash of which rows flat_map made of which; 0: none */
    uint64_t prefix_ns;           /* of compute threads, up to the cache point */
};

/* Back to the start: columns, bytes and faults are dropped, and the arena's memory given back. */
void cw_exec_reset(struct cw_exec *x);
void cw_exec_free_faults(struct cw_exec *x);
/* Bytes of scratch that an arena keeps for its next use (a photograph's takes a few MiB), lest the kernel
 * zero pages for each; 0 when memory is getting short. */
size_t cw_exec_scratch_keep(const struct cw_budget *b);

/* ---- bytes (read.c) ---- */

/* Reads the rows' bytes, or the rows themselves from the cache. 1: would block. */
int cw_exec_read(struct cw_exec *x, struct cw_counts *t, bool nowait, struct cw_error *err) _must_check_;
/* Does the next read that was not begun. 1: would block, and is the next one again; 2: all were begun. */
int cw_exec_read_next(struct cw_exec *x, struct cw_counts *t, bool nowait, struct cw_error *err) _must_check_;

/* ---- operators (exec.c) ---- */

/* Makes what is the same for all operators, and runs the source. */
int cw_exec_start(struct cw_exec *x, struct cw_counts *t, struct cw_error *err) _must_check_;
/* Runs the operators of a stage on c, whose row i is row map[i] of x (map NULL: i). */
int cw_exec_run_stage(struct cw_exec *x, struct cw_counts *t, struct cw_block *c, const uint32_t *map,
                      unsigned stage, struct cw_error *err) _must_check_;
bool cw_exec_stage_is_empty(const struct cw_exec *x, unsigned stage);
/* Lets operators write outputs of fixed type straight to where they go. */
int cw_exec_set_slots(struct cw_exec *x, struct cw_block *c, const struct cw_exec_dest *d,
                      struct cw_error *err) _must_check_;
/* Makes *ret a block of the n rows idx[], with columns of its own in the arena. */
int cw_exec_gather(struct cw_exec *x, const uint32_t *idx, size_t n, struct cw_block *ret,
                   struct cw_error *err) _must_check_;

/* ---- rows ---- */

static inline const struct cw_ref *cw_exec_ref(const struct cw_exec *x, size_t row)
{
    return &x->plan->refs[x->at + (x->block.origin ? x->block.origin[row] : row)];
}

static inline const struct cw_source *cw_exec_source(const struct cw_exec *x)
{
    return x->env->sequence->sources[x->program->leaf];
}

void cw_exec_record_id(const struct cw_exec *x, size_t row, struct cw_record_id *ret);
/* The error that a fault raises, with its record and file. */
void cw_exec_fault_error(const struct cw_exec *x, const struct cw_exec_fault *f, struct cw_error *ret);

/* Where row 0 of output k goes; NULL: not known. */
static inline uint8_t *cw_exec_slot(const struct cw_exec_dest *d, unsigned k)
{
    return !d->data || d->offset[k] == SIZE_MAX ? NULL : d->data + d->offset[k] + d->slot0 * d->row_bytes[k];
}
