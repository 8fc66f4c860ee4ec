/* Random numbers of the simulator: Philox, with the project's own logarithm, so that a workload gives the
 * same run on every machine. Called by worker_set.c and job.c. */
#pragma once
#include <stdint.h>

struct cw_draw { /* a sequence of draws: its key, and the number of draws so far */
    uint64_t key, at;
};

/* Returns the sequence of a seed and a purpose, `what`. */
struct cw_draw cw_draw_new(uint64_t seed, const char *what);
double cw_draw_uniform(struct cw_draw *d); /* in (0, 1) */
double cw_draw_exponential(struct cw_draw *d, double mean);
/* Draws the mean of n lognormal numbers of mean 1 with this relative deviation. The result is lognormal
 * itself, which is exact only for n = 1. */
double cw_draw_mean(struct cw_draw *d, double deviation, double n);
