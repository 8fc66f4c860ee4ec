/* What the clients of a stream are sent: where workers are, where ranges are, and what finished ranges gave.
 * One message of a kind per client and turn. */
#pragma once
#include <stdint.h>

#include "service/dispatcher/types.h"

/* Sends a stream's news. Returns 0, or after how many ns it is time for it. */
uint64_t cw_dp_notify_stream(struct cw_dispatcher *d, struct stream *s);
/* Sends the rank all that is known of its stream. */
void cw_dp_notify_rank(struct cw_dispatcher *d, struct rank *r);
/* Sends the address of the assignment's worker to the stream's clients. */
void cw_dp_notify_worker(struct cw_dispatcher *d, struct assignment *t);
/* Sends the clients that know the worker that it is gone. */
void cw_dp_notify_gone(struct cw_dispatcher *d, struct worker *w);
