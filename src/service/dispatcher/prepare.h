/* Requests workers to prepare streams. Until the data is known, one worker is requested at a time; then all
 * are, or with a policy those of the stream's worker set. prepare_answers.c handles what workers answer. */
#pragma once
#include <stdbool.h>

#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Sends Prepare to every worker that should run this stream and does not. */
void cw_dp_prepare_stream(struct cw_dispatcher *d, struct stream *s);
/* The same for all streams, or those that wait until a worker has room (waiting). Streams without a ready
 * worker go first, the oldest first. */
void cw_dp_prepare_all(struct cw_dispatcher *d, bool waiting);
/* The same for streams that wait, if a worker got room since the last call. */
void cw_dp_prepare_waiting(struct cw_dispatcher *d);
/* Sends Forget: the worker is to drop what it has of the stream. */
void cw_dp_prepare_forget(struct cw_dispatcher *d, struct worker *w, ProtobufCBinaryData stream);
/* The assignment gets no leases for DP_SHUN, after a fault. */
void cw_dp_prepare_shun(struct cw_dispatcher *d, struct assignment *t);
/* Ends shunning where its time is over, or of all that are fit. A worker that was unfit is requested again.
 */
void cw_dp_prepare_unshun(struct cw_dispatcher *d, struct stream *s, bool all);
