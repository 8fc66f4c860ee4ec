/*
 * The costs of an element, and the model that predicts the rate from costs: the basis of `explain`. The
 * numbers come from a measurement with `detail`; no function here measures or runs anything. Called by
 * explain_run.c and remedies.c.
 *
 * The model: each resource (compute threads, CPUs, storage, the consumer, the one thread that plans) alone
 * would allow some number of elements per second. The smallest of these numbers is the rate. A prediction is
 * the measured rate times the model's rate after a change over the model's rate before it. So effects that
 * the model leaves out cancel.
 */
#pragma once
#include "explain/measure.h"

struct cw_op_cost {
    const char *op;
    unsigned position;   /* of the operator in the pipeline */
    unsigned fused_into; /* position of the first operator of its fused run; its own position: not fused */
    bool source;
    bool function; /* threads wait for a host process, whose CPU time their waiting counts as */
    double rows;   /* elements that come in and were not dropped before, per element of a batch */
    /* seconds of compute threads per element of a batch. busy_s: on a CPU, or waiting for anything but a CPU;
     * cpu_s: on a CPU; delay_s: in addition to busy_s, waiting for a CPU */
    double busy_s, cpu_s, delay_s;
    /* in addition: seconds of calls on batches that the consumer makes itself and waits for, on other threads
     */
    double call_s;
    /* like busy_s and cpu_s if the operator were not fused. Negative: not measured */
    double alone_s, alone_cpu_s;
    /* mean bytes of an element after the operator, only components that later operators need; NAN: not
     * measured */
    double bytes;
};

struct cw_costs {
    struct cw_op_cost *ops; /* by position */
    unsigned n_ops;
    /* All *_s are seconds per element of a batch. Of compute threads: planning, reading files that are in
     * memory, copying into batches, scheduling, idle by reason (engine/profile.h) */
    double plan_s, read_s, emit_s, other_s, idle_s[CW_N_IDLE];
    double late_s;     /* waiting for a CPU outside of operators */
    double cpu_s;      /* CPU time of all threads, and of host processes */
    double delay_s;    /* waiting for a CPU: late_s and the operators' delay_s */
    double consumer_s; /* of the consumer, while it does not wait for batches */
    double
        calls_s;  /* of the consumer too: sum of the operators' call_s, since calls run one after the other */
    double taken; /* most elements per second that the consumer takes; 0: no limit */
    double read_bytes;          /* read from files, per element of a batch */
    double cold_bytes;          /* the part of read_bytes that was not in memory */
    double storage_bytes_per_s; /* speed of reading cold_bytes; 0: no such bytes */
    unsigned threads;           /* compute threads */
    double cpus;   /* CPUs that this process can get: fewer than it may use if other processes use them */
    size_t memory; /* memory budget, bytes */
    double rate, noise; /* measured elements per second; noise of struct cw_measurement */
};

/* Computes the costs of a run of l. The caller calls cw_costs_deinit in any case. 1: no elements were put
 * into batches during the measurement. */
int cw_costs_init(struct cw_costs *c, const struct cw_local *l, const struct cw_measurement *m,
                  struct cw_error *err) _must_check_;
/* Returns the mean bytes of a value of an element; NAN: its size varies, and was not measured. leaf: index of
 * the source's program. */
double cw_costs_value_bytes(const struct cw_compiled *c, const struct cw_profile *p, unsigned leaf,
                            unsigned value, const struct cw_type *type);
int cw_costs_copy(struct cw_costs *to, const struct cw_costs *from, struct cw_error *err) _must_check_;
void cw_costs_deinit(struct cw_costs *c);

enum cw_resource {
    CW_RESOURCE_THREADS,
    CW_RESOURCE_CPUS,
    CW_RESOURCE_STORAGE,
    CW_RESOURCE_CONSUMER,
    CW_RESOURCE_PLANNING,
    CW_N_RESOURCES
};

extern const char *const cw_resource_names[];
/* Sets ret to the elements per second that each resource allows (INFINITY: not used). Returns the resource
 * that allows the fewest. */
enum cw_resource cw_costs_limits(const struct cw_costs *c, double ret[CW_N_RESOURCES]);
/* Returns the sum of busy_s of all operators; delayed: with their delay_s. */
double cw_costs_busy(const struct cw_costs *c, bool delayed);
/* Returns the seconds of a compute thread per element, including waits that belong to no other resource. */
double cw_costs_occupied(const struct cw_costs *c);
/* Returns the rate that is predicted for the costs `then`. */
double cw_costs_predict(const struct cw_costs *now, const struct cw_costs *then);

struct cw_bottleneck { /* what limits the rate */
    /* "cpu", "function", "waiting", "calls" (of an operator); "reading", "copying", "planning", "scheduling";
     * "storage", "consumer", "memory", "order" (docs/explain.md) */
    const char *kind;
    const char *says; /* what takes the threads' time, for users; NULL: threads are not the limit */
    const struct cw_op_cost *op; /* the operator, for the first four kinds; else NULL */
    double share;                /* part of the limiting resource's time that the bottleneck takes, 0 to 1 */
};
struct cw_bottleneck cw_costs_bottleneck(const struct cw_costs *c);

/* Whether larger batches would raise the rate: threads are the limit, and spend more time between operators,
 * on planning and scheduling, than in operators. */
bool cw_costs_wants_larger_batches(const struct cw_costs *c);

/* Returns {stages, parts, limits, storage, ...} (docs/explain.md). New reference; NULL: out of memory. */
json_t *cw_costs_json(const struct cw_costs *c);
