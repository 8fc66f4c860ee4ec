/* A job's workers of a pool: they start after a delay, some are slow, some fail and are replaced. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macro.h"
#include "sim/internal.h"

/* Of all workers together: the next failure. Memoryless, so it may be drawn anew whenever their number
 * changes. */
static void draw_failure(struct cw_sim_crew *crew, const struct cw_workload *w, double now)
{
    crew->fails_at = w->mtbf_s > 0 && !crew->reliable && crew->running > 0
                         ? now + cw_draw_exponential(&crew->draw, w->mtbf_s / crew->running)
                         : CW_SIM_NEVER;
}

static void come(struct cw_sim_crew *crew, const struct cw_workload *w, int n)
{
    crew->running += n;
    for (int i = 0; i < n && w->stragglers > 0; i++)
        crew->slow += cw_draw_uniform(&crew->draw) < w->stragglers;
}

static void leave(struct cw_sim_crew *crew, const struct cw_workload *w, int n)
{
    for (; n > 0 && crew->slow > 0; n--, crew->running--)
        if (cw_draw_uniform(&crew->draw) * crew->running < crew->slow)
            crew->slow--;
    crew->running -= n;
}

static int start(struct cw_sim_crew *crew, double at, int n)
{
    if (CW_ARRAY_ROOM(crew->starts, crew->room, crew->n_starts + 1, "starts", NULL) < 0)
        return CW_E_MEMORY;
    crew->starts[crew->n_starts++] = (struct cw_sim_start){at, n};
    crew->starting += n;
    return 0;
}

int cw_sim_crew_set(struct cw_sim_crew *crew, const struct cw_workload *w, double now, int target)
{
    int more = target - crew->running - crew->starting, r = 0;
    if (more > 0 && crew->start_delay_s > 0)
        r = start(crew, now + crew->start_delay_s, more);
    else if (more > 0)
        come(crew, w, more);
    for (; more < 0 && crew->n_starts > 0;) { /* the last ones asked for are the furthest from being useful */
        struct cw_sim_start *last = &crew->starts[crew->n_starts - 1];
        int n = CW_MIN(-more, last->n);
        last->n -= n;
        crew->starting -= n;
        more += n;
        if (last->n == 0)
            crew->n_starts--;
    }
    if (more < 0)
        leave(crew, w, -more);
    draw_failure(crew, w, now);
    return r;
}

double cw_sim_crew_next(const struct cw_sim_crew *crew)
{
    return crew->n_starts > 0 ? CW_MIN(crew->fails_at, crew->starts[0].at) : crew->fails_at;
}

int cw_sim_crew_step(struct cw_sim_crew *crew, const struct cw_workload *w, double now)
{
    int any = 0;
    while (crew->n_starts > 0 && crew->starts[0].at <= now) {
        int n = crew->starts[0].n;
        crew->n_starts--;
        memmove(crew->starts, crew->starts + 1, crew->n_starts * sizeof(*crew->starts));
        crew->starting -= n;
        come(crew, w, n);
        any = 1;
    }
    if (crew->fails_at <= now && crew->running > 0) {
        leave(crew, w, 1);
        any = 1;
        if (start(crew, now + crew->start_delay_s, 1) < 0)
            return CW_E_MEMORY;
    }
    if (any)
        draw_failure(crew, w, now);
    return any;
}
