/* Cuts ranges of positions (ranges.h) and leases them to the workers of a stream, earliest positions first.
 * Each worker gets as many ranges as keep it busy, up to its capacity. Each turn of the dispatcher (core.h)
 * leases; each tick looks for late ranges. */
#pragma once
#include "service/dispatcher/types.h"

/* Leases the stream's free ranges to those of its assignments that have room. */
void cw_dp_lease_fill(struct cw_dispatcher *d, struct stream *s);
/* If the stream's first unfinished range is late, leases it to a second worker, and the unfinished later
 * ranges of the same slow worker too, as long as there are idle workers. */
void cw_dp_lease_late(struct cw_dispatcher *d, struct stream *s);
