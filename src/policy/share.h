/* Divides the workers of a pool among jobs. Called by the dispatcher and the simulator. */
#pragma once

struct cw_claim {
    int want;      /* workers that the job's policy wants */
    double weight; /* values outside this range are rejected as typing errors */
#define CW_WEIGHT_LEAST 1e-6
#define CW_WEIGHT_MOST 1e6
    int priority; /* higher priorities are served first, once each job has a worker */
    int quota;    /* most workers; 0: no limit */
    int share;    /* the result: workers that the job gets */
};

/* Sets the share of each job. First each job that wants workers gets one, in the order of `claims`. The other
 * workers go to jobs with a higher priority first. Jobs of equal priority share by weighted max-min fairness:
 * no job gets more than it wants, and what one job does not want goes to the others by weight. Shares are
 * whole workers: workers left over from rounding down go to the jobs that are furthest below their exact
 * share. */
void cw_share(struct cw_claim *claims, int n, int workers);
