/* The simulator: runs policies on modelled jobs. It goes from event to event. Events are reports, workers
 * that start or fail, ends of epochs, and changes of conditions; the time between two events passes in one
 * step. docs/simulator.md describes the model. Times are simulated seconds. Called by `cachew simulate`. */
#pragma once
#include "sim/workload.h"

struct cw_sim_decision {
    double t;
    int workers, cache_point; /* workers of all pools; -1: no cache point */
    int local;                /* those of the training host */
    double cost;              /* of the job until then */
    json_t *record;           /* from cw_decision_json; owned */
};

struct cw_sim_sample {                  /* for the plot; of the time since the sample before */
    double t, running, target, waiting; /* workers that run and that are wanted; part of time, 0 to 1 */
};

struct cw_sim_outcome { /* of one job */
    double began_s, ended_s, cost, waited_s;
    double worker_s[CW_POLICY_POOLS]; /* by pool */
    struct cw_sim_decision *decisions;
    size_t n_decisions, decisions_room;
    struct cw_sim_sample *samples; /* one per report */
    size_t n_samples, samples_room;
};

struct cw_sim_vector { /* workers of each pool */
    int workers[CW_POLICY_POOLS];
};

/* Returns the number of workers of all pools. */
int cw_sim_workers_sum(const int *workers);

struct cw_sim_plan {              /* a fixed plan of a job */
    int cache_point;              /* for the whole job; -1: none */
    struct cw_sim_vector *phases; /* by phase of the job (cw_sim_job.phases) */
};

struct cw_sim_options {
    const struct cw_policy *policy;  /* NULL: the plans decide */
    const struct cw_sim_plan *plans; /* one per job that is played */
    /* noise, stragglers and failures are replaced by their mean effects, and there are no samples or
     * decisions */
    bool expected;
    int alone;       /* plays only this job, at time 0; -1: all */
    uint64_t *steps; /* is increased by the steps of the run; an error beyond CW_SIM_MAX_STEPS */
};

/* Most steps of a run, and of the search for all oracles. A step is a stretch of time without a change, and
 * takes 50 to 150 ns to compute. A week of 1,000 workers that each fail once a day takes 7 million steps.
 * Workloads generated for tests take 0.2 million at most. */
#define CW_SIM_MAX_STEPS UINT64_C(100000000)
/* Simulates a workload. outcomes: an entry per job that is played; the caller calls cw_sim_outcome_deinit for
 * each. CW_E_PIPELINE: the run takes more than CW_SIM_MAX_STEPS; the error names the field that is the cause.
 */
int cw_sim_run(const struct cw_workload *w, const struct cw_sim_options *o, struct cw_sim_outcome *outcomes,
               struct cw_error *err) _must_check_;
void cw_sim_outcome_deinit(struct cw_sim_outcome *o);

/* Finds the best plan of a job that has all pools for itself, by simulating plans with different numbers of
 * workers in each phase and different cache points. The caller frees ret->phases. */
int cw_sim_oracle(const struct cw_workload *w, int job, struct cw_sim_plan *ret,
                  struct cw_sim_outcome *outcome, struct cw_error *err) _must_check_;

/* Returns the result as JSON (docs/simulator.md). New reference. */
json_t *cw_sim_result(const struct cw_workload *w, const char *policy, const struct cw_sim_outcome *outcomes,
                      const struct cw_sim_outcome *oracles);
/* Writes the result as a picture (SVG) to a file. */
int cw_sim_plot(const char *path, const struct cw_workload *w, const char *policy,
                const struct cw_sim_outcome *outcomes, struct cw_error *err) _must_check_;
