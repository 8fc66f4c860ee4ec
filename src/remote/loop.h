/* Starts and stops the client's loop thread, which communicates with the dispatcher and the workers. struct
 * remote owns the thread. */
#pragma once
#include "base/error.h"

struct remote;

/* Starts the loop's thread. It connects to the dispatcher later; if that fails, cw_remote_fail records the
 * error. Called by the consumer's thread. */
int cw_remote_loop_start(struct remote *r, struct cw_error *err) _must_check_;
/* Detaches from the job, closes all connections, and joins the loop's thread. Called by the consumer's
 * thread. Does nothing if the loop's thread does not run. */
void cw_remote_loop_stop(struct remote *r);
