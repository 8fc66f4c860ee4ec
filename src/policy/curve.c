/* The time of a batch by the number of workers: a curve through measured points. Pure functions, called by
 * plan.c and auto_belief.c. */
#include "policy/curve.h"

#include <math.h>

#include "base/macro.h"
#include "base/math.h"

#define ROUGH 0.015 /* relative error of any shape, as real curves are not smooth */
#define SURE 2.0  /* if the shapes miss a point by more errors than this, they are wrong and not the point */
#define RISE 0.02 /* least relative rise, beyond noise, behind the lowest point of a valley */
/* Prior weights of shapes. A chord is rare: tables have one between distant numbers of workers. A tail fits
 * any three points, so it is used only if all other shapes miss them by far. */
#define VALLEY_BEFORE 0.15
#define CHORD_BEFORE 0.05
#define TAIL_BEFORE 0.001
/* A valley through three points may miss the other points by this sum of squared errors. */
#define VALLEY_MISFIT 25.0

static double curve_power(double x, double p)
{
    return p == 1 ? x : p == 2 ? x * x : cw_pow(x, p);
}

static double curve_root(double x, double p)
{
    return p == 1 ? x : p == 2 ? sqrt(x) : cw_pow(x, 1 / p);
}

static double shape_s(const struct cw_shape *c, double n)
{
    if (c->alike > 0 && n > c->alike)
        return shape_s(c, c->alike) * c->alike / n;
    return curve_root(c->a / curve_power(n, c->p) + c->b, c->p) + c->g * n;
}

static double point_variance(const struct cw_point *p)
{
    return p->error * p->error + ROUGH * ROUGH;
}

/* Returns the sum of squared errors in logarithms, relative to the points' variances. In logarithms, a
 * hundredth of a measured value is a larger error than twice the value. */
static double shape_misfit(const struct cw_shape *c, const struct cw_point *points, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double s = shape_s(c, points[i].workers), off = s > 0 ? cw_log(s / points[i].s) : 1e9;
        sum += off * off / point_variance(&points[i]);
    }
    return sum;
}

/* Weighted sums for the least squares of a straight line. */
struct sums {
    double w, x, y, xx, xy;
};

static void sums_add(struct sums *s, double w, double x, double y)
{
    s->w += w;
    s->x += w * x;
    s->y += w * y;
    s->xx += w * x * x;
    s->xy += w * x * y;
}

/* Least squares of s^p = a n^-p + b with relative errors, a and b at least 0. */
static struct cw_shape shape_fit_power(const struct cw_point *points, size_t n, double p)
{
    struct sums q = {0};
    for (size_t i = 0; i < n; i++) {
        double y = curve_power(points[i].s, p);
        sums_add(&q, 1 / (y * y * point_variance(&points[i])), 1 / curve_power(points[i].workers, p), y);
    }
    double det = q.w * q.xx - q.x * q.x;
    bool two = det > 1e-9 * q.w * q.xx;
    struct cw_shape linear = {.a = q.xy / q.xx, .p = p}, flat = {.b = q.y / q.w, .p = p};
    struct cw_shape c = {.a = two ? (q.w * q.xy - q.x * q.y) / det : linear.a,
                         .b = two ? (q.xx * q.y - q.x * q.xy) / det : 0,
                         .p = p};
    if (c.b < 0)
        c = linear;
    if (c.a < 0)
        c = shape_misfit(&flat, points, n) <= shape_misfit(&linear, points, n) ? flat : linear;
    return c;
}

/* Fits a/n + g n through two points. False: there is no such shape with a, g > 0. */
static bool shape_fit_pure_valley(const struct cw_point *p, struct cw_shape *c)
{
    double x = p[0].workers, y = p[1].workers, g = (p[1].s * y - p[0].s * x) / (y * y - x * x),
           a = p[0].s * x - g * x * x;
    *c = (struct cw_shape){.a = a, .p = 1, .g = g};
    return a > 0 && g > 0;
}

