/* A job's workers of one pool: they start after a delay, some are slow, some fail and are replaced. Owned by
 * struct cw_sim_played (job.h); called by sim.c. */
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
    int running, slow; /* workers that run; the stragglers among them */
    int starting;
    struct cw_sim_start *starts; /* in order of time */
    size_t n_starts, room;       /* used entries; allocated entries */
    double fails_at;             /* time of the next failure of a worker of this set */
    bool reliable;               /* no worker fails: the model's mean speed already includes failures */
    struct cw_draw draw;
};

/* Changes running + starting to `target`: requests workers, or stops some, those that would start last first.
 * Negative: out of memory. */
int cw_sim_worker_set_resize(struct cw_sim_worker_set *set, const struct cw_workload *w, double now,
                             int target) _must_check_;
/* Returns the time at which the next worker starts to run or fails; CW_SIM_NEVER: none does. */
double cw_sim_worker_set_next(const struct cw_sim_worker_set *set);
/* Carries out starts and failures that are due. 1: some were; negative: out of memory. */
int cw_sim_worker_set_step(struct cw_sim_worker_set *set, const struct cw_workload *w,
                           double now) _must_check_;
