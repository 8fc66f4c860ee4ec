/* A consumer's pace: the time that its own step takes from batch to batch, and the time that it waits, summed
 * over steps. remote/ and session/ keep one for a consumer, the dispatcher keeps one for each rank. */
#include "policy/pace.h"

/* A step is a pause if it takes more than PAUSE_STEPS times the mean step and more than PAUSE_S seconds. The
 * mean is used only after PAUSE_KNOWN steps. */
#define PAUSE_STEPS 10
#define PAUSE_KNOWN 10
#define PAUSE_S 1.0

void cw_pace_add(struct cw_pace *p, double step_s, double wait_s, double ready)
{
    p->paused = !p->paused && p->n >= PAUSE_KNOWN && step_s > PAUSE_S &&
                step_s > PAUSE_STEPS * p->step_s / p->n;
    if (p->paused)
        return;
    p->n++;
    p->step_s += step_s;
    p->step_sq += step_s * step_s;
    p->wait_s += wait_s;
    p->wait_sq += wait_s * wait_s;
    p->late += wait_s > 0;
    p->ready += ready;
}

struct cw_client_facts cw_pace_facts(const struct cw_pace *now, const struct cw_pace *before)
{
    double n = now->n - before->n;
    return (struct cw_client_facts){
        .step = cw_mean_of(n, now->step_s - before->step_s, now->step_sq - before->step_sq),
        .wait = cw_mean_of(n, now->wait_s - before->wait_s, now->wait_sq - before->wait_sq),
        .queue = n > 0 ? (now->ready - before->ready) / n : 0};
}
