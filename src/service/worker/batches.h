/*
 * Serves requests for batches of counted and sequential ranges, in order of their numbers. The stream's
 * thread only; called by leases.c.
 */
#pragma once
#include "service/worker/lease.h"

/* Answers requests of one range as far as possible now. Returns whether anything was done; not where the
 * stream failed. */
bool cw_batches_serve(struct cw_leases *s, struct cw_lease *l);
