/* A job's workers of a pool: they start after a delay, some are slow, some fail and are replaced. Owned and
 * called by the job that is played (job.h). */
#pragma once
#include "sim/draw.h"
#include "sim/workload.h"

#define CW_SIM_NEVER 1e300

struct cw_sim_start { /* workers that were requested together */
    double at;        /* when they will run */
    int n;
};

struct cw_sim_worker_set {
    double start_delay_s;
    int running, slow; /* slow: stragglers among those that run */
    int starting;
    struct cw_sim_start *starts; /* in order of time */
    size_t n_starts, room;
    double fails_at; /* the next failure of any of them */
    bool reliable;   /* none fails: the model's mean speed has failures in it already */
    struct cw_draw draw;
};

/* Brings running + starting to `target`: requests workers, or lets some go, those that start last first.
 * Negative: out of memory. */
int cw_sim_worker_set_resize(struct cw_sim_worker_set *set, const struct cw_workload *w, double now,
                             int target) _must_check_;
/* When the next worker runs or fails; CW_SIM_NEVER: nothing is due. */
double cw_sim_worker_set_next(const struct cw_sim_worker_set *set);
/* Carries out what is due. 1: something was; negative: out of memory. */
int cw_sim_worker_set_step(struct cw_sim_worker_set *set, const struct cw_workload *w,
                           double now) _must_check_;
