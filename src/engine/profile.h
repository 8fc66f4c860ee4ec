/* Where the time goes: counted always, per thread, summed when asked. */
#pragma once
#include "exec/account.h"

/* Why threads had nothing that they were allowed to do. */
enum cw_idle {
    CW_IDLE_READING,  /* bytes were awaited */
    CW_IDLE_CONSUMER, /* the next batch waited to be taken */
    CW_IDLE_MEMORY,   /* the budget was used up */
    CW_IDLE_OTHER,    /* elements waited for others before them, or there were none */
    CW_N_IDLE
};

struct cw_profile {
    struct cw_op_profile *ops; /* by operator position in the pipeline as written */
    unsigned n_ops;
    struct cw_value_profile *values; /* by cw_value_index; NULL: not wanted */
    unsigned n_values;
    uint64_t plan_ns, read_ns, read_bytes, emit_ns;
    uint64_t emit_rows;           /* put into batches */
    uint64_t cold_ns, cold_bytes; /* of read_ns and read_bytes: what was not in memory, by the read threads */
    uint64_t cold_wall_ns;        /* time in which at least one of them read */
    uint64_t fetch_ns;            /* compute threads read the cache, or looked what it has */
    uint64_t positions;           /* of the sequence, that were computed or read */
    uint64_t cached_positions;    /* of these, read from the cache */
    uint64_t idle_ns;             /* threads had nothing they were allowed to do */
    uint64_t idle_for_ns[CW_N_IDLE]; /* that, by reason */
    uint64_t wait_ns;                /* the consumer waited for a batch */
    uint64_t run_ns;                 /* since the runner started, times threads */
    uint64_t memory_peak;
    unsigned threads;
};
