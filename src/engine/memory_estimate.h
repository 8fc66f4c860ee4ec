/*
 * How much memory a pipeline needs: the number that the error of a budget that is too small names. It must be
 * enough for the next run, with any number of threads and in any order of events, so it is not what was in
 * use when the budget refused memory. It is what the runner takes with low memory: the plan of one piece, the
 * batch that is filled, the batch that the consumer holds, and what one element takes while it is computed.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct cw_runner;

/* An element's. */
struct cw_place {
    uint64_t seed, epoch, position;
};

/* Returns bytes with which an element there, its batch and all that is like them can be computed; at least
 * `least`. Computes some elements once more, in memory beyond the budget. Mutex not held. */
size_t cw_memory_estimate(struct cw_runner *r, const struct cw_place *at, size_t least);
