/* Sends Prepare to workers: a worker that gets it opens the data of a stream. Until the stream's plan is
 * known, one worker at a time is sent Prepare; then all workers, or those of the stream's worker set if a
 * scaling policy decides. An assignment is the relation of a worker to a stream. Owns nothing. The life of
 * workers and streams, and the lease code, call these functions; prepare_answers.c handles the answers. */
#pragma once
#include <stdbool.h>

#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Sends Prepare to every worker that should run the stream and has not been asked yet. */
void cw_dp_prepare_stream(struct cw_dispatcher *d, struct stream *s);
/* Calls cw_dp_prepare_stream for all streams; if `waiting` is true, only for those that wait for a worker
 * with room for another stream. Streams without a ready worker go first, the oldest of them first. */
void cw_dp_prepare_all(struct cw_dispatcher *d, bool waiting);
/* Calls cw_dp_prepare_stream for the streams that wait, if a worker got room since the last call. */
void cw_dp_prepare_waiting(struct cw_dispatcher *d);
/* Sends Forget: the worker frees everything that it has of the stream. */
void cw_dp_prepare_forget(struct cw_dispatcher *d, struct worker *w, ProtobufCBinaryData stream);
/* Shuns the assignment after a fault: it gets no leases for the time DP_SHUN. */
void cw_dp_prepare_shun(struct cw_dispatcher *d, struct assignment *t);
/* Ends shunning for each assignment of the stream whose shun time is over; if `all` is true, also for the
 * others, except those that are unfit (the worker can't serve the stream). If an unfit assignment's time is
 * over, its worker is sent Prepare again. */
void cw_dp_prepare_unshun(struct cw_dispatcher *d, struct stream *s, bool all);
