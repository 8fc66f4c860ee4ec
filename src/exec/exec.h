/*
 * An execution: runs a program over planned rows. It reads their bytes, runs the source and the operators,
 * and keeps the errors of rows that failed. It owns its columns and its arena, and knows no range, thread or
 * lock. Each of the engine's blocks contains one; the estimate of memory uses one by itself.
 */
#pragma once
#include <stdatomic.h>

#include "exec/account.h"
#include "exec/plan.h"
#include "optimize/optimize.h"

struct cw_cached; /* exec/cached.h */

/* How a program runs with a certain cache point, or without one. Immutable. */
struct cw_exec_variant {
    struct cw_cached *cached; /* NULL: no cache point */
    struct cw_optimized *optimized;
};

/* Data that all executions of a run share. Immutable. */
struct cw_exec_env {
    const struct cw_sequence *sequence;
    const struct cw_compiled *compiled;
    /* Points are places that elements must pass in order: limits, and last the place where elements get their
     * slots. Stages 0 .. n_points - 1 each end at a point; the stage after them writes batches. */
    unsigned n_points;
    bool needs_eids;                        /* some operator draws, or calls a Python function */
    const struct cw_exec_variant *uncached; /* by program: how it runs without a cache point */
    bool joint;                             /* executions may have rows of several programs */
};

/* Where outputs of fixed size are written: row 0 of output k goes to data + offset[k] + slot0 *
 * row_bytes[k]. */
struct cw_exec_dest {
    const size_t *offset, *row_bytes; /* by output; offset SIZE_MAX: the output's size varies */
    uint8_t *data;                    /* NULL: the place is not known yet */
    uint64_t slot0;
};

/* One read of neighbouring records: of rows first .. first + n - 1. */
struct cw_exec_read {
    struct cw_extent extent;
    size_t first, n;
    uint8_t *data;
};

/* The reads of an execution. Several threads may do reads of one execution at the same time. */
struct cw_exec_reads {
    bool done;                 /* all bytes are read, or none are needed */
    struct cw_tensor *raw;     /* by row, in the arena: the row's bytes */
    struct cw_exec_read *list; /* in the arena; NULL: not planned */
    size_t n, bytes;
    atomic_size_t next; /* index of the first read that was not begun; n or more: all were begun */
};

/* What an execution does with the cache. */
enum cw_cache_use {
    /* rows are read if the cache has all of them; otherwise they are computed and written to the cache */
    CW_CACHE_USE_READ,
    CW_CACHE_USE_KEEP, /* rows are computed, and written to the cache if it does not have them */
    CW_CACHE_USE_NONE,
};

struct cw_exec_cache {
    enum cw_cache_use use;
    /* longest wait for the cache's storage, in ns; CW_CACHE_AT_ONCE: do not wait */
    uint64_t patience_ns;
    struct cw_cache_set *set;   /* the cache set of the epoch, with a reference; NULL: not looked up */
    bool hit;                   /* the rows at the cache point were read from the cache, into: */
    struct cw_column *columns;  /* by component of the cache point */
    uint8_t *status;            /* n */
    uint8_t *kept;              /* n: 1 for rows that the cache has already; NULL: not looked up, or `hit` */
    bool kept_dropped;          /* it was written to the cache which rows a filter dropped */
    uint64_t n_looked, n_found; /* positions that were looked up; those that were found */
    /* n_kept: rows written to the cache. content_rows, content_bytes: rows at the cache point, written or
     * read, and their bytes */
    uint64_t n_kept, content_rows, content_bytes;
    /* time of the wait after which the rows were computed, because storage took longer than patience_ns; 0:
     * it did not */
    uint64_t late_ns;
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
    char *detail; /* as cw_error.detail; owned; NULL: none */
    bool note, replaced;
};

