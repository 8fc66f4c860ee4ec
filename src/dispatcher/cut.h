/* How many positions a range gets when it is cut. A pure function of what was measured: no clock, no state. */
#pragma once
#include <stdint.h>

struct cw_cut {
    double positions_per_s; /* that one worker of the stream runs; 0: not known yet */
    uint64_t n_measured;    /* completions that were measured; each lets ranges grow four times */
    uint64_t n_workers;     /* that run the stream; at least 1 */
    uint64_t align;         /* the result is a multiple of it; at least 1 */
    uint64_t first;         /* positions of a range while no rate is known; at least 1 */
    uint64_t most;          /* positions of a range, by the memory of workers; at least align */
    uint64_t left;          /* positions from the range's begin to the end of what jobs want */
};

/*
 * A worker takes 0.5 s for a range, or 0.1 ms for each worker of the stream if that is more: one dispatcher serves 10,000 leases a second.
 * Near the end, half of what is left is shared out evenly, but a range never takes less than 20 ms.
 */
uint64_t cw_cut_size(const struct cw_cut *c);
