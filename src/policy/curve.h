/* The time of a batch by the number of workers: a curve through measured points. Pure functions, called by
 * plan.c and auto_belief.c. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define CW_CURVE_POINTS 8
#define CW_CURVE_SHAPES 9

struct cw_point {
    double workers; /* capacity (supply.h) */
    double s,
        error; /* seconds per batch of the input, whatever the client's step; its relative standard error */
    /* number of batches of which s is the mean; sum of their squared relative distances from it. 0: s is not
     * a mean */
    double n, m2;
    /* of jobs that may have local workers (surface.h, host.h): their number; the CPUs that they used beyond
     * those that were free; the client's step, 0: not measured */
    double local, over_cpus, step_s;
};

/* A shape is s(n) = (a n^-p + b)^(1/p) + g n, for n workers. With p = 1, b is a part that can't be divided
 * (Amdahl); a large p gives a sudden limit (bandwidth); g is the time that each worker costs the others. Few
 * points do not tell shapes apart, so the curve is the mean of several shapes, weighted by how well they fit.
 * Beyond two points only p = 1 is used, which predicts the largest gain from more workers, since trying them
 * tells shapes apart. Near a point, the curve is also corrected towards it, the more the smaller the point's
 * error. */
/* alike: beyond this number of workers, twice the workers take half the time; 0: no such number */
struct cw_shape {
    double a, b, p, g, alike, weight;
};

struct cw_curve {
    struct cw_shape shapes[CW_CURVE_SHAPES];
    size_t n_shapes;
    struct cw_point points[CW_CURVE_POINTS]; /* s: here the factor by which the shapes are corrected */
    size_t n;                                /* points */
    double reach;                            /* beyond this number of workers only the first shape is used */
};

/* Fits a curve. points: at least one, ascending by workers. p: fits only the shape with this p; 0: all. */
void cw_curve_fit(const struct cw_point *points, size_t n, double p, struct cw_curve *ret);
/* Returns the curve's seconds per batch. */
double cw_curve_s(const struct cw_curve *c, double workers);
