/* What a job's batches take under given conditions. */
#pragma once
#include "sim/workload.h"

struct cw_sim_costs { /* per batch that the client gets, nothing cached; from the stages */
    double cpu_s, source_bytes;
    double prefix_s[CW_POLICY_CACHE_POINTS], bytes[CW_POLICY_CACHE_POINTS];
};

struct cw_sim_conditions {
    double step_s, interval_s; /* the client's own; between two batches */
    double compute_s, busy;    /* a worker's time per batch; the part of its time */
    /* by pool: of the batches; what one of its workers takes for one, by compute_s */
    double part[CW_POLICY_POOLS], slower[CW_POLICY_POOLS];
    double written; /* part of what was computed up to the cache point that could be written */
    bool supplied;  /* the input is slower than the client */
};

struct cw_sim_costs cw_sim_costs(const struct cw_sim_job *job);

struct cw_sim_workers {
    double running, speed;
}; /* of a pool: how many; slow ones counted as parts of one */

/* What a worker of a pool does beside one of the first pool, by the file. */
double cw_sim_speed(const struct cw_workload *w, size_t pool);

/*
 * `cached`: part of the epoch that is read from the cache of `cache_point`.
 * interval = max(client's step, computing / workers, bytes / bandwidth for each store): all of it overlaps,
 * and enough is read ahead.
 */
struct cw_sim_conditions cw_sim_conditions(const struct cw_workload *w, const struct cw_sim_job *job,
                                           const struct cw_sim_costs *costs,
                                           const struct cw_sim_change *phase,
                                           const struct cw_sim_workers *workers, int cache_point,
                                           double cached, bool write_waits);
