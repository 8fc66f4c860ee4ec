/* Sends Prepare to workers: open the data of a stream. Until the stream's plan is known, one worker at a time
 * gets it; then all workers, or with a policy those of the stream's worker set. prepare_answers.c handles the
 * answers. */
#pragma once
#include <stdbool.h>

#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Sends Prepare to every worker that should run the stream and has not been asked yet. */
void cw_dp_prepare_stream(struct cw_dispatcher *d, struct stream *s);
/* Calls cw_dp_prepare_stream for all streams, or (waiting) for those that wait until a worker has room.
 * Streams without a ready worker go first, in the order of their age. */
void cw_dp_prepare_all(struct cw_dispatcher *d, bool waiting);
/* Calls cw_dp_prepare_stream for the streams that wait, if a worker got room since the last call. */
void cw_dp_prepare_waiting(struct cw_dispatcher *d);
/* Sends Forget: the worker frees everything that it has of the stream. */
void cw_dp_prepare_forget(struct cw_dispatcher *d, struct worker *w, ProtobufCBinaryData stream);
/* Shuns the assignment after a fault: it gets no leases for DP_SHUN. */
void cw_dp_prepare_shun(struct cw_dispatcher *d, struct assignment *t);
/* Ends shunning of the stream's assignments whose time is over, or (all) of every assignment that is not
 * unfit. A worker that was unfit is sent Prepare again. */
void cw_dp_prepare_unshun(struct cw_dispatcher *d, struct stream *s, bool all);
