/* The time of a batch by the numbers of local and of other workers: guesses through measured points. Pure
 * functions, called by plan.c and auto_belief.c. */
#include "policy/surface.h"

#include <math.h>
#include <string.h>

#include "base/macro.h"
#include "base/math.h"

#define ROUGH 0.015 /* relative error of any guess, as real surfaces are not smooth */
/* Values of `slow` that are tried: STEPS from SLOW_LEAST on, each SLOW_RATIO times the one before. The best
 * one is then refined in REFINED steps. */
#define SLOW_LEAST 0.0005
#define SLOW_RATIO 2.0
#define STEPS 12
#define REFINED 6
/* Prior weight of guesses without slowing down; the others share the rest. */
#define FREE_BEFORE 0.6
#define DRAG_BEFORE 0.1 /* prior weight of workers that slow each other down; all others: 1 */
#define FREES \
    4 /* values of `free` that are tried, from 0 to the largest measured number of local workers \
       */
#define MOST_GUESSES (1 + 3 * (1 + 2 * FREES * 2))
/* A point corrects guesses near it: within this part of the capacity and of the number of local workers. */
#define NEAR 0.35
#define LEAST_WEIGHT 0.002
#define TRUST 0.05 /* weight of a guess without correction, where that of a point is at most 1 */

static double guess_power(double x, double p)
{
    double cube = x * x * x;
    return p == 1 ? x : p == 3 ? cube : p == 12 ? (cube * cube) * (cube * cube) : cw_pow(x, p);
}

/* Returns (x^p + y^p)^(1/p) of numbers from 0. */
static double guess_together(double x, double y, double p)
{
    double most = CW_MAX(x, y), least = CW_MIN(x, y), part = most > 0 ? guess_power(least / most, p) : 0;
    if (p == 1)
        return x + y;
    return most * (part < 0.01 ? 1 + part / p : cw_pow(1 + part, 1 / p)); /* the series is exact enough */
}

static double guess_factor(const struct cw_guess *g, double local)
{
    return 1 + g->slow * CW_MAX(local - g->free, 0);
}

double cw_guess_s(const struct cw_guess *g, double capacity, double local)
{
    double f = guess_factor(g, local), supply = g->a / CW_MAX(capacity, 1e-9);
    if (g->kind == CW_GUESS_DRAG)
        return supply + g->b * capacity;
    return g->whole ? f * guess_together(supply, g->b, g->p) : guess_together(supply, f * g->b, g->p);
}

static double guess_variance(const struct cw_point *p)
{
    return p->error * p->error + ROUGH * ROUGH;
}

static double guess_misfit(const struct cw_guess *g, const struct cw_point *points, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double s = cw_guess_s(g, points[i].workers, points[i].local),
               off = s > 0 ? cw_log(s / points[i].s) : 1e9;
        sum += off * off / guess_variance(&points[i]);
    }
    return sum;
}

/* Sets a and b by least squares of s^p = a^p capacity^-p + b^p f^p, in units of the first point. flat: false
 * sets b to 0. */
static void guess_fit(struct cw_guess *g, const struct cw_point *points, size_t n, bool flat)
{
    double xx = 0, xz = 0, zz = 0, xy = 0, zy = 0;
    for (size_t i = 0; i < n; i++) {
        double f = guess_factor(g, points[i].local),
               y = guess_power(points[i].s / points[0].s / (g->whole ? f : 1), g->p),
               x = guess_power(points[0].workers / points[i].workers, g->p),
               z = g->kind == CW_GUESS_DRAG ? points[i].workers / points[0].workers
                                            : guess_power(g->whole ? 1 : f, g->p),
               w = 1 / (y * y * guess_variance(&points[i]));
        xx += w * x * x;
        xz += w * x * z;
        zz += w * z * z;
        xy += w * x * y;
        zy += w * z * y;
    }
    double det = xx * zz - xz * xz, a = xy / xx, b = 0;
    if (flat && det > 1e-9 * xx * zz) {
        a = (xy * zz - zy * xz) / det;
        b = (zy * xx - xy * xz) / det;
        if (b < 0) {
            a = xy / xx;
            b = 0;
        } else if (a < 0) {
            a = 0;
            b = zy / zz;
        }
    }
    g->a = a > 0 ? cw_pow(a, 1 / g->p) * points[0].s * points[0].workers : 0;
    g->b = b > 0 ? cw_pow(b, 1 / g->p) * points[0].s : 0;
    if (g->kind == CW_GUESS_DRAG)
        g->b /= points[0].workers;
}

static double guess_try(struct cw_guess *g, double slow, const struct cw_point *points, size_t n, bool flat)
{
    g->slow = slow;
    guess_fit(g, points, n, flat);
    return guess_misfit(g, points, n);
}

