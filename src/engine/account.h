/* Sums of what all threads counted (profile.h), updated with the runner's mutex held after each block. */
#pragma once
#include "engine/sched.h"

/* Allocates the counters of each thread and the sums. */
int cw_account_new(struct cw_runner *r, struct cw_error *err) _must_check_;
/* Adds to the sums what a thread counted since the last call. Mutex held. */
void cw_account_add(struct cw_runner *r, struct compute_thread *t);
/* Waits for something to do, and adds the time to the reason why nothing could be done. Mutex held; released
 * while it waits. */
void cw_account_idle(struct cw_runner *r);
