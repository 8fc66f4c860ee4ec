/*
 * Messages between the dispatcher and this worker: registering, streams, leases, draining. What the worker
 * holds is sent anew on each connection. Answers of streams go from here to clients and reports. The loop's
 * thread only; called by worker.c.
 */
#pragma once
#include "service/worker/streams.h"
#include "service/worker/uplink.h"

/* Of the connection to the dispatcher; its user is the struct cw_worker. */
extern const struct cw_conn_ops cw_control_ops;
/* Takes no more ranges, and notifies the dispatcher. */
void cw_control_drain(void *worker);
/* Handles what a stream answers: to clients, to the dispatcher, or to the worker itself. */
void cw_control_on_answers(void *stream);
