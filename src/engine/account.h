/* What all threads counted (profile.h): summed under the mutex after each block. */
#pragma once
#include "engine/sched.h"

/* Makes room to count in: each thread's, and that of the sums. */
int cw_account_new(struct cw_runner *r, struct cw_error *err) _must_check_;
/* Adds what a thread counted since last time. Mutex held. */
void cw_account_add(struct cw_runner *r, struct compute_thread *t);
/* Waits for something to do, and counts why there was nothing. Mutex held. */
void cw_account_idle(struct cw_runner *r);