/* Sets `slow`, a and b. Returns the misfit. */
static double guess_fit_slow(struct cw_guess *g, const struct cw_point *points, size_t n, bool flat)
{
    double best = 1e300, at = SLOW_LEAST, step = SLOW_RATIO, slow = SLOW_LEAST;
    for (int i = 0; i < STEPS; i++, slow *= SLOW_RATIO) {
        double misfit = guess_try(g, slow, points, n, flat);
        if (misfit < best) {
            best = misfit;
            at = slow;
        }
    }
    for (int i = 0; i < REFINED; i++) {
        step = sqrt(step);
        for (int way = -1; way <= 1; way += 2) {
            double misfit = guess_try(g, way < 0 ? at / step : at * step, points, n, flat);
            if (misfit < best) {
                best = misfit;
                at = g->slow;
            }
        }
    }
    return guess_try(g, at, points, n, flat);
}

struct guesses { /* weight: here the logarithm of the prior weight times the likelihood of the points */
    struct cw_guess all[MOST_GUESSES];
    size_t n;
};

static void guesses_add(struct guesses *list, const struct cw_guess *g, double before, double misfit)
{
    list->all[list->n] = *g;
    list->all[list->n++].weight = cw_log(before) - 0.5 * misfit;
}

/* Adds all guesses with this p. Where few points do not tell a limit from slowing down, each is tried alone.
 */
static void guesses_add_power(struct guesses *list, double p, double before, const struct cw_point *points,
                              size_t n)
{
    struct cw_guess g = {.p = p};
    double local = 0;
    for (size_t i = 0; i < n; i++)
        local = CW_MAX(local, points[i].local);
    guesses_add(list, &g, before * (local > 0 ? FREE_BEFORE : 1), guess_try(&g, 0, points, n, true));
    list->all[list->n - 1] = (struct cw_guess){
        .p = p, .a = g.a, .b = g.b, .weight = list->all[list->n - 1].weight};
    for (int k = 0; local > 0 && k < 2 * FREES; k++)
        for (int flat = n > 2; flat >= 0; flat--) {
            g = (struct cw_guess){
                .p = p, .kind = CW_GUESS_SLOWED, .whole = k % 2, .free = local * (k / 2) / FREES};
            double misfit = guess_fit_slow(&g, points, n, flat);
            guesses_add(list, &g, before * (1 - FREE_BEFORE) / (2 * FREES * (n > 2 ? 2 : 1)), misfit);
        }
}

/* Moves the most likely guesses to `ret`, and makes weights of logarithms. */
static void guesses_keep(struct guesses *list, struct cw_surface *ret)
{
    double sum = 0, first = 0;
    while (ret->n_guesses < CW_SURFACE_GUESSES && list->n > 0) {
        size_t best = 0;
        for (size_t i = 1; i < list->n; i++)
            if (list->all[i].weight > list->all[best].weight)
                best = i;
        struct cw_guess *g = &ret->guesses[ret->n_guesses];
        *g = list->all[best];
        list->all[best] = list->all[--list->n];
        if (ret->n_guesses++ == 0)
            first = g->weight;
        sum += g->weight = cw_exp(CW_MAX(g->weight - first, -500));
    }
    for (size_t i = 0; i < ret->n_guesses; i++)
        ret->guesses[i].weight /= sum;
    while (ret->guesses[ret->n_guesses - 1].weight < LEAST_WEIGHT)
        ret->n_guesses--;
}

void cw_surface_fit(const struct cw_point *points, size_t n, struct cw_surface *ret)
{
    struct guesses list = {.n = 0};
    *ret = (struct cw_surface){0};
    guesses_add_power(&list, 1, 0.4, points, n);
    guesses_add_power(&list, 3, 0.25, points, n);
    guesses_add_power(&list, 12, 0.35, points, n);
    struct cw_guess drag = {.p = 1, .kind = CW_GUESS_DRAG};
    double misfit = guess_try(&drag, 0, points, n, true);
    if (drag.b > 0)
        guesses_add(&list, &drag, DRAG_BEFORE, misfit);
    guesses_keep(&list, ret);
    for (size_t i = 0; i < n; i++) {
        double s = 0;
        for (size_t k = 0; k < ret->n_guesses; k++)
            s += ret->guesses[k].weight * cw_guess_s(&ret->guesses[k], points[i].workers, points[i].local);
        ret->points[i] = points[i];
        ret->points[i].s = s > 0 ? CW_MAX(CW_MIN(cw_log(points[i].s / s), 2), -2) : 0;
    }
    ret->n = n;
}

double cw_surface_keep(struct cw_surface *s, enum cw_guess_kind kind)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < s->n_guesses; i++)
        if (s->guesses[i].kind == kind) {
            sum += s->guesses[i].weight;
            s->guesses[n++] = s->guesses[i];
        }
    for (size_t i = 0; i < n; i++)
        s->guesses[i].weight /= sum;
    s->n_guesses = n;
    return sum;
}

double cw_surface_left(const struct cw_surface *s, double capacity, double local)
{
    double sum = 0, weights = TRUST;
    for (size_t i = 0; i < s->n; i++) {
        const struct cw_point *p = &s->points[i];
        double x = (capacity - p->workers) / (NEAR * CW_MAX(capacity, p->workers)),
               y = (local - p->local) / (NEAR * CW_MAX(CW_MAX(local, p->local), 1)), far = 1 + x * x + y * y,
               near = 1 / (far * far);
        weights += near;
        sum += near * p->s;
    }
    return fabs(sum) > 1e-6 * weights ? cw_exp(sum / weights) : 1;
}
