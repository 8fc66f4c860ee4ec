/* The thread that talks to dispatcher and workers: its start, its turns and its end. */
#pragma once
#include "base/error.h"

struct remote;

/* Starts the thread, which connects to the dispatcher. Consumer's thread. */
int cw_remote_loop_start(struct remote *r, struct cw_error *err) _must_check_;
/* Says goodbye, closes all connections, and joins the thread. Consumer's thread; nothing if it does not run.
 */
void cw_remote_loop_stop(struct remote *r);
