/* Parses the "pools" of a workload. Each pool has its own price, start delay and speed of workers. */
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "sim/fields.h"
#include "sim/workload.h"

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
