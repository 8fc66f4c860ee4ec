/* Jobs as surfaces: seconds per epoch by numbers of remote and of local workers. A surface is stored as a
 * nested table (table.c), whose combinations of workers that can't run take CW_SIM_NEVER_S. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "sim/fields.h"
#include "sim/workload.h"

#define MOST_POINTS 10000  /* most numbers of workers of an axis */
#define MOST_CELLS 1000000 /* most combinations of both axes */

enum { REMOTE, LOCAL, AXES }; /* indexes of the pools */

/* Parses an axis: ascending numbers of workers. */
static int surface_parse_axis(const json_t *list, const char *where, const char *name, struct cw_error *err)
{
    size_t i;
    const json_t *value;
    double before = -1;
    const char *expected = "a list of 1 to 10000 ascending whole numbers from 0 to 100000";
    bool good = json_is_array(list) && json_array_size(list) > 0 && json_array_size(list) <= MOST_POINTS;
    if (!good)
        return cw_sim_expected(where, name, list, expected, err);
    json_array_foreach(list, i, value)
    {
        double n = json_is_integer(value) ? (double)json_integer_value(value) : -1;
        if (n <= before || n > CW_SIM_MOST_WORKERS)
            return cw_sim_expected(where, name, list, expected, err);
        before = n;
    }
    return 0;
}

/* Creates an axis with the numbers of workers of a list. NULL: out of memory. */
static struct cw_sim_axis *surface_axis(const json_t *list, size_t pool)
{
    size_t n = json_array_size(list);
    struct cw_sim_axis *axis = calloc(1, sizeof(*axis) + n * sizeof(axis->points[0]));
    if (!axis)
        return NULL;
    *axis = (struct cw_sim_axis){.pool = pool, .n = n, .constant = true};
    for (size_t i = 0; i < n; i++)
        axis->points[i] = (struct cw_sim_point){.workers = json_number_value(json_array_get(list, i)),
                                                .s = CW_SIM_NEVER_S};
    return axis;
}

/* Parses a row: the seconds of each number of local workers. */
static int surface_parse_row(const json_t *row, const char *path, double divide, struct cw_sim_axis *axis,
                             struct cw_error *err)
{
    char expected[128], cell[128];
    snprintf(expected, sizeof(expected), "a list of %zu numbers or nulls, one per number of local workers",
             axis->n);
    if (!json_is_array(row) || json_array_size(row) != axis->n)
        return cw_sim_expected("", path, row, expected, err);
    for (size_t i = 0; i < axis->n; i++) {
        const json_t *value = json_array_get(row, i);
        if (json_is_null(value))
            continue;
        snprintf(cell, sizeof(cell), "%s[%zu]", path, i);
        if (!json_is_number(value) || !(json_number_value(value) >= CW_SIM_LEAST) ||
            json_number_value(value) > CW_SIM_MOST)
            return cw_sim_expected("", cell, value,
                                   "a number of at least 1e-15 and at most 1e15, in seconds, or null", err);
        axis->points[i].s = json_number_value(value) / divide;
    }
    return 0;
}

static int surface_parse_rows(const json_t *surface, const char *where, double divide, struct cw_sim_job *job,
                              struct cw_error *err)
{
    const json_t *rows = json_object_get(surface, "epoch_s"), *local = json_object_get(surface, "local");
    char expected[128], path[96];
    snprintf(expected, sizeof(expected), "a list of %zu rows, one per number of remote workers",
             job->table->n);
    if (!json_is_array(rows) || json_array_size(rows) != job->table->n)
        return cw_sim_expected(where, "epoch_s", rows, expected, err);
    for (size_t i = 0; i < job->table->n; i++) {
        struct cw_sim_axis *row = job->table->points[i].next = surface_axis(local, LOCAL);
        if (!row)
            return cw_error_nomem(err, 0, "a table");
        snprintf(path, sizeof(path), "%sepoch_s[%zu]", where, i);
        int r = surface_parse_row(json_array_get(rows, i), path, divide, row, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Returns the seconds of a batch with these workers; CW_SIM_NEVER_S: they can't run. */
static double surface_s(const struct cw_sim_axis *table, double remote, double local)
{
    const double workers[CW_POLICY_POOLS] = {remote, local};
    return cw_sim_table_runs(table, workers) ? cw_sim_table_s(table, workers) : CW_SIM_NEVER_S;
}

/* Sets the computing time of a batch on one worker of each pool: from the least number of workers that can
 * run without the other pool, of which each computes a part. A pool that can't run alone has the time of the
 * other; if neither can, from the first combination that can run. False: no combination can. */
static bool surface_alone(struct cw_sim_job *job)
{
    const struct cw_sim_axis *remote = job->table, *local = remote->points[0].next;
    double alone[AXES] = {0}, any = 0;
    for (size_t i = 0; i <= remote->n && !(alone[REMOTE] > 0); i++) {
        double n = i == 0 ? 1 : remote->points[i - 1].workers, s = surface_s(remote, n, 0);
        alone[REMOTE] = s < CW_SIM_NEVER_S ? n * s : 0;
    }
    for (size_t i = 0; i <= local->n && !(alone[LOCAL] > 0); i++) {
        double n = i == 0 ? 1 : local->points[i - 1].workers, s = surface_s(remote, 0, n);
        alone[LOCAL] = s < CW_SIM_NEVER_S ? n * s : 0;
    }
    for (size_t i = 0; i < remote->n && !(any > 0); i++)
        for (size_t k = 0; k < local->n && !(any > 0); k++) {
            double s = surface_s(remote, remote->points[i].workers, local->points[k].workers);
            any = s < CW_SIM_NEVER_S ? s * (remote->points[i].workers + local->points[k].workers) : 0;
        }
    for (int i = 0; i < AXES; i++)
        job->alone_s[i] = alone[i] > 0 ? alone[i] : alone[AXES - 1 - i] > 0 ? alone[AXES - 1 - i] : any;
    return any > 0;
}

int cw_sim_surface_parse(const json_t *surface, const char *where, double divide, struct cw_workload *w,
                         struct cw_sim_job *job, struct cw_error *err)
{
    const struct cw_sim_field fields[] = {{"local"}, {"remote"}, {"epoch_s"}, {0}};
    int r = cw_sim_fields(surface, where, fields, err);
    for (int i = 0; r == 0 && i < AXES; i++) {
        const char *name = i == LOCAL ? "local" : "remote";
        r = surface_parse_axis(json_object_get(surface, name), where, name, err);
    }
    if (r < 0)
        return r;
    if (w->n_pools != AXES || !w->pools[LOCAL].local)
        return cw_sim_expected("", "pools", json_object_get(w->text, "pools"),
                               "one pool \"remote\", then one pool \"local\", since the table is a surface",
                               err);
    job->table = surface_axis(json_object_get(surface, "remote"), REMOTE);
    if (!job->table)
        return cw_error_nomem(err, 0, "a table");
    if (job->table->n * json_array_size(json_object_get(surface, "local")) > MOST_CELLS)
        return cw_sim_expected(where, "remote", json_object_get(surface, "remote"),
                               "at most 1000000 combinations of local and remote workers", err);
    r = surface_parse_rows(surface, where, divide, job, err);
    if (r == 0 && !surface_alone(job))
        return cw_sim_expected(where, "epoch_s", json_object_get(surface, "epoch_s"),
                               "a number for at least one combination with a worker", err);
    return r;
}
