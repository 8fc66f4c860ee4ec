/*
 * The consumer's pace, as policies need it: its own time from batch to batch, and the time that it waited.
 * The consumer's thread adds to it; the loop's thread sends it with Progress. The mutex guards it.
 */
#pragma once
#include "net/envelope.h"

struct remote;

struct pace {
    Cachew__Pace sums;           /* as Progress has them; ready: batches that were ready, summed over steps */
    bool paused;                 /* the last step was left out, as a pause */
    uint64_t last_ns;            /* when the last batch was handed out; 0: none was */
    uint64_t last_total_wait_ns; /* what the consumer had waited in all by then */
};

/* A batch is handed out: counts the step since the one before. The consumer's thread; mutex not held. */
void cw_pace_step(struct remote *r);
