/* A job that is played: from one event to the next its batches are counted, measured and paid for. sim.c owns
 * jobs, moves them on, and decides what they get. */
#pragma once
#include "sim/model.h"
#include "sim/sim.h"
#include "sim/worker_set.h"

enum cw_sim_state { CW_SIM_WAITING, CW_SIM_PLAYING, CW_SIM_OVER };

struct cw_sim_choice { /* what the policy, or the plan, decided last */
    int workers[CW_POLICY_POOLS];
    int cache_point; /* -1: none */
    bool write_waits;
    bool recorded; /* there is a first record */
};

struct cw_sim_cache { /* by cache point: parts of an epoch that can be read, that this epoch added */
    double readable[CW_POLICY_CACHE_POINTS], written[CW_POLICY_CACHE_POINTS];
};

struct cw_sim_batch { /* the batch under way, where batches are drawn one by one */
    double factor, step_factor;
    double left; /* part of it; 0: the next one is drawn */
};

struct cw_sim_window { /* measured since the last report */
    double since;
    struct cw_mean step, interval;
    double queue; /* batches that lay ready, times seconds */
    /* since the last lump; without lumps since the last report */
    double lump_at;
    struct cw_mean compute[CW_POLICY_POOLS];
    double busy_s;
    double lump_wait_s; /* time that the client waited and that was not reported yet */
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
    bool expected; /* means in place of draws */
    enum cw_sim_state state;
    double now, done; /* done: batches of all epochs */
    double epoch;
    size_t phase;
    struct cw_sim_choice choice;
    struct cw_sim_cache cache;
    struct cw_sim_batch batch;
    struct cw_sim_window window;
    struct cw_sim_reports reports;
    struct cw_sim_outcome *out; /* the caller's */
    uint64_t *steps;            /* of the run */
};

/* Moves on to `until`, to the end of the job, or until the steps of the run are used up. True: it stopped at
 * the beginning of a phase that the job's plan has something for. */
bool cw_sim_job_advance(struct cw_sim_played *p, double until);
