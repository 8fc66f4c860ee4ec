/* Compute threads: what runs next, and what happens when memory runs out. Mutex not held. */
#pragma once
#include "base/error.h"

struct cw_runner;

int cw_compute_start(struct cw_runner *r, struct cw_error *err) _must_check_;
/* Ends all threads of the runner, those that read too. */
void cw_compute_stop(struct cw_runner *r);
