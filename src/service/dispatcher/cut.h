/* Decides how many positions a new range gets: a pure function of measurements and counts. lease_fill.c calls
 * it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct cw_cut {
    double positions_per_s; /* rate of one worker of the stream; 0: not known yet */
    uint64_t n_measured;    /* completions that were measured; each lets ranges grow by a factor of four */
    uint64_t n_workers;     /* workers that run the stream, at least 1 */
    uint64_t position;      /* of the range's begin, in its epoch */
    /* positions of a shuffle window; a worker that runs a part of a window reads all of it. 0: there are no
     * windows */
    uint64_t window;
    uint64_t align; /* ranges end at multiples of this number; at least 1 */
    /* `align` positions (a batch) may be divided among workers; then ranges may end at any position */
    bool divides;
    uint64_t first; /* positions of a range while no rate is known, at least 1 */
    uint64_t most;  /* positions that fit the memory of each worker, at least align */
    uint64_t left;  /* positions from the range's begin to the end of the last epoch */
};

/*
 * Returns how many positions a range gets. The range takes one worker 0.5 s, or 0.1 ms times the number of
 * workers if that is more. Near the end of the last epoch a range has at most left / (2 * n_workers)
 * positions, but at least 20 ms of work. A range that would have at least half of the rest of a window gets
 * whole windows. If `divides`, a batch of `align` positions that takes one worker more than 1 s (or an
 * unknown time) is divided into at most CW_CUT_PARTS ranges.
 */
#define CW_CUT_PARTS 32
uint64_t cw_cut_size(const struct cw_cut *c);
