/* The profile of a run: how threads spent their time. Each thread counts all the time; the counts are summed
 * after each block. */
#pragma once
#include "exec/account.h"

/* Why threads had nothing that they could do. */
enum cw_idle {
    CW_IDLE_READING,  /* blocks waited for bytes from storage */
    CW_IDLE_CONSUMER, /* the consumer did not take the next batch */
    CW_IDLE_MEMORY,   /* the budget was used up */
    CW_IDLE_OTHER,    /* elements waited for earlier elements, or there were no elements left */
    CW_N_IDLE
};

struct cw_profile {
    struct cw_op_profile *ops; /* by operator position in the pipeline as written */
    unsigned n_ops;
    struct cw_value_profile *values; /* by cw_value_index; NULL: the caller does not need them */
    unsigned n_values;
    uint64_t plan_ns, read_ns, read_bytes, emit_ns;
    uint64_t emit_rows; /* rows put into batches */
    /* part of read_ns and read_bytes: what was not in memory and read by read threads */
    uint64_t cold_ns, cold_bytes;
    uint64_t cold_wall_ns; /* time in which at least one read thread was reading */
    /* time of compute threads for reading the cache and looking up what it has */
    uint64_t fetch_ns;
    uint64_t positions;              /* positions of the sequence that were computed or read from the cache */
    uint64_t cached_positions;       /* positions that were read from the cache, among `positions` */
    uint64_t idle_ns;                /* time in which threads had nothing that they could do */
    uint64_t idle_for_ns[CW_N_IDLE]; /* idle_ns by reason */
    uint64_t wait_ns;                /* time in which the consumer waited for a batch */
    uint64_t run_ns;                 /* time since the runner started, multiplied by threads */
    uint64_t memory_peak;
    unsigned threads;
};
