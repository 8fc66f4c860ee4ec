/* How the time of a batch depends on the number of workers: what is believed of that curve after measuring
 * some points of it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define CW_CURVE_POINTS 8
#define CW_CURVE_SHAPES 9

struct cw_point {
    double workers, s, error; /* s: per batch, of the input side alone; error: its standard error, relative */
    /* of how many batches it is the mean, and their squared distances from it, relative; 0: it is none */
    double n, m2;
};

/*
 * A shape is  s(n) = (a n^-p + b)^(1/p) + g n:  p = 1 has a part that can't be divided (Amdahl), a large p a
 * floor that is hit all of a sudden (bandwidth), g is what more workers cost each other. Few points don't
 * tell shapes apart, so the curve is the mean of all of them, weighted by how well they fit (two points: p =
 * 1, which expects the most of more workers: trying them is how shapes are told apart); and what that leaves
 * to a point counts around it, the more the better the point is known.
 */
/* alike: beyond so many workers, as if they were; 0: nowhere */
struct cw_shape {
    double a, b, p, g, alike, weight;
};

struct cw_curve {
    struct cw_shape shapes[CW_CURVE_SHAPES];
    size_t n_shapes;
    struct cw_point points[CW_CURVE_POINTS]; /* s: what the shapes leave, a factor */
    size_t n;
    double reach; /* with more workers than that only the first shape counts */
};

/* points: ascending by workers, at least 1. p: only this shape; 0: all of them, as above. */
void cw_curve_fit(const struct cw_point *points, size_t n, double p, struct cw_curve *ret);
double cw_curve_s(const struct cw_curve *c, double workers);
