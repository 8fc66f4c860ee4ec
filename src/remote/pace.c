#include "remote/pace.h"

#include "base/clock.h"
#include "base/thread.h"
#include "remote/internal.h"

/* A step is a pause if it takes this many times the mean step and at least this long. The mean counts from
 * this many steps on. */
#define PAUSE_STEPS 10
#define PAUSE_S 1.0
#define PAUSE_KNOWN 10

/* Returns the number of batches that are here and not taken. */
static uint64_t pace_count_ready(const struct remote *r)
{
    uint64_t n = 0;
    CW_LIST_EACH_OF (c, struct course, link, &r->courses)
        for (const struct slot *s = c->slots; s; s = s->next)
            n += cw_slot_here(s);
    return n;
}

/* An evaluation or a checkpoint between two batches is no step. If the next step takes as long, steps have
 * become long. */
static bool pace_is_pause(struct pace *p, double step)
{
    p->paused = !p->paused && p->sums.n >= PAUSE_KNOWN && step > PAUSE_S &&
                step > PAUSE_STEPS * p->sums.step_s / (double)p->sums.n;
    return p->paused;
}

void cw_pace_step(struct remote *r)
{
    uint64_t now = cw_now_ns();
    struct pace *p = &r->pace;
    Cachew__Pace *sums = &p->sums;
    CW_GUARD(&r->mutex);
    double wait = (double)(r->waiting.total_ns - p->last_total_wait_ns) / 1e9,
           step = CW_MAX((double)(now - p->last_ns) / 1e9 - wait, 0);
    if (p->last_ns && !pace_is_pause(p, step)) {
        sums->n++;
        sums->late += wait > 0;
        sums->ready += pace_count_ready(r);
        sums->step_s += step;
        sums->step_sq += step * step;
        sums->wait_s += wait;
        sums->wait_sq += wait * wait;
    }
    p->last_ns = now;
    p->last_total_wait_ns = r->waiting.total_ns;
}
