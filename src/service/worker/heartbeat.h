/*
 * What a worker sends the dispatcher every second: that it is alive, what it uses, and what it has computed
 * of each stream. The loop's thread only; called by worker.c.
 */
#pragma once
#include "base/error.h"

struct cw_worker;

/* Makes and starts w->heartbeat, which w owns. */
int cw_heartbeat_start(struct cw_worker *w, struct cw_error *err) _must_check_;