/* Fits a/n + b + g n through three points. */
static void shape_fit_three(const struct cw_point *p, struct cw_shape *c)
{
    double x[3];
    for (int i = 0; i < 3; i++)
        x[i] = p[i].workers;
    /* divided differences: n gives 1, 1/n gives -1/(x0 x1) */
    double d1 = (p[1].s - p[0].s) / (x[1] - x[0]), d2 = (p[2].s - p[1].s) / (x[2] - x[1]);
    double a = (d2 - d1) / (1 / (x[0] * x[1]) - 1 / (x[1] * x[2])), g = d1 + a / (x[0] * x[1]);
    *c = (struct cw_shape){.a = a, .b = p[0].s - a / x[0] - g * x[0], .p = 1, .g = g};
}

/* Fits a/n + b + g n through three points. False: there is no such shape with a, g > 0. */
static bool shape_fit_valley(const struct cw_point *p, struct cw_shape *c)
{
    shape_fit_three(p, c);
    return c->a > 0 && c->g > 0 && c->b + 2 * sqrt(c->a * c->g) > 0;
}

/* Fits a tail: a/n + b + g n with g < 0 through the last three points, then perfect division of the work. It
 * fits where more workers gain more than with any indivisible part. False: they do not. */
static bool shape_fit_tail(const struct cw_point *points, size_t n, struct cw_shape *c)
{
    shape_fit_three(points + n - 3, c);
    c->alike = points[n - 1].workers;
    return c->a > 0 && c->g < 0;
}

/* Fits a chord: a falling straight line, as a table has between distant numbers of workers, then perfect
 * division of the work. False: the line does not fall, or falls below 0. */
static bool shape_fit_chord(const struct cw_point *points, size_t n, struct cw_shape *c)
{
    struct sums q = {0};
    for (size_t i = 0; i < n; i++)
        sums_add(&q, 1 / (points[i].s * points[i].s * point_variance(&points[i])), points[i].workers,
                 points[i].s);
    double det = q.w * q.xx - q.x * q.x, g = det > 0 ? (q.w * q.xy - q.x * q.y) / det : 0,
           b = (q.y - g * q.x) / q.w;
    *c = (struct cw_shape){.b = b, .p = 1, .g = g, .alike = points[n - 1].workers};
    return g < 0 && b + g * c->alike > 0;
}

static size_t points_fastest(const struct cw_point *points, size_t n)
{
    size_t low = 0;
    for (size_t i = 1; i < n; i++)
        if (points[i].s < points[low].s)
            low = i;
    return low;
}

/* Fits a valley through the fastest point and its neighbours, if the time rises again after the fastest
 * point. */
static bool shape_try_valley(const struct cw_point *points, size_t n, struct cw_shape *c)
{
    size_t low = points_fastest(points, n);
    if (n < 3 || low + 1 >= n ||
        points[low + 1].s <
            points[low].s *
                (1 + RISE + 2 * sqrt(point_variance(&points[low]) + point_variance(&points[low + 1]))))
        return false;
    return shape_fit_valley(points + (low > 0 ? low - 1 : 0), c) &&
           shape_misfit(c, points, n) < VALLEY_MISFIT;
}

/* Fits a/n. False: a point is off by more than noise. */
static bool shape_try_linear(const struct cw_point *points, size_t n, struct cw_shape *c)
{
    double w = 0, a = 0;
    for (size_t i = 0; i < n; i++) {
        w += 1 / point_variance(&points[i]);
        a += points[i].s * points[i].workers / point_variance(&points[i]);
    }
    *c = (struct cw_shape){.a = a / w, .p = 1, .weight = 1};
    for (size_t i = 0; i < n; i++)
        if (fabs(shape_s(c, points[i].workers) / points[i].s - 1) > 2 * sqrt(point_variance(&points[i])))
            return false;
    return true;
}

