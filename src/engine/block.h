/* A block: rows of a piece that one thread computes at a time. It owns its execution, its slots, and what was
 * decided about its rows at the points that it passed. */
#pragma once
#include "engine/entry.h"
#include "exec/exec.h"

struct compute_thread;
struct cw_assembly;
struct cw_range;
struct cw_runner;
struct piece;

struct segment { /* rows idx[first .. first+n) of a block go to slots from slot0 on */
    struct cw_assembly *assembly;
    uint64_t slot0;
    size_t first, n;
    bool completed;      /* its batch, by this block */
    uint8_t *staged;     /* for values of varying size: in a chunk of the assembly */
    size_t staged_bytes; /* there; 0: none yet */
};

/* What a limit had counted before each position of a block, and behind the last. */
struct limit_passage {
    struct cw_limit_count before;
    uint64_t *counts; /* n_refs + 1; NULL: the block's rows do not pass the limit */
};

struct block {
    struct block *next;
    struct cw_exec exec;
    struct cw_range *range;
    struct piece *piece;
    unsigned variant;  /* of the cache: index in cache.variants */
    bool probe;        /* runs under a variant that is not in use, to measure it */
    uint64_t seq;      /* order in its range */
    unsigned point;    /* stage that is to run */
    unsigned n_passed; /* points passed, in an earlier attempt too */
    bool waited;       /* was parked before the point after the stage just run */
    /* while it is read (reads.c): */
    _Atomic bool
        reads_low;      /* fewer than READ_DEPTH reads are left: compute threads know that there is room */
    unsigned n_readers; /* read threads at it */
    bool queued;        /* in the list of reads */
    bool read_failed;
    uint8_t **dropped;                    /* by limit: rows that it dropped, for a second attempt */
    struct limit_passage *limit_passages; /* by limit; NULL: no limits, or none passed */
    uint64_t *shapes;                     /* by point: exec.shape as it was there in the first attempt */
    uint32_t *idx;   /* rows that live, in order; kept for a second attempt, like the segments */
    size_t n_live;   /* rows in idx */
    size_t n_given;  /* of these: they have slots, or are in earlier batches */
    bool has_failed; /* one of the rows in idx failed */
    struct segment *segments;
    unsigned n_segments;
    size_t segment_capacity;
    uint64_t spent_ns, cold_ns; /* of compute threads; of read threads */
};

/* Returns a spare block, or a new one; NULL: out of memory. Mutex held. */
struct block *cw_block_new(struct cw_runner *r);
/* The block is done with, and kept for another use. Mutex held. */
void cw_block_recycle(struct cw_runner *r, struct block *b);
/* Recycles the blocks of a range that are in a list. Mutex held. */
void cw_blocks_drop(struct cw_runner *r, struct block **list, struct cw_range *s);
void cw_block_free(const struct cw_runner *r, struct block *b);
/* Back to the start: columns and bytes are dropped. What was decided at points that it passed stays. */
void cw_block_reset(const struct cw_runner *r, struct block *b);
/* Runs the block to its next point. Mutex not held. */
int cw_block_stage(const struct cw_runner *r, struct compute_thread *t, struct block *b,
                   struct cw_error *err) _must_check_;
