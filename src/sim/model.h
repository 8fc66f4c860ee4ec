/* How long a job's batches take under given conditions: pure functions, called by jobs that are played. */
#pragma once
#include "sim/workload.h"

struct cw_sim_costs { /* per batch that the client gets, nothing cached, from the stages */
    double cpu_s, source_bytes;
    double prefix_s[CW_POLICY_CACHE_POINTS], bytes[CW_POLICY_CACHE_POINTS];
};

struct cw_sim_conditions {
    double step_s, interval_s; /* of the client, between two batches */
    double compute_s, busy;    /* a worker's time per batch, and the part of its time that this is */
    /* by pool: its part of the batches, and its worker's time for one relative to compute_s */
    double part[CW_POLICY_POOLS], slower[CW_POLICY_POOLS];
    double written; /* part of what was computed up to the cache point that the cache takes */
    bool supplied;  /* the input is slower than the client */
};

struct cw_sim_costs cw_sim_costs(const struct cw_sim_job *job);

struct cw_sim_workers {
    double running, speed;
}; /* of a pool. speed: slow workers count as parts of one */

/* cached: part of the epoch that is read at cache_point. interval = max(client's step, computing /
 * workers, bytes / bandwidth for each store), since all of these overlap and enough is prefetched. */
struct cw_sim_conditions cw_sim_conditions(const struct cw_workload *w, const struct cw_sim_job *job,
                                           const struct cw_sim_costs *costs,
                                           const struct cw_sim_change *phase,
                                           const struct cw_sim_workers *workers, int cache_point,
                                           double cached, bool write_waits);
