/*
 * script: a fixed sequence of decisions, one for each report, whatever was measured: one worker; all workers;
 * no cache; the first cache point. If the job has no cache points, the sequence ends with all workers. Only
 * in test builds (-Dcrash_points=true), for tests of how decisions are carried out and shown.
 */
#include "policy/policies.h"

#ifdef CW_CRASH_POINTS
#include <stdio.h>

enum { ONE_WORKER = 1, ALL_WORKERS, CACHED_NOWHERE, CACHED_AT_THE_FIRST };

struct script {
    double step;
}; /* the decision made last; 0: none */

/* Adds an alternative for each pool that can run n workers: n workers of that pool alone, with made-up
 * figures. */
static void script_add_alternatives(const struct cw_facts *f, int n, int cache_point, struct cw_decision *d)
{
    for (int i = 0; i < f->n_pools && d->n_alternatives < CW_POLICY_ALTERNATIVES; i++) {
        if (f->pools[i].maximum < n)
            continue;
        struct cw_alternative *a = &d->alternatives[d->n_alternatives++];
        *a = (struct cw_alternative){.workers = n,
                                     .capacity = n,
                                     .cache_point = cache_point,
                                     .batch_s = 0.5 / n,
                                     .time_s = 500.0 / n,
                                     .cost = 2,
                                     .held_s = 500.0 / n,
                                     .held_cost = 2};
        a->pools[i] = n;
    }
}

static void script_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                          const struct cw_facts *f, double now_s, struct cw_decision *d)
{
    static const char *const why[] = {
        [ONE_WORKER] = "the script begins with one worker",
        [ALL_WORKERS] = "the script goes on with all workers",
        [CACHED_NOWHERE] = "the script goes on without a cache",
        [CACHED_AT_THE_FIRST] = "the script ends with a cache",
    };
    struct script *m = (struct script *)memory->values;
    (void)policy, (void)now_s;
    int last = f->n_cache_points > 0 ? CACHED_AT_THE_FIRST : ALL_WORKERS;
    d->concluded = m->step < last;
    m->step += d->concluded;
    int step = (int)m->step, n = step == ONE_WORKER ? 1 : cw_pools_together(f).maximum;
    d->cache_point = f->n_cache_points > 0 && step != CACHED_NOWHERE ? 0 : -1;
    cw_pools_fill(f, n, d);
    d->seen = (struct cw_seen){.step_s = 0.4,
                               .wait_s = 0.1,
                               .interval_s = 0.5,
                               .compute_s = 0.5,
                               .busy = 1,
                               .error = 0.05,
                               .workers = n,
                               .cache_point = d->cache_point,
                               .limit = CW_BOTTLENECK_WORKERS};
    script_add_alternatives(f, n, d->cache_point, d);
    snprintf(d->why, sizeof(d->why), "%s", why[step]);
}

static const struct cw_field fields[] = {CW_FIELD(struct script, step), {0}};

const struct cw_policy cw_policy_script = {
    .name = "script",
    .caches = true,
    .fields = fields,
    .decide = script_decide,
};
#endif
