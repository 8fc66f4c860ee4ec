/* Workers of several pools in the policy auto: the relative speed of each pool's workers, and how many were
 * decided on. Owns struct cw_auto_pools. Called by the other files of auto. */
#include "policy/auto_pools.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/macro.h"

#define SPEED_BATCHES 200 /* a pool's speed is the mean of about this many latest batches */

/* The id of a pool: 52 bits of the hash of its name, which a double holds exactly. Never 0. */
static double pool_id(const struct cw_pool_facts *pool)
{
    return 1 + (double)(cw_hash64(pool->name, strlen(pool->name)) >> 12);
}

/* Returns the speed of a pool that was never measured: from the ratio of its CPU share to that of a known
 * pool, else 1. */
static double pool_expected_speed(const struct cw_auto_pools *p, const struct cw_facts *f, int pool)
{
    for (int i = 0; i < f->n_pools; i++)
        if (p->pool[i].id > 0 && p->pool[i].speed > 0 && f->pools[i].cpu_share > 0 &&
            f->pools[pool].cpu_share > 0)
            return p->pool[i].speed * f->pools[pool].cpu_share / f->pools[i].cpu_share;
    return 1;
}

static double pools_decided(const struct cw_auto_pools *p)
{
    double sum = 0;
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        sum += p->pool[i].target * p->pool[i].speed;
    return sum;
}

double cw_auto_pools_fit(struct cw_auto_pools *p, const struct cw_facts *f)
{
    struct cw_auto_pool before[CW_POLICY_POOLS];
    memcpy(before, p->pool, sizeof(before));
    memset(p->pool, 0, sizeof(p->pool));
    for (int i = 0; i < f->n_pools; i++)
        for (int k = 0; k < CW_POLICY_POOLS; k++)
            if (before[k].id == pool_id(&f->pools[i]))
                p->pool[i] = before[k];
    for (int i = 0; i < f->n_pools; i++)
        if (!(p->pool[i].id > 0))
            p->pool[i] = (struct cw_auto_pool){.id = pool_id(&f->pools[i]),
                                               .speed = pool_expected_speed(p, f, i)};
    return CW_MAX(p->target - pools_decided(p), 0);
}

/* Returns the seconds that a worker of the first pool would take for a batch, computed from this report's
 * measurements of pools other than `pool`. 0: no other pool was measured. */
static double pool_others_s(const struct cw_auto_pools *p, const struct cw_facts *f, int pool)
{
    double n = 0, sum = 0;
    for (int i = 0; i < f->n_pools; i++)
        if (i != pool && f->pools[i].compute.n > 0 && (p->pool[i].compute.n > 0 || i < pool)) {
            n += f->pools[i].compute.n;
            sum += f->pools[i].compute.n * f->pools[i].compute.mean * p->pool[i].speed;
        }
    return n > 0 ? sum / n : 0;
}

void cw_auto_pools_learn_speeds(struct cw_auto_pools *p, const struct cw_facts *f)
{
    for (int i = 0; i < f->n_pools; i++) {
        const struct cw_mean *now = &f->pools[i].compute;
        double unit_s = pool_others_s(p, f, i);
        if (!(now->n > 0) || !(now->mean > 0) || !(unit_s > 0))
            continue;
        cw_mean_merge(&p->pool[i].compute, &(struct cw_mean){now->n, now->mean / unit_s, 0});
        cw_mean_fade(&p->pool[i].compute, SPEED_BATCHES);
        p->pool[i].speed = 1 / p->pool[i].compute.mean;
    }
    p->target = pools_decided(p);
}

void cw_auto_pools_supply(const struct cw_auto_pools *p, const struct cw_facts *f, double no_price,
                          struct cw_supply *ret)
{
    double speed[CW_POLICY_POOLS] = {0};
    for (int i = 0; i < f->n_pools; i++)
        speed[i] = p->pool[i].speed;
    cw_supply_init(ret, f, speed, no_price);
}

void cw_auto_pools_work(const struct cw_auto_pools *p, const struct cw_facts *f, struct cw_auto_seen *ret)
{
    double all = cw_auto_pools_running(p, f);
    for (int i = 0; i < f->n_pools; i++) {
        const struct cw_pool_facts *pool = &f->pools[i];
        double speed = p->pool[i].speed;
        const struct cw_mean unit = {pool->compute.n, pool->compute.mean * speed,
                                     pool->compute.m2 * (speed * speed)};
        if (ret->compute.n > 0)
            cw_mean_merge(&ret->compute, &unit);
        else
            ret->compute = unit;
        ret->busy += all > 0 ? pool->busy * (pool->running * speed / all) : 0;
    }
}

double cw_auto_pools_running(const struct cw_auto_pools *p, const struct cw_facts *f)
{
    double sum = 0;
    for (int i = 0; i < f->n_pools; i++)
        sum += f->pools[i].running * p->pool[i].speed;
    return sum;
}

double cw_auto_pools_price(const struct cw_auto_pools *p, const struct cw_facts *f, bool decided)
{
    double sum = 0;
    for (int i = 0; i < f->n_pools; i++)
        sum += (decided ? p->pool[i].target : f->pools[i].running + f->pools[i].starting) *
               f->pools[i].price_per_h;
    return sum;
}

void cw_auto_pools_target(const struct cw_auto_pools *p, int *ret)
{
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        ret[i] = (int)p->pool[i].target;
}

bool cw_auto_pools_is_target(const struct cw_auto_pools *p, const int *workers)
{
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        if (workers[i] != (int)p->pool[i].target)
            return false;
    return true;
}

void cw_auto_pools_set_target(struct cw_auto_pools *p, const int *workers)
{
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        p->pool[i].target = workers[i];
    p->target = pools_decided(p);
}

void cw_auto_pools_request(struct cw_auto_pools *p, const int *workers, double now_s)
{
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        if (workers[i] != (int)p->pool[i].target)
            p->pool[i].requested_s = now_s;
    cw_auto_pools_set_target(p, workers);
}
