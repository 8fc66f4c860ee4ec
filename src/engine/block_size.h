/* How many rows a block has: as many as take about half a millisecond, while their columns stay in a core's
 * cache. Mutex held, but for cw_block_sizes_new. */
#pragma once
#include "base/error.h"

struct cw_runner;

struct block_size {
    uint64_t aim_ns, most; /* a block takes about so long, and has no more rows; set once */
    uint64_t ns;           /* mean time of a row, lately; 0: not known */
    uint64_t recorded;     /* rows of a block, as the last tuning record says */
};

int cw_block_sizes_new(struct cw_runner *r, struct cw_error *err) _must_check_;
/* Rows of the next block of a program that is computed, or read from the cache (hit). */
uint64_t cw_block_size(const struct cw_runner *r, unsigned leaf, bool hit);
/* Rows that a block of any program has at most. */
uint64_t cw_block_size_most(const struct cw_runner *r);
/* A row of a block that is done took so long. */
void cw_block_size_timed(struct cw_runner *r, unsigned leaf, bool hit, uint64_t ns);