/* Adds a shape. Its weight is its prior weight, `before`, times the likelihood of the points. */
static void curve_add_shape(struct cw_curve *c, struct cw_shape shape, double before,
                            const struct cw_point *points, size_t n)
{
    shape.weight = before * cw_exp(-0.5 * shape_misfit(&shape, points, n));
    c->shapes[c->n_shapes++] = shape;
}

static void curve_fit_shapes(const struct cw_point *points, size_t n, struct cw_curve *c)
{
    /* prior weights */
    static const double powers[] = {1, 1.4, 2, 3, 5, 10}, before[] = {0.4, 0.1, 0.1, 0.1, 0.15, 0.15};
    const struct cw_point three[] = {points[0], points[CW_MIN(CW_MAX(points_fastest(points, n), 1), n - 2)],
                                     points[n - 1]};
    struct cw_shape shape;
    double sum = 0;
    for (size_t i = 0; i < CW_COUNT_OF(powers); i++)
        curve_add_shape(c, shape_fit_power(points, n, powers[i]), before[i], points, n);
    if (n > 2 && shape_fit_tail(points, n, &shape))
        curve_add_shape(c, shape, TAIL_BEFORE, points, n);
    if (n > 2 && shape_fit_chord(points, n, &shape))
        curve_add_shape(c, shape, CHORD_BEFORE, points, n);
    if (n == 2 ? shape_fit_pure_valley(points, &shape) : shape_fit_valley(three, &shape))
        curve_add_shape(c, shape, VALLEY_BEFORE, points, n);
    for (size_t i = 0; i < c->n_shapes; i++)
        sum += c->shapes[i].weight;
    for (size_t i = 0; i < c->n_shapes; i++) /* if no shape fits, all have the same weight */
        c->shapes[i].weight = sum > 1e-100 ? c->shapes[i].weight / sum : 1.0 / (double)c->n_shapes;
}

void cw_curve_fit(const struct cw_point *points, size_t n, double p, struct cw_curve *ret)
{
    struct cw_curve c = {.reach = 1e300};
    if (p > 0)
        c.shapes[c.n_shapes++] = shape_fit_power(points, n, p);
    else if (shape_try_linear(points, n, &c.shapes[0]) || shape_try_valley(points, n, &c.shapes[0]))
        c.n_shapes = 1;
    else
        curve_fit_shapes(points, n, &c);
    if (c.n_shapes == 1)
        c.shapes[0].weight = 1;
    *ret = c;
    ret->n = n;
    ret->reach = n == 2 ? points[1].workers : 1e300;
    for (size_t i = 0; i < n; i++) { /* c has no points yet, so this is the shapes alone */
        double off = points[i].s / cw_curve_s(&c, points[i].workers), error = points[i].error,
               by = fabs(cw_log(off));
        double rough = by > SURE * error ? CW_MAX(by * by - SURE * SURE * error * error, ROUGH * ROUGH)
                                         : ROUGH * ROUGH,
               trust = rough / (rough + error * error);
        ret->points[i] = (struct cw_point){points[i].workers, 1 + (off - 1) * trust, points[i].error};
    }
}

/* Returns the factor by which the shapes are corrected: that of the points, linear in log n between them. */
static double curve_left(const struct cw_curve *c, double workers)
{
    const struct cw_point *p = c->points;
    if (c->n == 0)
        return 1;
    if (workers >= p[c->n - 1].workers)
        return p[c->n - 1].s;
    for (size_t i = 0; i + 1 < c->n; i++)
        if (workers >= p[i].workers && workers < p[i + 1].workers)
            return p[i].s + (p[i + 1].s - p[i].s) * cw_log(workers / p[i].workers) /
                                cw_log(p[i + 1].workers / p[i].workers);
    return p[0].s;
}

double cw_curve_s(const struct cw_curve *c, double workers)
{
    double s = 0;
    for (size_t i = 0; i < c->n_shapes; i++)
        if (c->shapes[i].weight > 1e-6)
            s += c->shapes[i].weight * shape_s(&c->shapes[i], workers);
    if (workers > c->reach)
        s = shape_s(&c->shapes[0], workers);
    return s * curve_left(c, workers);
}
