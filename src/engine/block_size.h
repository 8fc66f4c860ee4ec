/* Chooses how many rows a block has: a block should take about half a millisecond (8 ms with Python
 * functions), and its columns should fit in a core's cache. The runner's mutex is held, except in
 * cw_block_sizes_new. */
#pragma once
#include "base/error.h"
#include "policy/concurrency.h"

struct compute_thread;
struct cw_runner;

struct block_size {
    uint64_t aim_ns, most; /* target time of a block; rows of a block at most. Both are set once */
    uint64_t ns;           /* running mean of the time of a row; 0: not known */
    uint64_t recorded;     /* rows of a block in the last tuning record */
    /* if a function computes rows at the same time, the number of rows; together.least 0: none does */
    struct cw_concurrency together;

    /* its calls since that number was chosen */
    struct {
        uint64_t n, rows, wall_ns, cpu_ns;
    } calls;
};

/* Allocates r->block_sizes, and sets their limits. cw_runner_free frees them. */
int cw_block_sizes_new(struct cw_runner *r, struct cw_error *err) _must_check_;
/* Returns the rows of the next block of a program (leaf). hit: its rows are read from the cache, not
 * computed. */
uint64_t cw_block_size(const struct cw_runner *r, unsigned leaf, bool hit);
/* Returns the rows that a block of any program has at most. */
uint64_t cw_block_size_most(const struct cw_runner *r);
/* Adds a measured time per row, from a block that is done, to the mean. */
void cw_block_size_timed(struct cw_runner *r, unsigned leaf, bool hit, uint64_t ns);
/* The thread has run a stage of a block of n rows: adds its calls of functions that compute rows at the same
 * time. */
void cw_block_size_called(struct cw_runner *r, struct compute_thread *t, unsigned leaf, uint64_t n);
