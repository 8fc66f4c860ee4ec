/* The oracle: finds the best plan of a job by simulating plans without noise. A plan has the same start
 * delays as a policy. With one pool, the oracle tries every number of workers. With several pools, it tries
 * all vectors (numbers of workers by pool); if these are too many, those of a grid, and then neighbours of
 * the best vector, in ever smaller steps. */
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "sim/sim.h"

/* Plans whose objective differs by less than this part count as equal; the other measure then decides. */
#define EQUAL 1e-4
#define ALL_COUNTS 2000  /* up to this number of workers every number is tried, beyond it steps of 1/1000 */
#define ALL_VECTORS 4000 /* most vectors of several pools that are tried before neighbours are */
#define ROUNDS 8 /* most rounds with one step size, since steps among equal plans may go in a circle */
#define SWEEPS 3 /* sweeps over the phases, each of which is optimized while the others stay fixed */

struct search {
    const struct cw_workload *w;
    int job;
    struct cw_sim_plan *plan;
    struct cw_sim_outcome best;
    bool any;
    uint64_t steps;
    /* the phases that are searched now, first to last, which all get the same workers; the best vector so far
     */
    size_t first, last;
    struct cw_sim_vector best_vector;
};

static bool outcome_better(enum cw_objective objective, const struct cw_sim_outcome *a,
                           const struct cw_sim_outcome *b)
{
    double ta = a->ended_s - a->began_s, tb = b->ended_s - b->began_s;
    double first = objective == CW_OBJECTIVE_TIME ? ta : a->cost,
           other = objective == CW_OBJECTIVE_TIME ? tb : b->cost;
    if (first < other * (1 - EQUAL) || first > other * (1 + EQUAL))
        return first < other;
    return objective == CW_OBJECTIVE_TIME ? a->cost < b->cost * (1 - EQUAL) : ta < tb * (1 - EQUAL);
}

static int oracle_try_plan(struct search *s, bool *ret, struct cw_error *err)
{
    struct cw_sim_outcome outcome;
    struct cw_sim_options o = {.plans = s->plan, .expected = true, .alone = s->job, .steps = &s->steps};
    int r = cw_sim_run(s->w, &o, &outcome, err);
    *ret = r == 0 && (!s->any || outcome_better(s->w->jobs[s->job].objective, &outcome, &s->best));
    if (*ret)
        s->best = outcome;
    s->any = true;
    cw_sim_outcome_deinit(&outcome); /* an expected run has neither decisions nor samples */
    return r;
}

static int oracle_most(const struct search *s, size_t pool)
{
    const struct cw_sim_job *job = &s->w->jobs[s->job];
    int most = (int)s->w->pools[pool].max_workers;
    return job->quota > 0 ? CW_MIN(most, (int)job->quota) : most;
}

static int oracle_try_vector(struct search *s, const struct cw_sim_vector *v, bool *ret, struct cw_error *err)
{
    const struct cw_sim_job *job = &s->w->jobs[s->job];
    int sum = cw_sim_workers_sum(v->workers), e = 0;
    *ret = false;
    if (sum == 0 || (job->quota > 0 && sum > (int)job->quota))
        return 0;
    for (size_t i = s->first; i <= s->last; i++)
        s->plan->phases[i] = *v;
    e = oracle_try_plan(s, ret, err);
    if (*ret)
        s->best_vector = *v;
    return e;
}

/* Returns the next number of a grid from 0 to `most`: about `ratio` times n. most + 1: the grid ends. */
static int grid_next(int n, double ratio, int most)
{
    return n == most ? most + 1 : CW_MIN(CW_MAX(n + 1, (int)(n * ratio)), most);
}

static double grid_size(const struct search *s, double ratio)
{
    double all = 1;
    for (size_t k = 0; k < s->w->n_pools; k++) {
        double n = 0;
        for (int i = 0, most = oracle_most(s, k); i <= most; i = grid_next(i, ratio, most))
            n++;
        all *= n;
    }
    return all;
}

static int grid_try(struct search *s, double ratio, size_t pool, struct cw_sim_vector *v,
                    struct cw_error *err)
{
    bool found;
    int e = 0, most = pool < s->w->n_pools ? oracle_most(s, pool) : 0;
    if (pool == s->w->n_pools)
        return oracle_try_vector(s, v, &found, err);
    for (int n = 0; e == 0 && n <= most; n = grid_next(n, ratio, most)) {
        v->workers[pool] = n;
        e = grid_try(s, ratio, pool + 1, v, err);
    }
    v->workers[pool] = 0;
    return e;
}

