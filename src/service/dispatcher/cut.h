/* How many positions a range gets when it is cut: a pure function of measurements and counts. lease_fill.c
 * calls it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct cw_cut {
    double positions_per_s; /* that one worker of the stream runs. 0: not known yet */
    uint64_t n_measured;    /* measured completions: each lets ranges grow four times */
    uint64_t n_workers;     /* that run the stream, at least 1 */
    uint64_t position;      /* of the range's begin, in its epoch */
    /* a worker that runs some positions of a window reads all of it. 0: there are no windows */
    uint64_t window;
    uint64_t align; /* the range ends at a multiple of it, at least 1 */
    /* other workers may have parts of `align` positions, which then need not be a range's end */
    bool divides;
    uint64_t first; /* positions of a range while no rate is known, at least 1 */
    uint64_t most;  /* positions that fit the memory of each worker, at least align */
    uint64_t left;  /* positions from the range's begin to the end of the last epoch */
};

/*
 * Returns the positions of a range that takes a worker 0.5 s, or 0.1 ms times the number of workers if that
 * is more. Near the end a range has at most left / (2 * n_workers) positions, but not less than 20 ms of
 * work. Ranges that would hold half of what is left of a window, or more, hold whole windows. Where it
 * divides, `align` positions are divided if they take a worker more than 1 s, or may do so: into at most
 * CW_CUT_PARTS ranges.
 */
#define CW_CUT_PARTS 32
uint64_t cw_cut_size(const struct cw_cut *c);
