/* Notifications to the clients of a stream: the addresses of workers, the placement of ranges (which worker
 * has which range), and reports of finished ranges. A client gets one message of each kind per turn, or
 * several if the items do not fit into one. */
#pragma once
#include <stdint.h>

#include "service/dispatcher/types.h"

/* Sends changed placements and new reports of a stream. Returns 0; or, with many clients, after how many ns
 * they may be sent. */
uint64_t cw_dp_notify_stream(struct cw_dispatcher *d, struct stream *s);
/* Sends a rank that has just attached all addresses, placements and reports that it needs. */
void cw_dp_notify_rank(struct cw_dispatcher *d, struct rank *r);
/* Sends the address of the assignment's worker to all clients of the stream. */
void cw_dp_notify_worker(struct cw_dispatcher *d, struct assignment *t);
/* Tells all clients that know the worker that it is gone. */
void cw_dp_notify_gone(struct cw_dispatcher *d, struct worker *w);
