/*
 * hpa: Kubernetes' HorizontalPodAutoscaler (autoscaling/v2, its defaults) on CPU utilisation with a target of
 * 80 %, with which the Cachew paper compares its own policy.
 *
 * Every 15 s: desired = ceil(current x utilisation / target), unless that ratio is within 0.1 of 1. Workers
 * that start count as idle when scaling up. Upwards it adds at most 4 workers or 100 % per 15 s; downwards it
 * uses the highest recommendation of the last 300 s. It does not use measurements of clients or caches.
 */
#include <math.h>
#include <stdio.h>

#include "base/macro.h"
#include "policy/policies.h"

#define TARGET 0.8
#define TOLERANCE 0.1
#define SYNC_S 15
#define REMEMBERED 20 /* recommendations, one per sync: 300 s of downscale stabilisation */
#define STEP 4

struct hpa {
    double next_s, workers; /* time of the next sync; workers decided on */
    double seen_s;          /* time of the last call */
    double busy_s, span_s;  /* since the last sync: mean busy seconds of a worker, and all seconds */
    double recommended[REMEMBERED], n; /* the last recommendations; the number of all so far */
};

static double hpa_desired(const struct hpa *m, const struct cw_pool_facts *pool)
{
    double now = m->workers, ready = pool->running, ratio = m->busy_s / m->span_s / TARGET;
    if (fabs(ratio - 1) <= TOLERANCE)
        return now;
    if (ratio > 1 && pool->starting > 0) {
        ratio *= ready / (ready + pool->starting);
        return ratio > 1 + TOLERANCE ? ceil(ratio * (ready + pool->starting)) : now;
    }
    return ceil(ratio * ready);
}

static void hpa_sync(struct hpa *m, const struct cw_pool_facts *pool)
{
    double want = CW_MAX(hpa_desired(m, pool), 1), most = want;
    m->recommended[(int)m->n % REMEMBERED] = want;
    m->n++;
    for (int i = 0; i < REMEMBERED && i < m->n; i++)
        most = CW_MAX(most, m->recommended[i]);
    if (want < m->workers)
        want = CW_MIN(most, m->workers);
    want = CW_MIN(want, CW_MAX(m->workers + STEP, 2 * m->workers));
    m->workers = CW_MIN(want, pool->maximum);
}

static void hpa_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                       const struct cw_facts *facts, double now_s, struct cw_decision *d)
{
    struct hpa *m = (struct hpa *)memory->values;
    const struct cw_pool_facts all = cw_pools_together(facts), *pool = &all;
    if (m->workers < 1) {
        m->workers = pool->running + pool->starting;
        m->next_s = now_s + SYNC_S;
        m->seen_s = now_s;
    }
    m->busy_s += pool->busy * (now_s - m->seen_s);
    m->span_s += now_s - m->seen_s;
    m->seen_s = now_s;
    d->cache_point = -1;
    double before = m->workers;
    if (now_s >= m->next_s && m->span_s > 0) {
        hpa_sync(m, pool);
        snprintf(d->why, sizeof(d->why),
                 "the CPU utilisation is %.0f %% on average over %d workers, and the target is %.0f %%",
                 100 * m->busy_s / m->span_s, pool->running, 100 * TARGET);
        d->concluded = m->workers != before || m->n == 1;
        m->next_s = now_s + SYNC_S;
        m->busy_s = m->span_s = 0;
    }
    cw_pools_fill(facts, m->workers, d);
}

static const struct cw_field fields[] = {
    CW_FIELD(struct hpa, next_s), CW_FIELD(struct hpa, workers),
    CW_FIELD(struct hpa, seen_s), CW_FIELD(struct hpa, busy_s),
    CW_FIELD(struct hpa, span_s), CW_FIELD(struct hpa, recommended),
    CW_FIELD(struct hpa, n),      {0},
};

const struct cw_policy cw_policy_hpa = {
    .name = "hpa",
    .fields = fields,
    .decide = hpa_decide,
};
