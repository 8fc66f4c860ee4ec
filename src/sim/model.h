/* Computes how long a job's batches take under given conditions. Pure functions, called by job.c and sim.c.
 */
#pragma once
#include "sim/workload.h"

struct cw_sim_costs {           /* of a model, per batch that the client gets, nothing cached */
    double cpu_s, source_bytes; /* CPU seconds of all stages; bytes read from the source */
    /* by cache point: CPU seconds of the stages up to it; bytes to write or read */
    double prefix_s[CW_POLICY_CACHE_POINTS], bytes[CW_POLICY_CACHE_POINTS];
};

struct cw_sim_conditions {
    bool never;                /* these workers can't run, so that nothing is measured */
    double step_s, interval_s; /* the client's step; the time between two batches */
    double compute_s,
        busy; /* a worker's computing time per batch; the part of its time in which it computes */
    /* by pool: its part of the batches; a worker's computing time per batch relative to compute_s */
    double part[CW_POLICY_POOLS], slower[CW_POLICY_POOLS];
    double network_price; /* of what the workers send per batch */
    double written;       /* part of the elements computed up to the cache point that the cache can write */
    bool starved;         /* the client waits for its input, which is slower than its step */
};

/* Computes the costs of a job's model; all zeros for a job with a table. */

struct cw_sim_costs cw_sim_costs(const struct cw_sim_job *job);

struct cw_sim_workers { /* of a pool. speed: sum over workers of their speed, where a straggler counts as less
                           than 1 */
    double running, speed;
};

/* Computes the conditions with these workers of each pool. cached: part of the epoch that is read at
 * cache_point. The interval is the longest of the client's step, computing time / workers, and bytes /
 * bandwidth of each store, since all of these overlap and enough is prefetched. */
struct cw_sim_conditions cw_sim_conditions(const struct cw_workload *w, const struct cw_sim_job *job,
                                           const struct cw_sim_costs *costs,
                                           const struct cw_sim_change *phase,
                                           const struct cw_sim_workers *workers, int cache_point,
                                           double cached, bool write_waits);