struct cw_exec {
    const struct cw_exec_env *env;
    const struct cw_epoch *epoch;
    int (*cancelled)(void *arg); /* returns non-zero when the execution should stop soon */
    void *cancel_arg;
    const struct cw_exec_plan *plan;
    const struct cw_program *program;
    const struct cw_exec_variant *variant;
    /* The rows are of several programs. `program` is the first one, whose operators run for all rows after
     * the branches; nothing is fused, and no cache is used. */
    bool joint;
    uint64_t at;              /* index in the plan of the first position */
    size_t n_refs;            /* number of positions; also of rows, until flat_map makes other rows */
    struct cw_exec_dest dest; /* for all rows, if they go to one batch that is known from the beginning */
    bool plain;               /* runs unfused, as a sample that is measured */
    uint64_t started_ns;      /* when a thread began to run it, by cw_cost_now_ns */
    struct cw_arena arena;
    struct cw_block block;
    /* by row: the number of the element among those of its record, from 1; NULL: it has not passed a
     * flat_map */
    uint32_t *element;
    struct cw_exec_reads reads;
    struct cw_exec_cache cache;
    struct cw_replaced *replaced; /* n, or NULL */
    struct cw_exec_fault *faults; /* newest first */
    uint64_t shape;               /* hash of how many rows flat_map made of each row; 0: none */
    uint64_t prefix_ns;           /* time of compute threads up to the cache point, in ns */
};

/* Sets which program runs on the n_refs rows from `at` on of the plan; if they are of several programs, also
 * the variant. */
void cw_exec_set_program(struct cw_exec *x);
/* Drops columns, bytes and faults, and gives back the arena's memory, so that the execution can run from the
 * start. */
void cw_exec_reset(struct cw_exec *x);
void cw_exec_free_faults(struct cw_exec *x);
/* Returns the bytes of scratch memory that an arena keeps for its next use, so that the kernel does not zero
 * new pages each time (a photograph takes a few MiB); 0 when memory is getting short. */
size_t cw_exec_scratch_keep(const struct cw_budget *b);

/* ---- bytes (read.c) ---- */

/* Reads the rows' bytes, or the rows themselves from the cache. 1: with nowait, the read would block. */
int cw_exec_read(struct cw_exec *x, struct cw_counts *t, bool nowait, struct cw_error *err) _must_check_;
/* Does the next read that was not begun. 1: with nowait, it would block, and it stays the next read; 2: all
 * reads were begun. */
int cw_exec_read_next(struct cw_exec *x, struct cw_counts *t, bool nowait, struct cw_error *err) _must_check_;

/* ---- operators (exec.c) ---- */

/* Sets up the block that all operators share, and runs the source, with the operators before stage 0. */
int cw_exec_start(struct cw_exec *x, struct cw_counts *t, struct cw_error *err) _must_check_;
/* Runs the operators of a stage on c, whose row i is row map[i] of x (map NULL: row i). */
int cw_exec_run_stage(struct cw_exec *x, struct cw_counts *t, struct cw_block *c, const uint32_t *map,
                      unsigned stage, struct cw_error *err) _must_check_;
/* Returns whether a stage has no operators to run. */
bool cw_exec_stage_is_empty(const struct cw_exec *x, unsigned stage);
/* Makes operators write outputs of fixed size directly to the slots that d names. */
int cw_exec_set_slots(struct cw_exec *x, struct cw_block *c, const struct cw_exec_dest *d,
                      struct cw_error *err) _must_check_;
/* Makes *ret a block of the n rows idx[], with its own columns in the arena. */
int cw_exec_gather(struct cw_exec *x, const uint32_t *idx, size_t n, struct cw_block *ret,
                   struct cw_error *err) _must_check_;

/* ---- rows ---- */

/* Returns the planned record of a row. */
static inline const struct cw_ref *cw_exec_ref(const struct cw_exec *x, size_t row)
{
    return &x->plan->refs[x->at + (x->block.origin ? x->block.origin[row] : row)];
}

static inline const struct cw_source *cw_exec_source(const struct cw_exec *x, size_t row)
{
    return x->env->sequence->sources[cw_exec_ref(x, row)->leaf];
}

/* Sets *ret to the id of the record that a row was made of. */
void cw_exec_record_id(const struct cw_exec *x, size_t row, struct cw_record_id *ret);
/* Sets *ret to the error that a fault raises, with its record and file. */
void cw_exec_fault_error(const struct cw_exec *x, const struct cw_exec_fault *f, struct cw_error *ret);

/* Returns where row 0 of output k is written; NULL: not known, or the output's size varies. */
static inline uint8_t *cw_exec_slot(const struct cw_exec_dest *d, unsigned k)
{
    return !d->data || d->offset[k] == SIZE_MAX ? NULL : d->data + d->offset[k] + d->slot0 * d->row_bytes[k];
}
