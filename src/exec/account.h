/*
 * What one thread counts while it plans, reads and runs operators. Each thread has its own counts; the engine
 * sums the counts of all threads (engine/profile.h). No locks.
 */
#pragma once
#include "dataset/sequence.h"

/* Counts of one operator. */
struct cw_op_profile {
    uint64_t ns;    /* time of computing */
    uint64_t calls; /* runs on a block, or calls on a batch */
    uint64_t rows;  /* elements that arrived at the operator */
    /* of blocks that ran unfused: they show how the time of a fused run divides */
    uint64_t sampled_ns, sampled_rows;
    /* in addition to ns: time of calls on batches that the consumer waits for. Each call has its own thread;
     * a client of a service may have several calls at a time */
    uint64_t call_ns;
    /* Counted only for operators on elements, and only with `detail`: */
    /* part of ns (of sampled_ns) that was spent on a CPU; the rest was waiting */
    uint64_t cpu_ns, sampled_cpu_ns;
    uint64_t live_rows; /* rows that had neither been dropped nor failed before */
};

/* The size of a value: elements and bytes counted in blocks that ran unfused; with `detail`. */
struct cw_value_profile {
    uint64_t rows, bytes;
};

/* Returns the index at which a value of program `leaf` is counted, less than cw_n_values. */
unsigned cw_value_index(const struct cw_compiled *c, unsigned leaf, unsigned value);
/* Returns the number of values that are counted. */
unsigned cw_n_values(const struct cw_compiled *c);

/* Counts of one thread since they were last added to the sums. */
struct cw_counts {
    const struct cw_compiled *compiled;
    struct cw_op_profile *ops;       /* by operator position; NULL: a read thread, which runs no operators */
    struct cw_value_profile *values; /* by cw_value_index; NULL: without `detail` */
    uint64_t plan_ns, read_ns, read_bytes, emit_ns, emit_rows, fetch_ns;
    uint64_t n_reads;
};

/* Allocates room for operators, and with `detail` for values. The caller frees it with cw_counts_deinit. */
int cw_counts_init(struct cw_counts *t, const struct cw_compiled *c, bool detail,
                   struct cw_error *err) _must_check_;
void cw_counts_deinit(struct cw_counts *t);
/* Returns false only in a test that measures the cost of counting (base/crash.h: uncounted). */
bool cw_counted(void);

/* The begin of one run of an operator on a block, between cw_turn_begin and cw_turn_end. */
struct cw_turn {
    uint64_t start_ns, cpu_ns;
    size_t n_live;
};
struct cw_turn cw_turn_begin(const struct cw_counts *t, const struct cw_block *c);
/* Adds the run to the counts of op, of program `leaf`. plain: the block runs unfused. */
void cw_turn_end(struct cw_counts *t, unsigned leaf, bool plain, const struct cw_op *op,
                 const struct cw_block *c, const struct cw_turn *turn);
