/*
 * What a thread counts while it plans, reads and runs operators. Each thread counts for itself; the engine
 * adds the counts of all threads up (engine/profile.h). No locks.
 */
#pragma once
#include "dataset/sequence.h"

/* Of an operator. */
struct cw_op_profile {
    uint64_t ns;                       /* computing */
    uint64_t calls;                    /* blocks, or batches */
    uint64_t rows;                     /* elements that went in */
    uint64_t sampled_ns, sampled_rows; /* in blocks that ran unfused: how a fused run's time divides */
    /* beside ns: calls on batches that the consumer waits for, each on a thread of its own; a client of a
     * service may have several at a time */
    uint64_t call_ns;
    /* Of operators on elements counted only with `detail`: */
    uint64_t cpu_ns, sampled_cpu_ns; /* of ns: on a CPU; the rest of it was waiting */
    uint64_t live_rows;              /* of rows: neither dropped nor failed before */
};

/* What a value takes of an element, in blocks that ran unfused; with `detail`. */
struct cw_value_profile {
    uint64_t rows, bytes;
};

/* Where a value of a program is counted, of cw_n_values places. */
unsigned cw_value_index(const struct cw_compiled *c, unsigned leaf, unsigned value);
unsigned cw_n_values(const struct cw_compiled *c);

/* Of one thread, since they were last added up. */
struct cw_counts {
    const struct cw_compiled *compiled;
    struct cw_op_profile *ops;       /* by operator position; NULL: a read thread, which runs no operators */
    struct cw_value_profile *values; /* by cw_value_index; NULL: without `detail` */
    uint64_t plan_ns, read_ns, read_bytes, emit_ns, emit_rows, fetch_ns;
    uint64_t n_reads;
};

/* Makes room for operators, and with `detail` for values. The caller frees it with cw_counts_deinit. */
int cw_counts_init(struct cw_counts *t, const struct cw_compiled *c, bool detail,
                   struct cw_error *err) _must_check_;
void cw_counts_deinit(struct cw_counts *t);
/* False only in a test that measures what counting takes (base/crash.h: uncounted). */
bool cw_counted(void);

/* One run of an operator on a block. */
struct cw_turn {
    uint64_t start_ns, cpu_ns;
    size_t n_live;
};
struct cw_turn cw_turn_begin(const struct cw_counts *t, const struct cw_block *c);
/* Adds the run to the counts of op, of program `leaf`. plain: the block runs unfused. */
void cw_turn_end(struct cw_counts *t, unsigned leaf, bool plain, const struct cw_op *op,
                 const struct cw_block *c, const struct cw_turn *turn);
