/* The time of a batch by the number of workers: a curve through measured points. Called by plans (plan.h). */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define CW_CURVE_POINTS 8
#define CW_CURVE_SHAPES 9

struct cw_point {
    double workers, s, error; /* s: seconds per batch of the input side. error: its relative standard error */
    /* batches that s is the mean of, and their squared relative distances from it; 0: it is no mean */
    double n, m2;
};

/* A shape is s(n) = (a n^-p + b)^(1/p) + g n. p = 1 has an indivisible part (Amdahl), a large p a sudden
 * floor (bandwidth), and g is what workers cost each other. Few points don't tell shapes apart, so the
 * curve is their mean, weighted by how well they fit. With two points p = 1 counts, which expects the most
 * of more workers, since trying them tells shapes apart. What the shapes leave at a point counts around
 * it, the more the better the point is known. */
/* alike: beyond this count workers divide the work perfectly; 0: nowhere */
struct cw_shape {
    double a, b, p, g, alike, weight;
};

struct cw_curve {
    struct cw_shape shapes[CW_CURVE_SHAPES];
    size_t n_shapes;
    struct cw_point points[CW_CURVE_POINTS]; /* s: the factor that the shapes leave */
    size_t n;
    double reach; /* beyond this count only the first shape counts */
};

/* points: at least one, ascending by workers. p: fits only this shape; 0: all. */
void cw_curve_fit(const struct cw_point *points, size_t n, double p, struct cw_curve *ret);
double cw_curve_s(const struct cw_curve *c, double workers);
