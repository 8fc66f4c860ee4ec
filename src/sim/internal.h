/* A job that is played: shared by worker set.c, job.c and sim.c. */
#pragma once
#include "sim/draw.h"
#include "sim/model.h"
#include "sim/sim.h"

#define CW_SIM_NEVER 1e300

struct cw_sim_start {
    double at;
    int n;
};

struct cw_sim_worker_set { /* a job's workers of a pool */
    double start_delay_s;
    int running, slow; /* slow: stragglers among them */
    int starting;
    struct cw_sim_start *starts; /* in order of time */
    size_t n_starts, room;
    double fails_at;
    bool reliable; /* failures are in the mean speed already */
    struct cw_draw draw;
};

/* Brings running + starting to `target`: starts some, or lets go of some, those that start first. */
int cw_sim_worker_set_set(struct cw_sim_worker_set *worker_set, const struct cw_workload *w, double now,
                          int target) _must_check_;
/* When the next worker comes or fails. */
double cw_sim_worker_set_next(const struct cw_sim_worker_set *worker_set);
/* Lets come and fail who is due. 1: somebody was. */
int cw_sim_worker_set_step(struct cw_sim_worker_set *worker_set, const struct cw_workload *w,
                           double now) _must_check_;

struct cw_sim_played {
    const struct cw_workload *w;
    const struct cw_sim_job *job;
    const struct cw_sim_plan *plan;
    struct cw_sim_costs costs;
    struct cw_policy_memory memory;
    struct cw_sim_worker_set worker_sets[CW_POLICY_POOLS];
    struct cw_draw draw;
    bool expected, active, over, failed;
    bool decided;              /* the first record was made */
    int want[CW_POLICY_POOLS]; /* workers: the policy's wish */
    int cache_point;
    bool write_waits;
    double now, done; /* batches of all epochs */
    double epoch;
    size_t phase;
    /* parts of an epoch: readable now; added in this one */
    double cached[CW_POLICY_CACHE_POINTS], written[CW_POLICY_CACHE_POINTS];
    /* of the batch under way, where batches are drawn one by one; left: of it */
    double factor, step_factor, left;
    /* since the last report */
    struct cw_mean step, interval, compute[CW_POLICY_POOLS];
    double busy_s, since, queue;
    /* When lumpy waits were last reported (s), and how long the client has waited since then without
     * reporting it. */
    double lump_at, lump_wait_s;
    double next_report, report_s, changed_s;
    struct cw_sim_outcome *out;
    uint64_t *steps;
};

int cw_sim_running(const struct cw_sim_played *p); /* workers of all pools */

/* Goes on to `until`, or to the end of the job, as long as there are steps. True: only to the beginning of a
 * phase, of a job that has a plan for it. */
bool cw_sim_job_advance(struct cw_sim_played *p, double until);
