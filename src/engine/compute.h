/* Compute threads: they choose what runs next, and handle blocks that get no memory. The caller does not hold
 * the runner's mutex. */
#pragma once
#include "base/error.h"

struct cw_runner;

/* Starts the compute threads. */
int cw_compute_start(struct cw_runner *r, struct cw_error *err) _must_check_;
/* Starts threads that the width asks for (width.h); those beyond it end by themselves. If the system gives no
 * thread, fewer run. Mutex held. */
void cw_compute_resize(struct cw_runner *r);
/* Ends all threads of the runner, including those that read. */
void cw_compute_stop(struct cw_runner *r);
