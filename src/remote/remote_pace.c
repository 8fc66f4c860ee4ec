/* How fast the consumer goes, as policies want to know it: its own time from batch to batch, and what it
 * waited. The consumer's thread. */
#include "base/clock.h"
#include "base/thread.h"
#include "remote/remote_impl.h"

/* So many times as long as steps were so far, and at least a second: after so many of them. */
#define PAUSE_STEPS 10
#define PAUSE_S 1.0
#define PAUSE_KNOWN 10

/* Batches that came and were not taken. Mutex held. */
static uint64_t n_ready(const struct remote *r)
{
    uint64_t n = 0;
    for (const struct course *c = r->courses; c; c = c->next)
        for (const struct slot *s = c->slots; s; s = s->next)
            n += cw_slot_here(s);
    return n;
}

/* An evaluation or a checkpoint between two batches is no step. But if the next one takes as long, steps have
 * become long. */
static bool is_pause(struct pace *p, double step)
{
    p->paused = !p->paused && p->n >= PAUSE_KNOWN && step > PAUSE_S &&
                step > PAUSE_STEPS * p->step_s / (double)p->n;
    return p->paused;
}

/* A batch is handed out: since the one before it the consumer waited, or was busy with that. */
void cw_remote_note_pace(struct remote *r)
{
    uint64_t now = cw_now_ns();
    struct pace *p = &r->pace;
    CW_GUARD(&r->mutex);
    if (p->last_ns) {
        double wait = (double)(r->wait_ns - p->last_wait_ns) / 1e9,
               step = CW_MAX((double)(now - p->last_ns) / 1e9 - wait, 0);
        if (!is_pause(p, step)) {
            p->n++;
            p->late += wait > 0;
            p->ready += n_ready(r);
            p->step_s += step;
            p->step_sq += step * step;
            p->wait_s += wait;
            p->wait_sq += wait * wait;
        }
    }
    p->last_ns = now;
    p->last_wait_ns = r->wait_ns;
}
