/* What auto knows of pools: what their workers are worth beside one another, how many of each were decided
 * on. Plans are made of their sum, capacity. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/macro.h"
#include "policy/auto.h"

#define SPEED_BATCHES 200 /* of a pool that tell what its workers are worth: old ones fade */

/* to the last bit a double */
static double id_of(const struct cw_pool_facts *p)
{
    return 1 + (double)(cw_hash64(p->name, strlen(p->name)) >> 12);
}

/* What nobody measured yet: as its share of a CPU has it, beside a pool that is known. */
static double thought_speed(const struct cw_auto *m, const struct cw_facts *f, int pool)
{
    for (int i = 0; i < f->n_pools; i++)
        if (m->pools[i].id > 0 && m->pools[i].speed > 0 && f->pools[i].cpu_share > 0 &&
            f->pools[pool].cpu_share > 0)
            return m->pools[i].speed * f->pools[pool].cpu_share / f->pools[i].cpu_share;
    return 1;
}

static double decided(const struct cw_auto *m)
{
    double sum = 0;
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        sum += m->pools[i].target * m->pools[i].speed;
    return sum;
}

double cw_auto_fit_pools(struct cw_auto *m, const struct cw_facts *f)
{
    struct cw_auto_pool before[CW_POLICY_POOLS];
    memcpy(before, m->pools, sizeof(before));
    memset(m->pools, 0, sizeof(m->pools));
    for (int i = 0; i < f->n_pools; i++)
        for (int k = 0; k < CW_POLICY_POOLS; k++)
            if (before[k].id == id_of(&f->pools[i]))
                m->pools[i] = before[k];
    for (int i = 0; i < f->n_pools; i++)
        if (!(m->pools[i].id > 0))
            m->pools[i] = (struct cw_auto_pool){.id = id_of(&f->pools[i]), .speed = thought_speed(m, f, i)};
    return CW_MAX(m->target - decided(m), 0);
}

/* What a worker of the first pool computes, as the other pools have it that ran in this report. */
static double others_s(const struct cw_auto *m, const struct cw_facts *f, int pool)
{
    double n = 0, sum = 0;
    for (int i = 0; i < f->n_pools; i++)
        if (i != pool && f->pools[i].compute.n > 0 && (m->pools[i].compute.n > 0 || i < pool)) {
            n += f->pools[i].compute.n;
            sum += f->pools[i].compute.n * f->pools[i].compute.mean * m->pools[i].speed;
        }
    return n > 0 ? sum / n : 0;
}

void cw_auto_learn_speeds(struct cw_auto *m, const struct cw_facts *f)
{
    for (int i = 0; i < f->n_pools; i++) {
        const struct cw_mean *now = &f->pools[i].compute;
        double unit_s = others_s(m, f, i);
        if (!(now->n > 0) || !(now->mean > 0) || !(unit_s > 0))
            continue;
        struct cw_mean relative = {now->n, now->mean / unit_s, 0};
        cw_mean_merge(&m->pools[i].compute, &relative);
        cw_mean_fade(&m->pools[i].compute, SPEED_BATCHES);
        m->pools[i].speed = 1 / m->pools[i].compute.mean;
    }
    m->target = decided(m);
}

void cw_auto_supply(const struct cw_auto *m, const struct cw_facts *f, struct cw_supply *ret)
{
    double speed[CW_POLICY_POOLS] = {0};
    for (int i = 0; i < f->n_pools; i++)
        speed[i] = m->pools[i].speed;
    cw_supply_init(ret, f, speed, 0);
}

struct cw_auto_work cw_auto_work(const struct cw_auto *m, const struct cw_facts *f)
{
    struct cw_auto_work w = {0};
    double all = cw_auto_running(m, f);
    for (int i = 0; i < f->n_pools; i++) {
        const struct cw_pool_facts *p = &f->pools[i];
        struct cw_mean unit = p->compute;
        unit.mean *= m->pools[i].speed;
        unit.m2 *= m->pools[i].speed * m->pools[i].speed;
        if (w.compute.n > 0)
            cw_mean_merge(&w.compute, &unit);
        else
            w.compute = unit;
        w.busy += all > 0 ? p->busy * (p->running * m->pools[i].speed / all) : 0;
    }
    return w;
}

double cw_auto_running(const struct cw_auto *m, const struct cw_facts *f)
{
    double sum = 0;
    for (int i = 0; i < f->n_pools; i++)
        sum += f->pools[i].running * m->pools[i].speed;
    return sum;
}

double cw_auto_price(const struct cw_auto *m, const struct cw_facts *f, bool decided)
{
    double sum = 0;
    for (int i = 0; i < f->n_pools; i++)
        sum += (decided ? m->pools[i].target : f->pools[i].running + f->pools[i].starting) *
               f->pools[i].price_per_h;
    return sum;
}

double cw_auto_start_delay(const struct cw_facts *f)
{
    double most = f->pools[0].start_delay_s;
    for (int i = 1; i < f->n_pools; i++)
        most = CW_MAX(most, f->pools[i].maximum > 0 ? f->pools[i].start_delay_s : 0);
    return most;
}

void cw_auto_target(const struct cw_auto *m, int *ret)
{
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        ret[i] = (int)m->pools[i].target;
}

bool cw_auto_is_target(const struct cw_auto *m, const int *workers)
{
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        if (workers[i] != (int)m->pools[i].target)
            return false;
    return true;
}

void cw_auto_set_target(struct cw_auto *m, const int *workers)
{
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        m->pools[i].target = workers[i];
    m->target = decided(m);
}

void cw_auto_ask(struct cw_auto *m, const int *workers, double now_s)
{
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        if (workers[i] != (int)m->pools[i].target)
            m->pools[i].asked_s = now_s;
    cw_auto_set_target(m, workers);
}
