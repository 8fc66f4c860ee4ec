/* The consumer's pace, for the policies that decide on the number of workers: the time that the consumer
 * itself spends between batches, and the time that it waits for them. The consumer's thread adds to it; the
 * loop's thread sends it in Progress. The mutex guards it. */
#include "remote/pace.h"

#include "base/clock.h"
#include "base/thread.h"
#include "remote/internal.h"

/* Returns the number of batches that have arrived and are not taken yet. */
static uint64_t pace_count_ready(const struct remote *r)
{
    uint64_t n = 0;
    CW_LIST_EACH_OF (c, struct course, link, &r->courses)
        for (const struct slot *s = c->slots; s; s = s->next)
            n += cw_slot_here(s);
    return n;
}

void cw_pace_step(struct remote *r)
{
    uint64_t now = cw_now_ns();
    struct pace *p = &r->pace;
    CW_GUARD(&r->mutex);
    double wait = (double)(r->waiting.total_ns - p->last_total_wait_ns) / 1e9,
           step = CW_MAX((double)(now - p->last_ns) / 1e9 - wait, 0);
    if (p->last_ns)
        cw_pace_add(&p->sums, step, wait, (double)pace_count_ready(r));
    p->last_ns = now;
    p->last_total_wait_ns = r->waiting.total_ns;
}
