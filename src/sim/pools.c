/* Parses the "pools" of a workload. Each pool has its own price, start delay and speed of workers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "sim/fields.h"
#include "sim/workload.h"

#define MAX_WORKERS 100 /* of a pool, where neither the file nor a table says */

static int pool_parse(const json_t *object, size_t i, struct cw_workload *w, struct cw_error *err)
{
    char where[64];
    struct cw_sim_pool *p = &w->pools[i];
    snprintf(where, sizeof(where), "pools[%zu].", i);
    const struct cw_sim_field fields[] = {
        {"name", .text = &p->name, .least = 1},
        {"price_per_h", &p->price_per_h, 0, CW_SIM_MOST, CW_SIM_ANY},
        {"max_workers", &p->max_workers, 1, CW_SIM_MOST_WORKERS, CW_SIM_WHOLE},
        {"start_delay_s", &p->start_delay_s, 0, 1e6, CW_SIM_ANY},
        {"worker_cpus", &p->worker_cpus, 0, 1e6, CW_SIM_MORE},
        {"slowdown", &p->slowdown, 0, 1e6, CW_SIM_MORE},
        {"price_per_gb", &p->price_per_gb, 0, CW_SIM_MOST, CW_SIM_ANY},
        {0},
    };
    int r = cw_sim_fields(object, where, fields, err);
    if (r < 0)
        return r;
    for (size_t k = 0; k < i; k++)
        if (strcmp(w->pools[k].name, p->name) == 0)
            return cw_sim_expected(where, "name", json_object_get(object, "name"),
                                   "a name that no other pool has", err);
    return 0;
}

/* Returns the pool named "local"; NULL: there is none. */
static struct cw_sim_pool *pools_find_local(struct cw_workload *w)
{
    for (size_t i = 0; i < w->n_pools; i++)
        if (strcmp(w->pools[i].name, "local") == 0)
            return &w->pools[i];
    return NULL;
}

int cw_sim_pools_add_local(const json_t *root, struct cw_workload *w, struct cw_error *err)
{
    if (!json_object_get(root, "pools")) {
        w->pools[w->n_pools] = w->pools[0];
        w->pools[w->n_pools].name = "local";
        w->pools[w->n_pools++].max_workers = 0;
    }
    struct cw_sim_pool *local = pools_find_local(w);
    if (!local)
        return cw_sim_expected("", "pools", json_object_get(root, "pools"),
                               "also a pool named \"local\", since the job has local workers", err);
    local->local = w->has_local = true;
    local->price_per_gb = 0;
    if (!json_object_get(root, "pools"))
        local->price_per_h = 0;
    return 0;
}

void cw_sim_pools_default(struct cw_workload *w)
{
    const struct cw_sim_job *job = w->n_jobs == 1 ? &w->jobs[0] : NULL;
    for (size_t i = 0; i < w->n_pools; i++) {
        struct cw_sim_pool *p = &w->pools[i];
        const struct cw_sim_axis *axis = job ? job->table : NULL;
        while (axis && axis->pool != i)
            axis = axis->points[axis->n - 1].next;
        double last = axis ? axis->points[axis->n - 1].workers : MAX_WORKERS;
        if (p->max_workers > 0)
            continue;
        p->max_workers = axis && axis->constant           ? last
                         : p->local && job->host_cpus > 0 ? floor(job->host_cpus / p->worker_cpus)
                                                          : CW_MAX(last, 1);
    }
    if (job && job->table && job->table->constant) { /* of a surface, a remote worker alone may not run */
        const double remote[CW_POLICY_POOLS] = {1}, local[CW_POLICY_POOLS] = {0, 1};
        bool runs = w->pools[0].max_workers > 0 && cw_sim_table_runs(job->table, remote);
        w->first_pool = !runs && w->pools[1].max_workers > 0 && cw_sim_table_runs(job->table, local);
    }
}

int cw_sim_pools_parse(const json_t *root, struct cw_workload *w, struct cw_error *err)
{
    size_t i;
    const json_t *list = json_object_get(root, "pools"), *value;
    const struct cw_sim_pool defaults = w->pools[0];
    char expected[64];
    snprintf(expected, sizeof(expected), "a list of 1 to %d pools", CW_POLICY_POOLS);
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > CW_POLICY_POOLS)
        return cw_sim_expected("", "pools", list, expected, err);
    w->n_pools = json_array_size(list);
    json_array_foreach(list, i, value)
    {
        w->pools[i] = defaults;
        int r = pool_parse(value, i, w, err);
        if (r < 0)
            return r;
    }
    return 0;
}
