/*
 * What an element costs, and the rate if it cost something else: the model behind `explain`. The numbers come
 * from a measuring run with `detail`; nothing here measures or runs anything. explain_run.c and remedies.c
 * call it.
 *
 * The model is operational: each resource (compute threads, CPUs, storage, the consumer, the one thread that
 * plans) by itself lets some number of elements pass in a second, and the least of these is the rate. A
 * prediction is the measured rate, times the model's rate after a change over its rate before, so that what
 * the model leaves out cancels.
 */
#pragma once
#include "explain/measure.h"

struct cw_op_cost {
    const char *op;
    unsigned position, fused_into; /* itself, unless fused */
    bool source, function; /* function: it waits for a host process, and counts as CPU time of that process */
    double rows;           /* elements that come in and were not dropped before, per element of a batch */
    /* seconds of compute threads per element of a batch. busy_s: on a CPU, or waiting for anything but a CPU;
     * cpu_s: on a CPU; delay_s: in addition to busy_s, while others had the CPU */
    double busy_s, cpu_s, delay_s;
    double call_s; /* in addition, on threads of their own: calls on batches, for which the consumer waits */
    /* like busy_s and cpu_s, when the operator runs by itself; it differs where it is fused. Negative: not
     * measured */
    double alone_s, alone_cpu_s;
    double bytes; /* of an element behind it, as far as later operators need it; NAN: not measured */
};

struct cw_costs {
    struct cw_op_cost *ops; /* by position */
    unsigned n_ops;
    /* Seconds per element of a batch. Of compute threads: */
    double plan_s, read_s, emit_s, other_s, idle_s[CW_N_IDLE];
    double late_s;     /* like an operator's delay_s, outside of operators */
    double cpu_s;      /* of all threads, and of host processes */
    double delay_s;    /* threads wanted a CPU, and others had it: that of the operators included */
    double consumer_s; /* of the consumer, when it does not wait for batches */
    double calls_s;    /* of the consumer too: the operators' call_s, one after the other */
    double taken;      /* elements per second that are taken at most; 0: no limit */
    double read_bytes, cold_bytes; /* from files; of these not from memory */
    double storage_bytes_per_s;    /* of cold_bytes; 0: there were none */
    unsigned threads;
    double cpus; /* that this process can get: fewer than there are, where other processes use them */
    size_t memory;
    double rate, noise; /* measured: elements per second, and struct cw_measurement's */
};

/* Computes the costs of a run of l. 1: no elements were put into batches while it was measured. */
int cw_costs_init(struct cw_costs *c, const struct cw_local *l, const struct cw_measurement *m,
                  struct cw_error *err) _must_check_;
/* Returns the mean bytes of a value of an element; NAN: its size varies, and none was measured. */
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
/* Sets ret to the elements per second that each resource lets pass (INFINITY: it is not used). Returns the
 * resource with the least. */
enum cw_resource cw_costs_limits(const struct cw_costs *c, double ret[CW_N_RESOURCES]);
/* Returns the busy_s of all operators; delayed: with their delay_s. */
double cw_costs_busy(const struct cw_costs *c, bool delayed);
/* Returns the seconds that an element takes of a compute thread, with waits that no other resource accounts
 * for. */
double cw_costs_occupied(const struct cw_costs *c);
/* Returns the rate that is predicted for the costs `then`. */
double cw_costs_predict(const struct cw_costs *now, const struct cw_costs *then);

/* What limits the rate. */
struct cw_bottleneck {
    /* "cpu", "function", "waiting", "calls" (of an operator); "reading", "copying", "planning", "scheduling";
     * "storage", "consumer", "memory", "order" */
    const char *kind;
    const char *says;            /* what takes the threads' time; NULL: it is not theirs */
    const struct cw_op_cost *op; /* of the first four; else NULL */
    double share;                /* of that resource: of the threads' time, of the CPUs' time, of a second */
};
struct cw_bottleneck cw_costs_bottleneck(const struct cw_costs *c);

/* Whether larger batches would raise the rate: the threads are the limit, and spend more time between
 * operators, once per batch or piece, than in them. */
bool cw_costs_wants_larger_batches(const struct cw_costs *c);

/* Returns {stages, parts, limits, storage, ...} (docs/explain.md). New reference; NULL: out of memory. */
json_t *cw_costs_json(const struct cw_costs *c);
