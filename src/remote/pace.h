/*
 * The consumer's pace, as policies need it: its own time from batch to batch, and the time that it waited.
 * The consumer's thread adds to it; the loop's thread sends it with Progress. The mutex guards it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct remote;

struct pace {
    uint64_t n, late, ready; /* steps; those with a wait; batches that were ready, summed over steps */
    double step_s, step_sq, wait_s, wait_sq; /* sums over the steps, and sums of squares */
    bool paused;                             /* the last step was left out, as a pause */
    uint64_t last_ns;                        /* when the last batch was handed out; 0: none was */
    uint64_t last_total_wait_ns;             /* what the consumer had waited in all by then */
};

/* A batch is handed out: counts the step since the one before. The consumer's thread; mutex not held. */
void cw_pace_step(struct remote *r);
