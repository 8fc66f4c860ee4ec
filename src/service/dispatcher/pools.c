/* The table of pools: lookup, counts, and the pool to which a worker belongs. */
#include "service/dispatcher/pools.h"

#include <string.h>

#include "service/dispatcher/json_list.h"
#include "service/dispatcher/state.h"

#define DELAY_WEIGHT 0.3 /* weight of the newest start delay in the moving average */

struct pool *cw_dp_pool_at(const struct cw_dispatcher *d, int index)
{
    CW_LIST_EACH_OF (p, struct pool, link, &d->scaler.pools)
        if (p->index == index)
            return p;
    return NULL;
}

struct pool *cw_dp_pool_find(const struct cw_dispatcher *d, const char *name)
{
    CW_LIST_EACH_OF (p, struct pool, link, &d->scaler.pools)
        if (strcmp(p->info->name, name) == 0)
            return p;
    return NULL;
}

bool cw_dp_pool_names(const struct worker *w, const struct pool *p)
{
    return w->info && strcmp(w->info->pool, p->info->name) == 0;
}

bool cw_dp_pool_owns(const struct worker *w, const struct pool *p)
{
    return cw_dp_pool_names(w, p) &&
           strncmp(w->last_peer->name, p->info->prefix, strlen(p->info->prefix)) == 0;
}

uint32_t cw_dp_pool_most(const struct pool *p)
{
    return p->info->maximum - CW_MIN(p->n_foreign, p->info->maximum);
}

void cw_dp_pool_started(struct cw_dispatcher *d, const struct worker *w)
{
    struct pool *p = cw_dp_pool_find(d, w->info->pool);
    d->scaler.supply_serial++;
    cw_dp_pool_changed(d, w, false);
    if (!p || p->n_requested == 0 || !cw_dp_pool_owns(w, p))
        return; /* the provisioner started it to replace a dead worker: its start time is not known */
    p->n_requested--;
    double delay = (double)(d->now_ns - p->requested_ns) / 1e9;
    p->start_delay_s = p->start_delay_s > 0 ? p->start_delay_s + DELAY_WEIGHT * (delay - p->start_delay_s)
                                            : delay;
}

void cw_dp_pool_changed(struct cw_dispatcher *d, const struct worker *w, bool due)
{
    struct pool *p = cw_dp_pool_find(
        d, w->info->pool); /* NULL: the worker is of no pool, or its pool's provisioner is not connected */
    if (!p)
        return;
    p->changed = true;
    p->due |= due;
}

void cw_dp_pools_assign(struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list) {
        w->pool_index =
            0; /* index 0: of no pool, or of an earlier provisioner; such workers are never stopped */
        CW_LIST_EACH_OF (p, struct pool, link, &d->scaler.pools)
            if (cw_dp_pool_owns(w, p))
                w->pool_index = p->index;
    }
}

int cw_dp_pools_sum(const int *workers)
{
    int n = 0;
    for (int i = 0; i < DP_POOL_INDEXES; i++)
        n += workers[i];
    return n;
}

void cw_dp_pools_most(const struct cw_dispatcher *d, int *ret)
{
    memset(ret, 0, DP_POOL_INDEXES * sizeof(*ret));
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers.list)
        ret[0] += cw_dp_worker_able(w) && w->pool_index == 0;
    CW_LIST_EACH_OF (p, const struct pool, link, &d->scaler.pools)
        ret[p->index] = (int)CW_MIN(cw_dp_pool_most(p), (uint32_t)DP_WORKERS);
}

json_t *cw_dp_pools_json(const struct cw_dispatcher *d)
{
    json_t *list = json_array();
    CW_LIST_EACH_OF (p, const struct pool, link, &d->scaler.pools)
        cw_dp_json_append(&list, json_pack("{s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:o}", "name",
                                           p->info->name, "minimum", (int)p->info->minimum, "maximum",
                                           (int)p->info->maximum, "workers", (int)p->info->units, "wanted",
                                           (int)p->wanted, "price_per_h", p->info->price_per_h, "cpu_share",
                                           p->info->cpu_share, "start_delay_s", p->start_delay_s, "why",
                                           *p->info->why ? cw_dp_json_text(p->info->why) : json_null()));
    return list;
}
