/* A job's workers of a pool: they start after a delay, some are slow, some fail and are replaced. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macro.h"
#include "sim/internal.h"

/* Of all workers together: the next failure. Memoryless, so it may be drawn anew whenever their number
 * changes. */
static void draw_failure(struct cw_sim_worker_set *worker_set, const struct cw_workload *w, double now)
{
    worker_set->fails_at = w->mtbf_s > 0 && !worker_set->reliable && worker_set->running > 0
                               ? now + cw_draw_exponential(&worker_set->draw, w->mtbf_s / worker_set->running)
                               : CW_SIM_NEVER;
}

static void come(struct cw_sim_worker_set *worker_set, const struct cw_workload *w, int n)
{
    worker_set->running += n;
    for (int i = 0; i < n && w->stragglers > 0; i++)
        worker_set->slow += cw_draw_uniform(&worker_set->draw) < w->stragglers;
}

static void leave(struct cw_sim_worker_set *worker_set, const struct cw_workload *w, int n)
{
    for (; n > 0 && worker_set->slow > 0; n--, worker_set->running--)
        if (cw_draw_uniform(&worker_set->draw) * worker_set->running < worker_set->slow)
            worker_set->slow--;
    worker_set->running -= n;
}

static int start(struct cw_sim_worker_set *worker_set, double at, int n)
{
    if (CW_ARRAY_ROOM(worker_set->starts, worker_set->room, worker_set->n_starts + 1, "starts", NULL) < 0)
        return CW_E_MEMORY;
    worker_set->starts[worker_set->n_starts++] = (struct cw_sim_start){at, n};
    worker_set->starting += n;
    return 0;
}

int cw_sim_worker_set_set(struct cw_sim_worker_set *worker_set, const struct cw_workload *w, double now,
                          int target)
{
    int more = target - worker_set->running - worker_set->starting, r = 0;
    if (more > 0 && worker_set->start_delay_s > 0)
        r = start(worker_set, now + worker_set->start_delay_s, more);
    else if (more > 0)
        come(worker_set, w, more);
    for (; more < 0 &&
           worker_set->n_starts > 0;) { /* the last ones asked for are the furthest from being useful */
        struct cw_sim_start *last = &worker_set->starts[worker_set->n_starts - 1];
        int n = CW_MIN(-more, last->n);
        last->n -= n;
        worker_set->starting -= n;
        more += n;
        if (last->n == 0)
            worker_set->n_starts--;
    }
    if (more < 0)
        leave(worker_set, w, -more);
    draw_failure(worker_set, w, now);
    return r;
}

double cw_sim_worker_set_next(const struct cw_sim_worker_set *worker_set)
{
    return worker_set->n_starts > 0 ? CW_MIN(worker_set->fails_at, worker_set->starts[0].at)
                                    : worker_set->fails_at;
}

int cw_sim_worker_set_step(struct cw_sim_worker_set *worker_set, const struct cw_workload *w, double now)
{
    int any = 0;
    while (worker_set->n_starts > 0 && worker_set->starts[0].at <= now) {
        int n = worker_set->starts[0].n;
        worker_set->n_starts--;
        memmove(worker_set->starts, worker_set->starts + 1,
                worker_set->n_starts * sizeof(*worker_set->starts));
        worker_set->starting -= n;
        come(worker_set, w, n);
        any = 1;
    }
    if (worker_set->fails_at <= now && worker_set->running > 0) {
        leave(worker_set, w, 1);
        any = 1;
        if (start(worker_set, now + worker_set->start_delay_s, 1) < 0)
            return CW_E_MEMORY;
    }
    if (any)
        draw_failure(worker_set, w, now);
    return any;
}