/* Tries all neighbours of a vector: for each pool, `step` workers fewer, the same number, or `step` more. */
static int oracle_try_neighbours(struct search *s, struct cw_sim_vector at, const int *step, size_t pool,
                                 bool *any, struct cw_error *err)
{
    bool found;
    if (pool == s->w->n_pools) {
        int e = oracle_try_vector(s, &at, &found, err);
        *any |= found;
        return e;
    }
    int n = at.workers[pool], e = 0;
    for (int way = -1; e == 0 && way <= 1; way++) {
        at.workers[pool] = n + way * step[pool];
        if (at.workers[pool] >= 0 && at.workers[pool] <= oracle_most(s, pool))
            e = oracle_try_neighbours(s, at, step, pool + 1, any, err);
    }
    return e;
}

static int oracle_refine(struct search *s, struct cw_error *err)
{
    int step[CW_POLICY_POOLS], largest = 1, e = 0;
    for (size_t k = 0; k < s->w->n_pools; k++) {
        step[k] = CW_MAX(s->best_vector.workers[k] / 2, 1);
        largest = CW_MAX(largest, step[k]);
    }
    for (int round = 0; e == 0;) {
        bool any = false;
        e = oracle_try_neighbours(s, s->best_vector, step, 0, &any, err);
        if (any && ++round < ROUNDS)
            continue;
        round = 0;
        if (largest == 1)
            break;
        largest /= 2;
        for (size_t k = 0; k < s->w->n_pools; k++)
            step[k] = CW_MAX(step[k] / 2, 1);
    }
    return e;
}

static int oracle_search_vectors(struct search *s, struct cw_error *err)
{
    double ratio = 1;
    struct cw_sim_vector v = {0};
    while (grid_size(s, ratio) > ALL_VECTORS)
        ratio *= 1.25;
    int e = grid_try(s, ratio, 0, &v, err);
    return e == 0 && ratio > 1 ? oracle_refine(s, err) : e;
}

static int oracle_search_counts(struct search *s, struct cw_error *err)
{
    bool found;
    int e = 0;
    for (int n = 1, most = oracle_most(s, 0); e == 0 && n <= most; n += n < ALL_COUNTS ? 1 : n / 1000)
        e = oracle_try_vector(s, &(struct cw_sim_vector){{n}}, &found, err);
    return e;
}

static int oracle_search_range(struct search *s, size_t first, size_t last, struct cw_error *err)
{
    s->first = first;
    s->last = last;
    s->best_vector = s->plan->phases[first];
    int e = s->w->n_pools > 1 ? oracle_search_vectors(s, err) : oracle_search_counts(s, err);
    for (size_t i = first; i <= last; i++)
        s->plan->phases[i] = s->best_vector;
    return e;
}

static int oracle_search(struct search *s, struct cw_error *err)
{
    const struct cw_sim_job *job = &s->w->jobs[s->job];
    _cleanup_free_ struct cw_sim_vector *best = calloc(job->n_phases, sizeof(*best));
    int best_cache_point = -1, r = best ? 0 : cw_error_nomem(err, 0, "a plan");
    for (int m = -1; r == 0 && m < (int)job->n_cache_points; m++) {
        struct cw_sim_outcome before = s->best;
        bool had = s->any;
        s->plan->cache_point = m;
        r = oracle_search_range(s, 0, job->n_phases - 1, err);
        if (r == 0 && (!had || outcome_better(job->objective, &s->best, &before))) {
            best_cache_point = m;
            memcpy(best, s->plan->phases, job->n_phases * sizeof(*best));
        }
    }
    if (r == 0) {
        s->plan->cache_point = best_cache_point;
        memcpy(s->plan->phases, best, job->n_phases * sizeof(*best));
    }
    for (int sweep = 0; r == 0 && job->n_phases > 1 && sweep < SWEEPS; sweep++)
        for (size_t i = 0; r == 0 && i < job->n_phases; i++)
            r = oracle_search_range(s, i, i, err);
    return r;
}

int cw_sim_oracle(const struct cw_workload *w, int job, struct cw_sim_plan *ret,
                  struct cw_sim_outcome *outcome, struct cw_error *err)
{
    *ret = (struct cw_sim_plan){.cache_point = -1,
                                .phases = calloc(w->jobs[job].n_phases, sizeof(struct cw_sim_vector))};
    if (!ret->phases)
        return cw_error_nomem(err, 0, "a plan");
    /* all oracles together may take CW_SIM_MAX_STEPS: each job has an equal part */
    struct search s = {
        .w = w, .job = job, .plan = ret, .steps = CW_SIM_MAX_STEPS - CW_SIM_MAX_STEPS / w->n_jobs};
    ret->phases[0].workers[w->first_pool] = 1;
    int r = oracle_search(&s, err);
    if (r < 0) {
        free(ret->phases);
        ret->phases = NULL;
        return r;
    }
    *outcome = s.best;
    return 0;
}
