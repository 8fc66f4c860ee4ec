/* The training host: by how much local workers slow down the client's step. Pure functions, called by plan.c
 * and auto_belief.c. */
#include "policy/host.h"

#include "base/macro.h"

#define APART 0.2 /* CPUs by which two measurements must differ to show a slow-down */
#define ROUNDS 4  /* a slower step makes workers use less: an equation that is solved in some rounds */

/* Guesses before anything was measured: the step is slower by this part per CPU. */
static const double guessed_slow[CW_HOST_SLOWS] = {0, 0.02, 0.1},
                    guessed_weight[CW_HOST_SLOWS] = {.4, .4, .2};

static const struct cw_pool_facts *host_pool(const struct cw_facts *f)
{
    for (int i = 0; i < f->n_pools; i++)
        if (f->pools[i].local)
            return &f->pools[i];
    return NULL;
}

bool cw_host_any(const struct cw_facts *f)
{
    return host_pool(f);
}

int cw_host_local(const struct cw_facts *f, const int *workers)
{
    int n = 0;
    for (int i = 0; i < f->n_pools; i++)
        n += f->pools[i].local ? workers[i] : 0;
    return n;
}

double cw_host_free_cpus(const struct cw_facts *f)
{
    const struct cw_pool_facts *p = host_pool(f);
    return p ? CW_MAX(p->host_cpus - p->host_busy_cpus, 0) : 0;
}

double cw_host_over(const struct cw_facts *f)
{
    double used = 0;
    for (int i = 0; i < f->n_pools; i++)
        if (f->pools[i].local)
            used += f->pools[i].running * f->pools[i].cpu_share * f->pools[i].busy;
    return CW_MAX(used - cw_host_free_cpus(f), 0);
}

void cw_host_fit(const struct cw_facts *f, const struct cw_point *points, size_t n, double step_s,
                 struct cw_host *ret)
{
    const struct cw_pool_facts *p = host_pool(f);
    double known = 0, x = 0, y = 0, xx = 0, xy = 0, low = 1e300, high = 0;
    *ret = (struct cw_host){.step_s = step_s, .free_cpus = cw_host_free_cpus(f)};
    if (!p)
        return;
    ret->worker_cpus = p->cpu_share;
    for (size_t i = 0; i < n; i++)
        if (points[i].step_s > 0) {
            double over = points[i].over_cpus;
            known++;
            x += over;
            y += points[i].step_s;
            xx += over * over;
            xy += over * points[i].step_s;
            low = CW_MIN(low, over);
            high = CW_MAX(high, over);
        }
    if (known > 1 && high - low > APART) { /* a straight line through all steps */
        double slope = CW_MAX((known * xy - x * y) / (known * xx - x * x), 0), base = (y - slope * x) / known;
        if (!(base > 0)) {
            base = 0.1 * y / known;
            slope = xy / xx;
        }
        *ret = (struct cw_host){base, {slope / base}, {1}, 1, ret->worker_cpus, ret->free_cpus};
        return;
    }
    if (!(p->host_cpus > 0)) { /* nothing is known of the host: no slow-down before one was measured */
        ret->step_s = known > 0 ? y / known : step_s;
        return;
    }
    ret->n = CW_HOST_SLOWS;
    double mean = 0;
    for (int i = 0; i < CW_HOST_SLOWS; i++) {
        ret->slow[i] = guessed_slow[i];
        ret->weight[i] = guessed_weight[i];
        mean += guessed_slow[i] * guessed_weight[i];
    }
    if (known > 0)
        ret->step_s = y / known / (1 + mean * x / known);
}

double cw_host_step_s(const struct cw_host *h, double local, double supply_s)
{
    double slow = 0, cpus = local * h->worker_cpus, step_s = h->step_s;
    for (size_t i = 0; i < h->n; i++)
        slow += h->weight[i] * h->slow[i];
    if (!(slow > 0) || cpus <= h->free_cpus)
        return step_s;
    for (int i = 0; i < ROUNDS; i++) {
        double interval_s = CW_MAX(step_s, supply_s), used = cpus * supply_s / CW_MAX(interval_s, 1e-12),
               next_s = h->step_s * (1 + slow * CW_MAX(used - h->free_cpus, 0));
        step_s = i > 0 ? 0.5 * (step_s + next_s) : next_s;
    }
    return step_s;
}
