/* Jobs as tables: seconds by number of workers, with one axis per pool, nested. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "sim/fields.h"
#include "sim/workload.h"

#define MOST_POINTS 10000 /* most points of an axis */

struct reader {
    const struct cw_workload *w;
    double divide;
    struct cw_error *err;
};

static int point_compare(const void *a, const void *b)
{
    const struct cw_sim_point *x = a, *y = b;
    return (x->workers > y->workers) - (x->workers < y->workers);
}

static int table_parse_named(const struct reader *r, const json_t *table, const char *where, unsigned taken,
                             struct cw_sim_axis **ret);

/* Parses a point: seconds, or the axis of the next pool. taken: a bit for each pool whose axis the point is
 * in. */
static int table_parse_point(const struct reader *r, const char *key, const json_t *value, const char *where,
                             unsigned taken, struct cw_sim_point *point)
{
    char *end, dotted[256];
    bool last = taken == (1u << r->w->n_pools) - 1;
    snprintf(dotted, sizeof(dotted), "%.180s.", where);
    errno = 0;
    long workers = strtol(key, &end, 10), least = r->w->n_pools > 1 ? 0 : 1;
    if (errno || key[0] < '0' || key[0] > '9' || *end || workers < least || workers > CW_SIM_MOST_WORKERS)
        return cw_sim_expected(dotted, key, value,
                               least ? "a number of workers from 1 to 100000 as key"
                                     : "a number of workers from 0 to 100000 as key",
                               r->err);
    point->workers = (double)workers;
    if (!last) {
        char path[256];
        snprintf(path, sizeof(path), "%.180s%.40s", dotted, key);
        return table_parse_named(r, value, path, taken, &point->next);
    }
    if (!json_is_number(value) || !(json_number_value(value) >= CW_SIM_LEAST) ||
        json_number_value(value) > CW_SIM_MOST)
        return cw_sim_expected(dotted, key, value, "a number of at least 1e-15 and at most 1e15, in seconds",
                               r->err);
    point->s = json_number_value(value) / r->divide;
    return 0;
}

static int table_parse_axis(const struct reader *r, const json_t *axis, const char *where, size_t pool,
                            unsigned taken, struct cw_sim_axis **ret)
{
    const char *key;
    json_t *value;
    size_t n = json_object_size(axis);
    if (!json_is_object(axis) || n == 0 || n > MOST_POINTS)
        return cw_sim_expected(
            "", where, axis,
            "an object that gives seconds for 1 to 10000 numbers of workers, as {\"1\": 120, \"2\": 63}",
            r->err);
    *ret = calloc(1, sizeof(**ret) + n * sizeof((*ret)->points[0]));
    if (!*ret)
        return cw_error_nomem(r->err, n, "a table");
    (*ret)->pool = pool;
    json_object_foreach((json_t *)axis, key, value)
    {
        int e = table_parse_point(r, key, value, where, taken | 1u << pool, &(*ret)->points[(*ret)->n++]);
        if (e < 0)
            return e;
    }
    qsort((*ret)->points, n, sizeof((*ret)->points[0]), point_compare);
    for (size_t i = 1; i < n; i++)
        if ((*ret)->points[i].workers == (*ret)->points[i - 1].workers)
            return cw_sim_expected("", where, axis, "each number of workers only once", r->err);
    return 0;
}

/* Parses {"remote": {...}}, the axis of a pool whose bit is not in `taken`. */
static int table_parse_named(const struct reader *r, const json_t *table, const char *where, unsigned taken,
                             struct cw_sim_axis **ret)
{
    char path[256], expected[200];
    size_t pool = 0;
    const char *name = json_is_object(table) && json_object_size(table) == 1
                           ? json_object_iter_key(json_object_iter((json_t *)table))
                           : NULL;
    snprintf(expected, sizeof(expected),
             r->w->n_pools > 1
                 ? "an object with one key, the name of a pool that is not above it in the table, as "
                   "{\"%.60s\": {\"0\": ..., \"1\": ...}}"
                 : "an object with one key, the name of the pool, as {\"%.60s\": {\"1\": 120, \"2\": 63}}",
             r->w->pools[taken ? r->w->n_pools - 1 : 0].name);
    while (name && pool < r->w->n_pools && (taken & 1u << pool || strcmp(r->w->pools[pool].name, name) != 0))
        pool++;
    if (!name || pool == r->w->n_pools)
        return cw_sim_expected("", where, table, expected, r->err);
    snprintf(path, sizeof(path), "%.180s.%.60s", where, name);
    return table_parse_axis(r, json_object_get(table, name), path, pool, taken, ret);
}

