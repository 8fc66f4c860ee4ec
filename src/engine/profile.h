/* Where the time goes: counted always, per thread, summed when asked. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct cw_op_profile {
    uint64_t ns;         /* computing */
    uint64_t calls;      /* blocks */
    uint64_t rows;       /* elements that went in */
    uint64_t sampled_ns; /* in blocks that ran unfused: how a fused run's time divides */
    uint64_t bytes_out;
};

struct cw_profile {
    struct cw_op_profile *ops; /* by operator position in the pipeline as written */
    unsigned n_ops;
    uint64_t plan_ns, read_ns, read_bytes, emit_ns;
    uint64_t fetch_ns;         /* compute threads read the cache, or looked what it has */
    uint64_t positions;        /* of the sequence, that were computed or read */
    uint64_t idle_ns;          /* threads had nothing they were allowed to do */
    uint64_t wait_ns;          /* the consumer waited for a batch */
    uint64_t run_ns;           /* since the runner started, times threads */
    uint64_t memory_peak;
    unsigned threads;
};
