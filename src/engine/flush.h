/* The end of an epoch: the elements that wait become its last batches. */
#pragma once
#include "engine/range.h"

/* Ends a range of which everything is computed: if it ends with its epoch, the elements that wait become its
 * last batches (cw_grouping_rest); otherwise they are dropped. 0: done; 2: there is no memory now, call it
 * again. Mutex held; it is released while this function waits for memory. */
int cw_range_flush(struct cw_runner *r, struct cw_range *s, uint64_t deadline_ns,
                   struct cw_error *err) _must_check_;
