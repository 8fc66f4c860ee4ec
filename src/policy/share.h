/* Divides the workers of a pool among jobs. Called by the dispatcher and the simulator. */
#pragma once

struct cw_claim {
    int want;      /* workers that the job's policy wants */
    double weight; /* values outside this range are rejected as typing errors */
#define CW_WEIGHT_LEAST 1e-6
#define CW_WEIGHT_MOST 1e6
    int priority; /* higher priorities are served first, once each job has a worker */
    int quota;    /* most workers; 0: no limit */
    int share;    /* the result */
};

/* Weighted max-min fairness among jobs of equal priority: no job gets more than it wants, and what it
 * leaves goes to the others by weight. First each job that wants workers gets one, in order. Shares are
 * whole workers: the rest of fractions goes to the jobs that are furthest below their part, in order. */
void cw_share(struct cw_claim *claims, int n, int workers);
