/* A job that is simulated. Between two events, its batches are counted, measured and paid for. sim.c owns
 * jobs, advances them, and gives them workers. */
#pragma once
#include "sim/model.h"
#include "sim/sim.h"
#include "sim/worker_set.h"

enum cw_sim_state { CW_SIM_WAITING, CW_SIM_PLAYING, CW_SIM_OVER };

struct cw_sim_choice { /* the last decision of the policy, or of the plan */
    int workers[CW_POLICY_POOLS];
    int cache_point;  /* -1: none */
    bool write_waits; /* as in struct cw_decision */
    bool recorded;    /* the first decision was recorded */
};

struct cw_sim_cache { /* by cache point: part of the epoch that can be read; part of an epoch that this epoch
                         added */
    double readable[CW_POLICY_CACHE_POINTS], written[CW_POLICY_CACHE_POINTS];
};

struct cw_sim_batch {           /* the batch under way, if batches are drawn one by one */
    double factor, step_factor; /* noise of the input's time and of the client's step */
    double left;                /* part of the batch that is left; 0: the next batch is drawn */
};

struct cw_sim_window { /* measured since the last report */
    double since;
    struct cw_mean step, interval;
    double queue; /* sum over time of the batches that are ready, in batches times seconds */
    /* time of the last lump (without lumps: of the last report), and measurements since then */
    double lump_at;
    struct cw_mean compute[CW_POLICY_POOLS];
    double busy_s;
    double lump_wait_s; /* waiting of the client that was not reported yet */
};

struct cw_sim_reports { /* when the policy is called */
    double next, every_s;
    double changed; /* when workers or cache last changed */
};

struct cw_sim_played {
    const struct cw_workload *w;
    const struct cw_sim_job *job;
    const struct cw_sim_plan *plan; /* NULL: the policy decides */
    struct cw_sim_costs costs;
    struct cw_policy_memory memory;
    struct cw_sim_worker_set worker_sets[CW_POLICY_POOLS];
    struct cw_draw draw;
    bool expected; /* as in struct cw_sim_options */
    enum cw_sim_state state;
    double now, done; /* seconds; batches done in all epochs */
    double epoch;     /* from 0 */
    size_t phase;     /* index into job->phases */
    struct cw_sim_choice choice;
    struct cw_sim_cache cache;
    struct cw_sim_batch batch;
    struct cw_sim_window window;
    struct cw_sim_reports reports;
    struct cw_sim_outcome *out; /* the caller's */
    uint64_t *steps;            /* of the run */
};

/* Advances a job to time `until`, to the end of the job, or until the steps of the run are used up. True: it
 * stopped earlier, at the beginning of a phase, so that the job's plan can be followed. */
bool cw_sim_job_advance(struct cw_sim_played *p, double until);
