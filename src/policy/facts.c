/* Summaries of facts that several policies use: the demand of all ranks, and all pools as one. */
#include "base/macro.h"
#include "policy/policy.h"
#include "policy/supply.h"

static void mean_scale(struct cw_mean *s, double by)
{
    s->n /= by;
    s->mean *= by;
    s->m2 *= by;
}

struct cw_demand cw_demand(const struct cw_facts *facts)
{
    struct cw_demand d = {0};
    double slowest = -1;
    for (int i = 0; i < facts->n_clients; i++) {
        const struct cw_client_facts *c = &facts->clients[i];
        if (!(c->step.n > 0) || c->step.mean <= slowest)
            continue;
        slowest = c->step.mean;
        d.step = c->step;
        d.interval = c->step;
        d.interval.mean = c->step.mean + c->wait.mean;
        d.interval.m2 = c->step.m2 + c->wait.m2;
    }
    if (facts->n_clients > 1) {
        mean_scale(&d.step, 1.0 / facts->n_clients);
        mean_scale(&d.interval, 1.0 / facts->n_clients);
    }
    d.wait_s = d.interval.mean - d.step.mean;
    return d;
}

struct cw_pool_facts cw_pools_together(const struct cw_facts *facts)
{
    struct cw_pool_facts all = facts->pools[0];
    for (int i = 1; i < facts->n_pools; i++) {
        const struct cw_pool_facts *p = &facts->pools[i];
        if (p->running > 0)
            all.busy += (p->busy - all.busy) * p->running / (all.running + p->running);
        all.running += p->running;
        all.starting += p->starting;
        all.maximum += p->maximum;
        cw_mean_merge(&all.compute, &p->compute);
    }
    return all;
}

void cw_pools_fill(const struct cw_facts *facts, double workers, struct cw_decision *d)
{
    struct cw_supply s;
    cw_supply_init(&s, facts, NULL, 0);
    cw_supply_count(&s, (int)workers, d->workers);
}
