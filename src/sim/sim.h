/* The simulator: plays policies against modelled jobs. It goes from event to event: between a report, a
 * worker that comes or goes, the end of an epoch and a change of conditions, time passes in one step.
 * docs/simulator.md describes the model. Called by `cachew simulate`. */
#pragma once
#include "sim/workload.h"

struct cw_sim_decision {
    double t;
    int workers, cache_point;
    json_t *record; /* cw_decision_json */
};

struct cw_sim_sample {
    double t, running, target, waiting;
};

struct cw_sim_outcome { /* of one job */
    double began_s, ended_s, cost, waited_s;
    double worker_s[CW_POLICY_POOLS]; /* by pool */
    struct cw_sim_decision *decisions;
    size_t n_decisions, decisions_room;
    struct cw_sim_sample *samples; /* one per report */
    size_t n_samples, samples_room;
};

/* A fixed plan: workers of each pool in each phase of the job, and a cache point. */
struct cw_sim_vector {
    int workers[CW_POLICY_POOLS];
};

int cw_sim_workers_sum(const int *workers); /* of all pools */

struct cw_sim_plan {
    int cache_point;
    struct cw_sim_vector *phases;
};

struct cw_sim_options {
    const struct cw_policy *policy;  /* NULL: the plans decide */
    const struct cw_sim_plan *plans; /* per job */
    bool expected;                   /* means in place of noise, stragglers and failures, and no samples */
    int alone;                       /* only this job, at time 0; -1: all */
    uint64_t *steps;                 /* counts the steps, which are limited */
};

/* Most steps of a run, and of the search for all oracles: stretches of time without a change, at 50 to 150
 * ns each. A week of 1,000 workers that each fail once a day takes 7 million. Workloads generated for
 * tests take 0.2 million at most. */
#define CW_SIM_MAX_STEPS UINT64_C(100000000)
/* Plays a workload. outcomes: n_jobs entries. CW_E_PIPELINE, naming a field: it takes more steps than
 * CW_SIM_MAX_STEPS. */
int cw_sim_run(const struct cw_workload *w, const struct cw_sim_options *o, struct cw_sim_outcome *outcomes,
               struct cw_error *err) _must_check_;
void cw_sim_outcome_deinit(struct cw_sim_outcome *o);

/* Finds the best plan of a job that has all pools for itself, by trying counts of workers, cache points
 * and phases. */
int cw_sim_oracle(const struct cw_workload *w, int job, struct cw_sim_plan *ret,
                  struct cw_sim_outcome *outcome, struct cw_error *err) _must_check_;

/* The result as JSON, and as a picture (SVG) in a file. */
json_t *cw_sim_result(const struct cw_workload *w, const char *policy, const struct cw_sim_outcome *outcomes,
                      const struct cw_sim_outcome *oracles);
int cw_sim_plot(const char *path, const struct cw_workload *w, const char *policy,
                const struct cw_sim_outcome *outcomes, struct cw_error *err) _must_check_;
