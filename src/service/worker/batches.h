/*
 * Serves requests for batches of counted and sequential ranges (lease.h), in the order of the batches'
 * numbers. The stream's thread only; called by leases.c.
 */
#pragma once
#include "service/worker/lease.h"

/* Answers the requests for one range that can be answered without waiting. Returns whether anything was done;
 * false also if the stream failed. */
bool cw_batches_serve(struct cw_leases *s, struct cw_lease *l);