bool cw_sim_is_surface(const json_t *job)
{
    return json_object_get(json_object_get(job, "table"), "surface");
}

int cw_sim_table_parse(const json_t *object, const char *where, struct cw_workload *w, struct cw_sim_job *job,
                       struct cw_error *err)
{
    char path[128];
    const json_t *table = json_object_get(object, "table"), *unit = json_object_get(object, "table_unit");
    bool batch = unit && json_is_string(unit) && strcmp(json_string_value(unit), "batch_s") == 0;
    bool named = json_is_object(table) && json_object_size(table) == 1 && !cw_sim_is_surface(object);
    if (named && !json_object_get(w->text, "pools"))
        w->pools[0].name = json_object_iter_key(json_object_iter((json_t *)table));
    if (unit && !batch && !(json_is_string(unit) && strcmp(json_string_value(unit), "epoch_s") == 0))
        return cw_sim_expected(where, "table_unit", unit, "\"epoch_s\" or \"batch_s\"", err);
    snprintf(path, sizeof(path), "%stable", where);
    const struct reader r = {.w = w, .divide = batch ? 1 : job->batches_per_epoch, .err = err};
    if (cw_sim_is_surface(object)) {
        snprintf(path, sizeof(path), "%stable.surface.", where);
        return cw_sim_surface_parse(json_object_get(table, "surface"), path, r.divide, w, job, err);
    }
    int e = table_parse_named(&r, table, path, 0, &job->table);
    for (size_t i = 0; e == 0 && i < w->n_pools; i++) {
        double alone[CW_POLICY_POOLS] = {0};
        alone[i] = 1;
        if (cw_sim_table_s(job->table, alone) >= CW_SIM_NEVER_S)
            return cw_sim_expected(
                "", path, table,
                "also times for the workers of each pool alone (with \"0\" workers of the other pools)", err);
    }
    return e;
}

static double point_s(const struct cw_sim_point *p, const double *speed)
{
    return p->next ? cw_sim_table_s(p->next, speed) : p->s;
}

/* Returns the time at a point, scaled to another number of workers by perfect division: half take twice as
 * long. */
static double point_alike_s(const struct cw_sim_point *p, double workers, const double *speed)
{
    return workers > 0 ? point_s(p, speed) * p->workers / workers : CW_SIM_NEVER_S;
}

/* Linear between points and constant beyond the last. Perfect division of the work before the first point,
 * and after a point without workers. */
double cw_sim_table_s(const struct cw_sim_axis *axis, const double *speed)
{
    const struct cw_sim_point *p = axis->points;
    double workers = speed[axis->pool];
    size_t last = axis->n - 1;
    if (workers >= p[last].workers)
        return point_s(&p[last], speed);
    if (workers < p[0].workers)
        return axis->constant ? point_s(&p[0], speed) : point_alike_s(&p[0], workers, speed);
    size_t high = CW_FIRST(i, 1, last, p[i].workers > workers), low = high - 1;
    double below_s = point_s(&p[low], speed);
    if (below_s >= CW_SIM_NEVER_S)
        return point_alike_s(&p[high], workers, speed);
    return below_s + (point_s(&p[high], speed) - below_s) * (workers - p[low].workers) /
                         (p[high].workers - p[low].workers);
}

bool cw_sim_table_runs(const struct cw_sim_axis *axis, const double *workers)
{
    const struct cw_sim_point *p = axis->points;
    double n = CW_MAX(CW_MIN(workers[axis->pool], p[axis->n - 1].workers), p[0].workers);
    size_t high = CW_FIRST(i, 0, axis->n - 1, p[i].workers >= n), low = p[high].workers > n ? high - 1 : high;
    for (size_t i = low; i <= high; i++)
        if (p[i].next ? !cw_sim_table_runs(p[i].next, workers) : p[i].s >= CW_SIM_NEVER_S)
            return false;
    return true;
}

void cw_sim_table_free(struct cw_sim_axis *axis)
{
    for (size_t i = 0; axis && i < axis->n; i++)
        cw_sim_table_free(axis->points[i].next);
    free(axis);
}
