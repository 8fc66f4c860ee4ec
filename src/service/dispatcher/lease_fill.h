/* Cuts ranges and leases them: each worker of a stream gets as many as it has room for, earliest positions
 * first. The end of the turn fills; a tick finds late ranges. */
#pragma once
#include "service/dispatcher/types.h"

/* Leases free ranges to the assignments that have room. */
void cw_dp_lease_fill(struct cw_dispatcher *d, struct stream *s);
/* Leases the first unfinished range a second time if it is late, and others of the same holder. */
void cw_dp_lease_late(struct cw_dispatcher *d, struct stream *s);
