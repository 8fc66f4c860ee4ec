/* The loop's thread, which communicates with the dispatcher and the workers: starts, runs and stops it. */
#pragma once
#include "base/error.h"

struct remote;

/* Starts the loop's thread, which connects to the dispatcher. Called by the consumer's thread. */
int cw_remote_loop_start(struct remote *r, struct cw_error *err) _must_check_;
/* Detaches from the job, closes all connections, and joins the loop's thread. Called by the consumer's
 * thread. Does nothing if the loop's thread does not run. */
void cw_remote_loop_stop(struct remote *r);
