/*
 * What an element costs, and what would be if it cost something else: the model behind `explain`. Numbers
 * come from a measuring run with `detail`; nothing here measures or runs anything.
 *
 * The model is operational: each resource (compute threads, CPUs, storage, who takes the batches, the one
 * thread that plans) by itself would let so many elements pass in a second; the least of these is the rate.
 * What it leaves out it leaves out of both sides: a prediction is the measured rate, times the model's rate
 * after a change over the model's rate before.
 */
#pragma once
#include "explain/measure.h"

struct cw_op_cost {
    const char *op;
    unsigned position, fused_into; /* itself, unless fused */
    bool source, function; /* function: it waits for a host process, whose CPU time it is taken to be */
    double rows;           /* that come in and were not dropped before, per element of a batch */
    /* of compute threads, per element of a batch: on a CPU, or waiting for anything but a CPU; the former of
     * these */
    double busy_s, cpu_s;
    double delay_s; /* beside that: others had the CPU */
    /* beside that, of threads of their own: calls on batches, for which who takes these waits */
    double call_s;
    /* like busy_s and cpu_s, run by itself; other than these where it is fused. Negative: not seen */
    double alone_s, alone_cpu_s;
    double bytes; /* of an element behind it, as far as it is needed from there on; NAN: not seen */
};

struct cw_costs {
    struct cw_op_cost *ops; /* by position */
    unsigned n_ops;
    /* Seconds per element of a batch. Of compute threads: */
    double plan_s, read_s, emit_s, other_s, idle_s[CW_N_IDLE];
    double late_s;     /* like an operator's delay_s, outside of operators */
    double cpu_s;      /* of all threads, and of host processes */
    double delay_s;    /* threads wanted a CPU, and others had it: that of the operators included */
    double consumer_s; /* of who takes the batches, not waiting for them */
    double calls_s;    /* of who takes them too: the operators' call_s, one after the other */
    double taken;      /* elements per second that are taken at most; 0: as many as come */
    double read_bytes, cold_bytes; /* from files; of these not from memory */
    double storage_bytes_per_s;    /* as the latter came; 0: there were none */
    unsigned threads;
    double cpus; /* to be had: fewer than there are, where other processes use them */
    size_t memory;
    double rate, noise; /* measured: elements per second, and struct cw_measurement's */
};

/* Costs of a run of l. 1: nothing was put into batches in the meantime. */
int cw_costs_init(struct cw_costs *c, const struct cw_local *l, const struct cw_measurement *m,
                  struct cw_error *err) _must_check_;
/* Mean bytes of a value of an element; NAN: its size varies, and none was seen. */
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
/* Elements per second that each resource would let pass (INFINITY: it is not used), and which is the least.
 */
enum cw_resource cw_costs_limits(const struct cw_costs *c, double ret[CW_N_RESOURCES]);
/* Seconds that an element takes of a compute thread, waiting for what no other resource accounts for
 * included. */
double cw_costs_occupied(const struct cw_costs *c);
/* The measured rate if things were as in `then`. */
double cw_costs_predict(const struct cw_costs *now, const struct cw_costs *then);

/* What limits the rate. */
struct cw_bottleneck {
    /* "cpu", "function", "waiting", "calls" (of an operator); "reading", "copying", "planning", "scheduling";
     * "storage", "consumer", "memory", "order" */
    const char *kind;
    const struct cw_op_cost *op; /* of the first four; else NULL */
    double share; /* of what there is of that resource: of the threads' time, of the CPUs', of a second */
};
struct cw_bottleneck cw_costs_bottleneck(const struct cw_costs *c);

/* Larger batches would raise the rate: the threads are the limit, and what they do between operators, once
 * for a batch or a piece of one, takes most of their time beside them. */
bool cw_costs_wants_larger_batches(const struct cw_costs *c);

/* {stages, parts, limits, storage, ...}: docs/explain.md tells the keys. New reference; NULL: out of memory.
 */
json_t *cw_costs_json(const struct cw_costs *c);
