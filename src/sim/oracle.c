/* The oracle: tries all plans of a job in the simulator itself, without noise. It knows the file, and pays for starting workers like everybody. */
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "sim/sim.h"

/* Plans that are as good as the best one but for this much count as equal: then the other measure decides. */
#define EQUAL 1e-4
#define ALL_COUNTS 2000 /* up to so many workers each count is tried, beyond in steps of a thousandth */
#define SWEEPS 3        /* over the phases: each is chosen with the others as they are */

struct search {
    const struct cw_workload *w;
    int job;
    struct cw_sim_plan *plan;
    struct cw_sim_outcome best;
    bool any;
    uint64_t steps;
};

static bool better(enum cw_objective objective, const struct cw_sim_outcome *a, const struct cw_sim_outcome *b)
{
    double ta = a->ended_s - a->began_s, tb = b->ended_s - b->began_s;
    double first = objective == CW_OBJECTIVE_TIME ? ta : a->cost, other = objective == CW_OBJECTIVE_TIME ? tb : b->cost;
    if (first < other * (1 - EQUAL) || first > other * (1 + EQUAL))
        return first < other;
    return objective == CW_OBJECTIVE_TIME ? a->cost < b->cost * (1 - EQUAL) : ta < tb * (1 - EQUAL);
}

static int try_plan(struct search *s, bool *ret, struct cw_error *err)
{
    struct cw_sim_outcome outcome;
    struct cw_sim_options o = {.plans = s->plan, .expected = true, .alone = s->job, .steps = &s->steps};
    int r = cw_sim_run(s->w, &o, &outcome, err);
    *ret = r == 0 && (!s->any || better(s->w->jobs[s->job].objective, &outcome, &s->best));
    if (*ret)
        s->best = outcome;
    s->any = true;
    cw_sim_outcome_deinit(&outcome); /* an expected run has neither decisions nor samples */
    return r;
}

static int next_count(int n) { return n < ALL_COUNTS ? n + 1 : n + n / 1000; }

/* The best count for the phases from `first` to `last`, which get the same. */
static int search_count(struct search *s, size_t first, size_t last, struct cw_error *err)
{
    const struct cw_sim_job *job = &s->w->jobs[s->job];
    int best = s->plan->workers[first], most = (int)s->w->max_workers;
    if (job->quota > 0)
        most = CW_MIN(most, (int)job->quota);
    for (int n = 1; n <= most; n = next_count(n)) {
        bool found;
        for (size_t i = first; i <= last; i++)
            s->plan->workers[i] = n;
        int r = try_plan(s, &found, err);
        if (r < 0)
            return r;
        if (found)
            best = n;
    }
    for (size_t i = first; i <= last; i++)
        s->plan->workers[i] = best;
    return 0;
}

static int search_all(struct search *s, struct cw_error *err)
{
    const struct cw_sim_job *job = &s->w->jobs[s->job];
    int best_marker = -1, *best = calloc(job->n_phases, sizeof(*best)), r = best ? 0 : cw_error_nomem(err, 0, "a plan");
    for (int m = -1; r == 0 && m < (int)job->n_markers; m++) {
        struct cw_sim_outcome before = s->best;
        bool had = s->any;
        s->plan->marker = m;
        r = search_count(s, 0, job->n_phases - 1, err);
        if (r == 0 && (!had || better(job->objective, &s->best, &before))) {
            best_marker = m;
            memcpy(best, s->plan->workers, job->n_phases * sizeof(*best));
        }
    }
    if (r == 0) {
        s->plan->marker = best_marker;
        memcpy(s->plan->workers, best, job->n_phases * sizeof(*best));
    }
    for (int sweep = 0; r == 0 && job->n_phases > 1 && sweep < SWEEPS; sweep++)
        for (size_t i = 0; r == 0 && i < job->n_phases; i++)
            r = search_count(s, i, i, err);
    free(best);
    return r;
}

int cw_sim_oracle(const struct cw_workload *w, int job, struct cw_sim_plan *ret, struct cw_sim_outcome *outcome, struct cw_error *err)
{
    *ret = (struct cw_sim_plan){.marker = -1, .workers = calloc(w->jobs[job].n_phases, sizeof(int))};
    if (!ret->workers)
        return cw_error_nomem(err, 0, "a plan");
    struct search s = {.w = w, .job = job, .plan = ret, .steps = CW_SIM_MAX_STEPS - CW_SIM_MAX_STEPS / w->n_jobs}; /* each job has its part */
    ret->workers[0] = 1;
    int r = search_all(&s, err);
    if (r < 0) {
        free(ret->workers);
        ret->workers = NULL;
        return r;
    }
    *outcome = s.best;
    return 0;
}
