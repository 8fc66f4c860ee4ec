/*
 * Messages between the dispatcher and this worker: registering, streams, leases, draining. What the worker
 * holds is sent anew on each connection. The loop's thread only; called by worker.c.
 */
#pragma once
#include "service/worker/streams.h"
#include "service/worker/uplink.h"

/* Handles the dispatcher's messages; arg is the struct cw_worker. */
extern const struct cw_uplink_ops cw_control_ops;
/* Takes no more ranges, and notifies the dispatcher. */
void cw_control_drain(struct cw_worker *w);

/* ---- events of streams; w is the struct cw_worker ---- */

/* Answers the Prepare of a stream that is ready, if it was not answered on this connection. */
void cw_control_prepared(void *w, struct cw_worker_stream *s);
void cw_control_prepare_failed(void *w, struct cw_worker_stream *s, const struct cw_error *why);
void cw_control_stream_failed(void *w, ProtobufCBinaryData stream, const struct cw_error *why);
