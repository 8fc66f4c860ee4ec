/* A consumer's pace, as policies need it: its own time from batch to batch, and the time that it waited.
 * Sums over steps. Called by remote/ and session/, for a consumer, and by the dispatcher, for each rank. */
#pragma once
#include "policy/policy.h"

struct cw_pace {
    double n, step_s, step_sq, wait_s, wait_sq; /* steps; their sums, and sums of squares */
    double late, ready; /* steps with a wait; batches that were ready, summed over steps */
    bool paused;        /* the last step was left out, as a pause */
};

/* Adds a step. An evaluation or a checkpoint between two batches is no step: it is left out. If the next step
 * takes as long, steps have become long. */
void cw_pace_add(struct cw_pace *p, double step_s, double wait_s, double ready);
/* What `now` has beyond `before`, an earlier state of the same sums. */
struct cw_client_facts cw_pace_facts(const struct cw_pace *now, const struct cw_pace *before);
