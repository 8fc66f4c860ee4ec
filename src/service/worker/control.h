/*
 * Messages between the dispatcher and this worker: registering, streams, leases, draining. On each new
 * connection the worker sends again which streams and ranges it holds. Passes answers of streams on to
 * clients and to reports. The loop's thread only; called by worker.c.
 */
#pragma once
#include "service/worker/streams.h"
#include "service/worker/uplink.h"

/* Callbacks of the connection to the dispatcher; their user is the struct cw_worker. */
extern const struct cw_conn_ops cw_control_ops;
/* Starts draining: the worker accepts no more ranges, and tells the dispatcher. worker: the struct cw_worker.
 */
void cw_control_drain(void *worker);
/* Handles the answers in a stream's mailbox: for clients, for the dispatcher, or for the worker itself.
 * stream: the struct cw_worker_stream. */
void cw_control_on_answers(void *stream);
