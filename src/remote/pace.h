/* The consumer's pace, for the policies that decide on the number of workers: the time that the consumer
 * itself spends between batches, and the time that it waits for them. The consumer's thread adds to it; the
 * loop's thread sends it in Progress. The mutex guards it. */
#pragma once
#include <stdint.h>

#include "policy/pace.h"

struct remote;

struct pace {
    struct cw_pace sums;
    uint64_t last_ns;            /* when the last batch was handed out; 0: none was */
    uint64_t last_total_wait_ns; /* the consumer's total waiting time until then, in ns */
};

/* Call when a batch is handed out: counts the time since the batch before. The consumer's thread; the mutex
 * must not be held. */
void cw_pace_step(struct remote *r);
