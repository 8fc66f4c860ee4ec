/* A consumer's pace: the time that its own step takes from batch to batch, and the time that it waits, summed
 * over steps. remote/ and session/ keep one for a consumer, the dispatcher keeps one for each rank. No lock:
 * the owner locks. */
#pragma once
#include "policy/policy.h"

struct cw_pace {
    double n;                                /* steps */
    double step_s, step_sq, wait_s, wait_sq; /* sums of the steps' seconds and waits, and of their squares */
    double late, ready; /* steps with a wait; sum over steps of the batches that were ready */
    bool paused;        /* the last step was not counted, because it seemed to be a pause */
};

/* Adds a step. A step that is much longer than the mean is not counted: it is taken to be a pause for an
 * evaluation or a checkpoint. If the next step is as long, it is counted, since steps have become longer. */
void cw_pace_add(struct cw_pace *p, double step_s, double wait_s, double ready);
/* Returns the measurements between `before`, an earlier state of the same sums, and `now`. */
struct cw_client_facts cw_pace_facts(const struct cw_pace *now, const struct cw_pace *before);
