/* A job's workers of one pool: they start after a delay, some are slow, some fail and are replaced. Owned by
 * struct cw_sim_played (job.h); called by sim.c. */
#include "sim/worker_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macro.h"

/* Draws the time of the next failure of any worker of the set. Failures are memoryless, so drawing again each
 * time the number of workers changes does not change their distribution. */
static void worker_set_draw_failure(struct cw_sim_worker_set *set, const struct cw_workload *w, double now)
{
    set->fails_at = w->mtbf_s > 0 && !set->reliable && set->running > 0
                        ? now + cw_draw_exponential(&set->draw, w->mtbf_s / set->running)
                        : CW_SIM_NEVER;
}

static void worker_set_add(struct cw_sim_worker_set *set, const struct cw_workload *w, int n)
{
    set->running += n;
    for (int i = 0; i < n && w->stragglers > 0; i++)
        set->slow += cw_draw_uniform(&set->draw) < w->stragglers;
}

static void worker_set_remove(struct cw_sim_worker_set *set, int n)
{
    for (; n > 0 && set->slow > 0; n--, set->running--)
        if (cw_draw_uniform(&set->draw) * set->running < set->slow)
            set->slow--;
    set->running -= n;
}

static int worker_set_start(struct cw_sim_worker_set *set, double at, int n)
{
    if (CW_ARRAY_ROOM(set->starts, set->room, set->n_starts + 1, "starts", NULL) < 0)
        return CW_E_MEMORY;
    set->starts[set->n_starts++] = (struct cw_sim_start){at, n};
    set->starting += n;
    return 0;
}

/* Cancels up to n workers that are starting, those that would run last first. Returns how many of the n are
 * still to be stopped. */
static int worker_set_cancel(struct cw_sim_worker_set *set, int n)
{
    while (n > 0 && set->n_starts > 0) {
        struct cw_sim_start *last = &set->starts[set->n_starts - 1];
        int gone = CW_MIN(n, last->n);
        last->n -= gone;
        set->starting -= gone;
        set->n_starts -= last->n == 0;
        n -= gone;
    }
    return n;
}

int cw_sim_worker_set_resize(struct cw_sim_worker_set *set, const struct cw_workload *w, double now,
                             int target)
{
    int more = target - set->running - set->starting, r = 0;
    if (more > 0 && set->start_delay_s > 0)
        r = worker_set_start(set, now + set->start_delay_s, more);
    else if (more > 0)
        worker_set_add(set, w, more);
    else
        worker_set_remove(set, worker_set_cancel(set, -more));
    worker_set_draw_failure(set, w, now);
    return r;
}

double cw_sim_worker_set_next(const struct cw_sim_worker_set *set)
{
    return set->n_starts > 0 ? CW_MIN(set->fails_at, set->starts[0].at) : set->fails_at;
}

int cw_sim_worker_set_step(struct cw_sim_worker_set *set, const struct cw_workload *w, double now)
{
    int any = 0;
    while (set->n_starts > 0 && set->starts[0].at <= now) {
        int n = set->starts[0].n;
        set->n_starts--;
        memmove(set->starts, set->starts + 1, set->n_starts * sizeof(*set->starts));
        set->starting -= n;
        worker_set_add(set, w, n);
        any = 1;
    }
    if (set->fails_at <= now && set->running > 0) {
        worker_set_remove(set, 1);
        any = 1;
        if (worker_set_start(set, now + set->start_delay_s, 1) < 0)
            return CW_E_MEMORY;
    }
    if (any)
        worker_set_draw_failure(set, w, now);
    return any;
}
