/* Rows of a range by key, for a process that joins batches of several ranges: cw_runner_part and its like
 * (runner.h). Called by the consumer's thread, but for the below. */
#pragma once

struct cw_range;
struct cw_runner;

/* Frees rows that are there and were dropped, maybe before they came. Mutex held. */
void cw_range_forget_rows(struct cw_runner *r, struct cw_range *s);
