/*
 * Estimates how much memory a pipeline needs: the number that the error about a too small budget names. It
 * must be enough for the next run, with any number of threads and in any order of events, so it is not the
 * amount that was in use when the budget refused memory. It is what the runner takes in the low-memory mode:
 * the plan of one piece, the batch that is being filled, the batch that the consumer holds, and what one
 * element takes while it is computed.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct cw_runner;

/* The place of an element. */
struct cw_place {
    uint64_t seed, epoch, position;
};

/* Returns a budget in bytes, at least `least`, that is enough to compute the element at `at`, its batch, and
 * elements like it. Computes some elements once more, in memory beyond the budget. Mutex not held. */
size_t cw_memory_estimate(struct cw_runner *r, const struct cw_place *at, size_t least);
