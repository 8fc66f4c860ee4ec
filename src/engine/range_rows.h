/* Keeps the rows of a range by key, for a process that joins batches of several ranges. The functions are in
 * runner.h (cw_runner_part and the following); the consumer's thread calls them, except the function
 * below. */
#pragma once

struct cw_range;
struct cw_runner;

/* Frees rows that were dropped with cw_runner_drop_rows, also those that were computed after it. Mutex
 * held. */
void cw_range_forget_rows(struct cw_runner *r, struct cw_range *s);
