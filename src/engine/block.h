/* A block: consecutive rows of a piece that one thread computes together. It owns its execution, its slots,
 * and what was decided about its rows at the points that it passed. A block that starved (got no memory) runs
 * again later: a second attempt. */
#pragma once
#include "engine/entry.h"
#include "exec/exec.h"

struct compute_thread;
struct cw_assembly;
struct cw_range;
struct cw_runner;
struct piece;

struct segment { /* rows idx[first .. first + n) of a block go to the slots of one batch from slot0 on */
    struct cw_assembly *assembly;
    uint64_t slot0;
    size_t first, n;
    bool completed;      /* this block completed the batch */
    uint8_t *staged;     /* memory for values of varying size, in a chunk of the assembly */
    size_t staged_bytes; /* size of `staged`; 0: none yet */
};

/* What a limit had counted before each position of a block, and after the last position. */
struct limit_passage {
    struct cw_limit_count before;
    uint64_t *counts; /* n_refs + 1; NULL: the block's rows do not pass the limit */
};

struct block {
    struct block *next;
    struct cw_exec exec;
    struct cw_range *range;
    struct piece *piece;
    unsigned variant;  /* the cache variant: index in cache.variants */
    bool probe;        /* runs under a variant that is not in use, to measure it */
    uint64_t seq;      /* number of the block in its range, in the order of positions */
    unsigned point;    /* the stage that runs next, and the point at its end */
    unsigned n_passed; /* points passed, including those of an earlier attempt */
    bool waited;       /* the block was parked at the point after the stage just run */
    /* while its bytes are read (reads.c): */
    _Atomic bool
        /* fewer than READ_DEPTH reads are left, and compute threads were told that they may carve */
        reads_low;
    unsigned n_readers; /* read threads that work on it */
    bool queued;        /* it is in the list of blocks to read */
    bool read_failed;
    /* by limit: rows that the limit dropped; kept for a second attempt */
    uint8_t **dropped;
    struct limit_passage *limit_passages; /* by limit; NULL: no limits, or none passed */
    uint64_t *shapes;                     /* by point: the value of exec.shape there in the first attempt */
    uint32_t *idx;   /* rows that were not dropped, in order; kept for a second attempt, like the segments */
    size_t n_live;   /* rows in idx */
    size_t n_given;  /* rows of idx that have slots, or are in earlier batches */
    bool has_failed; /* one of the rows in idx failed */
    struct segment *segments;
    unsigned n_segments;
    size_t segment_capacity;
    uint64_t spent_ns, cold_ns; /* time of compute threads; of read threads */
};

/* Returns a spare block, or a new one; NULL: out of memory. Mutex held. */
struct block *cw_block_new(struct cw_runner *r);
/* Drops what the block holds, and keeps the struct for another use. Mutex held. */
void cw_block_recycle(struct cw_runner *r, struct block *b);
/* Recycles those blocks of a list that belong to range s. Mutex held. */
void cw_blocks_drop(struct cw_runner *r, struct block **list, struct cw_range *s);
void cw_block_free(const struct cw_runner *r, struct block *b);
/* Drops columns and bytes, so that the block runs from the start. What was decided at points that it passed
 * stays. */
void cw_block_reset(const struct cw_runner *r, struct block *b);
/* Runs the block up to its next point. Mutex not held. */
int cw_block_stage(const struct cw_runner *r, struct compute_thread *t, struct block *b,
                   struct cw_error *err) _must_check_;
