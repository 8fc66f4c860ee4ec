/* Random numbers of the simulator: Philox with own logarithms, so that a workload gives the same run on
 * every machine. Called by worker sets and jobs. */
#pragma once
#include <stdint.h>

struct cw_draw {
    uint64_t key, at;
};

struct cw_draw cw_draw_new(uint64_t seed, const char *what);
double cw_draw_uniform(struct cw_draw *d); /* (0, 1) */
double cw_draw_exponential(struct cw_draw *d, double mean);
/* Draws the mean of n draws of mean 1 and this relative deviation: lognormal, which is exact for n = 1. */
double cw_draw_mean(struct cw_draw *d, double deviation, double n);
