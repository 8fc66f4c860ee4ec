/*
 * The heartbeat: every second the worker tells the dispatcher how much CPU time and memory it uses, and what
 * it has computed of each stream. The loop's thread only; called by worker.c.
 */
#pragma once
#include "base/error.h"

struct cw_worker;

/* Makes and starts the timer w->heartbeat. w owns it. */
int cw_heartbeat_start(struct cw_worker *w, struct cw_error *err) _must_check_;
