/* Where the time goes: counted always, per thread, summed when asked. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct cw_op_profile {
    uint64_t ns;                       /* computing */
    uint64_t calls;                    /* blocks, or batches */
    uint64_t rows;                     /* elements that went in */
    uint64_t sampled_ns, sampled_rows; /* in blocks that ran unfused: how a fused run's time divides */
    /* beside ns: calls on batches for who takes these, each on a thread of its own; a service's client may
     * have several at a time */
    uint64_t call_ns;
    /* Of operators on elements counted only where a runner's options say `detail`: */
    uint64_t cpu_ns, sampled_cpu_ns; /* of ns: on a CPU; the rest of it was waiting */
    uint64_t live_rows;              /* of rows: neither dropped nor failed before */
};

/* What a value takes of an element, in blocks that ran unfused; with `detail`. */
struct cw_value_profile {
    uint64_t rows, bytes;
};

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

struct cw_compiled;
/* Where a value of a program is counted, of cw_n_values places. */
unsigned cw_value_index(const struct cw_compiled *c, unsigned leaf, unsigned value);
unsigned cw_n_values(const struct cw_compiled *c);
